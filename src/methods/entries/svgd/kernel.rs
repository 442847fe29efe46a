//! The RBF kernel of SVGD on squared distances D, with the median rule for its bandwidth, and what is reported of it.
//!
//! k_ij = exp(−D_ij / 2σ²), 2σ² = median(D_ij, i ≠ j) / log(n + 1), so that k at the median is 1 / (n + 1)
//! (Liu & Wang 2016, arXiv 1608.04471, section 5).

use tch::{Kind, Tensor};

use crate::schema::words;

words! {
    /// The entries of D whose median is taken.
    pub enum Median {
        /// Pairs i ≠ j, with the mean of the middle two if their number is even.
        OffDiagonal = "off-diagonal",
        /// All n² entries including the zeros of the diagonal, as in the SVGD authors' script.
        Full = "full",
    }
}

words! {
    /// The divisor of the median.
    pub enum LogN { N = "n", NPlusOne = "n+1" }
}

/// The rule that sets 2σ².
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bandwidth {
    /// A fixed 2σ², in units of squared weight distance.
    Fixed(f64),
    Median(Median, LogN),
}

/// The kernel values and the coefficients of their gradients, for L blocks of n particles.
pub struct Kernel {
    /// The kernel k, `[L, n, n]`.
    pub values: Tensor,
    /// The coefficients c with ∇_i k_ij = c_ij ∇_i D_ij, `[L, n, n]`.
    pub slopes: Tensor,
    /// The bandwidth 2σ², `[L]`.
    pub bandwidth: Tensor,
}

impl Kernel {
    /// Computes the kernel from squared distances `[L, n, n]` in f64, with n ≥ 2, without reading from the device.
    pub fn new(distances: &Tensor, rule: Bandwidth) -> Kernel {
        let particles = distances.size()[1];
        let divisor = match rule {
            Bandwidth::Median(_, LogN::N) => particles as f64,
            _ => (particles + 1) as f64,
        };
        let bandwidth = match rule {
            Bandwidth::Fixed(value) => Tensor::full([distances.size()[0]], value, (Kind::Double, distances.device())),
            Bandwidth::Median(median, _) => median_of(distances, median) / divisor.ln(),
        };
        // If all particles are equal, the limit of the median rule applies: k = 1 / (n + 1) off the diagonal, and no
        // repulsion.
        let wide = bandwidth.view([-1, 1, 1]).expand_as(distances);
        let defined = wide.gt(0.0);
        let safe = wide.where_self(&defined, &wide.ones_like());
        let apart = (distances / -&safe).exp();
        let equal = distances.zeros_like() + 1.0 / divisor;
        let limit = equal.where_self(&distances.eq(0.0), &distances.zeros_like());
        let values = apart.where_self(&defined, &limit);
        let slopes = (&values / -&safe).where_self(&defined, &values.zeros_like());
        let eye = Tensor::eye(particles, (Kind::Double, distances.device())).unsqueeze(0);
        let values = &values * (1.0 - &eye) + eye;
        Kernel { values, slopes, bandwidth }
    }
}

/// Returns the median over pairs, `[L]`. For an even number it is the mean of the middle two (libtorch's `median` takes
/// the lower one).
fn median_of(distances: &Tensor, median: Median) -> Tensor {
    let particles = distances.size()[1];
    let entries = match median {
        Median::Full => distances.flatten(1, 2),
        Median::OffDiagonal => {
            let upper = Tensor::triu_indices(particles, particles, 1, (Kind::Int64, distances.device()));
            let flat = upper.get(0) * particles + upper.get(1);
            distances.flatten(1, 2).index_select(1, &flat)
        }
    };
    let (sorted, _) = entries.sort(1, false);
    let count = sorted.size()[1];
    let (low, high) = ((count - 1) / 2, count / 2);
    (sorted.select(1, low) + sorted.select(1, high)) / 2.0
}

/// The names of the diagnostics. The last is only for drive = weight: the cosine between a particle's drive and its own
/// gradient.
pub const DIAGNOSTICS: &[&str] = &["bandwidth", "mean_kernel", "repulsion_ratio", "mean_distance", "drive_cosine"];

/// The share of the largest mean distance so far below which particles count as collapsed.
const COLLAPSED_SHARE: f64 = 0.01;

/// The ratio ‖repulsion‖ / ‖drive‖ above which repulsion counts as outweighing the gradients.
const OUTWEIGHING: f64 = 10.0;

