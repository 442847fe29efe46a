//! Correlations of two lists of numbers.

/// Returns the correlation of Pearson; `None` if one of the lists is constant or has fewer than two numbers.
pub fn pearson(one: &[f64], other: &[f64]) -> Option<f64> {
    let count = one.len() as f64;
    let centred = |of: &[f64]| {
        let mean = of.iter().sum::<f64>() / count;
        of.iter().map(|value| value - mean).collect::<Vec<f64>>()
    };
    let (one, other) = (centred(one), centred(other));
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let scale = (product(&one, &one) * product(&other, &other)).sqrt();
    (scale > 0.0).then(|| product(&one, &other) / scale)
}

/// Returns the correlation of Spearman: that of the ranks.
pub fn spearman(one: &[f64], other: &[f64]) -> Option<f64> {
    pearson(&ranks(one), &ranks(other))
}

/// Returns the ranks from 1 on; equal numbers share the mean of theirs.
fn ranks(of: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..of.len()).collect();
    order.sort_by(|a, b| of[*a].total_cmp(&of[*b]));
    let mut ranks = vec![0.0; of.len()];
    let mut start = 0;
    for equal in order.chunk_by(|a, b| of[*a] == of[*b]) {
        let rank = start as f64 + 0.5 * (equal.len() + 1) as f64;
        equal.iter().for_each(|at| ranks[*at] = rank);
        start += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `python3 -c "from scipy.stats import *; x=[1,2,2,4,7]; y=[3,1,4,4,9]; print(pearsonr(x,y)[0], spearmanr(x,y)[0], rankdata(y))"`
    #[test]
    fn correlations_are_those_of_scipy() {
        let (x, y) = ([1.0, 2.0, 2.0, 4.0, 7.0], [3.0, 1.0, 4.0, 4.0, 9.0]);
        assert_eq!(ranks(&y), [2.0, 1.0, 3.5, 3.5, 5.0]);
        assert!((pearson(&x, &y).unwrap() - PEARSON).abs() < 1e-14, "{:?}", pearson(&x, &y));
        assert!((spearman(&x, &y).unwrap() - SPEARMAN).abs() < 1e-14, "{:?}", spearman(&x, &y));
        assert_eq!((pearson(&x, &[1.0; 5]), spearman(&x[..1], &y[..1])), (None, None));
    }

    const PEARSON: f64 = 0.8804296005407636;
    const SPEARMAN: f64 = 0.7631578947368421;
}
