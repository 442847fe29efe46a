//! Text encoders as modules. The reference is transformers (tests/fixtures/encoder, written by
//! scripts/make_encoder_fixtures.py): token ids of texts and pairs, features and logits, gradients.

mod common;

use bella::data::Prompts;
use bella::data::fields::{Fields, of_texts};
use bella::model::module::{Limit, Opened, Wanted, open};
use bella::model::network::{Network, SlotKind, Weights};
use common::fixture;
use serde_json::Value;
use tch::{Kind, Tensor};

const NAMES: [&str; 4] = ["bert", "roberta", "deberta", "deberta-v2"];

fn opened(name: &str) -> Opened {
    limited(name, Limit::default())
}

fn limited(name: &str, limit: Limit) -> Opened {
    tch::set_num_threads(1);
    let folder = fixture("encoder").join(name);
    open(&folder.join(format!("{name}.pt")), &Wanted::Texts { tokenizer: &folder, limit }).unwrap()
}

fn texts(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture("encoder").join(name).join("texts.json")).unwrap()).unwrap()
}

fn reference(name: &str) -> Vec<(String, Tensor)> {
    Tensor::read_safetensors(fixture("encoder").join(name).join("reference.safetensors")).unwrap()
}

fn find<'a>(all: &'a [(String, Tensor)], name: &str) -> &'a Tensor {
    &all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_string()).collect()
}

/// The texts, or the pairs, of the reference.
fn prompts(told: &Value, what: &str) -> Prompts {
    if what == "texts" {
        return Prompts { texts: words(&told["texts"]), ..Prompts::default() };
    }
    let (texts, seconds) = words_of_pairs(&told["pairs"]);
    Prompts { texts, seconds: Some(seconds), ended: false }
}

fn words_of_pairs(value: &Value) -> (Vec<String>, Vec<String>) {
    value.as_array().unwrap().iter().map(words).map(|pair| (pair[0].clone(), pair[1].clone())).unzip()
}

#[track_caller]
fn near(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    let largest = |t: &Tensor| t.abs().max().double_value(&[]);
    let difference = largest(&(found - expected)) / largest(expected).max(1e-12);
    assert!(difference < 1e-5, "{what}: {difference:.2e}");
}

/// The samples `[1, N, 2 or 3, T]` of the reference's texts or pairs, tokenised here.
fn samples(opened: &Opened, name: &str, what: &str) -> Tensor {
    let tokens = opened.tokenizer.as_ref().unwrap().prompts(name, &prompts(&texts(name), what)).unwrap();
    tokens.tensor().unsqueeze(0)
}

/// Samples by name.
fn fields(samples: &Tensor) -> Fields {
    of_texts(&samples.squeeze_dim(0)).for_all()
}

#[test]
fn token_ids_and_kinds_are_those_of_transformers() {
    for name in NAMES {
        let (opened, told) = (opened(name), texts(name));
        for what in ["texts", "pairs"] {
            let samples = samples(&opened, name, what).squeeze_dim(0);
            let ids = told[format!("{what}_ids")].as_array().unwrap();
            let kinds = told[format!("{what}_kinds")].as_array().unwrap();
            for (row, (ids, kinds)) in ids.iter().zip(kinds).enumerate() {
                let ids: Vec<i64> = serde_json::from_value(ids.clone()).unwrap();
                let kinds: Vec<i64> = serde_json::from_value(kinds.clone()).unwrap();
                let length = ids.len() as i64;
                let read = |value: i64| samples.get(row as i64).get(value).to_kind(Kind::Int64);
                assert_eq!(Vec::<i64>::try_from(read(0).narrow(0, 0, length)).unwrap(), ids, "{name}: {what} {row}");
                assert_eq!(read(1).sum(Kind::Int64).int64_value(&[]), length, "{name}: {what} {row}");
                assert_eq!(samples.size()[1], if name == "bert" { 3 } else { 2 });
                if name == "bert" {
                    assert_eq!(Vec::<i64>::try_from(read(2).narrow(0, 0, length)).unwrap(), kinds, "{what} {row}");
                }
            }
        }
    }
}

