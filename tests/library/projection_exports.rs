//! Runs of `[subspace.projections]` leave with each particle's own text projection: in the head of every format, and in the text
//! tower of a whole model.

use std::path::Path;

use crate::common;
use crate::common::{Place, assert_has, done, error_line, fixture, tensor, with};
use bella::data::fields::{Fields, PIXELS};
use bella::model::archive::Archive;
use bella::model::folder;
use bella::model::network::{Network, Weights};
use bella::model::recognition::identify::{Fixed, Identified, identify};
use tch::{CModule, IValue, Tensor};

/// Zero-shot checkpoints with a text tower, and what else their configs say: an archive of CLIP, and SigLIP of two packages.
const CHECKPOINTS: [(&str, &str); 3] =
    [("openai_clip_words.pt", ""), ("folders/hf-siglip-both", ""), ("folders/open-clip-siglip", "heads = 2\n")];

/// One template, so that a head is what the package's zero-shot classifier would be.
fn config(checkpoint: &Path, more: &str) -> String {
    format!(
        "name = \"tiny\"\nseed = 1\n[checkpoint]\npath = {checkpoint:?}\nnormalize = \"clip\"\n{more}[head.zero-shot]\n\
         templates = [\"a {{}}.\"]\nclass_names = [\"a\", \"cat\", \"dog\", \"ship\", \"zebra\", \"frog\", \"truck\", \"maple\", \"7\", \"foot\"]\n\
         [data.digits.subset]\ntrain = 24\ntest = 20\n"
    )
}

const TRAINED: &str = "[subspace.projections]\n[method.svgd]\nparticles = 2\ngamma = 0.01\n[optimizer.adamw]\nlr = [1e-2, 3e-2]\n\
                       [train]\nepochs = 2\nbatch_size = 8\n";

/// Trains two particles, which move apart.
fn trained(checkpoint: &str, more: &str) -> Place {
    let place = Place::new();
    let config = place.write("x.toml", (config(&fixture(checkpoint), more) + TRAINED).as_bytes());
    let mut command = place.command("train", &[]);
    command.env("BELLA_CACHE", place.path("cache")).arg("--config").arg(config);
    done(command);
    place
}

fn exporting(place: &Place, output: &str, more: &[&str]) -> crate::common::Bella {
    let mut command = with(place.command("export", &[]), more);
    command.env("BELLA_CACHE", place.path("cache")).arg("--output").arg(place.path(output));
    command
}

fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.size(), expected.size());
    ((found - expected).abs().max() / expected.abs().max()).double_value(&[])
}

/// The head that bella builds from the text tower of a checkpoint.
fn head_of(place: &Place, checkpoint: &Path, more: &str) -> Tensor {
    let (file, config) = (place.path("built.safetensors"), place.write("h.toml", config(checkpoint, more).as_bytes()));
    let mut command = common::bella(&["head", "--device", "cpu", "--threads", "1"]);
    command.env("BELLA_CACHE", place.path("cache")).arg("--config").arg(config).arg("--to").arg(&file);
    done(command);
    tensor(&file, "weight")
}

#[test]
fn an_archive_of_all_particles_has_their_own_heads() {
    for (checkpoint, more) in CHECKPOINTS {
        let place = trained(checkpoint, more);
        done(exporting(&place, "out", &["--to", "torchscript"]));
        let expected = place.path("out/expected.safetensors");
        let logits = tensor(&expected, "logits");
        assert!(difference(&logits.get(0), &logits.get(1)) > 1e-3, "{checkpoint}: the particles are apart");
        let found = outputs(&place.path("out/posterior.pt"), &tensor(&expected, "pixels"));
        assert!(difference(&found, &logits) < 1e-5, "{checkpoint}");
    }
}

/// What ONNX Runtime computes is compared by scripts/compare_exports.py.
#[test]
fn a_graph_of_all_particles_has_their_own_heads() {
    let (checkpoint, more) = CHECKPOINTS[1];
    let place = trained(checkpoint, more);
    done(exporting(&place, "out", &["--to", "onnx"]));
    done(exporting(&place, "own", &["--to", "weights"]));
    let graph = std::fs::read(place.path("out/posterior.onnx")).unwrap();
    let has = |weight: &Tensor| [weight.shallow_clone(), weight.tr()].iter().any(|way| contains(&graph, &bytes(way)));
    assert!(!has(&head_of(&place, &fixture(checkpoint), more)), "the graph has the head of the checkpoint");
    for particle in ["particle-0", "particle-1"] {
        let own = tensor(&place.path("own").join(particle).join("head.safetensors"), "weight");
        assert!(has(&own), "the graph lacks the head of {particle}");
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window[0] == part[0] && window == part)
}

