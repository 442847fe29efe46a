//! L-BFGS (Nocedal & Wright 2006, algorithm 7.4) for the smooth convex losses of calibrators, in f64.

use std::collections::VecDeque;

/// The number of pairs of steps and changes of the gradient that approximate the Hessian.
const HISTORY: usize = 20;

/// The most steps.
const STEPS: usize = 2000;

/// The largest entry of the gradient at which the search ends.
const SMALL: f64 = 1e-9;

/// The end of a search.
pub struct Minimum {
    pub at: Vec<f64>,
    /// Whether the gradient vanished; it does not where the loss has no finite minimum.
    pub is_reached: bool,
}

/// Follows `loss`, which returns its value and its gradient, from `start`.
pub fn minimise(start: Vec<f64>, loss: impl Fn(&[f64]) -> (f64, Vec<f64>)) -> Minimum {
    let (mut at, (mut value, mut gradient)) = (start.clone(), loss(&start));
    let mut pairs: VecDeque<(Vec<f64>, Vec<f64>)> = VecDeque::new();
    for _ in 0..STEPS {
        if gradient.iter().all(|slope| slope.abs() <= SMALL) {
            return Minimum { at, is_reached: true };
        }
        let mut direction = direction(&pairs, &gradient);
        let mut slope = dot(&direction, &gradient);
        if slope >= 0.0 {
            pairs.clear();
            direction = gradient.iter().map(|slope| -slope).collect();
            slope = dot(&direction, &gradient);
        }
        let Some((next, next_value, next_gradient)) = step(&at, value, (&direction, slope), &loss) else {
            // Rounding hides any further descent.
            let is_reached = gradient.iter().all(|slope| slope.abs() <= 1e3 * SMALL);
            return Minimum { at, is_reached };
        };
        let moved: Vec<f64> = next.iter().zip(&at).map(|(a, b)| a - b).collect();
        let changed: Vec<f64> = next_gradient.iter().zip(&gradient).map(|(a, b)| a - b).collect();
        if dot(&moved, &changed) > 0.0 {
            pairs.push_back((moved, changed));
        }
        if pairs.len() > HISTORY {
            pairs.pop_front();
        }
        (at, value, gradient) = (next, next_value, next_gradient);
    }
    Minimum { at, is_reached: false }
}

type Point = (Vec<f64>, f64, Vec<f64>);

/// Returns a point along `direction` that falls enough and turns enough (the weak Wolfe conditions, by bisection).
fn step(
    at: &[f64],
    value: f64,
    (direction, slope): (&[f64], f64),
    loss: &impl Fn(&[f64]) -> (f64, Vec<f64>),
) -> Option<Point> {
    let (mut low, mut high, mut length) = (0.0, f64::INFINITY, 1.0);
    for _ in 0..60 {
        let next: Vec<f64> = at.iter().zip(direction).map(|(x, d)| x + length * d).collect();
        let (next_value, gradient) = loss(&next);
        if !next_value.is_finite() || next_value > value + 1e-4 * length * slope {
            high = length;
        } else if dot(direction, &gradient) < 0.9 * slope {
            low = length;
        } else {
            return Some((next, next_value, gradient));
        }
        length = if high.is_finite() { (low + high) / 2.0 } else { 2.0 * length };
    }
    None
}

/// Returns minus the approximate inverse Hessian times the gradient.
fn direction(pairs: &VecDeque<(Vec<f64>, Vec<f64>)>, gradient: &[f64]) -> Vec<f64> {
    let mut q = gradient.to_vec();
    let mut shares = vec![];
    for (moved, changed) in pairs.iter().rev() {
        let share = dot(moved, &q) / dot(moved, changed);
        add(&mut q, -share, changed);
        shares.push(share);
    }
    if let Some((moved, changed)) = pairs.back() {
        let scale = dot(moved, changed) / dot(changed, changed);
        q.iter_mut().for_each(|entry| *entry *= scale);
    }
    for ((moved, changed), share) in pairs.iter().zip(shares.into_iter().rev()) {
        let back = dot(changed, &q) / dot(moved, changed);
        add(&mut q, share - back, moved);
    }
    q.into_iter().map(|entry| -entry).collect()
}

fn add(to: &mut [f64], factor: f64, values: &[f64]) {
    to.iter_mut().zip(values).for_each(|(entry, value)| *entry += factor * value);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    // (x − 3)² + 10 (y + 1)² + (x − 3)⁴ has its minimum at (3, −1).
    #[test]
    fn a_convex_function_by_hand() {
        let loss = |at: &[f64]| {
            let (x, y) = (at[0] - 3.0, at[1] + 1.0);
            (x * x + 10.0 * y * y + x.powi(4), vec![2.0 * x + 4.0 * x.powi(3), 20.0 * y])
        };
        let found = minimise(vec![0.0, 0.0], loss);
        assert!(found.is_reached && (found.at[0] - 3.0).abs() < 1e-8 && (found.at[1] + 1.0).abs() < 1e-8);
        assert!(
            !minimise(vec![0.0], |at| ((-at[0] / 50.0).exp() * 1e3, vec![-20.0 * (-at[0] / 50.0).exp()])).at.is_empty()
        );
    }
}
