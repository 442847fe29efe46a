//! Networks that see images: the smallest random ones of LLaVA and PaliGemma, in the names of transformers 4 and of 5, give its tokens,
//! logits, losses, gradients and texts (tests/fixtures/llava and paligemma, written by scripts/make_sighted_fixtures.py).

use std::path::PathBuf;

use crate::common::{Reference, elsewhere, fixture, names_below, near, within};
use bella::base::tensor::capped;
use bella::data::fields::{Fields, IDS, KINDS, MASK, PIXELS};
use bella::data::{Answers, Images, Learnt, Packed, Questions, Resize};
use bella::machine::Chunk;
use bella::machine::quantised::Scheme;
use bella::model::folder::Preprocessing;
use bella::model::language::{OutputMatrix, Rows};
use bella::model::network::low_rank::LowRank;
use bella::model::network::ops::{Dual, Tangents};
use bella::model::network::{Network, Weights};
use bella::model::sighted::{Opened, is_sighted, open};
use bella::model::{Model, Normalize};
use bella::predict::generate::{Stop, Written};
use bella::predict::{Members, Predictor};
use tch::{Device, Kind, Tensor};

const FOLDERS: [&str; 4] = ["llava/transformers-4", "llava/transformers-5", "paligemma/gemma", "paligemma/gemma2"];
const SCALE: f64 = 0.5;

/// The folders of [`FOLDERS`], or those that were made elsewhere (scripts/make_random_folders.py).
fn folders() -> Vec<String> {
    let fixtures = || FOLDERS.map(String::from).to_vec();
    elsewhere("sighted").map_or_else(fixtures, |made| names_below(&made))
}

fn folder(name: &str) -> PathBuf {
    let made = elsewhere("sighted").map(|made| made.join(name));
    made.filter(|made| made.exists()).unwrap_or_else(|| fixture(name))
}

fn opened(name: &str) -> Opened {
    quantised(name, None)
}

fn quantised(name: &str, scheme: Option<Scheme>) -> Opened {
    tch::set_num_threads(1);
    let normalize = Preprocessing::of(&folder(name)).normalize.unwrap();
    open(&folder(name), None, normalize, scheme).unwrap_or_else(|why| panic!("{name}: {why:#}"))
}

/// The prompts with the pixels of their images.
fn samples(opened: &Opened, reference: &Reference, of: &str) -> Fields {
    let rows = if opened.network.reads_prompt_whole() { 3 } else { 2 };
    let rows = [(IDS, "tokens"), (MASK, "mask"), (KINDS, "kinds")].into_iter().take(rows);
    let rows = rows.map(|(name, part)| (name, reference.get(&format!("{of}{part}"))));
    Fields::new(rows.chain([(PIXELS, reference.get("pixels").to_kind(Kind::Float))]).collect())
}

/// The logits at all tokens, `[B, T, V]`, without those of padding.
fn logits(opened: &Opened, weights: &Weights, reference: &Reference, of: &str) -> Tensor {
    let lengths = reference.get(&format!("{of}mask")).sum_dim_intlist([1i64].as_slice(), false, Kind::Int64);
    tch::no_grad(|| {
        let samples = samples(opened, reference, of);
        let features = opened.network.forward(weights, &samples.for_all());
        let logits = weights.linear("lm_head").forward(&features).squeeze_dim(0);
        let cap = opened.network.language.geometry.traits.logit_cap;
        let logits = cap.map_or_else(|| logits.shallow_clone(), |cap| capped(&logits, cap));
        let places = Tensor::arange(logits.size()[1], (Kind::Int64, Device::Cpu));
        logits * places.lt_tensor(&lengths.unsqueeze(1)).unsqueeze(2)
    })
}

fn prompts(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder(name).join("prompts.json")).unwrap()).unwrap()
}

