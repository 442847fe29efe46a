//! Language networks: the smallest random networks of the Llama family, saved by transformers, give its logits, gradients and
//! tokens (tests/fixtures/language, written by scripts/make_language_fixtures.py).

use std::ops::Range;
use std::path::PathBuf;

use crate::common::{Reference, elsewhere, fixture, names_below, near};
use bella::data::Prompts;
use bella::data::fields::{Fields, IDS, MASK};
use bella::machine::quantised::Scheme;
use bella::machine::{Chunk, memory};
use bella::model::chat::Chat;
use bella::model::folder::content;
use bella::model::head::{Head, Training};
use bella::model::language::{Opened, Tokenizer, open};
use bella::model::module::{Limit, Tokenizer as EncoderTokenizer};
use bella::model::network::low_rank::LowRank;
use bella::model::network::ops::{Dual, Tangents};
use bella::model::network::{Network, Weights};
use bella::model::{AsStored, Model, Wording};
use bella::predict::generate::{Stop, Written};
use bella::predict::{Members, Predictor, Rows};
use bella::schema::{Reader, Tree};
use bella::subspace::{Subspace, low_rank};
use tch::{Device, Kind, Tensor};

const FAMILIES: [&str; 25] = [
    "llama",
    "llama-linear",
    "llama-3",
    "llama-yarn",
    "llama-dynamic",
    "mistral",
    "mistral-window",
    "qwen2",
    "qwen2-window",
    "qwen3",
    "qwen3-biased",
    "gemma",
    "gemma2",
    "gemma3",
    "phi3",
    "phi3-long",
    "olmo2",
    "smollm3",
    "gpt2",
    "llama-nf4",
    "llama-nf4-nested",
    "llama-int8",
    "llama-gptq",
    "llama-gptq-plain",
    "llama-awq",
];
const SCALE: f64 = 0.5;

/// Networks without an output matrix: those that classify the last token, and one that gives features alone.
const WITHOUT_OUTPUT: [&str; 4] = ["llama-classifier", "qwen3-classifier", "gpt2-classifier", "mistral-model"];

/// The folders of [`FAMILIES`] and [`WITHOUT_OUTPUT`], or those that were made elsewhere (scripts/make_random_folders.py).
fn families() -> Vec<String> {
    let fixtures = || FAMILIES.into_iter().chain(WITHOUT_OUTPUT).map(String::from).collect();
    elsewhere("language").map_or_else(fixtures, |made| names_below(&made))
}

fn folder(name: &str) -> PathBuf {
    let made = elsewhere("language").map(|made| made.join(name));
    made.filter(|made| made.exists()).unwrap_or_else(|| fixture("language").join(name))
}

fn opened(name: &str) -> Opened {
    tch::set_num_threads(1);
    open(&folder(name), Some(64), None).unwrap_or_else(|why| panic!("{name}: {why:#}"))
}

/// The prompts `[1, B, 2, T]` padded on a side.
fn samples(reference: &Reference, side: &str) -> Fields {
    let [ids, mask] = ["tokens", "mask"].map(|part| reference.get(&format!("{side}.{part}")));
    Fields::new(vec![(IDS, ids), (MASK, mask)])
}

/// The whole output matrix as a head.
fn head(opened: &Opened) -> Head {
    let weight = opened.base.get("lm_head.weight").unwrap().shallow_clone();
    let vocabulary = weight.size()[0];
    Head {
        weight,
        bias: Tensor::zeros([vocabulary], tch::kind::FLOAT_CPU),
        normalised: false,
        random: None,
        training: Training::OfNetwork,
        rows: Some(Tensor::arange(vocabulary, tch::kind::INT64_CPU)),
        cap: opened.language.geometry.traits.logit_cap,
        texts: None,
        gaussian: None,
    }
}

/// Returns whether a network has an output matrix.
fn writes(opened: &Opened) -> bool {
    opened.base.get("lm_head.weight").is_some()
}

/// The logits of all tokens, or those of the folder's classifier, or features where it has neither.
fn logits(opened: &Opened, weights: &Weights, samples: &Fields) -> Tensor {
    let features = opened.language.forward(weights, &samples.for_all());
    match &opened.head {
        Some(own) => features.linear(&own.weight, Some(&own.bias)),
        None if writes(opened) => head(opened).logits(weights, &features),
        None => features,
    }
}

