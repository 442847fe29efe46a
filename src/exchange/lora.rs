//! Low-rank updates ΔW = s B A of linear layers, with the lengths of the rows of W_0 + ΔW where these are trained (DoRA), and the exact ways between a layer that is kept whole and its parts.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::is_zero;
use crate::subspace::low_rank::magnitude_of;
use crate::subspace::{Layout, Shape};

/// The update of one layer: A `[r, in]` and B `[out, r]`, f32 on the CPU.
#[derive(Debug)]
pub struct Lora {
    pub a: Tensor,
    pub b: Tensor,
    pub scale: f64,
    /// The lengths m of the rows of W_0 + ΔW, `[out]`, if they are trained. Rows that a joined update has no lengths for are NaN.
    pub magnitude: Option<Tensor>,
}

impl Lora {
    /// Returns an update that changes nothing.
    pub fn zero(rank: i64, inputs: i64, outputs: i64) -> Lora {
        let zeros = |size: [i64; 2]| Tensor::zeros(size, tch::kind::FLOAT_CPU);
        Lora { a: zeros([rank, inputs]), b: zeros([outputs, rank]), scale: 1.0, magnitude: None }
    }

    pub fn rank(&self) -> i64 {
        self.a.size()[0]
    }

    pub fn again(&self) -> Lora {
        let magnitude = self.magnitude.as_ref().map(Tensor::shallow_clone);
        Lora { a: self.a.shallow_clone(), b: self.b.shallow_clone(), scale: self.scale, magnitude }
    }

    /// Returns whether both factors are zero, as those of a layer that is not adapted.
    pub fn is_zero(&self) -> bool {
        self.magnitude.is_none() && is_zero(&self.a) && is_zero(&self.b)
    }

    /// Returns output rows `start..start + rows` of the update.
    pub fn rows(&self, start: i64, rows: i64) -> Lora {
        let magnitude = self.magnitude.as_ref().map(|m| m.narrow(0, start, rows).contiguous());
        Lora { b: self.b.narrow(0, start, rows).contiguous(), magnitude, ..self.again() }
    }

    /// Returns the update without the last directions that are zero in A and B, which fill up a rank.
    pub fn trimmed(&self) -> Lora {
        let used = |t: &Tensor, dim: i64| t.ne(0.0).any_dim(dim, false);
        let used = used(&self.a, 1).logical_or(&used(&self.b, 0));
        let last = (0..self.rank()).rev().find(|k| used.int64_value(&[*k]) != 0).map_or(0, |k| k + 1);
        // PEFT has no adapter of rank 0, and the lengths of rows need one.
        let last = if self.magnitude.is_some() { last.max(1) } else { last };
        let (a, b) = (self.a.narrow(0, 0, last).contiguous(), self.b.narrow(1, 0, last).contiguous());
        Lora { a, b, ..self.again() }
    }

    /// Returns the update with zeros for further directions, up to `rank`.
    pub fn padded(&self, rank: i64) -> Lora {
        let more = rank - self.rank();
        let zeros = |size: [i64; 2]| Tensor::zeros(size, (Kind::Float, self.a.device()));
        let a = Tensor::cat(&[&self.a, &zeros([more, self.a.size()[1]])], 0);
        let b = Tensor::cat(&[&self.b, &zeros([self.b.size()[0], more])], 1);
        Lora { a, b, ..self.again() }
    }

    /// Returns the same update with the factor `scale`. Factors do not change where it is the same.
    pub fn scaled_to(&self, scale: f64) -> Lora {
        let b = if scale == self.scale { self.b.shallow_clone() } else { &self.b * (self.scale / scale) };
        Lora { b, scale, ..self.again() }
    }

    /// Returns the same update in no more directions than the layer has inputs or outputs.
    pub fn reduced(self) -> Lora {
        let [outputs, inputs] = [self.b.size()[0], self.a.size()[1]];
        if self.rank() <= inputs.min(outputs) {
            return self;
        }
        let double = |t: &Tensor| t.to_kind(Kind::Double);
        let product = double(&self.b).matmul(&double(&self.a)).to_kind(Kind::Float);
        let unit = Tensor::eye(inputs.min(outputs), (Kind::Float, self.a.device()));
        let (a, b) = if inputs <= outputs { (unit, product) } else { (product, unit) };
        Lora { a, b, ..self }
    }

    /// Returns the update divided by a number, by which B is divided.
    pub fn divided(&self, by: f64) -> Lora {
        let b = if by == 1.0 { self.b.shallow_clone() } else { &self.b / by };
        Lora { b, ..self.again() }
    }

    /// Returns the update of a layer of `outputs` rows from updates of disjoint rows, each with its first row. Parts that
    /// share their A are joined without a change of rank; otherwise the ranks add up.
    ///
    /// # Errors
    /// Fails if the parts have inputs of different sizes.
    pub fn joined(parts: &[(i64, Lora)], outputs: i64) -> Result<Lora> {
        let [(_, first), ..] = parts else { anyhow::bail!("there is no part to join") };
        ensure!(parts.iter().all(|(_, p)| p.a.size()[1] == first.a.size()[1]), "its parts have different inputs");
        let scale = first.scale;
        let rows: i64 = parts.iter().map(|(_, part)| part.b.size()[0]).sum();
        let magnitude = joined_lengths(parts, outputs)?;
        let shared = parts.iter().all(|(_, p)| p.scale == scale && p.a.size() == first.a.size() && p.a.equal(&first.a));
        if shared && rows == outputs {
            let b: Vec<&Tensor> = parts.iter().map(|(_, part)| &part.b).collect();
            return Ok(Lora { a: first.a.shallow_clone(), b: Tensor::cat(&b, 0), scale, magnitude });
        }
        let parts: Vec<(i64, Lora)> = parts.iter().map(|(row, part)| (*row, part.scaled_to(scale))).collect();
        let rank: i64 = parts.iter().map(|(_, part)| part.rank()).sum();
        let b = Tensor::zeros([outputs, rank], (Kind::Float, first.a.device()));
        let mut column = 0;
        for (row, part) in &parts {
            let (rows, rank) = (part.b.size()[0], part.rank());
            b.narrow(0, *row, rows).narrow(1, column, rank).copy_(&part.b);
            column += rank;
        }
        let a: Vec<&Tensor> = parts.iter().map(|(_, part)| &part.a).collect();
        Ok(Lora { a: Tensor::cat(&a, 0), b, scale, magnitude })
    }