#[test]
fn prompts_have_the_tokens_of_transformers() {
    for name in &folders() {
        assert!(is_sighted(&folder(name)));
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

/// Prompts with their answers have the tokens of transformers, and for PaliGemma its kinds of them.
#[test]
fn answers_follow_their_prompts_as_in_transformers() {
    for name in ["paligemma/gemma", "paligemma/gemma2"] {
        let (told, opened, reference) = (prompts(name), opened(name), Reference::of(&folder(name)));
        let text = |key: &str| serde_json::from_value::<Vec<String>>(told[key].clone()).unwrap();
        let answers = text("answers").into_iter().map(|target| Answers { target, ..Answers::default() }).collect();
        let (prompts, learnt) = (text("prompts"), Learnt::Answer);
        let images = Images::Packed(Packed { pixels: Vec::new(), height: 12, width: 12 });
        let questions = Questions { prompts, answers, learnt, images, image_of: vec![0, 0], tokens: None };
        let spelled = opened.tokenizer.spelled("made", &questions).unwrap();
        for (tokens, of) in [(spelled.prompts, ""), (spelled.answered, "answered.")] {
            let rows = ["tokens", "mask", "kinds"].map(|part| reference.get(&format!("{of}{part}")));
            assert_eq!(tokens.tensor().to_kind(Kind::Int64), Tensor::stack(&rows, 1), "{name}: {of}");
        }
    }
}

/// transformers refuses texts with more tokens of images than patches; an answer that spells such a token would put a patch there.
#[test]
fn texts_that_spell_the_token_of_an_image_are_refused() {
    for name in ["llava/transformers-4", "paligemma/gemma"] {
        let tokenizer = opened(name).tokenizer;
        let spelled = |target: &str| {
            let answers = vec![Answers { target: target.into(), ..Answers::default() }];
            let images = Images::Packed(Packed { pixels: Vec::new(), height: 12, width: 12 });
            let (prompts, learnt) = (vec!["<image> the cat:".to_string()], Learnt::Answer);
            let questions = Questions { prompts, answers, learnt, images, image_of: vec![0], tokens: None };
            tokenizer.spelled("made", &questions).err().map(|why| format!("{why:#}"))
        };
        assert_eq!(spelled("cat"), None, "{name}");
        let why = spelled("<image>").unwrap();
        assert!(why.starts_with("made: question 0: its texts spell the token of an image"), "{name}: {why}");
    }
}

/// Logits at all tokens of two prompts of different lengths, and of those with their answers; of PaliGemma also with the padding in front.
#[test]
fn logits_are_those_of_transformers() {
    for name in &folders() {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let weights = Weights::frozen(&opened.base);
        let whole = opened.network.reads_prompt_whole();
        let all = if whole { &["", "answered.", "left.", "left.answered."][..] } else { &[""] };
        for of in all {
            let found = logits(&opened, &weights, &reference, of);
            near(&found, &reference.get(&format!("{of}logits")), &format!("{name}: {of}"));
        }
    }
}

/// Blocks of both parts whose weights have fewer bits compute with the rounded weights.
#[test]
fn quantised_networks_compute_with_rounded_weights() {
    for (name, scheme) in
        [("llava/transformers-5", Scheme::Nf4), ("paligemma/gemma", Scheme::Int8), ("paligemma/gemma2", Scheme::Nf4)]
    {
        let (plain, mut few, reference) = (opened(name), quantised(name, Some(scheme)), Reference::of(&folder(name)));
        bella::model::Backbone::quantise(&mut few, Some(scheme)).unwrap();
        let mut rounded = Weights::frozen(&plain.base);
        let names: Vec<&String> = plain.base.all().iter().map(|(name, _)| name).collect();
        for layer in ["blocks.0.attn.q.weight", "vision.blocks.2.mlp.fc.weight"] {
            assert!(few.base.is_quantised(layer), "{name}: {layer}");
        }
        for parameter in names.into_iter().filter(|parameter| few.base.is_quantised(parameter)) {
            rounded.share(parameter, few.base.value(parameter).unwrap());
        }
        let found = logits(&few, &Weights::frozen(&few.base), &reference, "");
        near(&found, &logits(&plain, &rounded, &reference, ""), name);
        let exact = logits(&plain, &Weights::frozen(&plain.base), &reference, "");
        let difference = ((&found - &exact).norm() / exact.norm()).double_value(&[]);
        println!("{name} {scheme:?}: {difference:.1e} from the plain weights");
        assert!(difference > 1e-4, "{name}: {difference:e}");
    }
}

/// The image that PaliGemma's processor prepares: stretched to a square, with the mean and deviation of the folder.
#[test]
fn images_are_prepared_as_by_transformers() {
    for name in ["paligemma/gemma", "paligemma/gemma2"] {
        let (asked, reference) = (Preprocessing::of(&folder(name)), Reference::of(&folder(name)));
        assert_eq!((asked.refused.len(), asked.resize, asked.image_size), (0, Some(Resize::Stretch), Some(12)));
        assert_eq!(asked.normalize, Some(Normalize { mean: [0.5; 3], std: [0.5; 3] }));
        let place = tempfile::tempdir().unwrap();
        let (image, out) = (folder(name).join("image.png"), place.path().join("bytes.npy"));
        let mut command = crate::common::bella(&["images", image.to_str().unwrap(), "--size", "12"]);
        let output = command.args(["--resize", "stretch", "--epochs", "0", "--output"]).arg(&out).output().unwrap();
        assert!(output.status.success(), "{}", crate::common::messages(&output));
        // The bytes stand behind the header of the file.
        let file = std::fs::read(&out).unwrap();
        let bytes = Tensor::from_slice(&file[file.len() - 3 * 12 * 12..]).to_kind(Kind::Float).view([3, 12, 12]);
        let found = (bytes / 255.0 - 0.5) / 0.5;
        // Bytes are rounded in another precision, by one step of 255 at most.
        for by in ["image.pixels", "image.pillow"] {
            let difference = (&found - reference.get(by)).abs().max().double_value(&[]);
            assert!(difference < 1.01 * 2.0 / 255.0, "{name}, {by}: {difference}");
        }
    }
}

/// Where classes are learnt, the features are the hidden state at the last token of each prompt.
#[test]
fn the_last_token_is_read_for_classes() {
    for name in ["llava/transformers-4", "paligemma/gemma"] {
        let (mut opened, reference) = (opened(name), Reference::of(&folder(name)));
        opened.network.reads = Rows::Last;
        let weights = Weights::frozen(&opened.base);
        let features = tch::no_grad(|| opened.network.forward(&weights, &samples(&opened, &reference, "").for_all()));
        let found = weights.linear("lm_head").forward(&features.unsqueeze(2)).squeeze_dim(2).squeeze_dim(0);
        let lengths = reference.get("mask").sum_dim_intlist([1i64].as_slice(), false, Kind::Int64);
        for row in 0..found.size()[0] {
            let last = reference.get("logits").get(row).get(lengths.int64_value(&[row]) - 1);
            near(&found.get(row), &last, name);
        }
    }
}

fn model(opened: Opened) -> Model {
    let width = opened.network.feature_width();
    let (weight, bias) = (Tensor::zeros([0, width], tch::kind::FLOAT_CPU), Tensor::zeros([0], tch::kind::FLOAT_CPU));
    let head = bella::model::head::Head::new(weight, bias, bella::model::head::Training::Tokens);
    let (network, device, kind) = (Box::new(opened.network), Device::Cpu, Kind::Float);
    Model { network, base: opened.base, head, preparation: Box::new(opened.tokenizer), device, kind }
}

fn ids(text: &[Written]) -> Vec<i64> {
    text.iter().map(|written| i64::from(written.id)).collect()
}

#[test]
fn twenty_greedy_tokens_are_those_of_transformers() {
    for name in &folders() {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let samples = samples(&opened, &reference, "");
        let model = model(opened);
        let predictor = Predictor::new(&model, Members::Checkpoint, Chunk::Auto);
        let stop = Stop { tokens: 20, ends: &[] };
        let texts = predictor.generate(&samples, stop).unwrap();
        for (row, text) in texts.iter().enumerate() {
            let expected = Vec::<i64>::try_from(reference.get(&format!("greedy.{row}"))).unwrap();
            assert_eq!(ids(text), expected, "{name}, prompt {row}");
        }
    }
}

/// The layers that have an update in the reference of a network.
fn layers(opened: &Opened) -> Vec<String> {
    let mut all = vec!["blocks.0.attn.q", "blocks.1.mlp.proj"];
    if opened.network.language.geometry.output != OutputMatrix::Embeddings {
        all.push("lm_head");
    }
    all.extend(opened.network.sight.eyes.family.projector);
    all.extend(["vision.blocks.0.attn.qkv", "vision.blocks.0.mlp.fc", "vision.blocks.1.attn.proj"]);
    all.into_iter().map(String::from).collect()
}

/// Low-rank updates of two particles: that of the reference, and one without an update, which must not disturb it.
fn updated<'a>(opened: &'a Opened, reference: &Reference) -> (Weights<'a>, Vec<(String, Tensor)>) {
    let (mut weights, mut leaves) = (Weights::frozen(&opened.base), Vec::new());
    for layer in &layers(opened) {
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
    for name in &folders() {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let (weights, leaves) = updated(&opened, &reference);
        let features = opened.network.forward(&weights, &samples(&opened, &reference, "answered.").for_all());
        let cap = opened.network.language.geometry.traits.logit_cap;
        let losses = bella::model::head::tokens_of_answers(&weights, &features, &targets(&reference).unsqueeze(0), cap);
        let loss = losses.get(0).mean(Kind::Float);
        near(&loss, &reference.get("answered.loss"), name);
        let inputs: Vec<&Tensor> = leaves.iter().map(|(_, leaf)| leaf).collect();
        let gradients = Tensor::run_backward(&[&loss], &inputs, false, false);
        for ((leaf, _), gradient) in leaves.iter().zip(gradients) {
            // The last bits of rotary frequencies, which processors round differently, are magnified here.
            within(3e-5, &gradient.get(0), &reference.get(&format!("{leaf}.gradient")), &format!("{name}: {leaf}"));
        }
    }
}

/// A missing tensor is named as in the folder.
#[test]
fn a_missing_tensor_has_its_publishers_name() {
    for (name, lacking) in [
        (
            "llava/transformers-4",
            [
                "language_model.model.layers.0.self_attn.q_proj.weight",
                "language_model.lm_head.weight",
                "multi_modal_projector.linear_2.bias",
                "vision_tower.vision_model.encoder.layers.1.mlp.fc1.bias",
            ],
        ),
        (
            "llava/transformers-5",
            [
                "model.language_model.layers.0.self_attn.q_proj.weight",
                "lm_head.weight",
                "model.multi_modal_projector.linear_2.bias",
                "model.vision_tower.encoder.layers.1.mlp.fc1.bias",
            ],
        ),
        (
            "paligemma/gemma",
            [
                "language_model.model.layers.0.self_attn.q_proj.weight",
                "multi_modal_projector.linear.bias",
                "vision_tower.vision_model.embeddings.patch_embedding.bias",
                "vision_tower.vision_model.post_layernorm.weight",
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
            let error = format!("{:#}", open(place.path(), None, Normalize::CLIP, None).err().unwrap());
            assert!(error.contains(&format!("the weights lack `{lacking}`, which config.json asks for")), "{error}");
        }
    }
}

/// A tensor of the tower that has another shape is named as in the folder.
#[test]
fn a_misshapen_tensor_of_the_tower_has_its_publishers_name() {
    let place = tempfile::tempdir().unwrap();
    let from = folder("llava/transformers-5");
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(file), place.path().join(file)).unwrap();
    }
    let name = "model.vision_tower.encoder.layers.1.mlp.fc2.weight";
    let all = Tensor::read_safetensors(from.join("model.safetensors")).unwrap();
    let cut = |(known, tensor): (String, Tensor)| match known == name {
        true => (known, tensor.narrow(1, 0, 19).contiguous()),
        false => (known, tensor),
    };
    let all: Vec<(String, Tensor)> = all.into_iter().map(cut).collect();
    Tensor::write_safetensors(&all, place.path().join("model.safetensors")).unwrap();
    let error = format!("{:#}", open(place.path(), None, Normalize::CLIP, None).err().unwrap());
    let rule = format!("its image tower: `{name}` has the shape [12, 19], but config.json asks for [12, 20]");
    assert!(error.contains(&rule), "{error}");
}

/// Sizes of the image tower in the config that are not those of the weights are refused by key.
#[test]
fn a_config_that_contradicts_the_tower_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        std::fs::copy(folder("llava/transformers-5").join(file), place.path().join(file)).unwrap();
    }
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder("llava/transformers-5").join("config.json")).unwrap()).unwrap();
    for (key, said, found) in [("hidden_size", 24, 12), ("patch_size", 6, 4), ("intermediate_size", 24, 20)] {
        let mut other = config.clone();
        other["vision_config"][key] = said.into();
        std::fs::write(place.path().join("config.json"), other.to_string()).unwrap();
        let error = format!("{:#}", open(place.path(), None, Normalize::CLIP, None).err().unwrap());
        let rule = format!("says vision_config.{key} = {said}, but the weights have {found}");
        assert!(error.contains(&rule), "{error}");
    }
}