#[test]
fn every_family_gives_the_logits_of_transformers() {
    for name in &families() {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let weights = Weights::frozen(&opened.base);
        for side in ["left", "right"] {
            let found = tch::no_grad(|| logits(&opened, &weights, &samples(&reference, side))).squeeze_dim(0);
            near(&found, &reference.get(&format!("{side}.logits")), &format!("{name}, padded on the {side}"));
        }
    }
}

/// A plain network that bella quantises is the one that bitsandbytes quantises (scripts/make_quantised_goldens.py).
#[test]
fn a_plain_network_is_quantised_as_by_bitsandbytes() {
    for (scheme, name) in [(Scheme::Nf4, "llama-nf4"), (Scheme::Int8, "llama-int8")] {
        let opened = open(&folder("llama-wide"), Some(64), Some(scheme)).unwrap();
        assert!(opened.base.has_quantised() && !opened.base.is_quantised("lm_head.weight"));
        let reference = Reference::of(&folder(name));
        let found = tch::no_grad(|| logits(&opened, &Weights::frozen(&opened.base), &samples(&reference, "right")));
        near(&found.squeeze_dim(0), &reference.get("right.logits"), name);
    }
}

#[test]
fn what_is_quantised_is_not_quantised_again() {
    let error = open(&folder("llama-awq"), None, Some(Scheme::Nf4)).err().unwrap().to_string();
    assert!(error.contains("are quantised already, by AWQ: leave it out"), "{error}");
}

const LAYERS: [&str; 8] = [
    "blocks.0.attn.q",
    "blocks.0.attn.v",
    "blocks.1.attn.k",
    "blocks.1.attn.proj",
    "blocks.0.mlp.gate",
    "blocks.1.mlp.fc",
    "blocks.1.mlp.proj",
    "lm_head",
];

/// The layers that the reference adapts, in an order that is always the same.
fn adapted(folder: &std::path::Path) -> Vec<String> {
    let all = Tensor::read_safetensors(folder.join("reference.safetensors")).unwrap();
    let mut layers: Vec<String> =
        all.iter().filter_map(|(name, _)| Some(name.strip_suffix(".A")?.to_string())).collect();
    layers.sort();
    layers
}

/// Two particles: that of the reference, and one without an update, which must not disturb it.
#[test]
fn gradients_by_adapters_are_those_of_transformers() {
    for name in &families() {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let mut weights = Weights::frozen(&opened.base);
        let mut leaves = Vec::new();
        let layers = adapted(&folder(name));
        assert!(layers.len() >= 5, "{layers:?}");
        for layer in &layers {
            let two = |t: Tensor| Tensor::stack(&[&t, &t.zeros_like()], 0).set_requires_grad(true);
            let (a, b) = (two(reference.get(&format!("{layer}.A"))), two(reference.get(&format!("{layer}.B"))));
            weights
                .update(layer, LowRank { a: a.shallow_clone(), b: b.shallow_clone(), scale: SCALE, magnitude: None });
            leaves.extend([(format!("{layer}.A"), a), (format!("{layer}.B"), b)]);
        }
        let found = logits(&opened, &weights, &samples(&reference, "left"));
        near(&found.get(0), &reference.get("adapted.logits"), name);
        near(&found.get(1), &reference.get("left.logits"), name);
        let root = (found.get(0) * reference.get("coefficients")).sum(Kind::Float);
        let inputs: Vec<&Tensor> = leaves.iter().map(|(_, leaf)| leaf).collect();
        let gradients = Tensor::run_backward(&[&root], &inputs, false, false);
        for ((leaf, _), gradient) in leaves.iter().zip(gradients) {
            near(&gradient.get(0), &reference.get(&format!("{leaf}.gradient")), &format!("{name}: {leaf}"));
        }
    }
}

