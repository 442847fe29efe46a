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

use serde::Serialize;

use crate::methods::independent::Independent;
use crate::methods::tfb::{Search, Settings};
use crate::methods::{
    Circumstances, Course, Entry, Fitting, MAX_PARTICLES, Method, MethodSpec, Particles, Parts, RowsAre, Update,
};
use crate::posterior::Predictive;
use crate::schema::{Bounds, Reader};

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

#[derive(Serialize)]
struct Spec {
    particles: i64,
    /// A finished run whose particles are used: its folder, the start of its id, or settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    tolerance: f64,
    anchors: usize,
    smallest: f64,
    largest: f64,
    halvings: usize,
    samples: usize,
}

impl Spec {
    fn read(reader: &Reader, circumstances: &Circumstances) -> Spec {
        let spec = Spec {
            particles: reader
                .count("particles", 1..=MAX_PARTICLES)
                .about("Number of particles, each with a Gaussian around it.")
                .or(1) as i64,
            from: reader
                .string("from")
                .about("Finished run whose particles are taken: its folder, the start of its id, or settings.")
                .optional(),
            tolerance: reader
                .float("tolerance", Bounds::above(0.0))
                .about("Largest relative change of the NLL of the particles' own predictions on the anchors.")
                .or(0.01),
            anchors: reader
                .count("anchors", 1..=1_000_000_000)
                .about(
                    "Most anchor images: held-out ones where there are any, else training images; labels are not used.",
                )
                .or(500),
            smallest: reader.float("smallest", Bounds::above(0.0)).about("Smallest spread β that is tried.").or(0.001),
            largest: reader.float("largest", Bounds::above(0.0)).about("Largest spread β that is tried.").or(0.2),
            halvings: reader.count("halvings", 1..=60).about("Halvings of the interval of β.").or(10),
            samples: reader
                .count("samples", 1..=100_000)
                .about("Draws per particle, in the search and in predictions.")
                .or(10),
        };
        if spec.smallest >= spec.largest {
            reader.problem("smallest", format!("must be below largest = {}", spec.largest));
        }
        if !["low-rank", ""].contains(&circumstances.subspace) {
            reader.problem("particles", "the spread is that of low-rank factors: write [subspace.low-rank]");
        }
        spec
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

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}
