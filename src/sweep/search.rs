//! A search from its first rung to the choice.
//!
//! Successive halving (Jamieson & Talwalkar 2016): all trials train for a few epochs, the best of them for longer, and only
//! the last ones to the end. The schedule of the learning rate is that of the whole training from the start, so that a trial
//! which stays is the very run that would have been trained alone.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::jobs::{Ended, Launcher, Share};
use super::ledger::{Ledger, Standing, State, folder};
use super::space::{Axis, points};
use super::trial::Claims;
use super::trial::{Base, Refused, Trial};
use crate::base::files::create_folder;
use crate::base::hash::hex;
use crate::experiment::Experiment;

/// The settings of a search.
pub struct Request {
    pub base: Base,
    pub axes: Vec<Axis>,
    /// The most trials.
    pub budget: Option<usize>,
    /// The seed of the points that are drawn.
    pub seed: u64,
    /// One in this many trials goes on from a rung.
    pub factor: usize,
    /// Whether the trials of a rung are trained together, as rows of one matrix.
    pub packed: bool,
    pub out: PathBuf,
}

/// A search: its trials, and how far each has come.
pub struct Search {
    request: Request,
    pub trials: Vec<Trial>,
    pub standings: Vec<Standing>,
    pub halving: Halving,
    pub ledger: Ledger,
}

/// The way in which a search ended.
pub enum Outcome {
    /// The number of the trial in [`Search::trials`] that was chosen.
    Chosen(usize),
    Stopped,
}

impl Search {
    /// Reads the configs of all trials.
    ///
    /// # Errors
    /// Fails with the mistakes of the first trial that has some, if there is nothing to choose by, or if two trials are
    /// one run.
    pub fn new(request: Request) -> Result<Search> {
        for (at, axis) in request.axes.iter().enumerate() {
            let taken = request.axes[..at].iter().any(|other| other.key == axis.key);
            ensure!(!taken, Refused(format!("--over {}: comes twice; give all its values at once", axis.key)));
        }
        let points = points(&request.axes, request.budget, request.seed).map_err(|error| Refused(error.to_string()))?;
        let trial = |(at, point): (usize, &Vec<String>)| request.base.trial(at + 1, &request.axes, point, &request.out);
        let trials: Vec<Trial> = points.iter().enumerate().map(trial).collect::<Result<_>>()?;
        check_distinct(&trials, &request.axes)?;
        if request.packed {
            let experiments: Vec<&Experiment> = trials.iter().map(|trial| &trial.experiment).collect();
            Experiment::check_packed(&experiments).map_err(|why| Refused(format!("--packed: {why}")))?;
        }
        let epochs = trials.iter().map(|trial| trial.epochs).min().unwrap_or(1);
        let halving = Halving::new(request.factor, epochs, trials.len());
        let ledger = Ledger { folder: place(&request, &trials)? };
        let fresh = Standing { state: State::Waiting, epochs: 0, score: None, why: String::new() };
        let standings = vec![fresh; trials.len()];
        Ok(Search { request, trials, standings, halving, ledger })
    }

    pub fn axes(&self) -> &[Axis] {
        &self.request.axes
    }

