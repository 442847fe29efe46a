//! Turns an archive into a self-checked image tower and, if it has one, a self-checked text tower.

use anyhow::{Context, Result, anyhow, ensure};
use rand::RngExt;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, stream};
use crate::data::fields::{Fields, PIXELS};
use crate::model::archive::{Archive, NO_PARAMETERS};
use crate::model::network::{Network, Parameters, Weights};
use crate::model::recognition::complete::{Hints, check_readout, table_heads};
use crate::model::recognition::infer::{Candidates, Inferred, SelfCheck};
use crate::model::recognition::naming::Naming;
use crate::model::recognition::recognise::{Expected, Named, recognise};
use crate::model::recognition::text::TextWeights;
use crate::model::stored::StoredNames;
use crate::model::vit::architecture::architecture;
use crate::model::vit::arguments::Arguments;
use crate::model::vit::forward::Vit;
use crate::model::vit::text::TextTower;
use crate::model::vit::{OwnHead, Traits, heads_fit};

pub use crate::model::recognition::infer::{Difference, Evidence, Fixed, Source, Sources, compare};

/// Advice for an archive that the native forward pass does not serve.
const AS_MODULE: &str = "set checkpoint.kind = \"module\" to train it by its own forward";

/// Advice for an archive whose output no traits reproduce.
const OTHERWISE: &str = "bella runs pre-norm vision transformers only; if this is one, set checkpoint.heads, checkpoint.activation \
                         and checkpoint.eps, or give the folder of its publisher; if not, set checkpoint.kind = \"module\"";

/// The number of images, or texts, in the random batch of the self-check.
const CHECK_BATCH: i64 = 2;

/// A recognised and self-checked vision transformer.
pub struct Identified {
    pub vit: Vit,
    pub naming: &'static Naming,
    pub base: Parameters,
    pub head: Option<OwnHead>,
    pub evidence: Evidence,
    pub sources: Sources,
    pub stored: Kind,
    /// The names that the parameters have in the checkpoint.
    pub names: StoredNames,
    /// Why images must have the size of the position embeddings, if they must.
    pub fixed_size: Option<String>,
}

/// Recognises an archive and settles its traits.
///
/// # Errors
/// Fails if the module is of an unknown kind, or if the native forward pass does not reproduce its output; the message
/// gives the best difference.
pub fn identify(archive: &Archive, mut fixed: Fixed) -> Result<Identified> {
    let shown = archive.path.display().to_string();
    // Only a recognised archive is loaded. Its weights are let go before and read again after, so that they and libtorch's module
    // are not in memory together.
    let Named { geometry, base, .. } = read(archive, &fixed)?;
    fixed.heads = heads_of(&fixed, &base, geometry.width).map_err(|why| anyhow!("{shown}: {why:#}"))?;
    drop(base);
    let images = check_images(geometry.image_size());
    archive.try_images(&images)?;
    let reference = archive.encode_image(&archive.load()?, &images);
    let Named { naming, geometry, parts, base, head, names, .. } = read(archive, &fixed)?;
    let candidates = Candidates::new(geometry.width, &fixed, &Hints::read(&archive.code()));
    let native = |traits, width| {
        let vit = Vit::new(geometry.clone(), traits, parts);
        let features = vit.forward(&Weights::frozen(&base), &Fields::of(PIXELS, images.unsqueeze(0))).squeeze_dim(0);
        match &head {
            Some(own) if width == Some(own.weight.size()[0]) => features.linear(&own.weight, Some(&own.bias)),
            _ => features,
        }
    };
    let tower = Tower {
        shown: &shown,
        half: is_half(archive),
        base: &base,
        head: head.as_ref(),
        native: &native,
        advice: OTHERWISE,
        forward: "the archive's own forward",
        untold: "all: set checkpoint.heads, checkpoint.activation and checkpoint.eps",
    };
    let Inferred { traits, evidence } = tower.infer(reference, &candidates)?;
    let source = if matches!(evidence, Evidence::Code { .. }) { Source::Code } else { Source::SelfCheck };
    let sources = Sources::all(source).overridden(&fixed);
    let vit = Vit::new(geometry.clone(), traits, parts);
    Ok(Identified { vit, naming, base, head, evidence, sources, stored: archive.kind(), names, fixed_size: None })
}

/// Reads the weights of an archive's image tower.
///
/// # Errors
/// Fails if they cannot be read, or are not those of a vision transformer that bella knows.
fn read(archive: &Archive, fixed: &Fixed) -> Result<Named> {
    let shown = archive.path.display();
    let parameters = archive.parameters()?;
    ensure!(!parameters.is_empty(), "{shown}: {NO_PARAMETERS}");
    let mut named =
        recognise(&parameters, Expected::default()).map_err(|why| anyhow!("{shown}: {why:#}: {AS_MODULE}"))?;
    if let Some(name) = &fixed.architecture {
        named.parts.rope = Arguments::of(architecture(name).context("checkpoint.architecture")?).rope()?;
    }
    check_readout(&named.geometry, &named.parts, &named.base).with_context(|| shown.to_string())?;
    Ok(named)
}

