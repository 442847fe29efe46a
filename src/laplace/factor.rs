//! Symmetric positive matrices as sums of outer products, dense or of low rank, and their eigenvectors; all in f64.

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

/// Eigenvectors of a positive matrix; the directions that are left out have eigenvalue 0.
#[derive(Debug)]
pub struct Factor {
    /// `[d, k]`, orthonormal, f64.
    pub vectors: Tensor,
    /// `[k]`, at least 0, f64.
    pub values: Tensor,
}

impl Factor {
    /// Eigenvectors of a dense matrix `[d, d]`.
    pub fn of(matrix: &Tensor) -> Result<Factor> {
        check(matrix)?;
        let (values, vectors) = matrix.f_linalg_eigh("L")?;
        Ok(Factor { vectors, values: values.clamp_min(0.0) })
    }

    /// Whether no direction is left out.
    pub fn is_complete(&self) -> bool {
        self.vectors.size()[0] == self.vectors.size()[1]
    }

    pub fn size(&self) -> i64 {
        self.vectors.size()[0]
    }

    /// The eigenvectors in another type.
    pub fn basis(&self, kind: Kind) -> Tensor {
        self.vectors.to_kind(kind)
    }
}

/// Σ x xᵀ over rows x.
pub enum Sum {
    /// `[d, d]`.
    Dense(Tensor),
    /// Rows F `[≤ k, d]` with Fᵀ F ≈ Σ x xᵀ: after every few rows only the `kept` strongest directions stay (Yang et al.
    /// 2024, arXiv 2308.13111, appendix), so that what lies outside of them is lost.
    Kept { rows: Tensor, kept: i64 },
}

impl Sum {
    /// Nothing yet, of d × d: dense where `d < wide`.
    pub fn new(size: i64, wide: i64, kept: i64, device: Device) -> Sum {
        let options = (Kind::Double, device);
        if size < wide || kept >= size {
            Sum::Dense(Tensor::zeros([size, size], options))
        } else {
            Sum::Kept { rows: Tensor::zeros([0, size], options), kept }
        }
    }

    /// Adds rows `[M, d]`.
    pub fn add(&mut self, new: &Tensor) -> Result<()> {
        /// Rows between two truncations.
        const ROWS: i64 = 256;
        let new = new.to_kind(Kind::Double);
        match self {
            Sum::Dense(sum) => *sum += new.tr().matmul(&new),
            Sum::Kept { rows, kept } => {
                let count = new.size()[0];
                for start in (0..count).step_by(ROWS as usize) {
                    let part = new.narrow(0, start, ROWS.min(count - start));
                    *rows = strongest(&Tensor::cat(&[&*rows, &part], 0), *kept)?;
                }
            }
        }
        Ok(())
    }

    /// Eigenvectors of the sum over `count`.
    pub fn finish(self, count: f64) -> Result<Factor> {
        match self {
            Sum::Dense(sum) => Factor::of(&(sum / count)),
            Sum::Kept { rows, .. } => {
                check(&rows)?;
                let norms = rows.norm_scalaropt_dim(2.0, [1i64].as_slice(), true);
                // A direction without energy has no eigenvector: it stays out.
                let present = norms.squeeze_dim(1).gt(0.0);
                let index = present.nonzero().squeeze_dim(1);
                let vectors = (&rows / norms.clamp_min(f64::MIN_POSITIVE)).index_select(0, &index).tr().contiguous();
                let values = norms.squeeze_dim(1).square().index_select(0, &index) / count;
                Ok(Factor { vectors, values })
            }
        }
    }
}

/// Orthogonal rows `[≤ k, d]` with the k strongest directions of Sᵀ S for `S: [M, d]`.
fn strongest(rows: &Tensor, kept: i64) -> Result<Tensor> {
    check(rows)?;
    let count = rows.size()[0];
    let (_, vectors) = rows.matmul(&rows.tr()).f_linalg_eigh("L")?;
    let kept = kept.min(count);
    Ok(vectors.narrow(1, count - kept, kept).tr().matmul(rows))
}

/// # Errors
/// A number that is not finite.
pub fn check(tensor: &Tensor) -> Result<()> {
    let finite = tensor.isfinite().all().int64_value(&[]) != 0;
    ensure!(
        finite,
        "laplace: the curvature is not finite: the trained weights are far out; lower optimizer.*.lr, or set \
         train.precision = \"f32\""
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of rank 3 with well separated strengths.
    fn rows(count: i64, size: i64) -> Tensor {
        tch::manual_seed(3);
        let options = (Kind::Double, Device::Cpu);
        let strengths = Tensor::from_slice(&[9.0, 3.0, 1.0]);
        (Tensor::randn([count, 3], options) * strengths).matmul(&Tensor::randn([3, size], options))
    }

    #[test]
    fn low_rank_sums_of_low_rank_rows_are_exact() {
        let x = rows(700, 40);
        let mut dense = Sum::new(40, 100, 3, Device::Cpu);
        let mut kept = Sum::new(40, 10, 3, Device::Cpu);
        for sum in [&mut dense, &mut kept] {
            sum.add(&x.narrow(0, 0, 100)).unwrap();
            sum.add(&x.narrow(0, 100, 600)).unwrap();
        }
        let (dense, kept) = (dense.finish(7.0).unwrap(), kept.finish(7.0).unwrap());
        assert_eq!((dense.is_complete(), kept.vectors.size()), (true, vec![40, 3]));
        let matrix = |f: &Factor| (&f.vectors * &f.values).matmul(&f.vectors.tr());
        let difference = (matrix(&dense) - matrix(&kept)).abs().max().double_value(&[]);
        let largest = matrix(&dense).abs().max().double_value(&[]);
        assert!(difference < 1e-9 * largest, "{difference} of {largest}");
    }

    #[test]
    fn not_a_number_is_named() {
        let mut sum = Sum::new(2, 10, 1, Device::Cpu);
        sum.add(&Tensor::from_slice(&[1.0, f64::NAN]).view([1, 2])).unwrap();
        assert!(sum.finish(1.0).unwrap_err().to_string().contains("not finite"));
    }
}
