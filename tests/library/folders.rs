//! Checkpoints as folders: the smallest random network of every family, saved by the package that publishes it, gives that
//! package's features and logits (tests/fixtures/folders, written by scripts/make_folder_fixtures.py).

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{Place, alike, assert_has, done, error_line, fixture, printed};
use bella::data::fields::{Fields, PIXELS};
use bella::experiment::Experiment;
use bella::model::folder;
use bella::model::network::low_rank::LowRank;
use bella::model::network::{Network, Parameters, Weights};
use bella::model::recognition::identify::{Evidence, Fixed, Identified};
use bella::model::vit::forward::Vit;
use bella::schema::Tree;
use tch::{Kind, Tensor};

/// Returns the name of every family: that of its folder of fixtures.
fn families() -> Vec<String> {
    let entries = std::fs::read_dir(fixture("folders")).unwrap();
    let mut all: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    assert!(all.len() >= 37, "{all:?}");
    all
}

fn family(name: &str) -> PathBuf {
    fixture("folders").join(name)
}

/// The settings of a test besides the folder: open_clip's configs of timm's towers name an architecture, and the small ones here
/// have other heads than the published ones.
fn fixed(name: &str) -> Fixed {
    let is_small = ["open-clip-eva02", "open-clip-siglip", "open-clip-timm", "open-clip-timm-root"].contains(&name);
    Fixed { heads: is_small.then_some(2), ..Fixed::default() }
}

fn identified(name: &str) -> Identified {
    tch::set_num_threads(1);
    folder::identify(&family(name), &fixed(name)).unwrap_or_else(|e| panic!("{name}: {e:#}"))
}

/// A tensor of a family's reference.
fn reference(name: &str, tensor: &str) -> Option<Tensor> {
    let tensors = Tensor::read_safetensors(family(name).join("reference.safetensors")).unwrap();
    tensors.into_iter().find(|(known, _)| known == tensor).map(|(_, t)| t)
}

fn features(vit: &Vit, base: &Parameters, pixels: &Tensor) -> Tensor {
    tch::no_grad(|| vit.forward(&Weights::frozen(base), &Fields::of(PIXELS, pixels.unsqueeze(0)))).squeeze_dim(0)
}

#[test]
fn every_family_gives_the_features_and_logits_of_its_package() {
    for name in &families() {
        let Identified { mut vit, mut base, head, evidence, .. } = identified(name);
        let Evidence::Config { reference: Some(difference) } = evidence else { panic!("{name}: {evidence:?}") };
        assert!(difference.relative < 1e-5, "{name}: {difference:?}");
        let pixels = reference(name, "pixels").unwrap();
        let native = features(&vit, &base, &pixels);
        alike(&native, &reference(name, "features").unwrap(), name);
        if let Some(logits) = reference(name, "logits") {
            let head = head.unwrap_or_else(|| panic!("{name}: no head"));
            alike(&native.linear(&head.weight, Some(&head.bias)), &logits, &format!("{name}: logits"));
        }
        if let Some(pixels) = reference(name, "resized_pixels") {
            vit.resize(&mut base, pixels.size()[2]).unwrap();
            let resized = features(&vit, &base, &pixels);
            alike(&resized, &reference(name, "resized_features").unwrap(), &format!("{name}: another size"));
        }
    }
}