/// Longer texts are cut, of a pair the longer text first.
#[test]
fn cut_texts_are_those_of_transformers() {
    for name in NAMES {
        let (opened, told) = (limited(name, Limit { tokens: Some(8), truncate: true }), texts(name));
        for what in ["texts", "pairs"] {
            let samples = samples(&opened, name, what).squeeze_dim(0);
            for (row, ids) in told[format!("{what}_cut")].as_array().unwrap().iter().enumerate() {
                let ids: Vec<i64> = serde_json::from_value(ids.clone()).unwrap();
                let found = samples.get(row as i64).get(0).narrow(0, 0, ids.len() as i64).to_kind(Kind::Int64);
                assert_eq!(Vec::<i64>::try_from(found).unwrap(), ids, "{name}: {what} {row}");
            }
        }
    }
}

/// All texts in one batch, padded to the longest, and each text alone: the numbers of transformers, which saw each alone.
#[test]
fn outputs_are_those_of_transformers() {
    for name in NAMES {
        let (opened, reference) = (opened(name), reference(name));
        assert_eq!(opened.head.is_some(), name == "roberta");
        for what in ["texts", "pairs"] {
            let (samples, expected) = (samples(&opened, name, what), find(&reference, what));
            let frozen = Weights::frozen(&opened.base);
            let outputs = |samples: &Tensor| {
                let features = tch::no_grad(|| opened.module.forward(&frozen, &fields(samples))).squeeze_dim(0);
                match &opened.head {
                    Some(own) => features.linear(&own.weight, Some(&own.bias)),
                    None => features,
                }
            };
            near(&outputs(&samples), expected, &format!("{name}: {what} together"));
            for row in 0..expected.size()[0] {
                let one = samples.narrow(1, row, 1);
                let length = one.select(2, 1).sum(Kind::Int64).int64_value(&[]);
                let alone = outputs(&one.narrow(3, 0, length));
                near(&alone, &expected.narrow(0, row, 1), &format!("{name}: {what} {row} alone"));
            }
        }
    }
}

/// The gradients of the pairs' outputs, times coefficients, by a table of embeddings, a layer and a bias.
#[test]
fn gradients_are_those_of_transformers() {
    for name in NAMES {
        let (opened, reference) = (opened(name), reference(name));
        let known: Vec<&(String, Tensor)> = reference.iter().filter(|(key, _)| key.ends_with(".gradient")).collect();
        assert!(known.len() >= 2);
        let mut weights = Weights::frozen(&opened.base);
        let mut leaves = Vec::new();
        for (key, _) in &known {
            let stored = format!("model.{}", key.trim_end_matches(".gradient"));
            let one = opened.base.get(&stored).unwrap_or_else(|| panic!("{stored}"));
            // Two equal particles: each has the gradient of one.
            let leaf = Tensor::stack(&[one, one], 0).set_requires_grad(true);
            weights.replace(&stored, leaf.shallow_clone());
            leaves.push(leaf);
        }
        let features = opened.module.forward(&weights, &fields(&samples(&opened, name, "pairs")));
        let outputs = match &opened.head {
            Some(own) => features.linear(&own.weight, Some(&own.bias)),
            None => features,
        };
        let loss = (outputs * find(&reference, "coefficients")).sum(Kind::Float);
        for ((key, expected), found) in known.iter().zip(Tensor::run_backward(&[loss], &leaves, false, false)) {
            near(&found.get(0), expected, &format!("{name}: {key}"));
            near(&found.get(1), expected, &format!("{name}: {key}"));
        }
    }
}

/// Tables of embeddings are no layers for low-rank updates.
#[test]
fn linear_layers_are_told_from_tables() {
    let slots = opened("bert").module.slots();
    let tables: Vec<&str> =
        slots.iter().filter(|slot| slot.target == "embedding").map(|slot| slot.name.as_str()).collect();
    assert_eq!(
        tables,
        ["word_embeddings", "position_embeddings", "token_type_embeddings"].map(|n| format!("model.embeddings.{n}"))
    );
    assert_eq!(slots.iter().filter(|slot| slot.kind == SlotKind::Linear).count(), 13);
    assert!(slots.iter().filter(|slot| slot.target == "embedding").all(|slot| slot.kind == SlotKind::Other));
}
