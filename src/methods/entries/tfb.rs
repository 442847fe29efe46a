//! `[method.tfb]`: training-free Bayesianization (Shi et al. 2024, arXiv 2412.05723): Gaussians around the low-rank factors of
//! trained particles, as wide as the predictions on unlabelled images allow.
//!
//! | symbol | here |
//! |---|---|
//! | B = U D Vᵀ; B' = U D, A' = Vᵀ A | [`crate::subspace::spectral`]; B' A' = B A |
//! | Ω_ij = β / (d_i + 10⁻⁶), the standard deviation of A'_ij | the same for all columns j, so isotropic in the span of B |
//! | β, searched in [`smallest`, `largest`] | [`Search`] |
//! | ŷ(x), the class that the particles predict without noise, on `anchors` images | [`Spec::fit`](PostHoc::fit) |
//! | (NLL_β − NLL_0) / NLL_0 in absolute value, at most `tolerance` | NLL of ŷ under the mean probability of `samples` draws |
//!
//! All β share their noise, so that the NLL is a smooth function of β. Differences from the authors' code: it divides the
//! relative change by the number of anchors once more, and keeps the last β that exceeded the tolerance; here the largest
//! one tried that did not is kept. Its published scripts search below β = 0.015 with a tolerance of 0.003 and 5 halvings, which,
//! with 500 anchors, is `tolerance` = 1.5 here; the defaults here are those of its parser. Its anchors are the first of a split whose
//! order is random; here they are a random choice. A draw is one set of weights for all images; there, flipout gives every token other signs.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::random::some_of;
use crate::base::tensor::mixture_log_probabilities;
use crate::machine::Chunk;
use crate::methods::independent::Independent;
use crate::methods::post_hoc::{Context, Origin, PostHoc, Samples};
use crate::methods::{Entry, MAX_PARTICLES, Method, MethodContext, MethodSpec, Particles, Parts, RowsAre, Update};
use crate::posterior::{Draws, Posterior, Predictive};
use crate::predict::{Members, Predictor, Rows};
use crate::schema::{Reader, settings};
use crate::subspace::spectral::{Spectral, spectral};

/// The number that is added to singular values, so that a direction without effect has a finite spread.
const SINGULAR: f64 = 1e-6;

pub static ENTRY: Entry = Entry {
    key: "tfb",
    about: "Gaussians around the low-rank factors of trained particles, as wide as a tolerance allows (TFB)",
    paper: "TFB",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[],
    names: &[("low-rank", "TFB")],
    names_of_many: &[("low-rank", "Multi-TFB")],
    read: |reader, context| Box::new(Spec::read(reader, context)),
};

settings! {
    struct Spec(context: &MethodContext) {
        /// Number of particles, each with a Gaussian around it.
        particles: i64 = 1, in 1..=MAX_PARTICLES;
        /// Finished run whose particles are taken: its folder, the start of its id, or settings.
        from: Option<String>;
        /// Largest relative change of the NLL of the particles' own predictions on the anchors.
        tolerance: f64 = 0.01, in above(0.0);
        /// Most anchor images: held-out ones where there are any, else training images; labels are not used.
        anchors: usize = 500, in 1..=1_000_000_000;
        /// Smallest spread β that is tried.
        smallest: f64 = 0.001, in above(0.0);
        /// Largest spread β that is tried.
        largest: f64 = 0.2, in above(0.0);
        /// Halvings of the interval of β.
        halvings: usize = 10, in 1..=60;
        /// Draws per particle, in the search and in predictions.
        samples: usize = 10, in 1..=100_000;
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader, context: &MethodContext) {
        if self.smallest >= self.largest {
            reader.problem("smallest", format!("must be below largest = {}", self.largest));
        }
        if !["low-rank", ""].contains(&context.subspace) {
            reader.problem("particles", "the spread is that of low-rank factors: write [subspace.low-rank]");
        }
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn needs_classes(&self) -> bool {
        true
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Independent { parts })
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn origin(&self) -> Origin<'_> {
        self.from.as_deref().map_or(Origin::Training, Origin::Run)
    }

    fn post_hoc(&self) -> Option<&dyn PostHoc> {
        Some(self)
    }
}

