use std::path::PathBuf;

use anyhow::Result;
use tch::{Device, Kind, Tensor};
use zip::CompressionMethod;

use super::*;
use crate::model::archive::Archive;
use crate::model::archive::write::*;
use crate::model::recognition::identify::{Evidence, Fixed, identify, identify_text};
use crate::model::vit::text::{TextGeometry, TextStyle};
use crate::model::vit::{Activation, Geometry, Traits};

/// Returns a model of width 32 with two blocks and patch size 8 for images of 16 pixels per side.
fn clip(around: Around, text: bool, kind: Kind) -> Clip {
    let output = if around == Around::Nothing { 32 } else { 24 };
    let words =
        TextGeometry { width: 48, blocks: 1, mlp: 96, vocabulary: 99, context: 12, output, style: TextStyle::Clip };
    Clip {
        image: Geometry { width: 32, blocks: 2, patch: 8, grid: 2, margin: 0, mlp: 64, output },
        traits: Traits { heads: 4, activation: Activation::QuickGelu, eps: 1e-6 },
        around,
        text: text.then_some((words, 3)),
        kind,
    }
}

fn weight(name: &str, shape: &[i64]) -> Result<Tensor> {
    let noise = Tensor::randn(shape, (Kind::Float, Device::Cpu));
    let inputs = shape.iter().skip(1).product::<i64>().max(1) as f64;
    Ok(if name.contains("embedding") { noise * 0.01 } else { noise / inputs.sqrt() })
}

fn written(clip: &Clip) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.pt");
    tch::manual_seed(1);
    write(&path, &clip.blueprint(), weight).unwrap();
    (folder, path)
}

#[test]
fn libtorch_loads_it_under_openais_names() {
    let (_folder, path) = written(&clip(Around::NormAndProjection, true, Kind::Float));
    let module = Archive::open(&path).unwrap().copy_on(Device::Cpu).unwrap();
    let mut named = module.named_parameters().unwrap();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let shape = |wanted: &str| named.iter().find(|(name, _)| name == wanted).map(|(_, tensor)| tensor.size());
    assert_eq!(shape("visual.conv1.weight"), Some(vec![32, 3, 8, 8]));
    assert_eq!(shape("visual.transformer.resblocks.1.mlp.c_fc.weight"), Some(vec![64, 32]));
    assert_eq!(shape("transformer.resblocks.0.attn.in_proj_bias"), Some(vec![144]));
    assert_eq!(shape("text_projection"), Some(vec![48, 24]));
    assert_eq!(shape("logit_scale"), Some(vec![]));
    // Image: 4 + 2 blocks of 12 + 4 norms; text: 5 + 12 + 2 norms.
    assert_eq!(named.len(), 3 + 1 + 24 + 4 + 3 + 1 + 12 + 2);
}

/// Random values are drawn in this order, so that another one would be another stand-in.
#[test]
fn a_modules_own_parameters_come_before_those_of_its_submodules() {
    let mut names = Vec::new();
    let mut made = clip(Around::NormAndProjection, true, Kind::Float);
    made.image.blocks = 1;
    let visited = made.blueprint().root.visit("", &mut |name, _| {
        names.push(name.to_string());
        Ok(())
    });
    visited.unwrap();
    let block = "attn.in_proj_weight attn.in_proj_bias attn.out_proj.weight attn.out_proj.bias ln_1.weight ln_1.bias \
                 mlp.c_fc.weight mlp.c_fc.bias mlp.c_proj.weight mlp.c_proj.bias ln_2.weight ln_2.bias";
    let expected = "positional_embedding text_projection logit_scale visual.class_embedding visual.positional_embedding visual.proj \
                    visual.conv1.weight visual.{} visual.ln_post.weight visual.ln_post.bias visual.ln_pre.weight visual.ln_pre.bias {} \
                    token_embedding.weight ln_final.weight ln_final.bias";
    let expected: Vec<String> = expected
        .split(' ')
        .flat_map(|name| match name.split_once("{}") {
            Some((prefix, _)) => {
                block.split(' ').map(|layer| format!("{prefix}transformer.resblocks.0.{layer}")).collect()
            }
            None => vec![name.to_string()],
        })
        .collect();
    assert_eq!(names, expected);
}

#[test]
fn values_are_those_that_were_given() {
    let made = clip(Around::NormAndProjection, false, Kind::Float);
    let (folder, path) = (tempfile::tempdir().unwrap(), "big.pt");
    let path = folder.path().join(path);
    let counted = |name: &str, shape: &[i64]| {
        let count = shape.iter().product::<i64>();
        let start = name.len() as f64;
        Ok(Tensor::arange_start(start, start + count as f64, (Kind::Float, Device::Cpu)).view(shape))
    };
    write(&path, &made.blueprint(), counted).unwrap();
    let module = Archive::open(&path).unwrap().copy_on(Device::Cpu).unwrap();
    for (name, tensor) in module.named_parameters().unwrap() {
        assert!(tensor.equal(&counted(&name, &tensor.size()).unwrap()), "{name}");
    }
}

#[test]
fn tensors_start_at_multiples_of_64_bytes() {
    let (_folder, path) = written(&clip(Around::NormAndProjection, true, Kind::Float));
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    for index in 0..zip.len() {
        let entry = zip.by_index(index).unwrap();
        assert_eq!(entry.compression(), CompressionMethod::Stored);
        assert_eq!(entry.data_start().unwrap() % 64, 0);
    }
}

#[test]
fn both_towers_pass_the_self_check() {
    for around in [Around::NormAndProjection, Around::Nothing] {
        let made = clip(around, true, Kind::Float);
        let (_folder, path) = written(&made);
        let archive = Archive::open(&path).unwrap();
        let found = identify(&archive, Fixed::default()).unwrap();
        assert_eq!((&found.vit.geometry, found.vit.traits), (&made.image, made.traits));
        let text = identify_text(&archive, found.vit.traits).unwrap().unwrap();
        assert_eq!((&text.tower.geometry, text.tower.traits.heads), (&made.text.as_ref().unwrap().0, 3));
        for evidence in [found.evidence, text.evidence] {
            let Evidence::SelfCheck { difference, half, .. } = evidence else { panic!("{evidence:?}") };
            assert!(difference.relative <= 1e-5 && !half, "{difference:?}");
        }
    }
}

#[test]
fn a_half_precision_archive_is_one() {
    let made = clip(Around::NormAndProjection, true, Kind::Half);
    let (_folder, path) = written(&made);
    let archive = Archive::open(&path).unwrap();
    let kind = |wanted: &str| archive.listed().iter().find(|parameter| parameter.name == wanted).unwrap().kind;
    assert_eq!(kind("visual.proj"), Kind::Half);
    assert_eq!(kind("visual.ln_post.weight"), Kind::Float);
    let found = identify(&archive, Fixed::default()).unwrap();
    let Evidence::SelfCheck { difference, half: true, .. } = found.evidence else { panic!("{:?}", found.evidence) };
    assert!(difference.relative <= 1e-2, "{difference:?}");
}

#[test]
fn a_weight_of_another_shape_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let blueprint = clip(Around::Nothing, false, Kind::Float).blueprint();
    let path = folder.path().join("x.pt");
    let wrong = write(&path, &blueprint, |_, _| Ok(Tensor::zeros([2], (Kind::Float, Device::Cpu)))).unwrap_err();
    assert!(format!("{wrong:#}").contains("visual.class_embedding: the weight has shape [2]"), "{wrong:#}");
    assert!(!path.exists());
}
