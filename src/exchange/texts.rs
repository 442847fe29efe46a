//! Whether fine-tuned copies of a checkpoint with a tower of texts make the same zero-shot head of these: the particles have their towers of
//! images alone.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::expected;
use super::found::is_adapter;
use crate::model::recognition::identify::IdentifiedText;
use crate::model::{CheckpointSpec, folder};

/// Checks that the models among the folders have the tower of texts of the checkpoint, if they have one.
///
/// # Errors
/// Fails if one of them has another one, or if a tower cannot be read.
pub fn expect_texts(folders: &[PathBuf], checkpoint: &CheckpointSpec) -> Result<()> {
    let mut models = folders.iter().filter(|path| !is_adapter(path)).peekable();
    if models.peek().is_none() {
        return Ok(());
    }
    let Some(own) = (checkpoint.open()?.text)()? else { return Ok(()) };
    for path in models {
        let Some(other) = folder::identify_text(path, &checkpoint.fixed)? else { continue };
        ensure!(
            makes_same(&own, &other),
            "{}: its tower of texts is not that of {}, of which the zero-shot head of the particles is made: {}",
            path.display(),
            checkpoint.path.display(),
            way_out(path)
        );
    }
    Ok(())
}

/// Says how a model with another tower of texts comes in.
fn way_out(path: &Path) -> String {
    match expected::head_beside(path) {
        Some(head) => format!("import it alone, with head.zero-shot.weights = {head:?}, which is its head"),
        None => "give this folder as checkpoint.path to evaluate it".to_string(),
    }
}

/// Returns whether two towers make the same head of the same texts, but for the rounding of weights that are stored in 16 bits.
fn makes_same(own: &IdentifiedText, other: &IdentifiedText) -> bool {
    let (ours, theirs) = (&own.weights, &other.weights);
    let is_alike = |(name, tensor): &(String, Tensor)| {
        theirs.parameters.get(name).is_some_and(|other| is_same_or_rounded(tensor, other))
    };
    let scale = |value: f64| Tensor::from(value.ln()).to_kind(Kind::Float);
    let scales = is_same_or_rounded(&scale(ours.logit_scale), &scale(theirs.logit_scale));
    let bias = |value: f64| Tensor::from(value).to_kind(Kind::Float);
    own.tower.traits == other.tower.traits
        && ours.parameters.all().len() == theirs.parameters.all().len()
        && ours.parameters.all().iter().all(is_alike)
        && scales
        && is_same_or_rounded(&bias(ours.logit_bias), &bias(theirs.logit_bias))
}

/// Returns whether a tensor is another one, as it is or rounded to 16 bits.
fn is_same_or_rounded(own: &Tensor, other: &Tensor) -> bool {
    let rounded = |kind: Kind| own.to_kind(kind).to_kind(own.kind());
    own.size() == other.size()
        && (own.equal(other) || [Kind::Half, Kind::BFloat16].into_iter().any(|kind| rounded(kind).equal(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_are_stored_in_16_bits_are_the_same_ones() {
        let own = Tensor::from_slice(&[0.1f32, 1.0 / 3.0]);
        for kind in [Kind::Float, Kind::Half, Kind::BFloat16] {
            assert!(is_same_or_rounded(&own, &own.to_kind(kind).to_kind(Kind::Float)));
        }
        assert!(!is_same_or_rounded(&own, &(&own * 1.01)) && !is_same_or_rounded(&own, &own.narrow(0, 0, 1)));
    }
}
