//! The level of sets and the way in which they are made.

use std::fmt;
use std::str::FromStr;

use super::scores::{RAPS, Regularisation, Score};
use crate::base::random::{Purpose, stream, uniform};
use crate::schema::words;

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
        /// u = 0, the mass before the class: sets are a function of the image and hold the most probable class. They
        /// cover more than asked only where the most probable class alone does.
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
    /// The seed of random draws.
    pub seed: u64,
}

impl Rule {
    /// Returns the settings that only some scores have: `penalty 0.01 beyond rank 5` for `raps`, else an empty text.
    pub fn settings(&self) -> String {
        let Regularisation { penalty, rank } = self.regularisation;
        if self.score.key == RAPS.key { format!("penalty {penalty} beyond rank {rank}") } else { String::new() }
    }
}

/// The images to which a draw belongs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Calibration,
    Test,
}

impl Rule {
    /// Returns the u of an image; it depends on nothing but the seed, its role and its place.
    pub(super) fn draw(&self, role: Role, image: usize) -> f64 {
        match self.draw {
            Draw::Fixed => 0.0,
            Draw::Random => uniform(&mut stream(self.seed, Purpose::Conformal, &[role as u64, image as u64])),
        }
    }
}
