//! Symmetric positive semidefinite matrices as sums of outer products, dense or of low rank, and their eigenvectors.
//! All of them are stored in f64.

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::random::{Purpose, normal, stream};
use crate::base::tensor::wide;
use crate::posterior::curvature::Factor;

impl Factor {
    /// Returns the eigenvalues and eigenvectors of a dense matrix `[d, d]`.
    pub fn of(matrix: &Tensor) -> Result<Factor> {
        check(matrix)?;
        let (values, vectors) = matrix.f_linalg_eigh("L")?;
        Ok(Factor { vectors, values: values.clamp_min(0.0) })
    }
}

/// The sum Σ x xᵀ over rows x.
pub enum Sum {
    /// The full matrix, `[d, d]`.
    Dense(Tensor),
    /// The product of the sum with random orthonormal columns, from which the `kept` strongest directions are found at
    /// the end (Tropp et al. 2017, arXiv 1706.05736). It needs one pass over the rows, is exact up to rank `kept`, and
    /// does not depend on the order of the rows.
    Sketch {
        /// The random columns Ω, `[d, l]`.
        columns: Tensor,
        /// The product Σ x xᵀ Ω, `[d, l]`.
        image: Tensor,
        kept: i64,
        /// Eigenvalues below this share of the largest are treated as rounding error.
        rounding: f64,
    },
}

impl Sum {
    /// Returns an empty sum of size d × d. It is dense where `size < wide`, or where a sketch would save nothing.
    pub fn new(size: i64, wide: i64, kept: i64, device: Device) -> Sum {
        let options = (Kind::Double, device);
        let width = sketch_width(size, kept);
        if size < wide || width >= size {
            return Sum::Dense(Tensor::zeros([size, size], options));
        }
        let mut rng = stream(0, Purpose::Posterior, &[size as u64]);
        let columns: Vec<f64> = (0..size * width).map(|_| normal(&mut rng)).collect();
        let columns = Tensor::from_slice(&columns).view([size, width]).to_device(device);
        let (columns, _) = Tensor::linalg_qr(&columns, "reduced");
        Sum::Sketch { columns, image: Tensor::zeros([size, width], options), kept, rounding: 1e-12 }
    }

    /// Adds rows `[M, d]`. Products of rows of 32 or fewer bits are taken in f32; sums are always taken in f64.
    pub fn add(&mut self, new: &Tensor) {
        let kind = wide(new.kind());
        let new = new.to_kind(kind);
        match self {
            Sum::Dense(sum) => *sum += new.tr().matmul(&new),
            Sum::Sketch { columns, image, rounding, .. } => {
                *image += new.tr().matmul(&new.matmul(&columns.to_kind(kind)));
                if kind != Kind::Double {
                    *rounding = 1e-6;
                }
            }
        }
    }

    /// Returns the eigenvalues and eigenvectors of the sum divided by `count`.
    pub fn finish(self, count: f64) -> Result<Factor> {
        match self {
            Sum::Dense(sum) => Factor::of(&(sum / count)),
            Sum::Sketch { columns, image, kept, rounding } => strongest(&columns, &(image / count), kept, rounding),
        }
    }
}

/// Returns the number of columns a sketch needs to find `kept` directions accurately.
pub fn sketch_width(size: i64, kept: i64) -> i64 {
    (4 * kept).max(kept + 10).min(size)
}

/// Returns the `kept` strongest eigenvectors of S, given Y = S Ω. They are those of Y (Ωᵀ Y)⁻¹ Yᵀ, which equals S where
/// the rank of S is at most the number of columns of Ω.
fn strongest(columns: &Tensor, image: &Tensor, kept: i64, rounding: f64) -> Result<Factor> {
    check(image)?;
    let core = columns.tr().matmul(image);
    let (values, vectors) = ((&core + core.tr()) / 2.0).f_linalg_eigh("L")?;
    // Directions that are only rounding error are left out; they would be divided by almost zero.
    let sound = |values: &Tensor| values.gt_tensor(&(values.max() * rounding).clamp_min(0.0)).nonzero().squeeze_dim(1);
    let index = sound(&values);
    let (values, vectors) = (values.index_select(0, &index), vectors.index_select(1, &index));
    let root = image.matmul(&(vectors * values.rsqrt()));
    // The left singular vectors of `root` come from its Gram matrix, which is only l × l.
    let (values, vectors) = root.tr().matmul(&root).f_linalg_eigh("L")?;
    let index = sound(&values);
    let (values, vectors) = (values.index_select(0, &index), vectors.index_select(1, &index));
    let kept = kept.min(values.size()[0]);
    let (values, vectors) = (values.slice(0, -kept, None, 1), vectors.slice(1, -kept, None, 1));
    if kept == 0 {
        // The sum is zero, so no direction has curvature.
        let options = (Kind::Double, image.device());
        let vectors = Tensor::zeros([image.size()[0], 0], options);
        return Ok(Factor { vectors, values: Tensor::zeros([0], options) });
    }
    Ok(Factor { vectors: root.matmul(&(vectors * values.rsqrt())), values })
}

/// Checks that all entries are finite.
///
/// # Errors
/// Fails if an entry is NaN or infinite.
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

    /// Returns rows of rank 3 whose directions have well separated strengths.
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
            sum.add(&x.narrow(0, 0, 100));
            sum.add(&x.narrow(0, 100, 600));
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
        // The strength of the i-th orthogonal direction falls as 1 / i.
        let (directions, _) = Tensor::linalg_qr(&Tensor::randn([60, 60], (Kind::Double, Device::Cpu)), "reduced");
        let strengths = (Tensor::arange(60, (Kind::Double, Device::Cpu)) + 1.0).reciprocal();
        let x = (Tensor::randn([20_000, 60], (Kind::Double, Device::Cpu)) * strengths).matmul(&directions);
        let mut kept = Sum::new(60, 10, 8, Device::Cpu);
        kept.add(&x);
        let (kept, all) = (kept.finish(20_000.0).unwrap(), Factor::of(&(x.tr().matmul(&x) / 20_000.0)).unwrap());
        let identity = Tensor::eye(8, (Kind::Double, Device::Cpu));
        assert!((kept.vectors.tr().matmul(&kept.vectors) - identity).abs().max().double_value(&[]) < 1e-10);
        let ratio = &kept.values / all.values.narrow(0, 52, 8);
        // The weakest direction is found least accurately, and its strength is never overestimated.
        let (least, most) = (ratio.min().double_value(&[]), ratio.max().double_value(&[]));
        assert!(least > 0.94 && most < 1.0 + 1e-9, "{ratio}");
        assert!((ratio.get(6) - 1.0).abs().double_value(&[]) < 0.02, "{ratio}");
    }

    #[test]
    fn not_a_number_is_named() {
        let mut sum = Sum::new(2, 10, 1, Device::Cpu);
        sum.add(&Tensor::from_slice(&[1.0, f64::NAN]).view([1, 2]));
        assert!(sum.finish(1.0).unwrap_err().to_string().contains("not finite"));
    }
}
