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

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use serde::Serialize;
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::methods::{
    Entry, MAX_PARTICLES, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant,
};
use crate::posterior::{Posterior, Predictive};
use crate::schema::Reader;

pub static ENTRY: Entry = Entry {
    key: "swag",
    about: "a Gaussian of low rank from snapshots along the training of each particle (SWAG, MultiSWAG)",
    paper: "SWAG, MultiSWAG, SWAG-LoRA",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[Variant { key: "swag", sets: &["start=0", "every=1"], asks_for_mixing: false }],
    names: &[("full", "SWAG"), ("low-rank", "SWAG-LoRA")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

#[derive(Serialize, Clone, Debug)]
pub struct Spec {
    pub particles: i64,
    /// Steps before the first snapshot.
    pub start: i64,
    /// Steps from one snapshot to the next.
    pub every: i64,
    /// K.
    pub columns: usize,
    /// Draws a particle that predict.
    pub samples: usize,
}

impl Spec {
    fn read(reader: &Reader) -> Spec {
        Spec {
            particles: reader.count("particles", 1..=MAX_PARTICLES).about("Number of Gaussians in the mixture.").or(1)
                as i64,
            start: reader
                .count("start", 0..=1_000_000_000)
                .about("Training steps before the first snapshot.")
                .required() as i64,
            every: reader
                .count("every", 1..=1_000_000_000)
                .about("Training steps from one snapshot to the next.")
                .required() as i64,
            columns: reader
                .count("columns", 2..=10_000)
                .about("Number of the last snapshots whose deviations span the low-rank part of the covariance.")
                .or(20),
            samples: reader
                .count("samples", 1..=100_000)
                .about("Draws per particle that predict after training.")
                .or(30),
        }
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Swag::new(self.clone(), parts))
    }

    fn check_steps(&self, steps: usize) -> Result<()> {
        let Spec { start, every, .. } = *self;
        let snapshots = (steps as i64 - start).max(0) / every;
        ensure!(
            snapshots >= 2,
            "method.swag: {steps} training steps give {snapshots} snapshots, and a Gaussian needs two: lower start = {start} or \
             every = {every}"
        );
        Ok(())
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    /// The mean, the squares and the deviations.
    fn kept_matrices(&self) -> u64 {
        2 + self.columns as u64
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2 + self.columns as u64
    }

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

struct Swag {
    spec: Spec,
    parts: Parts,
    steps: i64,
    /// Snapshots so far.
    taken: i64,
    /// θ̄, `[n, P]`.
    mean: Tensor,
    /// The sum of squared deviations from the mean, `[n, P]`.
    squares: Tensor,
    /// The last deviations, `[n, P]` each.
    deviations: VecDeque<Tensor>,
}

impl Swag {
    fn new(spec: Spec, parts: Parts) -> Swag {
        let (mean, squares) = (parts.theta.zeros_like(), parts.theta.zeros_like());
        Swag { spec, parts, steps: 0, taken: 0, mean, squares, deviations: VecDeque::new() }
    }

    /// Takes theta `[n, P]` as a snapshot.
    fn take(&mut self, theta: &Tensor) {
        self.taken += 1;
        let before = theta - &self.mean;
        self.mean += &before / self.taken as f64;
        let after = theta - &self.mean;
        self.squares += &before * &after;
        if self.deviations.len() == self.spec.columns {
            self.deviations.pop_front();
        }
        self.deviations.push_back(after);
    }
}

impl Method for Swag {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let evaluation = objective.evaluate(theta)?;
        self.parts.apply(theta, &evaluation.gradients, factor);
        self.steps += 1;
        if self.steps > self.spec.start && (self.steps - self.spec.start) % self.spec.every == 0 {
            self.take(theta);
        }
        Ok(Step { losses: evaluation.losses, diagnostics: None })
    }

    fn has_posterior(&self) -> bool {
        self.taken >= 2
    }

    /// Before the first two snapshots, points: there is no Gaussian yet.
    fn posterior(&self, theta: &Tensor) -> Posterior {
        if !self.has_posterior() {
            return Posterior::Points { theta: theta.shallow_clone() };
        }
        let std = (&self.squares / self.taken as f64).clamp_min(0.0).sqrt();
        let deviations = Tensor::stack(&self.deviations.iter().collect::<Vec<_>>(), 1);
        Posterior::LowRankGaussians { mean: self.mean.copy(), std, deviations }
    }

    fn remarks(&self) -> Result<Vec<String>> {
        let columns = self.deviations.len();
        Ok(vec![format!("swag: {} snapshots, the last {columns} of which span the low-rank part", self.taken)])
    }

    fn save(&self, state: &mut State) {
        self.parts.optimizer.save(state);
        state.put_count("swag.steps", self.steps);
        state.put_count("swag.taken", self.taken);
        state.put("swag.mean", &self.mean);
        state.put("swag.squares", &self.squares);
        for (place, deviation) in self.deviations.iter().enumerate() {
            state.put(&format!("swag.deviation.{place}"), deviation);
        }
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.parts.optimizer.load(state)?;
        (self.steps, self.taken) = (state.count("swag.steps")?, state.count("swag.taken")?);
        state.copy_into("swag.mean", &mut self.mean)?;
        state.copy_into("swag.squares", &mut self.squares)?;
        self.deviations.clear();
        for place in 0..(self.taken as usize).min(self.spec.columns) {
            let mut deviation = self.mean.empty_like();
            state.copy_into(&format!("swag.deviation.{place}"), &mut deviation)?;
            self.deviations.push_back(deviation);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