/// The derivative of the logits along a move of the adapters, times coefficients, is the move times the gradient of transformers.
#[test]
fn derivatives_along_moves_are_those_of_transformers() {
    for name in FAMILIES {
        let (opened, reference) = (opened(name), Reference::of(&folder(name)));
        let (mut mode, mut moves) = (Weights::frozen(&opened.base), Weights::frozen(&opened.base));
        // The sums of products, which cancel in part, and of their squares.
        let [mut expected, mut squares] = [0; 2].map(|_| Tensor::zeros([2], tch::kind::FLOAT_CPU));
        tch::manual_seed(4);
        for layer in adapted(&folder(name)) {
            let [(a, a_moved), (b, b_moved)] = ["A", "B"].map(|end| {
                let own = reference.get(&format!("{layer}.{end}")).unsqueeze(0);
                let moved = Tensor::randn([&[2], &own.size()[1..]].concat(), tch::kind::FLOAT_CPU);
                let products = &moved * reference.get(&format!("{layer}.{end}.gradient"));
                let sum = |of: Tensor| of.flatten(1, -1).sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
                squares += sum(products.square());
                expected += sum(products);
                (own, moved)
            });
            mode.update(&layer, LowRank { a, b, scale: SCALE, magnitude: None });
            moves.update(&layer, LowRank { a: a_moved, b: b_moved, scale: SCALE, magnitude: None });
        }
        let tangents = Tangents::new(&mode, &moves);
        let samples = samples(&reference, "left").for_all().map(|values| Dual::fixed(values.shallow_clone()));
        let found = tch::no_grad(|| {
            let features = opened.language.written().unwrap().along(&tangents, &samples);
            head(&opened).logits_along(&tangents, &features)
        });
        near(&found.value.get(0), &reference.get("adapted.logits"), name);
        let found = (found.moved.unwrap() * reference.get("coefficients")).flatten(1, -1);
        let apart = (found.sum_dim_intlist([1i64].as_slice(), false, Kind::Float) - expected) / squares.sqrt();
        let apart = apart.abs().max().double_value(&[]);
        println!("{name}: the sum of products differs by {apart:.1e} of their norm");
        assert!(apart <= 1e-5, "{name}: {apart:.1e}");
    }
}

/// The rows of single words, adapted, recorded and not, are those of the whole matrix.
#[test]
fn label_words_are_rows_of_the_output_matrix() {
    let (opened, reference) = (opened("llama-linear"), Reference::of(&folder("llama-linear")));
    let rows = Tensor::from_slice(&[40i64, 5, 17]);
    let of = |layers: &[&str], rows: &Tensor, tape: bool| {
        let mut weights = Weights::frozen(&opened.base);
        for layer in layers {
            let factor = |end: &str| reference.get(&format!("{layer}.{end}")).unsqueeze(0);
            weights.update(layer, LowRank { a: factor("A"), b: factor("B"), scale: SCALE, magnitude: None });
        }
        if tape {
            weights.record(&Default::default());
        }
        let all = head(&opened);
        let head = Head {
            weight: all.weight.index_select(0, rows),
            bias: all.bias.index_select(0, rows),
            rows: Some(rows.shallow_clone()),
            ..all
        };
        head.logits(&weights, &opened.language.forward(&weights, &samples(&reference, "right").for_all()))
    };
    for layers in [&LAYERS[..], &LAYERS[..7], &LAYERS[7..]] {
        let whole = of(layers, &Tensor::arange(50, (Kind::Int64, Device::Cpu)), false).index_select(2, &rows);
        near(&of(layers, &rows, false), &whole, "rows");
        near(&of(layers, &rows, true), &whole, "recorded rows");
    }
}

/// In a chat a prompt has the special tokens that the chat spells out, and no other at its edges.
#[test]
fn chats_have_the_special_tokens_that_they_spell_out() {
    let tokens = |chat: Option<&str>| {
        let chat = chat.map(|text| Chat::parse(text).unwrap());
        let prompts = Prompts { texts: vec!["the cat".into()], ..Prompts::default() };
        opened("llama").tokenizer.in_chat(chat).prompts("x", &prompts).unwrap().numbers
    };
    let [plain, edges, behind] = [None, Some("<s>{prompt}"), Some("{prompt}</s>")].map(tokens);
    assert_eq!(plain[0], 1, "the tokenizer begins texts with <s>");
    assert_eq!(edges, plain, "which the chat has spelled out: once");
    let words = plain.len() / 2 - 1;
    assert_eq!((&behind[..words], behind[words]), (&plain[1..=words], 2));
}

#[test]
fn prompts_have_the_tokens_of_transformers() {
    for name in &families() {
        let text = std::fs::read_to_string(folder(name).join("prompts.json")).unwrap();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let texts: Vec<String> = serde_json::from_value(told["prompts"].clone()).unwrap();
        let ids: Vec<Vec<u32>> = serde_json::from_value(told["ids"].clone()).unwrap();
        let tokenizer = opened(name).tokenizer;
        for (text, ids) in texts.iter().zip(&ids) {
            assert_eq!(tokenizer.tokens(text).unwrap(), *ids, "{name}: {text}");
        }
        let tokens = tokenizer.prompts(name, &Prompts { texts, ..Prompts::default() }).unwrap();
        assert_eq!(tokens.lengths, ids.iter().map(|ids| ids.len() as u32).collect::<Vec<_>>());
    }
}

