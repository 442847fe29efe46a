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
//! With `dynamics = "smile"` or `"psmile"` the batches' own noise turns the directions instead, and ε is tuned all the time ([`smile`]).
//!
//! Differs from blackjax, to whose steps these are equal: ε at most doubles in a step, a number that is not finite ends the training
//! instead of the step, and ℓ is not refined by autocorrelations.

mod langevin;
mod smile;
mod tuning;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::random::{Noise, Purpose};
use crate::methods::snapshots::{self, Last, Schedule};
use crate::methods::{
    Entry, Evaluation, MAX_PARTICLES, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant,
    spec,
};
use crate::posterior::Posterior;
use crate::schema::{Reader, settings, words};
use langevin::Langevin;
use smile::{Adaption, Moved, Scale, Smile};
use tuning::Wanted;

pub static ENTRY: Entry = Entry {
    key: "mclmc",
    about: "microcanonical Langevin dynamics: chains of constant speed from the members of an ensemble (MILE)",
    paper: "MCLMC, MILE, SMILE",
    update: Update::OwnAfter("fit_steps"),
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[
        Variant {
            key: "mclmc",
            sets: &["ess=1e6", "start=0", "every=1", "tune_steps=0", "step_size=0.01", "length=1"],
            asks_for_mixing: false,
        },
        Variant {
            key: "smile",
            sets: &["dynamics=smile", "ess=1e6", "start=0", "every=1", "tune_steps=0", "step_size=0.01"],
            asks_for_mixing: false,
        },
        Variant {
            key: "psmile",
            sets: &["dynamics=psmile", "ess=1e6", "start=0", "every=1", "tune_steps=0", "step_size=0.01"],
            asks_for_mixing: false,
        },
    ],
    names: &[("full", "MCLMC"), ("low-rank", "Low-rank MCLMC")],
    names_of_many: &[("full", "MILE"), ("low-rank", "Low-rank MILE")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

words! {
    /// Where the noise of a chain comes from.
    pub enum Dynamics {
        /// It is drawn.
        Langevin = "langevin",
        /// Batches differ.
        Smile = "smile",
        /// Batches differ, and columns are scaled by the noise of their gradients.
        Preconditioned = "psmile",
    }
}

/// The wanted variance of a step's energy error for each column, unless a config says otherwise.
const ENERGY_VARIANCE: f64 = 5e-4;

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        /// Number of chains.
        pub particles: i64 = 1, in 1..=MAX_PARTICLES;
        /// Where the noise of a chain comes from: drawn (langevin), or from the batches alone (smile, and psmile, which scales columns by the noise of their gradients).
        pub dynamics: Dynamics = Dynamics::Langevin, omit Dynamics::Langevin;
        pub ess: f64, by spec::ess;
        /// Temperature of the posterior; below 1 it is colder than Bayes' rule says.
        pub temperature: f64 = 1.0, in above(0.0);
        /// Weight decay: the prior's precision over the effective sample size.
        pub weight_decay: f64 = 1e-4, in at_least(0.0);
        /// Training steps at the beginning in which the optimizer moves the chains; with 0 there is none, [optimizer.none].
        pub fit_steps: i64 = 0, in 0..=1_000_000_000;
        /// Steps after those in which the size and the length of the steps are tuned; 0 for none. SMILE tunes its size in all steps, and only waits for so long.
        pub tune_steps: i64 = 100, in 0..=1_000_000_000;
        /// Size ε of a step, the distance that it goes: where tuning starts, or fixed.
        pub step_size: f64 = 1e-3, in above(0.0);
        /// Length ℓ over which a chain keeps its direction; found by tuning unless it is given.
        pub length: Option<f64>, in above(0.0);
        /// Variance of a step's energy error for each column that tuning wants.
        pub energy_variance: f64 = ENERGY_VARIANCE, in above(0.0);
        /// SMILE: the quantile of the energy errors so far above which a step is undone.
        pub guard: f64 = 0.99, in between(0.0, 1.0), omit 0.99;
        /// SMILE: the share of the errors by which the size changes: above the upper two thirds it shrinks, below the lower third it grows.
        pub tails: f64 = 0.05, in between(0.0, 1.0), omit 0.05;
        /// SMILE: the share by which the size changes.
        pub adaption: f64 = 0.02, in between(0.0, 1.0), omit 0.02;
        /// SMILE: the share of a new error in the running mean and deviation of the errors.
        pub smoothing: f64 = 0.01, in between(0.0, 1.0), omit 0.01;
        pub schedule: Schedule, part Schedule::read;
        /// Snapshots that are kept per chain, the last ones: each is a member that predicts.
        pub samples: usize = 20, in 1..=100_000;
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        self.check_dynamics(reader);
        if self.dynamics == Dynamics::Langevin && self.length.is_none() && self.tune_steps < 4 {
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
    /// Refuses what the other dynamics have.
    fn check_dynamics(&self, reader: &Reader) {
        let is_smile = self.dynamics != Dynamics::Langevin;
        for key in ["guard", "tails", "adaption", "smoothing"].into_iter().filter(|key| !is_smile && reader.sets(key)) {
            reader.problem(key, "is for dynamics = \"smile\" and \"psmile\": leave it out, or set one of these");
        }
        if self.energy_variance != ENERGY_VARIANCE && (is_smile || self.tune_steps == 0) {
            let why = match is_smile {
                true => "is for dynamics = \"langevin\", which alone is tuned by it: leave it out",
                false => "is what tuning wants, and tune_steps = 0 tunes nothing: leave it out, or raise tune_steps",
            };
            reader.problem("energy_variance", why);
        }
        if is_smile && self.length.is_some() {
            let why =
                "is for dynamics = \"langevin\": the batches alone turn the directions of the others; leave it out";
            reader.problem("length", why);
        }
    }

    /// Returns the settings of SMILE's size of steps.
    fn adaption(&self) -> Adaption {
        let Spec { step_size, guard, tails, adaption, smoothing, .. } = *self;
        Adaption { step_size, guard, tails, adaption, smoothing }
    }

    fn scale(&self) -> Scale {
        Scale { scale: self.ess / self.temperature, weight_decay: self.weight_decay }
    }

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

    fn rows_after(&self, steps: usize) -> i64 {
        snapshots::rows(self.particles, self.schedule.snapshots(steps as i64), self.samples)
    }

    fn starts_by_optimizer(&self) -> bool {
        self.fit_steps > 0
    }

    fn shortened(&self, _: usize) -> Vec<(&'static str, toml::Value)> {
        let fit = i64::from(self.fit_steps > 0);
        let steps = [("fit_steps", fit), ("tune_steps", 0), ("start", fit)].map(|(key, steps)| (key, steps.into()));
        let length = (self.dynamics == Dynamics::Langevin).then(|| ("length", self.length.unwrap_or(1.0).into()));
        steps.into_iter().chain([("every", 1.into())]).chain(length).collect()
    }

    fn gathers_posterior(&self) -> bool {
        true
    }

    fn noise_left_out(&self) -> Option<&'static str> {
        (self.dynamics != Dynamics::Langevin).then_some("method.mclmc.dynamics = \"langevin\"")
    }

    /// The states, the direction, and what the dynamics keep: the two moments of the columns by which a length is found, or the last gradient and the
    /// noise of gradients.
    fn kept_matrices(&self) -> u64 {
        let own = match self.dynamics {
            Dynamics::Langevin if self.tune_steps > 0 && self.length.is_none() => 2,
            Dynamics::Langevin => 0,
            Dynamics::Smile => 1,
            Dynamics::Preconditioned => 3,
        };
        self.samples as u64 + 1 + own
    }

    /// The gradients, those of the energy, and two that a turn makes of them; with SMILE the new state, its direction and their scale, too.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        if self.dynamics == Dynamics::Langevin { 4 } else { 7 }
    }

    fn gradients_of_a_step(&self) -> u64 {
        if self.dynamics == Dynamics::Langevin { 3 } else { 2 }
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        self.samples as u64
    }
}

