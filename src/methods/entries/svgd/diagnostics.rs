//! What SVGD reports of its particles, and the warnings that follow from it.

use tch::{Kind, Tensor};

use crate::methods::kernel::Kernel;

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