/// The package's gradients of a weighted sum of the features by low-rank updates of two layers.
#[test]
fn gradients_are_those_of_the_package() {
    for name in ["hf-beit", "timm-beit", "timm-eva02"] {
        let Identified { vit, base, .. } = identified(name);
        let tensors = Tensor::read_safetensors(family(name).join("reference.safetensors")).unwrap();
        let of = |wanted: &str| tensors.iter().find(|(known, _)| known == wanted).unwrap().1.shallow_clone();
        let layers: Vec<&str> = tensors.iter().filter_map(|(name, _)| name.strip_suffix(".A.gradient")).collect();
        assert_eq!(layers.len(), 2, "{name}");
        let mut weights = Weights::frozen(&base);
        let mut leaves = Vec::new();
        for layer in &layers {
            let [a, b] = ["A", "B"].map(|part| of(&format!("{layer}.{part}")).unsqueeze(0).set_requires_grad(true));
            leaves.extend([(format!("{layer}.A"), a.shallow_clone()), (format!("{layer}.B"), b.shallow_clone())]);
            weights.update(layer, LowRank { a, b, scale: 0.5, magnitude: None });
        }
        let features = vit.forward(&weights, &Fields::of(PIXELS, of("pixels").unsqueeze(0))).squeeze_dim(0);
        (features * of("coefficients")).sum(Kind::Float).backward();
        for (leaf, tensor) in leaves {
            alike(&tensor.grad().squeeze_dim(0), &of(&format!("{leaf}.gradient")), &format!("{name}: {leaf}"));
        }
    }
}

/// Two particles of every family, in every subspace: each has the features that it has alone, and a gradient by all that is
/// trained.
#[test]
fn particles_of_every_family_train_in_low_rank_and_full() {
    let low_rank = "low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }";
    for name in &families() {
        for subspace in [low_rank, "full = {}"] {
            let heads = fixed(name).heads.map_or(String::new(), |heads| format!("checkpoint.heads = {heads}\n"));
            let more = format!("{heads}subspace.{subspace}\nmethod.svgd = {{ particles = 2, gamma = 0.01 }}");
            let text = experiment(name, &more) + "checkpoint.normalize = \"imagenet\"\n";
            let (model, subspace) = common::model(&text, Kind::Float);
            tch::manual_seed(1);
            let start = subspace.initial(1, 0).unwrap();
            let theta = start.unsqueeze(0) + Tensor::randn([2, start.size()[0]], tch::kind::FLOAT_CPU) * 0.02;
            let leaves = subspace.layout().leaves(&theta, Kind::Float, true);
            let pixels = Fields::of(PIXELS, reference(name, "pixels").unwrap().unsqueeze(0));
            let logits = |leaves: &[Tensor]| model.logits(&subspace.weights(&model.base, leaves), &pixels);
            let both = logits(&leaves);
            for particle in 0..2 {
                let own: Vec<Tensor> = leaves.iter().map(|leaf| leaf.detach().narrow(0, particle, 1)).collect();
                let what = format!("{name}: particle {particle} alone");
                alike(&both.detach().narrow(0, particle, 1), &tch::no_grad(|| logits(&own)), &what);
            }
            both.square().sum(Kind::Float).backward();
            for (leaf, column) in leaves.iter().zip(&subspace.layout().columns) {
                let largest = leaf.grad().abs().max().double_value(&[]);
                assert!(largest.is_finite() && largest > 0.0, "{name}: {}: {largest}", column.name);
            }
        }
    }
}

/// Zero-shot heads are made of these.
#[test]
fn text_towers_give_the_features_of_their_package() {
    let families =
        ["hf-clip-both", "open-clip", "open-clip-eva02", "open-clip-siglip", "open-clip-timm", "open-clip-timm-root"];
    for name in families.into_iter().chain(["hf-siglip-both", "hf-siglip2-both"]) {
        let text = folder::identify_text(&family(name), &fixed(name)).unwrap();
        let text = text.unwrap_or_else(|| panic!("{name}: no text tower"));
        let tokens = reference(name, "tokens").unwrap();
        let found = tch::no_grad(|| text.tower.features(&text.weights.parameters, &tokens));
        alike(&found, &reference(name, "text_features").unwrap(), name);
    }
    for name in ["hf-vit", "hf-siglip", "timm-vit"] {
        assert!(folder::identify_text(&family(name), &fixed(name)).unwrap().is_none(), "{name}");
    }
    let place = Place::new();
    let without = |at: &Path| text(at, "open_clip_config.json", "\"heads\": 3", "\"heads\": 5");
    let error = folder::identify_text(&changed(&place, "open-clip", without), &Fixed::default());
    let error = error.err().unwrap().to_string();
    assert!(error.ends_with("text tower: 5 heads do not divide its width"), "{error}");
}

