//! Estimates the density of a quantity from samples.

/// The number of cells into which the samples are counted before smoothing. The cells are much narrower than any
/// bandwidth that is drawn.
const CELLS: usize = 4096;

/// Returns the points `(value, density)` of a Gaussian kernel density estimate between two values. The bandwidth is that
/// of Silverman (1986, eq. 3.31: 0.9 · min(sd, IQR / 1.34) · n^(−1/5)). Values must be finite.
///
/// Returns `None` for fewer than two values and for values without spread, which have no density.
pub fn density(values: &[f64], (low, high): (f64, f64), points: usize) -> Option<Vec<(f64, f64)>> {
    let bandwidth = bandwidth(values)?;
    let (first, top) =
        values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let cell = (top - first) / CELLS as f64;
    let mut counts = vec![0usize; CELLS];
    for value in values {
        counts[(((value - first) / cell) as usize).min(CELLS - 1)] += 1;
    }
    let scale = 1.0 / (values.len() as f64 * bandwidth * std::f64::consts::TAU.sqrt());
    let kernel = |distance: f64| (-0.5 * (distance / bandwidth).powi(2)).exp();
    let at = |x: f64| {
        let centers = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let terms = centers.map(|(place, count)| *count as f64 * kernel(x - first - (place as f64 + 0.5) * cell));
        scale * terms.sum::<f64>()
    };
    let last = points.max(2) - 1;
    Some((0..=last).map(|place| low + (high - low) * place as f64 / last as f64).map(|x| (x, at(x))).collect())
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
    fn integrates_to_one() {
        let uniform: Vec<f64> = (0..2000).map(|i| f64::from(i) / 2000.0 - 3.0).collect();
        let curve = density(&uniform, (-4.0, -1.0), 2000).unwrap();
        assert!((integral(&curve) - 1.0).abs() < 2e-3, "{}", integral(&curve));
    }

    // scipy.stats.gaussian_kde(x, bw_method=h / numpy.std(x, ddof=1)) with Silverman's h of the formula above, scipy 1.17.1:
    // x = [-4, -3.5, -3.2, -3, -2.9, -2, -1.5], at -4.5, -3, -1.5
    const KDE: [f64; 3] = [0.09448621047541955, 0.4225862295522229, 0.18322190426474855];

    #[test]
    fn values_are_those_of_scipy() {
        let values = [-4.0, -3.5, -3.2, -3.0, -2.9, -2.0, -1.5];
        let curve = density(&values, (-4.5, -1.5), 3).unwrap();
        for ((_, found), expected) in curve.iter().zip(KDE) {
            assert!((found - expected).abs() < 1e-3 * expected, "{found} {expected}");
        }
    }

    #[test]
    fn values_without_spread_have_no_density() {
        assert!(density(&[0.3; 10], (0.0, 1.0), 10).is_none() && density(&[1.0], (0.0, 1.0), 10).is_none());
        assert!(density(&[], (0.0, 1.0), 10).is_none());
    }
}
