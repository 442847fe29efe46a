//! Checkpoints as folders: the smallest random network of every family, saved by the package that publishes it, gives that
//! package's features and logits (tests/fixtures/folders, written by scripts/make_folder_fixtures.py).

mod common;

use std::path::{Path, PathBuf};

use bella::model::folder;
use bella::model::network::{Network, Weights};
use bella::model::vit::forward::Vit;
use bella::model::vit::identify::{Evidence, Fixed, Identified};
use common::{Place, assert_has, done, error_line, fixture, messages, printed};
use tch::{Kind, Tensor};

const FAMILIES: [&str; 18] = [
    "hf-clip",
    "hf-clip-both",
    "hf-deit-distilled",
    "hf-dinov2",
    "hf-dinov2-registers",
    "hf-dinov2-swiglu",
    "hf-dinov3",
    "hf-dinov3-gated",
    "hf-mae",
    "hf-siglip",
    "hf-vit",
    "open-clip",
    "timm-deit3",
    "timm-dinov2-registers",
    "timm-dinov3",
    "timm-mean",
    "timm-siglip",
    "timm-vit",
];

fn family(name: &str) -> PathBuf {
    fixture("folders").join(name)
}

/// A tensor of a family's reference.
fn reference(name: &str, tensor: &str) -> Option<Tensor> {
    let tensors = Tensor::read_safetensors(family(name).join("reference.safetensors")).unwrap();
    tensors.into_iter().find(|(known, _)| known == tensor).map(|(_, t)| t)
}

#[track_caller]
fn near(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    let largest = |t: &Tensor| t.abs().max().double_value(&[]);
    let difference = largest(&(found - expected)) / largest(expected);
    assert!(difference < 1e-5, "{what}: {difference:.2e}");
}

fn features(vit: &Vit, base: &bella::model::network::Parameters, pixels: &Tensor) -> Tensor {
    tch::no_grad(|| vit.forward(&Weights::frozen(base), &pixels.unsqueeze(0))).squeeze_dim(0)
}

#[test]
fn every_family_gives_the_features_and_logits_of_its_package() {
    for name in FAMILIES {
        let found = folder::identify(&family(name), Fixed::default()).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        let Identified { mut vit, mut base, head, evidence, .. } = found;
        let Evidence::Config { reference: Some(difference) } = evidence else { panic!("{name}: {evidence:?}") };
        assert!(difference.relative < 1e-5, "{name}: {difference:?}");
        let pixels = reference(name, "pixels").unwrap();
        let native = features(&vit, &base, &pixels);
        near(&native, &reference(name, "features").unwrap(), name);
        if let Some(logits) = reference(name, "logits") {
            let head = head.unwrap_or_else(|| panic!("{name}: no head"));
            near(&native.linear(&head.weight, Some(&head.bias)), &logits, &format!("{name}: logits"));
        }
        if let Some(pixels) = reference(name, "resized_pixels") {
            vit.resize(&mut base, pixels.size()[2]).unwrap();
            let resized = features(&vit, &base, &pixels);
            near(&resized, &reference(name, "resized_features").unwrap(), &format!("{name}: another size"));
        }
    }
}

/// Zero-shot heads are made of these.
#[test]
fn text_towers_give_the_features_of_their_package() {
    for name in ["hf-clip-both", "open-clip"] {
        let text = folder::identify_text(&family(name)).unwrap().unwrap_or_else(|| panic!("{name}: no text tower"));
        let tokens = reference(name, "tokens").unwrap();
        let found = tch::no_grad(|| text.tower.features(&text.weights.parameters, &tokens));
        near(&found, &reference(name, "text_features").unwrap(), name);
    }
    for name in ["hf-vit", "hf-siglip", "timm-vit"] {
        assert!(folder::identify_text(&family(name)).unwrap().is_none(), "{name}");
    }
    let place = Place::new();
    let without = |at: &Path| text(at, "open_clip_config.json", "\"heads\": 3", "\"heads\": 0");
    let error = folder::identify_text(&changed(&place, "open-clip", without)).err().unwrap().to_string();
    assert!(error.ends_with("text tower: 0 heads do not divide its width"), "{error}");
}

/// Eight lines: what a user writes who has downloaded a folder.
fn config(place: &Place, name: &str, more: &str) -> PathBuf {
    let text = format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint.path = {:?}\nhead.linear = {{}}\ndata.digits.subset = {{ train = 24, test = 20 }}\n\
         optimizer.adamw.lr = 1e-3\ntrain = {{ epochs = 1, batch_size = 8 }}\n{more}\n",
        family(name)
    );
    place.write("x.toml", text.as_bytes())
}

fn train(place: &Place, config: &Path, sets: &[&str]) -> assert_cmd::Command {
    let mut command = place.command("train", sets);
    command.arg("--config").arg(config);
    command
}

#[test]
fn particles_of_folders_train_and_are_attacked_in_every_subspace() {
    let low_rank =
        "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }";
    for (name, subspace) in [
        ("hf-dinov2-registers", low_rank),
        ("hf-dinov3-gated", "subspace.low-rank = { rank = 2, targets = [\"mlp.gate\", \"mlp.proj\"] }"),
        ("hf-dinov3", "subspace.full = {}"),
        ("hf-siglip", "subspace.full = {}"),
        ("timm-deit3", low_rank),
    ] {
        let place = Place::new();
        let more = format!("{subspace}\nmethod.svgd = {{ particles = 2, gamma = 0.01 }}");
        done(train(&place, &config(&place, name, &more), &["checkpoint.normalize=imagenet"]));
        let mut attack = place.command("eval", &[]);
        attack.args(["--attack", "fgsm", "--epsilon", "0.01"]);
        done(attack);
    }
}

