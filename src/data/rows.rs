//! Samples that are rows of numbers, such as the features of a table.

use tch::Tensor;

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
