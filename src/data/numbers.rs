//! Rows of numbers, such as the features of a table; and numbers that are learnt in place of classes: how they are read, and the scale
//! on which a network learns them.

use std::fmt::Display;

use anyhow::{Context, Result, ensure};
use tch::Tensor;

/// The mean and the standard deviation of the numbers of a training split. A network learns (y − mean) / std, which has the mean
/// 0 and the standard deviation 1 there; what is reported is in the unit of the numbers themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub mean: f64,
    /// The standard deviation with the divisor N, above 0.
    pub std: f64,
}

impl Scale {
    /// The scale of numbers that are learnt as they are.
    pub const NONE: Scale = Scale { mean: 0.0, std: 1.0 };

    /// Returns the scale of numbers `[N]`.
    ///
    /// # Errors
    /// Fails if there is no number, or if all are the same.
    pub fn of(numbers: &[f64]) -> Result<Scale> {
        let first = *numbers.first().context("there is no number to learn: the training split is empty")?;
        let count = numbers.len() as f64;
        ensure!(
            numbers.iter().any(|number| *number != first),
            "all {} training samples have the number {first}: there is nothing to learn",
            numbers.len()
        );
        let mean = numbers.iter().sum::<f64>() / count;
        let square = |number: &f64| (number - mean).powi(2);
        Ok(Scale { mean, std: (numbers.iter().map(square).sum::<f64>() / count).sqrt() })
    }
}

/// Returns the number that a text writes, which stands under `key` at `place`.
///
/// # Errors
/// Fails if it writes no number, or one that is not finite in f32.
pub fn number(text: &str, key: &str, place: &dyn Display) -> Result<f64> {
    let parsed = text.trim().parse::<f64>();
    let value = parsed.ok().with_context(|| {
        format!("{place}: `{key}` is `{text}`, which is no number: correct it, or leave the sample out")
    })?;
    finite(value, key, place)
}

/// Returns a number, which stands under `key` at `place`.
///
/// # Errors
/// Fails if it is not finite in f32.
pub fn finite(value: f64, key: &str, place: &dyn Display) -> Result<f64> {
    ensure!(
        (value as f32).is_finite(),
        "{place}: `{key}` is {value:e}: a number must be finite and below 3.4e38: correct it, or leave the sample out"
    );
    Ok(value)
}

/// N rows of F numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// The numbers, `[N, F]`, row after row.
    pub values: Vec<f32>,
    /// The numbers of a row, F, at least 1.
    pub width: usize,
}

impl Rows {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the rows at `indices`, in that order.
    pub fn select(&self, indices: &[u32]) -> Rows {
        let row = |index: &u32| self.values[*index as usize * self.width..][..self.width].iter().copied();
        Rows { values: indices.iter().flat_map(row).collect(), width: self.width }
    }

    /// Returns the numbers as a tensor `[N, F]`.
    pub fn tensor(&self) -> Tensor {
        Tensor::from_slice(&self.values).view([self.len() as i64, self.width as i64])
    }

    /// Hands over the bytes of all numbers.
    pub fn describe(&self, take: &mut dyn FnMut(&[u8])) {
        take(&(self.width as u64).to_le_bytes());
        self.values.iter().for_each(|value| take(&value.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_that_of_all_numbers() {
        assert_eq!(Scale::of(&[1.0, 3.0]).unwrap(), Scale { mean: 2.0, std: 1.0 });
        assert!(Scale::of(&[]).unwrap_err().to_string().contains("the training split is empty"));
        let constant = Scale::of(&[2.5, 2.5]).unwrap_err().to_string();
        assert_eq!(constant, "all 2 training samples have the number 2.5: there is nothing to learn");
    }

    #[test]
    fn numbers_are_finite() {
        let read = |text: &str| number(text, "age", &"list.csv:3").map_err(|error| error.to_string());
        assert_eq!(read(" -2.5e1 "), Ok(-25.0));
        let out = "which is no number: correct it, or leave the sample out";
        assert_eq!(read("cat").unwrap_err(), format!("list.csv:3: `age` is `cat`, {out}"));
        assert_eq!(read("").unwrap_err(), format!("list.csv:3: `age` is ``, {out}"));
        for text in ["nan", "inf", "-Infinity", "1e39"] {
            assert!(read(text).unwrap_err().contains("must be finite and below 3.4e38"), "{text}");
        }
    }
}
