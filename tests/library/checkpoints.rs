//! Every naming and export of the fixtures is recognised with its true traits; everything else is refused by name.

use std::collections::BTreeMap;

use crate::common::{assert_has, bella, error_line, fixture, printed};
use bella::model::archive::Archive;
use bella::model::recognition::identify::{Evidence, Fixed, Identified, identify};
use bella::model::vit::{Activation, Geometry, Traits};
use serde::Deserialize;
use tch::Kind;

/// `fixtures.json`, written by the script that made the archives.
#[derive(Deserialize)]
struct Fixtures {
    archives: BTreeMap<String, Truth>,
    refused: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Truth {
    naming: String,
    dtype: String,
    image_size: i64,
    patch: i64,
    width: i64,
    blocks: usize,
    heads: i64,
    mlp: i64,
    output: i64,
    eps: f64,
    activation: String,
}

fn fixtures() -> Fixtures {
    let text = std::fs::read_to_string(fixture("fixtures.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn open(name: &str) -> anyhow::Result<Identified> {
    tch::set_num_threads(1);
    identify(&Archive::open(&fixture(&format!("{name}.pt")))?, Fixed::default())
}

fn check(name: &str, truth: &Truth) {
    let found = open(name).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    assert_eq!(found.naming.key, if truth.naming == "openai" { "clip" } else { &truth.naming }, "{name}");
    // The last width of an archive with a classifier is its number of classes.
    let classes = found.head.as_ref().map(|head| head.weight.size()[0]);
    assert_eq!(classes.unwrap_or(found.vit.geometry.output), truth.output, "{name}");
    let Truth { width, blocks, patch, mlp, .. } = *truth;
    let output = if classes.is_some() { width } else { truth.output };
    let geometry = Geometry { width, blocks, patch, grid: truth.image_size / patch, margin: 0, mlp, output };
    assert_eq!(found.vit.geometry, geometry, "{name}");
    let activation = match truth.activation.as_str() {
        "gelu" => Activation::Gelu,
        "quick-gelu" => Activation::QuickGelu,
        "silu" => Activation::Silu,
        other => panic!("{name}: activation {other}"),
    };
    assert_eq!(found.vit.traits, Traits { heads: truth.heads, activation, eps: truth.eps }, "{name}");
    let Evidence::SelfCheck { difference, half, runner_up, .. } = found.evidence else {
        panic!("{name}: was not self-checked: {:?}", found.evidence)
    };
    let stored_half = truth.dtype == "f16";
    assert_eq!((half, found.stored), (stored_half, if stored_half { Kind::Half } else { Kind::Float }), "{name}");
    assert!(difference.relative <= if half { 1e-2 } else { 1e-5 }, "{name}: {difference:?}");
    let (_, second) = runner_up.expect("other traits were tried");
    assert!(second.relative > difference.relative, "{name}: {difference:?} against {second:?}");
}

#[test]
fn good_archives_are_recognised_with_their_traits() {
    let archives = fixtures().archives;
    assert_eq!(archives.len(), 13);
    archives.iter().for_each(|(name, truth)| check(name, truth));
}

#[test]
fn foreign_and_damaged_archives_are_refused_with_the_reason() {
    let reasons = BTreeMap::from([
        ("refused_conv", "not a vision transformer that bella knows"),
        ("refused_postnorm", "the native forward does not reproduce the archive's own"),
        ("refused_no_parameters", "lists no parameters"),
        ("not_torchscript", "without TorchScript code"),
        ("truncated", "a truncated one"),
    ]);
    let refused = fixtures().refused;
    assert_eq!(refused.len(), reasons.len());
    for name in refused.keys() {
        let Err(error) = open(name) else { panic!("{name} is accepted") };
        let text = format!("{error:#}");
        assert_has(&text, &[&format!("{name}.pt: "), reasons[name.as_str()]]);
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn fixed_traits_that_are_wrong_are_refused_with_the_best_difference() {
    tch::set_num_threads(1);
    let archive = Archive::open(&fixture("timm_scripted.pt")).unwrap();
    let fixed = Fixed { heads: Some(4), ..Fixed::default() };
    let Err(error) = identify(&archive, fixed) else { panic!("4 heads are accepted") };
    assert_has(&format!("{error:#}"), &["timm_scripted.pt", "4 heads", "differs by", "checkpoint.heads"]);
}

// The Python that made the numbers (torch 2.11):
//   p = dict(torch.jit.load("tests/fixtures/timm_scripted.pt").named_parameters())["pos_embed"][0].detach()
//   grid = p[1:].reshape(1, 4, 4, -1).permute(0, 3, 1, 2)
//   x = F.interpolate(grid, (size, size), mode="bicubic", antialias=True, align_corners=False)
//   x = x.permute(0, 2, 3, 1).flatten(0, 2)
//   x[0, :4], x[size + 1, :4], x[-1, -4:], (x.double() ** 2).sum()
#[test]
fn position_embeddings_are_interpolated_as_torch_does() {
    let golden = [
        (
            6,
            [-0.0047564199194312096, -0.0044348291121423244, -0.003329571569338441, 0.0042707365937530994],
            [-0.004650338087230921, 0.005977168679237366, -0.0018575418507680297, 0.000499347283039242],
            [-0.009575114585459232, 0.0005416987696662545, 0.004855278413742781, -0.008101771585643291],
            0.04284189851469555,
        ),
        (
            3,
            [-0.0048561193980276585, 0.003321616677567363, -0.0031977775506675243, 0.0018617401365190744],
            [-0.0010083150118589401, -0.0012402446009218693, 0.006665040273219347, 0.002642115345224738],
            [0.002488782862201333, 0.0007191449985839427, -0.0016565483529120684, -0.000628314446657896],
            0.005364982206428172,
        ),
    ];
    let before = open("timm_scripted").unwrap().base;
    for (grid, first, second_row, last, squares) in golden {
        let Identified { mut vit, mut base, .. } = open("timm_scripted").unwrap();
        vit.resize(&mut base, 8 * grid).unwrap();
        assert_eq!(vit.geometry.grid, grid);
        let position = base.get("position").unwrap();
        assert_eq!(position.size(), [grid * grid + 1, 16]);
        assert_eq!(position.get(0), before.get("position").unwrap().get(0), "the class token's own stays");
        let patches = position.narrow(0, 1, grid * grid).to_kind(Kind::Double);
        let near = |row: i64, from: i64, expected: [f64; 4]| {
            let found = Vec::<f64>::try_from(patches.get(row).narrow(0, from, 4)).unwrap();
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-8), "{found:?} {expected:?}");
        };
        near(0, 0, first);
        near(grid + 1, 0, second_row);
        near(grid * grid - 1, 12, last);
        let sum = patches.square().sum(Kind::Double).double_value(&[]);
        assert!((sum - squares).abs() < 1e-6 * squares, "{sum} {squares}");
    }
}

#[test]
fn the_same_image_size_changes_nothing_and_half_a_patch_is_refused() {
    let before = open("timm_scripted").unwrap();
    let Identified { mut vit, mut base, .. } = open("timm_scripted").unwrap();
    vit.resize(&mut base, 32).unwrap();
    assert_eq!(before.vit.geometry, vit.geometry);
    for ((name, a), (_, b)) in before.base.all().iter().zip(base.all()) {
        assert_eq!(a, b, "{name}");
    }
    let Err(error) = vit.resize(&mut base, 36) else { panic!("36 pixels are accepted") };
    assert_eq!(error.to_string(), "checkpoint.image_size = 36: must be a multiple of the patch size 8");
}

#[test]
fn inspect_prints_what_the_checkpoint_is() {
    let path = fixture("openai_clip_half.pt");
    let output = bella(&["inspect", path.to_str().unwrap()]).output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let words: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "naming clip",
        "image 16 x 16 px, patch 4, 17 tokens",
        "transformer width 24, 2 blocks, MLP 60",
        "heads 3 of width 8 (self-check)",
        "activation quick-gelu (self-check)",
        "layer norm eps 1e-5 (self-check)",
        "features 24",
        "own head none",
    ] {
        assert!(words.iter().any(|word| word == line), "no line `{line}` in\n{text}");
    }
    assert_has(&text, &["self-check    relative difference ", "half-precision archive", "runner-up", "stored as f16"]);
}

#[test]
fn inspect_refuses_with_one_line_and_exit_code_1() {
    let path = fixture("refused_conv.pt");
    let line = error_line(bella(&["inspect", path.to_str().unwrap()]), 1);
    assert_has(&line, &["refused_conv.pt", "not a vision transformer"]);
}

#[test]
fn wrong_arguments_have_exit_code_2() {
    for arguments in [&["inspect"][..], &["inspect", "x.pt", "--activation", "swish-2"], &["frobnicate"]] {
        let output = bella(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
