//! The quality of predictions, end to end on the embedded digits: foreign sets, calibration, comparisons, published
//! corrupted versions.

use std::path::PathBuf;

use crate::common::{
    Place, assert_has, bella, cells, done, error_in, error_line, folder, messages, number, small_set, table, text,
    trained, with,
};
use bella::data::Sizes;
use bella::predictions::{Predictions, Shape};
use bella::results::store::{Table, read};

#[test]
fn foreign_images_get_a_row_a_score_and_average() {
    let place = trained();
    let foreign = text(&folder(&place, "foreign"));
    assert_has(
        &done(with(place.command("eval", &[]), &["--ood", &format!("image-folder={foreign}")])),
        &["auroc", "foreign"],
    );
    let ood = read(&place.path("results/tiny-ood.csv")).unwrap();
    let key = |row| [ood.get(row, "score").unwrap(), ood.get(row, "average").unwrap()];
    let keys: Vec<_> = (0..ood.rows.len()).map(key).collect();
    assert_eq!(keys[..2], [["max_probability", "lm"], ["max_probability", "pm"]]);
    for score in ["predictive_entropy", "expected_entropy", "mi", "energy", "expected_energy"] {
        assert!(keys.iter().any(|key| key[0] == score), "{score} in {keys:?}");
    }
    let predictions = place.run().join("predictions");
    let [inside, outside] =
        ["digits@clean", "digits@ood-foreign"].map(|name| text(&predictions.join(name)) + ".safetensors");
    let scored = table(&place, &done(bella(&["score", &inside, "--ood", &outside, "--csv"])));
    for column in ["auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"] {
        assert!((0..ood.rows.len()).all(|row| (0.0..=1.0).contains(&number(&ood, row, column))), "{column}");
        assert_eq!(cells(&ood, column), cells(&scored, column), "{column}");
    }
    assert!(cells(&ood, "definition").iter().all(|text| !text.is_empty()));
    assert_eq!((ood.get(0, "samples"), ood.get(0, "ood_samples")), (Some("30"), Some("4")));

    let eval = |sets: &[&str]| {
        let arguments: Vec<&str> = sets.iter().flat_map(|set| ["--ood", set]).collect();
        with(place.command("eval", &[]), &arguments)
    };
    let again = format!("image-folder={foreign}");
    assert_has(&error_line(eval(&[&again, &again]), 2), &["`foreign` is the test set or comes twice", "`label`"]);
    assert_has(&error_line(eval(&["folder=x"]), 2), &["unknown data set `folder`; known: cifar10"]);
    assert_has(&error_line(eval(&["none.toml"]), 2), &["none.toml"]);
    assert_eq!(read(&place.path("results/tiny-ood.csv")).unwrap().rows, ood.rows);
}

