//! Looks at the checkpoint of a user, on which a first config depends: its normalisation, classifier and text tower.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::layouts::expanded;
use crate::hub;
use crate::model::encoder::{self, Encoder, is_encoder};
use crate::model::folder::{Preprocessing, home, usual_normalize, values_of};
use crate::model::module::{Limit, Opened, Wanted, open};
use crate::model::network::{Network, SlotKind};
use crate::model::recognition::identify::{Fixed, Identified};
use crate::model::recognition::naming::Supposed;
use crate::model::{Normalize, OpenedCheckpoint, language, sighted};
use crate::schema::Choice;

/// The low-rank subspace of a vision transformer, as text.
const LOW_RANK: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"mlp.fc\", \"mlp.proj\"] # also attn.qkv, attn.proj\n";

/// The low-rank subspace of a network of texts, as text.
const LOW_RANK_OF_TEXTS: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"attn.q\", \"attn.v\"] # also attn.k, attn.proj, mlp.fc, mlp.proj\n";

/// The same of a network whose queries, keys and values are one layer.
const LOW_RANK_OF_FUSED: &str =
    "[subspace.low-rank]\nrank = 4\ntargets = [\"attn.qkv\"] # also attn.proj and the layers of the MLP\n";

/// Returns the low-rank subspace of a network of texts, whose queries, keys and values may be one layer.
fn low_rank_of_texts(is_fused: bool) -> String {
    if is_fused { LOW_RANK_OF_FUSED.into() } else { LOW_RANK_OF_TEXTS.into() }
}

/// The line of the precision of a network that bella computes itself.
const FASTEST: &str = "precision = \"auto\" # bf16 where this machine computes it natively";

/// A network that has been opened and self-checked.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The path or the name, as the user gives it but with variables of the environment replaced.
    pub path: PathBuf,
    /// A description in one line.
    pub about: String,
    /// The value of `checkpoint.normalize` with the reason for it; `None` if files beside the weights tell it.
    pub normalize: Option<Suggested>,
    /// The number of classes of the checkpoint's own classifier, if it has one.
    pub classes: Option<usize>,
    /// Whether it has a text tower, from which a classifier can be built.
    pub has_text: bool,
    /// More lines of `[checkpoint]`.
    pub lines: String,
    /// The line of the precision.
    pub precision: &'static str,
    /// The table of the low-rank subspace, or of the one that takes its place where there is nothing to adapt.
    pub low_rank: String,
    /// More lines of the table of a set of questions, for a network that answers some.
    pub questions: Option<&'static str>,
}

impl Checkpoint {
    /// Opens a checkpoint as training would: a vision transformer, a text encoder, or a module of images with `module_size`
    /// pixels per side. Of a network that writes, whose weights may be many, the config alone is read.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if its network is not known.
    pub fn look(path: &Path, module_size: Option<i64>) -> Result<Checkpoint> {
        let path = &expanded(path)?;
        let local = hub::local(path)?;
        anyhow::ensure!(local.exists(), "{}: no such file or folder", path.display());
        let found = match module_size {
            Some(side) => Checkpoint::look_at_module(&local, side),
            None if is_encoder(&local) => Checkpoint::look_at_encoder(&local),
            None if language::is_language(&local) => Checkpoint::look_at_decoder(&local),
            None if sighted::is_sighted(&local) => Checkpoint::look_at_sighted(&local),
            None => Checkpoint::look_at_vit(&local),
        }?;
        Ok(Checkpoint { path: path.to_path_buf(), ..found })
    }

