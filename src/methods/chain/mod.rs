//! Markov chains: methods whose rows are states of a sampler, and whose thinned states are the posterior.
//!
//! | symbol | here |
//! |---|---|
//! | N, the number of training images | `ess` |
//! | η, the step size on the mean loss | `lr`, times the schedules |
//! | T, the temperature | `temperature` |
//! | δ, the prior's precision over N | `weight_decay` |
//! | C, the steps of a cycle; β, the share of it that explores | `cycle`, `exploration` |
//!
//! A method differs from another one by its [`Dynamics`]: how a gradient and a noise with the standard deviation
//! √(2 η T / N) move theta. Everything else is here: the settings, the thinning, the cycles and the bank.
//!
//! Cycles (Zhang et al. 2020, arXiv 1902.03932, equation 1 and Algorithm 1): step k has the size
//! η_k = η/2 (cos(π ((k − 1) mod C) / C) + 1). In the first β C steps of a cycle there is no noise and nothing is kept; in the
//! others the chain samples.
//!
//! The authors' scripts have T = 1 / N unless `--temperature` says otherwise, which is a far colder chain than Bayes' rule: here T is 1
//! unless set. They sample in the last tenth of a cycle, and keep three states in it.
//!
//! With `weights = "step-size"` a kept state θ_t counts with its step size η_t: E[f(θ)] ≈ Σ_t η_t f(θ_t) / Σ_t η_t (Welling
//! and Teh 2011, section 4.2). Where the step size varies, equal weights would favour the states of small steps, which are
//! close to each other.

mod settings;

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::methods::snapshots::{self, Last};
use crate::methods::{Evaluation, Method, MethodSpec, Objective, Parts, Step, sharpness};
use crate::posterior::Posterior;
use crate::schema::{Reader, Resolved};

pub use settings::{Cycles, Settings, Weights};

/// One step of a chain.
pub struct Move<'a> {
    /// The gradients of the mean loss, `[n, P]`.
    pub gradients: &'a Tensor,
    /// Normal noise with the standard deviation √(2 η T / N), `[n, P]`; `None` where there is none.
    pub noise: Option<Tensor>,
    /// The step size η.
    pub rate: f64,
    /// The prior's precision over N, δ.
    pub weight_decay: f64,
}

/// The rule by which a chain moves.
pub trait Dynamics {
    /// Moves `theta: [n, P]` by one step.
    fn advance(&mut self, theta: &mut Tensor, step: Move);

    /// Keeps what a resumed chain needs.
    ///
    /// # Errors
    /// Fails if something is missing where it is restored, or has another shape.
    fn keep(&mut self, keeper: &mut Keeper) -> Result<()>;
}

/// The settings of a rule.
pub trait DynamicsSpec: Resolved {
    fn build(&self, theta: &Tensor) -> Box<dyn Dynamics>;

    /// Returns the number of matrices `[n, P]` that the rule keeps from step to step.
    fn kept_matrices(&self) -> u64 {
        0
    }
}

/// The settings of a method that is a chain.
pub struct Spec<D> {
    /// The key of the method.
    pub key: &'static str,
    pub settings: Settings,
    pub dynamics: D,
}

impl<D: DynamicsSpec> Spec<D> {
    pub fn read(key: &'static str, reader: &Reader, dynamics: D) -> Spec<D> {
        Spec { key, settings: Settings::read(reader), dynamics }
    }
}

impl<D: DynamicsSpec> MethodSpec for Spec<D> {
    fn particles(&self) -> i64 {
        self.settings.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        let chain =
            |parts: Parts| Chain::new(self.key, self.settings.clone(), self.dynamics.build(&parts.theta), &parts);
        sharpness::around(self.settings.sharpness, parts, chain)
    }

    fn check_steps(&self, steps: usize) -> Result<()> {
        let (key, kept) = (self.key, self.settings.kept(steps as i64));
        let start = self.settings.schedule.start;
        let way_out = match &self.settings.cycles {
            None => format!("lower start = {start} or every = {}", self.settings.schedule.every),
            Some(cycles) => format!("lower start = {start} or cycle = {}", cycles.cycle),
        };
        ensure!(kept >= 1, "method.{key}: no state would be kept in {steps} training steps: {way_out}");
        Ok(())
    }

    fn shortened(&self, steps: usize) -> Vec<(&'static str, toml::Value)> {
        let cycles = [("cycle", (steps as i64).into()), ("exploration", 0.0.into())];
        let cycles = self.settings.cycles.as_ref().map(|_| cycles);
        [("start", 0.into()), ("every", 1.into())].into_iter().chain(cycles.into_iter().flatten()).collect()
    }

