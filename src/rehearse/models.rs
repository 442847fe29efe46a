//! The published shapes of stand-ins. Those of image networks are found by the checkpoint's file name, and their random weights have
//! about the sizes of trained ones.

use anyhow::{Context, Result, anyhow, bail};
use tch::{Device, Kind, Tensor};

use crate::experiment::Experiment;
use crate::model::CheckpointKind;
use crate::model::described::Published;
use crate::model::families::shapes;
use crate::model::head::tokens::VOCABULARY;
use crate::model::vit::text::{TextGeometry, TextStyle};
use crate::model::vit::{Activation, Geometry, Traits};
use crate::rehearse::clip::{Around, Clip};
use crate::schema::Choice;

/// A published model.
#[derive(Debug)]
pub struct Model {
    pub key: &'static str,
    /// The beginnings of its file names. Upper and lower case distinguish OpenAI's names from timm's.
    pub files: &'static [&'static str],
    pub about: &'static str,
    family: Family,
}

/// The source of a model's shape.
#[derive(Debug)]
enum Family {
    /// A CLIP model. Its image tower is that of [`shapes`] under this key, with `grid` patches per side if that is
    /// given.
    Clip { shape: &'static str, grid: Option<i64>, text: Text },
    /// A plain vision transformer of timm, without text tower and projection.
    Plain { width: i64, heads: i64 },
}

/// A text tower of 12 blocks whose heads have width 64.
#[derive(Clone, Copy, Debug)]
struct Text {
    width: i64,
}

/// Every known model. If two names begin alike, the longer one comes first.
pub static MODELS: &[Model] = &[
    Model {
        key: "vit-b-32",
        files: &["ViT-B-32"],
        about: "CLIP ViT-B/32, 224 px, with its text tower",
        family: Family::Clip { shape: "vit-b-32", grid: None, text: Text { width: 512 } },
    },
    Model {
        key: "vit-b-16",
        files: &["ViT-B-16"],
        about: "CLIP ViT-B/16, 224 px, with its text tower",
        family: Family::Clip { shape: "vit-b-16", grid: None, text: Text { width: 512 } },
    },
    Model {
        key: "vit-l-14-336",
        files: &["ViT-L-14-336"],
        about: "CLIP ViT-L/14, 336 px, with its text tower",
        family: Family::Clip { shape: "vit-l-14", grid: Some(24), text: Text { width: 768 } },
    },
    Model {
        key: "vit-l-14",
        files: &["ViT-L-14"],
        about: "CLIP ViT-L/14, 224 px, with its text tower",
        family: Family::Clip { shape: "vit-l-14", grid: None, text: Text { width: 768 } },
    },
    Model {
        key: "clip-mini",
        files: &["clip-mini"],
        about: "a small CLIP for 32 px",
        family: Family::Clip { shape: "clip-mini", grid: None, text: Text { width: 512 } },
    },
    Model {
        key: "plain-vit-s-16",
        files: &["vit-s-16"],
        about: "timm's ViT-S/16, 224 px, image tower only",
        family: Family::Plain { width: 384, heads: 6 },
    },
    Model {
        key: "plain-vit-b-16",
        files: &["vit-b-16"],
        about: "timm's ViT-B/16, 224 px, image tower only",
        family: Family::Plain { width: 768, heads: 12 },
    },
];

/// Returns the model with this checkpoint file name, given without its extension.
///
/// # Errors
/// Fails if no known model has such a name.
pub fn of_file(stem: &str) -> Result<&'static Model> {
    let found = MODELS.iter().find(|model| model.files.iter().any(|start| stem.starts_with(start)));
    found.with_context(|| {
        format!("checkpoint.path: the shape of `{stem}` cannot be told from its name: give --shape, one of {}", known())
    })
}

/// Returns the model with this key.
pub fn of_key(key: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.key == key)
}

/// Returns the keys of all models, for messages.
pub fn known() -> String {
    MODELS.iter().map(|model| model.key).collect::<Vec<_>>().join(", ")
}

impl Model {
    /// Returns whether the model has a text tower.
    pub fn has_text(&self) -> bool {
        matches!(self.family, Family::Clip { .. })
    }

    /// Returns the model at its published size in f32, with its text tower only if that is asked for.
    pub fn clip(&self, with_text: bool) -> Result<Clip> {
        match &self.family {
            Family::Clip { shape, grid, text } => {
                let shape = shapes().find(|known| known.key == *shape).context("a shape is not known any more")?;
                let image = Geometry { grid: grid.unwrap_or(shape.geometry.grid), ..shape.geometry.clone() };
                let words = TextGeometry {
                    width: text.width,
                    blocks: 12,
                    mlp: 4 * text.width,
                    vocabulary: VOCABULARY,
                    context: 77,
                    output: image.output,
                    style: TextStyle::Clip,
                };
                let text = with_text.then_some((words, text.width / 64));
                Ok(Clip { image, traits: shape.traits, around: Around::NormAndProjection, text, kind: Kind::Float })
            }
            Family::Plain { width, heads } => {
                let (width, heads) = (*width, *heads);
                Ok(Clip {
                    image: Geometry {
                        width,
                        blocks: 12,
                        patch: 16,
                        grid: 14,
                        margin: 0,
                        mlp: 4 * width,
                        output: width,
                    },
                    traits: Traits { heads, activation: Activation::Gelu, eps: 1e-6 },
                    around: Around::Nothing,
                    text: None,
                    kind: Kind::Float,
                })
            }
        }
    }

