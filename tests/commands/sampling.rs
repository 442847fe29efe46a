//! Methods whose posterior is made along the way, or that draw while they train: SWAG's Gaussians, SGLD's bank of states,
//! IBDR's interacting Gaussians, TFB's and BayesTune's particles, from training to results.

use crate::common::{Place, assert_has, cell, cells, done, error_line, number, text, tiny, train_with_a_pause, with};
use bella::base::tensor_file::State;
use bella::results::store::{Table, read};

/// The tiny experiment (8 steps) with another method.
fn place(method: &str, optimizer: &str) -> Place {
    let place = Place::new();
    let text = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01", method);
    place.write("tiny.toml", text.replace("[optimizer.adamw]\nlr = 2e-3", optimizer).as_bytes());
    place
}

#[test]
fn swag_predicts_with_draws_and_with_the_mean_of_its_snapshots() {
    let swag = "[method.swag]\nparticles = 2\nstart = 2\nevery = 1\ncolumns = 3\nsamples = 4";
    let place = place(swag, "[optimizer.adamw]\nlr = 2e-3");
    // Images are held out, and yet the last epoch gives the posterior: an earlier one has fewer snapshots.
    done(place.train(&[]));
    let state = State::read(&place.run().join("posterior.safetensors")).unwrap();
    assert_eq!(state.get("deviations").unwrap().size()[..2], [2, 3]);
    let table = read(&place.path("results/tiny.csv")).unwrap();
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("8", "2"));
    done(place.command("soup", &[]));
    let line = error_line(place.train(&["train.select=best-epoch"]), 2);
    assert_has(&line, &["select = \"best-epoch\"", "method.swag is gathered up to the last step", "\"last-epoch\""]);
    let line = error_line(place.train(&["train.early_stop=2"]), 2);
    assert_has(&line, &["early_stop: the posterior of method.swag is gathered up to the last step", "leave it out"]);
    let line = error_line(place.train(&["method.swag.start=7"]), 1);
    assert_has(&line, &["method.swag: 8 training steps give 1 snapshots", "lower start = 7"]);
}

#[test]
fn states_of_sgld_are_members() {
    let place = place("[method.sgld]\nlr = 0.05\ness = 30\nstart = 4\nevery = 2\nparticles = 2", "[optimizer.none]");
    done(place.train(&[]));
    let record = std::fs::read_to_string(place.run().join("run.json")).unwrap();
    assert_has(&record, &["\"selected_epoch\": 2"]);
    let table = read(&place.path("results/tiny.csv")).unwrap();
    assert_eq!((cell(&table, "", "members"), cell(&table, "", "method")), ("4", "sgld"));
    // Validation scores the states that are kept, not where the chains are.
    let mut val = place.command("eval", &[]);
    val.args(["--split", "val"]);
    done(val);
    let (table, history) = (place.results(), read(&place.run().join("train.csv")).unwrap());
    let (ours, training) = (number(&table, 1, "nll_lm"), number(&history, 1, "validation_nll_lm"));
    assert!((ours - training).abs() < 1e-4, "{ours} and in training {training}");
    let mut draws = place.command("eval", &[]);
    draws.args(["--draws", "3"]);
    assert_has(&error_line(draws, 2), &["particles are points", "nothing to draw from: leave --draws out"]);
}

/// Masks are weights: what a run predicted with, `eval` makes again to the bit, and attacks and soups take it.
#[test]
fn dropout_predicts_with_masks_that_are_made_again() {
    let place = place("[method.mc-dropout]\nrate = 0.2\nsamples = 3\nparticles = 2", "[optimizer.adamw]\nlr = 2e-2");
    done(place.train(&["train.accumulate=2"]));
    let table = place.results();
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("6", "2"));
    let logits = || crate::common::tensor_bytes(&place.run().join("predictions/digits@clean.safetensors"), "logits");
    let before = logits();
    std::fs::remove_file(place.run().join("predictions/digits@clean.safetensors")).unwrap();
    done(place.command("eval", &[]));
    assert!(logits() == before, "other masks");
    done(crate::common::with(place.command("eval", &[]), &["--attack", "fgsm", "--epsilon", "0.01"]));
    done(place.command("soup", &[]));
    let own = run_id(&place);
    let twice = crate::common::with(place.command("merge", &[]), &[&own, "latest", "--by", "posterior"]);
    assert_has(&error_line(twice, 2), &[&format!("{own}: comes twice; leave one out")]);
    done(place.train(&["train.accumulate=2", "seed=4"]));
    let ids: Vec<String> = place.runs().iter().map(|run| run.file_name().unwrap().to_string_lossy().into()).collect();
    let line =
        error_line(crate::common::with(place.command("merge", &[]), &[&ids[0], &ids[1], "--by", "posterior"]), 2);
    assert_has(&line, &["without variances of single parameters"]);
}

