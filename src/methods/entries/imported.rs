//! `[method.imported]`: particles that were trained elsewhere. `bella import` writes such runs; nothing trains them.

use crate::methods::{Entry, MAX_PARTICLES, MethodSpec, Particles, RowsAre, Update};
use crate::schema::settings;
use anyhow::{Result, bail};

pub static ENTRY: Entry = Entry {
    key: "imported",
    about: "particles that were trained elsewhere, as `bella import` stores them",
    paper: "none",
    update: Update::Own,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[],
    names: &[("full", "Imported models"), ("low-rank", "Imported adapters")],
    names_of_many: &[],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    struct Spec {
        /// Number of particles.
        particles: i64, in 1..=MAX_PARTICLES;
        /// SHA-256 of each imported adapter or model; `bella import` writes this.
        sources: Vec<String> = Vec::new(), omit Vec::new();
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn check_steps(&self, _: usize) -> Result<()> {
        bail!("method.imported: such particles are trained elsewhere: `bella import` makes a run of them")
    }
}
