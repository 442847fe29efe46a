//! `[checkpoint]`: the pretrained network, and settings that its file does not contain.

use std::cell::OnceCell;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::folder::{Preprocessing, content};
use super::preprocess::Normalize;
use crate::base::hash::{file_sha256, text_sha256};
use crate::data::Interpolation;
use crate::model::vit::Activation;
use crate::schema::{Bounds, Reader};

/// The table `[checkpoint]`.
#[derive(Serialize)]
pub struct CheckpointSpec {
    pub path: PathBuf,
    /// The number of pixels per side; the checkpoint's own by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<i64>,
    pub normalize: Normalize,
    /// The filter that resizes images to the network's input.
    #[serde(skip_serializing_if = "is_bicubic")]
    pub interpolation: Interpolation,
    /// The number of attention heads, where the self-check cannot find it. `activation` and `eps` are set for the same
    /// reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// The image size that a folder asks for in pixels, used where `image_size` is not given.
    #[serde(skip)]
    pub usual_size: Option<i64>,
    /// The SHA-256 of the file, once it has been computed.
    #[serde(skip)]
    sha256: OnceCell<String>,
}

impl CheckpointSpec {
    /// Reads the table.
    pub fn read(reader: Reader) -> CheckpointSpec {
        let path = reader
            .path("path")
            .about(
                "Network to start from: a TorchScript archive, or a folder with config.json and safetensors weights.",
            )
            .required_because("the TorchScript archive (.pt) or the folder to start from");
        let usual = if path.is_dir() { Preprocessing::of(&path) } else { Preprocessing::default() };
        let spec = CheckpointSpec {
            path,
            image_size: reader
                .integer("image_size", 1..=4096)
                .about("Height and width of the network's input in pixels; the checkpoint's own by default.")
                .optional(),
            normalize: Normalize::read(&reader, usual.normalize),
            interpolation: reader
                .choice("interpolation")
                .about("Filter by which images get the size of the network's input.")
                .or(usual.interpolation.unwrap_or(Interpolation::Bicubic)),
            heads: reader
                .integer("heads", 1..=1024)
                .about("Number of attention heads, where the self-check cannot find it.")
                .optional(),
            activation: reader
                .choice("activation")
                .about("Activation of the MLP layers, where the self-check cannot find it.")
                .optional(),
            eps: reader
                .float("eps", Bounds::above(0.0))
                .about("Epsilon of LayerNorm, where the self-check cannot find it.")
                .optional(),
            usual_size: usual.image_size,
            sha256: OnceCell::new(),
        };
        reader.finish();
        spec
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

/// Tells serde to omit the default, so that runs keep their identity.
fn is_bicubic(interpolation: &Interpolation) -> bool {
    *interpolation == Interpolation::Bicubic
}