/// `transformers.AutoTokenizer` 5.24 takes out `add_bos_token` and `add_eos_token` where there is a `tokenizer.json`, and reads special tokens in
/// a text as its letters where `split_special_tokens` is true.
#[test]
fn settings_beside_a_tokenizer_count_as_in_transformers() {
    let made = tempfile::tempdir().unwrap();
    let tokens = |more: serde_json::Value, text: &str| {
        std::fs::copy(folder("llama").join("tokenizer.json"), made.path().join("tokenizer.json")).unwrap();
        let settings = std::fs::read(folder("llama").join("tokenizer_config.json")).unwrap();
        let mut settings: serde_json::Value = serde_json::from_slice(&settings).unwrap();
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(made.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
        Tokenizer::open(made.path(), 1000, 1000).unwrap().tokens(text).unwrap()
    };
    let plain = tokens(serde_json::json!({}), "the cat");
    assert_eq!((plain[0], plain.len()), (1, 3), "the tokenizer begins texts with <s>");
    for [start, end] in [[false, false], [true, true], [false, true]] {
        assert_eq!(tokens(serde_json::json!({ "add_bos_token": start, "add_eos_token": end }), "the cat"), plain);
    }
    // Old folders name no token there; GPT-2's end is in its config.
    let gpt = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "config.json"] {
        std::fs::copy(folder("gpt2").join(file), gpt.path().join(file)).unwrap();
    }
    std::fs::write(gpt.path().join("tokenizer_config.json"), r#"{"model_max_length": 1024}"#).unwrap();
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(gpt.path().join("config.json")).unwrap()).unwrap();
    let end = Tokenizer::open(gpt.path(), 1000, 1000).unwrap().end();
    assert!(end.is_some() && end.map(u64::from) == config["eos_token_id"].as_u64());
    let special = tokens(serde_json::json!({}), "the </s>");
    assert_eq!(special.last(), Some(&2));
    assert_ne!(tokens(serde_json::json!({ "split_special_tokens": true }), "the </s>").last(), Some(&2));
    let contrary = r#"{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true}"#;
    std::fs::write(gpt.path().join("tokenizer_config.json"), contrary).unwrap();
    let refused = Tokenizer::open(gpt.path(), 1000, 1000).err().map(|why| format!("{why:#}")).unwrap();
    assert!(refused.contains("tokenizer_config.json: add_prefix_space = true, but ByteLevel"), "{refused}");
}

/// Tokenizers of seven classes of transformers (tests/fixtures/tokens/classes, written by scripts/make_class_tokenizer_goldens.py) on generated
/// texts: Gemma's pairs with bytes for what they lack, GPT-2's and ModernBERT's pairs of bytes, the unigrams of DeBERTa, XLM-RoBERTa and
/// CamemBERT, and DistilBERT's pieces of words.
#[test]
fn tokenizers_of_new_classes_give_the_tokens_of_transformers() {
    let folder = fixture("tokens/classes");
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("classes.json")).unwrap()).unwrap();
    let texts: Vec<String> = serde_json::from_value(told["texts"].clone()).unwrap();
    assert!(texts.len() > 150);
    for name in ["gemma", "gpt2"] {
        let ids: Vec<Vec<u32>> = serde_json::from_value(told[name].clone()).unwrap();
        let tokenizer = Tokenizer::open(&folder.join(name), 1000, 1000).unwrap();
        for (text, ids) in texts.iter().zip(&ids) {
            assert_eq!(tokenizer.tokens(text).unwrap(), *ids, "{name}: {text:?}");
        }
    }
    for name in ["deberta", "modernbert", "xlm_roberta", "camembert", "distilbert"] {
        let ids: Vec<Vec<i64>> = serde_json::from_value(told[name].clone()).unwrap();
        let limit = Limit { tokens: Some(400), ..Limit::default() };
        let tokenizer = EncoderTokenizer::open(&folder.join(name), limit, 2).unwrap();
        let prompts = Prompts { texts: texts.clone(), ..Prompts::default() };
        let tokens = tokenizer.prompts(name, &prompts).unwrap().tensor().to_kind(Kind::Int64);
        for (row, ids) in ids.iter().enumerate() {
            let (own, length) = (tokens.get(row as i64), ids.len() as i64);
            assert_eq!(own.get(1).sum(Kind::Int64).int64_value(&[]), length, "{name}: {:?}", texts[row]);
            let found = Vec::<i64>::try_from(own.get(0).narrow(0, 0, length)).unwrap();
            assert_eq!(found, *ids, "{name}: {:?}", texts[row]);
        }
    }
}

