//! Smooth ECE (Błasiok & Nakkiran 2023, "Smooth ECE", section 3): in place of bins, a Gaussian kernel of width σ, reflected at 0 and 1,
//! smooths the gaps over the confidence. The width is the one at which the error equals it, so that nothing is to be chosen.

use std::f64::consts::TAU;

use super::{Average, Better, Metric, Scope, Scores, Shown, Unit};

/// The number of steps of the grid over [0, 1] on which gaps are smoothed.
const STEPS: usize = 1000;

/// The number of halvings of [0, 1] that find σ, as the authors' package `relplot` does.
const HALVINGS: usize = 10;

/// The smallest width that is tried; half a step of the grid cannot be told from none.
const SMALLEST: f64 = 1e-3;

pub static SMOOTH: Metric = Metric {
    key: "smooth_ece",
    short: "smooth ECE",
    about: "smooth calibration error: a kernel in place of bins",
    definition: "integral over t in [0, 1] of |mean of K_s(t, confidence) (correct - confidence)| with the Gaussian kernel K_s \
                 reflected at 0 and 1, at the width s that equals it (10 halvings)",
    unit: Unit::Fraction,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown { scaled: true, ..Shown::IN_FILES },
    resampled: None,
    eval: error,
};

fn error(scores: &Scores, average: Average) -> Option<f64> {
    let (confidence, correct) = (scores.confidence(average), &scores.averaged(average).correct);
    let gaps = confidence.iter().zip(correct).map(|(p, right)| (*p, f64::from(u8::from(*right)) - p));
    let grid = on_grid(gaps, confidence.len());
    (!confidence.is_empty()).then(|| fixed_point(&grid))
}

/// Returns the mean gaps at the points of the grid, `[STEPS + 1]`. A gap between two points is shared by them.
fn on_grid(gaps: impl Iterator<Item = (f64, f64)>, count: usize) -> Vec<f64> {
    let mut grid = vec![0.0; STEPS + 1];
    for (confidence, gap) in gaps {
        let place = confidence.clamp(0.0, 1.0) * STEPS as f64;
        let point = (place as usize).min(STEPS - 1);
        let share = place - point as f64;
        grid[point] += gap * (1.0 - share) / count as f64;
        grid[point + 1] += gap * share / count as f64;
    }
    grid
}

/// Returns the error at the smallest width, of those that halvings reach, that is not below it.
fn fixed_point(grid: &[f64]) -> f64 {
    let (mut wide, mut narrow) = (1.0, 0.0);
    let mut of_wide = smoothed(grid, wide);
    for _ in 0..HALVINGS {
        let middle = (wide + narrow) / 2.0;
        let of_middle = if middle < SMALLEST { f64::INFINITY } else { smoothed(grid, middle) };
        if middle < of_middle {
            narrow = middle;
        } else {
            (wide, of_wide) = (middle, of_middle);
        }
    }
    of_wide
}

/// Returns the integral of |gaps smoothed with width σ|.
fn smoothed(grid: &[f64], sigma: f64) -> f64 {
    let scale = sigma * STEPS as f64;
    // Beyond six widths, the kernel is below 2e-8 of its height.
    let reach = (6.0 * scale).ceil() as usize;
    let kernel: Vec<f64> =
        (0..=reach).map(|d| (-0.5 * (d as f64 / scale).powi(2)).exp() / (TAU.sqrt() * sigma)).collect();
    // Mass at an end of [0, 1] and its reflection are the same point of the grid and count once each, as the mirrored line has them.
    let mut sums = vec![0.0; grid.len()];
    for (from, gap) in grid.iter().enumerate().filter(|(_, gap)| **gap != 0.0) {
        sums[from] += gap * kernel[0];
        for (distance, weight) in kernel.iter().enumerate().skip(1) {
            sums[reflected(from as i64 + distance as i64)] += gap * weight;
            sums[reflected(from as i64 - distance as i64)] += gap * weight;
        }
    }
    // A point inside stands for a whole step, an end for half of one, whose mass the reflection has doubled.
    sums.iter().map(|sum| sum.abs()).sum::<f64>() / STEPS as f64
}

/// Returns the point of the grid on which a point of the line lies after reflections at both ends.
fn reflected(point: i64) -> usize {
    let period = 2 * STEPS as i64;
    let point = point.rem_euclid(period);
    point.min(period - point) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of one gap g, the kernel keeps the whole mass: the error is |g| at any width.
    #[test]
    fn one_gap_keeps_its_mass() {
        for place in [0.0, 0.003, 0.5, 1.0] {
            let grid = on_grid([(place, -0.4)].into_iter(), 1);
            for sigma in [0.002, 0.05, 1.0] {
                assert!((smoothed(&grid, sigma) - 0.4).abs() < 1e-6, "{place} {sigma} {}", smoothed(&grid, sigma));
            }
        }
    }

    // Gaps of opposite sign at one place cancel at every width; far apart they do not while the kernel is narrow.
    #[test]
    fn opposite_gaps_cancel_only_where_the_kernel_joins_them() {
        assert!(smoothed(&on_grid([(0.5, 0.3), (0.5, -0.3)].into_iter(), 2), 0.01) < 1e-15);
        let apart = on_grid([(0.2, 0.3), (0.8, -0.3)].into_iter(), 2);
        assert!((smoothed(&apart, 0.01) - 0.3).abs() < 1e-6 && smoothed(&apart, 1.0) < 0.05);
    }
}