    /// Trains the trials rung by rung and chooses among those that trained to the end. Other processes that run the same
    /// search train some of them, and come to the same choice.
    ///
    /// # Errors
    /// Fails if a process cannot be started, if a file cannot be written, or if no trial could be trained.
    pub fn run(&mut self, share: &Share, stop: &AtomicBool) -> Result<Outcome> {
        create_folder(&self.ledger.folder)?;
        let claims = Claims::join(&self.ledger.folder)?;
        if claims.alone {
            self.ledger.begin(&self.request.axes, &self.trials, &self.standings)?;
        } else {
            tracing::info!("another process works on this search: they share its trials");
        }
        let mut alive: Vec<usize> = (0..self.trials.len()).collect();
        for rung in 0..self.halving.rungs {
            if let Ended::Stopped = self.climb(rung, &alive, share, &claims, stop)? {
                self.ledger.write(&self.request.axes, &self.trials, &self.standings)?;
                return Ok(Outcome::Stopped);
            }
            let cost = |at: usize| self.standings[at].score.map(|score| self.trials[at].by.cost(score.value));
            let scores: Vec<_> = alive.iter().map(|at| (*at, cost(*at))).collect();
            let is_last = rung + 1 == self.halving.rungs;
            let kept = best(&scores, if is_last { alive.len() } else { self.halving.kept(alive.len()) });
            let left = alive.iter().filter(|at| !kept.contains(at) && self.standings[**at].state != State::Failed);
            for at in left.copied().collect::<Vec<_>>() {
                self.standings[at].state = State::Dropped;
            }
            alive = kept;
            self.ledger.write(&self.request.axes, &self.trials, &self.standings)?;
        }
        let chosen = *alive.first().with_context(|| {
            format!("no trial could be trained: {} has the reasons", self.ledger.trials().display())
        })?;
        alive.iter().for_each(|at| self.standings[*at].state = State::Finished);
        self.standings[chosen].state = State::Chosen;
        self.close(chosen)?;
        Ok(Outcome::Chosen(chosen))
    }

    /// Trains the trials that are left up to the epochs of a rung.
    fn climb(
        &mut self,
        rung: usize,
        alive: &[usize],
        share: &Share,
        claims: &Claims,
        stop: &AtomicBool,
    ) -> Result<Ended> {
        let Search { request, trials, standings, halving, ledger } = self;
        let trials: &[Trial] = trials;
        let tasks: Vec<(&Trial, usize)> =
            alive.iter().map(|at| (&trials[*at], halving.epochs(rung, trials[*at].epochs))).collect();
        tracing::info!(
            "rung {} of {}: {} trials up to epoch {}",
            rung + 1,
            halving.rungs,
            tasks.len(),
            tasks.first().map_or(0, |(_, epochs)| *epochs)
        );
        let (base, out, packed) = (&request.base, &request.out, request.packed);
        let launcher = Launcher { base, share, packed, out, logs: &ledger.folder, claims };
        let mut report = |trial: &Trial, failed: Option<String>, log: &Path| {
            let standing = &mut standings[trial.number - 1];
            *standing = Standing::after(trial, halving.epochs(rung, trial.epochs), failed);
            announce(trial, standing, &request.axes, log);
            ledger.write(&request.axes, trials, &standings[..])
        };
        launcher.train(&tasks, stop, &mut report)
    }

    /// Writes what was chosen.
    fn close(&self, chosen: usize) -> Result<()> {
        let Search { request, trials, standings, ledger, .. } = self;
        ledger.write(&request.axes, trials, standings)?;
        let score = standings[chosen].score.context("the chosen trial has no score")?;
        ledger.write_chosen(&trials[chosen], score, &request.axes, trials.len())?;
        ledger.draw(trials, Some(chosen))
    }
}

/// Reports the validation of a trial that has ended, or why it failed.
fn announce(trial: &Trial, standing: &Standing, axes: &[Axis], log: &Path) {
    let (number, words) = (trial.number, trial.words(axes));
    match standing.score {
        Some(score) => {
            let metric = trial.by.0.short;
            tracing::info!(
                "trial {number} ({words}): validation {metric} {:.4} by epoch {}",
                score.value,
                standing.epochs
            );
        }
        None => tracing::warn!("trial {number} ({words}) failed: {} [{}]", standing.why, log.display()),
    }
}

