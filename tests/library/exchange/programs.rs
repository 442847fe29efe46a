//! Posteriors leave as one program: a TorchScript archive or an ONNX graph.

use super::*;

#[test]
fn a_posterior_leaves_as_one_archive() {
    let full = "subspace.full = {}";
    let cases = [("timm-vit", ALL_LAYERS), ("hf-siglip", full), ("hf-dinov3", full)];
    cases.into_iter().for_each(|(name, subspace)| archive_of_all(name, subspace));
}

#[test]
fn a_posterior_with_rotary_or_relative_positions_leaves_as_one_archive() {
    archive_of_all("timm-eva02", "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"mlp.gate\"] }");
    archive_of_all("timm-beit", "subspace.full = {}");
}

/// One archive with all particles gives their logits for any number of images, the mean probabilities and the mutual information.
fn archive_of_all(name: &str, subspace: &str) {
    let place = Place::new();
    let run = train(&place, name, subspace);
    done(export(&place, &run, "out", &["--to", "torchscript"]));
    let (expected, archive) = (place.path("out/expected.safetensors"), place.path("out/posterior.pt"));
    let (pixels, logits) = (tensor(&expected, "pixels"), tensor(&expected, "logits"));
    let parts = outputs(&archive, &pixels);
    alike(&parts[0], &logits, name);
    assert_eq!((parts[0].size(), parts[2].size()), (vec![2, 4, 10], vec![4]));
    averages(&parts, &logits, &[1.0, 1.0]);
    let many = Tensor::cat(&[&pixels, &pixels.narrow(0, 0, 3)], 0);
    alike(&outputs(&archive, &many)[0].narrow(1, 4, 3), &logits.narrow(1, 0, 3), "more images");
    alike(&outputs(&archive, &pixels.narrow(0, 1, 1))[0], &logits.narrow(1, 1, 1), "one image");
}

/// The mean probabilities and the mutual information are those of the logits `[m, B, C]` with the members' weights.
fn averages([_, probabilities, information]: &[Tensor; 3], logits: &Tensor, weights: &[f64]) {
    let (members, samples, classes) = logits.size3().unwrap();
    let shares = Tensor::from_slice(weights).to_kind(Kind::Float).view([-1, 1, 1]) / weights.iter().sum::<f64>();
    alike(
        probabilities,
        &(logits.softmax(-1, Kind::Float) * shares).sum_dim_intlist([0i64].as_slice(), false, Kind::Float),
        "mean probabilities",
    );
    let shape = [members, samples, classes].map(|size| size as usize);
    let shape = bella::predictions::Shape { members: shape[0], samples: shape[1], classes: shape[2] };
    let values = Vec::<f32>::try_from(&logits.reshape([-1])).unwrap();
    let predictions = bella::predictions::Predictions::unlabelled(shape, values).unwrap();
    let predictions = predictions.with_weights(weights.to_vec()).unwrap();
    let spread = bella::metrics::Uncertainty::compute(&predictions).unwrap().spread.unwrap();
    for (image, expected) in spread.mutual_information.iter().enumerate() {
        let difference = (information.double_value(&[image as i64]) - expected).abs();
        assert!(difference < 1e-5, "{weights:?}: {difference:.1e}");
    }
}

/// Draws that do not weigh the same keep their weights in the archive.
#[test]
fn weighted_draws_leave_with_their_weights() {
    let place = Place::new();
    let method =
        "method.sgld = { lr = 0.05, ess = 24, start = 1, every = 1, weights = \"step-size\" }\noptimizer.none = {}";
    let text = std::fs::read_to_string(config(&place, "timm-vit", &format!("{ALL_LAYERS}\n{method}"))).unwrap();
    let text = text
        .replace("optimizer.adamw.lr = 1e-2\n", "")
        .replace("batch_size = 8", "batch_size = 8, select = \"last-epoch\"");
    let mut command = place.command("train", &[]);
    command.arg("--config").arg(place.write("x.toml", text.as_bytes()));
    done(command);
    let run = place.run();
    done(export(&place, &run, "out", &["--to", "torchscript"]));
    let (expected, archive) = (place.path("out/expected.safetensors"), place.path("out/posterior.pt"));
    let stored = tensor(&run.join("posterior.safetensors"), "weights");
    let weights = Vec::<f64>::try_from(&stored.to_kind(Kind::Double)).unwrap();
    assert!(weights.iter().any(|weight| (weight - weights[0]).abs() > 1e-3), "{weights:?}");
    averages(&outputs(&archive, &tensor(&expected, "pixels")), &tensor(&expected, "logits"), &weights);
}

/// Bytes of another size go in where the preprocessing is in the file; numbers in half precision give nearly the same.
#[test]
fn an_archive_prepares_images_and_has_other_numbers() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "torchscript", "--preprocess", "--particle", "1"]));
    let (expected, archive) = (place.path("out/expected.safetensors"), place.path("out/posterior.pt"));
    let images = tensor(&expected, "images");
    assert_eq!((images.kind(), images.size()), (Kind::Uint8, vec![4, 3, 32, 24]));
    let one = tensor(&expected, "logits");
    alike(&outputs(&archive, &images)[0], &one, "prepared images");
    assert_eq!(outputs(&archive, &images)[2].abs().max().double_value(&[]), 0.0, "one member has no spread");
    done(export(&place, &run, "out", &["--to", "torchscript", "--as", "bf16", "--force"]));
    let [logits, ..] = outputs(&archive, &tensor(&expected, "pixels"));
    let difference = (&logits - tensor(&expected, "logits")).abs().max().double_value(&[]);
    assert!((1e-4..0.2).contains(&difference), "{difference}");
    let refused = error_line(export(&place, &run, "new", &["--to", "peft", "--as", "f16"]), 2);
    assert_has(&refused, &["--as: is for --to torchscript and --to onnx"]);
    let refused = error_line(export(&place, &run, "new", &["--to", "onnx", "--for", "timm"]), 2);
    assert_has(&refused, &["--for: onnx needs no package"]);
}

/// The checker of ONNX and ONNX Runtime read the graph in scripts/compare_exports.py; here, that it is written whole.
#[test]
fn a_posterior_leaves_as_one_graph() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    let output = export(&place, &run, "out", &["--to", "onnx"]).output().unwrap();
    assert!(output.status.success(), "{}", common::messages(&output));
    assert_has(&printed(&output), &["onnxruntime.InferenceSession(", "{\"pixels\": expected[\"pixels\"]}"]);
    let bytes = std::fs::read(place.path("out/posterior.onnx")).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    for text in ["blocks.1.mlp.fc.A", "mutual_information", "LayerNormalization", "[\"particle-0\",\"particle-1\"]"] {
        assert!(has(text), "{text}");
    }
    assert_eq!(tensor(&place.path("out/expected.safetensors"), "logits").size(), [2, 4, 10]);
}
