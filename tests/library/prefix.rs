//! Blocks below the first trained one run once per image: training from their kept output is the same training.

use crate::common::{Place, assert_has, done, error_line, messages, tiny, with};
use bella::base::tensor_file::State;
use bella::run::RunFolder;
use tch::Tensor;

/// Trains the later blocks with a cache in `place`, and gives theta with what was said.
fn trained(cache: &str, sets: &[&str]) -> (Tensor, String) {
    let place = Place::with_tiny();
    let cache = format!("train.prefix_cache={cache:?}");
    let all = [&["subspace.low-rank.blocks=\"2-3\"", cache.as_str()], sets].concat();
    let output = place.train(&all).arg("--no-eval").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let run = RunFolder::find(&place.path("results"), None).unwrap();
    assert!(!run.path().join("prefix.cache").exists(), "the cache is left behind");
    (State::read(&run.posterior()).unwrap().get("theta").unwrap().copy(), messages(&output))
}

#[test]
fn training_from_the_cache_is_the_same_training() {
    for sets in [&[][..], &["train.batches=\"shared\""], &["train.recompute=true", "train.particle_chunk=1"]] {
        let (off, said) = trained("off", sets);
        assert!(!said.contains("run once per image"), "{said}");
        for place in ["auto", "memory", "disk"] {
            let (theta, said) = trained(place, sets);
            assert_has(&said, &["blocks 0 to 1 run once per image"]);
            let difference = (&theta - &off).abs().max().double_value(&[]);
            assert!(difference < 1e-5, "{place} {sets:?}: {difference}");
        }
    }
}

/// Of what enters a readout by the class token alone, that token is kept.
#[test]
fn one_token_is_kept_before_a_head_alone() {
    let head_alone = tiny()
        .replace("[subspace.low-rank]\nrank = 2", "[subspace.last-layer]")
        .replace("[head.checkpoint]", "[head.linear]");
    let place = Place::new();
    place.write("tiny.toml", head_alone.as_bytes());
    let trained = |cache: &str| {
        let cache = format!("train.prefix_cache={cache:?}");
        done(with(place.train(&[cache.as_str()]), &["--no-eval", "--force"]));
        State::read(&RunFolder::find(&place.path("results"), None).unwrap().posterior())
            .unwrap()
            .get("theta")
            .unwrap()
            .copy()
    };
    let difference = (trained("disk") - trained("off")).abs().max().double_value(&[]);
    assert!(difference < 1e-5, "{difference}");
}

#[test]
fn nothing_is_kept_where_the_first_block_is_trained() {
    let place = Place::with_tiny();
    let output = place.train(&[]).arg("--no-eval").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!messages(&output).contains("run once per image"));
    let line = error_line(Place::with_tiny().train(&["train.prefix_cache=\"memory\""]), 1);
    assert_has(&line, &["train.prefix_cache", "the first block is trained", "leave it out"]);
    done(place.train(&["train.particle_chunk=\"auto\""]));
    let line = error_line(place.train(&["train.particle_chunk=\"some\""]), 2);
    assert_has(&line, &["train.particle_chunk", "or \"auto\""]);
}

#[test]
fn augmented_images_are_not_kept() {
    let place = Place::with_tiny();
    let augmented = ["subspace.low-rank.blocks=\"2-3\"", "data.digits.augment={crop=\"fixed\",flip=0.5}"];
    let output = place.train(&augmented).arg("--no-eval").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert!(!messages(&output).contains("run once per image"));
    let asked = [&augmented[..], &["train.prefix_cache=\"memory\""]].concat();
    let place = Place::with_tiny();
    assert_has(&error_line(place.train(&asked), 2), &["train: prefix_cache", "augment"]);
}