/// Returns the number of heads that the config or the parameters tell, which must divide the width.
fn heads_of(fixed: &Fixed, base: &Parameters, width: i64) -> Result<Option<i64>> {
    let told = fixed.heads.or(table_heads(base));
    if let Some(heads) = told {
        ensure!(heads_fit(heads, width), "{heads} heads do not divide the width {width}: set another number");
    }
    Ok(told)
}

/// A recognised and self-checked text tower.
pub struct IdentifiedText {
    pub tower: TextTower,
    pub weights: TextWeights,
    pub evidence: Evidence,
}

/// Returns the text tower of an archive; `None` if it has none. `image` holds the settled traits of its image tower.
///
/// # Errors
/// Fails if the text tower differs from CLIP's, or if the native forward pass does not reproduce its output.
pub fn identify_text(archive: &Archive, image: Traits) -> Result<Option<IdentifiedText>> {
    let shown = format!("{}: text tower", archive.path.display());
    let read = || TextWeights::recognise(&archive.parameters()?, None).with_context(|| shown.clone());
    // As those of the image tower, the weights are read again once the module is gone.
    let Some(TextWeights { geometry, .. }) = read()? else { return Ok(None) };
    let tokens = check_tokens(geometry.vocabulary, geometry.context);
    archive.try_texts(&tokens)?;
    let reference = archive.encode_text(&archive.load()?, &tokens);
    let Some(weights) = read()? else { return Ok(None) };
    let mut hints = Hints::read(&archive.code());
    // Both towers of a CLIP model have the same activation and eps.
    (hints.activation, hints.eps) = (Some(image.activation), Some(image.eps));
    let candidates = Candidates::new(geometry.width, &Fixed::default(), &hints);
    let native = |traits, _| TextTower { geometry: geometry.clone(), traits }.features(&weights.parameters, &tokens);
    let tower = Tower {
        shown: &shown,
        half: is_half(archive),
        base: &weights.parameters,
        head: None,
        native: &native,
        advice: "bella runs CLIP's causal text transformer only; use head.zero-shot.weights instead",
        forward: "its own encode_text",
        untold: "the heads: use head.zero-shot.weights instead",
    };
    let Inferred { traits, evidence } = tower.infer(reference, &candidates)?;
    Ok(Some(IdentifiedText { tower: TextTower { geometry, traits }, weights, evidence }))
}

/// A tower whose traits must be settled, and the words for messages about it.
struct Tower<'a> {
    shown: &'a str,
    /// Whether the archive computes in half precision.
    half: bool,
    base: &'a Parameters,
    head: Option<&'a OwnHead>,
    /// The native forward pass with given traits. Its output has the width of the archive's own output, if that is
    /// known.
    native: &'a dyn Fn(Traits, Option<i64>) -> Tensor,
    /// The advice printed if no candidate fits.
    advice: &'a str,
    forward: &'a str,
    /// The facts that the archive's code does not tell, with advice.
    untold: &'a str,
}

impl Tower<'_> {
    /// Returns the traits that reproduce the archive's own output, or, if it does not run here, those found in its
    /// code.
    fn infer(&self, reference: Result<Tensor>, candidates: &Candidates) -> Result<Inferred> {
        let Tower { shown, half, base, head, native, advice, forward, untold } = *self;
        match reference {
            Ok(reference) => {
                let width = reference.size().last().copied();
                let check = SelfCheck { reference, native: &|traits| native(traits, width), half, advice };
                // With weights that are not finite, nothing reproduces anything.
                let is_sound = || base.check_finite().and_then(|()| head.map_or(Ok(()), OwnHead::check_finite));
                let found = check.infer(candidates).or_else(|why| is_sound().and(Err(why)));
                found.with_context(|| shown.to_string())
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let told = candidates.told.with_context(|| {
                    format!("{shown}: {forward} does not run here ({reason}) and its code does not tell {untold}")
                })?;
                Ok(Inferred { traits: told, evidence: Evidence::Code { reason } })
            }
        }
    }
}

fn is_half(archive: &Archive) -> bool {
    matches!(archive.kind(), Kind::Half | Kind::BFloat16)
}

/// Returns a random batch without using libtorch's generator.
pub fn check_images(size: i64) -> Tensor {
    check_rows(3 * size * size).view([CHECK_BATCH, 3, size, size])
}

/// Returns a random batch of rows `[B, F]` of F numbers.
pub fn check_rows(width: i64) -> Tensor {
    let mut rng = stream(0, Purpose::Check, &[]);
    let numbers: Vec<f32> = (0..CHECK_BATCH * width).map(|_| rng.random_range(-2.0f32..2.0)).collect();
    Tensor::from_slice(&numbers).view([CHECK_BATCH, width])
}

/// Returns random texts `[B, T]` of different lengths: start, tokens, end (the largest token), zeros.
fn check_tokens(vocabulary: i64, context: i64) -> Tensor {
    let mut rng = stream(0, Purpose::Check, &[]);
    let mut tokens = Vec::new();
    for text in 0..CHECK_BATCH {
        let length = (context - context / 3 * text).max(2);
        tokens.push(vocabulary - 2);
        tokens.extend((0..length - 2).map(|_| rng.random_range(0..vocabulary - 2)));
        tokens.push(vocabulary - 1);
        tokens.extend((length..context).map(|_| 0));
    }
    Tensor::from_slice(&tokens).view([CHECK_BATCH, context])
}