/// The folder says how its images are normalised, so the config need not.
#[test]
fn normalisation_and_interpolation_come_from_the_folder() {
    let place = Place::new();
    let more = "subspace.low-rank.rank = 2\nmethod.map = {}";
    let config = config(&place, "hf-vit", more);
    done(train(&place, &config, &[]));
    let resolved = std::fs::read_to_string(place.run().join("config.toml")).unwrap();
    assert_has(&resolved, &["mean = [0.5, 0.5, 0.5]", "interpolation = \"bilinear\""]);
}

#[test]
fn inspect_says_what_a_folder_is_and_how_that_was_checked() {
    let output = common::bella(&["inspect", family("hf-dinov3-gated").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &["naming        transformers", "gated MLP", "rotary positions", "4 tokens in front", "reference     relative"],
    );
    let _ = messages(&output);
}

/// A copy of a folder, changed.
fn changed(place: &Place, name: &str, change: impl Fn(&Path)) -> PathBuf {
    let copy = place.path("copy");
    let _ = std::fs::remove_dir_all(&copy);
    std::fs::create_dir_all(&copy).unwrap();
    for file in std::fs::read_dir(family(name)).unwrap().flatten() {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    change(&copy);
    copy
}

/// Rewrites the weights of a folder.
fn tensors(folder: &Path, change: impl Fn(&mut Vec<(String, Tensor)>)) {
    let path = folder.join("model.safetensors");
    let mut all = Tensor::read_safetensors(&path).unwrap();
    change(&mut all);
    Tensor::write_safetensors(&all, &path).unwrap();
}

fn text(folder: &Path, name: &str, from: &str, to: &str) {
    let path = folder.join(name);
    let old = std::fs::read_to_string(&path).unwrap();
    assert!(old.contains(from), "{old}");
    std::fs::write(path, old.replace(from, to)).unwrap();
}

#[test]
fn folders_that_do_not_fit_are_refused_in_one_line() {
    let place = Place::new();
    type Change = Box<dyn Fn(&Path)>;
    let remove = |name: &'static str| -> Change { Box::new(move |at| std::fs::remove_file(at.join(name)).unwrap()) };
    let cases: Vec<(Change, &[&str])> = vec![
        (remove("config.json"), &["has no config.json", "as it was downloaded"]),
        (remove("model.safetensors"), &["has no model.safetensors", "put the publisher's model.safetensors there"]),
        (
            Box::new(|at| std::fs::rename(at.join("model.safetensors"), at.join("pytorch_model.bin")).unwrap()),
            &["pytorch_model.bin is a pickle", "safe_serialization=True"],
        ),
        (
            Box::new(|at| {
                std::fs::remove_file(at.join("model.safetensors")).unwrap();
                let index = "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}";
                std::fs::write(at.join("model.safetensors.index.json"), index).unwrap();
            }),
            &["names model-00001-of-00002.safetensors, which is missing"],
        ),
        (
            Box::new(|at| tensors(at, |all| all.retain(|(name, _)| !name.contains("layer.1.output.dense.bias")))),
            &["it lacks the parameter that bella calls blocks.1.mlp.proj.bias"],
        ),
        (
            Box::new(|at| {
                tensors(at, |all| all.push(("vit.extra.weight".into(), Tensor::zeros([1], tch::kind::FLOAT_CPU))))
            }),
            &["it also has vit.extra.weight"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"model_type\": \"vit\"", "\"model_type\": \"swin\"")),
            &["model_type = \"swin\" is none that bella reads; known: vit, deit"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"hidden_size\": 16", "\"hidden_size\": 32")),
            &["config.json says hidden_size = 32, but the weights have 16"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu6\"")),
            &["hidden_act = \"relu6\" is none that bella computes"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"num_attention_heads\": 2", "\"num_attention_heads\": 4")),
            &["the native features differ from it by", "reference.safetensors"],
        ),
        (
            Box::new(|at| tensors(at, |all| all[0].1 = all[0].1.to_kind(Kind::Int8))),
            &["is stored as Int8", "not quantised"],
        ),
        (
            Box::new(|at| std::fs::write(at.join("model.safetensors"), b"x").unwrap()),
            &["not a readable safetensors file"],
        ),
    ];
    let classifier = |at: &Path| {
        tensors(at, |all| all.push(("classifier.weight".into(), Tensor::zeros([3, 16], tch::kind::FLOAT_CPU))));
    };
    let folder = changed(&place, "hf-siglip", classifier);
    let line = error_line(common::bella(&["inspect", folder.to_str().unwrap()]), 1);
    assert_has(&line, &["the classifier of a siglip_vision_model", "[head.linear]"]);
    for (change, parts) in cases {
        let folder = changed(&place, "hf-vit", change);
        let line = error_line(common::bella(&["inspect", folder.to_str().unwrap()]), 1);
        assert_has(&line, parts);
    }
}