fn bytes(values: &Tensor) -> Vec<u8> {
    let values = Vec::<f32>::try_from(&values.contiguous().reshape([-1])).unwrap();
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn outputs(archive: &Path, pixels: &Tensor) -> Tensor {
    let module = CModule::load(archive).unwrap();
    let output = module.method_is("forward", &[IValue::Tensor(pixels.shallow_clone())]).unwrap();
    let IValue::Tuple(mut parts) = output else { panic!("no tuple") };
    Tensor::try_from(parts.swap_remove(0)).unwrap()
}

/// The head lies beside a whole model, and its text tower, built into a head again, gives the same one.
#[test]
fn whole_models_have_both_projections() {
    for (checkpoint, more) in CHECKPOINTS {
        let place = trained(checkpoint, more);
        done(exporting(&place, "all", &["--to", "weights"]));
        let lines = done(exporting(&place, "soup", &["--to", "weights", "--soup"]));
        if checkpoint.contains("open-clip") {
            // The tower is timm's, and the folder open_clip's.
            assert_has(&lines, &["open_clip.create_model(", "model.encode_image(pixels)"]);
            assert!(place.path("soup/open_clip_model.safetensors").exists());
        }
        let frozen = head_of(&place, &fixture(checkpoint), more);
        let folders = ["all/particle-0", "all/particle-1", "soup"].map(|name| place.path(name));
        let heads: Vec<Tensor> =
            folders.iter().map(|folder| tensor(&folder.join("head.safetensors"), "weight")).collect();
        for (folder, head) in folders.iter().zip(&heads) {
            let model = if checkpoint.ends_with(".pt") { folder.join("model.pt") } else { folder.clone() };
            assert!(difference(&head_of(&place, &model, more), head) < 1e-5, "{checkpoint}: {}", folder.display());
            assert!(difference(head, &frozen) > 1e-3, "{checkpoint}: the text projection is trained");
            let expected = folder.join("expected.safetensors");
            let bias = tensor(&folder.join("head.safetensors"), "bias");
            let found = features(&model, more, &tensor(&expected, "pixels")).linear(head, Some(&bias));
            assert!(difference(&found, &tensor(&expected, "logits")) < 1e-5, "{checkpoint}: {}", folder.display());
        }
        assert!(difference(&heads[0], &heads[1]) > 1e-3, "{checkpoint}: the particles are apart");
    }
}

/// The normalised features of a model's image tower, by bella's own network.
fn features(model: &Path, more: &str, pixels: &Tensor) -> Tensor {
    tch::set_num_threads(1);
    let fixed = Fixed { heads: (!more.is_empty()).then_some(2), ..Fixed::default() };
    let found = match model.is_file() {
        true => identify(&Archive::open(model).unwrap(), fixed),
        false => folder::identify(model, &fixed),
    };
    let Identified { vit, base, .. } = found.unwrap();
    let images = Fields::of(PIXELS, pixels.unsqueeze(0));
    let features = tch::no_grad(|| vit.forward(&Weights::frozen(&base), &images)).squeeze_dim(0);
    &features / features.norm_scalaropt_dim(2.0, [-1], true)
}

/// open_clip builds timm's towers for their own size of images, whatever a config says.
#[test]
fn a_tower_of_timm_leaves_for_open_clip_at_its_own_size() {
    let more = "heads = 2\nimage_size = 32\n";
    let place = trained(CHECKPOINTS[2].0, more);
    let line = error_line(exporting(&place, "out", &["--to", "weights"]), 1);
    assert_has(&line, &["32 pixels per side", "checkpoint.image_size = 16", "--to onnx"]);
    done(exporting(&place, "out", &["--to", "onnx"]));
}

/// Adapters have no place for a projection, and say so.
#[test]
fn projections_leave_as_no_adapter() {
    let place = trained(CHECKPOINTS[1].0, CHECKPOINTS[1].1);
    let line = error_line(exporting(&place, "out", &["--to", "peft"]), 1);
    assert_has(&line, &["adapters are low-rank updates", "--to weights"]);
    assert!(!place.path("out").exists());
}

/// The description of the posterior names the stored tensors of both projections, the text tower's among them.
#[test]
fn the_posterior_says_where_both_projections_are_stored() {
    let stored = [["proj", "text_projection"], ["", "text_model.head.weight"], ["", "text.text_projection.weight"]];
    for ((checkpoint, more), names) in CHECKPOINTS.into_iter().zip(stored) {
        let place = trained(checkpoint, more);
        let file = std::fs::read(place.run().join("posterior.safetensors")).unwrap();
        let (_, header) = safetensors::SafeTensors::read_metadata(&file).unwrap();
        let layout = header.metadata().as_ref().unwrap()["layout"].clone();
        assert_has(&layout, &["head.projection", &format!("\"name\":\"{}\"", names[1])]);
        assert_has(&layout, &[names[0]]);
    }
}
