//! Estimates the density of a non-negative quantity from samples.

/// The number of cells into which the samples are counted before smoothing. The cells are much narrower than any
/// bandwidth that is drawn.
const CELLS: usize = 4096;

/// Returns the points `(value, density)` of a Gaussian kernel density estimate from 0 to `high`. The bandwidth is that
/// of Silverman (1986, eq. 3.31: 0.9 · min(sd, IQR / 1.34) · n^(−1/5)), and the estimate is reflected at 0 so that no
/// mass lies below it. Values must be finite and not negative; values that rounding put below 0 count as 0.
///
/// Returns `None` for fewer than two values and for values without spread, which have no density.
pub fn density(values: &[f64], high: f64, points: usize) -> Option<Vec<(f64, f64)>> {
    let bandwidth = bandwidth(values)?;
    let top = values.iter().copied().fold(0.0, f64::max);
    let cell = top / CELLS as f64;
    let mut counts = vec![0usize; CELLS];
    for value in values {
        counts[((value.max(0.0) / cell) as usize).min(CELLS - 1)] += 1;
    }
    let scale = 1.0 / (values.len() as f64 * bandwidth * std::f64::consts::TAU.sqrt());
    let kernel = |distance: f64| (-0.5 * (distance / bandwidth).powi(2)).exp();
    let at = |x: f64| {
        let centers = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let terms = centers.map(|(place, count)| {
            let center = (place as f64 + 0.5) * cell;
            *count as f64 * (kernel(x - center) + kernel(x + center))
        });
        scale * terms.sum::<f64>()
    };
    let last = points.max(2) - 1;
    Some((0..=last).map(|place| high * place as f64 / last as f64).map(|x| (x, at(x))).collect())
}

fn bandwidth(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
    let range = (quantile(values, 0.75)? - quantile(values, 0.25)?) / 1.34;
    let spread = if range > 0.0 { deviation.min(range) } else { deviation };
    // Rounding makes the mean of equal values differ from them, so their spread is not exactly 0.
    (spread > 1e-12 * mean.abs() && spread.is_finite()).then(|| 0.9 * spread * count.powf(-0.2))
}

/// Returns the quantile of the values at the share `at`, by the nearest rank. `None` if there are no values.
pub fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(at * last as f64).round() as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integral(curve: &[(f64, f64)]) -> f64 {
        curve.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
    }

    #[test]
    fn integrates_to_one_also_where_values_crowd_at_zero() {
        let uniform: Vec<f64> = (0..2000).map(|i| f64::from(i) / 2000.0).collect();
        let crowded: Vec<f64> = uniform.iter().map(|u| -0.01 * (1.0 - u).ln()).collect();
        for (values, high) in [(uniform, 1.5), (crowded, 0.2)] {
            let curve = density(&values, high, 2000).unwrap();
            assert!((integral(&curve) - 1.0).abs() < 2e-3, "{}", integral(&curve));
        }
    }

    #[test]
    fn two_values_by_hand() {
        // sd = sqrt(1/2) and IQR = 1, so the bandwidth is h = 0.9 · min(0.70711, 0.74627) · 2^(-1/5) = 0.554018. The
        // values lie in cells that are 5e-4 wide, which moves the sum by less than 1e-3. At x = 1.5, the near kernels
        // are at ±0.5 and the reflected ones at 2.5 and 3.5.
        let h = 0.554_018_f64;
        let kernel = |d: f64| (-0.5 * (d / h).powi(2)).exp() / (2.0 * h * (2.0 * std::f64::consts::PI).sqrt());
        let want: f64 = [0.5, -0.5, 2.5, 3.5].into_iter().map(kernel).sum();
        let curve = density(&[1.0, 2.0], 3.0, 3).unwrap();
        assert_eq!(curve[1].0, 1.5);
        assert!((curve[1].1 - want).abs() < 1e-3 * want, "{} {want}", curve[1].1);
    }

    #[test]
    fn a_wide_bell_at_a_distance_from_zero_keeps_its_height_and_no_spread_has_none() {
        assert!(density(&[0.3; 10], 1.0, 10).is_none() && density(&[1.0], 1.0, 10).is_none());
        assert!(density(&[], 1.0, 10).is_none());
        let far: Vec<f64> = (0..1000).map(|i| 10.0 + f64::from(i) / 1000.0).collect();
        let curve = density(&far, 20.0, 400).unwrap();
        assert!(curve[0].1 < 1e-12 && (curve.iter().map(|p| p.1).fold(0.0, f64::max) - 1.0).abs() < 0.05);
    }
}