fn run_id(place: &Place) -> String {
    place.run().file_name().unwrap().to_str().unwrap().to_string()
}

#[test]
fn variational_methods_predict_with_draws_and_can_be_merged() {
    for (method, key) in
        [("[method.vogn]\nlr = 0.01\ness = 32\nhess_init = 0.1", "vogn"), ("[method.bbb]\nlr = 0.01\ness = 32", "bbb")]
    {
        let place = place(method, "[optimizer.none]");
        done(place.train(&["train.accumulate=2"]));
        let table = place.results();
        assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("8", "1"));
        assert_eq!(cell(&table, "", "method"), key);
        let other = crate::common::with(place.train(&["seed=4"]), &[]);
        done(other);
        let ids: Vec<String> =
            place.runs().iter().map(|run| run.file_name().unwrap().to_str().unwrap().to_string()).collect();
        done(crate::common::with(place.command("merge", &[]), &[&ids[0], &ids[1], "--by", "posterior"]));
    }
}

#[test]
fn samplers_with_cycles_and_sharp_steps_are_resumable_runs() {
    let sghmc =
        "[method.sghmc]\nlr = 0.02\ness = 30\nstart = 0\nevery = 1\ncycle = 4\nexploration = 0.5\nsharpness = 0.05";
    let place = place(sghmc, "[optimizer.none]");
    done(place.train(&["train.schedule=constant"]));
    let table = place.results();
    assert_eq!((cell(&table, "", "members"), cell(&table, "", "sghmc.sharpness")), ("4", "0.05"));
    let line = error_line(place.train(&["train.schedule=constant", "method.sghmc.start=8"]), 1);
    assert_has(&line, &["method.sghmc: no state would be kept in 8 training steps", "lower start = 8 or cycle = 4"]);
}

#[test]
fn ibdr_trains_on_shared_batches_however_few_particles_go_through_at_once() {
    let ibdr = "[method.ibdr]\nparticles = 3\nstd = 0.01\nascent_steps = 2";
    let place = place(ibdr, "[optimizer.adamw]\nlr = 5e-3");
    done(place.train(&[]));
    let history = read(&place.run().join("train.csv")).unwrap();
    assert!(number(&history, 1, "train_loss") < number(&history, 0, "train_loss"));
    let volume = number(&history, 1, "squared_volume");
    assert!(volume > 0.0 && volume <= 1.0, "{volume}");
    let mut draws = place.command("eval", &[]);
    draws.args(["--draws", "2"]);
    done(draws);
    let table = place.results();
    assert_eq!((cell(&table, "", "members"), cell(&table, "draws-2", "members")), ("3", "6"));
    let line = error_line(place.train(&["method.ibdr.particles=10"]), 1);
    assert_has(&line, &["method.ibdr.particles = 10", "10 classes", "at most 9 particles"]);
    let line = error_line(place.train(&["train.batches=independent"]), 2);
    assert_has(&line, &["method.ibdr compares the particles' predictions", "batches = \"shared\""]);
    let line = error_line(place.train(&["method.ibdr.bound=0.1"]), 2);
    assert_has(&line, &["method.ibdr.bound", "no key of variant = \"paper\""]);
}

#[test]
fn particles_repel_by_what_they_compute_however_few_go_through_at_once() {
    for space in ["logits", "probabilities", "features"] {
        let svgd = format!("[method.svgd]\nparticles = 3\ngamma = 1\nspace = \"{space}\"");
        let place = place(&svgd, "[optimizer.adamw]\nlr = 5e-3");
        let after = |chunk: &str| {
            done(place.train(&[chunk]));
            let history = read(&place.run().join("train.csv")).unwrap();
            assert!(number(&history, 1, "train_loss") < number(&history, 0, "train_loss"), "{space}");
            assert!(number(&history, 1, "repulsion_ratio") > 0.0, "{space}");
            std::fs::remove_dir_all(place.run()).unwrap();
            number(&history, 1, "train_loss")
        };
        let (together, apart) = (after("train.particle_chunk=3"), after("train.particle_chunk=1"));
        assert!((together - apart).abs() < 1e-4 * together, "{space}: {together} and {apart}");
        let line = error_line(place.train(&["train.batches=independent"]), 2);
        assert_has(&line, &["method.svgd compares the particles' predictions", "batches = \"shared\""]);
    }
}

