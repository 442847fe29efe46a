//! Adaptive prediction sets (Romano, Sesia & Candès 2020): the mass of the classes up to this one, so that hard images
//! get larger sets.

use super::Score;

pub static APS: Score = Score {
    key: "aps",
    about: "adaptive prediction sets (Romano et al. 2020)",
    definition: "sum_(j < r) p_(j) + u p_(r)",
    nested: true,
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