fn model(opened: Opened) -> Model {
    let (head, device, kind) = (head(&opened), Device::Cpu, Kind::Float);
    let network = Box::new(opened.language);
    Model { network, base: opened.base, head, preparation: Box::new(AsStored), device, kind }
}

fn ids(text: &[Written]) -> Vec<i64> {
    text.iter().map(|written| i64::from(written.id)).collect()
}

const TWENTY: Stop<'static> = Stop { tokens: 20, ends: &[] };

#[test]
fn twenty_greedy_tokens_are_those_of_transformers() {
    for name in &families() {
        let opened = opened(name);
        assert_eq!(opened.language.autoregressive().is_some(), writes(&opened), "{name}");
        if !writes(&opened) {
            continue;
        }
        let (model, reference) = (model(opened), Reference::of(&folder(name)));
        let predictor = Predictor::new(&model, Members::Checkpoint, Chunk::Auto);
        for side in ["left", "right"] {
            let texts = predictor.generate(&samples(&reference, side), TWENTY).unwrap();
            for (row, text) in texts.iter().enumerate() {
                let expected = Vec::<i64>::try_from(reference.get(&format!("greedy.{row}"))).unwrap();
                assert_eq!(ids(text), expected, "{name}, prompt {row}, padded on the {side}");
            }
        }
    }
}

