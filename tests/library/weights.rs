//! Checkpoints as files: single ones, shards with an index, and dictionaries of tensors in pickles, of which nothing is
//! executed (tests/fixtures/pickles, written by scripts/make_pickle_fixtures.py).

use std::path::{Path, PathBuf};

use crate::common::{Place, assert_has, bella, done, error_line, fixture, printed};
use bella::data::fields::{Fields, PIXELS};
use bella::model::archive::stored;
use bella::model::folder;
use bella::model::network::{Network, Weights};
use bella::model::recognition::identify::{Evidence, Fixed, Identified};
use tch::{Kind, Tensor};

fn family(name: &str) -> PathBuf {
    fixture("folders").join(name)
}

fn pickled(name: &str) -> PathBuf {
    fixture("pickles").join(name)
}

fn copy(place: &Place, family_name: &str, file: &str, to: &str) -> PathBuf {
    let bytes = std::fs::read(family(family_name).join(file)).unwrap();
    place.write(to, &bytes)
}

/// The features that a family's reference has, and those of a checkpoint.
#[track_caller]
fn same_features(path: &Path, fixed: &Fixed, name: &str) -> Identified {
    let found = folder::identify(path, fixed).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
    let tensors = Tensor::read_safetensors(family(name).join("reference.safetensors")).unwrap();
    let of = |wanted: &str| tensors.iter().find(|(known, _)| known == wanted).unwrap().1.shallow_clone();
    let native = tch::no_grad(|| {
        found.vit.forward(&Weights::frozen(&found.base), &Fields::of(PIXELS, of("pixels").unsqueeze(0)))
    });
    let expected = of("features");
    let difference = (native.squeeze_dim(0) - &expected).abs().max() / expected.abs().max();
    assert!(difference.double_value(&[]) < 1e-5, "{}: {difference}", path.display());
    found
}

#[test]
fn single_files_and_shards_are_read_with_the_config_beside_them() {
    let place = Place::new();
    copy(&place, "timm-eva02", "config.json", "config.json");
    let single = copy(&place, "timm-eva02", "model.safetensors", "eva.safetensors");
    let found = same_features(&single, &Fixed::default(), "timm-eva02");
    assert!(matches!(found.evidence, Evidence::Config { reference: None }));
    copy(&place, "timm-eva02", "reference.safetensors", "reference.safetensors");
    let found = same_features(&single, &Fixed::default(), "timm-eva02");
    assert!(matches!(found.evidence, Evidence::Config { reference: Some(_) }));

    let all = Tensor::read_safetensors(&single).unwrap();
    let (first, second) = all.split_at(all.len() / 2);
    let mut map = Vec::new();
    for (file, tensors) in [("a.safetensors", first), ("b.safetensors", second)] {
        Tensor::write_safetensors(tensors, place.path(file)).unwrap();
        map.extend(tensors.iter().map(|(name, _)| format!("\"{name}\": \"{file}\"")));
    }
    let index = format!("{{\"weight_map\": {{{}}}}}", map.join(", "));
    let index = place.write("model.safetensors.index.json", index.as_bytes());
    same_features(&index, &Fixed::default(), "timm-eva02");
    std::fs::remove_file(&single).unwrap();
    same_features(index.parent().unwrap(), &Fixed::default(), "timm-eva02");
}

