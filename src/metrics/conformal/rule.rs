//! The level of sets, the way in which they are made, and the conformity scores. A new score is an entry here and its name in
//! [`SCORES`].

use std::fmt;
use std::str::FromStr;

use crate::base::random::{Purpose, stream, uniform};
use crate::schema::{keyed, words};

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

/// All scores, in the order of the rows.
pub static SCORES: &[&Score] = &[&LAC, &APS, &RAPS];

/// A conformity score. One of [`SCORES`].
pub struct Score {
    pub key: &'static str,
    /// The name and the source of the score.
    pub about: &'static str,
    /// The formula for the class at rank r (from 1) of an image whose falling probabilities are p_(1) ≥ p_(2) ≥ …
    pub definition: &'static str,
    /// The scores of the classes of one image, from falling probabilities `[C]` and a draw u in [0, 1].
    pub of: fn(&[f64], f64, Regularisation) -> Vec<f64>,
}

keyed!(Score, "score");

/// The penalty of `raps` on large sets: λ for each rank behind the k-th.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regularisation {
    /// λ, at least 0.
    pub penalty: f64,
    /// k, the number of ranks that are free.
    pub rank: usize,
}

/// The least ambiguous set-valued classifier (Sadinle, Lei & Wasserman 2019): the smallest sets on average.
pub static LAC: Score = Score {
    key: "lac",
    about: "least ambiguous set-valued classifier (Sadinle et al. 2019); sets may be empty",
    definition: "1 - p_(r)",
    of: |falling, _, _| falling.iter().map(|p| 1.0 - p).collect(),
};

/// Adaptive prediction sets (Romano, Sesia & Candès 2020): the mass of the more probable classes, and a share u of its own, so
/// that hard images get larger sets. Any u gives coverage: u = 0 here without a draw, so that no set is empty; other
/// programs have u = 1 and add the most probable class, which covers far more than asked.
pub static APS: Score = Score {
    key: "aps",
    about: "adaptive prediction sets (Romano et al. 2020)",
    definition: "sum_(j < r) p_(j) + u p_(r)",
    of: |falling, u, _| masses(falling, u),
};

/// Returns Σ_{j<r} p_(j) + u p_(r) for every rank r, `[C]`.
fn masses(falling: &[f64], u: f64) -> Vec<f64> {
    let mut before = 0.0;
    let mass = |p: &f64| {
        let mass = before + u * p;
        before += p;
        mass
    };
    falling.iter().map(mass).collect()
}

/// Regularised adaptive prediction sets (Angelopoulos, Bates, Malik & Jordan 2021): classes behind the k-th cost λ more
/// each, which keeps sets small where many classes have a little mass.
pub static RAPS: Score = Score {
    key: "raps",
    about: "regularised adaptive prediction sets (Angelopoulos et al. 2021)",
    definition: "sum_(j < r) p_(j) + u p_(r) + penalty max(0, r - rank)",
    of: |falling, u, regularisation| {
        let beyond = |place: usize| (place + 1).saturating_sub(regularisation.rank) as f64;
        let masses = masses(falling, u).into_iter().enumerate();
        masses.map(|(place, mass)| mass + regularisation.penalty * beyond(place)).collect()
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    /// `RAPS(score_type="identity", penalty=0.05, kreg=2)._calculate_all_label` of TorchCP 1.2.1 with draws U of 0.3 and of 0. Its
    /// U is taken off the mass up to the class, so that it is 1 − u; without draws it has u = 1.
    #[test]
    fn scores_are_those_of_torchcp() {
        let theirs = [
            (0.7, [0.35, 0.675, 0.905000000745058, 1.070000001490116]),
            (1.0, [0.5, 0.75, 0.9500000007450581, 1.1000000014901161]),
        ];
        for (u, expected) in theirs {
            let found = (RAPS.of)(&[0.5, 0.25, 0.15, 0.1], u, Regularisation { penalty: 0.05, rank: 2 });
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-8), "{found:?}");
        }
    }
}