/// `google/gemma-3-1b-it` and other networks for texts have a tokenizer with the token of images behind the last row of their embeddings.
#[test]
fn added_tokens_that_the_network_does_not_know_are_refused_in_texts_alone() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tokenizer.json");
    let mut written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder("gemma3").join("tokenizer.json")).unwrap()).unwrap();
    let before = Tokenizer::open(&folder("gemma3"), 50, 20).unwrap();
    let added = serde_json::json!({ "id": 50, "content": "<image_soft_token>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true });
    written["added_tokens"].as_array_mut().unwrap().push(added);
    std::fs::write(&file, written.to_string()).unwrap();
    let tokenizer = Tokenizer::open(place.path(), 50, 20).unwrap();
    assert_eq!(tokenizer.tokens("the cat is").unwrap(), before.tokens("the cat is").unwrap());
    let error = format!("{:#}", tokenizer.tokens("the <image_soft_token>").unwrap_err());
    assert!(
        error.contains("has the token `<image_soft_token>` numbered 50, but the network knows 50: leave"),
        "{error}"
    );
    assert!(Tokenizer::open(place.path(), 51, 20).unwrap().tokens("the <image_soft_token>").is_ok());
    let encoder = EncoderTokenizer::open(place.path(), Limit { vocabulary: Some(50), ..Limit::default() }, 2).unwrap();
    assert_eq!(encoder.largest, 49);
    let prompts = |text: &str| Prompts { texts: vec![text.into()], ..Prompts::default() };
    assert!(encoder.prompts("texts", &prompts("the cat")).is_ok());
    let error = format!("{:#}", encoder.prompts("texts", &prompts("<image_soft_token>")).unwrap_err());
    assert!(error.contains("numbered 50, but the network knows 50"), "{error}");
}

/// `transformers.GenerationConfig.from_pretrained(FOLDER).eos_token_id`, at whose tokens `generate` ends texts, which are often several where a
/// network was trained on chats, and the tokenizer's own end is not among them.
#[test]
fn texts_end_where_the_folder_says() {
    let place = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(folder("llama").join(file), place.path().join(file)).unwrap();
    }
    let ends = || Tokenizer::open(place.path(), 100, 20).map(|tokenizer| tokenizer.ends().to_vec());
    let write = |file: &str, text: &str| std::fs::write(place.path().join(file), text).unwrap();
    std::fs::copy(folder("llama").join("model.safetensors"), place.path().join("model.safetensors")).unwrap();
    let is_content = || content(place.path()).unwrap().contains(&place.path().join("generation_config.json"));
    // The config's token is the tokenizer's own.
    assert_eq!(ends().unwrap(), [2, 2]);
    assert!(!is_content());
    write("generation_config.json", r#"{"eos_token_id": [7, 8], "do_sample": true}"#);
    assert_eq!(ends().unwrap(), [2, 7, 8]);
    // So the file counts in the checkpoint's hash, by which runs are known.
    assert!(is_content());
    write("generation_config.json", r#"{"eos_token_id": 9}"#);
    assert_eq!(ends().unwrap(), [2, 9]);
    for nothing in ["{}", "[]"] {
        write("generation_config.json", nothing);
        assert_eq!(ends().unwrap(), [2], "{nothing}");
    }
    write("generation_config.json", r#"{"eos_token_id": ["</s>"]}"#);
    let error = ends().unwrap_err().to_string();
    assert!(
        error.contains("generation_config.json: eos_token_id has \"</s>\": must be the number of a token"),
        "{error}"
    );
    std::fs::remove_file(place.path().join("generation_config.json")).unwrap();
    write("config.json", r#"{"model_type": "llama", "eos_token_id": [11, -1]}"#);
    assert_eq!(ends().unwrap(), [2, 11]);
}

/// Low-rank updates of every layer, of three random particles.
fn particles(model: &Model) -> (Box<dyn Subspace>, Tensor) {
    let targets =
        "[\"attn.q\", \"attn.k\", \"attn.v\", \"attn.proj\", \"mlp.gate\", \"mlp.fc\", \"mlp.proj\", \"lm_head\"]";
    let tree = Tree::parse("x.toml", &format!("rank = 2\ntargets = {targets}")).unwrap();
    let reader = Reader::root(&tree);
    let spec = (low_rank::ENTRY.read)(&reader);
    let spec = reader.close(spec).unwrap();
    let subspace = spec.build(&*model.network, &model.base, &model.head).unwrap();
    tch::manual_seed(3);
    let theta = Tensor::randn([3, subspace.layout().parameters()], tch::kind::FLOAT_CPU) * 0.05;
    (subspace, theta)
}

/// Every token that three members write together is the most probable one by their averaged probabilities, computed from the
/// whole text anew; so are its probability, entropy and mutual information. One member after the other gives the same.
#[test]
fn members_write_one_text_by_their_averaged_probabilities() {
    let (model, reference) = (model(opened("llama-linear")), Reference::of(&folder("llama-linear")));
    let (subspace, theta) = particles(&model);
    let members = Members::Rows { subspace: &*subspace, rows: &theta };
    let prompts = samples(&reference, "left");
    let stop = Stop { tokens: 6, ends: &[] };
    let texts = Predictor::new(&model, members, Chunk::Auto).generate(&prompts, stop).unwrap();
    let singly = Predictor::new(&model, members, Chunk::Fixed(1)).generate(&prompts, stop).unwrap();
    assert_eq!(texts.iter().map(|t| ids(t)).collect::<Vec<_>>(), singly.iter().map(|t| ids(t)).collect::<Vec<_>>());
    let weights = subspace.weights(&model.base, &subspace.layout().leaves(&theta, Kind::Float, false));
    for (row, text) in texts.iter().enumerate() {
        let (tokens, mask) = (prompts.get(IDS).get(row as i64), prompts.get(MASK).get(row as i64));
        let mut all = Vec::<i64>::try_from(tokens.masked_select(&mask.gt(0))).unwrap();
        for written in text {
            let now = Tensor::from_slice(&all).view([1, 1, -1]);
            let sample = Fields::new(vec![(MASK, now.ones_like()), (IDS, now)]);
            let logits = tch::no_grad(|| model.logits(&weights, &sample)).squeeze_dim(1).to_kind(Kind::Double);
            let each = logits.softmax(-1, Kind::Double);
            let mean = each.mean_dim([0i64].as_slice(), false, Kind::Double);
            let entropy = |p: &Tensor| -p.xlogy(p).sum_dim_intlist([-1i64].as_slice(), false, Kind::Double);
            assert_eq!(mean.argmax(None, false).int64_value(&[]), i64::from(written.id));
            let mutual = entropy(&mean) - entropy(&each).mean(Kind::Double);
            for (found, expected) in [
                (written.probability, mean.max().double_value(&[])),
                (written.entropy, entropy(&mean).double_value(&[])),
                (written.mutual_information, mutual.double_value(&[])),
            ] {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
            all.push(i64::from(written.id));
        }
        assert!(text.iter().any(|written| written.mutual_information > 1e-3));
    }
}

/// Members of unlike weights.
struct Weighted {
    theta: Tensor,
    weights: Vec<f64>,
}

impl Rows for Weighted {
    fn count(&self) -> usize {
        self.weights.len()
    }

    fn rows(&self, members: Range<usize>) -> anyhow::Result<Tensor> {
        self.theta.rows(members)
    }

    fn weights(&self) -> Option<&[f64]> {
        Some(&self.weights)
    }

    fn are_made(&self) -> bool {
        false
    }
}

/// A member of twice the weight writes as two members do.
#[test]
fn members_write_by_their_weights() {
    let (model, reference) = (model(opened("llama-linear")), Reference::of(&folder("llama-linear")));
    let (subspace, theta) = particles(&model);
    let prompts = samples(&reference, "left");
    let written = |rows: &dyn Rows| {
        let members = Members::Rows { subspace: &*subspace, rows };
        let stop = Stop { tokens: 4, ends: &[] };
        Predictor::new(&model, members, Chunk::Auto).generate(&prompts, stop).unwrap().concat()
    };
    let twice = written(&theta.index_select(0, &Tensor::from_slice(&[0i64, 1, 1, 1, 2])));
    let [plain, found] =
        [vec![1.0; 3], vec![2.0, 6.0, 2.0]].map(|weights| written(&Weighted { theta: theta.shallow_clone(), weights }));
    assert_eq!(ids(&found), ids(&twice));
    let numbers = |one: &Written| [one.probability, one.entropy, one.mutual_information];
    let apart = |a: &[Written], b: &[Written]| {
        let pairs = a.iter().zip(b).flat_map(|(a, b)| numbers(a).into_iter().zip(numbers(b)));
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(apart(&found, &twice) < 1e-6 && apart(&found, &plain) > 1e-3);
}

/// What is kept of prompts would take more than the memory at once: they are continued in turn, with the same texts.
#[test]
fn prompts_are_continued_in_turn_where_memory_is_short() {
    let (model, reference) = (model(opened("llama-linear")), Reference::of(&folder("llama-linear")));
    let (subspace, theta) = particles(&model);
    let members = Members::Rows { subspace: &*subspace, rows: &theta };
    let (few, stop) = (samples(&reference, "left"), Stop { tokens: 3, ends: &[] });
    const TIMES: i64 = 1024;
    let many = few.map(|rows| rows.repeat([TIMES, 1]));
    let predictor = Predictor::new(&model, members, Chunk::Auto);
    let texts = |prompts: &Fields| predictor.generate(prompts, stop).unwrap();
    let (one, all) = (texts(&few), texts(&many));
    let network = model.network.autoregressive().unwrap();
    let tokens = few.get(IDS).size()[1] + stop.tokens as i64;
    let kept = network.kept_bytes(tokens, Kind::Float) * (predictor.members() * all.len()) as u64;
    memory::allow(memory::held_bytes(Device::Cpu).unwrap() + kept / 2);
    let in_turn = texts(&many);
    memory::allow(0);
    assert_eq!(in_turn.len(), all.len());
    let written = |texts: &[Vec<Written>]| texts.iter().map(|text| ids(text)).collect::<Vec<_>>();
    let expected: Vec<Vec<i64>> = (0..TIMES).flat_map(|_| written(&one)).collect();
    assert!(written(&in_turn) == written(&all) && written(&all) == expected);
}

#[test]
fn texts_end_at_their_end_token_and_within_the_context() {
    let (model, reference) = (model(opened("llama")), Reference::of(&folder("llama")));
    let predictor = Predictor::new(&model, Members::Checkpoint, Chunk::Auto);
    let prompts = samples(&reference, "right");
    let whole = ids(&predictor.generate(&prompts, TWENTY).unwrap()[1]);
    let end = *whole.iter().find(|id| whole[0] != **id).unwrap();
    let ends = [u32::MAX, end as u32];
    let stop = Stop { ends: &ends, ..TWENTY };
    let cut = ids(&predictor.generate(&prompts, stop).unwrap()[1]);
    assert_eq!(cut, whole[..whole.iter().position(|id| *id == end).unwrap()]);
    let error = predictor.generate(&prompts, Stop { tokens: 120, ends: &[] }).unwrap_err().to_string();
    assert!(error.contains("exceed the network's context of 128 tokens"), "{error}");
}