    fn gathers_posterior(&self) -> bool {
        true
    }

    fn rows_after(&self, steps: usize) -> i64 {
        snapshots::rows(self.settings.particles, self.settings.kept(steps as i64), self.settings.samples)
    }

    fn noise_left_out(&self) -> Option<&'static str> {
        (self.settings.temperature == 0.0).then_some("a temperature of the method above 0")
    }

    fn schedules_rate(&self) -> bool {
        self.settings.cycles.is_some()
    }

    fn kept_matrices(&self) -> u64 {
        self.settings.samples as u64 + self.dynamics.kept_matrices()
    }

    /// The gradients, the noise, and one that a rule makes of them.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        3 + sharpness::matrices(self.settings.sharpness)
    }

    fn gradients_of_a_step(&self) -> u64 {
        sharpness::gradients(self.settings.sharpness)
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        self.settings.samples as u64
    }
}

impl<D: DynamicsSpec> Resolved for Spec<D> {
    fn resolved(&self) -> toml::Table {
        let mut table = self.settings.resolved();
        table.extend(self.dynamics.resolved());
        table
    }
}

struct Chain {
    key: &'static str,
    settings: Settings,
    dynamics: Box<dyn Dynamics>,
    noise: Noise,
    steps: i64,
    kept: Last,
    /// The step size η of each kept state.
    rates: VecDeque<f64>,
}

impl Chain {
    fn new(key: &'static str, settings: Settings, dynamics: Box<dyn Dynamics>, parts: &Parts) -> Chain {
        let noise = Noise::new(parts.seed, Purpose::Noise);
        let kept = Last::new(settings.samples, &parts.theta);
        Chain { key, settings, dynamics, noise, steps: 0, kept, rates: VecDeque::new() }
    }

    /// Keeps the states `theta: [n, P]` that steps of size `rate` have led to. The oldest go where there are too many.
    fn collect(&mut self, theta: &Tensor, rate: f64) {
        self.kept.push(theta.copy());
        self.rates.push_back(rate);
        while self.rates.len() > self.kept.count() {
            self.rates.pop_front();
        }
    }

    /// Returns the weights of the kept states of `chains` chains, with the sum 1; `None` if all weigh the same.
    fn weights(&self, chains: i64) -> Option<Vec<f64>> {
        let total = chains as f64 * self.rates.iter().sum::<f64>();
        // Steps that are all too small for a number in f64 count alike.
        let weighs = self.settings.weights == Weights::StepSize && total > 0.0;
        weighs.then(|| (0..chains).flat_map(|_| self.rates.iter().map(|rate| rate / total)).collect())
    }

    /// Returns the noise of the next step of size `rate`.
    fn noise(&self, theta: &Tensor, rate: f64) -> Option<Tensor> {
        let Settings { temperature, ess, .. } = self.settings;
        let noisy = temperature > 0.0 && self.settings.samples_at(self.steps);
        noisy.then(|| {
            let unit = self.noise.draw(At { step: self.steps, sample: 0, part: 0 }, theta);
            unit * (2.0 * rate * temperature / ess).sqrt()
        })
    }
}

impl Method for Chain {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let rate = self.settings.lr * factor * self.settings.cycle_factor(self.steps);
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        let noise = self.noise(theta, rate);
        let step = Move { gradients: &gradients, noise, rate, weight_decay: self.settings.weight_decay };
        self.dynamics.advance(theta, step);
        self.steps += 1;
        if self.settings.is_due(self.steps) {
            self.collect(theta, rate);
        }
        Ok(Step { losses, diagnostics: None })
    }

    fn has_posterior(&self) -> bool {
        self.kept.count() > 0
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        self.kept.posterior(theta, || self.weights(theta.size()[0]))
    }

    fn remarks(&self) -> Result<Vec<String>> {
        Ok(vec![format!("{}: {} states of each chain are the posterior", self.key, self.kept.count())])
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        let named = |name: &str| format!("{}.{name}", self.key);
        keeper.count(&named("steps"), &mut self.steps)?;
        self.kept.keep(&named("kept"), self.settings.kept(self.steps), keeper)?;
        if self.settings.weights == Weights::StepSize {
            let mut rates = Vec::from(std::mem::take(&mut self.rates));
            keeper.numbers(&named("rates"), &mut rates, self.kept.count())?;
            self.rates = rates.into();
        }
        self.dynamics.keep(keeper)
    }
}

#[cfg(test)]
pub mod tests;
