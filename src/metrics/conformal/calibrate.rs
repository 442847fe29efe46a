//! Thresholds from calibration images, the sets that follow from them, and the sets that a command makes.

use std::fmt;

use anyhow::{Result, ensure};

use super::rule::{Alpha, Role, Rule, Thresholds};
use crate::base::small::Usage;
use crate::metrics::average::{Average, UNSCALED};
use crate::metrics::sample::{Ranked, each_sample};
use crate::metrics::scores::labels;
use crate::predictions::Predictions;

/// The error that a level asks for more calibration images than there are.
#[derive(Debug)]
pub struct TooFew {
    alpha: Alpha,
    found: usize,
    /// The class of the images, if each class has a threshold of its own.
    class: Option<String>,
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooFew { alpha, found, class } = self;
        let whose = class.as_ref().map_or(String::new(), |class| format!(" of class `{class}`"));
        write!(
            f,
            "conformal level {alpha}: {found} calibration images{whose} do not suffice, at least ceil(1/alpha) - 1 = {} \
             are needed: hold more training images out (data.*.validation), or choose a larger level",
            alpha.least_images()
        )
    }
}

impl std::error::Error for TooFew {}

/// Thresholds that were taken from calibration images.
#[derive(Clone)]
pub struct Calibrated {
    pub rule: Rule,
    pub average: Average,
    pub alpha: Alpha,
    /// The largest score of a class that belongs to the set, `[C]`.
    pub thresholds: Vec<f64>,
    /// The number of calibration images.
    pub samples: usize,
}

impl Rule {
    /// Checks that there are enough calibration images with these labels, `[N]`.
    ///
    /// # Errors
    /// Fails with [`TooFew`], for the first class that lacks images if each has a threshold of its own.
    pub fn check(&self, alpha: Alpha, labels: &[u32], class_names: &[String]) -> Result<(), TooFew> {
        let enough = |found: usize, class: Option<&String>| match found < alpha.least_images() {
            true => Err(TooFew { alpha, found, class: class.cloned() }),
            false => Ok(()),
        };
        match self.thresholds {
            Thresholds::Shared => enough(labels.len(), None),
            Thresholds::ClassWise => class_names.iter().enumerate().try_for_each(|(class, name)| {
                enough(labels.iter().filter(|label| **label as usize == class).count(), Some(name))
            }),
        }
    }
}

impl Calibrated {
    /// Takes the thresholds of every rule, average and level from the predictions on calibration images.
    ///
    /// # Errors
    /// Fails if the predictions have no labels, if a logit is not finite, or if there are too few images for a level.
    pub fn all(rules: &[Rule], alphas: &[Alpha], held_out: &Predictions) -> Result<Vec<Calibrated>> {
        let labels = labels(held_out)?;
        let names = held_out.names_or_numbers();
        for (rule, alpha) in rules.iter().flat_map(|rule| alphas.iter().map(move |alpha| (rule, alpha))) {
            rule.check(*alpha, labels, &names)?;
        }
        let kinds: Vec<(Rule, Average)> =
            rules.iter().flat_map(|rule| Average::ALL.map(|average| (*rule, average))).collect();
        let scores = each_sample(held_out, UNSCALED, |scratch, i| {
            scratch.read(held_out, i)?;
            let ranked = Average::ALL.map(|average| scratch.ranked(average));
            let of_label = |(rule, average): &(Rule, Average)| {
                let Ranked { classes, probabilities } = &ranked[*average as usize];
                let place = classes.iter().position(|class| *class as u32 == labels[i]).unwrap_or(0);
                (rule.score.of)(probabilities, rule.draw(Role::Calibration, i), rule.regularisation)[place]
            };
            Ok(kinds.iter().map(of_label).collect::<Vec<f64>>())
        })?;
        let mut all = Vec::new();
        for (at, (rule, average)) in kinds.into_iter().enumerate() {
            let own: Vec<f64> = scores.iter().map(|row| row[at]).collect();
            for alpha in alphas {
                let thresholds = thresholds(rule.thresholds, &own, labels, held_out.classes(), *alpha)?;
                all.push(Calibrated { rule, average, alpha: *alpha, thresholds, samples: labels.len() });
            }
        }
        Ok(all)
    }

