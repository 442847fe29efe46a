//! Text encoders, as modules and from their folders. The reference is transformers (tests/fixtures/encoder, written by
//! scripts/make_encoder_fixtures.py): token ids of texts and pairs, features and logits, gradients.

use std::path::PathBuf;

use crate::common::{alike, elsewhere, fixture, names_below};
use bella::data::Prompts;
use bella::data::fields::{Fields, of_texts};
use bella::machine::quantised::Scheme;
use bella::model::encoder;
use bella::model::module::{Limit, Opened, Wanted, open};
use bella::model::network::low_rank::LowRank;
use bella::model::network::{HIDDEN, Network, SlotKind, Weights};
use serde_json::Value;
use tch::{Kind, Tensor};

const NAMES: [&str; 4] = ["bert", "roberta", "deberta", "deberta-v2"];

fn opened(name: &str) -> Opened {
    limited(name, Limit::default())
}

fn limited(name: &str, limit: Limit) -> Opened {
    tch::set_num_threads(1);
    let folder = fixture("encoder").join(name);
    open(&folder.join(format!("{name}.pt")), &Wanted::Texts { tokenizer: folder.clone(), limit }).unwrap()
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
        let (opened, told) =
            (limited(name, Limit { tokens: Some(8), truncate: true, ..Limit::default() }), texts(name));
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
            alike(&outputs(&samples), expected, &format!("{name}: {what} together"));
            for row in 0..expected.size()[0] {
                let one = samples.narrow(1, row, 1);
                let length = one.select(2, 1).sum(Kind::Int64).int64_value(&[]);
                let alone = outputs(&one.narrow(3, 0, length));
                alike(&alone, &expected.narrow(0, row, 1), &format!("{name}: {what} {row} alone"));
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
            alike(&found.get(0), expected, &format!("{name}: {key}"));
            alike(&found.get(1), expected, &format!("{name}: {key}"));
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

/// The folders of networks that bella computes itself, with those of their tokenizers.
const FOLDERS: [(&str, &str); 19] = [
    ("bert", "bert"),
    ("bert-masked", "bert"),
    ("roberta", "roberta"),
    ("roberta-model", "roberta"),
    ("xlm-roberta", "xlm-roberta"),
    ("distilbert", "distilbert"),
    ("distilbert-masked", "distilbert"),
    ("electra", "bert"),
    ("electra-model", "bert"),
    ("albert", "bert"),
    ("albert-masked", "bert"),
    ("mpnet", "roberta"),
    ("mpnet-model", "roberta"),
    ("deberta-v2", "deberta-v2"),
    ("deberta-v2-model", "deberta-v2"),
    ("modernbert", "modernbert"),
    ("modernbert-model", "modernbert"),
    // Quantised by bitsandbytes (scripts/make_quantised_goldens.py).
    ("bert-nf4", "bert"),
    ("roberta-int8", "roberta"),
];

/// These folders, or those that were made elsewhere (scripts/make_random_folders.py), which have their own tokenizers.
fn folders() -> Vec<[String; 2]> {
    let fixtures = || FOLDERS.map(|(name, tokenizer)| [name, tokenizer].map(String::from)).to_vec();
    let own = |made: PathBuf| names_below(&made).into_iter().map(|name| [name.clone(), name]).collect();
    elsewhere("encoder").map_or_else(fixtures, own)
}

fn folder(name: &str) -> PathBuf {
    let made = elsewhere("encoder").map(|made| made.join(name));
    made.filter(|made| made.exists()).unwrap_or_else(|| fixture("encoder/folders").join(name))
}

fn config(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder(name).join("config.json")).unwrap()).unwrap()
}

