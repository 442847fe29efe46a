//! Adaptive prediction sets (Romano, Sesia & Candès 2020): the mass of the more probable classes, and a share u of its own, so
//! that hard images get larger sets. Any u gives coverage: u = 0 here without a draw, so that no set is empty; other
//! programs have u = 1 and add the most probable class, which covers far more than asked.

use super::score::Score;

pub static APS: Score = Score {
    key: "aps",
    about: "adaptive prediction sets (Romano et al. 2020)",
    definition: "sum_(j < r) p_(j) + u p_(r)",
    of: |falling, u, _| masses(falling, u),
};

/// Returns Σ_{j<r} p_(j) + u p_(r) for every rank r, `[C]`.
pub(super) fn masses(falling: &[f64], u: f64) -> Vec<f64> {
    let mut before = 0.0;
    let mass = |p: &f64| {
        let mass = before + u * p;
        before += p;
        mass
    };
    falling.iter().map(mass).collect()
}
