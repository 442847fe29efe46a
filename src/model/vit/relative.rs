//! Relative positions, as in BEiT (Bao et al. 2022, arXiv 2106.08254, after Raffel et al. 2020): a learnt number for each
//! head and each distance between two patches is added to the attention scores.
//!
//! A table `[(2g − 1)² + 3, heads]` holds them for a grid of g × g patches. Row (y + g − 1)(2g − 1) + (x + g − 1) is that
//! of a query y rows and x columns behind its key. The last three rows are those of the class token as query, the class
//! token as key, and both.

use tch::{Device, Kind, Tensor};

use super::parts::Resize;
use crate::model::network::ops::{Constant, Ops};

/// The number of rows for pairs with the class token.
const CLASS_ROWS: i64 = 3;

/// The distances between the tokens of a grid.
#[derive(Clone, Debug)]
pub struct Distances {
    grid: i64,
    rows: Constant,
}

impl Distances {
    pub fn new(grid: i64) -> Distances {
        Distances { grid, rows: Constant::new("relative.rows") }
    }

    /// Returns the row of a table for each pair of tokens, `[T · T]`, with T = 1 + grid².
    fn rows(&self, device: Device) -> Tensor {
        let grid = self.grid;
        let side = 2 * grid - 1;
        let class = side * side;
        let row = |query: i64, key: i64| match (query, key) {
            (0, 0) => class + 2,
            (0, _) => class,
            (_, 0) => class + 1,
            _ => {
                let (query, key) = (query - 1, key - 1);
                (query / grid - key / grid + grid - 1) * side + (query % grid - key % grid + grid - 1)
            }
        };
        let tokens = 1 + grid * grid;
        let rows: Vec<i64> = (0..tokens).flat_map(|query| (0..tokens).map(move |key| row(query, key))).collect();
        Tensor::from_slice(&rows).to_device(device)
    }

    /// Returns what is added to the scores, `[p, 1, heads, T, T]` for queries and keys, from the sum of those tables `[rows, heads]`
    /// that there are.
    pub fn scores<O: Ops>(&self, ops: &O, tables: &[String], like: &O::Value) -> Option<O::Value> {
        let rows = ops.constant(&self.rows, &[self.grid], like, |(_, device)| self.rows(device));
        let scores = ops.picked(tables, &rows)?;
        let tokens = 1 + self.grid * self.grid;
        let scores = ops.reshape(&scores, &[tokens, tokens, ops.length(&scores, 3)]);
        Some(ops.permute(&scores, &[0, 1, 4, 2, 3]))
    }
}

/// Returns the number of rows of the table of a grid.
pub fn table_rows(grid: i64) -> i64 {
    (2 * grid - 1) * (2 * grid - 1) + CLASS_ROWS
}

/// Returns the grid of a table with this many rows; `None` if there is none.
pub fn grid_of(rows: i64) -> Option<i64> {
    let side = ((rows - CLASS_ROWS).max(0) as f64).sqrt().round() as i64;
    let grid = (side + 1) / 2;
    (rows > CLASS_ROWS && table_rows(grid) == rows).then_some(grid)
}

/// Returns a table `[rows, heads]` for another grid. The rows of the class token stay as they are.
pub fn resized(table: &Tensor, grid: i64, to: i64, resize: Resize) -> Tensor {
    let (side, heads) = (2 * grid - 1, table.size()[1]);
    let patches = table.narrow(0, 0, side * side);
    let new = match resize {
        // transformers: bilinear in the distances.
        Resize::Plain => {
            let map = patches.reshape([1, side, side, heads]).permute([0, 3, 1, 2]);
            let size = [2 * to - 1, 2 * to - 1];
            map.upsample_bilinear2d(size, false, None, None).permute([0, 2, 3, 1])
        }
        Resize::Antialiased => {
            let weights = progression_weights(grid, to);
            // [new, old] · [old, old · heads] for the rows, then the same for the columns.
            let rows = weights.matmul(&patches.reshape([side, side * heads]));
            let columns = rows.view([-1, side, heads]).permute([1, 0, 2]).reshape([side, -1]);
            weights.matmul(&columns).view([2 * to - 1, 2 * to - 1, heads]).permute([1, 0, 2])
        }
    };
    Tensor::cat(&[new.reshape([-1, heads]), table.narrow(0, side * side, CLASS_ROWS)], 0)
}

/// Returns the weights `[2·to − 1, 2·grid − 1]` of linear interpolation, as timm and BEiT's authors place the old
/// distances: their gaps grow by a constant factor q, such that the largest old distance becomes the largest new one.
/// Near patches thus keep their values, and far ones are stretched.
fn progression_weights(grid: i64, to: i64) -> Tensor {
    let (old, new) = (grid - 1, to - 1);
    // The sum of old gaps 1, q, q², … is to be the largest new distance.
    let (mut low, mut high) = (1.01f64, 1.5f64);
    let mut factor = (low + high) / 2.0;
    while high - low > 1e-6 {
        factor = (low + high) / 2.0;
        let reach = (1.0 - factor.powi(old as i32)) / (1.0 - factor);
        if reach > new as f64 { high = factor } else { low = factor }
    }
    let mut half = Vec::new();
    let mut reach = 1.0;
    for gap in 1..=old {
        half.push(reach);
        reach += factor.powi(gap as i32);
    }
    let points: Vec<f64> = half.iter().rev().map(|x| -x).chain([0.0]).chain(half.iter().copied()).collect();
    let mut weights = vec![0f64; ((2 * to - 1) * (2 * grid - 1)) as usize];
    for (row, distance) in (-new..=new).enumerate() {
        let at = |column: usize| row * points.len() + column;
        let x = distance as f64;
        // Beyond the last point its value stays.
        let right = points.iter().position(|point| *point >= x).unwrap_or(points.len() - 1);
        let left = right.saturating_sub(1);
        let (to_left, to_right) = ((x - points[left]).max(0.0), (points[right] - x).max(0.0));
        if to_left + to_right == 0.0 {
            weights[at(right)] = 1.0;
        } else {
            weights[at(left)] += to_right / (to_left + to_right);
            weights[at(right)] += to_left / (to_left + to_right);
        }
    }
    Tensor::from_slice(&weights).view([2 * to - 1, 2 * grid - 1]).to_kind(Kind::Float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::network::ops::Eager;
    use crate::model::network::{Parameters, Weights};

    /// A grid of 2 × 2: rows 0 to 8 are the distances (−1, −1) to (1, 1), 9 to 11 those of the class token.
    #[test]
    fn rows_of_a_small_grid() {
        let table = Tensor::arange(24, tch::kind::FLOAT_CPU).view([12, 2]);
        let base = Parameters::new(vec![("table".to_string(), table.shallow_clone())]);
        let weights = Weights::frozen(&base);
        let scores = Distances::new(2).scores(&Eager::of(&weights), &["table".to_string()], &table).unwrap();
        assert_eq!(scores.size(), [1, 1, 2, 5, 5]);
        let row = |query: i64| {
            Vec::<f32>::try_from(scores.squeeze_dim(0).select(1, 0).select(1, query).view(-1) / 2.0).unwrap()
        };
        assert_eq!(row(0), [11.0, 9.0, 9.0, 9.0, 9.0]);
        assert_eq!(row(1), [10.0, 4.0, 3.0, 1.0, 0.0]);
        assert_eq!(row(4), [10.0, 8.0, 7.0, 5.0, 4.0]);
    }

    #[test]
    fn grids_of_tables() {
        assert_eq!([732, 2212, 12, 13, 3].map(grid_of), [Some(14), Some(24), Some(2), None, None]);
    }
}
