//! Logs what the checkpoint of a session is.

use crate::model::Backbone;
use crate::model::encoder::Encoder;
use crate::model::module::{Intake, Opened};
use crate::model::network::Network;
use crate::model::recognition::identify::{Evidence, Identified};
use crate::model::{encoder, language, llava};

/// Logs what the checkpoint is; returns the difference of its self-check, if there was one.
pub fn report(tower: &Backbone) -> Option<f64> {
    match tower {
        Backbone::Vit(identified) => return report_vit(identified),
        Backbone::Module(opened) => report_module(opened),
        Backbone::Encoder(opened) => report_encoder(opened),
        Backbone::Language(opened) => report_language(opened),
        Backbone::Llava(opened) => report_llava(opened),
    }
    None
}

/// Logs what a vision transformer is and how it was checked; returns the difference of the self-check.
fn report_vit(identified: &Identified) -> Option<f64> {
    let (geometry, traits) = (&identified.vit.geometry, identified.vit.traits);
    tracing::info!(
        "checkpoint: {} ViT, width {}, {} blocks, {} heads, patch {}, {} px, {}, eps {:e}",
        identified.naming.key,
        geometry.width,
        geometry.blocks,
        traits.heads,
        geometry.patch,
        geometry.image_size(),
        traits.activation,
        traits.eps
    );
    match &identified.evidence {
        Evidence::SelfCheck { difference, .. } => {
            tracing::debug!("self-check: relative difference {:.1e}", difference.relative);
            Some(difference.relative)
        }
        Evidence::Config { reference: Some(difference) } => {
            tracing::debug!("reference: relative difference {:.1e}", difference.relative);
            Some(difference.relative)
        }
        Evidence::Config { reference: None } => {
            tracing::info!(
                "checkpoint: every tensor has its place; no reference.safetensors beside it to compare features with"
            );
            None
        }
        Evidence::Code { reason } => {
            tracing::warn!("the archive's own forward does not run here, so the native one is not checked ({reason})");
            None
        }
    }
}

/// Logs what a text encoder is.
fn report_encoder(opened: &encoder::Opened) {
    let encoder::Opened { encoder: Encoder { geometry, tokens, .. }, base, .. } = opened;
    tracing::info!(
        "checkpoint: {} ({}), {} parameters, width {}, {} blocks, {} heads, texts of at most {tokens} tokens",
        geometry.family.model_type,
        geometry.family.about,
        base.count(),
        geometry.width,
        geometry.blocks,
        geometry.heads
    );
}

/// Logs what a language network is.
fn report_language(opened: &language::Opened) {
    let (geometry, tokens) = (&opened.language.geometry, opened.language.tokens);
    tracing::info!(
        "checkpoint: {} ({}), {} parameters, width {}, {} blocks, {} heads ({} of keys), prompts of at most {tokens} tokens",
        geometry.family.model_type,
        geometry.family.about,
        opened.base.count(),
        geometry.width,
        geometry.blocks,
        geometry.heads,
        geometry.key_heads
    );
}

/// Logs what a network that reads questions about images is.
fn report_llava(opened: &llava::Opened) {
    let (language, sight) = (&opened.llava.language, &opened.llava.sight);
    tracing::info!(
        "checkpoint: llava on {} ({}), {} parameters, width {}, {} blocks; an image of {} px a side is {} of at most {} tokens",
        language.geometry.family.model_type,
        language.geometry.family.about,
        opened.base.count(),
        language.geometry.width,
        language.geometry.blocks,
        sight.eyes.image_size,
        sight.patches(),
        language.tokens
    );
}

/// Logs what a module is, and what it does not do.
fn report_module(opened: &Opened) {
    let (module, parameters) = (&opened.module, opened.base.count());
    let head = match &opened.head {
        Some(own) => format!("its last layer is a classifier of {} classes", own.weight.size()[0]),
        None => "its last operation is no linear layer, so its output counts as features".to_string(),
    };
    let taken = match module.intake() {
        Intake::Images(size) => format!("{size} px"),
        Intake::Texts(texts) => format!("texts of at most {} tokens", texts.tokens),
    };
    tracing::info!(
        "checkpoint: a module of {parameters} parameters, {taken}, features {} wide; {head}",
        module.feature_width()
    );
    if opened.running_statistics {
        tracing::info!("checkpoint: normalisation with running statistics stays in evaluation mode");
    }
    match module.kept_bytes() {
        0 => {
            tracing::warn!("checkpoint: this system does not tell how much memory the module takes, so none is planned")
        }
        bytes => tracing::debug!(
            "checkpoint: a graph keeps {:.1} MiB per {}",
            bytes as f64 / f64::from(1 << 20),
            module.intake().sample()
        ),
    }
}