/// The row of a method and a predictive.
#[track_caller]
fn row(table: &Table, method: &str, predictive: &str) -> usize {
    let is =
        |row: &usize| table.get(*row, "method") == Some(method) && table.get(*row, "predictive") == Some(predictive);
    (0..table.rows.len()).find(is).unwrap_or_else(|| panic!("no row {method} {predictive}"))
}

/// TFB around the particles of a finished run: the means predict as the particles did, the draws within the tolerance.
#[test]
fn tfb_widens_the_particles_of_a_finished_run() {
    let place = place("[method.ensemble]\nparticles = 2", "[optimizer.adamw]\nlr = 2e-2");
    done(place.train(&[]));
    let run = text(&place.run());
    let tfb = format!("[method.tfb]\nparticles = 2\nsamples = 4\ntolerance = 0.1\nfrom = {run:?}");
    let config = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01", &tfb);
    place.write("tiny.toml", config.as_bytes());
    done(place.train(&[]));
    let table = place.results();
    let (before, mean, draws) = (row(&table, "ensemble", ""), row(&table, "tfb", "mean"), row(&table, "tfb", ""));
    assert_eq!((table.get(mean, "members"), table.get(draws, "members")), (Some("2"), Some("8")));
    let nll = |row: usize| number(&table, row, "nll_pm");
    assert!((nll(before) - nll(mean)).abs() < 1e-5, "{} {}", nll(before), nll(mean));
    assert!(nll(draws) != nll(mean));
    let found = place.runs().into_iter().find(|path| text(path) != run).unwrap();
    let state = State::read(&found.join("posterior.safetensors")).unwrap();
    let (theta, std) = (state.get("theta").unwrap(), state.get("std").unwrap());
    assert_eq!(std.size(), theta.size());
    assert!(std.min().double_value(&[]) == 0.0 && std.max().double_value(&[]) > 0.0);
    let line = error_line(place.train(&["method.tfb.tolerance=1e-12"]), 1);
    assert_has(&line, &["the smallest spread 0.001", "method.tfb.tolerance"]);
    place.write("tiny.toml", config.replace("[subspace.low-rank]\nrank = 2", "[subspace.full]").as_bytes());
    assert_has(&error_line(place.train(&[]), 2), &["method.tfb", "write [subspace.low-rank]"]);
}

#[test]
fn bayestune_searches_and_tunes() {
    let bayestune = "[method.bayestune]\nparticles = 2\nsearch_steps = 4\nlr = 0.01\ness = 32\nshare = 0.1";
    let place = place(bayestune, "[optimizer.adamw]\nlr = 2e-3");
    done(place.train(&[]));
    assert_eq!(cell(&place.results(), "", "members"), "2");
    let line = error_line(place.train(&["method.bayestune.search_steps=8"]), 1);
    assert_has(&line, &["8 training steps leave none", "search_steps = 8"]);
    let line = error_line(place.train(&["method.bayestune.burn_in=4"]), 2);
    assert_has(&line, &["method.bayestune.burn_in", "below search_steps = 4"]);
}

/// Trials are judged by the epochs that training would select from.
#[test]
fn a_sweep_scores_no_epoch_that_only_searches() {
    let bayestune = "[method.bayestune]\nparticles = 2\nsearch_steps = 8\nlr = 0.01\ness = 32\nshare = 0.1";
    let place = place(bayestune, "[optimizer.adamw]\nlr = 2e-3");
    let file = text(&place.path("tiny.toml"));
    // With these rates the epochs that tune are worse than the search.
    let sets =
        ["--set", "train.epochs=4", "--set", "train.select=\"best-epoch\"", "--over", "optimizer.adamw.lr=0.3,0.5"];
    done(with(place.command("sweep", &[]), &[&[file.as_str(), "--halving", "1"], &sets[..]].concat()));
    for run in place.runs() {
        let history = read(&run.join("train.csv")).unwrap();
        assert_eq!(cells(&history, "has_posterior"), ["0", "0", "1", "1"]);
        let nll = [0, 1, 2, 3].map(|row| number(&history, row, "validation_nll_lm"));
        assert!(nll[0].min(nll[1]) < nll[2].min(nll[3]), "the search is better: {nll:?}");
    }
    let search = std::fs::read_dir(place.path("results/sweeps")).unwrap().next().unwrap().unwrap().path();
    let trials = read(&search.join("trials.csv")).unwrap();
    let selected = cells(&trials, "selected_epoch");
    assert!(selected.iter().all(|epoch| ["3", "4"].contains(epoch)), "{selected:?}");
}

