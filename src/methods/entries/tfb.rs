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
use crate::data::batches::Samples;
use crate::machine::Chunk;
use crate::methods::post_hoc::{Context, Origin, PostHoc};
use crate::methods::{Entry, MethodContext, MethodSpec, Particles, RowsAre, Update, spec};
use crate::posterior::{Draws, Posterior, Predictive};
use crate::predict::{Members, Predictor, Rows};
use crate::schema::{Reader, settings};
use crate::subspace::updates::{Spectral, spectral};

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
        particles: i64, by spec::fitted;
        from: Option<String>, by spec::from;
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
        if context.is_not("low-rank") {
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

    /// The spread is that at which predictions change, whatever the labels are.
    fn fits_likelihood(&self) -> bool {
        false
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
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::subspace::{Layout, Shape};

    const SEARCH: Search = Search { smallest: 0.001, largest: 0.2, halvings: 10 };

    /// ```python
    /// def change(b): return 3.0 * b**2 + 0.1 * b
    /// low, high = 0.001, 0.2
    /// for _ in range(10):
    ///     middle = (low + high) / 2
    ///     if change(middle) <= 0.01: low = middle
    ///     else: high = middle
    /// print(low, change(low))  # 0.043365234375 0.009978154094696046
    /// ```
    #[test]
    fn equals_a_bisection_in_python() {
        let found = SEARCH.run(0.01, |b| Ok(3.0 * b * b + 0.1 * b)).unwrap();
        assert!(
            (found.spread - 0.043365234375).abs() < 1e-15 && (found.change - 0.009978154094696046).abs() < 1e-15,
            "{found:?}"
        );
    }

    /// Whatever the curve, also one that is not monotone or not a number somewhere.
    #[test]
    fn what_is_kept_never_exceeds_the_tolerance() {
        for seed in 0..200 {
            let curve = |b: f64| match (seed as f64 * 7.3 + b * 900.0).sin() {
                wave if wave > 0.95 => f64::NAN,
                wave => (b / (0.02 + 0.001 * seed as f64)).powi(2) * 0.01 * (1.0 + 0.8 * wave),
            };
            let mut tried = Vec::new();
            let run = SEARCH.run(0.01, |b| {
                tried.push(b);
                Ok(curve(b))
            });
            let Ok(found) = run else {
                // Both ends change too much, or by what is no number.
                assert!([SEARCH.smallest, SEARCH.largest].map(curve).iter().all(|one| *one > 0.01 || one.is_nan()));
                continue;
            };
            assert!(found.change <= 0.01 && found.change == curve(found.spread) && tried.contains(&found.spread));
        }
    }

    #[test]
    fn the_largest_spread_is_kept_where_it_may_be_and_the_smallest_must_be() {
        let all = SEARCH.run(0.01, |_| Ok(0.01)).unwrap();
        assert_eq!(all, Found { spread: 0.2, change: 0.01 });
        let error = SEARCH.run(0.01, |_| Ok(0.02)).unwrap_err().to_string();
        assert!(error.contains("method.tfb.tolerance") && error.contains("0.001"), "{error}");
    }

    /// The search of the authors, `TFBLoRA.fit` (tests/fixtures/authors/tfb.json), on anchors whose logits move with the spread, with
    /// the defaults of their parser and with the settings of their scripts. It divides the change by the number of anchors, so that
    /// its tolerance is ours over that number, and keeps the end of the last interval that is beyond it; here the other end is kept.
    #[test]
    fn the_bisection_of_the_authors_code_ends_in_the_same_interval() {
        let golden = Golden::of_authors("tfb");
        let anchors = golden.tensor("anchors");
        let predicted = anchors.argmax(-1, true);
        let nll = |logits: &Tensor| {
            let mean = logits.softmax(-1, Kind::Double).mean_dim([0i64].as_slice(), false, Kind::Double);
            -(mean.gather(1, &predicted, false) + 1e-12).log().mean(Kind::Double).double_value(&[])
        };
        let reference = nll(&anchors.unsqueeze(0));
        for case in ["parser", "scripts"] {
            let number = |name: &str| golden.number(&format!("{case}/{name}"));
            let moves = golden.tensor(&format!("{case}/moves"));
            let change = |spread: f64| Ok((nll(&(&anchors + &moves * spread)) - reference).abs() / reference);
            let (largest, halvings) = (number("largest"), number("halvings") as usize);
            let tolerance = number("ratio") * anchors.size()[0] as f64;
            let found = Search { smallest: 0.001, largest, halvings }.run(tolerance, change).unwrap();
            let width = (largest - 0.001) / 2f64.powi(halvings as i32);
            assert!((number("found") - found.spread - width).abs() < 1e-12, "{case}: {found:?}");
            assert!(found.spread > 0.001 && found.spread + 1.5 * width < largest, "{case}: both ends moved: {found:?}");
        }
    }

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