/// Returns the means over blocks of the bandwidth, off-diagonal k, ‖repulsion‖ / ‖drive‖ and off-diagonal distance,
/// `[4]`.
pub fn diagnose(distances: &Tensor, kernel: &Kernel, drive_norm: &Tensor, repulsion_norm: &Tensor) -> Tensor {
    let particles = distances.size()[1] as f64;
    let blocks = distances.size()[0] as f64;
    let pairs = particles * (particles - 1.0) * blocks;
    let mean_kernel = (kernel.values.sum(Kind::Double) - particles * blocks) / pairs;
    let ratio = repulsion_norm / drive_norm.to_kind(Kind::Double).clamp_min(f64::MIN_POSITIVE);
    let mean_distance = distances.sqrt().sum(Kind::Double) / pairs;
    Tensor::stack(&[kernel.bandwidth.mean(Kind::Double), mean_kernel, ratio, mean_distance], 0)
}

/// Returns warnings of an epoch after earlier ones.
pub fn warnings(epochs: &[&[(String, f64)]]) -> Vec<String> {
    let value = |epoch: &[(String, f64)], name: &str| epoch.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    let Some((last, earlier)) = epochs.split_last() else { return Vec::new() };
    let widest = earlier.iter().filter_map(|epoch| value(epoch, "mean_distance")).fold(0.0, f64::max);
    let mut warnings = Vec::new();
    if value(last, "mean_distance").is_some_and(|distance| distance < COLLAPSED_SHARE * widest) {
        warnings.push("the particles collapse to one point: raise method.svgd.gamma".to_string());
    }
    if value(last, "repulsion_ratio").is_some_and(|ratio| ratio > OUTWEIGHING) {
        warnings.push("repulsion outweighs the gradients: lower method.svgd.gamma".to_string());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distances() -> Tensor {
        // The squared distances of (0, 0), (1, 0.5), (-0.5, 2).
        Tensor::from_slice(&[0.0f64, 1.25, 4.25, 1.25, 0.0, 4.5, 4.25, 4.5, 0.0]).view([1, 3, 3])
    }

    fn at(kernel: &Kernel, i: i64, j: i64) -> f64 {
        kernel.values.double_value(&[0, i, j])
    }

    /// The rule of the SVGD authors (`svgd.py`) is 2σ² = median of all n² entries / log(n + 1), here 1.25 / ln 4.
    #[test]
    fn reference_rule() {
        let kernel = Kernel::new(&distances(), Bandwidth::Median(Median::Full, LogN::NPlusOne));
        assert!((kernel.bandwidth.double_value(&[0]) - 2.0 * 0.4508422002778012).abs() < 1e-12);
        assert!((at(&kernel, 0, 1) - 0.25).abs() < 1e-12);
        assert!((at(&kernel, 0, 2) - 0.008974205898414347).abs() < 1e-12);
        assert!((at(&kernel, 1, 2) - 0.006801176275750984).abs() < 1e-12);
    }

    #[test]
    fn off_diagonal_rule() {
        let kernel = Kernel::new(&distances(), Bandwidth::Median(Median::OffDiagonal, LogN::N));
        assert!((kernel.bandwidth.double_value(&[0]) - 3.8685167131640585).abs() < 1e-12);
        let ours = Kernel::new(&distances(), Bandwidth::Median(Median::OffDiagonal, LogN::NPlusOne));
        assert!((at(&ours, 0, 2) - 0.25).abs() < 1e-12, "k at the median is 1 / (n + 1)");
    }

    #[test]
    fn even_count_takes_the_mean_of_the_middle_two() {
        let d =
            Tensor::from_slice(&[0.0f64, 1.0, 2.0, 3.0, 1.0, 0.0, 4.0, 5.0, 2.0, 4.0, 0.0, 6.0, 3.0, 5.0, 6.0, 0.0]);
        let median = median_of(&d.view([1, 4, 4]), Median::OffDiagonal);
        assert_eq!(median.double_value(&[0]), 3.5);
    }

    #[test]
    fn equal_particles_take_the_limit() {
        let zero = Tensor::zeros([2, 3, 3], (Kind::Double, tch::Device::Cpu));
        let kernel = Kernel::new(&zero, Bandwidth::Median(Median::OffDiagonal, LogN::NPlusOne));
        assert_eq!(at(&kernel, 0, 1), 0.25);
        assert_eq!(at(&kernel, 1, 1), 1.0);
        assert_eq!(kernel.slopes.abs().max().double_value(&[]), 0.0);
    }
}
