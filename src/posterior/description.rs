//! The description of a posterior in the metadata of `posterior.safetensors`, as JSON, so that other programs can use it.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::base::tensor_file::State;
use crate::data::Centre;
use crate::model::stored::{Piece, StoredNames};
use crate::model::{CheckpointSpec, Normalize};
use crate::subspace::{Shape, Subspace};

/// The version of these entries.
const FORMAT: &str = "bella-posterior-1";

/// The method, subspace, checkpoint and head of a posterior. Each field is an entry of the metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The key of the method, such as `svgd`.
    pub method: String,
    /// The key of the subspace: `low-rank` or `full`.
    pub subspace: String,
    /// The parameters that a row of theta consists of.
    pub layout: Vec<Parameters>,
    pub checkpoint: Source,
    pub head: HeadKind,
    /// The preparation of images; `None` for a network that takes none.
    pub preprocessing: Option<Preprocessing>,
}

/// The checkpoint that the posterior is an update of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The name of its file or folder.
    pub name: String,
    /// The SHA-256 of its content; of a folder that of the hashes of its files.
    pub sha256: String,
    /// The family of its parameters' names, such as `timm`.
    pub naming: String,
}

/// The classifier behind the features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadKind {
    /// The key of the head, such as `linear`.
    pub kind: String,
    /// Whether features are L2-normalised before it.
    pub normalised: bool,
    /// The rows of a language network's output matrix that are its weight: the tokens of label words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<i64>>,
}

/// The preparation of images with pixels in [0, 1].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preprocessing {
    /// The number of pixels per side.
    pub image_size: i64,
    pub mean: [f64; 3],
    pub std: [f64; 3],
    /// The filter that resizes images.
    pub interpolation: String,
    /// The share of the resized shorter side that the centre crop keeps, if it is not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop_pct: Option<f64>,
    /// How half of an odd number of pixels beside the centre crop is rounded, if not to an even number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub centre: Option<String>,
}

impl Preprocessing {
    /// Returns the preparation for a checkpoint whose images have `image_size` pixels per side.
    ///
    /// # Errors
    /// Fails for a language network.
    pub fn new(image_size: i64, checkpoint: &CheckpointSpec) -> Result<Preprocessing> {
        let Normalize { mean, std } = checkpoint.normalization()?;
        let crop_pct = Some(checkpoint.crop_pct).filter(|share| *share < 1.0);
        let centre = Some(checkpoint.usual.centre).filter(|centre| *centre != Centre::Even);
        let (interpolation, centre) = (checkpoint.interpolation.to_string(), centre.map(|centre| centre.to_string()));
        Ok(Preprocessing { image_size, mean, std, interpolation, crop_pct, centre })
    }
}

/// Columns of theta: the factors of a layer's update, or a parameter itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Parameters {
    /// ΔW = alpha / rank · B A of the weight `name`: first A `[rank, inputs]`, then B `[outputs, rank]`, by rows.
    LowRank {
        name: String,
        start: i64,
        rank: i64,
        alpha: f64,
        scale: f64,
        inputs: i64,
        outputs: i64,
        stored_as: Vec<Piece>,
        /// Whether ΔW is added to the weight without its first `rank` singular directions (PiSSA).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        without_principal: bool,
    },
    /// The values of the parameter `name` in `shape`, by rows.
    Whole { name: String, start: i64, shape: Vec<i64>, stored_as: Vec<Piece> },
}

/// Returns the parameters of a layout, with the names under which the checkpoint stores them.
pub fn parameters(subspace: &dyn Subspace, names: &StoredNames) -> Vec<Parameters> {
    let (layout, without_principal) = (subspace.layout(), subspace.moves_base());
    let mut all = Vec::new();
    for block in &layout.blocks {
        let start = block.columns.start;
        match block.shape {
            Shape::LowRank { rank, inputs, outputs, scale } => {
                let name = format!("{}.weight", block.name);
                let stored_as = names.pieces(&name, outputs);
                let alpha = alpha(rank, scale);
                all.push(Parameters::LowRank {
                    name,
                    start,
                    rank,
                    alpha,
                    scale,
                    inputs,
                    outputs,
                    stored_as,
                    without_principal,
                });
            }
            Shape::Dense => {
                for column in layout.columns.iter().filter(|column| block.columns.contains(&column.start)) {
                    let (name, shape) = (column.name.clone(), column.shape.clone());
                    let stored_as = names.pieces(&name, shape.first().copied().unwrap_or(1));
                    all.push(Parameters::Whole { name, start: column.start, shape, stored_as });
                }
            }
        }
    }
    all
}

/// Returns α with α / rank = `scale`. It is a whole number in most configs, which the division need not give back.
pub fn alpha(rank: i64, scale: f64) -> f64 {
    let alpha = scale * rank as f64;
    let whole = alpha.round();
    if whole / rank as f64 == scale { whole } else { alpha }
}

impl Description {
    /// Adds the entries to a file's metadata.
    ///
    /// # Errors
    /// Fails if a number is not finite.
    pub fn save(&self, state: &mut State) -> Result<()> {
        state.describe("format", FORMAT.to_string());
        state.describe("method", self.method.clone());
        state.describe("subspace", self.subspace.clone());
        state.describe("layout", serde_json::to_string(&self.layout)?);
        state.describe("checkpoint", serde_json::to_string(&self.checkpoint)?);
        state.describe("head", serde_json::to_string(&self.head)?);
        if let Some(preprocessing) = &self.preprocessing {
            state.describe("preprocessing", serde_json::to_string(preprocessing)?);
        }
        Ok(())
    }

    /// Reads the entries.
    ///
    /// # Errors
    /// Fails if they are of another format, or if one is missing or damaged.
    pub fn load(state: &State) -> Result<Description> {
        let format = state.described("format").unwrap_or("none");
        ensure!(
            format == FORMAT,
            "the metadata's `format` is {format}, and this program reads {FORMAT}: train the run again with --force"
        );
        let text = |key: &str| state.described(key).with_context(|| format!("the metadata lacks `{key}`"));
        fn parsed<T: for<'a> Deserialize<'a>>(text: &str, key: &str) -> Result<T> {
            serde_json::from_str(text).with_context(|| format!("the metadata's `{key}` is damaged"))
        }
        Ok(Description {
            method: text("method")?.to_string(),
            subspace: text("subspace")?.to_string(),
            layout: parsed(text("layout")?, "layout")?,
            checkpoint: parsed(text("checkpoint")?, "checkpoint")?,
            head: parsed(text("head")?, "head")?,
            preprocessing: state.described("preprocessing").map(|text| parsed(text, "preprocessing")).transpose()?,
        })
    }
}
