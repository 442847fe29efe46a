//! Networks of texts leave as adapters and whole folders and come in again. What the packages themselves make of them is compared
//! by scripts/compare_text_exports.py.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::{
    Place, assert_has, bella as command, done, error_line, fixture, messages, near, printed, questions, tensor,
    tensors, with,
};
use bella::data::fields::{Fields, IDS, KINDS, MASK, PIXELS, of_texts};
use bella::model::folder::Preprocessing;
use bella::model::module::Limit;
use bella::model::network::{Network, Weights};
use bella::model::{Wording, encoder, language, sighted};
use serde_json::Value;
use tch::{Kind, Tensor};

const ALL: &str = "subspace.low-rank = { rank = 2, targets = [\"attn.q\", \"attn.k\", \"attn.v\", \"attn.proj\", \"mlp.gate\", \
                   \"mlp.fc\", \"mlp.proj\", \"lm_head\"] }\n";
/// The layers of Phi-3 and of GPT-2, which fuse some.
const FUSED: &str = "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.gate_fc\", \"mlp.proj\", \
                     \"lm_head\"] }\n";
const TURNED: &str =
    "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }\n";
const FULL: &str = "subspace.full = {}\n";
const WORDS: &str = "head.label-words = {}\n";

/// Two particles trained on sentences that say `big` or `small`; the place has their config as `tiny.toml`.
pub fn trained(network: &str, tables: &str) -> Place {
    let place = described(network, tables);
    done(place.train(&[]));
    place
}

