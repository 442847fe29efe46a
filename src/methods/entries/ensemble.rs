//! `[method.ensemble]`: n particles trained independently (Lakshminarayanan et al. 2017, arXiv 1612.01474); in
//! `[subspace.rank-one]` the members of BatchEnsemble.

use crate::methods::method::Independent;
use crate::methods::sharpness::{self, Sharpness};
use crate::methods::{Entry, MAX_PARTICLES, Method, MethodSpec, Particles, Parts, RowsAre, Update, Variant};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "ensemble",
    about: "n particles trained independently",
    paper: "Ensemble (base, Bella)",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[Variant { key: "ensemble", sets: &[], asks_for_mixing: false }],
    names: &[("full", "Ensemble"), ("low-rank", "Bella-ensemble"), ("rank-one", "BatchEnsemble")],
    names_of_many: &[],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    struct Spec {
        /// Number of particles.
        particles: i64, in 2..=MAX_PARTICLES;
        sharpness: Option<Sharpness>, part Sharpness::option;
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        sharpness::around(self.sharpness, parts, |parts| Independent { parts })
    }

    fn matrices_of_a_step(&self, _: usize) -> u64 {
        1 + sharpness::matrices(self.sharpness)
    }

    fn gradients_of_a_step(&self) -> u64 {
        sharpness::gradients(self.sharpness)
    }

    fn asks_at_theta(&self) -> bool {
        self.sharpness.is_none()
    }
}
