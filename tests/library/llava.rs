//! LLaVA: the smallest random networks, in the names of transformers 4 and of 5, give its tokens, logits, losses, gradients and
//! texts (tests/fixtures/llava, written by scripts/make_llava_fixtures.py).

use std::path::PathBuf;

use crate::common::{Reference, fixture, near};
use bella::data::fields::{Fields, IDS, MASK, PIXELS};
use bella::machine::Chunk;
use bella::model::language::Rows;
use bella::model::llava::{Opened, is_llava, open};
use bella::model::network::low_rank::LowRank;
use bella::model::network::{Network, Weights};
use bella::model::{Model, Normalize};
use bella::predict::generate::{Stop, Written};
use bella::predict::{Members, Predictor};
use tch::{Device, Kind, Tensor};

const FOLDERS: [&str; 2] = ["transformers-4", "transformers-5"];
const SCALE: f64 = 0.5;

fn folder(name: &str) -> PathBuf {
    fixture("llava").join(name)
}

fn opened(name: &str) -> Opened {
    tch::set_num_threads(1);
    open(&folder(name), Some(128), (Normalize::CLIP, None)).unwrap_or_else(|why| panic!("{name}: {why:#}"))
}

/// The prompts with the pixels of their images.
fn samples(reference: &Reference, of: &str) -> Fields {
    let [ids, mask] = ["tokens", "mask"].map(|part| reference.get(&format!("{of}{part}")));
    Fields::new(vec![(IDS, ids), (MASK, mask), (PIXELS, reference.get("pixels").to_kind(Kind::Float))])
}

fn prompts(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder(name).join("prompts.json")).unwrap()).unwrap()
}

#[test]
fn prompts_have_the_tokens_of_transformers() {
    for name in FOLDERS {
        assert!(is_llava(&folder(name)));
        let (told, tokenizer) = (prompts(name), opened(name).tokenizer);
        for (prompt, ids) in told["prompts"].as_array().unwrap().iter().zip(told["ids"].as_array().unwrap()) {
            let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
            assert_eq!(tokenizer.prompt(prompt.as_str().unwrap()).unwrap(), ids, "{name}: {prompt}");
        }
        let error = |prompt: &str| tokenizer.prompt(prompt).unwrap_err().to_string();
        assert!(error("USER: cat?").contains("has no <image>, and there is an image"));
        assert!(error("<image> <image>").contains("has several <image>"));
    }
}

/// Logits at all tokens of two prompts of different lengths.
#[test]
fn logits_are_those_of_transformers() {
    for name in FOLDERS {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let weights = Weights::frozen(&opened.base);
        let found = tch::no_grad(|| {
            let features = opened.llava.forward(&weights, &samples(&reference, "").for_all());
            weights.linear("lm_head").forward(&features) * reference.get("mask").unsqueeze(0).unsqueeze(3)
        });
        near(&found.squeeze_dim(0), &reference.get("logits"), name);
    }
}

/// Where classes are learnt, the features are the hidden state at the last token of each prompt.
#[test]
fn the_last_token_is_read_for_classes() {
    let (mut opened, reference) = (opened("transformers-4"), Reference::of(&folder("transformers-4")));
    opened.llava.reads = Rows::Last;
    let weights = Weights::frozen(&opened.base);
    let features = tch::no_grad(|| opened.llava.forward(&weights, &samples(&reference, "").for_all()));
    let found = weights.linear("lm_head").forward(&features.unsqueeze(2)).squeeze_dim(2).squeeze_dim(0);
    let lengths = reference.get("mask").sum_dim_intlist([1i64].as_slice(), false, Kind::Int64);
    for row in 0..found.size()[0] {
        let last = reference.get("logits").get(row).get(lengths.int64_value(&[row]) - 1);
        near(&found.get(row), &last, "the last token");
    }
}

fn model(opened: Opened) -> Model {
    let head = bella::model::head::Head {
        weight: Tensor::zeros([0, 16], tch::kind::FLOAT_CPU),
        bias: Tensor::zeros([0], tch::kind::FLOAT_CPU),
        normalised: false,
        random: None,
        training: bella::model::head::Training::Tokens,
        rows: None,
        cap: None,
        texts: None,
        gaussian: None,
    };
    let (network, device, kind) = (Box::new(opened.llava), Device::Cpu, Kind::Float);
    Model { network, base: opened.base, head, preparation: Box::new(opened.tokenizer), device, kind }
}

fn ids(text: &[Written]) -> Vec<i64> {
    text.iter().map(|written| i64::from(written.id)).collect()
}

#[test]
fn twenty_greedy_tokens_are_those_of_transformers() {
    for name in FOLDERS {
        let (model, reference) = (model(opened(name)), Reference::of(&folder(name)));
        let predictor = Predictor::new(&model, Members::Checkpoint, Chunk::Auto);
        let stop = Stop { tokens: 20, end: None };
        let texts = predictor.generate(&samples(&reference, ""), stop).unwrap();
        for (row, text) in texts.iter().enumerate() {
            let expected = Vec::<i64>::try_from(reference.get(&format!("greedy.{row}"))).unwrap();
            assert_eq!(ids(text), expected, "{name}, prompt {row}");
        }
    }
}