fn from_folder(name: &str, tokenizer: &str) -> (encoder::Opened, Vec<(String, Tensor)>) {
    tch::set_num_threads(1);
    let [folder, tokenizer] = [name, tokenizer].map(folder);
    let opened = encoder::open(&folder, &tokenizer, Limit::default(), encoder::Asked::default())
        .unwrap_or_else(|why| panic!("{name}: {why:#}"));
    (opened, Tensor::read_safetensors(folder.join("reference.safetensors")).unwrap())
}

/// The samples `[1, N, 2 or 3, T]` of the reference, padded on a side.
fn padded(opened: &encoder::Opened, reference: &[(String, Tensor)], batch: &str) -> Tensor {
    let keys = &["input_ids", "attention_mask", "token_type_ids"][..opened.encoder.values()];
    let rows: Vec<&Tensor> = keys.iter().map(|key| find(reference, &format!("{batch}.{key}"))).collect();
    Tensor::stack(&rows, 1).unsqueeze(0)
}

fn classified(opened: &encoder::Opened, features: Tensor) -> Tensor {
    match &opened.head {
        Some(own) => features.linear(&own.weight, Some(&own.bias)),
        None => features,
    }
}

/// Texts and pairs of several lengths, padded on either side, alone, and from every stage on.
#[test]
fn folders_give_the_numbers_of_transformers() {
    for [name, tokenizer] in &folders() {
        let (opened, reference) = from_folder(name, tokenizer);
        let config = config(name);
        let classifies = config["architectures"][0].as_str().unwrap().ends_with("ForSequenceClassification");
        assert_eq!(opened.head.is_some(), classifies, "{name}");
        assert_eq!(opened.base.has_quantised(), config["quantization_config"].is_object(), "{name}");
        let (network, frozen) = (&opened.encoder, Weights::frozen(&opened.base));
        let of = |features: Tensor| classified(&opened, features.squeeze_dim(0));
        let batches = ["texts.right", "texts.left", "pairs.right", "pairs.left"];
        // In front of a text, DeBERTa and ModernBERT do not read padding in the place of its first token as transformers does.
        let known = |batch: &&str| reference.iter().any(|(key, _)| key == batch);
        let sides = if config["model_type"] == "deberta-v2" || config["model_type"] == "modernbert" { 1 } else { 2 };
        assert_eq!(batches.iter().filter(|batch| known(batch)).count(), 2 * sides);
        for batch in batches.into_iter().filter(known) {
            let (samples, expected) = (padded(&opened, &reference, batch), find(&reference, batch));
            alike(
                &of(tch::no_grad(|| network.forward(&frozen, &fields(&samples)))),
                expected,
                &format!("{name}: {batch}"),
            );
            for stage in 0..=network.stages() {
                let entering = network.enter_at(&frozen, stage, &fields(&samples));
                assert_eq!(entering.get(HIDDEN).size()[3], network.entering(stage).get(HIDDEN)[1]);
                let found = tch::no_grad(|| network.features_from(&frozen, stage, entering));
                alike(&of(found), expected, &format!("{name}: {batch} from stage {stage}"));
            }
        }
        let (samples, expected) = (padded(&opened, &reference, "texts.right"), find(&reference, "texts.right"));
        for row in 0..expected.size()[0] {
            let one = samples.narrow(1, row, 1);
            let length = one.select(2, 1).sum(Kind::Int64).int64_value(&[]);
            let alone = of(tch::no_grad(|| network.forward(&frozen, &fields(&one.narrow(3, 0, length)))));
            alike(&alone, &expected.narrow(0, row, 1), &format!("{name}: text {row} alone"));
        }
    }
}

#[test]
fn quantised_folders_are_not_quantised_again() {
    let [folder, tokenizer] = ["bert-nf4", "bert"].map(|name| fixture("encoder/folders").join(name));
    let asked = encoder::Asked { quantize: Some(Scheme::Int8), ..encoder::Asked::default() };
    let error = encoder::open(&folder, &tokenizer, Limit::default(), asked).err().unwrap().to_string();
    assert!(error.contains("are quantised already, by bitsandbytes: leave it out"), "{error}");
}