#[test]
fn without_a_config_the_user_says_what_weights_do_not() {
    let place = Place::new();
    let eva = copy(&place, "timm-eva02", "model.safetensors", "eva.safetensors");
    // The small network has two heads, unlike the published one.
    let named =
        Fixed { architecture: Some("eva02_base_patch14_224.mim_in22k".into()), heads: Some(2), ..Fixed::default() };
    same_features(&eva, &named, "timm-eva02");
    let vit = copy(&place, "timm-vit", "model.safetensors", "vit.safetensors");
    let said = Fixed { heads: Some(2), activation: Some("gelu".parse().unwrap()), eps: Some(1e-6), architecture: None };
    same_features(&vit, &said, "timm-vit");
    let refused =
        |path: &Path, fixed: &Fixed| format!("{:#}", folder::identify(path, fixed).err().expect("must be refused"));
    assert_has(
        &refused(&eva, &said),
        &["eva.safetensors: it may have rotary positions", "set checkpoint.architecture"],
    );
    assert_has(&refused(&vit, &Fixed { eps: None, ..said }), &["has no config.json", "checkpoint.architecture"]);
    let wrong = Fixed { architecture: Some("vit_base_patch16_223".into()), ..Fixed::default() };
    assert_has(&refused(&vit, &wrong), &["`vit_base_patch16_223` is no architecture of timm", "vit_base_patch16_224"]);

    let output = bella(&["inspect", vit.to_str().unwrap(), "--architecture", "vit_base_patch16_224", "--heads", "2"]);
    assert_has(
        &done(output),
        &[
            "heads         2 of width 8 (given)",
            "activation    gelu (timm's architecture)",
            "features are not compared",
        ],
    );
}

#[test]
fn half_precision_weights_are_read() {
    let place = Place::new();
    copy(&place, "hf-vit", "config.json", "config.json");
    let path = copy(&place, "hf-vit", "model.safetensors", "model.safetensors");
    for (kind, bound) in [(Kind::Half, 2e-3), (Kind::BFloat16, 2e-2)] {
        let all = Tensor::read_safetensors(family("hf-vit").join("model.safetensors")).unwrap();
        let half: Vec<(String, Tensor)> = all.iter().map(|(name, t)| (name.clone(), t.to_kind(kind))).collect();
        Tensor::write_safetensors(&half, &path).unwrap();
        let found = folder::identify(place.path("").as_path(), &Fixed::default()).unwrap();
        assert_eq!(found.stored, kind);
        let weight = found.base.get("patch.weight").unwrap();
        let full = all.iter().find(|(name, _)| name.ends_with("projection.weight")).unwrap().1.flatten(1, -1);
        assert!((weight - full).abs().max().double_value(&[]) < bound);
    }
}

#[test]
fn tensors_in_a_pickle_have_their_values_whatever_their_strides() {
    let found = stored::read(&pickled("views.pth")).unwrap();
    let expected = Tensor::read_safetensors(pickled("views.safetensors")).unwrap();
    assert_eq!(found.len(), expected.len());
    for (name, tensor) in &expected {
        let own = &found.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1;
        assert!(own.to_kind(Kind::Float).equal(tensor), "{name}: {own:?}");
    }
    assert_eq!(found.iter().find(|(name, _)| name == "bfloat").unwrap().1.kind(), Kind::BFloat16);
}

/// A training script's dictionary of a network from parallel training, with the attributes that torch adds.
#[test]
fn a_pickled_network_is_a_checkpoint() {
    let place = Place::new();
    copy(&place, "timm-vit", "config.json", "config.json");
    let weights = std::fs::read(pickled("network.pth")).unwrap();
    let path = place.write("network.pth", &weights);
    same_features(&path, &Fixed::default(), "timm-vit");
    let folder = path.parent().unwrap();
    std::fs::rename(&path, folder.join("pytorch_model.bin")).unwrap();
    same_features(folder, &Fixed::default(), "timm-vit");
    assert_has(&printed(&bella(&["inspect", folder.to_str().unwrap()]).output().unwrap()), &["naming        timm"]);
    // Names of one that `torch.compile` and parallel training have wrapped.
    let names = stored::read(&pickled("compiled.pth")).unwrap().into_iter().map(|(name, _)| name);
    assert_eq!(names.collect::<Vec<_>>(), ["bias", "weight"]);
}

