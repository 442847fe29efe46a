//! `[method.mclmc]`: microcanonical Langevin dynamics (Robnik et al. 2023, arXiv 2212.08549 and 2303.18221) from the members of an
//! ensemble: microcanonical Langevin ensembles, MILE (Sommer et al. 2025, arXiv 2502.06335). Each row is a chain whose states, thinned,
//! are the posterior. A chain moves with a speed of constant length, so that a steep place costs no instability.
//!
//! | symbol | here |
//! |---|---|
//! | E(θ) = (N / T) (L̄(θ) + δ ‖θ‖² / 2), the energy of a batch | N is `ess`, T `temperature`, δ `weight_decay` |
//! | u, the direction of a particle's speed, of length 1; d the number of its columns | [`direction`](Mclmc) |
//! | turn(b): with e = −∇E / ‖∇E‖, Δ = ε b ‖∇E‖ / (d − 1), ζ = e^−Δ, u ← e (1 − ζ) (1 + ζ + (u·e) (1 − ζ)) + 2 ζ u, over its length | `turn` |
//! | go(a): θ ← θ + ε a u | |
//! | refresh: u ← u + ν z over its length, ν² = (e^(ε / ℓ) − 1) / d, z ~ N(0, 1) | ℓ is `length` |
//! | a step: refresh, turn(b), go(½), turn(1 − 2 b), go(½), turn(b), refresh, with b = 0.1931833… (McLachlan) | three gradients of one batch |
//! | ΔE, the change of the energy and of the speed's own, (d − 1) (Δ − ln 2 + ln (1 + u·e + (1 − u·e) ζ²)) | 0 for an exact step |
//!
//! The first `fit_steps` steps are the optimizer's with the training's schedule, so that the chains begin as an ensemble. In the next `tune_steps` steps ε follows
//! Var[ΔE] ∝ ε⁶ towards the variance d · `energy_variance`, by the running means of blackjax, and ℓ becomes √(Σ of the columns' variances)
//! over the second half of them, unless it is given.
//!
//! Differs from blackjax, to whose steps these are equal: ε at most doubles in a step, a number that is not finite ends the training
//! instead of the step, and ℓ is not refined by autocorrelations. The preconditioning by gradient noise and the tuner of SMILE (arXiv
//! 2602.06500) are not here.

mod tuning;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::random::{At, Noise, Purpose};
use crate::base::tensor_file::State;
use crate::methods::snapshots::{Last, Schedule};
use crate::methods::{
    Entry, Evaluation, MAX_PARTICLES, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant,
    spec,
};
use crate::posterior::Posterior;
use crate::schema::{Reader, settings};
use tuning::{Tuning, Wanted};

pub static ENTRY: Entry = Entry {
    key: "mclmc",
    about: "microcanonical Langevin dynamics: chains of constant speed from the members of an ensemble (MILE)",
    paper: "MCLMC, MILE",
    update: Update::Optimizer,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant {
        key: "mclmc",
        sets: &["ess=1e6", "start=0", "every=1", "tune_steps=0", "step_size=0.01", "length=1"],
        asks_for_mixing: false,
    }],
    names: &[("full", "MCLMC"), ("low-rank", "Low-rank MCLMC")],
    names_of_many: &[("full", "MILE"), ("low-rank", "Low-rank MILE")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        /// Number of chains.
        pub particles: i64 = 1, in 1..=MAX_PARTICLES;
        pub ess: f64, by spec::ess;
        /// Temperature of the posterior; below 1 it is colder than Bayes' rule says.
        pub temperature: f64 = 1.0, in above(0.0);
        /// Weight decay: the prior's precision over the effective sample size.
        pub weight_decay: f64 = 1e-4, in at_least(0.0);
        /// Training steps at the beginning in which the optimizer moves the chains.
        pub fit_steps: i64 = 0, in 0..=1_000_000_000;
        /// Steps after those in which the size and the length of the steps are tuned; 0 for none.
        pub tune_steps: i64 = 100, in 0..=1_000_000_000;
        /// Size ε of a step, the distance that it goes: where tuning starts, or fixed.
        pub step_size: f64 = 1e-3, in above(0.0);
        /// Length ℓ over which a chain keeps its direction; found by tuning unless it is given.
        pub length: Option<f64>, in above(0.0);
        /// Variance of a step's energy error for each column that tuning wants.
        pub energy_variance: f64 = 5e-4, in above(0.0);
        pub schedule: Schedule, part Schedule::read;
        /// Snapshots that are kept per chain, the last ones: each is a member that predicts.
        pub samples: usize = 20, in 1..=100_000;
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        if self.length.is_none() && self.tune_steps < 4 {
            let why = "must be given with so few tune_steps: at least 4 are needed to find it";
            reader.problem("length", why);
        }
        if self.schedule.start < self.fit_steps + self.tune_steps {
            let why = format!(
                "= {} is before the {} steps of fit_steps and tune_steps are over: raise it, or lower those",
                self.schedule.start,
                self.fit_steps + self.tune_steps
            );
            reader.problem("start", why);
        }
    }
}

