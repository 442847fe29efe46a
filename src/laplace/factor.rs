//! Symmetric positive matrices as sums of outer products, dense or of low rank, and their eigenvectors; all in f64.

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::data::order::{Purpose, normal, stream};

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
    Kept {
        rows: Tensor,
        kept: i64,
        /// Where the search for directions starts besides F, `[d, k + 10]`.
        sketch: Tensor,
    },
}

impl Sum {
    /// Nothing yet, of d × d: dense where `d < wide`.
    pub fn new(size: i64, wide: i64, kept: i64, device: Device) -> Sum {
        let options = (Kind::Double, device);
        if size < wide || kept >= size {
            Sum::Dense(Tensor::zeros([size, size], options))
        } else {
            let columns = (kept + 10).min(size);
            let mut rng = stream(0, Purpose::Posterior, &[size as u64]);
            let sketch: Vec<f64> = (0..size * columns).map(|_| normal(&mut rng)).collect();
            let sketch = Tensor::from_slice(&sketch).view([size, columns]).to_device(device);
            Sum::Kept { rows: Tensor::zeros([0, size], options), kept, sketch }
        }
    }

    /// Adds rows `[M, d]`.
    pub fn add(&mut self, new: &Tensor) -> Result<()> {
        /// Rows between two truncations.
        const ROWS: i64 = 4096;
        let new = new.to_kind(Kind::Double);
        match self {
            Sum::Dense(sum) => *sum += new.tr().matmul(&new),
            Sum::Kept { rows, kept, sketch } => {
                let count = new.size()[0];
                for start in (0..count).step_by(ROWS as usize) {
                    let part = new.narrow(0, start, ROWS.min(count - start));
                    *rows = strongest(rows, &part, sketch, *kept)?;
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

/// Orthogonal rows `[≤ k, d]` with the strongest directions of S = Fᵀ F + Xᵀ X, for F `[k, d]` and X `[M, d]`: two steps of
/// subspace iteration from F and the sketch (Halko et al. 2011, arXiv 0909.4061, algorithm 4.4), exact up to rank k.
fn strongest(f: &Tensor, x: &Tensor, sketch: &Tensor, kept: i64) -> Result<Tensor> {
    check(x)?;
    let apply = |z: &Tensor| f.tr().matmul(&f.matmul(z)) + x.tr().matmul(&x.matmul(z));
    let orthonormal = |y: &Tensor| Tensor::f_linalg_qr(y, "reduced").map(|(basis, _)| basis);
    let mut basis = orthonormal(&apply(&Tensor::cat(&[&f.tr(), sketch], 1)))?;
    basis = orthonormal(&apply(&basis))?;
    let (values, vectors) = basis.tr().matmul(&apply(&basis)).f_linalg_eigh("L")?;
    let count = values.size()[0];
    let kept = kept.min(count);
    let strengths = values.narrow(0, count - kept, kept).clamp_min(0.0).sqrt();
    Ok((basis.matmul(&vectors.narrow(1, count - kept, kept)) * strengths).tr().contiguous())
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
    fn the_strongest_directions_are_kept() {
        tch::manual_seed(5);
        // Strengths that fall as 1 / i in directions of their own.
        let (directions, _) = Tensor::linalg_qr(&Tensor::randn([60, 60], (Kind::Double, Device::Cpu)), "reduced");
        let strengths = (Tensor::arange(60, (Kind::Double, Device::Cpu)) + 1.0).reciprocal();
        let x = (Tensor::randn([20_000, 60], (Kind::Double, Device::Cpu)) * strengths).matmul(&directions);
        let mut kept = Sum::new(60, 10, 8, Device::Cpu);
        kept.add(&x).unwrap();
        let (kept, all) = (kept.finish(20_000.0).unwrap(), Factor::of(&(x.tr().matmul(&x) / 20_000.0)).unwrap());
        let identity = Tensor::eye(8, (Kind::Double, Device::Cpu));
        assert!((kept.vectors.tr().matmul(&kept.vectors) - identity).abs().max().double_value(&[]) < 1e-10);
        let ratio = &kept.values / all.values.narrow(0, 52, 8);
        assert!((ratio - 1.0).abs().max().double_value(&[]) < 0.02, "{}", &kept.values);
    }

    #[test]
    fn not_a_number_is_named() {
        let mut sum = Sum::new(2, 10, 1, Device::Cpu);
        sum.add(&Tensor::from_slice(&[1.0, f64::NAN]).view([1, 2])).unwrap();
        assert!(sum.finish(1.0).unwrap_err().to_string().contains("not finite"));
    }
}
