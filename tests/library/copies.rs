//! Fine-tuned copies of a checkpoint come in only where their particles predict what the copies do: a copy may compute otherwise, have another
//! tower of texts, a classifier of other classes, or one that no particle has a place for.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tch::Tensor;

use crate::common::{Place, assert_has, done, error_line, fixture, messages, tensors};
use crate::text_exports::{described, import, importing};

/// Copies a folder of fixtures without its reference.
fn copied(place: &Place, from: &Path, name: &str) -> PathBuf {
    let folder = place.path(name);
    std::fs::create_dir(&folder).unwrap();
    for file in std::fs::read_dir(from).unwrap().flatten().filter(|file| file.file_name() != "reference.safetensors") {
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    folder
}

/// Sets the value at a pointer in the config of a folder.
fn set(folder: &Path, pointer: &str, value: Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let (table, key) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(table).unwrap()[key] = value;
    std::fs::write(path, config.to_string()).unwrap();
}

/// Long-context copies change the base of rotary positions, and nothing in their weights tells it.
#[test]
fn copies_that_compute_otherwise_are_refused() {
    let encoders = fixture("encoder/folders");
    for (network, pointer, value, what) in [
        ("llama-3".into(), "/rope_parameters/rope_theta", json!(1e6), "another rotary positions than that of"),
        ("llama-3".into(), "/rms_norm_eps", json!(0.5), "another epsilon"),
        ("mistral-window".into(), "/sliding_window", Value::Null, "another windows of attention"),
        (encoders.join("roberta-model"), "/hidden_act", json!("silu"), "another activation"),
        (encoders.join("roberta-model"), "/layer_norm_eps", json!(0.1), "another epsilon"),
    ] {
        let is_encoder = network.is_absolute();
        let tables = match is_encoder {
            true => format!("checkpoint.tokenizer = {:?}\nhead.linear = {{}}\n", encoders.join("roberta")),
            false => "head.label-words = {}\n".to_string(),
        };
        let place = described(network.to_str().unwrap(), &tables);
        let source = if is_encoder { network } else { fixture("language").join(network) };
        let folder = copied(&place, &source, "copy");
        if !is_encoder {
            import(&place, std::slice::from_ref(&folder), &[]);
        }
        set(&folder, pointer, value);
        let line = error_line(importing(&place, &[folder], &["--force"]), 1);
        assert_has(&line, &["copy: its config says ", what, "give this folder as checkpoint.path"]);
    }
}

/// What a checkpoint's own config is refused for by `[head.checkpoint]` is refused in its copies.
#[test]
fn copies_with_the_classes_in_another_order_are_refused() {
    let place = described("qwen3-classifier", "head.checkpoint = {}\n");
    let folder = copied(&place, &fixture("language/qwen3-classifier"), "copy");
    set(&folder, "/id2label", json!({ "0": "yes", "1": "no" }));
    let line = error_line(importing(&place, std::slice::from_ref(&folder), &[]), 1);
    assert_has(&line, &["copy has the data set's classes in another order: set classes = [\"yes\", \"no\"]"]);
    set(&folder, "/id2label", json!({ "0": "no", "1": "yes" }));
    import(&place, &[folder], &[]);
}

/// The trained classifier of such a model lies beside it, and `[head.checkpoint]` reads the one among its weights.
#[test]
fn a_classifier_beside_a_checkpoint_is_not_the_checkpoints() {
    let place = described("qwen3-classifier", "head.checkpoint = {}\nsubspace.full = {}\n");
    let folder = copied(&place, &fixture("language/qwen3-classifier"), "copy");
    std::fs::write(folder.join("head.safetensors"), b"").unwrap();
    let mut command = place.command("eval", &[&format!("checkpoint.path={}", folder.display())]);
    command.arg("--config").arg(place.path("tiny.toml"));
    let output = command.output().unwrap();
    assert_has(&messages(&output), &["reads the classifier among the weights, and not the one in", "bella import"]);
}

/// A config of zero-shot classification by a folder of two towers.
fn zero_shot(place: &Place) {
    let text = format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint = {{ path = {:?}, normalize = \"clip\" }}\ndata.digits.subset = {{ train = 24, test = 20 }}\n\
         [head.zero-shot]\ntemplates = [\"a {{}}.\"]\n\
         class_names = [\"a\", \"cat\", \"dog\", \"ship\", \"zebra\", \"frog\", \"truck\", \"maple\", \"7\", \"foot\"]\n",
        fixture("folders/hf-siglip-both")
    );
    place.write("tiny.toml", text.as_bytes());
}

/// The zero-shot head is made of the checkpoint's tower of texts, and a particle has its tower of images alone.
#[test]
fn copies_with_another_tower_of_texts_are_refused() {
    let place = Place::new();
    zero_shot(&place);
    let folder = copied(&place, &fixture("folders/hf-siglip-both"), "copy");
    let change = |start: &str, factor: f64| {
        let file = folder.join("model.safetensors");
        let all: Vec<(String, Tensor)> = tensors(&file)
            .into_iter()
            .map(|(name, t)| if name.starts_with(start) { (name, t * factor) } else { (name, t) })
            .collect();
        Tensor::write_safetensors(&all, file).unwrap();
    };
    let importing = || {
        let mut command = importing(&place, std::slice::from_ref(&folder), &[]);
        command.env("BELLA_CACHE", place.path("cache"));
        command
    };
    change("vision_model.post_layernorm", 1.1);
    done(importing());
    let config = std::fs::read(folder.join("config.json")).unwrap();
    set(&folder, "/vision_config/layer_norm_eps", json!(0.1));
    assert_has(&error_line(importing(), 1), &["copy: its config says another epsilon"]);
    std::fs::write(folder.join("config.json"), config).unwrap();
    change("text_model.final_layer_norm", 1.1);
    let line = error_line(importing(), 1);
    assert_has(&line, &["copy: its tower of texts is not that of", "give this folder as checkpoint.path"]);
    change("text_model.final_layer_norm", 1.0 / 1.1);
    change("logit_scale", 1.1);
    std::fs::write(folder.join("head.safetensors"), b"").unwrap();
    assert_has(&error_line(importing(), 1), &["copy: its tower of texts is not that of", "head.zero-shot.weights = "]);
}

/// A head that lies beside a copy would be dropped where no particle trains one.
#[test]
fn copies_with_a_head_of_their_own_need_a_place_for_it() {
    let place = Place::new();
    zero_shot(&place);
    let folder = copied(&place, &fixture("folders/hf-siglip-both"), "copy");
    let width = tensors(&folder.join("model.safetensors"))
        .into_iter()
        .find(|(name, _)| name == "vision_model.post_layernorm.weight")
        .map(|(_, t)| t.size()[0])
        .unwrap();
    let head = [("weight", vec![10, width]), ("bias", vec![10])];
    let head = head.map(|(name, size)| (name, Tensor::ones(size, tch::kind::FLOAT_CPU)));
    Tensor::write_safetensors(&head, folder.join("head.safetensors")).unwrap();
    for more in [&[][..], &["--rank", "2"]] {
        let mut command = importing(&place, std::slice::from_ref(&folder), more);
        command.env("BELLA_CACHE", place.path("cache"));
        assert_has(&error_line(command, 1), &["copy: it has a trained classifier of its own: use [head.linear]"]);
    }
}

/// One folder under two names is one particle, and a folder of weights without a config is not passed over.
#[test]
fn each_folder_is_a_particle_once() {
    let place = described("llama-3", "head.label-words = {}\n");
    let folder = copied(&place, &fixture("language/llama-3"), "many-0");
    let other = place.path("there/../many-0");
    std::fs::create_dir(place.path("there")).unwrap();
    let twice = error_line(importing(&place, &[folder.clone(), other], &[]), 1);
    assert_has(&twice, &["many-0: is given twice"]);
    for weights in ["pytorch_model.bin", "pytorch_model.bin.index.json", "open_clip_model.safetensors"] {
        let many = place.path(&format!("with-{weights}"));
        std::fs::create_dir_all(many.join("bare")).unwrap();
        std::os::unix::fs::symlink(&folder, many.join("whole")).unwrap();
        std::fs::write(many.join("bare").join(weights), b"").unwrap();
        let line = error_line(importing(&place, &[many], &[]), 1);
        assert_has(&line, &["bare: holds weights, but neither adapter_config.json nor config.json"]);
    }
}

/// The classifier of an adapter for tokens would be put on the features of a whole text.
#[test]
fn adapters_that_classify_tokens_are_refused() {
    let path = fixture("encoder/folders/bert");
    let tables = "head.linear = {}\nsubspace.low-rank = { rank = 2, targets = [\"attn.q\"] }\n";
    let place = crate::text_exports::trained(path.to_str().unwrap(), tables);
    let mut export = place.command("export", &[]);
    export.arg(place.run()).args(["--to", "peft", "--particle", "0", "--output"]).arg(place.path("out"));
    done(export);
    let config = place.path("out/adapter_config.json");
    let mut values: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    values["task_type"] = json!("TOKEN_CLS");
    std::fs::write(&config, values.to_string()).unwrap();
    let line = error_line(importing(&place, &[place.path("out")], &[]), 1);
    assert_has(&line, &["task_type = \"TOKEN_CLS\": its classifier reads every token"]);
}