/// Without noise of the method, particles that start equal and see the same images would be one particle.
#[test]
fn methods_that_draw_nothing_need_particles_that_differ() {
    let (own, sgd) = ("[optimizer.none]", "[optimizer.sgd]\nlr = 0.1");
    let cases = [
        ("[method.ibdr]\nvariant = \"released\"\nparticles = 3", sgd, "method.ibdr.std above 0"),
        ("[method.vbll]\ness = 30\nparticles = 3", sgd, "method.vbll.rank above 0"),
        (
            "[method.vbll]\ness = 30\ncovariance = \"dense\"\nparticles = 3",
            sgd,
            "method.vbll.covariance = \"diagonal\" with method.vbll.rank above 0",
        ),
        ("[method.mc-dropout]\nrate = 0\nparticles = 3", sgd, "method.mc-dropout.rate above 0"),
        (
            "[method.sgld]\nlr = 0.1\ness = 30\ntemperature = 0\nstart = 0\nevery = 1\nparticles = 3",
            own,
            "a temperature",
        ),
        (
            "[method.mclmc]\ndynamics = \"smile\"\ness = 30\ntune_steps = 0\nstart = 0\nevery = 1\nparticles = 3",
            own,
            "method.mclmc.dynamics = \"langevin\"",
        ),
    ];
    for (method, optimizer, way) in cases {
        let place = place(method, optimizer);
        let config = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
        for subspace in ["last-layer", "full"] {
            place.write("tiny.toml", config.replace("low-rank]\nrank = 2", &format!("{subspace}]")).as_bytes());
            let line = error_line(place.train(&["train.batches=shared"]), 2);
            assert_has(&line, &["all particles start equal and would stay equal", way]);
        }
    }
}

/// The epochs of the search have no posterior: a fine-tuning that is worse than the best of them, but gains, is no end.
#[test]
fn an_early_stop_counts_from_the_first_posterior() {
    let bayestune = "[method.bayestune]\nsearch_steps = 24\nlr = 0.02\nshare = 0.5";
    let place = place(bayestune, "[optimizer.adamw]\nlr = 1e-5");
    done(with(place.train(&["train.epochs=12", "train.early_stop=2"]), &["--no-eval"]));
    let history = read(&place.run().join("train.csv")).unwrap();
    let nll = |row: usize| number(&history, row, "validation_nll_lm");
    assert!(nll(4) < nll(6) - 0.1, "the search was better: {} and {}", nll(4), nll(6));
    assert_eq!(history.rows.len(), 12);
}

#[test]
fn blob_draws_factors_a_around_its_means() {
    let place = place("[method.blob]\ncycle = 4\nsamples = 3", "[optimizer.adamw]\nlr = 2e-3");
    done(place.train(&[]));
    let table = place.results();
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("3", "1"));
    let history = read(&place.run().join("train.csv")).unwrap();
    assert!(number(&history, 1, "kl_divergence") > 0.0);
    let line = error_line(place.train(&["method.blob.cycle=0"]), 2);
    assert_has(&line, &["method.blob.cycle", "from 1 to 1000000000"]);
}

#[test]
fn scalabl_draws_along_the_rows_of_its_factors() {
    let place = place("[method.scalabl]\ncycle = 4\nsamples = 3", "[optimizer.adamw]\nlr = 2e-3");
    train_with_a_pause(&place);
    let table = place.results();
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("3", "1"));
    let state = State::read(&place.run().join("posterior.safetensors")).unwrap();
    assert_eq!(state.get("tied").unwrap().size()[1], 3);
    done(with(place.command("eval", &[]), &["--draws", "5"]));
    let full = tiny().replace("[subspace.low-rank]\nrank = 2", "[subspace.full]");
    let scalabl = "[method.scalabl]\ncycle = 4";
    place.write("tiny.toml", full.replace("[method.svgd]\nparticles = 2\ngamma = 0.01", scalabl).as_bytes());
    assert_has(&error_line(place.train(&[]), 2), &["method.scalabl", "write [subspace.low-rank]"]);
}