/// A place with that config, and the sentences.
pub fn described(network: &str, tables: &str) -> Place {
    let place = Place::new();
    let line = |i: usize| {
        let (size, label) = if i.is_multiple_of(2) { ("big", "yes") } else { ("small", "no") };
        format!("{{\"text\": \"the {size} {}\", \"label\": \"{label}\"}}\n", ["cat", "dog", "fish"][i / 2 % 3])
    };
    let lines = |count| (0..count).map(line).collect::<String>();
    place.write("data/train.jsonl", lines(24).as_bytes());
    place.write("data/test.jsonl", lines(8).as_bytes());
    let config = format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint.path = {:?}\n{tables}\
         data.jsonl = {{ root = {:?}, prompt = \"is {{text}} big ?\", labels = [\"no\", \"yes\"] }}\n\
         method.svgd = {{ particles = 2, gamma = 0.01 }}\noptimizer.adamw.lr = 2e-2\n\
         train = {{ epochs = 2, batch_size = 8 }}\n",
        fixture("language").join(network),
        place.path("data")
    );
    place.write("tiny.toml", config.as_bytes());
    place
}

fn export(place: &Place, run: &Path, output: &str, more: &[&str]) -> crate::common::Bella {
    let mut command = place.command("export", &[]);
    command.arg(run).arg("--output").arg(place.path(output)).args(more);
    command
}

/// Imports folders into results of their own.
pub fn importing(place: &Place, folders: &[PathBuf], more: &[&str]) -> crate::common::Bella {
    let mut command = command(&["import", "--device", "cpu", "--threads", "1"]);
    command.arg("--out").arg(place.path("imported")).arg("--config").arg(place.path("tiny.toml"));
    command.args(folders).args(more);
    command
}

#[track_caller]
pub fn import(place: &Place, folders: &[PathBuf], more: &[&str]) -> PathBuf {
    let output = importing(place, folders, more).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    PathBuf::from(printed(&output).trim())
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Export, import and export again: the same bytes in every file.
#[track_caller]
fn comes_back(place: &Place, files: &[&str], more: &[&str]) {
    done(export(place, &place.run(), "first", &[&["--to", "peft"], more].concat()));
    let imported = import(place, &[place.path("first")], &[]);
    done(export(place, &imported, "second", &[&["--to", "peft"], more].concat()));
    for particle in ["particle-0", "particle-1"] {
        for file in files {
            let read = |side: &str| std::fs::read(place.path(side).join(particle).join(file)).unwrap();
            assert!(read("first") == read("second"), "{particle}/{file}");
        }
    }
}

/// Export of a run of one particle, import and export again: the same bytes in every file.
#[track_caller]
fn comes_back_from(place: &Place, run: &Path) {
    done(export(place, run, "first", &["--to", "peft"]));
    let imported = import(place, &[place.path("first")], &[]);
    done(export(place, &imported, "second", &["--to", "peft"]));
    for file in ADAPTER {
        let read = |side: &str| std::fs::read(place.path(side).join(file)).unwrap();
        assert!(read("first") == read("second"), "{file}");
    }
}

const ADAPTER: [&str; 3] = ["adapter_config.json", "adapter_model.safetensors", "expected.safetensors"];

/// Grouped keys and biases in shards, tied embeddings, and a classifier of its own.
#[test]
fn adapters_come_back_bit_for_bit() {
    for (network, tables) in [("llama-3", ALL), ("llama-linear", ALL), ("gemma2", ALL), ("phi3", FUSED)] {
        comes_back(&trained(network, &format!("{WORDS}{tables}")), &ADAPTER, &[]);
    }
    comes_back(&trained("gpt2", &format!("head.linear = {{}}\n{TURNED}")), &ADAPTER, &[]);
    let place = trained("llama-3", &format!("head.linear = {{}}\n{ALL}"));
    comes_back(&place, &[&ADAPTER[..], &["head.safetensors"]].concat(), &[]);
    let config = json(&place.path("first/particle-0/adapter_config.json"));
    assert_eq!(config["task_type"], "CAUSAL_LM");
    std::fs::remove_file(place.path("first/particle-0/head.safetensors")).unwrap();
    let line = error_line(importing(&place, &[place.path("first/particle-0")], &[]), 1);
    assert_has(&line, &["head.linear: the adapter has no trained classifier", "head.safetensors"]);
    // A classifier has no place among label words.
    let set = ["--set", "head={label-words={}}"];
    let line = error_line(importing(&place, &[place.path("first/particle-1")], &set), 1);
    assert_has(&line, &["it has a trained classifier of its own"]);
}

/// A place with two particles on questions about images, of which every part is adapted.
fn seeing(folder: &str, more: &[&str]) -> Place {
    let place = Place::new();
    let config = questions(&place, folder);
    let projector = if folder.starts_with("paligemma") { "projector.linear\"" } else { "projector.linear_2\"" };
    let targets = "targets = [\"attn.q\", \"mlp.proj\", \"lm_head\", \"projector.linear_2\", \"vision.attn.qkv\", \
                   \"vision.mlp.fc\"]";
    let targets = targets.replace("projector.linear_2\"", projector);
    let config = config.replace("targets = [\"attn.q\", \"attn.v\", \"lm_head\"]", &targets);
    place.write("tiny.toml", config.as_bytes());
    done(place.train(&[&["train.epochs=1"], more].concat()));
    place
}

#[test]
fn adapters_of_a_network_that_sees_come_back_bit_for_bit() {
    comes_back(&seeing("llava/transformers-5", &[]), &ADAPTER, &[]);
    comes_back(&seeing("llava/transformers-4", &[]), &ADAPTER, &["--for", "transformers-4"]);
    comes_back(&seeing("paligemma/gemma", &[]), &ADAPTER, &["--for", "transformers-4"]);
    comes_back(&seeing("paligemma/gemma2", &[]), &ADAPTER, &[]);
}

/// The names of an adapter's factors A without what all have in common, sorted.
fn layers(folder: &Path) -> Vec<String> {
    let all = tensors(&folder.join("adapter_model.safetensors"));
    let layer = |name: &String| {
        let inner = name.strip_prefix("base_model.model.").expect("the start of every name");
        inner.strip_suffix(".lora_A.weight").map(str::to_string)
    };
    let mut found: Vec<String> = all.iter().filter_map(|(name, _)| layer(name)).collect();
    found.sort();
    found
}

/// The paths of modules in LlamaForCausalLM and LlavaForConditionalGeneration of transformers 5.23 and 4.57.
#[test]
fn layers_have_the_paths_of_transformers() {
    let place = trained("llama-3", &format!("{WORDS}{ALL}"));
    let mut golden = vec!["lm_head".to_string()];
    for block in 0..2 {
        for layer in ["mlp.down_proj", "mlp.gate_proj", "mlp.up_proj"] {
            golden.push(format!("model.layers.{block}.{layer}"));
        }
        for layer in ["k_proj", "o_proj", "q_proj", "v_proj"] {
            golden.push(format!("model.layers.{block}.self_attn.{layer}"));
        }
    }
    for package in ["transformers-4", "transformers-5"] {
        done(export(&place, &place.run(), "out", &["--to", "peft", "--soup", "--for", package, "--force"]));
        assert_eq!(layers(&place.path("out")), golden);
        let mut targets: Vec<String> =
            serde_json::from_value(json(&place.path("out/adapter_config.json"))["target_modules"].clone()).unwrap();
        targets.sort();
        assert_eq!(targets, golden);
    }
    let place = seeing("llava/transformers-5", &[]);
    for (package, tower) in
        [("transformers-5", "model.vision_tower."), ("transformers-4", "model.vision_tower.vision_model.")]
    {
        done(export(&place, &place.run(), "out", &["--to", "peft", "--particle", "0", "--for", package, "--force"]));
        let mut golden = vec!["lm_head".to_string(), "model.multi_modal_projector.linear_2".to_string()];
        for block in 0..2 {
            let language = format!("model.language_model.layers.{block}");
            golden.extend([format!("{language}.mlp.down_proj"), format!("{language}.self_attn.q_proj")]);
        }
        for block in 0..3 {
            let block = format!("{tower}encoder.layers.{block}");
            golden.extend(
                ["mlp.fc1", "self_attn.k_proj", "self_attn.q_proj", "self_attn.v_proj"]
                    .map(|layer| format!("{block}.{layer}")),
            );
        }
        golden.sort();
        assert_eq!(layers(&place.path("out")), golden);
    }
}

/// The logits that bella's own network computes with the weights in `folder`, of `words` or of all tokens.
fn logits(folder: &Path, expected: &Path, words: Option<[&str; 2]>) -> Tensor {
    let found = language::open(folder, None, None).unwrap_or_else(|why| panic!("{why:#}"));
    let [ids, mask] = ["input_ids", "attention_mask"].map(|name| tensor(expected, name));
    let samples = Fields::new(vec![(IDS, ids), (MASK, mask)]).for_all();
    let weights = Weights::frozen(&found.base);
    let all = tch::no_grad(|| {
        let features = found.language.forward(&weights, &samples);
        found.language.autoregressive().unwrap().token_logits(&weights, &features).squeeze_dim(0)
    });
    let Some(words) = words else { return all };
    let ids = words.map(|word| i64::from(found.tokenizer.token_of(word).unwrap()));
    all.index_select(1, &Tensor::from_slice(&ids))
}

#[test]
fn whole_models_give_the_same_logits() {
    for (network, subspace, tied) in [
        ("llama-3", ALL, false),
        ("llama-3", FULL, false),
        ("llama-linear", FULL, true),
        // The output matrix alone has an update, so it is another one than the embeddings now.
        ("llama-linear", ALL, false),
        ("qwen3", FULL, false),
        ("gemma2", FULL, true),
        ("phi3", FUSED, false),
    ] {
        let place = trained(network, &format!("{WORDS}{subspace}"));
        done(export(&place, &place.run(), "out", &["--to", "weights"]));
        for particle in ["particle-0", "particle-1"] {
            let folder = place.path("out").join(particle);
            let expected = folder.join("expected.safetensors");
            near(&logits(&folder, &expected, Some(["no", "yes"])), &tensor(&expected, "logits"), network);
            assert_eq!(json(&folder.join("config.json"))["tie_word_embeddings"], tied);
            assert!(folder.join("tokenizer.json").is_file() && !folder.join("reference.safetensors").exists());
        }
    }
}

/// The logits `[members, B, C]`, the mean probabilities and the mutual information of an archive, from inputs in their order.
fn outputs(archive: &Path, inputs: &[Tensor]) -> [Tensor; 3] {
    let module = tch::CModule::load(archive).unwrap();
    let inputs: Vec<tch::IValue> = inputs.iter().map(|input| tch::IValue::Tensor(input.shallow_clone())).collect();
    let output = module.method_is("forward", &inputs).unwrap();
    let tch::IValue::Tuple(parts) = output else { panic!("no tuple") };
    let parts: Vec<Tensor> = parts.into_iter().map(|part| Tensor::try_from(part).unwrap()).collect();
    parts.try_into().unwrap()
}

/// One archive with all particles gives their logits of texts for any number of them, wherever the padding is.
#[test]
fn a_posterior_of_texts_leaves_as_one_archive() {
    let linear = "head.linear = {}\n";
    let dora = ALL.replace("rank = 2,", "rank = 2, dora = true,");
    for (network, head, subspace) in [
        // The output matrix is tied to the embeddings, and has lengths of its own.
        ("llama-linear", WORDS, dora.as_str()),
        ("gemma2", WORDS, &dora),
        ("llama-linear", WORDS, "subspace.rank-one = { targets = [\"attn.q\", \"lm_head\"], std = 0.1 }\n"),
        ("llama-3", WORDS, ALL),
        ("llama-3", WORDS, FULL),
        ("llama-linear", WORDS, ALL),
        ("qwen2", linear, FULL),
        ("qwen3", WORDS, ALL),
        ("qwen3-biased", WORDS, FULL),
        ("mistral-window", WORDS, ALL),
        ("gemma2", WORDS, ALL),
        ("gemma2", WORDS, FULL),
        ("gemma3", WORDS, ALL),
        ("phi3-long", WORDS, FUSED),
        ("olmo2", WORDS, ALL),
        ("smollm3", WORDS, FULL),
        ("gpt2", linear, TURNED),
        ("gpt2", linear, FULL),
    ] {
        let place = trained(network, &format!("{head}{subspace}"));
        done(export(&place, &place.run(), "out", &["--to", "torchscript"]));
        let (archive, expected) = (place.path("out/posterior.pt"), place.path("out/expected.safetensors"));
        let [ids, mask] = ["input_ids", "attention_mask"].map(|name| tensor(&expected, name));
        let logits = tensor(&expected, "logits");
        assert_eq!(logits.size(), [2, 4, 2]);
        let found = outputs(&archive, &[ids.shallow_clone(), mask.shallow_clone()]);
        near(&found[0], &logits, network);
        near(&found[1], &logits.softmax(-1, Kind::Float).mean_dim([0i64].as_slice(), false, Kind::Float), network);
        assert_eq!(found[2].size(), [4]);
        // The last text, which is shorter than the others, with its padding in front.
        let length = mask.get(3).sum(Kind::Int64).int64_value(&[]);
        let behind = [&ids, &mask].map(|rows| rows.narrow(0, 3, 1).roll([-length], [1]));
        assert!(!behind[1].equal(&mask.narrow(0, 3, 1)));
        near(&outputs(&archive, &behind)[0], &logits.narrow(1, 3, 1), network);
    }
    let place = trained("llama", &format!("{WORDS}{ALL}"));
    let output = export(&place, &place.run(), "out", &["--to", "onnx", "--particle", "1"]).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    assert_has(&printed(&output), &["{\"input_ids\": expected[\"input_ids\"], \"attention_mask\": expected["]);
}

/// What leaves a run on a base that bella quantised has the numbers that the codes mean, and an adapter says that plain weights are
/// others. Where the folder itself is quantised, whole ones have no place in its form.
#[test]
fn runs_on_a_quantised_base_leave_with_its_numbers() {
    let archive = |place: &Place, name: &str| {
        done(export(place, &place.run(), "archive", &["--to", "torchscript"]));
        let expected = place.path("archive/expected.safetensors");
        let names = if name.starts_with("bert") {
            &["input_ids", "attention_mask", "token_type_ids"][..]
        } else {
            &["input_ids", "attention_mask"]
        };
        let inputs: Vec<Tensor> = names.iter().map(|name| tensor(&expected, name)).collect();
        near(&outputs(&place.path("archive/posterior.pt"), &inputs)[0], &tensor(&expected, "logits"), name);
    };
    for scheme in ["int8", "nf4"] {
        let place = trained("llama-wide", &format!("checkpoint.quantize = {scheme:?}\n{WORDS}{ALL}"));
        archive(&place, scheme);
        done(export(&place, &place.run(), "whole", &["--to", "weights", "--particle", "1"]));
        let expected = place.path("whole/expected.safetensors");
        near(&logits(&place.path("whole"), &expected, Some(["no", "yes"])), &tensor(&expected, "logits"), scheme);
        let output = export(&place, &place.run(), "adapter", &["--to", "peft"]).output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        assert_has(&messages(&output), &["the adapters were trained on quantised weights"]);
        comes_back(&place, &ADAPTER, &[]);
    }
    let encoder = fixture("encoder/folders");
    let (quantised, tokenizer) = (encoder.join("bert-nf4").display().to_string(), encoder.join("bert"));
    let read = format!(
        "checkpoint.tokenizer = {tokenizer:?}\nhead.linear = {{}}\nsubspace.low-rank = {{ rank = 2, targets = [\"attn.q\", \"mlp.fc\"] }}\n"
    );
    for (name, tables) in
        [("llama-nf4", format!("{WORDS}{ALL}")), ("llama-gptq", format!("{WORDS}{ALL}")), (&quantised, read)]
    {
        let place = trained(name, &tables);
        archive(&place, name.rsplit('/').next().unwrap());
        let line = error_line(export(&place, &place.run(), "whole", &["--to", "weights"]), 1);
        assert_has(&line, &["its weights are quantised", "export --to peft, or --to onnx or torchscript"]);
        assert!(!place.path("whole").exists());
    }
}

/// Text encoders leave as adapters with their classifier, whole, and in one file with all particles; pairs keep their kinds.
#[test]
fn text_encoders_leave_in_every_way() {
    const TARGETS: &str = "subspace.low-rank = { rank = 2, targets = [\"attn.q\", \"attn.k\", \"attn.v\", \"attn.proj\", \
                           \"mlp.fc\", \"mlp.proj\", \"pooler\"] }\n";
    const MODERN: &str = "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.gate_fc\", \"mlp.proj\", \
                          \"pooler\"] }\n";
    for (name, subspace, head) in [
        ("bert", TARGETS, "linear"),
        ("bert", FULL, "checkpoint"),
        ("roberta", TARGETS, "linear"),
        ("xlm-roberta", TARGETS, "linear"),
        ("distilbert", &TARGETS.replace(", \"pooler\"", ""), "linear"),
        ("distilbert-masked", FULL, "linear"),
        ("roberta-model", &TARGETS.replace(", \"pooler\"", ""), "linear"),
        ("electra", &TARGETS.replace("pooler", "embed_proj"), "linear"),
        ("electra-model", FULL, "linear"),
        ("albert", TARGETS, "linear"),
        ("albert-masked", FULL, "linear"),
        ("mpnet", TARGETS, "linear"),
        ("mpnet-model", FULL, "linear"),
        ("deberta-v2", TARGETS, "linear"),
        ("deberta-v2-model", FULL, "linear"),
        ("modernbert", MODERN, "linear"),
        ("modernbert-model", FULL, "linear"),
    ] {
        let path = fixture("encoder/folders").join(name);
        let is_bare = ["-model", "-masked"].iter().any(|end| name.ends_with(end));
        let tokenizer = fixture("encoder/folders").join(tokenizer_of(name));
        let tables = format!("checkpoint.tokenizer = {tokenizer:?}\nhead.{head} = {{}}\n{subspace}");
        let place = trained(&path.display().to_string(), &tables);
        if subspace != FULL {
            let beside = if is_bare { &["head.safetensors"][..] } else { &[] };
            comes_back(&place, &[&ADAPTER[..], beside].concat(), &[]);
        }
        done(export(&place, &place.run(), "out", &["--to", "torchscript"]));
        let expected = place.path("out/expected.safetensors");
        let kinds =
            if ["bert", "electra", "electra-model", "albert", "albert-masked", "deberta-v2-model"].contains(&name) {
                &["token_type_ids"][..]
            } else {
                &[]
            };
        let names = ["input_ids", "attention_mask"].iter().chain(kinds);
        let inputs: Vec<Tensor> = names.map(|name| tensor(&expected, name)).collect();
        let logits = tensor(&expected, "logits");
        near(&outputs(&place.path("out/posterior.pt"), &inputs)[0], &logits, name);
        done(export(&place, &place.run(), "whole", &["--to", "weights", "--particle", "1"]));
        let folder = place.path("whole");
        assert_eq!(folder.join("head.safetensors").exists(), is_bare);
        near(&classified(&folder, &tokenizer, &inputs), &logits.get(1), name);
        assert_eq!(json(&folder.join("config.json")).get("image_size"), None);
    }
}

/// PEFT takes every layer whose name ends in that of the classifier for saved whole: DistilBERT's `pre_classifier` beside its `classifier`.
#[test]
fn layers_that_peft_saves_beside_a_classifier_leave_whole() {
    let path = fixture("encoder/folders/distilbert");
    let targets =
        |layers: &str| format!("head.linear = {{}}\nsubspace.low-rank = {{ rank = 2, targets = [{layers}] }}\n");
    let place = trained(&path.display().to_string(), &targets("\"attn.q\", \"pooler\""));
    done(export(&place, &place.run(), "out", &["--to", "peft", "--particle", "1"]));
    let names: Vec<String> =
        tensors(&place.path("out/adapter_model.safetensors")).into_iter().map(|(name, _)| name).collect();
    let whole = ["weight", "bias"].map(|part| format!("base_model.model.pre_classifier.{part}"));
    assert!(whole.iter().all(|name| names.contains(name)), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("pre_classifier.lora")), "{names:?}");
    let config = json(&place.path("out/adapter_config.json"));
    assert!(!config["target_modules"].to_string().contains("pre_classifier"), "{config}");
    // The sums of a weight and its update are stored, so that logits are rounded otherwise.
    comes_back(&place, &ADAPTER[..2], &[]);
    let alone = trained(&path.display().to_string(), &targets("\"pooler\""));
    let line = error_line(export(&alone, &alone.run(), "out", &["--to", "peft"]), 1);
    assert_has(&line, &["PEFT saves pre_classifier whole", "--to weights"]);
}

/// Layers that are trained whole leave and come back as they are, beside updates, and whatever the head is.
#[test]
fn whole_layers_leave_and_come_back() {
    const WHOLE: &str = "subspace.low-rank = { rank = 2, targets = [\"attn.q\"], whole = [\"pooler\"] }\n";
    for (name, head) in [("distilbert", "linear"), ("roberta", "linear"), ("bert", "checkpoint"), ("electra", "linear")]
    {
        let path = fixture("encoder/folders").join(name);
        let tokenizer = fixture("encoder/folders").join(tokenizer_of(name));
        let tables = format!("checkpoint.tokenizer = {tokenizer:?}\nhead.{head} = {{}}\n{WHOLE}");
        comes_back(&trained(&path.display().to_string(), &tables), &ADAPTER, &[]);
    }
    let both = "head.linear = {}\nsubspace.low-rank = { rank = 2, targets = [\"attn.q\"], whole = [\"attn.q\"] }\n";
    let place = described(&fixture("encoder/folders/bert").display().to_string(), both);
    assert_has(&error_line(place.train(&[]), 2), &["subspace.low-rank.whole", "`attn.q` is among targets, too"]);
    let inside = both.replace("targets = [\"attn.q\"]", "targets = [\"attn.v\"]");
    let place = described(&fixture("encoder/folders/bert").display().to_string(), &inside);
    assert_has(&error_line(place.train(&[]), 1), &["blocks.0.attn.q is a layer of a block"]);
}

/// The layers of an image tower are in blocks of its own, which an adapter cannot hold one by one; a projector is outside of all blocks.
#[test]
fn whole_layers_of_a_network_that_sees_are_outside_of_its_tower() {
    let place = Place::new();
    let config = questions(&place, "llava/transformers-5");
    let whole = |layer: &str| {
        let config = config.replace("\"attn.v\", \"lm_head\"]", &format!("\"attn.v\"]\nwhole = [{layer:?}]"));
        place.write("tiny.toml", config.as_bytes());
    };
    whole("vision.attn.qkv");
    let line = error_line(place.train(&[]), 1);
    assert_has(&line, &["subspace.low-rank.whole: vision.blocks.0.attn.qkv is a layer of a block"]);
    whole("projector.linear_1");
    done(place.train(&["train.epochs=1"]));
    comes_back(&place, &ADAPTER, &[]);
}

/// No layout has both an update of a layer and the layer itself.
#[test]
fn adapters_that_update_a_layer_do_not_come_in_with_others_that_hold_it_whole() {
    let path = fixture("encoder/folders/roberta");
    let place =
        described(&path.display().to_string(), &format!("checkpoint.tokenizer = {path:?}\nhead.linear = {{}}\n"));
    let whole = fixture("encoder/peft/roberta");
    let layer = "base_model.model.classifier.dense";
    let mut all = tensors(&whole.join("adapter_model.safetensors"));
    all.retain(|(name, _)| !name.starts_with(layer));
    for (factor, size) in [("lora_A", [2, 16]), ("lora_B", [16, 2])] {
        all.push((format!("{layer}.{factor}.weight"), Tensor::ones(size, tch::kind::FLOAT_CPU)));
    }
    let updated = place.path("updated");
    std::fs::create_dir(&updated).unwrap();
    Tensor::write_safetensors(&all, updated.join("adapter_model.safetensors")).unwrap();
    std::fs::copy(whole.join("adapter_config.json"), updated.join("adapter_config.json")).unwrap();
    let line = error_line(importing(&place, &[whole, updated], &[]), 1);
    assert_has(&line, &["some adapters update pooler, and others hold it whole: import them in separate runs"]);
}

/// Adapters that PEFT has made, with its logits (scripts/make_encoder_fixtures.py): it trains whole what a class has in front of its
/// classifier. Networks as they are published mostly have no weights of that layer, which is new then.
#[test]
fn adapters_with_whole_layers_are_what_peft_computes() {
    for name in [
        "distilbert",
        "roberta",
        "electra",
        "mpnet",
        "albert",
        "roberta-model",
        "distilbert-masked",
        "electra-model",
        "mpnet-model",
        "bert-masked",
        "albert-masked",
        "deberta-v2-model",
    ] {
        let path = fixture("encoder/folders").join(name);
        let tokenizer = fixture("encoder/folders").join(tokenizer_of(name));
        let tables = format!("checkpoint.tokenizer = {tokenizer:?}\nhead.linear = {{}}\n");
        let place = described(&path.display().to_string(), &tables);
        let adapter = fixture("encoder/peft").join(name);
        let run = import(&place, std::slice::from_ref(&adapter), &[]);
        done(export(&place, &run, "out", &["--to", "weights"]));
        let expected = adapter.join("expected.safetensors");
        let known = tensors(&expected);
        let is_known = |name: &&str| known.iter().any(|(known, _)| known == name);
        let names = ["input_ids", "attention_mask", "token_type_ids"].into_iter().filter(is_known);
        let inputs: Vec<Tensor> = names.map(|name| tensor(&expected, name)).collect();
        near(&classified(&place.path("out"), &tokenizer, &inputs), &tensor(&expected, "logits"), name);
        // It leaves with the tensors that PEFT has saved.
        done(export(&place, &run, "again", &["--to", "peft"]));
        let names = |file: &Path| tensors(file).into_iter().map(|(name, _)| name).collect::<BTreeSet<String>>();
        let [theirs, ours] = [adapter, place.path("again")].map(|folder| folder.join("adapter_model.safetensors"));
        assert_eq!(names(&theirs), names(&ours), "{name}");
        for (layer, value) in tensors(&theirs).iter().filter(|(layer, _)| !layer.contains("lora_")) {
            assert!(tensor(&ours, layer).equal(value), "{name}: {layer}");
        }
        comes_back_from(&place, &run);
    }
}

/// PEFT fits the keys of such tables to paths by `re.match(rf"(.*\\.)?({key})$", path)`.
#[test]
fn patterns_of_ranks_and_alphas_may_be_regular_expressions() {
    let path = fixture("encoder/folders/roberta");
    let place =
        described(&path.display().to_string(), &format!("checkpoint.tokenizer = {path:?}\nhead.linear = {{}}\n"));
    let adapter = place.path("adapter");
    std::fs::create_dir(&adapter).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(fixture("encoder/peft/roberta").join(file), adapter.join(file)).unwrap();
    }
    let config = json(&adapter.join("adapter_config.json"));
    let with = |ranks: Value, alphas: Value| {
        let mut config = config.clone();
        (config["r"], config["rank_pattern"], config["alpha_pattern"]) = (7.into(), ranks, alphas);
        std::fs::write(adapter.join("adapter_config.json"), config.to_string()).unwrap();
        importing(&place, std::slice::from_ref(&adapter), &[])
    };
    let all = |rank: i64| serde_json::json!({ r"layer\.\d\..*(query|dense)": rank });
    done(with(all(2), serde_json::json!({ "layer.[01].*": 3, "^query": 9 })));
    assert_has(&error_line(with(all(3), serde_json::json!({})), 1), &["has rank 2, but its config says 3"]);
    let two = serde_json::json!({ ".*query": 3, "quer[xy]": 4 });
    assert_has(
        &error_line(with(all(2), two), 1),
        &["alpha_pattern has several values for", "query: write the layers' full paths"],
    );
    let broken = with(serde_json::json!({ "quer(y": 2 }), serde_json::json!({}));
    assert_has(
        &error_line(broken, 1),
        &["adapter_config.json: rank_pattern has the regular expression `quer(y`", "(unclosed group)", "full paths"],
    );
}