/// `timm.models._helpers.load_state_dict` takes the mean of the weights of both files. Under the names of other packages, neither is meant for sure.
#[test]
fn the_mean_of_weights_is_read_where_timm_reads_it() {
    let [(name, mean)] = &stored::read(&pickled("means_of_timm.pth")).unwrap()[..] else { panic!() };
    assert_eq!((name.as_str(), mean.double_value(&[0])), ("patch_embed.proj.weight", 2.0));
    let error = format!("{:#}", stored::read(&pickled("means.pth")).unwrap_err());
    let rule = "means.pth: has two sets of weights, `model` and their mean over the training, `model_ema`: save the one that you mean";
    assert!(error.contains(rule), "{error}");
}

#[test]
fn pickles_that_hold_anything_else_are_refused_in_one_line() {
    for (name, parts) in [
        ("calls.pth", &["nothing of it was executed", "torch.save(model.state_dict()", "names `posix.system`"][..]),
        ("legacy.pth", &["before version 1.6", "torch.load(file, weights_only=True)"]),
        ("not_flat.pth", &["`epoch` is no tensor: save the weights alone"]),
        ("list.pth", &["is no dictionary of tensors"]),
        ("deep.pth", &["`weight` is no tensor"]),
        ("quantised.pth", &["nothing of it was executed", "names `torch._utils._rebuild_qtensor`"]),
        ("float8.pth", &["nothing of it was executed", "names `torch"]),
        ("int8.pth", &["`patch_embed.proj.weight` is stored as Int8", "not quantised"]),
        ("expanded.pth", &["its tensors have 33554432 bytes in a file of", "it is not loaded"]),
    ] {
        let mut command =
            bella(&["inspect", pickled(name).to_str().unwrap(), "--architecture", "vit_base_patch16_224"]);
        command.current_dir(std::env::temp_dir());
        let line = error_line(command, 1);
        assert_has(&line, &[&[name], parts].concat());
    }
    assert!(!std::env::temp_dir().join("pickle_was_executed").exists());
}

/// Files under the names that their authors use, as they are downloaded, with timm's architecture; the features are timm's
/// (tests/fixtures/authors, written by scripts/make_author_fixtures.py).
#[test]
fn files_of_the_authors_are_read() {
    tch::set_num_threads(1);
    let folder = fixture("authors");
    let reference = Tensor::read_safetensors(folder.join("features.safetensors")).unwrap();
    let of = |wanted: &str| reference.iter().find(|(known, _)| known == wanted).unwrap().1.shallow_clone();
    for (name, architecture) in [
        ("dinov2", "vit_base_patch14_dinov2"),
        ("dinov2-registers", "vit_base_patch14_reg4_dinov2"),
        ("dinov2-giant", "vit_giant_patch14_dinov2"),
        ("dinov3", "vit_small_patch16_dinov3_qkvb"),
        ("dinov3-gated", "vit_small_plus_patch16_dinov3_qkvb"),
        ("deit3", "deit3_base_patch16_224"),
        ("mae", "vit_base_patch16_224"),
        ("beit", "beit_base_patch16_224"),
        ("eva02", "eva02_base_patch14_224"),
    ] {
        let fixed = Fixed { architecture: Some(architecture.into()), heads: Some(2), ..Fixed::default() };
        let found = folder::identify(&folder.join(format!("{name}.pth")), &fixed);
        let mut found = found.unwrap_or_else(|e| panic!("{name}: {e:#}"));
        // DINOv3 has no learnt positions, so its size is the architecture's until another is set.
        found.vit.resize(&mut found.base, 16).unwrap();
        let native = tch::no_grad(|| {
            found.vit.forward(&Weights::frozen(&found.base), &Fields::of(PIXELS, of("pixels").unsqueeze(0)))
        });
        let expected = of(name);
        assert_eq!(native.squeeze_dim(0).size(), expected.size(), "{name}");
        let difference = (native.squeeze_dim(0) - &expected).abs().max() / expected.abs().max();
        assert!(difference.double_value(&[]) < 1e-5, "{name}: {difference}");
    }
}