/// The dynamics of the chains, with what they keep.
enum Chains {
    Langevin(Langevin),
    Smile(Smile),
}

struct Mclmc {
    spec: Spec,
    parts: Parts,
    steps: i64,
    /// u, `[n, P]`.
    direction: Tensor,
    chains: Chains,
    kept: Last,
}

impl Mclmc {
    fn new(spec: Spec, parts: Parts) -> Mclmc {
        let smile = |is_preconditioned| Chains::Smile(Smile::new(spec.adaption(), is_preconditioned, &parts.theta));
        let chains = match spec.dynamics {
            Dynamics::Langevin => {
                let noise = Noise::new(parts.seed, Purpose::Noise);
                Chains::Langevin(Langevin::new(&spec.wanted(), noise, &parts.theta))
            }
            Dynamics::Smile => smile(false),
            Dynamics::Preconditioned => smile(true),
        };
        let direction = match &chains {
            Chains::Langevin(langevin) => langevin.start(&parts.theta),
            // The first gradient gives the direction.
            Chains::Smile(_) => parts.theta.zeros_like(),
        };
        let kept = Last::new(spec.samples, &parts.theta);
        Mclmc { spec, parts, steps: 0, direction, chains, kept }
    }

    /// Makes a step of the chains.
    fn advance(&mut self, theta: &mut Tensor, objective: &mut dyn Objective) -> Result<Moved> {
        let scale = self.spec.scale();
        match &mut self.chains {
            Chains::Smile(smile) => smile.advance(theta, &mut self.direction, objective, scale),
            Chains::Langevin(langevin) => {
                let moved = langevin.advance(self.steps, theta, &mut self.direction, objective, scale)?;
                langevin.tuning.learn(self.steps - self.spec.fit_steps, theta, &moved.error);
                Ok(moved)
            }
        }
    }