/// A place for imports on a masked BERT, which has no layer in front of a classifier, and an adapter that holds one.
fn masked() -> (Place, PathBuf) {
    let path = fixture("encoder/folders/bert-masked");
    let tables = format!("checkpoint.tokenizer = {:?}\nhead.linear = {{}}\n", fixture("encoder/folders/bert"));
    (described(&path.display().to_string(), &tables), fixture("encoder/peft/bert-masked"))
}

/// Particles of one run read the same features, and those that the config says.
#[test]
fn adapters_that_read_other_features_are_refused() {
    let (place, whole) = masked();
    let lacking = place.path("lacking");
    std::fs::create_dir(&lacking).unwrap();
    let mut all = tensors(&whole.join("adapter_model.safetensors"));
    all.retain(|(name, _)| !name.contains("pooler"));
    Tensor::write_safetensors(&all, lacking.join("adapter_model.safetensors")).unwrap();
    std::fs::copy(whole.join("adapter_config.json"), lacking.join("adapter_config.json")).unwrap();
    let both = [whole.clone(), lacking];
    let apart = "import them in separate runs";
    assert_has(
        &error_line(importing(&place, &both, &[]), 1),
        &["lacking: holds no bert.pooler.dense, and", "peft/bert-masked does", apart],
    );
    let pooled = ["--set", "checkpoint.features=\"pooled\""];
    let line = error_line(importing(&place, &both, &pooled), 1);
    assert_has(&line, &["lacking: holds no weights of `pooler`", "the checkpoint has none either", apart]);
    let first = ["--set", "checkpoint.features=\"first\""];
    let line = error_line(importing(&place, &both[..1], &first), 1);
    assert_has(
        &line,
        &["checkpoint.features = \"first\"", "peft/bert-masked holds bert.pooler.dense", "leave the key out"],
    );
    // Without the key, as with the only features that fit, the adapter comes in.
    import(&place, &both[..1], &[]);
    import(&place, &both[..1], &[&pooled[..], &["--force"]].concat());
}