/// Eight lines: what a user writes who has downloaded a folder.
fn config(place: &Place, name: &str, more: &str) -> PathBuf {
    place.write("x.toml", experiment(name, more).as_bytes())
}

fn experiment(name: &str, more: &str) -> String {
    format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint.path = {:?}\nhead.linear = {{}}\ndata.digits.subset = {{ train = 24, test = 20 }}\n\
         optimizer.adamw.lr = 1e-3\ntrain = {{ epochs = 1, batch_size = 8 }}\n{more}\n",
        family(name)
    )
}

fn train(place: &Place, config: &Path, sets: &[&str]) -> assert_cmd::Command {
    let mut command = place.command("train", sets);
    command.arg("--config").arg(config);
    command
}

const LOW_RANK: &str =
    "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }";

#[test]
fn particles_of_folders_train_and_are_attacked_in_low_rank() {
    trained_and_attacked(&[
        ("hf-dinov2-registers", LOW_RANK),
        ("hf-dinov3-gated", "subspace.low-rank = { rank = 2, targets = [\"mlp.gate\", \"mlp.proj\"] }"),
        ("timm-eva02", LOW_RANK),
    ]);
}

#[test]
fn particles_of_folders_train_and_are_attacked_in_full() {
    trained_and_attacked(&[
        ("hf-dinov3", "subspace.full = {}"),
        ("hf-siglip", "subspace.full = {}"),
        ("hf-beit", "subspace.full = {}"),
    ]);
}

