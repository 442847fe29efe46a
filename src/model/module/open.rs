//! Opens a TorchScript module and finds out, by running it, what training needs to know: what its output is, whether
//! its last operation is a classifier, and how much memory a pass keeps.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tch::Kind;

use crate::data::Medium;
use crate::model::archive::{Archive, NO_PARAMETERS};
use crate::model::backbone::{self, Alike, Backbone, Held, Images, Opening, Parts};
use crate::model::kind::{Foreign, KindEntry, OF_TEXTS, StandIn, TokenizerAt};
use crate::model::module::intake::{Copies, Intake, Stored, stored};
use crate::model::module::tokens::Limit;
use crate::model::module::trial::{Named, Samples, Trial};
use crate::model::module::{Module, Texts, Tokenizer};
use crate::model::network::{HEAD, Network, Parameters, expect_finite};
use crate::model::preparation::{AsStored, Preparation};
use crate::model::recognition::identify::{check_images, check_rows};
use crate::model::vit::OwnHead;

/// What a module is opened for.
pub enum Wanted {
    /// Images of this many pixels per side.
    Images(i64),
    /// Texts by the tokenizer at a path.
    Texts { tokenizer: PathBuf, limit: Limit },
    /// Rows of this many numbers.
    Rows(i64),
}

/// A module that was loaded and tried.
pub struct Opened {
    pub module: Module,
    /// The parameters that particles may train, which are all but the classifier's.
    pub base: Parameters,
    /// The last linear layer, if it is the module's last operation.
    pub head: Option<OwnHead>,
    /// Whether the module normalises by running statistics, which stay as they are stored.
    pub running_statistics: bool,
    /// The tokenizer of a module that takes texts.
    pub tokenizer: Option<Box<Tokenizer>>,
}

/// Opens the module at `path`.
///
/// # Errors
/// Fails if the archive cannot be opened or does not run on what is wanted, if it is not stored in f32, if a parameter is not
/// finite or shares its memory with another tensor, if its output is not a vector per sample that depends on that sample alone, or
/// if the tokenizer does not belong to it.
pub fn open(path: &Path, wanted: &Wanted) -> Result<Opened> {
    let shown = path.display();
    let archive = Archive::open(path)?;
    check_inputs(&archive, wanted).with_context(|| shown.to_string())?;
    archive.check_apart()?;
    let running_statistics = archive.code_has("running_mean");
    let (intake, samples, tokenizer) = match wanted {
        Wanted::Images(size) => (Intake::Images(*size), Samples::of_one_size(check_images(*size)), None),
        Wanted::Rows(width) => (Intake::Rows(*width), Samples::of_one_size(check_rows(*width)), None),
        Wanted::Texts { tokenizer, limit } => {
            let inputs = archive.inputs().len();
            let tokenizer = Tokenizer::open(tokenizer, *limit, inputs)?;
            let texts = Texts { tokens: tokenizer.tokens, inputs, padding: tokenizer.padding };
            let samples = Samples::of_texts(&texts, tokenizer.largest);
            (Intake::Texts(texts), samples, Some(Box::new(tokenizer)))
        }
    };
    archive.try_first(Some(intake.method(&archive)), &intake.arguments(&intake.samples(samples.batch())))?;
    let parameters = stored(&archive).with_context(|| shown.to_string())?;
    check_parameters(&parameters).with_context(|| shown.to_string())?;
    let tables = tables(&archive, &parameters);
    let trial = Trial { parameters: named(parameters), samples };
    let mut copies = Copies::new(archive, intake, trial.sources(None));
    tokenizer.iter().try_for_each(|of| trial.check_tokens(&copies, of)).with_context(|| shown.to_string())?;
    let output = trial.output(&copies).with_context(|| shown.to_string())?;
    let found = trial.classifier(&mut copies, &output)?;
    let kept_bytes = trial.kept_bytes(&copies).with_context(|| shown.to_string())?;
    let (width, base) = (found.as_ref().map_or(output.size()[1], |own| own.weight.size()[1]), trial.base(&copies));
    let shapes = base.all().iter().map(|(name, tensor)| (name.clone(), tensor.size())).collect();
    let module = Module { copies, shapes, tables, width, kept_bytes };
    Ok(Opened { module, base, head: found, running_statistics, tokenizer })
}

/// Checks that the archive's `forward` takes what is wanted, as far as its code tells.
fn check_inputs(archive: &Archive, wanted: &Wanted) -> Result<()> {
    let (inputs, takes_texts) = (archive.inputs(), archive.takes_texts());
    let named = inputs.join(", ");
    match wanted {
        Wanted::Images(_) => ensure!(
            !takes_texts,
            "its forward takes {} tensors ({named}), as that of a text encoder: name its tokenizer by checkpoint.tokenizer, and \
             leave image_size out",
            inputs.len()
        ),
        Wanted::Rows(_) => ensure!(
            inputs.len() == 1,
            "its forward takes {} tensors ({named}), and that of rows of numbers takes one: for texts, leave checkpoint.inputs out and set \
             tokenizer",
            inputs.len()
        ),
        Wanted::Texts { .. } => ensure!(
            takes_texts,
            "its forward takes {} ({named}), and that of a text encoder takes token ids, their mask and, if it has them, their \
             kinds: for a module of images, leave checkpoint.tokenizer out and set image_size",
            if inputs.len() == 1 { "one tensor".to_string() } else { format!("{} tensors", inputs.len()) }
        ),
    }
    Ok(())
}

