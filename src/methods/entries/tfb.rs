//! `[method.tfb]`: training-free Bayesianization (Shi et al. 2024, arXiv 2412.05723): Gaussians around the low-rank factors of
//! trained particles, as wide as the predictions on unlabelled images allow.
//!
//! | symbol | here |
//! |---|---|
//! | B = U D Vᵀ; B' = U D, A' = Vᵀ A | [`crate::subspace::spectral`]; B' A' = B A |
//! | Ω_ij = β / (d_i + 10⁻⁶), the standard deviation of A'_ij | the same for all columns j, so isotropic in the span of B |
//! | β, searched in [`smallest`, `largest`] | [`crate::methods::tfb::Search`] |
//! | ŷ(x), the class that the particles predict without noise, on `anchors` images | `laplace/tfb.rs` |
//! | (NLL_β − NLL_0) / NLL_0 in absolute value, at most `tolerance` | NLL of ŷ under the mean probability of `samples` draws |
//!
//! All β share their noise, so that the NLL is a smooth function of β. Differences from the authors' code: it divides the
//! relative change by the number of anchors once more, and keeps the last β that exceeded the tolerance; here the largest
//! one tried that did not is kept. Its published scripts search below β = 0.015 with a tolerance of 0.003 and 5 halvings, which,
//! with 500 anchors, is `tolerance` = 1.5 here; the defaults here are those of its parser. Its anchors are the first of a split whose
//! order is random; here they are a random choice. A draw is one set of weights for all images; there, flipout gives every token other signs.

use crate::methods::independent::Independent;
use crate::methods::tfb::{Search, Settings};
use crate::methods::{
    Circumstances, Course, Entry, Fitting, MAX_PARTICLES, Method, MethodSpec, Particles, Parts, RowsAre, Update,
};
use crate::posterior::Predictive;
use crate::schema::{Reader, settings};

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
    read: |reader, circumstances| Box::new(Spec::read(reader, circumstances)),
};

settings! {
    struct Spec(circumstances: &Circumstances) {
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
    fn check(&self, reader: &Reader, circumstances: &Circumstances) {
        if self.smallest >= self.largest {
            reader.problem("smallest", format!("must be below largest = {}", self.largest));
        }
        if !["low-rank", ""].contains(&circumstances.subspace) {
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

    fn course(&self) -> Course<'_> {
        let search = Search { smallest: self.smallest, largest: self.largest, halvings: self.halvings };
        let Spec { tolerance, anchors, samples, .. } = *self;
        let fitting = Fitting::Tfb(Settings { tolerance, anchors, search, samples });
        match &self.from {
            Some(run) => Course::Fit { run, fitting },
            None => Course::TrainThenFit(fitting),
        }
    }
}