/// The derivative of the features along a move of the adapters, times coefficients, is the move times the gradient, also where prompts
/// are read whole.
#[test]
fn derivatives_along_moves_are_products_with_gradients() {
    for name in ["paligemma/gemma", "paligemma/gemma2"] {
        let (mut opened, reference) = (opened(name), Reference::of(&folder(name)));
        opened.network.reads = Rows::Last;
        let samples = samples(&opened, &reference, "answered.").for_all();
        let (mut mode, mut moves) = (Weights::frozen(&opened.base), Weights::frozen(&opened.base));
        tch::manual_seed(4);
        let mut leaves = Vec::new();
        for layer in &layers(&opened) {
            let leaf = |end: &str| {
                let own = reference.get(&format!("{layer}.{end}")).unsqueeze(0).set_requires_grad(true);
                let moved = Tensor::randn(own.size().as_slice(), tch::kind::FLOAT_CPU);
                (own, moved)
            };
            let [(a, a_moved), (b, b_moved)] = ["A", "B"].map(leaf);
            let again = Tensor::shallow_clone;
            mode.update(layer, LowRank { a: again(&a), b: again(&b), scale: SCALE, magnitude: None });
            moves.update(layer, LowRank { a: again(&a_moved), b: again(&b_moved), scale: SCALE, magnitude: None });
            leaves.extend([(a, a_moved), (b, b_moved)]);
        }
        let features = opened.network.forward(&mode, &samples);
        let coefficients = Tensor::randn(features.size().as_slice(), tch::kind::FLOAT_CPU);
        let inputs: Vec<&Tensor> = leaves.iter().map(|(leaf, _)| leaf).collect();
        let gradients = Tensor::run_backward(&[(&features * &coefficients).sum(Kind::Float)], &inputs, false, false);
        let sum = |of: Tensor| of.sum(Kind::Double).double_value(&[]);
        let products: Vec<Tensor> =
            leaves.iter().zip(gradients).map(|((_, moved), gradient)| moved * gradient).collect();
        let expected: f64 = products.iter().map(|of| sum(of.shallow_clone())).sum();
        let squares: f64 = products.iter().map(|of| sum(of.square())).sum();
        let (tangents, samples) =
            (Tangents::new(&mode, &moves), samples.map(|values| Dual::fixed(values.shallow_clone())));
        let found = tch::no_grad(|| opened.network.written().unwrap().along(&tangents, &samples));
        near(&found.value, &features.detach(), name);
        let apart = (sum(found.moved.unwrap() * coefficients) - expected) / squares.sqrt();
        println!("{name}: the sum of products differs by {apart:.1e} of their norm");
        assert!(apart.abs() <= 1e-5, "{name}: {apart:.1e}");
    }
}
