//! `[method.swag]`: SWAG (Maddox et al. 2019, arXiv 1902.02476; on low-rank updates: Onal et al. 2024, arXiv 2405.03425).
//! Particles are trained independently by the optimizer; from step `start` on, every `every` steps a snapshot is taken. Each
//! particle's posterior is the Gaussian of its snapshots; n > 1 is MultiSWAG.
//!
//! | symbol | here |
//! |---|---|
//! | θ̄, the mean of the snapshots | `mean` |
//! | Σ_diag, their variance, column by column | `squares` / number of snapshots |
//! | D, deviations of the last K snapshots from the running mean | `deviations` |
//! | Σ = (Σ_diag + D Dᵀ / (K − 1)) / 2 | [`Posterior::LowRankGaussians`] |
//!
//! Differs from the paper's code: the variance is updated by Welford's rule, since the difference of the second moment and the
//! squared mean cancels in f32.

use anyhow::{Result, ensure};
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::methods::sharpness::{self, Sharpness};
use crate::methods::snapshots::{Last, Schedule};
use crate::methods::{
    Entry, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant, gaussians,
};
use crate::posterior::{Posterior, Predictive};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "swag",
    about: "a Gaussian of low rank from snapshots along the training of each particle (SWAG, MultiSWAG)",
    paper: "SWAG, MultiSWAG, SWAG-LoRA",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[Variant { key: "swag", sets: &["start=0", "every=1"], asks_for_mixing: false }],
    names: &[("full", "SWAG"), ("low-rank", "SWAG-LoRA")],
    names_of_many: &[("full", "MultiSWAG"), ("low-rank", "MultiSWAG-LoRA")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        pub particles: i64, by gaussians::particles;
        pub schedule: Schedule, part Schedule::read;
        /// Number of the last snapshots whose deviations span the low-rank part of the covariance.
        pub columns: usize = 20, in 2..=10_000;
        /// Draws per particle that predict after training.
        pub samples: usize = 30, in 1..=100_000;
        pub sharpness: Option<Sharpness>, part Sharpness::option;
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        sharpness::around(self.sharpness, Box::new(Swag::new(self.clone(), parts)))
    }

    fn check_steps(&self, steps: usize) -> Result<()> {
        let Schedule { start, every } = self.schedule;
        let snapshots = self.schedule.snapshots(steps as i64);
        ensure!(
            snapshots >= 2,
            "method.swag: {steps} training steps give {snapshots} snapshots, and a Gaussian needs two: lower start = {start} or \
             every = {every}"
        );
        let columns = self.columns;
        ensure!(
            columns as i64 <= snapshots,
            "method.swag.columns = {columns}: {steps} training steps give {snapshots} snapshots, and there cannot be more \
             columns: lower columns, start = {start} or every = {every}"
        );
        Ok(())
    }

    fn shortened(&self, steps: usize) -> Vec<(&'static str, toml::Value)> {
        vec![("start", 0.into()), ("every", 1.into()), ("columns", (self.columns.min(steps) as i64).into())]
    }

    fn gathers_posterior(&self) -> bool {
        true
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn matrices_of_a_step(&self, _: usize) -> u64 {
        1 + sharpness::matrices(self.sharpness)
    }

    fn gradients_of_a_step(&self) -> u64 {
        sharpness::gradients(self.sharpness)
    }

    /// The mean, the squares and the deviations.
    fn kept_matrices(&self) -> u64 {
        2 + self.columns as u64
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2 + self.columns as u64
    }
}

struct Swag {
    spec: Spec,
    parts: Parts,
    steps: i64,
    /// θ̄, `[n, P]`.
    mean: Tensor,
    /// The sum of squared deviations from the mean, `[n, P]`.
    squares: Tensor,
    deviations: Last,
}

impl Swag {
    fn new(spec: Spec, parts: Parts) -> Swag {
        let (mean, squares) = (parts.theta.zeros_like(), parts.theta.zeros_like());
        let deviations = Last::new(spec.columns, &parts.theta);
        Swag { spec, parts, steps: 0, mean, squares, deviations }
    }

    /// Returns the number of snapshots so far.
    fn taken(&self) -> i64 {
        self.spec.schedule.snapshots(self.steps)
    }

    /// Takes theta `[n, P]` as the snapshot of the latest step.
    fn take(&mut self, theta: &Tensor) {
        let before = theta - &self.mean;
        self.mean += &before / self.taken() as f64;
        let after = theta - &self.mean;
        self.squares += &before * &after;
        self.deviations.push(after);
    }
}

impl Method for Swag {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let evaluation = objective.losses(theta)?;
        self.parts.apply(theta, &evaluation.gradients, objective, factor)?;
        self.steps += 1;
        if self.spec.schedule.is_due(self.steps) {
            self.take(theta);
        }
        Ok(Step { losses: evaluation.losses, diagnostics: None })
    }

    fn has_posterior(&self) -> bool {
        self.taken() >= 2
    }

    /// Before the first two snapshots, points: there is no Gaussian yet.
    fn posterior(&self, theta: &Tensor) -> Posterior {
        if !self.has_posterior() {
            return Posterior::Points { theta: theta.shallow_clone() };
        }
        let std = (&self.squares / self.taken() as f64).clamp_min(0.0).sqrt();
        Posterior::LowRankGaussians { mean: self.mean.copy(), std, deviations: self.deviations.stacked() }
    }

    fn remarks(&self) -> Result<Vec<String>> {
        let columns = self.deviations.count();
        Ok(vec![format!("swag: {} snapshots, the last {columns} of which span the low-rank part", self.taken())])
    }

    fn save(&self, state: &mut State) {
        self.parts.optimizer.save(state);
        state.put_count("swag.steps", self.steps);
        state.put("swag.mean", &self.mean);
        state.put("swag.squares", &self.squares);
        self.deviations.save("swag.deviation", state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.parts.optimizer.load(state)?;
        self.steps = state.count("swag.steps")?;
        state.copy_into("swag.mean", &mut self.mean)?;
        state.copy_into("swag.squares", &mut self.squares)?;
        self.deviations.load("swag.deviation", self.taken(), state)
    }
}

#[cfg(test)]
mod tests;
