//! The settings that all chains have, and the steps after which a state is kept.

use std::f64::consts::PI;

use serde::Serialize;

use crate::methods::sharpness::Sharpness;
use crate::methods::snapshots::Schedule;
use crate::methods::{MAX_PARTICLES, spec};
use crate::schema::{Reader, Resolved, limits, settings, words};

words! {
    /// The weights of the kept states in every average.
    pub enum Weights {
        /// All states weigh the same.
        Equal = "equal",
        /// A state weighs as much as the size of the step that led to it.
        StepSize = "step-size",
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// Number of chains.
        pub particles: i64 = 1, in 1..=MAX_PARTICLES;
        /// Step size on the mean loss, times the schedule.
        pub lr: f64, in above(0.0);
        pub ess: f64, by spec::ess;
        /// Temperature of the posterior; below 1 it is colder than Bayes' rule says.
        pub temperature: f64 = 1.0, in at_least(0.0);
        /// Weight decay: the prior's precision over the effective sample size.
        pub weight_decay: f64 = 1e-4, in at_least(0.0);
        pub schedule: Schedule, part Schedule::read;
        pub cycles: Option<Cycles>, part Cycles::read;
        /// Snapshots that are kept per chain, the last ones: each is a member that predicts.
        pub samples: usize = 20, in 1..=100_000;
        /// Weights of the snapshots in every average: equal, or the size of the step that led to each.
        pub weights: Weights = Weights::Equal, omit Weights::Equal;
        pub sharpness: Option<Sharpness>, part Sharpness::option;
    } then check
}

/// A cyclical step size.
#[derive(Serialize, Clone, Debug)]
pub struct Cycles {
    /// The steps of a cycle, C.
    pub cycle: i64,
    /// The share of a cycle without noise and without states that are kept, β.
    pub exploration: f64,
}
impl Settings {
    fn check(&self, reader: &Reader) {
        let Some(cycles) = &self.cycles else { return };
        let (every, sampling) = (self.schedule.every, cycles.cycle - cycles.explored());
        if every > sampling {
            let why = format!(
                "keeps no state: a cycle of {} steps samples in {sampling} of them; lower every or exploration",
                cycles.cycle
            );
            reader.problem("every", why);
        }
    }

    /// Returns the number of states that are kept of each chain in the first `steps` steps.
    pub fn kept(&self, steps: i64) -> i64 {
        let Schedule { start, every } = self.schedule;
        match &self.cycles {
            None => self.schedule.snapshots(steps),
            Some(cycles) => (cycles.states(steps, every) - cycles.states(start, every)).max(0),
        }
    }

    /// Returns whether the state after step number `step`, counted from 1, is kept.
    pub fn is_due(&self, step: i64) -> bool {
        self.kept(step) > self.kept(step - 1)
    }

    /// Returns the share of the step size in the step after `done` steps.
    pub fn cycle_factor(&self, done: i64) -> f64 {
        self.cycles.as_ref().map_or(1.0, |cycles| cycles.factor(done))
    }

    /// Returns whether the step after `done` steps has noise.
    pub fn samples_at(&self, done: i64) -> bool {
        self.cycles.as_ref().is_none_or(|cycles| done % cycles.cycle >= cycles.explored())
    }
}

impl Resolved for Cycles {
    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

impl Cycles {
    fn read(reader: &Reader) -> Option<Cycles> {
        let cycle = reader
            .count("cycle", 2..=1_000_000_000)
            .about("Training steps of a cycle of the step size, from `lr` down to 0; without it there are no cycles.")
            .optional();
        let exploration = reader
            .float("exploration", limits::from_below(0.0, 1.0))
            .about("Share of a cycle, its first steps, without noise and without snapshots.")
            .or(0.8);
        if cycle.is_none() && reader.sets("exploration") {
            reader.problem("exploration", "is the share of a cycle, and there is none: set cycle, or leave it out");
        }
        cycle.map(|cycle| Cycles { cycle: cycle as i64, exploration })
    }

    /// Returns the number of steps at the start of a cycle that explore.
    fn explored(&self) -> i64 {
        /// More than the rounding of the product: 0.55 of 100 steps are 55, and not 55.000000000000007.
        const ROUNDING: f64 = 1e-6;
        (self.exploration * self.cycle as f64 - ROUNDING).ceil() as i64
    }

    /// Returns the number of states that the first `steps` steps give, one each `every` sampling steps of a cycle.
    fn states(&self, steps: i64, every: i64) -> i64 {
        let within = |steps: i64| (steps - self.explored()).max(0) / every;
        steps / self.cycle * within(self.cycle) + within(steps % self.cycle)
    }

    fn factor(&self, done: i64) -> f64 {
        0.5 * ((PI * (done % self.cycle) as f64 / self.cycle as f64).cos() + 1.0)
    }
}