/// The Hessian's start is found by the first batch, survives a pause, and a start in noise is refused before the first step.
#[test]
fn gaussians_do_not_start_in_noise() {
    let place = place("[method.ivon]\nlr = 0.05\ness = 32\ntune_hess_init = true", "[optimizer.none]");
    train_with_a_pause(&place);
    // The run is opened by the config that it saved, which states the keys with default values.
    let (run, results) = (place.run().display().to_string(), place.path("results").display().to_string());
    done(crate::common::bella(&["eval", &run, "--out", &results]));
    let line = error_line(place.train(&["method.ivon.hess_init=0.1"]), 2);
    assert_has(&line, &["method.ivon.hess_init", "tune_hess_init"]);
    // With all weights, so that the head is noisy, too.
    let low_rank = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    place.write("tiny.toml", low_rank.replace("[subspace.low-rank]\nrank = 2", "[subspace.full]").as_bytes());
    let noisy = ["method.ivon.tune_hess_init=false", "method.ivon.ess=1e-4"];
    let line = error_line(place.train(&noisy), 1);
    assert_has(
        &line,
        &["method.ivon: a draw from where particle 0 starts", "undoes the network", "tune_hess_init = true"],
    );
}

#[test]
fn microcanonical_chains_begin_as_an_ensemble() {
    let mclmc = "[method.mclmc]\nparticles = 2\ness = 32\nfit_steps = 1\ntune_steps = 4\nstart = 5\nevery = 1";
    let place = place(mclmc, "[optimizer.adamw]\nlr = 2e-3");
    let tiny = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    let tiny = tiny.replace("[train]\n", "[train]\nschedule = \"constant\"\n").replace("epochs = 2", "epochs = 3");
    place.write("tiny.toml", tiny.as_bytes());
    train_with_a_pause(&place);
    // Three epochs of four steps, of which seven are kept.
    assert_eq!(cell(&place.results(), "", "members"), "14");
    let line = error_line(place.train(&["method.mclmc.start=4"]), 2);
    assert_has(&line, &["method.mclmc.start", "5 steps of fit_steps and tune_steps"]);
    let line = error_line(place.train(&["method.mclmc.tune_steps=2"]), 2);
    assert_has(&line, &["method.mclmc.length", "must be given"]);
    let line = error_line(place.train(&["method.mclmc.every=9"]), 1);
    assert_has(&line, &["no state would be kept in 12 training steps", "lower start = 5 or every = 9"]);
}

/// Where the batches alone turn the directions, a chain goes on after a pause with the gradient, the noise and the size of steps that it had.
#[test]
fn chains_turned_by_batches_go_on_after_a_pause() {
    for dynamics in ["smile", "psmile"] {
        let mclmc = format!(
            "[method.mclmc]\ndynamics = {dynamics:?}\nparticles = 2\ness = 32\nfit_steps = 1\ntune_steps = 0\nstart = 2\nevery = 1"
        );
        let place = place(&mclmc, "[optimizer.adamw]\nlr = 2e-3");
        train_with_a_pause(&place);
        // Two epochs of four steps, of which six are kept.
        assert_eq!(cell(&place.results(), "", "members"), "12", "{dynamics}");
    }
}

/// A Gaussian process by random features: trained, resumed, fitted, attacked; it does not leave.
#[test]
fn random_features_are_a_head() {
    let laplace = "[method.laplace]\nparameters = \"last-layer\"\nsamples = 4";
    let place = place(laplace, "[optimizer.adamw]\nlr = 2e-3");
    let tiny = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    let head = "[head.random-features]\nfeatures = 48";
    place.write("tiny.toml", tiny.replace("[head.checkpoint]", head).as_bytes());
    train_with_a_pause(&place);
    let table = place.results();
    assert!(number(&table, 0, "nll_pm").is_finite() && number(&table, 0, "mi") > 0.0);
    done(with(place.command("eval", &[]), &["--predictive", "tangent"]));
    done(with(place.command("eval", &[]), &["--predictive", "sampled", "--attack", "fgsm", "--epsilon", "0.05"]));
    let mut export = place.command("export", &[]);
    export.arg("--output").arg(place.path("out")).args(["--to", "onnx", "--draws", "0"]);
    assert_has(&error_line(export, 1), &["[head.random-features]", "does not leave bella"]);
}