    fn look_at_vit(path: &Path) -> Result<Checkpoint> {
        let mut opened = OpenedCheckpoint::open(path, Fixed::default())?;
        opened.fit(None, &Preprocessing::of(path))?;
        let has_text = opened.text().context("the text tower")?.is_some();
        let Identified { vit, naming, head, .. } = &opened.identified;
        let geometry = &vit.geometry;
        let side = geometry.image_size();
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{} ViT, width {}, {} blocks, patch {}, {side} px{}",
                naming.key,
                geometry.width,
                geometry.blocks,
                geometry.patch,
                if has_text { ", with a text tower" } else { "" }
            ),
            normalize: suggested(path, naming.normalize),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text,
            lines: String::new(),
            precision: FASTEST,
            low_rank: LOW_RANK.into(),
            questions: None,
        })
    }

    fn look_at_encoder(path: &Path) -> Result<Checkpoint> {
        let stated = encoder::Stated::of(path);
        let asked = encoder::Asked { features: stated.features(), ..encoder::Asked::default() };
        let limit = Limit { tokens: stated.tokens(), ..Limit::default() };
        let opened = encoder::open(path, &home(path), limit, asked)?;
        let Encoder { geometry, tokens, .. } = &opened.encoder;
        // What the folder says, bella does not compute, so that the config must say what takes its place.
        let features = stated.refused().map_or(String::new(), |why| {
            let why = why.replace('\n', " ");
            format!("# {why}\nfeatures = \"{}\" # or \"mean\"\nunit_features = false\n", geometry.features.word())
        });
        let encoder::Geometry { width, blocks, .. } = geometry;
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{}, a text encoder, width {width}, {blocks} blocks, texts of at most {tokens} tokens",
                geometry.family.about
            ),
            normalize: None,
            classes: opened.head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text: false,
            lines: format!(
                "{features}max_tokens = {tokens} # fewer take less time\ntruncate = true # longer texts are cut\n"
            ),
            precision: FASTEST,
            low_rank: low_rank_of_texts(geometry.traits.is_fused),
            questions: None,
        })
    }

    fn look_at_decoder(path: &Path) -> Result<Checkpoint> {
        let values = values_of(path)?;
        let network = language::described(&values, None)?;
        let classes = values.classifies_texts().then(|| values.classes()).transpose()?;
        let language::Geometry { width, blocks, family, traits, .. } = &network.geometry;
        let tokens = network.tokens;
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!("{}, width {width}, {blocks} blocks, texts of at most {tokens} tokens", family.about),
            normalize: None,
            classes: classes.map(|(_, count)| count as usize),
            has_text: false,
            lines: format!("max_tokens = {tokens} # longer texts are refused\n"),
            precision: FASTEST,
            low_rank: low_rank_of_texts(traits.is_qkv_fused),
            questions: None,
        })
    }

    fn look_at_sighted(path: &Path) -> Result<Checkpoint> {
        let network = sighted::described(&values_of(path)?, None, Normalize::CLIP)?;
        let (language::Geometry { width, blocks, family, traits, .. }, eyes) =
            (&network.language.geometry, &network.sight.eyes);
        let (tokens, patches) = (network.language.tokens, network.sight.patches());
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!(
                "{} on {}, width {width}, {blocks} blocks, {} px, prompts of at most {tokens} tokens",
                eyes.family.about, family.about, eyes.image_size
            ),
            normalize: suggested(path, Supposed { value: Normalize::CLIP, why: "compare with its model card" }),
            classes: None,
            has_text: false,
            lines: format!("max_tokens = {tokens} # {patches} of the image, and those of the text\n"),
            precision: FASTEST,
            low_rank: low_rank_of_texts(traits.is_qkv_fused),
            questions: Some(eyes.family.questions),
        })
    }

    fn look_at_module(path: &Path, side: i64) -> Result<Checkpoint> {
        let Opened { module, base, head, .. } = open(path, &Wanted::Images(side))?;
        let slots = module.slots();
        let has = |kind: SlotKind| slots.iter().any(|slot| slot.kind == kind);
        let targets: Vec<&str> = [(SlotKind::Linear, "\"linear\""), (SlotKind::Pointwise, "\"pointwise\"")]
            .into_iter()
            .filter_map(|(kind, target)| has(kind).then_some(target))
            .collect();
        let low_rank = match &targets[..] {
            [] => "[subspace.full] # the module has no linear layers or 1 x 1 convolutions to adapt\n".to_string(),
            targets => format!("[subspace.low-rank]\nrank = 4\ntargets = [{}]\n", targets.join(", ")),
        };
        Ok(Checkpoint {
            path: path.to_path_buf(),
            about: format!("a module with {} parameters, {side} px", base.count()),
            normalize: Some(Suggested::of(Supposed {
                value: Normalize::IMAGENET,
                why: "as most of torchvision's and timm's networks; compare with its model card",
            })),
            classes: head.as_ref().map(|head| head.weight.size()[0] as usize),
            has_text: false,
            lines: format!("kind = \"module\" # it runs by its own forward\nimage_size = {side}\n"),
            precision: "precision = \"f32\" # a module computes in the type in which it is stored",
            low_rank,
            questions: None,
        })
    }
}

/// The value of a key that nothing tells, and the reason for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggested {
    pub value: String,
    pub why: String,
}

impl Suggested {
    fn of(supposed: Supposed) -> Suggested {
        Suggested { value: supposed.value.in_config(), why: supposed.why.to_string() }
    }
}

/// Returns a value of `checkpoint.normalize` for weights beside which nothing tells it: that of the model type, where a config names one,
/// else the usual one. `None` if it is told.
fn suggested(path: &Path, usual: Supposed) -> Option<Suggested> {
    Preprocessing::of(path).normalize.is_none().then(|| match usual_normalize(path) {
        Some((model_type, of_type)) => Suggested {
            value: of_type.in_config(),
            why: format!("as published networks of model_type {model_type}; compare with its model card"),
        },
        None => Suggested::of(usual),
    })
}
