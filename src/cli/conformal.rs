//! The options of `--conformal`.

use anyhow::Result;
use clap::Args;

use super::options::expect_distinct;
use crate::base::small::Usage;
use crate::metrics::conformal::{APS, Alpha, Draw, Plan, Regularisation, Rule, SCORES, Score, Thresholds};
use crate::schema::{find, keys};

#[derive(Args)]
#[command(next_help_heading = "Conformal sets")]
pub(super) struct ConformalArgs {
    /// Make sets of classes, or intervals of numbers, that hold the true one with probability 1 - ALPHA, with thresholds from held-out
    /// images, and report their coverage and size.
    #[arg(long, value_name = "ALPHA,…", value_delimiter = ',')]
    conformal: Vec<Alpha>,

    #[arg(help = format!("Scores of the sets: {} [default: all of them; `bella predict`: aps]", keys(SCORES)))]
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = |text: &str| find(SCORES, text), requires = "conformal")]
    conformal_score: Vec<&'static Score>,

    /// Thresholds: shared by all classes, or one for each class (class-wise, Mondrian).
    #[arg(long, value_name = "WHICH", default_value = "shared", requires = "conformal")]
    conformal_thresholds: Thresholds,

    /// Draw of aps and raps: fixed, or random, with which coverage is exact and sets may be empty.
    #[arg(long, value_name = "WHICH", default_value = "fixed", requires = "conformal")]
    conformal_draw: Draw,

    #[arg(long, value_name = "X", help = format!("Penalty of raps for each rank beyond --raps-rank [default: {}]", RAPS.penalty), requires = "conformal", value_parser = parse_penalty)]
    raps_penalty: Option<f64>,

    #[arg(long, value_name = "K", help = format!("Number of ranks that raps does not penalise [default: {}]", RAPS.rank), requires = "conformal", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    raps_rank: Option<u32>,
}

/// The settings of raps unless others are asked for.
const RAPS: Regularisation = Regularisation { penalty: 0.01, rank: 5 };

impl ConformalArgs {
    /// Returns the sets of the command line; `None` without `--conformal`.
    ///
    /// # Errors
    /// Fails if a level or a score comes twice, or if an option is of none of the scores.
    pub fn plan(&self) -> Result<Option<Plan>> {
        let scores = if self.conformal_score.is_empty() { SCORES } else { &self.conformal_score };
        expect_distinct("--conformal", &self.conformal, |alpha| *alpha)?;
        expect_distinct("--conformal-score", scores, |score| score.key)?;
        self.check_options(scores)?;
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
        let score = self.conformal_score.first().copied().unwrap_or(&APS);
        self.check_options(&[score])?;
        let plan =
            Plan { rules: vec![self.rule(score)], alphas: self.conformal.clone(), of_classes: self.of_classes() };
        Ok((!plan.alphas.is_empty()).then_some(plan))
    }

    /// Checks that no option is given that none of the scores reads.
    fn check_options(&self, scores: &[&Score]) -> Result<()> {
        let is_read = |of: &[&str]| scores.iter().any(|one| of.contains(&one.key));
        let unread = self.of_scores().into_iter().find(|(_, given, of)| *given && !is_read(of));
        let Some((option, _, of)) = unread else { return Ok(()) };
        let scores = keys(scores);
        let why = format!(
            "{option} is of {}, and the sets are of {scores}: choose another --conformal-score, or leave it out",
            of.join(" and ")
        );
        Err(Usage(why).into())
    }

    /// Returns an option that differs from its default and is of sets of classes alone.
    fn of_classes(&self) -> Option<&'static str> {
        let given = [
            ("--conformal-score", !self.conformal_score.is_empty()),
            ("--conformal-thresholds", self.conformal_thresholds != Thresholds::Shared),
        ];
        let mut given = given.into_iter().chain(self.of_scores().map(|(option, given, _)| (option, given)));
        given.find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// Returns the options that not all scores read: whether each is given, and the keys of those that read it.
    fn of_scores(&self) -> [(&'static str, bool, &'static [&'static str]); 3] {
        [
            ("--conformal-draw random", self.conformal_draw != Draw::Fixed, &["aps", "raps"]),
            ("--raps-penalty", self.raps_penalty.is_some(), &["raps"]),
            ("--raps-rank", self.raps_rank.is_some(), &["raps"]),
        ]
    }

    fn rule(&self, score: &'static Score) -> Rule {
        let regularisation = Regularisation {
            penalty: self.raps_penalty.unwrap_or(RAPS.penalty),
            rank: self.raps_rank.map_or(RAPS.rank, |rank| rank as usize),
        };
        // The same draws for every run and seed, so that results can be compared image by image.
        Rule { score, thresholds: self.conformal_thresholds, draw: self.conformal_draw, regularisation, seed: 0 }
    }
}

fn parse_penalty(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().map_err(|_| "is no number".to_string())?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("must be at least 0".to_string()) }
}
