//! What lies beside the weights of a fine-tuned copy: its config, the preparation of its images, its classifier and its head.

use super::*;
use crate::common::messages;

/// A copy of a folder with some tensors multiplied, and another config.
fn changed(place: &Place, from: &Path, name: &str, tensor: &str, config: impl Fn(&mut Value)) -> PathBuf {
    let to = place.path(name);
    copy(from, &to);
    let _ = std::fs::remove_file(to.join("reference.safetensors"));
    let weights = to.join("model.safetensors");
    let one = |(name, value): (String, Tensor)| if name == tensor { (name, value * 1.5) } else { (name, value) };
    let all: Vec<(String, Tensor)> = tensors(&weights).into_iter().map(one).collect();
    Tensor::write_safetensors(&all, weights).unwrap();
    let path = to.join("config.json");
    let mut values: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config(&mut values);
    std::fs::write(path, values.to_string()).unwrap();
    to
}

/// Writes a head for ten classes.
fn head(file: &Path, width: i64) {
    let ones = |shape: &[i64]| Tensor::ones(shape, tch::kind::FLOAT_CPU);
    Tensor::write_safetensors(&[("weight", ones(&[10, width])), ("bias", ones(&[10]))], file).unwrap();
}

/// Imports what is said to come in; the messages.
#[track_caller]
fn comes_in(command: crate::common::Bella) -> String {
    let output = { command }.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    messages(&output)
}

/// A head says whether features are normalised before it, and gives other logits with the others.
#[test]
fn a_head_of_other_features_is_refused() {
    let place = Place::new();
    let run = train(&place, "open-clip", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "peft", "--particle", "0"]));
    let head = place.path("out/head.safetensors");
    let set = ["--set", &format!("head={{zero-shot={{weights={head:?}}}}}")];
    let line = error_line(importing(&place, &[place.path("out")], &set), 1);
    assert_has(&line, &["head.safetensors: is a head of features that are not normalised", "use [head.linear]"]);
    // One of someone else does not say it.
    Tensor::write_safetensors(&tensors(&head), &head).unwrap();
    comes_in(importing(&place, &[place.path("out")], &set));
    let mut train = place.command("train", &["subspace.low-rank.rank=1"]);
    train.arg("--config").arg(place.path("x.toml")).args(set);
    done(train);
    let run = place.runs().into_iter().find(|other| *other != run).unwrap();
    done(export(&place, &run, "frozen", &["--to", "peft", "--particle", "0"]));
    let line = error_line(importing(&place, &[place.path("frozen")], &[]), 1);
    assert_has(&line, &["is a head of L2-normalised features", "name this file in head.zero-shot.weights"]);
}

/// A run that has another head in place of the checkpoint's classifier leaves out the same one in a copy, and no other.
#[test]
fn the_checkpoints_classifier_in_a_copy_is_no_trained_one() {
    let place = Place::new();
    config(&place, "hf-vit", "");
    let file = place.path("frozen.safetensors");
    head(&file, 16);
    let frozen = format!("head={{zero-shot={{weights={file:?}}}}}");
    let layer = "vit.encoder.layer.1.output.dense.weight";
    // The names are those of the classifier, which is not read.
    let names = |config: &mut Value| config["id2label"] = json!({ "0": "9", "1": "8", "2": "7" });
    let tuned = changed(&place, &family("hf-vit"), "tuned", layer, names);
    let other = changed(&place, &family("hf-vit"), "other", "classifier.weight", names);
    for more in [&["--set", &frozen][..], &["--set", &frozen, "--rank", "2"]] {
        comes_in(importing(&place, std::slice::from_ref(&tuned), more));
        let line = error_line(importing(&place, std::slice::from_ref(&other), more), 1);
        assert_has(&line, &["other: it has a trained classifier of its own", "head.zero-shot.weights"]);
    }
}

/// timm writes 1e-6 for the eps of weights of which transformers writes 1e-12.
#[test]
fn a_copy_in_the_form_of_another_package_comes_in() {
    let place = Place::new();
    config(&place, "timm-vit", "");
    let folder = changed(&place, &family("hf-vit"), "tuned", "", |_| ());
    head(&folder.join("head.safetensors"), 16);
    comes_in(importing(&place, std::slice::from_ref(&folder), &[]));
    let folder = changed(&place, &folder, "other", "", |config| config["layer_norm_eps"] = json!(0.1));
    assert_has(
        &error_line(importing(&place, &[folder], &[]), 1),
        &["its config says another epsilon", "0.1 and not 1e-6"],
    );
}

/// Folders of timm's towers in open_clip name no number of heads, and the config's counts for copies and their texts.
#[test]
fn heads_that_the_config_says_are_those_of_copies() {
    let place = Place::new();
    let names = "[\"a\", \"cat\", \"dog\", \"ship\", \"zebra\", \"frog\", \"truck\", \"maple\", \"7\", \"foot\"]";
    let text = format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint = {{ path = {:?}, normalize = \"clip\", heads = 2 }}\n\
         head.zero-shot = {{ templates = [\"a {{}}.\"], class_names = {names} }}\ndata.digits = {{}}\n",
        family("open-clip-siglip")
    );
    place.write("x.toml", text.as_bytes());
    let folder = place.path("tuned");
    copy(&family("open-clip-siglip"), &folder);
    let mut command = importing(&place, &[folder], &[]);
    command.env("BELLA_CACHE", place.path("cache"));
    comes_in(command);
}

/// A window that no text of the run fills changes nothing.
#[test]
fn a_copy_without_a_wide_window_comes_in() {
    use crate::text_exports::{described, import};
    let place = described("mistral", "head.label-words = {}\n");
    let folder =
        changed(&place, &fixture("language/mistral"), "tuned", "", |config| config["sliding_window"] = Value::Null);
    import(&place, &[folder], &[]);
}

/// The config's preparation counts, and another one of a copy is said.
#[test]
fn another_preparation_of_images_is_said() {
    let place = Place::new();
    config(&place, "hf-vit", "");
    let folder = changed(&place, &family("hf-vit"), "tuned", "vit.layernorm.weight", |_| ());
    head(&folder.join("head.safetensors"), 16);
    let quiet = comes_in(importing(&place, std::slice::from_ref(&folder), &[]));
    assert!(!quiet.contains("tuned asks for"), "{quiet}");
    let asked = json!({ "image_mean": [0.4, 0.4, 0.4], "image_std": [0.5, 0.5, 0.5], "resample": 3 });
    std::fs::write(folder.join("preprocessor_config.json"), asked.to_string()).unwrap();
    let said = comes_in(importing(&place, &[folder], &["--force"]));
    assert_has(&said, &["tuned asks for { mean = [0.4, 0.4, 0.4]", "tuned asks for bicubic", "the config's counts"]);
}
