//! Split conformal prediction: sets of classes that hold the true one with probability at least 1 − α, for images that
//! are exchangeable with the calibration images (Vovk et al. 2005; Angelopoulos & Bates 2023).
//!
//! A score s(x, y) says how badly class y conforms to the prediction for x. The threshold q is the ⌈(n + 1)(1 − α)⌉-th
//! smallest of the scores of n calibration images with their labels, and the set of x is {y : s(x, y) ≤ q}. A new score
//! is one file and its line in [`SCORES`].

mod aps;
mod calibrate;
mod coverage;
mod lac;
mod raps;

use std::fmt;
use std::str::FromStr;

use super::{Better, Column, Unit};
use crate::base::random::{Purpose, stream, uniform};
use crate::schema::words;

pub use calibrate::{Calibrated, TooFew};
pub use coverage::{Coverage, Part, Stratum};

/// All scores, in the order of the rows.
pub static SCORES: &[&Score] = &[&lac::LAC, &aps::APS, &raps::RAPS];

/// A conformity score. One of [`SCORES`].
pub struct Score {
    pub key: &'static str,
    /// The name and the source of the score.
    pub about: &'static str,
    /// The formula for the class at rank r (from 1) of an image whose falling probabilities are p_(1) ≥ p_(2) ≥ …
    pub definition: &'static str,
    /// Whether the sets grow along the ranking of the classes, so that a set without a random draw starts with the most
    /// probable class.
    pub nested: bool,
    /// The scores of the classes of one image, from falling probabilities `[C]` and a draw u in [0, 1].
    pub of: fn(&[f64], f64, Regularisation) -> Vec<f64>,
}

/// The penalty of `raps` on large sets: λ for each rank behind the k-th.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regularisation {
    /// λ, at least 0.
    pub penalty: f64,
    /// k, the number of ranks that are free.
    pub rank: usize,
}

words! {
    /// The images whose scores give the threshold of a class.
    pub enum Thresholds {
        /// One threshold from all calibration images: coverage holds on average over the classes.
        Shared = "shared",
        /// A threshold for each class from the images of this class (Mondrian): coverage holds in every class.
        ClassWise = "class-wise",
    }
}

words! {
    /// The draw u of `aps` and `raps`.
    pub enum Draw {
        /// u = 1, and the most probable class is in every set: sets are a function of the image, and cover a little
        /// more than asked.
        Fixed = "fixed",
        /// u is uniform in [0, 1) for each image: coverage is exact, and sets may be empty.
        Random = "random",
    }
}

/// A tolerated share α of sets without the true class, in (0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alpha(f64);

impl Alpha {
    pub fn value(self) -> f64 {
        self.0
    }

    /// Returns the smallest number of calibration images for which a threshold exists: ⌈1/α⌉ − 1.
    pub fn least_images(self) -> usize {
        // The slack makes 1/0.1 the whole number that it means.
        (1.0 / self.0 - 1e-9).ceil() as usize - 1
    }

    /// Returns the rank (from 1) of the threshold among n scores: ⌈(n + 1)(1 − α)⌉, at most n for
    /// [enough](Alpha::least_images) images.
    pub(super) fn rank(self, n: usize) -> usize {
        let beyond = ((n + 1) as f64 * self.0 + 1e-9).floor() as usize;
        n + 1 - beyond
    }
}

impl FromStr for Alpha {
    type Err = String;

    fn from_str(text: &str) -> Result<Alpha, String> {
        let value: f64 = text.trim().parse().map_err(|_| "is no number".to_string())?;
        let rule = "must be above 0 and below 1: the share of sets that may miss the true class, such as 0.1";
        if value > 0.0 && value < 1.0 { Ok(Alpha(value)) } else { Err(rule.to_string()) }
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The way in which sets are made.
#[derive(Clone, Copy)]
pub struct Rule {
    pub score: &'static Score,
    pub thresholds: Thresholds,
    pub draw: Draw,
    pub regularisation: Regularisation,
}

impl Rule {
    /// Returns the settings that only some scores have: `penalty 0.01 beyond rank 5` for `raps`, else an empty text.
    pub fn settings(&self) -> String {
        let Regularisation { penalty, rank } = self.regularisation;
        if self.score.key == raps::RAPS.key { format!("penalty {penalty} beyond rank {rank}") } else { String::new() }
    }
}

/// The measures of sets that result rows have, with the meaning of their columns.
static MEASURES: [(&str, Column); 6] = [
    measure("set_coverage", "Coverage", "share of sets that hold the true class", Unit::Fraction, Better::Neither),
    measure("mean_set_size", "Set size", "mean number of classes of a set", Unit::One, Better::Lower),
    measure("empty_sets", "Empty sets", "share of sets without any class", Unit::Fraction, Better::Neither),
    measure("lowest_class", "Lowest class", "lowest coverage of a class", Unit::Fraction, Better::Higher),
    measure("lowest_group", "Lowest group", "lowest coverage of a group", Unit::Fraction, Better::Higher),
    measure(
        "lowest_set_size",
        "Lowest set size",
        "lowest coverage of images with sets of about one size",
        Unit::Fraction,
        Better::Higher,
    ),
];

const fn measure(
    key: &'static str,
    short: &'static str,
    definition: &'static str,
    unit: Unit,
    better: Better,
) -> (&'static str, Column) {
    (key, Column { short, definition, unit, better })
}

/// Returns the columns of the measures with their definitions.
pub fn measures() -> impl Iterator<Item = (&'static str, &'static str)> {
    MEASURES.iter().map(|(key, column)| (*key, column.definition))
}

/// Returns the meaning of a column of measures.
pub(super) fn of_column(column: &str) -> Option<Column> {
    MEASURES.iter().find(|(key, _)| *key == column).map(|(_, column)| *column)
}

/// The images to which a draw belongs.
#[derive(Clone, Copy, Debug)]
enum Role {
    Calibration,
    Test,
}

impl Rule {
    /// Returns the u of an image; it depends on nothing but its role and its place.
    fn draw(&self, role: Role, image: usize) -> f64 {
        match self.draw {
            Draw::Fixed => 1.0,
            Draw::Random => uniform(&mut stream(0, Purpose::Conformal, &[role as u64, image as u64])),
        }
    }
}

#[cfg(test)]
mod tests;