/// A copy that is saved without a classifier calls its layers otherwise, and one of which no linear layer of the checkpoint is changed has no
/// update to compress.
#[test]
fn copies_with_a_new_layer_come_in_however_they_were_saved() {
    let (place, adapter) = masked();
    let imported = import(&place, &[adapter], &[]);
    done(export(&place, &imported, "whole", &["--to", "weights"]));
    let logits = |run: &Path, output: &str| {
        done(export(&place, run, output, &["--to", "weights"]));
        tensor(&place.path(output).join("expected.safetensors"), "logits")
    };
    let whole = tensors(&place.path("whole/model.safetensors"));
    let copy = |name: &str| {
        let folder = place.path(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(place.path("whole/config.json"), folder.join("config.json")).unwrap();
        folder
    };
    // `model.bert.save_pretrained`, with the classifier beside it.
    let bare = copy("bare");
    let (head, network): (Vec<_>, Vec<_>) = whole
        .iter()
        .map(|(name, t)| (name.clone(), t.shallow_clone()))
        .filter(|(name, _)| !name.starts_with("cls."))
        .partition(|(name, _)| name.starts_with("classifier."));
    let without = |all: Vec<(String, Tensor)>, start: &str| {
        all.into_iter().map(|(name, t)| (name.trim_start_matches(start).to_string(), t)).collect::<Vec<_>>()
    };
    Tensor::write_safetensors(&without(head, "classifier."), bare.join("head.safetensors")).unwrap();
    Tensor::write_safetensors(&without(network, "bert."), bare.join("model.safetensors")).unwrap();
    let found = logits(&import(&place, &[bare], &[]), "of-bare");
    near(&found, &tensor(&place.path("whole/expected.safetensors"), "logits"), "without a classifier");
    // Only the new layer and the classifier are trained.
    let outside = copy("outside");
    let frozen = tensors(&fixture("encoder/folders/bert-masked/model.safetensors"));
    let own = |name: &str| frozen.iter().find(|(known, _)| known == name).map(|(_, t)| t.shallow_clone());
    let all: Vec<(String, Tensor)> =
        whole.iter().map(|(name, t)| (name.clone(), own(name).unwrap_or_else(|| t.shallow_clone()))).collect();
    Tensor::write_safetensors(&all, outside.join("model.safetensors")).unwrap();
    let full = logits(&import(&place, std::slice::from_ref(&outside), &["--force"]), "of-full");
    let low = logits(&import(&place, &[outside], &["--rank", "2"]), "of-low");
    near(&low, &full, "without an update");
}

/// The classifier of a checkpoint that is read for other features stays in its copies, and is not what they read a text by.
#[test]
fn copies_with_a_classifier_beside_them_keep_their_features() {
    let path = fixture("encoder/folders/bert").display().to_string();
    let place = trained(&path, &format!("checkpoint.features = \"mean\"\nhead.linear = {{}}\n{FULL}"));
    done(export(&place, &place.run(), "whole", &["--to", "weights"]));
    let imported = import(&place, &[place.path("whole")], &[]);
    let theta = |run: &Path| tensor(&run.join("posterior.safetensors"), "theta");
    assert!(theta(&imported).equal(&theta(&place.run())));
}

/// A decoder whose own classifier has no bias keeps it, and the trained one lies beside it: that is the one that comes in.
#[test]
fn the_trained_classifier_of_a_copy_is_the_one_beside_it() {
    const TARGETS: &str = "subspace.low-rank = { rank = 2, targets = [\"attn.q\"] }\n";
    for (head, subspace) in [("linear", TARGETS), ("linear", FULL), ("checkpoint", FULL)] {
        let place = trained("qwen3-classifier", &format!("head.{head} = {{}}\n{subspace}"));
        done(export(&place, &place.run(), "first", &["--to", "weights", "--particle", "0"]));
        let imported = import(&place, &[place.path("first")], &[]);
        done(export(&place, &imported, "second", &["--to", "weights"]));
        let [first, second] =
            ["first", "second"].map(|side| tensor(&place.path(side).join("expected.safetensors"), "logits"));
        near(&second, &first, head);
    }
    // Where no particle trains a classifier, another bias is another classifier.
    let place = described("qwen3-classifier", "head.checkpoint = {}\n");
    let own = tensor(&fixture("language/qwen3-classifier/model.safetensors"), "score.weight");
    let folder = place.path("copy");
    std::fs::create_dir(&folder).unwrap();
    for file in ["config.json", "tokenizer.json"] {
        std::fs::copy(fixture("language/qwen3-classifier").join(file), folder.join(file)).unwrap();
    }
    let scaled: Vec<_> = tensors(&fixture("language/qwen3-classifier/model.safetensors"))
        .into_iter()
        .map(|(name, t)| if name.ends_with("q_proj.weight") { (name, t * 1.1) } else { (name, t) })
        .collect();
    Tensor::write_safetensors(&scaled, folder.join("model.safetensors")).unwrap();
    let beside = |bias: f64| {
        let head =
            [("weight", own.shallow_clone()), ("bias", own.new_full([own.size()[0]], bias, tch::kind::FLOAT_CPU))];
        Tensor::write_safetensors(&head, folder.join("head.safetensors")).unwrap();
    };
    beside(0.5);
    let line = error_line(importing(&place, std::slice::from_ref(&folder), &["--rank", "2"]), 1);
    assert_has(&line, &["copy: it has a trained classifier of its own: use [head.linear]"]);
    beside(0.0);
    let run = import(&place, &[folder], &["--rank", "2"]);
    let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(
        config.contains("\"attn.q\"") && !config.contains("mlp."),
        "layers without a change are left out: {config}"
    );
}

/// Layers that a checkpoint has no weights for are trained, or there is no classifier behind them.
#[test]
fn new_layers_are_trained() {
    let path = fixture("encoder/folders/roberta-model");
    let described = |subspace: &str| {
        let tokenizer = fixture("encoder/folders/roberta");
        let tables = format!(
            "checkpoint.tokenizer = {tokenizer:?}\ncheckpoint.features = \"pooled\"\nhead.linear = {{}}\n{subspace}"
        );
        described(&path.display().to_string(), &tables)
    };
    let frozen = described("subspace.low-rank = { rank = 2, targets = [\"attn.q\"] }\n");
    let line = error_line(frozen.train(&[]), 1);
    assert_has(&line, &["has no weights of `pooler`", "whole = [\"pooler\"]", "[subspace.full]"]);
    let place = described("subspace.low-rank = { rank = 2, targets = [\"attn.q\"], whole = [\"pooler\"] }\n");
    done(place.train(&[]));
    comes_back(&place, &ADAPTER, &[]);
    let names: Vec<String> =
        tensors(&place.path("first/particle-0/adapter_model.safetensors")).into_iter().map(|one| one.0).collect();
    assert!(names.contains(&"base_model.model.classifier.dense.weight".to_string()), "{names:?}");
    let full = described(FULL);
    done(full.train(&[]));
    done(export(&full, &full.run(), "whole", &["--to", "weights", "--particle", "0"]));
    let expected = full.path("whole/expected.safetensors");
    let inputs = ["input_ids", "attention_mask"].map(|name| tensor(&expected, name));
    let found = classified(&full.path("whole"), &fixture("encoder/folders/roberta"), &inputs);
    near(&found, &tensor(&expected, "logits"), "a new layer among all weights");
    // Such a model comes in as full particles, and compressed with the layer whole.
    full.write(
        "tiny.toml",
        std::fs::read_to_string(full.path("tiny.toml"))
            .unwrap()
            .replace("checkpoint.features = \"pooled\"\n", "")
            .as_bytes(),
    );
    for more in [&[][..], &["--rank", "16"]] {
        let run = import(&full, &[full.path("whole")], more);
        done(export(&full, &run, "again", &["--to", "weights", "--force"]));
        let found = classified(&full.path("again"), &fixture("encoder/folders/roberta"), &inputs);
        assert!(!more.is_empty() || found.allclose(&tensor(&expected, "logits"), 1e-5, 1e-5, false));
        let again = tensor(&full.path("again/model.safetensors"), "classifier.dense.weight");
        assert!(again.equal(&tensor(&full.path("whole/model.safetensors"), "classifier.dense.weight")));
    }
}

/// ModernBERT has a norm behind the layer, which is new with it, and both have names in its class for classification.
#[test]
fn a_new_layer_with_a_norm_leaves_by_the_names_of_its_class() {
    let path = fixture("encoder/folders/modernbert-model");
    let tokenizer = fixture("encoder/folders/modernbert");
    let tables =
        format!("checkpoint.tokenizer = {tokenizer:?}\ncheckpoint.features = \"pooled\"\nhead.linear = {{}}\n{FULL}");
    let place = trained(&path.display().to_string(), &tables);
    done(export(&place, &place.run(), "whole", &["--to", "weights", "--particle", "0"]));
    let expected = place.path("whole/expected.safetensors");
    let inputs = ["input_ids", "attention_mask"].map(|name| tensor(&expected, name));
    near(&classified(&place.path("whole"), &tokenizer, &inputs), &tensor(&expected, "logits"), "a new layer");
    let names: BTreeSet<String> =
        tensors(&place.path("whole/model.safetensors")).into_iter().map(|(name, _)| name).collect();
    for name in ["head.dense.weight", "head.norm.weight", "classifier.weight"] {
        assert!(names.contains(name), "{names:?}");
    }
}

/// The logits that a folder of a text encoder gives samples, by its own classifier or by one beside it.
fn classified(folder: &Path, tokenizer: &Path, inputs: &[Tensor]) -> Tensor {
    let opened = encoder::open(folder, tokenizer, Limit::default(), encoder::Asked::default()).unwrap();
    let samples = of_texts(&Tensor::stack(inputs, 1)).for_all();
    let features = tch::no_grad(|| opened.encoder.forward(&Weights::frozen(&opened.base), &samples)).squeeze_dim(0);
    let [weight, bias] = match &opened.head {
        Some(own) => [own.weight.shallow_clone(), own.bias.shallow_clone()],
        None => ["weight", "bias"].map(|part| tensor(&folder.join("head.safetensors"), part)),
    };
    features.linear(&weight, Some(&bias))
}

/// The folder of fixtures whose tokenizer a network has.
fn tokenizer_of(network: &str) -> &str {
    match network.trim_end_matches("-model").trim_end_matches("-masked") {
        "electra" | "albert" => "bert",
        "mpnet" => "roberta",
        own => own,
    }
}

/// Decoders without an output matrix leave as adapters, whole, and in one file with all particles. A trained classifier, which has a bias, lies
/// beside them, since that of the class has none.
#[test]
fn decoders_without_an_output_matrix_leave_in_every_way() {
    const TARGETS: &str = "subspace.low-rank = { rank = 2, targets = [\"attn.q\", \"attn.v\", \"mlp.proj\"] }\n";
    for (name, subspace, head, task) in [
        ("qwen3-classifier", TARGETS, "checkpoint", None),
        ("qwen3-classifier", FULL, "checkpoint", None),
        ("gpt2-classifier", TURNED, "checkpoint", None),
        ("llama-classifier", TARGETS, "linear", None),
        ("mistral-model", TARGETS, "linear", Some("FEATURE_EXTRACTION")),
    ] {
        let place = trained(name, &format!("head.{head} = {{}}\n{subspace}"));
        if subspace != FULL {
            let beside = if head == "linear" { &["head.safetensors"][..] } else { &[] };
            comes_back(&place, &[&ADAPTER[..], beside].concat(), &[]);
            assert_eq!(json(&place.path("first/particle-0/adapter_config.json"))["task_type"].as_str(), task);
        }
        done(export(&place, &place.run(), "out", &["--to", "torchscript"]));
        let expected = place.path("out/expected.safetensors");
        let inputs = ["input_ids", "attention_mask"].map(|name| tensor(&expected, name));
        let logits = tensor(&expected, "logits");
        near(&outputs(&place.path("out/posterior.pt"), &inputs)[0], &logits, name);
        done(export(&place, &place.run(), "whole", &["--to", "weights", "--particle", "1"]));
        let folder = place.path("whole");
        let opened = language::open(&folder, None, None).unwrap();
        let [ids, mask] = inputs;
        let samples = Fields::new(vec![(IDS, ids), (MASK, mask)]).for_all();
        let features =
            tch::no_grad(|| opened.language.forward(&Weights::frozen(&opened.base), &samples)).squeeze_dim(0);
        let beside = folder.join("head.safetensors");
        assert_eq!(beside.exists(), head == "linear" || subspace == FULL, "{name}");
        let [weight, bias] = match &opened.head {
            Some(own) if !beside.exists() => [own.weight.shallow_clone(), own.bias.shallow_clone()],
            _ => ["weight", "bias"].map(|part| tensor(&beside, part)),
        };
        near(&features.linear(&weight, Some(&bias)), &logits.get(1), name);
    }
}

/// `peft.get_peft_model(…, LoraConfig(task_type="SEQ_CLS"))` of a language network stores the classifier `score`, which has no bias.
#[test]
fn a_classifier_without_a_bias_comes_in() {
    let targets = "subspace.low-rank = { rank = 2, targets = [\"attn.q\", \"attn.v\"] }\n";
    let place = trained("llama", &format!("head.linear = {{}}\n{targets}"));
    done(export(&place, &place.run(), "out", &["--to", "peft", "--particle", "0"]));
    let (adapter, head) = (place.path("out/adapter_model.safetensors"), place.path("out/head.safetensors"));
    let weight = tensor(&head, "weight");
    std::fs::remove_file(head).unwrap();
    let mut all = tensors(&adapter);
    all.push(("base_model.model.score.weight".to_string(), weight.shallow_clone()));
    Tensor::write_safetensors(&all, &adapter).unwrap();
    let imported = import(&place, &[place.path("out")], &[]);
    // A trained bias has no place in the class, and one of 0 needs none.
    done(export(&place, &imported, "again", &["--to", "peft"]));
    assert!(tensor(&place.path("again/adapter_model.safetensors"), "base_model.model.score.weight").equal(&weight));
    assert!(!place.path("again/head.safetensors").exists());
    let config = json(&place.path("again/adapter_config.json"));
    assert_eq!((&config["task_type"], &config["modules_to_save"]), (&"SEQ_CLS".into(), &serde_json::json!(["score"])));
    comes_back_from(&place, &imported);
    // Classifiers of every token have a bias, or another name.
    for (name, why) in
        [("score.bias", "classifies every token"), ("classifier.weight", "no classifier of a decoder's last token")]
    {
        let mut others = tensors(&adapter);
        others.push((format!("base_model.model.{name}"), weight.shallow_clone()));
        let path = place.path("other");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::copy(place.path("out/adapter_config.json"), path.join("adapter_config.json")).unwrap();
        Tensor::write_safetensors(&others, path.join("adapter_model.safetensors")).unwrap();
        assert_has(&error_line(importing(&place, &[path], &[]), 1), &[why]);
    }
}

/// The classifier of `LlamaForSequenceClassification` gets as many classes as the data set has, whatever number the checkpoint names.
#[test]
fn a_classifier_without_a_bias_has_the_classes_of_the_data() {
    let targets = "subspace.low-rank = { rank = 2, targets = [\"attn.q\", \"attn.v\"] }\n";
    let place = trained("llama-classifier", &format!("head.linear = {{}}\n{targets}"));
    done(export(&place, &place.run(), "out", &["--to", "peft", "--particle", "0"]));
    let (adapter, head) = (place.path("out/adapter_model.safetensors"), place.path("out/head.safetensors"));
    let weight = tensor(&head, "weight");
    std::fs::remove_file(head).unwrap();
    let mut all = tensors(&adapter);
    all.push(("base_model.model.score.weight".to_string(), weight.shallow_clone()));
    Tensor::write_safetensors(&all, &adapter).unwrap();
    let imported = import(&place, &[place.path("out")], &[]);
    let sized = "num_labels=2, ignore_mismatched_sizes=True";
    assert_has(&done(export(&place, &imported, "adapter", &["--to", "peft"])), &[sized]);
    let python = done(export(&place, &imported, "whole", &["--to", "weights"]));
    assert!(!python.contains("num_labels"), "{python}");
    assert!(tensor(&place.path("whole/model.safetensors"), "score.weight").equal(&weight));
    let config = json(&place.path("whole/config.json"));
    assert_eq!(config["num_labels"], 2);
    assert_eq!(config["id2label"], serde_json::json!({ "0": "no", "1": "yes" }));
    assert_eq!(config["label2id"], serde_json::json!({ "no": 0, "yes": 1 }));
    assert_eq!(config["architectures"], serde_json::json!(["LlamaForSequenceClassification"]));
}

/// `peft.get_peft_model` of `RobertaForSequenceClassification` on a folder of `RobertaModel`, as of BERT's and DeBERTa's classes on folders of masked
/// models, puts a layer before the classifier that bella's network does not have.
#[test]
fn a_classifier_behind_a_layer_that_is_not_there_is_refused() {
    let path = fixture("encoder/folders/roberta-model");
    let tokenizer = fixture("encoder/folders/roberta");
    let tables = format!(
        "checkpoint.tokenizer = {tokenizer:?}\nhead.linear = {{}}\nsubspace.low-rank = {{ rank = 2, targets = [\"attn.q\"] }}\n"
    );
    let place = trained(&path.display().to_string(), &tables);
    done(export(&place, &place.run(), "out", &["--to", "peft", "--particle", "0"]));
    let adapter = place.path("out/adapter_model.safetensors");
    let head = tensors(&place.path("out/head.safetensors"));
    std::fs::remove_file(place.path("out/head.safetensors")).unwrap();
    let own = tensors(&adapter);
    let with = |more: Vec<(String, Tensor)>| {
        let all: Vec<(String, Tensor)> =
            own.iter().map(|(name, t)| (name.clone(), t.shallow_clone())).chain(more).collect();
        Tensor::write_safetensors(&all, &adapter).unwrap();
        error_line(importing(&place, &[place.path("out")], &[]), 1)
    };
    let named = |module: &str| -> Vec<(String, Tensor)> {
        head.iter().map(|(part, t)| (format!("base_model.model.{module}.{part}"), t.shallow_clone())).collect()
    };
    assert_has(
        &with(named("classifier")),
        &["holds a classifier, which reads other features", "with [head.checkpoint]"],
    );
    let dense = ("base_model.model.classifier.dense.bias".to_string(), Tensor::zeros([16], tch::kind::FLOAT_CPU));
    let all = named("classifier.out_proj").into_iter().chain([dense]).collect();
    assert_has(&with(all), &["holds classifier.dense.bias, which is neither", "merge_and_unload"]);
}

/// A network that sees images leaves as one archive, with the logits of all tokens that may come next.
#[test]
fn a_posterior_that_sees_leaves_as_one_archive() {
    for (folder, kinds) in [
        ("llava/transformers-5", None),
        ("paligemma/gemma", Some("token_type_ids")),
        ("paligemma/gemma2", Some("token_type_ids")),
    ] {
        let place = seeing(folder, &[]);
        done(export(&place, &place.run(), "out", &["--to", "torchscript"]));
        let expected = place.path("out/expected.safetensors");
        let names = ["input_ids", "attention_mask"].into_iter().chain(kinds).chain(["pixel_values"]);
        let inputs: Vec<Tensor> = names.map(|name| tensor(&expected, name)).collect();
        near(&outputs(&place.path("out/posterior.pt"), &inputs)[0], &tensor(&expected, "logits"), folder);
        let Some(_) = kinds else { continue };
        // Where the last tokens are no answer, the first ones read them, too.
        let whole = [&inputs[0], &inputs[1], &inputs[2].zeros_like(), &inputs[3]].map(Tensor::shallow_clone);
        let other = &outputs(&place.path("out/posterior.pt"), &whole)[0];
        assert!(!other.allclose(&tensor(&expected, "logits"), 1e-3, 1e-3, false), "{folder}");
        let output = export(&place, &place.run(), "onnx", &["--to", "onnx"]).output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
    }
}

/// Shards stay shards, with an index of their own; a stored type stays what it is.
#[test]
fn shards_and_types_stay_what_they_are() {
    let place = trained("llama-3", &format!("{WORDS}{ALL}"));
    let copy = place.path("half");
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(fixture("language/llama-3")).unwrap().flatten() {
        let (from, to) = (file.path(), copy.join(file.file_name()));
        match file.file_name().to_string_lossy().starts_with("model-") {
            true => {
                let half: Vec<_> = tensors(&from).into_iter().map(|(n, t)| (n, t.to_kind(Kind::BFloat16))).collect();
                Tensor::write_safetensors(&half, to).unwrap();
            }
            false => drop(std::fs::copy(from, to).unwrap()),
        }
    }
    let set = format!("checkpoint.path={copy:?}");
    done(place.train(&[&set]));
    let runs = place.runs();
    let run = runs.iter().find(|run| std::fs::read_to_string(run.join("config.toml")).unwrap().contains("/half\""));
    done(export(&place, run.unwrap(), "out", &["--to", "weights", "--particle", "0"]));
    let index = json(&place.path("out/model.safetensors.index.json"));
    let (old, map) = (json(&copy.join("model.safetensors.index.json")), index["weight_map"].as_object().unwrap());
    assert_eq!(map, old["weight_map"].as_object().unwrap());
    let mut bytes = 0;
    for (name, file) in map {
        let found = tensor(&place.path("out").join(file.as_str().unwrap()), name);
        assert_eq!(found.kind(), Kind::BFloat16, "{name}");
        bytes += 2 * found.numel();
    }
    assert_eq!(index["metadata"]["total_size"], bytes);
}

/// A network that sees images leaves whole; its folder is read again, and the frozen tower is what it was.
#[test]
fn a_network_that_sees_leaves_whole() {
    for (folder, projector) in [
        ("llava/transformers-4", "projector.linear_1"),
        ("llava/transformers-5", "projector.linear_1"),
        ("paligemma/gemma", "projector.linear"),
    ] {
        let targets = format!("subspace.low-rank.targets=[\"attn.q\",\"{projector}\",\"vision.attn.proj\"]");
        let place = seeing(folder, &[&targets]);
        done(export(&place, &place.run(), "out", &["--to", "weights", "--particle", "1"]));
        let out = place.path("out");
        let normalize = Preprocessing::of(&fixture(folder)).normalize.unwrap();
        let opened = sighted::open(&out, None, normalize, None).unwrap_or_else(|why| panic!("{why:#}"));
        let expected = out.join("expected.safetensors");
        let bytes = {
            let of = |three: [f64; 3]| Tensor::from_slice(&three).view([1, 3, 1, 1]);
            let pixels = tensor(&expected, "pixel_values").to_kind(Kind::Double);
            let pixels = (pixels * of(normalize.std) + of(normalize.mean)) * 255.0;
            pixels.round().to_kind(Kind::Float)
        };
        let text = ["input_ids", "attention_mask"].map(|name| tensor(&expected, name));
        let [ids, mask] = text.each_ref().map(Tensor::shallow_clone);
        let whole = opened.network.reads_prompt_whole();
        let kinds = whole.then(|| (KINDS, tensor(&expected, "token_type_ids")));
        let samples =
            Fields::new([(IDS, ids), (MASK, mask), (PIXELS, bytes)].into_iter().chain(kinds).collect()).for_all();
        let weights = Weights::frozen(&opened.base);
        let network = opened.network;
        let last = text[1].sum_dim_intlist([1i64].as_slice(), false, Kind::Int64) - 1;
        let all = tch::no_grad(|| weights.linear("lm_head").forward(&network.forward(&weights, &samples)));
        let rows: Vec<Tensor> =
            (0..last.size()[0]).map(|row| all.get(0).get(row).get(last.int64_value(&[row]))).collect();
        near(&Tensor::stack(&rows, 0), &tensor(&expected, "logits"), folder);
        let file = |at: &Path| tensors(&at.join("model.safetensors"));
        let (old, new) = (file(&fixture(folder)), file(&out));
        assert_eq!(old.len(), new.len());
        let changed: Vec<&String> = old
            .iter()
            .filter(|(name, old)| !new.iter().any(|(other, new)| other == name && new.equal(old)))
            .map(|(name, _)| name)
            .collect();
        let adapted = ["self_attn.q_proj", projector.trim_start_matches("projector."), "self_attn.out_proj"];
        assert!(changed.len() >= 5, "{changed:?}");
        for name in changed {
            assert!(adapted.iter().any(|layer| name.ends_with(&format!("{layer}.weight"))), "{name}");
        }
    }
}

/// transformers before 4.30 stored the causal masks of GPT-2 beside its weights, as bytes and later as truth values. They may be larger than
/// any weight, and stay what they are.
#[test]
fn causal_masks_are_no_weights() {
    let plain = fixture("language/gpt2");
    for kind in [Kind::Bool, Kind::Uint8] {
        let place = Place::new();
        let folder = place.path("masked");
        std::fs::create_dir(&folder).unwrap();
        for file in std::fs::read_dir(&plain).unwrap().flatten().filter(|file| file.path().is_file()) {
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        let mut all = tensors(&plain.join("model.safetensors"));
        let mask = Tensor::ones([1, 1, 512, 512], (kind, tch::Device::Cpu)).tril(0);
        let names: Vec<String> =
            all.iter().filter_map(|(name, _)| Some(name.strip_suffix(".attn.c_attn.weight")?.to_string())).collect();
        all.extend(names.iter().map(|block| (format!("{block}.attn.bias"), mask.shallow_clone())));
        Tensor::write_safetensors(&all, folder.join("model.safetensors")).unwrap();
        assert_eq!(language::open(&folder, None, None).unwrap().stored, Kind::Float);
        let place = trained(folder.to_str().unwrap(), &format!("head.linear = {{}}\n{TURNED}"));
        done(export(&place, &place.run(), "out", &["--to", "weights", "--particle", "0"]));
        let file = place.path("out/model.safetensors");
        let kept = tensor(&file, &format!("{}.attn.bias", names[0]));
        assert!(kept.kind() == kind && kept.equal(&mask));
        let layer = |file: &Path| tensor(file, &format!("{}.attn.c_attn.weight", names[0]));
        assert!(!layer(&file).equal(&layer(&plain.join("model.safetensors"))));
    }
}

#[test]
fn fine_tuned_models_come_in_whole_and_compressed() {
    let place = trained("llama-3", &format!("{WORDS}{FULL}"));
    done(export(&place, &place.run(), "first", &["--to", "weights"]));
    let imported = import(&place, &[place.path("first")], &[]);
    let theta = |run: &Path| tensor(&run.join("posterior.safetensors"), "theta");
    assert!(theta(&imported).equal(&theta(&place.run())), "full particles are the stored weights");
    // Fine-tuned copies need no tokenizer.
    std::fs::remove_file(place.path("first/particle-0/tokenizer.json")).unwrap();
    let output = importing(&place, &[place.path("first/particle-0")], &["--rank", "4"]).output().unwrap();
    assert_has(&messages(&output), &["rank 4 leaves out", "no linear layers"]);
    // What is low-rank already is compressed without a loss.
    let low = trained("llama-linear", &format!("{WORDS}{ALL}"));
    done(export(&low, &low.run(), "first", &["--to", "weights", "--particle", "0"]));
    let line = error_line(importing(&low, &[low.path("first")], &[]), 1);
    assert_has(&line, &["has a lm_head.weight of its own", "--rank R"]);
    let compressed = import(&low, &[low.path("first")], &["--rank", "2"]);
    done(export(&low, &compressed, "second", &["--to", "peft"]));
    let [first, second] =
        ["first", "second"].map(|side| tensor(&low.path(side).join("expected.safetensors"), "logits"));
    near(&second, &first, "compressed");
}

/// PEFT also stores embeddings and the output matrix where one of them is adapted.
#[test]
fn stored_embeddings_must_be_those_of_the_checkpoint() {
    let place = trained("llama-linear", &format!("{WORDS}{ALL}"));
    done(export(&place, &place.run(), "out", &["--to", "peft", "--particle", "0"]));
    let path = place.path("out/adapter_model.safetensors");
    let table = tensor(&fixture("language/llama-linear/model.safetensors"), "model.embed_tokens.weight");
    let own = tensors(&path);
    let write = |factor: f64| {
        let mut all: Vec<(String, Tensor)> = own.iter().map(|(name, t)| (name.clone(), t.shallow_clone())).collect();
        for name in ["lm_head.base_layer.weight", "model.embed_tokens.weight"] {
            all.push((format!("base_model.model.{name}"), &table * factor));
        }
        Tensor::write_safetensors(&all, &path).unwrap();
    };
    write(1.0);
    let imported = import(&place, &[place.path("out")], &[]);
    let theta = |run: &Path| tensor(&run.join("posterior.safetensors"), "theta").get(0);
    assert!(theta(&imported).equal(&theta(&place.run())));
    write(1.5);
    let line = error_line(importing(&place, &[place.path("out")], &["--force"]), 1);
    assert_has(&line, &["holds another base_model.model.", "has also trained that"]);
}

/// GPT-2's matrices are stored as `[in, out]`, also beside an adapter.
#[test]
fn stored_matrices_of_gpt2_must_be_those_of_the_checkpoint() {
    let place =
        trained("gpt2", "head.linear = {}\nsubspace.low-rank = { rank = 2, targets = [\"mlp.fc\", \"attn.proj\"] }\n");
    done(export(&place, &place.run(), "out", &["--to", "peft", "--particle", "0"]));
    let path = place.path("out/adapter_model.safetensors");
    let matrix = tensor(&fixture("language/gpt2/model.safetensors"), "transformer.h.0.attn.c_proj.weight");
    let own = tensors(&path);
    let write = |matrix: Tensor| {
        let name = "base_model.model.transformer.h.0.attn.c_proj.weight".to_string();
        let all = own.iter().map(|(name, t)| (name.clone(), t.shallow_clone())).chain([(name, matrix.contiguous())]);
        Tensor::write_safetensors(&all.collect::<Vec<_>>(), &path).unwrap();
    };
    write(matrix.shallow_clone());
    import(&place, &[place.path("out")], &[]);
    write(matrix.tr());
    assert_has(&error_line(importing(&place, &[place.path("out")], &["--force"]), 1), &["has also trained that"]);
}

#[test]
fn what_cannot_leave_or_come_in_is_refused_in_one_line() {
    let place = trained("llama-3", &format!("{WORDS}{ALL}"));
    let run = place.run();
    let cases: [(&[&str], &[&str]); 3] = [
        (&["--to", "onnx", "--preprocess"], &["--preprocess: is for networks of images", "leave it out"]),
        (&["--to", "peft", "--for", "timm"], &["--for timm", "which fit --for transformers-4 or --for transformers-5"]),
        (&["--to", "peft", "--particle", "2"], &["the run has models 0 to 1"]),
    ];
    for (more, parts) in cases {
        assert_has(&error_line(export(&place, &run, "new", more), 2), parts);
    }
    let full = trained("llama-3", &format!("{WORDS}{FULL}"));
    let line = error_line(export(&full, &full.run(), "new", &["--to", "peft"]), 1);
    assert_has(&line, &["adapters are low-rank updates", "--to weights"]);
    for place in [&place, &full] {
        let left = std::fs::read_dir(place.path(".")).unwrap().flatten().map(|entry| entry.file_name());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("new")), "nothing is half-written");
    }
    // An adapter of a network that sees images: its tower's layers end like those of blocks.
    let targets = "subspace.low-rank.targets=[\"vision.mlp.proj\",\"projector.linear_1\"]";
    let other = seeing("llava/transformers-5", &[targets]);
    done(export(&other, &other.run(), "out", &["--to", "peft", "--particle", "0"]));
    let path = other.path("out/adapter_model.safetensors");
    Tensor::write_safetensors(&tensors(&path), &path).unwrap();
    let line = error_line(importing(&place, &[other.path("out")], &[]), 1);
    assert_has(&line, &["4 of its 4 layers match none of", "they are called like layers.0.self_attn.q_proj"]);
    assert!(!place.path("imported/runs").exists());
    done(other.train(&["train.epochs=1", targets, "seed=8"]));
    let mut merge = with(other.command("merge", &[]), &["--by", "squared-gradients"]);
    merge.args(other.runs());
    assert_has(&error_line(merge, 1), &["--by squared-gradients: this network writes answers"]);
}

