//! Runs that learn numbers: the digits as numbers from 0 to 9, images of a list, and rows of numbers.

use bella::predictions::Numbers;

use crate::common::{
    Place, assert_has, bella, done, error_line, fixture, image, messages, number, printed, table, text, tiny, with,
};

/// The tiny experiment on the digits as numbers.
pub fn numbers() -> String {
    tiny().replace("[head.checkpoint]", "[head.gaussian]").replace("[data.digits]", "[data.digits]\nnumbers = true")
}

fn place(config: &str) -> Place {
    let place = Place::new();
    place.write("tiny.toml", config.as_bytes());
    place
}

/// The draws of a sampler weigh by its falling rate, also in the mixture of a number.
#[test]
fn draws_of_unlike_weights_are_a_mixture_by_them() {
    let sgld =
        "[method.sgld]\nlr = 1e-3\ness = 32\nweight_decay = 1e-4\nweights = \"step-size\"\nstart = 2\nevery = 2\n";
    let config = numbers().replace("[method.svgd]\nparticles = 2\ngamma = 0.01\n", sgld);
    let place = place(&config.replace("[optimizer.adamw]\nlr = 2e-3\n", "[optimizer.none]\n"));
    done(place.train(&[]));
    let saved = Numbers::open(&place.run().join("predictions/digits@clean.numbers")).unwrap();
    let shares = saved.shares();
    assert!(shares.len() == 3 && shares.windows(2).all(|pair| pair[0] > pair[1]), "{shares:?}");
    let run = text(&place.run());
    let own = table(&place, &done(with(place.command("predict", &[]), &[&run, "--split", "test"])));
    for row in 0..30 {
        let mean: f64 = saved.of_sample(row).zip(&shares).map(|(one, share)| share * one.mean).sum();
        assert!((number(&own, row, "mean") - mean).abs() < 1e-6, "{mean}");
    }
}