    /// Returns the update without the directions whose column of B is zero: those of the other part of a layer that
    /// [`joined`](Self::joined) has joined.
    pub fn without_others(&self) -> Lora {
        let own = self.b.ne(0.0).any_dim(0, false).nonzero().squeeze_dim(1);
        Lora { a: self.a.index_select(0, &own), b: self.b.index_select(1, &own), ..self.again() }
    }
}

/// Returns the lengths of all rows from those of parts, each with its first row.
fn joined_lengths(parts: &[(i64, Lora)], outputs: i64) -> Result<Option<Tensor>> {
    let count = parts.iter().filter(|(_, part)| part.magnitude.is_some()).count();
    ensure!(count == 0 || count == parts.len(), "its parts have trained lengths of rows (DoRA) and have none");
    let all = Tensor::full([outputs], f64::NAN, tch::kind::FLOAT_CPU);
    for (row, part) in parts {
        let Some(own) = &part.magnitude else { return Ok(None) };
        all.narrow(0, *row, own.size()[0]).copy_(own);
    }
    Ok(Some(all))
}

/// Returns the updates of one particle `row: [P]`, by the names of their layers.
pub fn updates(layout: &Layout, row: &Tensor) -> Vec<(String, Lora)> {
    let row = row.to_device(tch::Device::Cpu).to_kind(Kind::Float);
    let update = |block: &crate::subspace::Block| match block.shape {
        Shape::LowRank { rank, inputs, outputs, scale } => {
            let start = block.columns.start;
            let a = row.narrow(0, start, rank * inputs).reshape([rank, inputs]);
            let b = row.narrow(0, start + rank * inputs, outputs * rank).reshape([outputs, rank]);
            let lengths = layout.columns.iter().find(|column| column.name == magnitude_of(&block.name));
            let magnitude = lengths.map(|column| row.narrow(0, column.start, outputs).contiguous());
            Some((block.name.clone(), Lora { a, b, scale, magnitude }))
        }
        Shape::Dense => None,
    };
    layout.blocks.iter().filter_map(update).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lora(rank: i64, inputs: i64, outputs: i64, scale: f64) -> Lora {
        let random = |size: [i64; 2]| Tensor::randn(size, (Kind::Float, tch::Device::Cpu));
        Lora { a: random([rank, inputs]), b: random([outputs, rank]), scale, magnitude: None }
    }

    fn product(lora: &Lora) -> Tensor {
        lora.b.matmul(&lora.a) * lora.scale
    }

    #[test]
    fn thirds_of_one_update_join_to_the_same_factors() {
        tch::manual_seed(1);
        let whole = lora(2, 5, 12, 4.0);
        let parts: Vec<(i64, Lora)> = (0..3).map(|i| (4 * i, whole.rows(4 * i, 4))).collect();
        let joined = Lora::joined(&parts, 12).unwrap();
        assert!(joined.a.equal(&whole.a) && joined.b.equal(&whole.b));
    }

    #[test]
    fn parts_with_their_own_a_join_to_the_sum_of_their_updates() {
        tch::manual_seed(2);
        let (q, v) = (lora(2, 5, 4, 4.0), lora(3, 5, 4, 1.0));
        let joined = Lora::joined(&[(0, q.again()), (8, v.again())], 12).unwrap();
        assert_eq!((joined.rank(), joined.b.size()), (5, vec![12, 5]));
        let zeros = Tensor::zeros([4, 5], (Kind::Float, tch::Device::Cpu));
        let expected = Tensor::cat(&[product(&q), zeros, product(&v)], 0);
        assert!(product(&joined).allclose(&expected, 1e-5, 1e-6, false));
    }

    #[test]
    fn ranks_above_those_of_a_layer_are_reduced_exactly() {
        tch::manual_seed(4);
        for (inputs, outputs) in [(3, 5), (5, 3)] {
            let own = lora(7, inputs, outputs, 2.0);
            let reduced = own.again().reduced();
            assert_eq!(reduced.rank(), 3);
            assert!(product(&reduced).allclose(&product(&own), 1e-6, 1e-6, false));
        }
        let small = lora(2, 5, 4, 1.0);
        assert!(small.again().reduced().a.equal(&small.a));
    }

    #[test]
    fn filled_up_ranks_are_trimmed_exactly() {
        tch::manual_seed(3);
        let own = lora(2, 5, 4, 1.0);
        let trimmed = own.padded(6).trimmed();
        assert!(trimmed.a.equal(&own.a) && trimmed.b.equal(&own.b));
        assert!(Lora { a: own.a.zeros_like(), b: own.b.zeros_like(), ..own.again() }.is_zero());
        let both = Lora::joined(&[(0, own.again()), (4, lora(2, 5, 4, 1.0))], 8).unwrap();
        let first = both.rows(0, 4).without_others();
        assert!(first.a.equal(&own.a) && first.b.equal(&own.b));
    }
}
