//! The options of `--conformal`.

use anyhow::Result;
use clap::Args;

use super::options::expect_distinct;
use crate::base::small::Usage;
use crate::metrics::conformal::{Alpha, Draw, Plan, Regularisation, Rule, SCORES, Score, Thresholds};

/// The usual penalty of raps, and the ranks that it leaves free.
const PENALTY: f64 = 0.01;
const RANK: u32 = 5;

#[derive(Args)]
#[command(next_help_heading = "Conformal sets")]
pub(super) struct ConformalArgs {
    /// Make sets of classes, or intervals of numbers, that hold the true one with probability 1 - ALPHA, with thresholds from held-out
    /// images, and report their coverage and size.
    #[arg(long, value_name = "ALPHA,…", value_delimiter = ',')]
    conformal: Vec<Alpha>,

    #[arg(help = format!("Scores of the sets: {} [default: all of them; `bella predict`: aps]", scores()))]
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = parse_score, requires = "conformal")]
    conformal_score: Vec<&'static Score>,

    /// Thresholds: shared by all classes, or one for each class (class-wise, Mondrian).
    #[arg(long, value_name = "WHICH", default_value = "shared", requires = "conformal")]
    conformal_thresholds: Thresholds,

    /// Draw of aps and raps: fixed, or random, with which coverage is exact and sets may be empty.
    #[arg(long, value_name = "WHICH", default_value = "fixed", requires = "conformal")]
    conformal_draw: Draw,

    /// Penalty of raps for each rank beyond --raps-rank.
    #[arg(long, value_name = "X", default_value_t = PENALTY, requires = "conformal", value_parser = parse_penalty)]
    raps_penalty: f64,

    /// Number of ranks that raps does not penalise.
    #[arg(long, value_name = "K", default_value_t = RANK, requires = "conformal",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    raps_rank: u32,
}

impl ConformalArgs {
    /// Returns the sets of the command line; `None` without `--conformal`.
    ///
    /// # Errors
    /// Fails if a level or a score comes twice, or if an option is of no score.
    pub fn plan(&self) -> Result<Option<Plan>> {
        let scores = if self.conformal_score.is_empty() { SCORES } else { &self.conformal_score };
        expect_distinct("--conformal", &self.conformal, |alpha| *alpha)?;
        expect_distinct("--conformal-score", scores, |score| score.key)?;
        self.check(scores)?;
        let plan = Plan {
            rules: scores.iter().map(|score| self.rule(score)).collect(),
            alphas: self.conformal.clone(),
            of_classes: self.of_classes(),
        };
        Ok((!self.conformal.is_empty()).then_some(plan))
    }

    /// Returns whether sets are asked for.
    pub fn is_asked(&self) -> bool {
        !self.conformal.is_empty()
    }

    /// Returns the one kind of set that is written beside a prediction; `None` without `--conformal`.
    ///
    /// # Errors
    /// Fails if there are several levels or scores, or if an option is not of the score.
    pub fn single(&self) -> Result<Option<Plan>> {
        if self.conformal.len() > 1 || self.conformal_score.len() > 1 {
            let why =
                "--conformal: one set is written beside each prediction: give one level and one --conformal-score";
            return Err(Usage(why.into()).into());
        }
        let aps = || SCORES.iter().find(|score| score.key == "aps");
        let score = self.conformal_score.first().or_else(aps).copied();
        self.check(score.as_slice())?;
        let plan = score.map(|score| Plan {
            rules: vec![self.rule(score)],
            alphas: self.conformal.clone(),
            of_classes: self.of_classes(),
        });
        Ok(plan.filter(|plan| !plan.alphas.is_empty()))
    }

    /// Returns an option that differs from its default and is of sets of classes alone.
    fn of_classes(&self) -> Option<&'static str> {
        let given = [
            ("--conformal-score", !self.conformal_score.is_empty()),
            ("--conformal-thresholds", self.conformal_thresholds != Thresholds::Shared),
        ];
        let mut all = given.into_iter().chain(self.of_scores().map(|(option, given, _)| (option, given)));
        all.find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// Returns the options of some scores alone: whether each differs from its default, and the keys of its scores.
    fn of_scores(&self) -> impl Iterator<Item = (&'static str, bool, &'static [&'static str])> {
        let all: [(_, _, &[&str]); 3] = [
            ("--conformal-draw", self.conformal_draw != Draw::Fixed, &["aps", "raps"]),
            ("--raps-penalty", self.raps_penalty != PENALTY, &["raps"]),
            ("--raps-rank", self.raps_rank != RANK, &["raps"]),
        ];
        all.into_iter()
    }

    /// Refuses an option that none of the scores has.
    fn check(&self, scores: &[&'static Score]) -> Result<()> {
        let has = |keys: &[&str]| scores.iter().any(|score| keys.contains(&score.key));
        match self.of_scores().find(|(_, given, keys)| *given && !has(keys)) {
            Some((option, _, keys)) => {
                let why = format!(
                    "{option}: is of {}: give --conformal-score {}, or leave it out",
                    keys.join(" and "),
                    keys[0]
                );
                Err(Usage(why).into())
            }
            None => Ok(()),
        }
    }

    fn rule(&self, score: &'static Score) -> Rule {
        let regularisation = Regularisation { penalty: self.raps_penalty, rank: self.raps_rank as usize };
        // The same draws for every run and seed, so that results can be compared image by image.
        Rule { score, thresholds: self.conformal_thresholds, draw: self.conformal_draw, regularisation, seed: 0 }
    }
}

/// Returns the keys of all scores in one line.
fn scores() -> String {
    SCORES.iter().map(|score| score.key).collect::<Vec<_>>().join(", ")
}

fn parse_score(text: &str) -> Result<&'static Score, String> {
    let found = SCORES.iter().copied().find(|score| score.key == text);
    found.ok_or_else(|| format!("unknown score `{text}`; known: {}", scores()))
}

fn parse_penalty(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().map_err(|_| "is no number".to_string())?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("must be at least 0".to_string()) }
}