/// Sets that are given as near have a mean; far is one set, which is its own.
#[test]
fn scores_of_features_separate_groups_of_foreign_sets() {
    let place = Place::with_tiny();
    done(place.train(&["data.digits.subset.train=80", "method.svgd.particles=3"]));
    let foreign = ["one", "two", "three"].map(|name| format!("image-folder={}", text(&folder(&place, name))));
    let eval = |arguments: &[&str]| {
        let sets = [format!("near:{}", foreign[0]), format!("near:{}", foreign[1]), format!("far:{}", foreign[2])];
        let mut command = with(place.command("eval", &[]), &["--ood", &sets[0], "--ood", &sets[1], "--ood", &sets[2]]);
        command.args(arguments);
        command
    };
    let all = "knn,mahalanobis,relative-mahalanobis,vim,react,ash";
    assert_has(&done(eval(&["--ood-by", all])), &["relative-mahalanobis", "near (mean of 2)"]);
    let ood = || read(&place.path("results/tiny-ood.csv")).unwrap();
    let table = ood();
    let of = |table: &Table, set: &str, score: &str| {
        let fits = |row: &usize| table.get(*row, "ood_set") == Some(set) && table.get(*row, "score") == Some(score);
        let rows: Vec<usize> = (0..table.rows.len()).filter(fits).collect();
        assert_eq!(rows.len(), 1, "{set} {score}");
        rows[0]
    };
    for score in all.split(',').chain(["mi"]) {
        let [one, two, mean] =
            ["one", "two", "near (mean of 2)"].map(|set| number(&table, of(&table, set, score), "auroc"));
        assert!((0.0..=1.0).contains(&one) && (mean - (one + two) / 2.0).abs() < 1e-12, "{score}: {one} {two} {mean}");
    }
    assert_eq!(table.get(of(&table, "three", "vim"), "ood_group"), Some("far"));
    assert_eq!(table.get(of(&table, "near (mean of 2)", "vim"), "ood_samples"), Some("8"));
    // The scores are saved with the predictions, from which the same numbers follow.
    let [inside, outside] = ["clean", "ood-one"]
        .map(|condition| text(&place.run().join(format!("predictions/digits@{condition}.safetensors"))));
    let scored = crate::common::table(&place, &done(bella(&["score", &inside, "--ood", &outside, "--csv"])));
    for score in all.split(',') {
        let row = (0..scored.rows.len()).find(|row| scored.get(*row, "score") == Some(score)).expect(score);
        assert_eq!(number(&scored, row, "auroc"), number(&table, of(&table, "one", score), "auroc"), "{score}");
    }
    // A later evaluation has the same logits, and leaves the scores there.
    done(place.command("eval", &[]));
    assert_has(&done(bella(&["score", &inside, "--ood", &outside, "--csv"])), &[",vim,", ",knn,"]);
    // Another split of the batches changes nothing, and neither do more members at once.
    done(eval(&["--ood-by", "knn,vim", "--batch-size", "7"]));
    let again = ood();
    assert_eq!(again.rows.len(), table.rows.len());
    for score in ["knn", "vim"] {
        let of_both = [&table, &again].map(|table| number(table, of(table, "one", score), "auroc"));
        assert_eq!(of_both[0], of_both[1], "{score}");
    }
    // Held-out images are others, and have rows of their own.
    done(eval(&["--ood-by", "mahalanobis", "--ood-fit", "val"]));
    of(&ood(), "one", "mahalanobis on val");
    let few = error_line(eval(&["--ood-by", "knn", "--ood-fit", "val"]), 2);
    assert_has(&few, &["--ood-by knn: takes the 50th nearest image, and there are 20 to fit it on"]);
    let unknown = eval(&["--ood-by", "odin"]).output().unwrap();
    assert_has(&messages(&unknown), &["unknown score `odin`; known: knn, mahalanobis"]);
}

/// Fails unless every line has at most 80 characters, and some line is a row of numbers.
#[track_caller]
fn assert_fits(printed: &str) {
    assert!(printed.lines().any(|line| line.starts_with("| ") && line.contains('.')), "{printed}");
    for line in printed.lines() {
        assert!(line.chars().count() <= 80, "{} characters: {line}\n{printed}", line.chars().count());
    }
}

#[test]
fn tables_of_foreign_sets_and_of_conformal_sets_fit_80_columns() {
    let place = trained();
    let foreign = format!("image-folder={}", text(&folder(&place, "foreign")));
    let eval = |arguments: &[&str]| {
        let mut command = with(place.command("eval", &[]), arguments);
        command.env("COLUMNS", "80");
        done(command)
    };
    let printed = eval(&["--ood", &foreign]);
    assert_fits(&printed);
    let rows = printed.lines().filter(|line| line.starts_with("| ") && line.contains("energy"));
    assert_eq!(rows.map(|line| line.matches('|').count()).collect::<Vec<_>>(), [7, 7], "score, average, four measures");
    assert_has(&printed, &["out-of-distribution detection\nset: digits  ood_set: foreign  method: "]);

    let conformal = ["--conformal", "0.1,0.3"];
    let printed = eval(&conformal);
    assert_fits(&printed);
    assert_has(
        &printed,
        &["conformal sets\n", "thresholds: shared  draw: fixed", "raps: penalty 0.01 beyond rank 5\n"],
    );
    // Columns that are asked for by name stand in further tables, and mistyped ones are said.
    let wanted = "accuracy,nll,set_coverage,mean_set_size,empty_sets,lowest_class,lowest_set_size";
    let printed = eval(&[&conformal[..], &["--columns", wanted]].concat());
    assert_fits(&printed);
    assert_has(&printed, &["Coverage", "Empty", "Lowest class", "Lowest set", "accuracy [%]"]);
    assert!(!printed.contains("with --wide"), "{printed}");
    // A mistyped column is said after the tests of all runs, whose tables are printed with the usual columns.
    let mistyped = ["latest", "latest", "--conformal", "0.1", "--columns", "set_coverag"];
    let output = with(place.command("eval", &[]), &mistyped).output().unwrap();
    assert_has(&error_in(&output, 2), &["--columns set_coverag: the results have no such column", "set_coverage"]);
    let tables = String::from_utf8(output.stdout).unwrap();
    assert_eq!(tables.matches("conformal sets").count(), 2, "{tables}");
}

