//! `[checkpoint]`: the pretrained network, and settings that its file does not contain.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::folder::{Preprocessing, content};
use super::preprocess::Normalize;
use crate::base::hash::{file_sha256, text_sha256};
use crate::data::{Interpolation, Medium, Resize};
use crate::model::language::is_language;
use crate::model::llava::is_llava;
use crate::model::vit::identify::Fixed;
use crate::schema::{Bounds, Reader, words};

words! {
    /// The forward pass that runs a checkpoint.
    pub enum Kind {
        /// bella's own, for vision transformers.
        Native = "native",
        /// The forward of the TorchScript module itself.
        Module = "module",
        /// bella's own, for language networks.
        Language = "language",
        /// bella's own, for language networks that see images.
        VisionLanguage = "vision-language",
    }
}

impl Kind {
    /// Returns the forward pass of a checkpoint that does not name one.
    fn of(path: &Path) -> Kind {
        match path {
            path if is_language(path) => Kind::Language,
            path if is_llava(path) => Kind::VisionLanguage,
            _ => Kind::Native,
        }
    }

    /// Returns what the network takes.
    pub fn medium(self) -> Medium {
        match self {
            Kind::Native | Kind::Module => Medium::Images,
            Kind::Language => Medium::Texts,
            Kind::VisionLanguage => Medium::Questions,
        }
    }
}

/// The table `[checkpoint]`.
#[derive(Serialize)]
pub struct CheckpointSpec {
    pub path: PathBuf,
    #[serde(skip_serializing_if = "is_native")]
    pub kind: Kind,
    /// The number of pixels per side; the checkpoint's own by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<i64>,
    /// The normalisation of pixels; `None` for a language network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<Normalize>,
    /// The filter that resizes images to the network's input.
    #[serde(skip_serializing_if = "is_bicubic")]
    pub interpolation: Interpolation,
    /// The share of the resized shorter side that the centre crop keeps.
    #[serde(skip_serializing_if = "is_all")]
    pub crop_pct: f64,
    /// The most tokens of a prompt of a language network; 512 or its context by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    #[serde(flatten)]
    pub fixed: Fixed,
    /// The preparation of images that a folder asks for, used where the config says nothing.
    #[serde(skip)]
    pub usual: Preprocessing,
    /// The SHA-256 of the file, once it has been computed.
    #[serde(skip)]
    sha256: OnceCell<String>,
}

impl CheckpointSpec {
    /// Reads the table.
    pub fn read(reader: Reader) -> CheckpointSpec {
        let path = read_path(&reader);
        let usual = Preprocessing::of(&path);
        let kind = reader
            .choice("kind")
            .about(
                "Forward pass: `native` for vision transformers, `language` for language networks and `vision-language` for those \
                 that see images (the defaults where the folder is one's), `module` for the own one of any TorchScript module.",
            )
            .or_else(|| Kind::of(&path));
        let medium = kind.medium();
        check_module(&reader, kind, &path);
        check_medium(&reader, medium);
        let spec = CheckpointSpec {
            path,
            kind,
            image_size: reader
                .integer("image_size", 1..=4096)
                .about("Height and width of the network's input in pixels; the checkpoint's own by default.")
                .optional(),
            normalize: match medium {
                Medium::Images | Medium::Questions => Some(Normalize::read(&reader, usual.normalize)),
                Medium::Texts => None,
            },
            interpolation: read_interpolation(&reader, usual.interpolation),
            crop_pct: read_crop_pct(&reader, usual.crop_pct),
            max_tokens: reader
                .integer("max_tokens", 1..=1 << 20)
                .about("Most tokens of a prompt of a language network; 512, or its context if that is shorter, by default.")
                .optional(),
            fixed: Fixed::read(&reader),
            usual,
            sha256: OnceCell::new(),
        };
        reader.finish();
        spec
    }