fn trained_and_attacked(runs: &[(&str, &str)]) {
    for (name, subspace) in runs {
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

/// A config that prepares images in another way than the folder asks for is told so.
#[test]
fn preparations_that_differ_from_the_folders_are_named() {
    use bella::data::Resize;
    let place = Place::new();
    let deviations = |folder: &Path, more: &str, resize: Resize| {
        let start =
            format!("name = \"x\"\nseed = 1\ncheckpoint.path = {folder:?}\nhead.linear = {{}}\ndata.digits = {{}}\n");
        let tree = Tree::parse("x.toml", &(start + more)).unwrap();
        Experiment::read(&tree).unwrap_or_else(|e| panic!("{e}")).checkpoint.deviations(Some(resize))
    };
    let vit = family("hf-vit");
    assert!(deviations(&vit, "", Resize::Stretch).is_empty());
    let other = "checkpoint.normalize = \"imagenet\"\ncheckpoint.interpolation = \"bicubic\"";
    let all = deviations(&vit, other, Resize::ShorterSideCrop);
    assert_eq!(all.len(), 3, "{all:?}");
    assert_has(&all[0], &["checkpoint.normalize is { mean = [0.485", "asks for { mean = [0.5, 0.5, 0.5]"]);
    assert_has(&all[1], &["checkpoint.interpolation is bicubic", "asks for bilinear"]);
    assert_has(&all[2], &["resize is shorter-side-crop", "asks for stretch"]);
    // DINOv2's, CLIP's of older versions, ViT's of older versions, DeiT's.
    for (json, resize) in [
        ("{\"size\": {\"shortest_edge\": 256}, \"do_center_crop\": true}", Resize::ShorterSideCrop),
        (
            "{\"feature_extractor_type\": \"CLIPFeatureExtractor\", \"size\": 224, \"do_center_crop\": true, \"crop_size\": 224}",
            Resize::ShorterSideCrop,
        ),
        ("{\"size\": 224}", Resize::Stretch),
        ("{\"size\": {\"height\": 256, \"width\": 256}, \"do_center_crop\": true}", Resize::Stretch),
    ] {
        let folder = changed(&place, "hf-vit", |at| std::fs::write(at.join("preprocessor_config.json"), json).unwrap());
        let other = if resize == Resize::Stretch { Resize::ShorterSideCrop } else { Resize::Stretch };
        assert!(deviations(&folder, "", resize).is_empty(), "{json}");
        assert_eq!(deviations(&folder, "", other).len(), 1, "{json}");
    }
    let json = "{\"size\": {\"shortest_edge\": 256}, \"do_center_crop\": true, \"crop_size\": 224}";
    let folder = changed(&place, "hf-vit", |at| std::fs::write(at.join("preprocessor_config.json"), json).unwrap());
    let all = deviations(&folder, "checkpoint.crop_pct = 0.9", Resize::ShorterSideCrop);
    assert_eq!(all, ["checkpoint.crop_pct is 0.9, but the checkpoint's folder asks for 0.875: the config's counts"]);
    assert!(deviations(&folder, "", Resize::ShorterSideCrop).is_empty());
}

/// A filter, a size or a step that bella does not compute is not replaced by another one without a word; the user's own word
/// counts.
#[test]
fn preparations_that_bella_does_not_compute_are_refused() {
    let place = Place::new();
    let check = |config: &Path| common::bella(&["check", config.to_str().unwrap()]);
    let of = |family: &str, file: &str, json: &str, more: &str| {
        let folder = changed(&place, family, |at| std::fs::write(at.join(file), json).unwrap());
        let text = format!(
            "name = \"x\"\nseed = 1\ncheckpoint.path = {folder:?}\nhead.linear = {{}}\ndata.digits = {{}}\n\
             optimizer.adamw.lr = 1e-3\nsubspace.low-rank.rank = 2\nmethod.map = {{}}\n\
             train = {{ epochs = 1, batch_size = 8 }}\n{more}\n"
        );
        place.write("x.toml", text.as_bytes())
    };
    let vit = |json: &str, more: &str| of("hf-vit", "preprocessor_config.json", json, more);
    let lanczos = "{\"size\": 16, \"resample\": 1}";
    let line = error_line(check(&vit(lanczos, "")), 2);
    assert_has(&line, &["checkpoint.interpolation", "preprocessor_config.json: resample = 1: bella resizes by"]);
    done(check(&vit(lanczos, "checkpoint.interpolation = \"bicubic\"")));
    let odd = vit("{\"size\": 16, \"do_flip_channel_order\": true}", "");
    assert_has(&error_line(check(&odd), 2), &["do_flip_channel_order = true: a key that bella does not know"]);
    let border = "{\"architecture\": \"vit_base_patch16_224\", \"pretrained_cfg\": {\"crop_mode\": \"border\"}}";
    let line = error_line(check(&of("timm-vit", "config.json", border, "")), 2);
    assert_has(&line, &["checkpoint.crop_pct", "config.json: crop_mode = \"border\": bella takes the centre"]);
    let output = common::bella(&[
        "inspect",
        changed(&place, "hf-vit", |at| {
            std::fs::write(at.join("preprocessor_config.json"), lanczos).unwrap();
        })
        .to_str()
        .unwrap(),
    ])
    .output()
    .unwrap();
    assert_has(&printed(&output), &["preparation   16 x 16 px, stretch", "refused: ", "resample = 1"]);
}

/// A damaged file may ask for images that no memory holds.
#[test]
fn images_of_impossible_size_are_refused() {
    let place = Place::new();
    for size in [1i64 << 30, 1 << 62, 8192] {
        let json = format!("{{\"size\": {{\"height\": {size}, \"width\": {size}}}}}");
        let folder =
            changed(&place, "hf-vit", |at| std::fs::write(at.join("preprocessor_config.json"), &json).unwrap());
        let config = format!(
            "name = \"x\"\nseed = 1\ncheckpoint.path = {folder:?}\ncheckpoint.normalize = \"clip\"\nhead.linear = {{}}\ndata.digits = {{}}\n"
        );
        let config = place.write("x.toml", config.as_bytes());
        let output = common::bella(&["eval", "-c", config.to_str().unwrap(), "--device", "cpu"]).output().unwrap();
        let (said, rule) =
            (common::messages(&output), format!("preprocessor_config.json asks for images of {size} pixels"));
        assert!(output.status.code() == Some(1) && said.contains(&rule), "{said}");
    }
}

/// A classifier is not taken for one of other classes, or of the same ones in another order, without a word.
#[test]
fn classes_in_another_order_are_refused() {
    let place = Place::new();
    let folder = changed(&place, "hf-vit", |at| {
        let path = at.join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["id2label"] = serde_json::json!({ "0": "Fox", "1": "Bear", "2": "polar bear" });
        std::fs::write(path, config.to_string()).unwrap();
    });
    for class in ["bear", "fox", "polar_bear"] {
        let image = place.write(&format!("animals/{class}/a.png"), &[]);
        image::RgbImage::from_pixel(12, 10, image::Rgb([90, 128, 200])).save(image).unwrap();
    }
    let text = format!(
        "name = \"x\"\nseed = 1\ncheckpoint = {{ path = {folder:?}, normalize = \"imagenet\" }}\nhead.checkpoint = {{}}\n\
         data.image-folder = {{ root = {:?}, train = \".\", test = \".\" }}\n",
        place.path("animals")
    );
    let config = place.write("x.toml", text.as_bytes());
    let eval = |more: &str| {
        let mut command = place.command("eval", &[]);
        command.arg("--config").arg(&config).args(["--set", more]);
        command
    };
    let line = error_line(eval("seed=1"), 1);
    assert_has(&line, &["classes in another order: set classes = [\"fox\", \"bear\", \"polar_bear\"]"]);
    let output = common::bella(&["inspect", folder.to_str().unwrap()]).output().unwrap();
    assert_has(&printed(&output), &["classes       Fox, Bear, polar bear"]);
    done(eval("data.image-folder.classes=[\"fox\", \"bear\", \"polar_bear\"]"));
}

/// What transformers 4 wrote into config.json, where version 5 has other keys.
#[test]
fn folders_of_transformers_4_are_read() {
    let place = Place::new();
    for name in families().iter().filter(|name| name.starts_with("hf-")) {
        let folder = changed(&place, name, |at| {
            let path = at.join("config.json");
            let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let table = config.as_object_mut().unwrap();
            table.remove("dtype");
            table.insert("torch_dtype".into(), "float32".into());
            table.insert("transformers_version".into(), "4.40.1".into());
            table.insert("_name_or_path".into(), "somebody/something".into());
            for tower in ["text_config", "vision_config"] {
                let Some(inner) = table.get_mut(tower).and_then(|inner| inner.as_object_mut()) else { continue };
                // Version 4 wrote the settings of text generation there, too.
                inner.insert("top_p".into(), 1.0.into());
                inner.insert("torchscript".into(), false.into());
            }
            std::fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
        });
        let found = folder::identify(&folder, &Fixed::default()).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert!(matches!(found.evidence, Evidence::Config { reference: Some(_) }), "{name}: {:?}", found.evidence);
    }
}

#[test]
fn inspect_says_what_a_folder_is_and_how_that_was_checked() {
    let output = common::bella(&["inspect", family("hf-dinov3-gated").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &[
            "naming        transformers",
            "heads         2 of width 8 (the config beside the weights)",
            "positions     rotary, centred, base 100 (the config beside the weights)",
            "readout       class (names and shapes of the weights)",
            "gated MLP, keys without bias, 4 tokens in front",
            "reference     features agree with it: relative",
        ],
    );
    let output = common::bella(&["inspect", family("timm-eva02-clip").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &["eps 1e-6 (timm's architecture)", "learnt + rotary, indexed, base 10000, scaled to 16 (timm's architecture)"],
    );
    let output = common::bella(&["inspect", family("timm-mean").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &["preparation   16 x 16 px, shorter-side-crop, crop_pct 0.875, bicubic, { mean = [0.5, 0.5, 0.5]"],
    );
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

/// Why a folder is refused.
fn refusal(folder: &Path) -> String {
    format!("{:#}", folder::identify(folder, &Fixed::default()).err().expect("it is refused"))
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

/// Takes the config away and puts these tensors in place of the weights.
fn looks(names: &'static [&'static str]) -> Box<dyn Fn(&Path)> {
    Box::new(move |at| {
        std::fs::remove_file(at.join("config.json")).unwrap();
        tensors(at, |all| {
            let kind = |name: &str| if name.contains("tracked") { Kind::Int64 } else { Kind::Float };
            *all = names
                .iter()
                .map(|name| (name.to_string(), Tensor::zeros([1], (kind(name), tch::Device::Cpu))))
                .collect();
        });
    })
}

/// timm's architecture is held against the weights, so that heads of another network are not taken for theirs.
#[test]
fn an_architecture_of_other_sizes_is_refused() {
    let fixed = |name: &str| Fixed { architecture: Some(name.into()), ..Fixed::default() };
    let place = Place::new();
    let without = changed(&place, "timm-vit", |at| std::fs::remove_file(at.join("config.json")).unwrap());
    let error = folder::identify(&without, &fixed("vit_base_patch16_224")).err().unwrap();
    assert_has(&format!("{error:#}"), &["width 768 belongs to the architecture vit_base_patch16_224", "have 16"]);
    let deeper = changed(&place, "timm-vit", |at| text(at, "config.json", "\"depth\": 2", "\"depth\": 12"));
    assert_has(&refusal(&deeper), &["blocks 12 belongs to the architecture vit_base_patch16_224", "have 2"]);
}

#[test]
fn folders_that_do_not_fit_are_refused_in_one_line() {
    let place = Place::new();
    type Change = Box<dyn Fn(&Path)>;
    let remove = |name: &'static str| -> Change { Box::new(move |at| std::fs::remove_file(at.join(name)).unwrap()) };
    let cases: Vec<(Change, &[&str])> = vec![
        (
            remove("config.json"),
            &["has no config.json", "of width 16, 2 blocks and patch 4", "checkpoint.architecture", "checkpoint.eps"],
        ),
        (remove("model.safetensors"), &["has no model.safetensors", "put the publisher's model.safetensors there"]),
        (
            Box::new(|at| std::fs::rename(at.join("model.safetensors"), at.join("best.safetensors")).unwrap()),
            &["has no model.safetensors", "best.safetensors is what you mean, set checkpoint.path to it"],
        ),
        (
            Box::new(|at| {
                std::fs::remove_file(at.join("model.safetensors")).unwrap();
                std::fs::write(at.join("adapter_config.json"), "{}").unwrap();
            }),
            &["is a PEFT adapter, which `bella import` reads"],
        ),
        (
            looks(&["layer1.0.conv1.weight"]),
            &["has no config.json", "look like a ResNet's", "export_torchscript.py timm"],
        ),
        (looks(&["layers.0.blocks.0.attn.qkv.weight"]), &["look like a Swin transformer's", "kind = \"module\""]),
        (looks(&["stages.0.blocks.0.conv_dw.weight"]), &["look like a ConvNeXt's", "kind = \"module\""]),
        (
            looks(&["conv.weight", "bn.running_mean", "bn.num_batches_tracked"]),
            &["look like a convolutional network's"],
        ),
        (looks(&["base_model.model.q.lora_A.weight"]), &["look like a PEFT adapter", "`bella import`"]),
        (looks(&["model.embed_tokens.weight"]), &["look like a language model's"]),
        (looks(&["encoder.weight"]), &["its parameters are encoder.weight", "export_torchscript.py"]),
        (
            Box::new(|at| std::fs::rename(at.join("model.safetensors"), at.join("pytorch_model.bin")).unwrap()),
            &["pytorch_model.bin: is no file of tensors that torch wrote"],
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
            Box::new(|at| {
                std::fs::rename(at.join("model.safetensors"), at.join("a.safetensors")).unwrap();
                std::fs::write(at.join("model.safetensors.index.json"), "{\"weight_map\": {\"x\": \"a.safetensors\"}}")
                    .unwrap();
            }),
            &["a.safetensors: has `classifier.bias`, against what", "model.safetensors.index.json says"],
        ),
        (
            Box::new(|at| {
                std::fs::remove_file(at.join("model.safetensors")).unwrap();
                let index = "{\"weight_map\": {\"x\": \"../a.safetensors\"}}";
                std::fs::write(at.join("model.safetensors.index.json"), index).unwrap();
            }),
            &["names ../a.safetensors, which is no file beside it"],
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
            &["is stored as I8", "not quantised"],
        ),
        (
            // The same bytes, declared as numbers of eight bits.
            Box::new(|at| {
                tensors(at, |all| all.iter_mut().for_each(|(_, t)| *t = t.to_kind(Kind::Uint8)));
                let bytes = std::fs::read(at.join("model.safetensors")).unwrap();
                let text = unsafe { String::from_utf8_unchecked(bytes) }.replace("\"U8\"", "\"F8\"");
                std::fs::write(at.join("model.safetensors"), text.as_bytes()).unwrap();
            }),
            &["is stored as F8", "unquantised weights"],
        ),
        (
            Box::new(|at| {
                tensors(at, |all| {
                    let (_, position) = all.iter_mut().find(|(name, _)| name.ends_with("position_embeddings")).unwrap();
                    *position = position.narrow(2, 0, 8).contiguous();
                })
            }),
            &["its position has shape [17, 8], not [17, 16]"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"patch_size\": 4", "\"patch_size\": [4, 8]")),
            &["patch_size: must be the side of a square"],
        ),
        (
            Box::new(|at| std::fs::write(at.join("model.safetensors"), b"x").unwrap()),
            &["not a readable safetensors file"],
        ),
    ];
    let classifier = |at: &Path| {
        tensors(at, |all| {
            all.push(("classifier.weight".into(), Tensor::zeros([3, 16], tch::kind::FLOAT_CPU)));
            all.push(("classifier.bias".into(), Tensor::zeros([3], tch::kind::FLOAT_CPU)));
        });
    };
    let folder = changed(&place, "hf-siglip", classifier);
    let line = error_line(common::bella(&["inspect", folder.to_str().unwrap()]), 1);
    assert_has(&line, &["the classifier of a siglip_vision_model", "[head.linear]"]);
    for (change, parts) in cases {
        let folder = changed(&place, "hf-vit", change);
        let line = refusal(&folder);
        assert_has(&line, parts);
        assert!(!line.contains('\n'), "{line}");
    }
}

#[test]
fn files_of_a_folder_that_cannot_be_read_are_no_missing_ones() {
    let place = Place::new();
    for file in std::fs::read_dir(family("hf-vit")).unwrap().map(|entry| entry.unwrap().path()) {
        place.write(&format!("vit/{}", file.file_name().unwrap().display()), &std::fs::read(&file).unwrap());
    }
    let folder = place.path("vit");
    let inspect = || common::bella(&["inspect", folder.to_str().unwrap()]);
    done(inspect());
    place.write("vit/preprocessor_config.json", b"{");
    assert_has(&error_line(inspect(), 1), &["vit/preprocessor_config.json: no JSON"]);
    for name in ["preprocessor_config.json", "config.json"] {
        let file = folder.join(name);
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("nowhere", &file).unwrap();
        assert_has(&error_line(inspect(), 1), &[&format!("vit/{name}: cannot read"), "No such file"]);
    }
}
