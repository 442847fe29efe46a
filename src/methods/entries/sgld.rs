//! `[method.sgld]`: stochastic gradient Langevin dynamics (Welling and Teh 2011). Each row is a Markov chain whose states,
//! thinned, are the posterior.
//!
//! | symbol | here |
//! |---|---|
//! | N, the number of training images | `ess` |
//! | η, the step size on the mean loss | `lr` |
//! | T, the temperature | `temperature` |
//! | δ, the prior's precision over N | `weight_decay` |
//! | θ ← θ − η (g + δ θ) + √(2 η T / N) ξ | one step; g the gradient of the mean loss, ξ ~ N(0, 1) |
//!
//! With T = 1 and small steps the chain has the posterior of N images as its stationary distribution; larger steps widen it by
//! 1 / (1 − η h / 2) in a direction of curvature h. Minibatch noise comes on top and is not corrected for, as in the paper.

use anyhow::{Result, ensure};
use serde::Serialize;
use tch::{Kind, Tensor};

use crate::base::noise::{At, Noise};
use crate::base::random::Purpose;
use crate::base::tensor_file::State;
use crate::methods::snapshots::{Last, Schedule};
use crate::methods::{
    Entry, Evaluation, MAX_PARTICLES, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant,
};
use crate::posterior::Posterior;
use crate::schema::{Bounds, Reader};

pub static ENTRY: Entry = Entry {
    key: "sgld",
    about: "Langevin dynamics: chains of noisy gradient steps whose thinned states are the posterior (its own optimizer)",
    paper: "SGLD",
    update: Update::Own,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant { key: "sgld", sets: &["lr=0.01", "ess=1e6", "start=0", "every=1"], asks_for_mixing: false }],
    names: &[("full", "SGLD"), ("low-rank", "Low-rank SGLD")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

#[derive(Serialize, Clone, Debug)]
pub struct Spec {
    pub particles: i64,
    pub lr: f64,
    pub ess: f64,
    pub temperature: f64,
    pub weight_decay: f64,
    #[serde(flatten)]
    pub schedule: Schedule,
    /// The number of snapshots that are kept per chain, the last ones.
    pub samples: usize,
}

impl Spec {
    fn read(reader: &Reader) -> Spec {
        Spec {
            particles: reader.count("particles", 1..=MAX_PARTICLES).about("Number of chains.").or(1) as i64,
            lr: reader
                .float("lr", Bounds::above(0.0))
                .about("Step size on the mean loss, times the schedule.")
                .required(),
            ess: reader
                .float("ess", Bounds::above(0.0))
                .about("Effective sample size: the number of training images.")
                .required_because("the effective sample size: the number of training images"),
            temperature: reader
                .float("temperature", Bounds::at_least(0.0))
                .about("Temperature of the posterior; below 1 it is colder than Bayes' rule says.")
                .or(1.0),
            weight_decay: reader
                .float("weight_decay", Bounds::at_least(0.0))
                .about("Weight decay: the prior's precision over the effective sample size.")
                .or(1e-4),
            schedule: Schedule::read(reader),
            samples: reader
                .count("samples", 1..=100_000)
                .about("Snapshots that are kept per chain, the last ones: each is a member that predicts.")
                .or(20),
        }
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Sgld::new(self.clone(), parts.seed, &parts.theta))
    }

    fn check_steps(&self, steps: usize) -> Result<()> {
        let Schedule { start, every } = self.schedule;
        ensure!(
            self.schedule.snapshots(steps as i64) >= 1,
            "method.sgld: no state would be kept in {steps} training steps: lower start = {start} or every = {every}"
        );
        Ok(())
    }

    fn kept_matrices(&self) -> u64 {
        self.samples as u64
    }

    /// The gradients and the noise.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        2
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        self.samples as u64
    }

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

struct Sgld {
    spec: Spec,
    noise: Noise,
    steps: i64,
    kept: Last,
}

impl Sgld {
    fn new(spec: Spec, seed: u64, theta: &Tensor) -> Sgld {
        let (noise, kept) = (Noise::new(seed, Purpose::Noise), Last::new(spec.samples, theta));
        Sgld { spec, noise, steps: 0, kept }
    }
}

impl Method for Sgld {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let Spec { lr, ess, temperature, weight_decay, schedule, .. } = self.spec;
        let rate = lr * factor;
        let Evaluation { losses, gradients } = objective.evaluate(theta)?;
        let noise = self.noise.draw(At { step: self.steps, sample: 0, part: 0 }, theta);
        *theta *= 1.0 - rate * weight_decay;
        *theta -= gradients * rate;
        *theta += noise * (2.0 * rate * temperature / ess).sqrt();
        self.steps += 1;
        if schedule.is_due(self.steps) {
            self.kept.push(theta.copy());
        }
        Ok(Step { losses, diagnostics: None })
    }

    fn has_posterior(&self) -> bool {
        self.kept.count() > 0
    }

    /// Before the first kept state, points: there is no bank yet.
    fn posterior(&self, theta: &Tensor) -> Posterior {
        if !self.has_posterior() {
            return Posterior::Points { theta: theta.shallow_clone() };
        }
        // A chain's states are next to each other.
        Posterior::Bank { draws: self.kept.stacked().flatten(0, 1).to_kind(Kind::Float) }
    }

    fn remarks(&self) -> Result<Vec<String>> {
        Ok(vec![format!("sgld: {} states of each chain are the posterior", self.kept.count())])
    }

    fn save(&self, state: &mut State) {
        state.put_count("sgld.steps", self.steps);
        self.kept.save("sgld.kept", state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.steps = state.count("sgld.steps")?;
        self.kept.load("sgld.kept", self.spec.schedule.snapshots(self.steps), state)
    }
}

#[cfg(test)]
mod tests;