    /// Says in what the preparation of images differs from what the folder asks for. `resize` is that of the data set.
    pub fn deviations(&self, resize: Option<Resize>) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |key: &str, own: String, asked: Option<String>| {
            if let Some(asked) = asked.filter(|asked| *asked != own) {
                found
                    .push(format!("{key} is {own}, but the checkpoint's folder asks for {asked}: the config's counts"));
            }
        };
        if let Some(own) = self.normalize {
            note("checkpoint.normalize", own.to_string(), self.usual.normalize.map(|asked| asked.to_string()));
        }
        let asked = self.usual.interpolation.map(|asked| asked.to_string());
        note("checkpoint.interpolation", self.interpolation.to_string(), asked);
        note("checkpoint.crop_pct", self.crop_pct.to_string(), self.usual.crop_pct.map(|asked| asked.to_string()));
        // Networks that answer questions see padded images, whatever a folder of transformers says.
        if let Some(resize) = resize.filter(|_| self.kind.medium() == Medium::Images) {
            note("the data set's resize", resize.to_string(), self.usual.resize.map(|asked| asked.to_string()));
        }
        found
    }

    /// Returns the normalisation of pixels.
    ///
    /// # Errors
    /// Fails for a language network.
    pub fn normalization(&self) -> Result<Normalize> {
        self.normalize.context("this network takes no images, which this command needs")
    }

    /// Returns the SHA-256 of the file, which is read once.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn sha256(&self) -> Result<&str> {
        if let Some(known) = self.sha256.get() {
            return Ok(known);
        }
        let files = content(&self.path)?.into_iter().map(|file| file_sha256(&file, "checkpoint.path"));
        let hashes = files.collect::<Result<Vec<String>>>()?;
        // Several files, those of a folder, are known by the hash of their hashes.
        let hash = if let [one] = &hashes[..] { one.clone() } else { text_sha256(&hashes.concat()) };
        Ok(self.sha256.get_or_init(|| hash))
    }
}

fn read_path(reader: &Reader) -> PathBuf {
    reader
        .path("path")
        .about(
            "Network to start from: a publisher's folder with config.json and weights, a file of weights (.safetensors, \
             .pth, .bin) or their index, or a TorchScript archive.",
        )
        .required_because("the folder, the file of weights or the TorchScript archive (.pt) to start from")
}

fn read_interpolation(reader: &Reader, usual: Option<Interpolation>) -> Interpolation {
    let field = reader.choice("interpolation");
    field
        .about("Filter by which images get the size of the network's input.")
        .or(usual.unwrap_or(Interpolation::Bicubic))
}

fn read_crop_pct(reader: &Reader, usual: Option<f64>) -> f64 {
    reader
        .float("crop_pct", Bounds::between(0.1, 1.0))
        .about("Share of the side of a resized image that the centre crop keeps, as in timm; for images from files.")
        .or(usual.unwrap_or(1.0))
}

/// Reports keys that a module needs, and those that mean nothing to it.
fn check_module(reader: &Reader, kind: Kind, path: &Path) {
    if kind != Kind::Module {
        return;
    }
    if path.is_dir() {
        reader.problem("kind", "a module is a TorchScript archive (.pt), and path is a folder: leave kind out");
    }
    if !reader.has("image_size") {
        reader.problem("image_size", "must be set with kind = \"module\", since a module does not tell it");
    }
    for key in ["architecture", "heads", "activation", "eps"].into_iter().filter(|key| reader.has(key)) {
        reader.problem(key, "means nothing with kind = \"module\", which runs the module's own forward: leave it out");
    }
}

/// Reports keys that mean nothing to what the network takes.
fn check_medium(reader: &Reader, medium: Medium) {
    let (keys, why): (&[&str], &str) = match medium {
        Medium::Images => (&["max_tokens"], "is for language networks: leave it out, or set kind = \"language\""),
        Medium::Questions => (
            &["image_size", "architecture", "heads", "activation", "eps"],
            "means nothing to a network of images and texts, whose config.json says it: leave it out",
        ),
        Medium::Texts => (
            &["image_size", "normalize", "interpolation", "architecture", "heads", "activation", "eps"],
            "means nothing to a language network, whose config.json says everything: leave it out",
        ),
    };
    keys.iter().filter(|key| reader.has(key)).for_each(|key| reader.problem(key, why));
}

fn is_native(kind: &Kind) -> bool {
    *kind == Kind::Native
}

/// Tells serde to omit the default, so that runs keep their identity.
fn is_all(crop_pct: &f64) -> bool {
    *crop_pct == 1.0
}

fn is_bicubic(interpolation: &Interpolation) -> bool {
    *interpolation == Interpolation::Bicubic
}