    /// Returns the same model with width 32 for images of 16 pixels per side. It keeps all blocks of the image tower,
    /// because configs select among them.
    pub fn tiny(&self, with_text: bool) -> Result<Clip> {
        let mut clip = self.clip(with_text)?;
        let output = if clip.around == Around::Nothing { 32 } else { 16 };
        clip.image = Geometry { width: 32, mlp: 64, patch: 8, grid: 2, output, ..clip.image };
        clip.traits.heads = 4;
        if let Some((text, heads)) = &mut clip.text {
            *text = TextGeometry { width: 32, blocks: 2, mlp: 64, output, ..text.clone() };
            *heads = 4;
        }
        Ok(clip)
    }
}

/// Returns random weights from libtorch's generator, with the spread of trained ones.
///
/// # Errors
/// Fails if libtorch has no memory for the weights.
pub fn random_weight(name: &str, shape: &[i64]) -> Result<Tensor> {
    let ((scale, around), options) = (spread(name, shape), (Kind::Float, Device::Cpu));
    if scale == 0.0 {
        return Ok(Tensor::f_full(shape, around, options)?);
    }
    Ok(Tensor::f_randn(shape, options)?.f_mul_scalar_(scale)?.f_add_scalar_(around)?)
}

/// Returns the standard deviation and the mean of a weight. Matrices are scaled by 1/√(inputs), norms are around one, and
/// embeddings are small, so that the output of the first layer norm reveals its eps.
pub fn spread(name: &str, shape: &[i64]) -> (f64, f64) {
    if name == "logit_scale" {
        return (0.0, 100f64.ln());
    }
    let inputs = match shape {
        // Stored as [inputs, outputs], unlike any other matrix.
        [inputs, _] if name.ends_with("proj") || name.ends_with("projection") => *inputs,
        _ => shape.iter().skip(1).product(),
    };
    match shape.len() {
        _ if name.contains("embedding") => (0.01, 0.0),
        0 | 1 => (0.2, if name.ends_with("weight") { 1.0 } else { 0.0 }),
        _ => ((inputs as f64).powf(-0.5), 0.0),
    }
}

/// A published shape of which a stand-in can be made.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A network of images, as a TorchScript archive.
    Archive(&'static Model),
    /// A language network, as a publisher's folder.
    Folder(&'static Published),
}

impl Shape {
    /// Returns the keys of all shapes.
    pub fn keys() -> Vec<&'static str> {
        MODELS.iter().map(|model| model.key).chain(Published::keys()).collect()
    }

    /// Returns the shape with this key.
    ///
    /// # Errors
    /// Fails if the key is unknown.
    pub fn of_key(key: &str) -> Result<Shape> {
        if let Some(published) = Published::of_key(key) {
            return Ok(Shape::Folder(published));
        }
        let known = || format!("unknown shape `{key}`; known: {}", Shape::keys().join(", "));
        of_key(key).map(Shape::Archive).ok_or_else(|| anyhow!(known()))
    }

    /// Returns the shape that the name of the config's checkpoint tells.
    ///
    /// # Errors
    /// Fails if no known network has such a name.
    pub fn of_name(experiment: &Experiment) -> Result<Shape> {
        let path = &experiment.checkpoint.path.known_as();
        let published = Published::of_path(path);
        match (experiment.checkpoint.kind.is_image_tower(), published) {
            (true, None) => {
                let stem = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
                of_file(&stem).map(Shape::Archive)
            }
            (_, Some(published)) => Ok(Shape::Folder(published)),
            _ => bail!(
                "checkpoint.path: the shape of `{}` cannot be told from its name: give --shape, one of {}",
                path.file_name().unwrap_or_default().display(),
                Published::keys().join(", ")
            ),
        }
    }

    /// Checks that the shape has the forward pass that the config asks for.
    ///
    /// # Errors
    /// Fails if it has another one.
    pub fn check_kind(self, kind: CheckpointKind) -> Result<()> {
        match self {
            Shape::Archive(_) if kind.is_image_tower() => Ok(()),
            Shape::Archive(model) => {
                bail!(
                    "checkpoint.kind = \"{}\": {} is of kind \"{}\"",
                    kind.word(),
                    model.about,
                    CheckpointKind::Native.word()
                )
            }
            Shape::Folder(published) => published.check_kind(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_tell_shapes() {
        let key = |stem| of_file(stem).map(|model| model.key).map_err(|error| error.to_string());
        assert_eq!(key("ViT-B-32"), Ok("vit-b-32"));
        assert_eq!(key("ViT-B-32-laion2b"), Ok("vit-b-32"));
        assert_eq!(key("ViT-L-14-336px"), Ok("vit-l-14-336"));
        assert_eq!(key("vit-b-16-in21k"), Ok("plain-vit-b-16"));
        assert!(key("resnet50").unwrap_err().contains("give --shape, one of vit-b-32, vit-b-16,"));
        assert!(MODELS.iter().all(|model| of_key(model.key).unwrap().key == model.key));
    }

    /// Checks the sizes of the published archives, such as the 151,277,313 parameters of OpenAI's ViT-B/32.
    #[test]
    fn published_sizes() {
        let parameters = |key: &str, text| of_key(key).unwrap().clip(text).unwrap().blueprint().root.bytes() / 4;
        assert_eq!(parameters("vit-b-32", true), 151_277_313);
        assert_eq!(parameters("vit-b-32", false), 87_849_216);
        assert_eq!(parameters("vit-b-16", true), 149_620_737);
        assert_eq!(parameters("vit-l-14", true), 427_616_513);
        assert_eq!(parameters("vit-l-14-336", true), 427_944_193);
        // timm's model also has a bias in its patch embedding.
        assert_eq!(parameters("plain-vit-b-16", false), 85_797_888);
    }
}
