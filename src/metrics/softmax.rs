//! Softmax and its parts, in f64.

/// Returns the index of the largest value. Of equal values, the first counts.
pub fn argmax<T: PartialOrd>(values: &[T]) -> usize {
    values.iter().enumerate().fold(0, |best, (i, value)| if *value > values[best] { i } else { best })
}

/// Turns logits into probabilities and returns their log-sum-exp.
pub fn softmax_in_place(values: &mut [f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter_mut().for_each(|value| *value = (*value - max).exp());
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
    max + sum.ln()
}

pub(super) fn log_sum_exp(values: &[f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + values.iter().map(|value| (value - max).exp()).sum::<f64>().ln()
}