/// Averages and merges leave in the same ways. A merge by the mean has the mean of both runs' averages, and a run beside its copy in another
/// folder, which has the same name, is itself.
#[test]
fn soups_and_merges_leave() {
    let place = trained("llama-linear", &format!("{WORDS}{ALL}"));
    done(place.train(&["seed=2"]));
    let runs = place.runs();
    let copy = place.path("copy").join(runs[0].file_name().unwrap());
    std::fs::create_dir_all(&copy).unwrap();
    for file in std::fs::read_dir(&runs[0]).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let leave = |command: &str, runs: &[&Path], output: &str| {
        let by: &[&str] = if command == "merge" { &["--by", "mean"] } else { &[] };
        let mut asked = with(place.command(command, &[]), by);
        asked.args(["--to", "weights", "--output"]).arg(place.path(output)).args(runs);
        done(asked);
        let folder = place.path(output);
        let expected = folder.join("expected.safetensors");
        near(&logits(&folder, &expected, Some(["no", "yes"])), &tensor(&expected, "logits"), output);
        tensor(&folder.join("model.safetensors"), "model.layers.0.self_attn.q_proj.weight")
    };
    let first = leave("soup", &[&runs[0]], "first");
    let second = leave("soup", &[&runs[1]], "second");
    assert!(!first.allclose(&second, 1e-4, 1e-4, false), "the runs differ");
    near(&leave("merge", &[&runs[0], &runs[1]], "merged"), &((&first + &second) / 2.0), "the mean of both");
    near(&leave("merge", &[&runs[0], &copy], "same"), &first, "the run itself");
}

