//! Regularised adaptive prediction sets (Angelopoulos, Bates, Malik & Jordan 2021): classes behind the k-th cost λ more
//! each, which keeps sets small where many classes have a little mass.

use super::aps;
use super::score::Score;

pub static RAPS: Score = Score {
    key: "raps",
    about: "regularised adaptive prediction sets (Angelopoulos et al. 2021)",
    definition: "sum_(j < r) p_(j) + u p_(r) + penalty max(0, r - rank)",
    of: |falling, u, regularisation| {
        let beyond = |place: usize| (place + 1).saturating_sub(regularisation.rank) as f64;
        let masses = aps::masses(falling, u).into_iter().enumerate();
        masses.map(|(place, mass)| mass + regularisation.penalty * beyond(place)).collect()
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::conformal::score::Regularisation;

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