/// Refuses trials that are the same run, since a key does not change what is trained.
fn check_distinct(trials: &[Trial], axes: &[Axis]) -> Result<()> {
    let mut seen: HashMap<String, &Trial> = HashMap::new();
    for trial in trials {
        if let Some(other) = seen.insert(trial.run.id(), trial) {
            let changed = axes.iter().zip(other.values.iter().zip(&trial.values));
            let keys: Vec<&str> = changed.filter(|(_, (a, b))| a != b).map(|(axis, _)| axis.key.as_str()).collect();
            let why = format!(
                "--over {}: {} and {} are the same run: such a key does not change what is trained",
                keys.join(", "),
                other.words(axes),
                trial.words(axes)
            );
            return Err(Refused(why).into());
        }
    }
    Ok(())
}

/// Returns the folder of a search, which depends on what is searched, so that the same command finds it again.
fn place(request: &Request, trials: &[Trial]) -> Result<PathBuf> {
    let mut hash = Sha256::new();
    hash.update(request.factor.to_le_bytes());
    trials.iter().for_each(|trial| hash.update(trial.run.id()));
    let first = trials.first().context("no trials")?;
    Ok(folder(&request.out, &first.experiment.name, &hex(&hash.finalize()[..5])))
}

/// The rungs of a search: all but every `factor`-th trial leave after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halving {
    /// One in this many trials goes on; 1 trains all trials to the end.
    pub factor: usize,
    /// The number of rungs, at least 1.
    pub rungs: usize,
}

impl Halving {
    /// Returns as many rungs as leave one epoch for the first and one trial for the last.
    pub fn new(factor: usize, epochs: usize, trials: usize) -> Halving {
        let mut rungs = 1;
        let (mut epochs, mut trials) = (epochs, trials);
        while factor > 1 && epochs / factor >= 1 && trials > 1 {
            (epochs, trials) = (epochs / factor, trials.div_ceil(factor));
            rungs += 1;
        }
        Halving { factor, rungs }
    }

    /// Returns the number of epochs after which a trial is judged on a rung (from 0), of `epochs` in all.
    pub fn epochs(&self, rung: usize, epochs: usize) -> usize {
        let left = (self.rungs - 1 - rung) as u32;
        epochs.div_ceil(self.factor.saturating_pow(left))
    }

    /// Returns the number of trials that go on from a rung.
    pub fn kept(&self, trials: usize) -> usize {
        trials.div_ceil(self.factor)
    }
}

/// Returns the `count` trials with the lowest scores, best first; of equal ones the earlier. Trials without a score are
/// never among them.
pub fn best(scores: &[(usize, Option<f64>)], count: usize) -> Vec<usize> {
    let mut scored: Vec<(usize, f64)> = scores.iter().filter_map(|(trial, score)| Some((*trial, (*score)?))).collect();
    scored.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    scored.into_iter().take(count).map(|(trial, _)| trial).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_by_hand() {
        let of = |factor, epochs, trials| {
            let halving = Halving::new(factor, epochs, trials);
            (0..halving.rungs).map(|rung| halving.epochs(rung, epochs)).collect::<Vec<_>>()
        };
        assert_eq!(of(3, 9, 9), [1, 3, 9]);
        assert_eq!(of(3, 27, 9), [3, 9, 27]);
        assert_eq!(of(3, 10, 100), [2, 4, 10]);
        assert_eq!(of(2, 5, 4), [2, 3, 5]);
        assert_eq!(of(3, 2, 9), [2]);
        assert_eq!(of(1, 9, 9), [9]);
        assert_eq!(of(3, 9, 1), [9]);
        assert_eq!(Halving::new(3, 9, 9).kept(9), 3);
        assert_eq!(Halving::new(3, 9, 10).kept(4), 2);
    }

    #[test]
    fn the_best_are_those_with_the_lowest_scores() {
        let scores = [(4, Some(0.5)), (7, None), (8, Some(0.2)), (9, Some(0.5)), (10, Some(0.9))];
        assert_eq!(best(&scores, 3), [8, 4, 9]);
        assert_eq!(best(&scores, 9), [8, 4, 9, 10]);
        assert!(best(&[(0, None)], 1).is_empty());
    }
}