/// The file of a posterior names the rows of the folder's own parameters, and the tokens of the label words.
#[test]
fn a_posterior_explains_itself() {
    let place = trained("llama-linear", &format!("{WORDS}{ALL}"));
    let bytes = std::fs::read(place.run().join("posterior.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let about = header.metadata().clone().unwrap();
    let entry = |key: &str| serde_json::from_str::<Value>(&about[key]).unwrap();
    assert_eq!(entry("checkpoint")["naming"], "transformers");
    assert_eq!(entry("head")["rows"].as_array().unwrap().len(), 2);
    assert!(!about.contains_key("preprocessing"));
    let stored = tensors(&fixture("language/llama-linear/model.safetensors"));
    let layout = entry("layout");
    assert_eq!(layout.as_array().unwrap().len(), 2 * 7 + 1);
    for part in layout.as_array().unwrap() {
        let pieces = part["stored_as"].as_array().unwrap();
        if part["name"] == "lm_head.weight" {
            assert!(pieces.is_empty(), "the checkpoint stores the embeddings alone: {part}");
            continue;
        }
        let (_, found) = stored.iter().find(|(name, _)| pieces[0]["name"] == **name).unwrap();
        assert_eq!((pieces.len(), &part["outputs"]), (1, &Value::from(found.size()[0])));
        assert_eq!((&pieces[0]["row"], &pieces[0]["stored_row"]), (&Value::from(0), &Value::from(0)));
    }
}

/// An encoder leaves as its own archive, with its tokenizer.
#[test]
fn a_text_encoder_leaves_as_its_own_archive() {
    let path = fixture("encoder/bert/bert.pt").display().to_string();
    for subspace in ["subspace.low-rank = { rank = 2, targets = [\"linear\"] }\n", FULL] {
        let tables = format!("checkpoint.kind = \"module\"\nhead.linear = {{}}\n{subspace}");
        let place = trained(&path, &tables);
        let output = export(&place, &place.run(), "out", &["--to", "weights", "--particle", "1"]).output().unwrap();
        let line = "model(expected[\"input_ids\"], expected[\"attention_mask\"], expected[\"token_type_ids\"])";
        assert_has(&printed(&output), &[line]);
        let expected = place.path("out/expected.safetensors");
        let inputs = ["input_ids", "attention_mask", "token_type_ids"].map(|name| tensor(&expected, name));
        let module = tch::CModule::load(place.path("out/model.pt")).unwrap();
        let features = tch::no_grad(|| module.forward_ts(&inputs).unwrap());
        let head = ["weight", "bias"].map(|name| tensor(&place.path("out/head.safetensors"), name));
        near(&features.linear(&head[0], Some(&head[1])), &tensor(&expected, "logits"), subspace);
        assert!(place.path("out/tokenizer.json").is_file());
        let line = error_line(export(&place, &place.run(), "new", &["--to", "peft"]), 1);
        assert_has(&line, &["a module (checkpoint.kind = \"module\") leaves by --to weights alone"]);
        let line = error_line(importing(&place, &[place.path("out")], &[]), 1);
        assert_has(&line, &["checkpoint.kind = \"module\"", "networks that bella computes itself"]);
    }
}

#[test]
fn a_card_says_what_the_network_reads() {
    let place = trained("llama-3", &format!("{WORDS}{ALL}"));
    done(export(&place, &place.run(), "out", &["--to", "weights", "--soup", "--card"]));
    let card = std::fs::read_to_string(place.path("out/README.md")).unwrap();
    assert_has(
        &card,
        &["pipeline_tag: text-classification", "for 2 classes", "on 24 texts in", "AutoModelForCausalLM"],
    );
    assert!(!card.contains(place.path("out").to_str().unwrap()) && !card.contains("fixtures"), "{card}");
    let place = seeing("llava/transformers-5", &[]);
    let mut print = place.command("export", &[]);
    print.arg(place.run()).arg("--card");
    let parts = ["pipeline_tag: visual-question-answering", "for free answers", "--to weights --output FOLDER"];
    assert_has(&done(print), &parts);
}