impl Spec {
    /// Returns the settings of tuning.
    fn wanted(&self) -> Wanted {
        let Spec { energy_variance, tune_steps, step_size, length, .. } = *self;
        Wanted { energy_variance, steps: tune_steps, step_size, length }
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Mclmc::new(self.clone(), parts))
    }

    fn check_steps(&self, steps: usize) -> Result<()> {
        let Schedule { start, every } = self.schedule;
        ensure!(
            self.schedule.snapshots(steps as i64) >= 1,
            "method.mclmc: no state would be kept in {steps} training steps: lower start = {start} or every = {every}"
        );
        Ok(())
    }

    fn shortened(&self, _: usize) -> Vec<(&'static str, toml::Value)> {
        let length = self.length.unwrap_or(1.0);
        vec![
            ("fit_steps", 0.into()),
            ("tune_steps", 0.into()),
            ("length", length.into()),
            ("start", 0.into()),
            ("every", 1.into()),
        ]
    }

    fn gathers_posterior(&self) -> bool {
        true
    }

    /// The states, the direction, and the two moments of the columns while it is tuned.
    fn kept_matrices(&self) -> u64 {
        self.samples as u64 + 1 + if self.tune_steps > 0 { 2 } else { 0 }
    }

    /// The gradients, those of the energy, and two that a turn makes of them.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        4
    }

    fn gradients_of_a_step(&self) -> u64 {
        3
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        self.samples as u64
    }
}

/// The share of a step that its outer turns take.
const OUTER: f64 = 0.1931833275037836;

struct Mclmc {
    spec: Spec,
    parts: Parts,
    noise: Noise,
    steps: i64,
    /// u, `[n, P]`.
    direction: Tensor,
    tuning: Tuning,
    kept: Last,
}

/// The energy of a batch.
struct Energy {
    /// The mean losses, `[n]`.
    losses: Tensor,
    /// E, `[n, 1]` in f64.
    value: Tensor,
    /// ∇E, `[n, P]`.
    gradient: Tensor,
}

/// Returns rows over their lengths.
fn unit(rows: &Tensor) -> Tensor {
    rows / rows.norm_scalaropt_dim(2.0, [1], true)
}

impl Mclmc {
    fn new(spec: Spec, parts: Parts) -> Mclmc {
        let noise = Noise::new(parts.seed, Purpose::Noise);
        let direction = unit(&noise.draw(At { step: -1, sample: 0, part: 0 }, &parts.theta));
        let tuning = Tuning::new(&spec.wanted(), &parts.theta);
        let kept = Last::new(spec.samples, &parts.theta);
        Mclmc { spec, parts, noise, steps: 0, direction, tuning, kept }
    }

    fn energy(&self, theta: &Tensor, objective: &mut dyn Objective) -> Result<Energy> {
        let Spec { ess, temperature, weight_decay, .. } = self.spec;
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        let scale = ess / temperature;
        let prior = theta.to_kind(Kind::Double).square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        let value = (losses.to_kind(Kind::Double).unsqueeze(1) + prior * (weight_decay / 2.0)) * scale;
        Ok(Energy { losses, value, gradient: (gradients + theta * weight_decay) * scale })
    }