/// The tokenizer gives the samples of transformers, with the kinds of the texts of a pair.
#[test]
fn tokens_of_folders_are_those_of_transformers() {
    for [name, tokenizer] in &folders() {
        let (opened, reference) = from_folder(name, tokenizer);
        for what in ["texts", "pairs"] {
            let tokens = opened.tokenizer.prompts(name, &prompts(&texts("bert"), what)).unwrap().tensor();
            let expected = padded(&opened, &reference, &format!("{what}.right")).squeeze_dim(0);
            let seen = expected.select(1, 1).unsqueeze(1);
            assert!((&tokens.to_kind(Kind::Int64) * &seen).equal(&(&expected * &seen)), "{name}: {what}");
        }
    }
}

/// Two particles: that of the reference, and one without an update, which must not disturb it.
#[test]
fn gradients_by_adapters_of_folders_are_those_of_transformers() {
    for [name, tokenizer] in &folders() {
        let (opened, reference) = from_folder(name, tokenizer);
        let (mut weights, mut leaves) = (Weights::frozen(&opened.base), Vec::new());
        let layers = reference.iter().filter_map(|(key, _)| key.strip_suffix(".A"));
        for layer in layers {
            let two = |end: &str| {
                let one = find(&reference, &format!("{layer}.{end}"));
                Tensor::stack(&[one, &one.zeros_like()], 0).set_requires_grad(true)
            };
            let (a, b) = (two("A"), two("B"));
            weights.update(layer, LowRank { a: a.shallow_clone(), b: b.shallow_clone(), scale: 0.5, magnitude: None });
            leaves.extend([(format!("{layer}.A"), a), (format!("{layer}.B"), b)]);
        }
        assert_eq!(leaves.len(), 12);
        let samples = padded(&opened, &reference, "pairs.right");
        let found = classified(&opened, opened.encoder.forward(&weights, &fields(&samples)));
        alike(&found.get(0), find(&reference, "adapted"), name);
        alike(&found.get(1), find(&reference, "pairs.right"), name);
        let root = (found.get(0) * find(&reference, "coefficients")).sum(Kind::Float);
        let inputs: Vec<&Tensor> = leaves.iter().map(|(_, leaf)| leaf).collect();
        let gradients = Tensor::run_backward(&[&root], &inputs, false, false);
        for ((leaf, _), gradient) in leaves.iter().zip(gradients) {
            alike(&gradient.get(0), find(&reference, &format!("{leaf}.gradient")), &format!("{name}: {leaf}"));
        }
    }
}

/// A copy of a folder with another config or other tensors.
fn changed(name: &str, config: impl Fn(&mut Value), tensors: impl Fn(&str) -> Option<String>) -> anyhow::Error {
    let place = tempfile::tempdir().unwrap();
    let from = fixture("encoder/folders").join(name);
    let mut values: Value = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config(&mut values);
    std::fs::write(place.path().join("config.json"), values.to_string()).unwrap();
    let all = Tensor::read_safetensors(from.join("model.safetensors")).unwrap();
    let all: Vec<(String, Tensor)> = all.into_iter().filter_map(|(name, t)| Some((tensors(&name)?, t))).collect();
    Tensor::write_safetensors(&all, place.path().join("model.safetensors")).unwrap();
    encoder::open(place.path(), &from, Limit::default(), encoder::Asked::default())
        .err()
        .unwrap_or_else(|| anyhow::anyhow!("it opens"))
}