    /// Makes a step of the optimizer, before those of the chains.
    fn fit(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Moved> {
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        self.parts.apply(theta, &gradients, objective, factor)?;
        let nothing = || Tensor::zeros([theta.size()[0], 1], (Kind::Double, theta.device()));
        Ok(Moved { losses, error: nothing(), undone: nothing() })
    }
}

impl Method for Mclmc {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let moved = match self.steps < self.spec.fit_steps {
            true => self.fit(theta, objective, factor)?,
            false => self.advance(theta, objective)?,
        };
        let Moved { losses, error, undone } = moved;
        self.steps += 1;
        if self.spec.schedule.is_due(self.steps) {
            self.kept.push(theta.copy());
        }
        let each = error.square() / theta.size()[1] as f64;
        let found = match &self.chains {
            Chains::Smile(smile) => [&each, smile.step_size(), &undone],
            Chains::Langevin(Langevin { tuning, .. }) => [&each, tuning.step_size(), tuning.length()],
        };
        Ok(Step { losses, diagnostics: Some(Tensor::stack(&found.map(|t| t.mean(Kind::Double)), 0)) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        match self.chains {
            Chains::Smile(_) => &["energy_variance", "step_size", "undone"],
            Chains::Langevin(_) => &["energy_variance", "step_size", "length"],
        }
    }

    fn has_posterior(&self) -> bool {
        self.kept.count() > 0
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        self.kept.posterior(theta, || None)
    }

    fn remarks(&self) -> Result<Vec<String>> {
        let said = match &self.chains {
            Chains::Smile(smile) => smile.said()?,
            Chains::Langevin(langevin) => langevin.tuning.said()?,
        };
        Ok(vec![format!("mclmc: {} states of each chain are the posterior; {said}", self.kept.count())])
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        keeper.tensor("mclmc.direction", &mut self.direction)?;
        keeper.count("mclmc.steps", &mut self.steps)?;
        keeper.below("mclmc.", |keeper| match &mut self.chains {
            Chains::Smile(smile) => smile.keep(keeper),
            Chains::Langevin(langevin) => langevin.tuning.keep(keeper),
        })?;
        self.kept.keep("mclmc.kept", self.spec.schedule.snapshots(self.steps), keeper)
    }
}

#[cfg(test)]
mod tests;