impl Spec {
    fn search(&self) -> Search {
        Search { smallest: self.smallest, largest: self.largest, halvings: self.halvings }
    }
}

impl PostHoc for Spec {
    /// Searches the spread. It is an error if even the smallest one exceeds the tolerance.
    fn fit(&self, theta: &Tensor, context: &Context) -> Result<Posterior> {
        let &Context { model, subspace, train, validation, batch_size, seed } = context;
        let Samples { set, indices } = if validation.indices.is_empty() { train } else { validation };
        let anchors = &some_of(indices, self.anchors, seed);
        let Spectral { theta: mean, singular_values, is_a } = spectral(subspace.layout(), theta);
        let unit = unit(&singular_values, &is_a);
        let gaussians = |spread: f64| Posterior::Gaussians { mean: mean.shallow_clone(), std: &unit * spread };
        let bar = crate::base::logging::doing("spread");
        let logits = |rows: &dyn Rows| -> Result<Tensor> {
            let members = Members::Rows { subspace, rows };
            let predictor = Predictor::new(model, members, Chunk::Auto);
            let values = predictor.all_logits(set, anchors, batch_size, &bar)?;
            let shape = [rows.count() as i64, anchors.len() as i64, model.head.classes()];
            Ok(Tensor::from_slice(&values).view(shape).to_kind(Kind::Double))
        };
        let without = logits(&mean)?;
        let predicted = without.log_softmax(-1, Kind::Double).logsumexp([0i64].as_slice(), false).argmax(-1, false);
        let nll = |logits: &Tensor| {
            -mixture_log_probabilities(logits, &predicted, Kind::Double).mean(Kind::Double).double_value(&[])
        };
        let reference = nll(&without);
        ensure!(reference.is_finite(), "method.tfb: the particles' predictions on the anchor images are not finite");
        let Spec { tolerance, samples, .. } = *self;
        let found = self.search().run(tolerance, |spread| {
            let posterior = gaussians(spread);
            let draws = Draws::new(&posterior, samples, seed)?;
            let change = (nll(&logits(&draws)?) - reference).abs() / reference.max(f64::MIN_POSITIVE);
            tracing::debug!("tfb: spread {spread:.6} changes the NLL by {change:.3e}");
            Ok(change)
        })?;
        bar.finish_and_clear();
        tracing::info!(
            "tfb: spread {:.6}: the NLL of the particles' own predictions on {} anchor images changes by {:.3e} (tolerance \
             {tolerance}) from {reference:.4}",
            found.spread,
            anchors.len(),
            found.change
        );
        Ok(gaussians(found.spread))
    }
}

/// Returns the standard deviations of the entries of the factors A where β is 1, `[n, P]`.
fn unit(singular_values: &Tensor, is_a: &Tensor) -> Tensor {
    is_a / (singular_values + SINGULAR)
}

/// The spreads β that are tried.
#[derive(Clone, Copy, Debug)]
struct Search {
    smallest: f64,
    largest: f64,
    /// The number of halvings.
    halvings: usize,
}

/// A spread that keeps the tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found {
    spread: f64,
    /// The change at this spread.
    change: f64,
}

impl Search {
    /// Returns the largest spread tried whose `change` is at most `tolerance`: the largest of all if it keeps it, else by
    /// bisection between one that does and one that does not.
    ///
    /// # Errors
    /// Fails if `change` fails, or if the smallest spread changes too much already.
    fn run(&self, tolerance: f64, mut change: impl FnMut(f64) -> Result<f64>) -> Result<Found> {
        let &Search { smallest, largest, halvings } = self;
        let mut beyond = largest;
        let most = change(largest)?;
        if most <= tolerance {
            return Ok(Found { spread: largest, change: most });
        }
        let mut kept = Found { spread: smallest, change: change(smallest)? };
        ensure!(
            kept.change <= tolerance,
            "method.tfb: the smallest spread {smallest} changes the NLL by {:.3e}, more than tolerance = {tolerance} already: raise \
             method.tfb.tolerance or lower method.tfb.smallest",
            kept.change
        );
        for _ in 0..halvings {
            let spread = (kept.spread + beyond) / 2.0;
            let change = change(spread)?;
            // NaN is not within the tolerance.
            if change <= tolerance {
                kept = Found { spread, change };
            } else {
                beyond = spread;
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests;