#[test]
fn temperatures_are_fitted_on_held_out_images() {
    let place = trained();
    assert_has(
        &done(with(place.command("eval", &[]), &["latest", "--calibrate"])),
        &["temperature scaling", "NLL scaled", "class-wise ECE scaled"],
    );
    let results = place.results();
    for average in ["lm", "pm"] {
        assert!(number(&results, 0, &format!("temperature_{average}")) > 0.0);
        assert!(["nll_ts", "ece_ts", "brier_ts"].iter().all(|s| number(&results, 0, &format!("{s}_{average}")) > 0.0));
    }
    assert_has(
        &done(with(place.command("eval", &[]), &["--calibrate=dirichlet,isotonic"])),
        &["calibration by dirichlet", "calibration by isotonic"],
    );
    let several = place.results();
    assert!(number(&several, 0, "nll_dir_pm") > 0.0 && number(&several, 0, "accuracy_iso_lm") > 0.0);
    assert_eq!(number(&several, 0, "temperature_lm"), number(&results, 0, "temperature_lm"), "kept beside");
    let few = error_line(with(place.command("eval", &[]), &["--calibrate=vector"]), 2);
    assert_has(&few, &["--calibrate=vector: 20 parameters for 10 classes, but 10 held-out images", "hold out more"]);
    let twice = error_line(with(place.command("eval", &[]), &["--calibrate=temperature,temperature"]), 2);
    assert_has(&twice, &["--calibrate temperature: comes twice; leave one out"]);
    let apart = error_line(with(place.command("eval", &[]), &["latest", "--calibrate", "temperature,vector"]), 2);
    assert_has(&apart, &["`temperature,vector` is no run: for the calibrator write --calibrate=temperature,vector"]);
    let unknown = with(place.command("eval", &[]), &["--calibrate=platt"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert_has(&messages(&unknown), &["unknown calibrator `platt`; known: temperature, vector"]);
    // Saved predictions give the same numbers, and those of one set are not fitted on themselves.
    done(with(place.command("eval", &[]), &["--split", "val"]));
    let [file, held_out] =
        ["digits", "digits-val"].map(|set| text(&place.run().join(format!("predictions/{set}@clean.safetensors"))));
    let scored = table(&place, &done(bella(&["score", &file, "--validation", &held_out, "--csv"])));
    for column in ["temperature_lm", "temperature_pm", "nll_ts_lm", "ece_ts_pm"] {
        assert!((number(&scored, 0, column) - number(&results, 0, column)).abs() < 1e-9, "{column}");
    }
    let itself = error_line(bella(&["score", &held_out, "--validation", &held_out]), 1);
    assert_has(&itself, &["both files are of the same images: what is fitted on some must be tested on others"]);
    let without = Place::with_tiny();
    done(without.train(&["data.digits.validation=0"]));
    let line = error_line(with(without.command("eval", &[]), &["--calibrate"]), 1);
    assert_has(&line, &["data.*.validation = 0", "no val split"]);
}

/// A config that stops early trains with held-out images; evaluating it on other images does not ask for them.
#[test]
fn a_run_that_stops_early_is_evaluated_on_other_images() {
    let place = Place::with_tiny();
    done(place.train(&["train.early_stop=1", "train.epochs=1"]));
    let other = format!("image-folder={}", text(&folder(&place, "other")));
    done(with(place.command("eval", &[]), &["--data", &other]));
    done(with(place.command("eval", &[]), &["--ood", &other]));
    let results = place.results();
    assert_eq!(cells(&results, "set"), ["digits", "other"]);
    assert!(
        read(&place.path("results/tiny-ood.csv")).unwrap().rows.iter().all(|row| row.contains(&"other".to_string()))
    );
    // Training itself asks for them.
    let line = error_line(place.train(&["train.early_stop=1", "data.digits.validation=0"]), 2);
    assert_has(&line, &["train.early_stop = 1", "needs validation images"]);
}

/// Another evaluation of the same images adds what it computes and removes nothing.
#[test]
fn conformal_sets_keep_what_calibration_computed() {
    let place = trained();
    done(with(place.command("eval", &[]), &["--calibrate"]));
    let before = place.results();
    let scaled = |table: &Table| {
        let columns = ["temperature_lm", "temperature_pm", "nll_ts_lm", "nll_ts_pm", "ece_ts_lm", "brier_ts_pm"];
        columns.map(|column| cells(table, column)[0].to_string())
    };
    assert!(scaled(&before).iter().all(|cell| !cell.is_empty()), "{before:?}");
    done(with(place.command("eval", &[]), &["--conformal", "0.2"]));
    assert_eq!(scaled(&place.results()), scaled(&before));
    assert_eq!(place.results().rows.len(), before.rows.len());
    let sets = read(&place.path("results/tiny-conformal.csv")).unwrap();
    done(with(place.command("eval", &[]), &["--calibrate"]));
    assert_eq!(read(&place.path("results/tiny-conformal.csv")).unwrap().rows, sets.rows);
}

/// The rows of `part` = all.
fn of_all(sets: &Table) -> Vec<usize> {
    (0..sets.rows.len()).filter(|row| sets.get(*row, "part") == Some("all")).collect()
}

#[test]
fn conformal_sets_are_calibrated_on_held_out_images() {
    let place = trained();
    let levels = ["--conformal", "0.2,0.4", "--corrupt", "gaussian-noise:3"];
    assert_has(&done(with(place.command("eval", &[]), &levels)), &["conformal sets", "Coverage", "alpha"]);
    done(with(place.command("eval", &[]), &["--conformal", "0.2,0.4"]));
    let sets = read(&place.path("results/tiny-conformal.csv")).unwrap();
    let all = of_all(&sets);
    // Two conditions, two levels, three scores, two averages.
    assert_eq!(all.len(), 24);
    assert!(
        all.iter()
            .all(|row| number(&sets, *row, "calibration_samples") == number(&sets, all[0], "calibration_samples"))
    );
    for row in &all {
        let same = |other: &usize| {
            let keys = ["condition", "alpha", "score", "average"];
            keys.iter().all(|key| sets.get(*row, key) == sets.get(*other, key))
        };
        let classes: Vec<usize> =
            (0..sets.rows.len()).filter(|other| same(other) && sets.get(*other, "part") == Some("class")).collect();
        let covered: f64 = classes
            .iter()
            .map(|class| number(&sets, *class, "set_coverage") * number(&sets, *class, "part_samples"))
            .sum();
        assert!((covered / 30.0 - number(&sets, *row, "set_coverage")).abs() < 1e-9);
    }
    done(with(place.command("eval", &[]), &["--conformal", "0.2,0.4"]));
    assert_eq!(
        read(&place.path("results/tiny-conformal.csv")).unwrap().rows.len(),
        sets.rows.len(),
        "rows are replaced"
    );

    // From saved predictions, the same numbers.
    done(with(place.command("eval", &[]), &["--split", "val"]));
    let file = |set: &str| text(&place.run().join(format!("predictions/{set}@clean.safetensors")));
    let (test, held_out) = (file("digits"), file("digits-val"));
    let saved = ["score", &test, "--validation", &held_out, "--conformal", "0.2,0.4", "--csv"];
    let scored = table(&place, &done(bella(&saved)));
    let clean: Vec<usize> = (0..sets.rows.len()).filter(|row| sets.get(*row, "condition") == Some("clean")).collect();
    for column in ["score", "average", "alpha", "part", "name", "set_coverage", "mean_set_size", "empty_sets"] {
        let evaluated: Vec<&str> = clean.iter().map(|row| sets.get(*row, column).unwrap()).collect();
        assert_eq!(cells(&scored, column), evaluated, "{column}");
    }
    assert_has(&done(bella(&["report", &text(&place.path("results")), "--table", "conformal"])), &["gaussian-noise:3"]);
}

#[test]
fn conformal_sets_without_enough_or_other_images_are_refused() {
    let place = trained();
    let eval = |arguments: &[&str]| error_line(with(place.command("eval", &[]), arguments), 2);
    let few = "calibration images do not suffice, at least ceil(1/alpha) - 1 = 19 are needed";
    assert_has(&eval(&["--conformal", "0.05"]), &["--conformal 0.05: ", few, "data.*.validation"]);
    let classwise = eval(&["--conformal", "0.2", "--conformal-thresholds", "class-wise"]);
    assert_has(&classwise, &["calibration images of class `", "= 4 are needed"]);
    assert_has(
        &eval(&["--conformal", "0.2", "--split", "val"]),
        &["--conformal --split val", "which cannot test them"],
    );
    assert_has(&eval(&["--calibrate", "--split", "val"]), &["--calibrate --split val", "which cannot test them"]);
    let penalty = ["--conformal", "0.2", "--conformal-score", "aps", "--raps-penalty", "0.1"];
    assert_has(&eval(&penalty), &["--raps-penalty is of raps, and the sets are of aps", "leave it out"]);
    let of_lac = |more: &[&str]| eval(&[&["--conformal", "0.2", "--conformal-score", "lac"], more].concat());
    assert_has(&of_lac(&["--raps-rank", "2"]), &["--raps-rank is of raps, and the sets are of lac"]);
    assert_has(&of_lac(&["--conformal-draw", "random"]), &["--conformal-draw random is of aps and raps"]);
    assert!(!place.path("results/tiny-conformal.csv").exists());
    let file = text(&place.run().join("predictions/digits@clean.safetensors"));
    let score = |arguments: &[&str], code| error_line(bella(&[&["score", &file], arguments].concat()), code);
    assert_has(&score(&["--conformal", "0.2"], 2), &["name them by --validation FILE"]);
    let levels = bella(&["score", &file, "--levels", "--conformal", "0.2"]).output().unwrap();
    assert_eq!(levels.status.code(), Some(2));
    assert_has(&messages(&levels), &["'--levels' cannot be used with '--conformal"]);
    assert_has(&score(&["--conformal", "0.2", "--validation", &file], 1), &["both files are of the same images"]);
}

/// Under whatever name: the published validation images as test split, and as a set of other classes.
#[test]
fn fitted_images_are_no_test_images() {
    let place = Place::with_tiny();
    let sizes = Sizes { classes: 10, present: 10, train: 40, val: 30, test: 30, side: 8, corruptions: 0 };
    small_set(&place, "images", "image-folder", &sizes);
    let root = place.path("images");
    let data = format!("data={{image-folder={{root={root:?},validation=\"val\"}}}}");
    done(with(place.train(&[&data, "train.epochs=1"]), &["--no-eval"]));
    let held = place.write(
        "held.toml",
        format!("[data.image-folder]\nroot = {root:?}\ntest = \"val\"\nlabel = \"held\"\n").as_bytes(),
    );
    let eval = |sets: &[&str], fitted: &[&str]| error_line(with(place.command("eval", sets), fitted), 1);
    for fitted in [&["--calibrate"][..], &["--conformal", "0.3"]] {
        let line = eval(&["data.image-folder.test=\"val\""], fitted);
        assert_has(&line, &["images/val: calibrators and conformal sets were fitted on these very images"]);
    }
    let line = eval(&[], &["--conformal", "0.3", "--ood", held.to_str().unwrap()]);
    assert_has(&line, &["fitted on these very images: name other test images"]);
}

/// A key `label` that says where a set keeps labels does not name the set.
#[test]
fn runs_on_archives_are_compared_on_their_test_set() {
    let place = Place::with_tiny();
    let sizes = Sizes { classes: 10, present: 10, train: 40, val: 0, test: 30, side: 8, corruptions: 0 };
    small_set(&place, "archives", "webdataset", &sizes);
    let files = r#"train="train-{0..1}.tar",test="test-{0..1}.tar",classes=["a","b","c","d","e","f","g","h","i","j"]"#;
    let root = place.path("archives");
    done(place.train(&[&format!("data={{webdataset={{root={root:?},{files},validation=0.2}}}}")]));
    let (run, out) = (text(&place.run()), text(&place.path("results")));
    let both = done(bella(&["compare", &run, &run, "--out", &out, "--resamples", "10"]));
    assert_has(&both, &["archives"]);
}

#[test]
fn two_runs_are_compared_image_by_image() {
    let place = trained();
    let file = |run: PathBuf| text(&run.join("predictions/digits@clean.safetensors"));
    let first = file(place.run());
    done(place.train(&["seed=4"]));
    let second = place.runs().into_iter().map(file).find(|path| *path != first).unwrap();
    let rows = table(&place, &done(bella(&["compare", &first, &second, "--csv", "--resamples", "200"])));
    assert_eq!(rows.get(0, "metric"), Some("accuracy"));
    for row in 0..rows.rows.len() {
        let [a, b, difference, low, high] = ["a", "b", "difference", "low", "high"].map(|c| number(&rows, row, c));
        assert!((b - a - difference).abs() < 1e-12 && low <= high, "row {row}");
    }
    assert_has(&done(bella(&["compare", &first, &second])), &["differences are B - A", "95 % interval"]);
    // Several are compared with one, and their p-values corrected: an equal one has p = 1, so the other's is doubled.
    let of_several =
        |more: &[&str]| done(bella(&[&["compare", &first, &second, &first, "--resamples", "200"], more].concat()));
    assert_has(&of_several(&[]), &["p holm", "corrected for 2 comparisons"]);
    let several = table(&place, &of_several(&["--csv", "--correct", "holm"]));
    let [p, adjusted] = ["p", "p_adjusted"].map(|column| number(&several, 0, column));
    assert_eq!((adjusted, several.get(0, "comparisons")), ((2.0 * p).min(1.0), Some("2")));
    assert_eq!(several.rows.len(), 2 * rows.rows.len());

    let refused = |more: &[&str]| error_line(bella(&[&["compare", &first, &second], more].concat()), 2);
    assert_has(&refused(&[&first, &second]), &["comes twice: name each B once"]);
    assert_has(&refused(&["--condition", "fgsm 0.02"]), &["--condition chooses among the predictions of runs"]);
    let gone = ["gone-1.safetensors", "gone-2.safetensors"];
    let line = error_line(bella(&[&["compare", first.as_str()][..], &gone].concat()), 1);
    assert_has(&line, &["gone-1.safetensors"]);

    // Runs stand for their predictions, and settings for a run.
    let out = text(&place.path("results"));
    let of_runs = bella(&["compare", "svgd,seed=3", "tiny,seed=4", "--out", &out, "--csv", "--resamples", "200"]);
    let numbers = |of: &Table| of.rows.iter().map(|row| row[1..].to_vec()).collect::<Vec<_>>();
    assert_eq!(numbers(&table(&place, &done(of_runs))), numbers(&rows));
    let of_runs = |a: &str, more: &[&str]| bella(&[&["compare", a, "seed=4", "--out", &out], more].concat());
    assert_has(&error_line(of_runs("svgd", &[]), 1), &["`svgd` fits 2 runs", "or of the settings"]);
    assert_has(&error_line(of_runs("ivon", &[]), 1), &["no run `ivon`", "svgd,rank=4,seed=1"]);
    let attacked = of_runs("seed=3", &["--condition", "fgsm 0.02"]);
    let wanted =
        ["no predictions on digits under the condition `fgsm 0.02`", "--condition, of which it has clean;", "--attack"];
    assert_has(&error_line(attacked, 1), &wanted);

    // Another number of classes, and a logit that is none.
    let other = place.path("five.safetensors");
    let shape = Shape { members: 3, samples: 30, classes: 5 };
    Predictions::new(shape, vec![0.5; 450], vec![0; 30]).unwrap().save(&other).unwrap();
    assert_has(&error_line(bella(&["compare", &first, &text(&other)]), 1), &["30 of 5", "one test set"]);
    assert_has(&error_line(bella(&["score", &first, "--ood", &text(&other)]), 1), &["3 members and 5 classes"]);
    assert_has(&error_line(bella(&["score", &first, "--validation", &text(&other)]), 1), &["3 members and 5 classes"]);
    let mut bytes = std::fs::read(&first).unwrap();
    let start = {
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        tensors.tensor("logits").unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize
    };
    bytes[start..start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    // As another program writes it: without a hash.
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap().tensors();
    let bytes = safetensors::serialize(tensors, None).unwrap();
    let broken = text(&place.write("nan.safetensors", &bytes));
    let commands =
        [["score", &broken, "--csv", ""], ["compare", &first, &broken, ""], ["score", &first, "--validation", &broken]];
    for arguments in commands {
        let arguments: Vec<&str> = arguments.into_iter().filter(|word| !word.is_empty()).collect();
        let line = error_line(bella(&arguments), 1);
        assert_has(&line, &["nan.safetensors: predictions: logit NaN of member 0, sample 0, class 0"]);
    }
}

#[test]
fn published_versions_are_rows_without_means_of_a_part() {
    let place = trained();
    for version in ["fog/1", "fog/2", "snow/1", "snow/2"] {
        folder(&place, &format!("corrupted/{version}"));
    }
    let data = format!("image-folder-c={}", text(&place.path("corrupted")));
    let eval = |sets: &[&str], data: &str| with(place.command("eval", sets), &["--data", data]);
    let severities = "data.image-folder-c.severities=[1,2]";
    done(eval(&[severities], &data));
    let results = place.results();
    let conditions = cells(&results, "condition");
    assert_eq!(conditions, ["clean", "fog:1", "fog:2", "snow:1", "snow:2"]);
    assert_eq!(cells(&results, "corruption"), ["", "fog", "fog", "snow", "snow"]);
    assert_eq!(cells(&results, "severity"), ["", "1", "2", "1", "2"]);
    assert_eq!(cells(&results, "shift_source")[1..], ["published"; 4]);
    assert_eq!(cells(&results, "nll_lm")[1], cells(&results, "nll_lm")[4], "the same images");
    assert_has(&error_line(eval(&[], &data), 1), &["6 of 10 folders", "fog/3", "severities"]);
    let attacked = with(eval(&[severities], &data), &["--attack", "fgsm"]);
    assert_has(&error_line(attacked, 2), &["corrupted already"]);
    assert_eq!(place.results().rows, results.rows);

    let root = place.path("cifar");
    std::fs::create_dir(&root).unwrap();
    let data = format!("cifar10-c={}", text(&root));
    assert_has(&error_line(eval(&[], &data), 1), &["20 of 20 files are missing", "gaussian_noise.npy", "labels.npy"]);
    for name in ["fog", "labels"] {
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 32, 32, 3), }";
        let file = [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:117}\n").as_bytes(), &[0; 4 * 3072]].concat();
        place.write(&format!("cifar/{name}.npy"), &file);
    }
    let line = error_line(eval(&["data.cifar10-c.corruptions=[\"fog\"]", "data.cifar10-c.verify=false"], &data), 1);
    assert_has(&line, &[".npy", "[4, 32, 32, 3]", "50000"]);
}
