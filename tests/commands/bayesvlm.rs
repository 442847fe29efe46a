//! `[method.bayesvlm]` on small CLIP and SigLIP models: a run like any other, between the zero-shot head and no knowledge.

use crate::common::{Place, assert_has, bella, cell, device, done, error_line, fixture, messages, table, with};

/// A config of the embedded digits with a checkpoint of the fixtures and a head from its own text tower.
fn config(checkpoint: &str) -> String {
    let path = fixture(checkpoint);
    format!(
        "name = \"v\"\nseed = 1\n[checkpoint]\npath = {path:?}\nnormalize = \"clip\"\n[head.zero-shot]\n\
         [data.digits]\nvalidation = 0.25\nsubset = {{ train = 40, test = 30 }}\n"
    )
}

const METHOD: &str =
    "[subspace.projections]\n[method.bayesvlm]\nsamples = 8\n[optimizer.none]\n[train]\nepochs = 1\nbatch_size = 20\n";

fn place(checkpoint: &str) -> Place {
    let place = Place::new();
    place.write("v.toml", (config(checkpoint) + METHOD).as_bytes());
    place.write("zero.toml", config(checkpoint).as_bytes());
    place
}

fn command(place: &Place, name: &str, config: &str, more: &[&str]) -> crate::common::Bella {
    let (out, device) = (place.path("results"), device());
    let mut command = bella(&[name, "--threads", "1", "--device", &device, "--csv"]);
    command.arg("--out").arg(out).arg("--config").arg(place.path(config)).args(more);
    command.env("BELLA_CACHE", place.path("cache"));
    command
}

fn value(table: &bella::results::store::Table, predictive: &str, column: &str) -> f64 {
    cell(table, predictive, column).parse().unwrap()
}

#[test]
fn a_run_lies_between_the_zero_shot_head_and_uniform_probabilities() {
    for checkpoint in ["openai_clip_words.pt", "folders/hf-siglip-both"] {
        let place = place(checkpoint);
        let zero_shot = table(&place, &done(command(&place, "eval", "zero.toml", &[])));
        let nll = value(&zero_shot, "", "nll_lm");
        let run = |sets: &[&str]| {
            let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
            table(&place, &done(command(&place, "train", "v.toml", &sets)))
        };
        let sure = run(&["method.bayesvlm.prior_precision=1e12"]);
        for predictive in ["", "mean"] {
            assert!((value(&sure, predictive, "nll_lm") - nll).abs() < 1e-5, "{checkpoint} {predictive}");
        }
        // With hardly any prior nor images, a logit may be anything.
        let unsure = run(&["method.bayesvlm.prior_precision=1e-9", "method.bayesvlm.pseudo_count=1e-9"]);
        assert!((value(&unsure, "", "nll_lm") - 10f64.ln()).abs() < 1e-3, "{checkpoint}");
        assert!((value(&unsure, "mean", "nll_lm") - nll).abs() < 1e-5, "{checkpoint}");
    }
}

/// Where no image is held out, the pseudo-count is 10, as in the authors' `zeroshot.py`, and the prior is that of the evidence; where
/// images are, both are one of a grid with their lowest NLL. What is given stays.
#[test]
fn the_pseudo_count_is_the_authors_unless_images_are_held_out() {
    let fitted = |sets: &[&str]| {
        let place = place("openai_clip_words.pt");
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let output = command(&place, "train", "v.toml", &[&sets[..], &["--no-eval"]].concat()).output().unwrap();
        let log = messages(&output);
        let after = |word: &str| {
            let rest = log.split(word).nth(1).unwrap_or_else(|| panic!("no {word}: {log}")).trim_start();
            rest.split([',', ';']).next().unwrap().parse::<f64>().unwrap()
        };
        (after("pseudo-count "), after("prior precision "))
    };
    let without = "data.digits.validation=0";
    let evident = fitted(&[without]);
    assert_eq!(evident.0, 10.0);
    assert_eq!(fitted(&[without, "method.bayesvlm.pseudo_count=10"]), evident);
    let other = fitted(&[without, "method.bayesvlm.pseudo_count=1000"]);
    assert!(other.0 == 1000.0 && (other.1 / evident.1 - 1.0).abs() > 1e-3, "{other:?} {evident:?}");
    let (count, precision) = fitted(&[]);
    assert!([1.0, 10.0, 100.0, 1e3, 1e4, 1e5].contains(&count), "{count}");
    assert!((1.0..=1e6).contains(&precision) && precision != evident.1, "{precision}");
    assert_eq!(fitted(&["method.bayesvlm.prior_precision=7.0"]).1, 7.0);
}

#[test]
fn its_draws_of_weights_are_attacked_and_the_closed_form_is_not() {
    let place = place("openai_clip_words.pt");
    let output = command(&place, "train", "v.toml", &["--no-eval"]).output().unwrap();
    assert_has(&messages(&output), &["prior precision", "pseudo-count", "30 images and 10 texts"]);
    let run = std::fs::read_dir(place.path("results/runs/v")).unwrap().next().unwrap().unwrap().path();
    let eval = |more: &[&str]| {
        let mut command = bella(&["eval", "--threads", "1", "--device", &device(), "--csv"]);
        command.arg("--out").arg(place.path("results")).arg(&run).args(more);
        command.env("BELLA_CACHE", place.path("cache"));
        command
    };
    let attack = ["--attack", "fgsm", "--epsilon", "0.01"];
    done(with(eval(&["--predictive", "sampled", "--draws", "3"]), &attack));
    let drawn = table(&place, &done(eval(&["--predictive", "mc", "--draws", "3"])));
    assert_eq!(drawn.get(0, "members"), Some("3"));
    assert_has(&error_line(with(eval(&[]), &attack), 2), &["linearised", "--predictive sampled"]);
    assert_has(&error_line(eval(&["--predictive", "bridge"]), 1), &["bridge", "probit"]);
}

#[test]
fn what_it_cannot_do_is_refused_with_the_reason() {
    let refused = |checkpoint: &str, head: &str, sets: &[&str]| {
        let place = place(checkpoint);
        place.write("v.toml", (config(checkpoint).replace("[head.zero-shot]", head) + METHOD).as_bytes());
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let line = error_line(command(&place, "train", "v.toml", &sets), 1);
        let left = std::fs::read_dir(place.path("results/runs/v")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{checkpoint} {head}: a run that fails leaves no folder");
        line
    };
    let zero_shot = "[head.zero-shot]";
    assert_has(&refused("openai_visual.pt", zero_shot, &[]), &["has no text tower", "head.zero-shot.weights"]);
    assert_has(&refused("openai_clip_words.pt", "[head.linear]", &[]), &["needs a zero-shot head"]);
    let few = ["data.digits.validation=0", "data.digits.subset.train=1"];
    assert_has(&refused("openai_clip_words.pt", zero_shot, &few), &["1 training image", "at least two images"]);
}
