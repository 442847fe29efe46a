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