/// Old folders of RoBERTa, such as the published ones, name no token there; `transformers.AutoTokenizer` 5.24 pads with that of the class.
#[test]
fn the_config_names_the_padding_that_the_tokenizer_does_not() {
    let (place, from) = (tempfile::tempdir().unwrap(), fixture("encoder/folders/roberta"));
    for file in ["tokenizer.json", "config.json", "model.safetensors"] {
        std::fs::copy(from.join(file), place.path().join(file)).unwrap();
    }
    std::fs::write(place.path().join("tokenizer_config.json"), r#"{"model_max_length": 96}"#).unwrap();
    let opened = encoder::open(place.path(), place.path(), Limit::default(), encoder::Asked::default())
        .unwrap_or_else(|why| panic!("{why:#}"));
    assert_eq!(opened.tokenizer.padding.id, 1);
}

#[test]
fn positions_behind_another_padding_token_are_refused() {
    let same = |name: &str| Some(name.to_string());
    let error = format!("{:#}", changed("roberta", |config| config["pad_token_id"] = 0.into(), same));
    assert!(error.contains("pad_token_id = 0, behind which positions are counted, but "), "{error}");
    assert!(error.contains(" pads with the token 1: they are not of one model"), "{error}");
}

#[test]
fn folders_that_are_not_computed_are_refused_by_name() {
    let same = |name: &str| Some(name.to_string());
    let set = |key: &'static str, value: Value| move |config: &mut Value| config[key] = value.clone();
    for (key, value, rule) in [
        ("position_embedding_type", "relative_key".into(), "position_embedding_type = \"relative_key\""),
        ("is_decoder", true.into(), "is_decoder = true: changes what a network of model_type bert computes"),
        ("hidden_act", "mish".into(), "hidden_act = \"mish\""),
        (
            "quantization_config",
            serde_json::json!({ "quant_method": "fp8" }),
            "quantization_config.quant_method = \"fp8\": bella reads bitsandbytes, gptq and awq",
        ),
        (
            "from_the_future",
            3.into(),
            "from_the_future = 3: a key that bella does not know for a text encoder of model_type bert",
        ),
        ("num_hidden_layers", 3.into(), "the weights lack `bert.encoder.layer.2.attention.self.query.weight`"),
        ("vocab_size", 44.into(), "has the shape [43, 16], but config.json asks for [44, 16]"),
        ("num_labels", 3.into(), "`classifier.weight` has the shape [2, 16], but config.json asks for [3, 16]"),
        (
            "architectures",
            serde_json::json!(["BertForTokenClassification"]),
            "architectures has BertForTokenClassification",
        ),
    ] {
        let error = format!("{:#}", changed("bert", set(key, value), same));
        assert!(error.contains(rule), "{error}");
    }
    let without = |name: &str| (!name.ends_with("layer.1.output.LayerNorm.bias")).then(|| name.to_string());
    let error = format!("{:#}", changed("roberta", |_| (), without));
    assert!(error.contains("the weights lack `roberta.encoder.layer.1.output.LayerNorm.bias`"), "{error}");
    let other = |name: &str| Some(name.replace("classifier.weight", "qa_outputs.weight"));
    let error = format!("{:#}", changed("bert", |_| (), other));
    assert!(error.contains("`qa_outputs.weight` has no place in a text encoder"), "{error}");
    let folder = fixture("encoder/folders/roberta");
    let wanted = Limit { tokens: Some(97), ..Limit::default() };
    let error = encoder::open(&folder, &folder, wanted, encoder::Asked::default()).err().unwrap().to_string();
    assert!(error.contains("checkpoint.max_tokens = 97") && error.contains("reads at most 96 tokens"), "{error}");
    let error = format!(
        "{:#}",
        encoder::open(&fixture("encoder/folders/bert"), &folder, Limit::default(), encoder::Asked::default())
            .err()
            .unwrap()
    );
    assert!(error.contains("but the network knows 43: they are not of one model"), "{error}");
}

/// Folders of the first BERT call the parameters of norms otherwise.
#[test]
fn early_names_of_norms_are_read() {
    let early = |name: &str| {
        let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
        Some(name.replace("LayerNorm.bias", "LayerNorm.beta"))
    };
    assert_eq!(changed("bert", |_| (), early).to_string(), "it opens");
}
