//! `[method.sam]`: sharpness-aware minimisation (Foret et al. 2021, arXiv 2010.01412; `adaptive`: Kwon et al. 2021, arXiv
//! 2102.11600). Particles are trained independently; the optimizer follows ∇L(θ + e) with e = ρ g / ‖g‖
//! ([`crate::methods::sharpness`]).

use crate::methods::method::Independent;
use crate::methods::sharpness::{self, Norm, Sharpness};
use crate::methods::{Entry, MAX_PARTICLES, Method, MethodSpec, Particles, Parts, RowsAre, Update, Variant};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "sam",
    about: "sharpness-aware training: gradients at the worst point of a small ball around each particle",
    paper: "SAM",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[Variant { key: "sam", sets: &[], asks_for_mixing: false }],
    names: &[("full", "SAM"), ("low-rank", "SAM, low-rank")],
    names_of_many: &[("full", "SAM ensemble"), ("low-rank", "SAM ensemble, low-rank")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    struct Spec {
        /// Number of particles.
        particles: i64 = 1, in 1..=MAX_PARTICLES;
        /// Radius of the ball around each particle whose worst point gives the gradient.
        rho: f64 = 0.05, in above(0.0);
        /// Whether the ball is scaled by each parameter's size.
        adaptive: bool = false;
    }
}

impl Spec {
    fn sharpness(&self) -> Option<Sharpness> {
        Some(Sharpness { rho: self.rho, adaptive: self.adaptive, norm: Norm::Particle })
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        sharpness::around(self.sharpness(), parts, |parts| Independent { parts })
    }

    fn matrices_of_a_step(&self, _: usize) -> u64 {
        1 + sharpness::matrices(self.sharpness())
    }

    fn gradients_of_a_step(&self) -> u64 {
        sharpness::gradients(self.sharpness())
    }
}