    /// Turns the direction by a share of a step, and returns the change of the speed's own energy, `[n, 1]`.
    fn turn(&mut self, gradient: &Tensor, share: f64) -> Tensor {
        let more = (gradient.size()[1] - 1).max(1) as f64;
        let kind = self.direction.kind();
        let length = gradient.norm_scalaropt_dim(2.0, [1], true).to_kind(Kind::Double);
        // A gradient of nothing has no direction; the least length is a number in f32, too.
        let away = -gradient / length.clamp_min(f64::from(f32::MIN_POSITIVE)).to_kind(kind);
        let along = (&self.direction * &away).sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        let delta = self.tuning.step_size() * &length * (share / more);
        let zeta = (-&delta).exp();
        let rest: Tensor = 1.0 - &zeta;
        let turned: Tensor = 1.0 + &zeta + &along * &rest;
        let by_gradient = (rest * turned).to_kind(kind);
        self.direction = unit(&(away * by_gradient + &self.direction * (&zeta * 2.0).to_kind(kind)));
        let apart: Tensor = 1.0 - &along;
        let grown: Tensor = 1.0 + along + apart * zeta.square();
        (delta - 2f64.ln() + grown.log()) * more
    }

    /// Adds noise to the direction, for the first or the second half of a step.
    fn refresh(&mut self, half: i64) {
        let columns = self.direction.size()[1] as f64;
        let ratio = self.tuning.step_size() / self.tuning.length();
        let width = (ratio.expm1() / columns).sqrt().to_kind(self.direction.kind());
        let noise = self.noise.draw(At { step: 2 * self.steps + half, sample: 0, part: 0 }, &self.direction);
        self.direction = unit(&(&self.direction + noise * width));
    }

    fn go(&self, theta: &mut Tensor, share: f64) {
        *theta += &self.direction * (self.tuning.step_size() * share).to_kind(self.direction.kind());
    }

    /// Makes a step, and returns the losses where it began and ΔE, `[n, 1]`.
    fn advance(&mut self, theta: &mut Tensor, objective: &mut dyn Objective) -> Result<(Tensor, Tensor)> {
        self.refresh(0);
        let first = self.energy(theta, objective)?;
        let mut error = self.turn(&first.gradient, OUTER) - &first.value;
        self.go(theta, 0.5);
        let middle = self.energy(theta, objective)?;
        error += self.turn(&middle.gradient, 1.0 - 2.0 * OUTER);
        self.go(theta, 0.5);
        let last = self.energy(theta, objective)?;
        error += self.turn(&last.gradient, OUTER) + last.value;
        self.refresh(1);
        Ok((first.losses, error))
    }
}

impl Method for Mclmc {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let nothing = || self.tuning.step_size().zeros_like();
        let (losses, error) = if self.steps < self.spec.fit_steps {
            let error = nothing();
            let Evaluation { losses, gradients } = objective.losses(theta)?;
            self.parts.apply(theta, &gradients, objective, factor)?;
            (losses, error)
        } else {
            let (losses, error) = self.advance(theta, objective)?;
            self.tuning.learn(self.steps - self.spec.fit_steps, theta, &error);
            (losses, error)
        };
        self.steps += 1;
        if self.spec.schedule.is_due(self.steps) {
            self.kept.push(theta.copy());
        }
        let each = error.square() / theta.size()[1] as f64;
        let means = [&each, self.tuning.step_size(), self.tuning.length()].map(|t| t.mean(Kind::Double));
        Ok(Step { losses, diagnostics: Some(Tensor::stack(&means, 0)) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["energy_variance", "step_size", "length"]
    }

    fn has_posterior(&self) -> bool {
        self.kept.count() > 0
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        self.kept.posterior(theta, || None)
    }

    fn remarks(&self) -> Result<Vec<String>> {
        Ok(vec![format!(
            "mclmc: {} states of each chain are the posterior; {}",
            self.kept.count(),
            self.tuning.said()?
        )])
    }

    fn save(&self, state: &mut State) {
        self.parts.optimizer.save(state);
        state.put("mclmc.direction", &self.direction);
        state.put_count("mclmc.steps", self.steps);
        self.tuning.save(state);
        self.kept.save("mclmc.kept", state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.parts.optimizer.load(state)?;
        state.copy_into("mclmc.direction", &mut self.direction)?;
        self.steps = state.count("mclmc.steps")?;
        self.tuning.load(state)?;
        self.kept.load("mclmc.kept", self.spec.schedule.snapshots(self.steps), state)
    }
}

#[cfg(test)]
mod tests;