/// The mistakes that `bella check` finds in a config.
#[track_caller]
fn mistakes(config: &str) -> String {
    let place = place(config);
    let output = bella(&["check", &text(&place.path("tiny.toml"))]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    messages(&output)
}

#[test]
fn a_posterior_of_numbers_is_trained_scored_and_listed() {
    let place = place(&numbers());
    done(place.train(&["train.epochs=6", "optimizer.adamw.lr=1e-2"]));
    let results = place.results();
    let before = ["rmse", "nll", "crps", "coverage_90"].map(|column| number(&results, 0, column));
    // Nine is at most nine away, and a Gaussian that knows nothing has a deviation of 2.9.
    assert!(before[0] < 4.0 && before[1].is_finite() && before[2] < before[0], "{before:?}");
    assert!(results.index("accuracy_lm").is_none_or(|at| results.rows[0][at].is_empty()));
    let curve = std::fs::read_to_string(place.run().join("train.csv")).unwrap();
    assert_has(&curve, &["validation_nll"]);

    // The saved file alone gives the same numbers.
    let scored = table(&place, &done(bella(&["score", &text(&place.run()), "--csv"])));
    for (column, expected) in ["rmse", "nll", "crps", "coverage_90"].iter().zip(before) {
        assert!((number(&scored, 0, column) - expected).abs() < 1e-12, "{column}");
    }

    // Corrupted images have no other labels, and intervals are calibrated on held-out images.
    let asked = ["--corrupt", "gaussian-noise:3", "--csv"];
    let shifted = table(&place, &done(with(place.command("eval", &[]), &asked)));
    assert!(number(&shifted, 0, "rmse") > 0.0);
    done(with(place.command("eval", &[]), &["--conformal", "0.2"]));
    let sets = bella::results::store::read(&place.path("results/tiny-conformal.csv")).unwrap();
    let scores: Vec<&str> = crate::common::cells(&sets, "score");
    assert_eq!(scores, ["absolute", "normalised", "cqr"]);
    assert!((0..3).all(|row| number(&sets, row, "mean_width") > 0.0 && number(&sets, row, "set_coverage") > 0.3));

    for (arguments, rule) in [
        (
            &["--attack", "fgsm", "--epsilon", "0.1"][..],
            "--attack needs the logits of classes, and this run predicts a number",
        ),
        (&["--calibrate"], "--calibrate needs the logits of classes"),
        (&["--ood", "digits=x"], "--ood needs the logits of classes"),
        (&["--conformal", "0.2", "--conformal-score", "aps"], "--conformal-score is of sets of classes"),
    ] {
        assert_has(&error_line(with(place.command("eval", &[]), arguments), 2), &[rule]);
    }
    let picture = text(&image(&place, "x.png", 3));
    let run = text(&place.run());
    let new = table(&place, &done(with(place.command("predict", &[]), &[&run, &picture])));
    let [low, mean, high] = ["low_90", "mean", "high_90"].map(|column| number(&new, 0, column));
    assert!(low < mean && mean < high && number(&new, 0, "disagreement") > 0.0);
    let own = table(&place, &done(with(place.command("predict", &[]), &[&run, "--split", "test"])));
    let square = |row: usize| (number(&own, row, "mean") - number(&own, row, "number")).powi(2);
    let rmse = ((0..30).map(square).sum::<f64>() / 30.0).sqrt();
    assert!((rmse - before[0]).abs() < 1e-9, "{rmse}");
    let refused = error_line(with(place.command("predict", &[]), &[&run, &picture, "--top", "3"]), 2);
    assert_has(&refused, &["--top: this run predicts a number"]);
    let acquire = with(place.command("acquire", &[]), &[&run, &picture, "--count", "1"]);
    assert_has(&error_line(acquire, 1), &["(head.gaussian)"]);
    let export = ["--to", "onnx", "--output", &text(&place.path("out"))].map(String::from);
    let export: Vec<&str> = [run.as_str()].into_iter().chain(export.iter().map(String::as_str)).collect();
    assert_has(&error_line(with(place.command("export", &[]), &export), 1), &["its head predicts a number"]);
    let compared = error_line(bella(&["compare", &run, &run, "--out", &text(&place.path("results"))]), 1);
    assert_has(&compared, &["predicts a number, and predictions of classes are compared"]);
    let card = done(with(place.command("export", &[]), &[&run, "--card"]));
    assert_has(&card, &["for a number", "it predicts the number `digit`", "| rmse |"]);
    assert!(!card.contains("Calibration"), "{card}");
    let (results, tables) = (text(&place.path("results")), text(&place.path("tables")));
    assert_has(&done(bella(&["report", &results, "--wide"])), &["RMSE", "CRPS"]);
    done(bella(&["report", &results, "--out", &tables]));
    done(with(bella(&["check", "--runs"]), &[&text(&place.path("results"))]));
}

/// Every way to train that needs nothing but losses.
#[test]
fn methods_that_need_losses_alone_learn_numbers() {
    let (subspace, method, optimizer) = (
        "[subspace.low-rank]\nrank = 2\n",
        "[method.svgd]\nparticles = 2\ngamma = 0.01\n",
        "[optimizer.adamw]\nlr = 2e-3\n",
    );
    let config = numbers();
    assert!(config.contains(subspace) && config.contains(method) && config.contains(optimizer), "{config}");
    for (own, rule) in [
        ("[method.map]\n", optimizer),
        ("[method.ensemble]\nparticles = 2\n", optimizer),
        ("[method.mc-dropout]\nsamples = 2\n", optimizer),
        ("[method.swag]\nstart = 2\nevery = 1\ncolumns = 3\n", optimizer),
        (
            "[method.sgld]\nlr = 1e-4\ness = 32\nweight_decay = 1e-4\nstart = 2\nevery = 1\nsamples = 3\n",
            "[optimizer.none]\n",
        ),
        ("[method.ivon]\nlr = 0.01\ness = 32\nhess_init = 100.0\nsamples = 2\n", "[optimizer.none]\n"),
    ] {
        for head in ["", "noise = \"shared\"\n", "sigma = 1.5\n"] {
            // One noise of each kind is enough for one method.
            if !head.is_empty() && !own.contains("map") {
                continue;
            }
            let config = config.replace(method, own).replace(optimizer, rule);
            let place = place(&config.replace("[head.gaussian]\n", &format!("[head.gaussian]\n{head}")));
            done(place.train(&[]));
            assert!(number(&place.results(), 0, "nll").is_finite(), "{own} {head}");
        }
    }
}

/// Laplace's predictions are Gaussians in closed form, one a particle, of which the noise is known.
#[test]
fn laplace_predicts_numbers_in_closed_form() {
    let method = "[method.svgd]\nparticles = 2\ngamma = 0.01\n";
    let laplace = |more: &str| numbers().replace(method, &format!("[method.laplace]\n{more}"));
    let fixed = |more: &str| laplace(more).replace("[head.gaussian]", "[head.gaussian]\nsigma = 2.0");
    for (more, particles) in [("structure = \"full\"\n", 1), ("particles = 2\n", 2)] {
        let place = place(&fixed(more));
        // The curvature of a thousand parameters has its eigenvectors in a moment, that of all blocks takes seconds.
        done(place.train(&["subspace.low-rank.blocks=\"3\"", "subspace.low-rank.rank=1"]));
        let results = place.results();
        assert_eq!(number(&results, 0, "members") as i32, particles, "{more}");
        // The variance of the mean is part of each Gaussian, and no noise.
        let [noise, of_mean] = ["aleatoric", "epistemic"].map(|column| number(&results, 0, column));
        assert!((noise - 2.0).abs() < 1e-6 && of_mean > 0.0, "{noise} {of_mean}");
    }
    for (more, rule) in [
        ("tuning = \"validation\"\n", "laplace with tuning = \"validation\" is of classes"),
        ("predictive = \"probit\"\n", "is of classes, and numbers are learnt"),
        ("fisher = \"mc\"\n", "laplace with fisher = \"mc\" is of classes"),
    ] {
        assert_has(&mistakes(&fixed(more)), &[rule]);
    }
    assert_has(&mistakes(&laplace("")), &["laplace is of numbers with a known noise: set head.gaussian.sigma"]);
}

#[test]
fn what_needs_classes_is_refused_when_the_config_is_checked() {
    let config = numbers();
    let with = |old: &str, new: &str| {
        assert!(config.contains(old), "{old}");
        mistakes(&config.replace(old, new))
    };
    let svgd = "[method.svgd]\nparticles = 2\ngamma = 0.01\n";
    for (old, new, rule) in [
        ("[head.gaussian]", "[head.checkpoint]", "digits has numbers and no classes: write [head.gaussian]"),
        ("numbers = true\n", "", "head = \"gaussian\""),
        ("validation = 0.2", "validation = 0.2\nlabel_noise = 0.1", "label_noise: numbers are no labels of classes"),
        ("batch_size = 8", "batch_size = 8\nclass_weights = \"balanced\"", "class_weights: numbers have no classes"),
        ("batch_size = 8", "batch_size = 8\nlabel_smoothing = 0.1", "label_smoothing: numbers have no classes"),
        ("batch_size = 8", "batch_size = 8\nmixup = { alpha = 0.2 }", "mixup: numbers have no classes"),
        ("batch_size = 8", "batch_size = 8\nsampling = \"balanced\"", "sampling: numbers have no classes"),
        ("batch_size = 8", "batch_size = 8\nselect_by = \"accuracy\"", "select_by: numbers have no metric of classes"),
        ("batch_size = 8", "batch_size = 8\nloo_samples = 4", "loo_samples: leave-one-out losses are those of classes"),
        (svgd, "[method.vbll]\n", "vbll needs the logits of classes, and numbers have none"),
        ("[head.gaussian]", "[head.gaussian]\nnoise = \"fixed\"", "\"fixed\" needs sigma"),
        ("[head.gaussian]", "[head.gaussian]\nnoise = \"shared\"\nsigma = 1.0", "is learnt: leave it out"),
        ("[head.gaussian]", "[head.gaussian]\nsigma = 0.0", "head.gaussian.sigma = 0"),
    ] {
        let shown = with(old, new);
        let expected = if rule.starts_with("head =") { "digits has classes and no numbers" } else { rule };
        assert_has(&shown, &[expected]);
    }
}

/// A list with a column of numbers, and what may be wrong with it.
#[test]
fn numbers_of_a_list_are_checked() {
    let config = |table: &str| {
        let place = Place::new();
        (0..6).for_each(|seed| drop(image(&place, &format!("images/{seed}.png"), seed)));
        place.write("images/list.csv", table.as_bytes());
        let set = format!("[data.list]\nroot = {:?}\ncolumns = {{ target = \"age\" }}\n", place.path("images"));
        let tiny = numbers().replace("[data.digits]\nnumbers = true\nsubset = { train = 40, test = 30 }\n", &set);
        place.write("tiny.toml", tiny.replace("validation = 0.2\n", "").as_bytes());
        place
    };
    let rows = |ages: [&str; 6]| {
        let row = |(at, age): (usize, &&str)| format!("{at}.png,{age},{}\n", if at < 4 { "train" } else { "test" });
        format!("path,age,split\n{}", ages.iter().enumerate().map(row).collect::<String>())
    };
    let place = config(&rows(["30", "40.5", "-2", "1e2", "7", "8"]));
    done(place.train(&["train.batch_size=2"]));
    assert!(number(&place.results(), 0, "rmse") > 0.0);
    let checked = done(bella(&["data", "check", &text(&place.path("tiny.toml"))]));
    assert_has(&checked, &["4 images, with numbers from -2 to 100", "2 images, with numbers from 7 to 8"]);
    for (ages, rule) in [
        (["30", "nan", "1", "2", "3", "4"], "list.csv:3: `age` is NaN: a number must be finite"),
        (["30", "1", "inf", "2", "3", "4"], "list.csv:4: `age` is inf: a number must be finite"),
        (["30", "old", "1", "2", "3", "4"], "list.csv:3: `age` is `old`, which is no number"),
        (["30", "", "1", "2", "3", "4"], "list.csv:3: the age is empty"),
        (
            ["5", "5", "5", "5", "3", "4"],
            "data.list: all 4 training samples have the number 5: there is nothing to learn",
        ),
    ] {
        assert_has(&error_line(config(&rows(ages)).train(&[]), 1), &[rule]);
    }
    assert_has(&error_line(config("path,age,split\n").train(&[]), 1), &["list.csv: no row below the header"]);
    let untrained = "path,age,split\n0.png,3,test\n";
    assert_has(&error_line(config(untrained).train(&[]), 1), &["list.csv: no image of the split `train`"]);
}

/// Rows of numbers by a module: an ensemble whose members start apart.
#[test]
fn rows_of_numbers_are_learnt_by_a_module() {
    let place = Place::new();
    let root = place.path("uci");
    let sizes = bella::data::Sizes { classes: 4, present: 4, train: 40, val: 0, test: 8, side: 8, corruptions: 0 };
    let entry = bella::data::entry("uci").unwrap();
    let set = toml::from_str(&format!("root = {root:?}\nname = \"x\"")).unwrap();
    entry.small(&set).unwrap().write(&sizes).unwrap();
    let config = |more: &str| {
        format!(
            "name = \"tiny\"\nseed = 1\n[checkpoint]\npath = {:?}\nkind = \"module\"\n{more}[head.gaussian]\n[data.uci]\nroot = {root:?}\n\
             name = \"x\"\nvalidation = 0.2\n[subspace.full]\nstart = \"random\"\n[method.ensemble]\nparticles = 3\n[optimizer.adamw]\nlr = 1e-2\n\
             [train]\nepochs = 3\nbatch_size = 8\n",
            fixture("module").join("rows_3.pt")
        )
    };
    place.write("tiny.toml", config("inputs = 3\n").as_bytes());
    done(place.train(&[]));
    let results = place.results();
    assert!(number(&results, 0, "epistemic") > 0.0 && number(&results, 0, "rmse").is_finite());
    let stored = bella::posterior::Stored::read(&place.run().join("posterior.safetensors"), tch::Device::Cpu).unwrap();
    let theta = stored.posterior.theta();
    // The first layer has 3 · 8 weights. Those of two members differ from the beginning.
    assert!(!theta.get(0).narrow(0, 0, 24).equal(&theta.get(1).narrow(0, 0, 24)));
    assert!(stored.scale.is_some_and(|scale| scale.std > 0.0));
    for (more, rule) in [
        ("inputs = 4\n", "error: "),
        ("inputs = 3\nimage_size = 8\n", "means nothing to a module of rows of numbers (inputs): leave it out"),
        ("", "and for one of rows of numbers, inputs"),
    ] {
        place.write("tiny.toml", config(more).as_bytes());
        let output = place.train(&[]).output().unwrap();
        assert!(!output.status.success());
        assert_has(&messages(&output), &[rule]);
    }
}