const LAYERS: [&str; 8] = [
    "blocks.0.attn.q",
    "blocks.1.mlp.proj",
    "lm_head",
    "projector.linear_1",
    "projector.linear_2",
    "vision.blocks.0.attn.qkv",
    "vision.blocks.0.mlp.fc",
    "vision.blocks.1.attn.proj",
];

/// Low-rank updates of two particles: that of the reference, and one without an update, which must not disturb it.
fn updated<'a>(opened: &'a Opened, reference: &Reference) -> (Weights<'a>, Vec<(String, Tensor)>) {
    let (mut weights, mut leaves) = (Weights::frozen(&opened.base), Vec::new());
    for layer in LAYERS {
        let two = |t: Tensor| Tensor::stack(&[&t, &t.zeros_like()], 0).set_requires_grad(true);
        let (a, b) = (two(reference.get(&format!("{layer}.A"))), two(reference.get(&format!("{layer}.B"))));
        weights.update(layer, LowRank { a: a.shallow_clone(), b: b.shallow_clone(), scale: SCALE, magnitude: None });
        leaves.extend([(format!("{layer}.A"), a), (format!("{layer}.B"), b)]);
    }
    (weights, leaves)
}

/// Returns the places and tokens of answers, `[B, A, 2]`, where −1 stands for no token.
fn targets(reference: &Reference) -> Tensor {
    let lengths = |of: &str| reference.get(of).sum_dim_intlist([1i64].as_slice(), false, Kind::Int64);
    let (starts, ends) = (lengths("mask"), lengths("answered.mask"));
    let (rows, longest) = (starts.size()[0], (&ends - &starts).max().int64_value(&[]));
    let tokens = reference.get("answered.tokens");
    let mut all = Vec::new();
    for row in 0..rows {
        for place in 0..longest {
            let here = starts.int64_value(&[row]) + place;
            match here < ends.int64_value(&[row]) {
                true => all.extend([here - 1, tokens.int64_value(&[row, here])]),
                false => all.extend([0, -1]),
            }
        }
    }
    Tensor::from_slice(&all).view([rows, longest, 2])
}

#[test]
fn losses_and_gradients_by_adapters_are_those_of_transformers() {
    for name in FOLDERS {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let (weights, leaves) = updated(&opened, &reference);
        let features = opened.llava.forward(&weights, &samples(&reference, "answered.").for_all());
        let losses = bella::model::head::tokens_of_answers(&weights, &features, &targets(&reference).unsqueeze(0));
        let loss = losses.get(0).mean(Kind::Float);
        near(&loss, &reference.get("answered.loss"), name);
        let inputs: Vec<&Tensor> = leaves.iter().map(|(_, leaf)| leaf).collect();
        let gradients = Tensor::run_backward(&[&loss], &inputs, false, false);
        for ((leaf, _), gradient) in leaves.iter().zip(gradients) {
            near(&gradient.get(0), &reference.get(&format!("{leaf}.gradient")), &format!("{name}: {leaf}"));
        }
    }
}

/// A missing tensor is named as in the folder.
#[test]
fn a_missing_tensor_has_its_publishers_name() {
    for (name, lacking) in [
        (
            "transformers-4",
            [
                "language_model.model.layers.0.self_attn.q_proj.weight",
                "language_model.lm_head.weight",
                "multi_modal_projector.linear_2.bias",
                "vision_tower.vision_model.encoder.layers.1.mlp.fc1.bias",
            ],
        ),
        (
            "transformers-5",
            [
                "model.language_model.layers.0.self_attn.q_proj.weight",
                "lm_head.weight",
                "model.multi_modal_projector.linear_2.bias",
                "model.vision_tower.encoder.layers.1.mlp.fc1.bias",
            ],
        ),
    ] {
        for lacking in lacking {
            let place = tempfile::tempdir().unwrap();
            for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
                std::fs::copy(folder(name).join(file), place.path().join(file)).unwrap();
            }
            let all = Tensor::read_safetensors(folder(name).join("model.safetensors")).unwrap();
            let rest: Vec<_> = all.iter().filter(|(known, _)| known != lacking).collect();
            assert_eq!(rest.len() + 1, all.len(), "{lacking} is not in {name}");
            let rest: Vec<(&str, &Tensor)> = rest.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            Tensor::write_safetensors(&rest, place.path().join("model.safetensors")).unwrap();
            let error = format!("{:#}", open(place.path(), None, (Normalize::CLIP, None)).err().unwrap());
            assert!(error.contains(&format!("the weights lack `{lacking}`, which config.json asks for")), "{error}");
        }
    }
}

/// Sizes of the image tower in the config that are not those of the weights are refused by key.
#[test]
fn a_config_that_contradicts_the_tower_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        std::fs::copy(folder("transformers-5").join(file), place.path().join(file)).unwrap();
    }
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder("transformers-5").join("config.json")).unwrap()).unwrap();
    for (key, said, found) in [("hidden_size", 24, 12), ("patch_size", 6, 4), ("intermediate_size", 24, 20)] {
        let mut other = config.clone();
        other["vision_config"][key] = said.into();
        std::fs::write(place.path().join("config.json"), other.to_string()).unwrap();
        let error = format!("{:#}", open(place.path(), None, (Normalize::CLIP, None)).err().unwrap());
        let rule = format!("says vision_config.{key} = {said}, but the weights have {found}");
        assert!(error.contains(&rule), "{error}");
    }
}