    /// Returns the sets of all samples, each with the most probable class first. `first` is the place of the first sample
    /// among all images that are predicted.
    ///
    /// # Errors
    /// Fails if the predictions have another number of classes, or if a logit is not finite.
    pub fn sets(&self, predictions: &Predictions, first: usize) -> Result<Vec<Vec<usize>>> {
        check_classes(std::slice::from_ref(self), predictions)?;
        each_sample(predictions, UNSCALED, |scratch, i| {
            scratch.read(predictions, i)?;
            Ok(self.set(&scratch.ranked(self.average), first + i))
        })
    }

    /// Returns the set of one image, which is the `image`-th that is predicted.
    pub(super) fn set(&self, ranked: &Ranked, image: usize) -> Vec<usize> {
        let scores =
            (self.rule.score.of)(&ranked.probabilities, self.rule.draw(Role::Test, image), self.rule.regularisation);
        let inside = ranked.classes.iter().zip(scores).filter(|(class, score)| *score <= self.thresholds[**class]);
        inside.map(|(class, _)| *class).collect()
    }
}

/// Fails unless the thresholds are for as many classes as the predictions have.
pub(super) fn check_classes(all: &[Calibrated], predictions: &Predictions) -> Result<()> {
    for one in all {
        let (calibrated, found) = (one.thresholds.len(), predictions.classes());
        ensure!(calibrated == found, "conformal sets: calibrated on {calibrated} classes, applied to {found}");
    }
    Ok(())
}

/// Returns the thresholds `[C]` from the scores of the calibration images, `[N]`.
fn thresholds(
    kind: Thresholds,
    scores: &[f64],
    labels: &[u32],
    classes: usize,
    alpha: Alpha,
) -> Result<Vec<f64>, TooFew> {
    match kind {
        Thresholds::Shared => Ok(vec![threshold(scores.to_vec(), alpha)?; classes]),
        Thresholds::ClassWise => (0..classes)
            .map(|class| {
                let own = scores.iter().zip(labels).filter(|(_, label)| **label as usize == class);
                threshold(own.map(|(score, _)| *score).collect(), alpha)
            })
            .collect(),
    }
}

/// Returns the ⌈(n + 1)(1 − α)⌉-th smallest of n scores.
///
/// # Errors
/// Fails if so few scores have no such one.
pub fn threshold(mut scores: Vec<f64>, alpha: Alpha) -> Result<f64, TooFew> {
    scores.sort_by(f64::total_cmp);
    let found = scores.len();
    let place = alpha.rank(found).checked_sub(1);
    place.and_then(|place| scores.get(place).copied()).ok_or(TooFew { alpha, found, class: None })
}

/// Kinds of sets, each at every level.
pub struct Plan {
    pub rules: Vec<Rule>,
    pub alphas: Vec<Alpha>,
    /// The option of sets of classes that was given, if one was: intervals of numbers have none.
    pub of_classes: Option<&'static str>,
}

impl Plan {
    /// Checks, before anything is predicted, that there are enough calibration images with these labels, `[N]`.
    ///
    /// # Errors
    /// Fails, as bad usage, with the number of images that the level needs.
    pub fn check(&self, labels: &[u32], class_names: &[String]) -> Result<()> {
        for (rule, alpha) in self.rules.iter().flat_map(|rule| self.alphas.iter().map(move |alpha| (rule, alpha))) {
            rule.check(*alpha, labels, class_names)
                .map_err(|error| Usage(format!("--{error}").replacen("--conformal level", "--conformal", 1)))?;
        }
        Ok(())
    }

    /// Takes the thresholds from predictions on calibration images.
    ///
    /// # Errors
    /// Fails if the predictions have no labels, if a logit is not finite, or if there are too few images.
    pub fn calibrate(&self, held_out: &Predictions) -> Result<Vec<Calibrated>> {
        Calibrated::all(&self.rules, &self.alphas, held_out)
    }
}
