//! `[method.ensemble]`: n particles trained independently (Lakshminarayanan et al. 2017, arXiv 1612.01474).

use anyhow::Result;
use serde::Serialize;
use tch::Tensor;

use super::{Entry, MAX_PARTICLES, Method, MethodSpec, Objective, Parts, Step};
use crate::state::State;

pub static ENTRY: Entry = Entry {
    key: "ensemble",
    about: "n particles trained independently",
    paper: "Ensemble (base, Bella)",
    names: &[("full", "Ensemble"), ("low-rank", "Bella-ensemble")],
    read: |reader, _| {
        Box::new(Spec {
            particles: reader.count("particles", 2..=MAX_PARTICLES).about("Number of particles.").required() as i64,
        })
    },
};

#[derive(Serialize)]
struct Spec {
    particles: i64,
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Independent { parts })
    }

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

/// Every row follows its own gradient.
pub(super) struct Independent {
    pub parts: Parts,
}

impl Method for Independent {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let evaluation = objective.evaluate(theta)?;
        self.parts.apply(theta, &evaluation.gradients, factor);
        Ok(Step { losses: evaluation.losses, diagnostics: None })
    }

    fn save(&self, state: &mut State) {
        self.parts.optimizer.save(state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.parts.optimizer.load(state)
    }
}
