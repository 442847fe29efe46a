//! Methods whose posterior is made along the way: SWAG's Gaussians and SGLD's bank of states, from training to results.

mod common;

use bella::base::tensor_file::State;
use bella::results::store::read;
use common::{Place, assert_has, cell, done, error_line, number, tiny};

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
    done(place.train(&["train.select=last-epoch"]));
    let state = State::read(&place.run().join("posterior.safetensors")).unwrap();
    assert_eq!(state.get("deviations").unwrap().size()[..2], [2, 3]);
    let table = read(&place.path("results/tiny.csv")).unwrap();
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("8", "2"));
    done(place.command("soup", &[]));
    let line = error_line(place.train(&["method.swag.start=7"]), 1);
    assert_has(&line, &["method.swag: 8 training steps give 1 snapshots", "lower start = 7"]);
}

#[test]
fn states_of_sgld_are_members() {
    let place = place("[method.sgld]\nlr = 0.05\ness = 30\nstart = 4\nevery = 2\nparticles = 2", "[optimizer.none]");
    // The first epoch ends before the first state: it cannot be the best one.
    done(place.train(&[]));
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
    assert_has(&error_line(draws, 1), &["particles are points", "nothing to draw from"]);
}

/// Masks are weights: what a run predicted with, `eval` makes again to the bit, and attacks and soups take it.
#[test]
fn dropout_predicts_with_masks_that_are_made_again() {
    let place = place("[method.mc-dropout]\nrate = 0.2\nsamples = 3\nparticles = 2", "[optimizer.adamw]\nlr = 2e-2");
    done(place.train(&["train.accumulate=2"]));
    let table = place.results();
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("6", "2"));
    let logits = || common::tensor_bytes(&place.run().join("predictions/digits@clean.safetensors"), "logits");
    let before = logits();
    std::fs::remove_file(place.run().join("predictions/digits@clean.safetensors")).unwrap();
    done(place.command("eval", &[]));
    assert!(logits() == before, "other masks");
    done(common::with(place.command("eval", &[]), &["--attack", "fgsm", "--epsilon", "0.01"]));
    done(place.command("soup", &[]));
    let line = error_line(common::with(place.command("merge", &[]), &[&run_id(&place), &run_id(&place)]), 1);
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
        let other = common::with(place.train(&["seed=4"]), &[]);
        done(other);
        let ids: Vec<String> =
            place.runs().iter().map(|run| run.file_name().unwrap().to_str().unwrap().to_string()).collect();
        done(common::with(place.command("merge", &[]), &[&ids[0], &ids[1], "--by", "posterior"]));
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
