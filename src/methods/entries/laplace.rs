//! `[method.laplace]`: n particles trained independently, then a Gaussian fitted around each ([`crate::methods::laplace`]).

use serde::Serialize;

use crate::methods::independent::Independent;
use crate::methods::laplace::{Parameters, Settings, Shape, Structure, Tuning};
use crate::methods::{
    Circumstances, Course, Entry, Fitting, MAX_PARTICLES, Method, MethodSpec, Particles, Parts, RowsAre, Update,
};
use crate::posterior::{Output, Predictive};
use crate::schema::{Bounds, Reader};

pub static ENTRY: Entry = Entry {
    key: "laplace",
    about: "plain training, then a Gaussian around each particle by its curvature (Laplace)",
    paper: "VBL",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[],
    names: &[("full", "Laplace"), ("low-rank", "VBL")],
    names_of_many: &[],
    read: |reader, circumstances| Box::new(Spec::read(reader, circumstances)),
};

#[derive(Serialize)]
struct Spec {
    particles: i64,
    /// A finished run whose particles are used: its folder, the start of its id, or settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    parameters: Parameters,
    #[serde(flatten)]
    shape: Shape,
    tuning: Tuning,
    /// The prior precision τ, if it is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    prior_precision: Option<f64>,
    predictive: Output,
    /// The number of draws per particle.
    samples: usize,
    memory_gib: f64,
}

impl Spec {
    fn read(reader: &Reader, circumstances: &Circumstances) -> Spec {
        let all = if circumstances.subspace == "low-rank" { Parameters::All } else { Parameters::LastLayer };
        let prior_precision = reader
            .float("prior_precision", Bounds::above(0.0))
            .about("Precision τ of the prior, where it is fixed.")
            .optional();
        let tuning = if prior_precision.is_some() { Tuning::Fixed } else { Tuning::Evidence };
        let spec = Spec {
            particles: reader
                .count("particles", 1..=MAX_PARTICLES)
                .about("Number of particles, each with a Gaussian around it.")
                .or(1) as i64,
            from: reader
                .string("from")
                .about("Finished run whose particles are taken: its folder, the start of its id, or settings.")
                .optional(),
            parameters: reader
                .choice("parameters")
                .about("Parameters that get a Gaussian; `all` is the default in `low-rank`, `last-layer` elsewhere.")
                .or(all),
            shape: Shape::read(reader),
            tuning: reader
                .choice("tuning")
                .about("How the precision of the prior is chosen; `fixed` where `prior_precision` is given.")
                .or(tuning),
            prior_precision,
            predictive: reader
                .choice("predictive")
                .about("How Gaussian logits or weights become predictions.")
                .or(Output::Mc),
            samples: reader.count("samples", 1..=100_000).about("Draws per particle.").or(64),
            memory_gib: reader
                .float("memory_gib", Bounds::above(0.0))
                .about("Most memory for the curvature, in GiB; a larger one is refused before training.")
                .or(8.0),
        };
        spec.check(reader, circumstances);
        spec
    }

    fn check(&self, reader: &Reader, circumstances: &Circumstances) {
        match (self.tuning, self.prior_precision) {
            (Tuning::Fixed, None) => reader.problem("tuning", "needs prior_precision: a number above 0"),
            (Tuning::Evidence | Tuning::Validation, Some(_)) => {
                reader.problem("prior_precision", "is tuned: leave it out, or set tuning = \"fixed\"");
            }
            _ => {}
        }
        if self.shape.structure != Structure::Kron && !self.shape.has_default_factors() {
            reader.problem("structure", "tokens, wide and kept belong to structure = \"kron\": leave them out");
        }
        if self.parameters == Parameters::All && !["low-rank", ""].contains(&circumstances.subspace) {
            let why = "the curvature of all parameters needs [subspace.low-rank]; set parameters = \"last-layer\"";
            reader.problem("parameters", why);
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
        Predictive::laplace(self.predictive, self.samples)
    }

    fn course(&self) -> Course<'_> {
        const GIB: f64 = (1u64 << 30) as f64;
        let fitting = Fitting::Laplace(Settings {
            parameters: self.parameters,
            shape: self.shape,
            tuning: self.tuning,
            prior_precision: self.prior_precision.unwrap_or(1.0),
            output: self.predictive,
            samples: self.samples,
            memory_bytes: (self.memory_gib * GIB) as u64,
        });
        match &self.from {
            Some(run) => Course::Fit { run, fitting },
            None => Course::TrainThenFit(fitting),
        }
    }

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}
