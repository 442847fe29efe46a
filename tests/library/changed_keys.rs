//! Keys of configs that are changed: bella computes what transformers computes then, or refuses the folder (tests/fixtures/keys, or a folder
//! in `BELLA_FOLDERS`, written by scripts/make_random_folders.py).

use std::path::{Path, PathBuf};

use crate::common::{Reference, elsewhere, fixture, names_below, relatively_near};
use bella::data::fields::{Fields, IDS, MASK, of_texts};
use bella::model::encoder;
use bella::model::language;
use bella::model::module::Limit;
use bella::model::network::{Network, Weights};
use serde_json::Value;
use tch::{Tensor, no_grad};

/// The logits of decoders at the last tokens, and what encoders give for each text.
fn outputs(folder: &Path, reference: &Reference) -> anyhow::Result<Tensor> {
    let given = |part: &str| reference.get(part);
    if encoder::is_encoder(folder) {
        let opened = encoder::open(folder, folder, Limit::default(), encoder::Asked::default())?;
        let keys = &["input_ids", "attention_mask", "token_type_ids"][..opened.encoder.values()];
        let rows: Vec<Tensor> = keys.iter().map(|key| given(key)).collect();
        let samples = of_texts(&Tensor::stack(&rows.iter().collect::<Vec<_>>(), 1)).for_all();
        let features = no_grad(|| opened.encoder.forward(&Weights::frozen(&opened.base), &samples)).squeeze_dim(0);
        return Ok(opened.head.map_or(features.shallow_clone(), |own| features.linear(&own.weight, Some(&own.bias))));
    }
    let opened = language::open(folder, Some(64), None)?;
    let samples = Fields::new(vec![(IDS, given("input_ids")), (MASK, given("attention_mask"))]).for_all();
    let weights = Weights::frozen(&opened.base);
    let features = no_grad(|| opened.language.forward(&weights, &samples));
    if let Some(own) = &opened.head {
        return Ok(features.squeeze_dim(0).linear(&own.weight, Some(&own.bias)));
    }
    if opened.base.get("lm_head.weight").is_none() {
        return Ok(features.squeeze_dim(0));
    }
    let logits = weights.linear("lm_head").forward(&features.unsqueeze(2)).squeeze_dim(2).squeeze_dim(0);
    let cap = opened.language.geometry.traits.logit_cap;
    Ok(cap.map_or(logits.shallow_clone(), |cap| bella::base::tensor::capped(&logits, cap)))
}

/// Returns what is wrong with a case, if anything is.
fn fault(place: &Path, case: &Value, number: usize, reference: &Reference) -> Option<String> {
    let (key, effect) = (case["key"].as_str().unwrap(), case["effect"].as_str().unwrap());
    match (outputs(place, reference), effect) {
        (Ok(_), "lacks") => Some("transformers misses tensors, and bella opens it".to_string()),
        (Ok(found), _) => {
            // Transformers checks the types of values that it does not use, too.
            let of = if effect == "other" { format!("outputs.{number}") } else { "outputs".to_string() };
            let expected = reference.get(&of);
            if found.size() != expected.size() {
                return Some(format!("the shape {:?} in place of {:?}", found.size(), expected.size()));
            }
            let apart = ((&found - &expected).abs().max() / expected.abs().max()).double_value(&[]);
            (apart.is_nan() || apart > 1e-5).then(|| format!("{apart:.1e} apart from transformers ({effect})"))
        }
        (Err(why), "same") => {
            // A key that changes nothing may be refused; the message says what it does not know, by the key or by one in its table.
            let told = format!("{why:#}");
            let inner = case["value"].as_object().into_iter().flatten().map(|(inner, _)| inner.as_str());
            let is_named = inner.chain([key]).any(|name| told.contains(name));
            (!is_named).then(|| format!("refused without its name: {told}"))
        }
        (Err(_), _) => None,
    }
}

#[test]
fn changed_keys_are_computed_or_refused() {
    tch::set_num_threads(1);
    let root: PathBuf = elsewhere("keys").unwrap_or_else(|| fixture("keys"));
    let (mut faults, mut count) = (Vec::new(), 0);
    for class in names_below(&root) {
        let folder = root.join(&class);
        let reference = Reference::at(&folder.join("outputs.safetensors"));
        relatively_near(&outputs(&folder, &reference).unwrap(), &reference.get("outputs"), 1e-5, &class);
        let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
        let place = tempfile::tempdir().unwrap();
        for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(folder.join(file), place.path().join(file)).unwrap();
        }
        for (number, case) in cases.iter().enumerate() {
            let mut changed = config.clone();
            changed[case["key"].as_str().unwrap()] = case["value"].clone();
            std::fs::write(place.path().join("config.json"), changed.to_string()).unwrap();
            count += 1;
            if let Some(fault) = fault(place.path(), case, number, &reference) {
                faults.push(format!("{class}: {} = {}: {fault}", case["key"], case["value"]));
            }
        }
    }
    println!("{count} changed keys");
    assert!(count > 100 && faults.is_empty(), "{} faults of {count}:\n{}", faults.len(), faults.join("\n"));
}
