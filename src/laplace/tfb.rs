//! `[method.tfb]`: the Gaussians around low-rank factors whose spread changes the predictions on anchor images by no more
//! than a tolerance.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::mixture_log_probabilities;
use crate::data::batches::SampleSet;
use crate::machine::Chunk;
use crate::methods::tfb::Settings;
use crate::model::Model;
use crate::posterior::{Draws, Posterior};
use crate::predict::{Members, Predictor, Rows};
use crate::subspace::Subspace;
use crate::subspace::spectral::{Spectral, spectral};

/// The number that is added to singular values, so that a direction without effect has a finite spread.
const SINGULAR: f64 = 1e-6;

/// The model and the anchor images with which the spread is searched.
pub(super) struct Anchored<'a> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub settings: Settings,
    pub images: &'a SampleSet,
    pub anchors: &'a [u32],
    pub batch_size: usize,
    pub seed: u64,
}

/// Returns the standard deviations of the entries of the factors A where β is 1, `[n, P]`.
fn unit(singular_values: &Tensor, is_a: &Tensor) -> Tensor {
    is_a / (singular_values + SINGULAR)
}

impl Anchored<'_> {
    /// Returns Gaussians around the particles `theta: [n, P]`.
    ///
    /// # Errors
    /// Fails if even the smallest spread exceeds the tolerance, or if memory does not suffice.
    pub fn fit(&self, theta: &Tensor) -> Result<Posterior> {
        let Spectral { theta: mean, singular_values, is_a } = spectral(self.subspace.layout(), theta);
        let unit = unit(&singular_values, &is_a);
        let gaussians = |spread: f64| Posterior::Gaussians { mean: mean.shallow_clone(), std: &unit * spread };
        let bar = crate::base::logging::bar(0, "spread");
        let logits = |rows: &dyn Rows| -> Result<Tensor> {
            let members = Members::Rows { subspace: self.subspace, rows };
            let predictor = Predictor::new(self.model, members, Chunk::Auto);
            let values = predictor.all_logits(self.images, self.anchors, self.batch_size, &bar)?;
            let shape = [rows.count() as i64, self.anchors.len() as i64, self.model.head.classes()];
            Ok(Tensor::from_slice(&values).view(shape).to_kind(Kind::Double))
        };
        let without = logits(&mean)?;
        let predicted = without.log_softmax(-1, Kind::Double).logsumexp([0i64].as_slice(), false).argmax(-1, false);
        let nll = |logits: &Tensor| {
            -mixture_log_probabilities(logits, &predicted, Kind::Double).mean(Kind::Double).double_value(&[])
        };
        let reference = nll(&without);
        ensure!(reference.is_finite(), "method.tfb: the particles' predictions on the anchor images are not finite");
        let Settings { tolerance, samples, search, .. } = self.settings;
        let found = search.run(tolerance, |spread| {
            let posterior = gaussians(spread);
            let draws = Draws::new(&posterior, samples, self.seed)?;
            let change = (nll(&logits(&draws)?) - reference).abs() / reference.max(f64::MIN_POSITIVE);
            tracing::debug!("tfb: spread {spread:.6} changes the NLL by {change:.3e}");
            Ok(change)
        })?;
        bar.finish_and_clear();
        tracing::info!(
            "tfb: spread {:.6}: the NLL of the particles' own predictions on {} anchor images changes by {:.3e} (tolerance \
             {tolerance}) from {reference:.4}",
            found.spread,
            self.anchors.len(),
            found.change
        );
        Ok(gaussians(found.spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::subspace::{Layout, Shape};

    /// Factors and deviations of the authors' code, which computes them in f32. Its singular values fall, here they rise, and the
    /// sign of a singular vector is free.
    #[test]
    fn factors_and_deviations_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("tfb");
        let mut layout = Layout::default();
        layout.push("w.a", &[2, 3]);
        layout.push("w.b", &[4, 2]);
        layout.close_block("w", 0, Shape::LowRank { rank: 2, inputs: 3, outputs: 4, scale: 2.0 });
        let start = Tensor::cat(&["start/a", "start/b"].map(|name| golden.tensor(name).view([1, -1])), 1);
        let Spectral { theta, singular_values, is_a } = spectral(&layout, &start);
        let std = unit(&singular_values, &is_a) * golden.number("spread");
        let a = |of: &Tensor| of.narrow(1, 0, 6).view([2, 3]).flip([0]);
        near(&a(&std), &golden.tensor("std"), 1e-6);
        near(&a(&theta).abs(), &golden.tensor("a").abs(), 1e-5);
        near(&theta.narrow(1, 6, 8).view([4, 2]).flip([1]).abs(), &golden.tensor("b").abs(), 1e-5);
    }
}