/// Returns the names among trained parameters of the tables of embeddings.
fn tables(archive: &Archive, parameters: &[Stored]) -> std::collections::BTreeSet<String> {
    let tables = parameters.iter().filter(|stored| archive.is_table(&stored.name));
    tables.map(|stored| trained_as(&parameters[stored.first].name)).collect()
}

fn check_parameters(parameters: &[Stored]) -> Result<()> {
    ensure!(!parameters.is_empty(), NO_PARAMETERS);
    if let Some(Stored { name, tensor, .. }) = parameters.iter().find(|stored| stored.tensor.kind() != Kind::Float) {
        bail!(
            "`{name}` is stored as {:?}, and a module computes in the type in which it is stored: export it in f32 \
             (model.float())",
            tensor.kind()
        );
    }
    parameters.iter().try_for_each(|Stored { name, tensor, .. }| expect_finite(&format!("`{name}`"), tensor))
}

/// Returns the name of a module's parameter among those that particles train: `head.` belongs to bella's own heads.
pub fn trained_as(stored: &str) -> String {
    if stored.starts_with(HEAD) { format!("module.{stored}") } else { stored.to_string() }
}

/// Returns the parameters under their own names.
fn named(parameters: Vec<Stored>) -> Vec<Named> {
    let known: Vec<String> = parameters.iter().map(|stored| stored.name.clone()).collect();
    let one = |Stored { name, tensor, first }| Named { stored: name, name: trained_as(&known[first]), tensor };
    parameters.into_iter().map(one).collect()
}

pub static KIND: KindEntry = KindEntry {
    word: "module",
    open: opened,
    lies_at: |_| false,
    reads: |_| false,
    is_folder: false,
    outline: Err(
        "operations are counted from a network's shape, which a module does not show: measure it by a short `bella train` \
         (train.epochs = 1, data.*.subset)",
    ),
    stand_in: StandIn::Impossible("runs the module's own forward, for which nothing can stand in"),
    bench: &[],
    medium: |has_tokenizer| if has_tokenizer { Medium::Texts } else { Medium::Images },
    tokenizer: TokenizerAt::BesideOrNamed,
    foreign: |medium| match medium {
        Medium::Texts => Foreign {
            keys: &["image_size", "normalize", "interpolation", "crop_pct"],
            why: "means nothing to a module of texts: leave it out",
        },
        Medium::Rows => Foreign {
            keys: &["image_size", "normalize", "interpolation", "crop_pct", "tokenizer", "max_tokens", "truncate"],
            why: "means nothing to a module of rows of numbers (inputs): leave it out",
        },
        _ => OF_TEXTS,
    },
};

/// Opens the module of a config.
fn opened<'a>(opening: &Opening<'a>) -> Result<backbone::Opened<'a>> {
    let limit = Limit { tokens: opening.max_tokens, truncate: opening.truncate, ..Limit::default() };
    let wanted = match (opening.tokenizer, opening.inputs, opening.image_size) {
        (Some(tokenizer), ..) => Wanted::Texts { tokenizer: tokenizer.to_path_buf(), limit },
        (None, Some(inputs), _) => Wanted::Rows(inputs),
        (None, None, size) => Wanted::Images(size.context("checkpoint.image_size: must be set for a module")?),
    };
    open(opening.path, &wanted).map(backbone::Opened::alone)
}

/// A TorchScript module that runs by its own forward.
impl Backbone for Opened {
    fn held(&self) -> Held<'_> {
        Held { network: &self.module, base: &self.base, names: None, head: self.head.as_ref() }
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn naming(&self) -> &'static str {
        "module"
    }

    fn check_kind(&self, kind: Kind) -> Result<()> {
        ensure!(
            kind == Kind::Float,
            "train.precision: a module (checkpoint.kind = \"module\") computes in f32 only: set precision = \"f32\""
        );
        Ok(())
    }

    fn read_like(&self, path: &Path) -> Result<Alike> {
        bail!("{}: a module has its own code and is read as a checkpoint only", path.display())
    }

    fn announce(&self) -> Option<f64> {
        let (module, parameters) = (&self.module, self.base.count());
        let head = match &self.head {
            Some(own) => format!("its last layer is a classifier of {} classes", own.weight.size()[0]),
            None => "its last operation is no linear layer, so its output counts as features".to_string(),
        };
        let taken = module.intake().about();
        tracing::info!(
            "checkpoint: a module of {parameters} parameters, {taken}, features {} wide; {head}",
            module.feature_width()
        );
        if self.running_statistics {
            tracing::info!("checkpoint: normalisation with running statistics stays in evaluation mode");
        }
        match module.kept_bytes() {
            0 => tracing::warn!(
                "checkpoint: this system does not tell how much memory the module takes, so none is planned"
            ),
            bytes => tracing::debug!(
                "checkpoint: a graph keeps {:.1} MiB per {}",
                bytes as f64 / f64::from(1 << 20),
                module.intake().sample()
            ),
        }
        None
    }

    fn into_parts(self: Box<Self>, images: &Images) -> Result<Parts> {
        let preparation: Box<dyn Preparation> = match (self.module.intake().image_size(), self.tokenizer) {
            (Some(size), _) => images(size)?,
            (None, Some(tokenizer)) => tokenizer,
            (None, None) => Box::new(AsStored),
        };
        Ok(Parts { network: Box::new(self.module), base: self.base, preparation })
    }
}
