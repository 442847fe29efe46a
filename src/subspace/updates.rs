//! Updates ΔW of particles: averaged in weight space, ΔW = Σ_j c_j ΔW_j, because the mean of the products B A is not the product
//! of the means, and low-rank ones written in the singular vectors of their factor B.
//!
//! Particles of any subspace take the explicit form ([`Dense`]) when they are combined entry by entry, each entry with its own weight. Such
//! particles are evaluated, never trained.

use anyhow::{Result, bail, ensure};
use tch::{Kind, Tensor};

use super::{Column, Combined, Layout, Shape, Subspace};
use crate::base::tensor::is_zero;
use crate::model::network::{Parameters, Weights};
use crate::schema::words;

/// Particles whose updates ΔW = s B A are the same, with B = U D and A = Vᵀ A₀ for the B₀ = U D Vᵀ that they had.
pub struct Spectral {
    /// The particles, `[n, P]`.
    pub theta: Tensor,
    /// The singular value d_i of its row i for every entry of a factor A; 0 in all other columns. `[n, P]`
    pub singular_values: Tensor,
    /// 1 for the entries of a factor A, 0 in all other columns, `[P]`.
    pub is_a: Tensor,
}

/// Writes the low-rank updates of particles `theta: [n, P]` in the singular vectors of B. Dense columns stay.
pub fn spectral(layout: &Layout, theta: &Tensor) -> Spectral {
    let particles = theta.size()[0];
    let turned = theta.copy();
    let (singular_values, is_a) = (theta.zeros_like(), theta.get(0).zeros_like());
    for block in &layout.blocks {
        let Shape::LowRank { rank, inputs, outputs, .. } = block.shape else { continue };
        let (start, a_length, b_length) = (block.columns.start, rank * inputs, outputs * rank);
        let a_of = |tensor: &Tensor| tensor.narrow(1, start, a_length);
        let b_of = |tensor: &Tensor| tensor.narrow(1, start + a_length, b_length);
        let a = a_of(theta).to_kind(Kind::Double).reshape([particles, rank, inputs]);
        let b = b_of(theta).to_kind(Kind::Double).reshape([particles, outputs, rank]);
        // Bᵀ B = V D² Vᵀ. V is orthogonal however small the singular values are, so the product stays.
        let (_, v) = b.transpose(1, 2).matmul(&b).linalg_eigh("L");
        let b = b.matmul(&v);
        let d = b.norm_scalaropt_dim(2.0, [1], false);
        a_of(&turned).copy_(&v.transpose(1, 2).matmul(&a).reshape([particles, -1]));
        b_of(&turned).copy_(&b.reshape([particles, -1]));
        a_of(&singular_values).copy_(&d.unsqueeze(2).expand([-1, -1, inputs], false).reshape([particles, -1]));
        let _ = is_a.narrow(0, start, a_length).fill_(1.0);
    }
    Spectral { theta: turned, singular_values, is_a }
}

words! {
    /// The quantity that is averaged.
    pub enum Space {
        /// The updates ΔW. The average is exact and has rank n·r for low-rank particles.
        Weights = "weights",
        /// The columns of theta, factor by factor. This keeps the rank but does not average the models.
        Factors = "factors",
    }
}

/// Returns the mean of all particles as one particle, with the weights of the particles (with the sum 1; `None` if all weigh
/// the same). A mean in factors stays in the same subspace.
pub fn mean(subspace: &dyn Subspace, theta: &Tensor, weights: Option<&[f64]>, space: Space) -> Result<Combined> {
    let particles = theta.size()[0];
    let coefficients = match weights {
        None => Tensor::full([1, particles], 1.0 / particles as f64, (Kind::Float, theta.device())),
        Some(weights) => Tensor::from_slice(weights).view([1, -1]).to_kind(Kind::Float).to_device(theta.device()),
    };
    match space {
        Space::Weights => subspace.combine(theta, &coefficients),
        Space::Factors => Ok(Combined { subspace: subspace.again(), theta: coefficients.matmul(theta) }),
    }
}

/// Returns the points Σ_j c_j θ_j, `[k, P]`, of particles `theta: [n, P]` whose updates are relative to `origin: [P]`.
///
/// # Errors
/// Fails if the coefficients are not `[k, n]`.
pub(super) fn around(origin: &Tensor, theta: &Tensor, coefficients: &Tensor) -> Result<Tensor> {
    check(theta, coefficients)?;
    let origin = origin.to_device(theta.device());
    Ok(coefficients.matmul(&(theta - &origin)) + origin)
}

/// Checks that the coefficients are `[k, n]` for `theta: [n, P]`.
pub(super) fn check(theta: &Tensor, coefficients: &Tensor) -> Result<()> {
    let (theta, coefficients) = (theta.size(), coefficients.size());
    let fits = coefficients.len() == 2 && coefficients[1] == theta[0];
    ensure!(fits, "coefficients {coefficients:?} for particles {theta:?}: they must be [points, particles]");
    Ok(())
}

/// The source of a column of ΔW.
#[derive(Clone)]
struct Source {
    /// The first column in the layout of the particles.
    start: i64,
    /// The shape of the block; [`Shape::Dense`] for a column that is itself a parameter.
    shape: Shape,
}

/// The subspace of explicit updates of the layers that another subspace trains.
pub struct Dense {
    layout: Layout,
    sources: Vec<Source>,
    /// The columns of the checkpoint in the particles' layout, `[P]`.
    origin: Tensor,
}

impl Dense {
    /// Returns the subspace of the updates of the layers of `subspace`.
    ///
    /// # Errors
    /// Fails if weights are no sums of updates.
    pub fn of(subspace: &dyn Subspace) -> Result<Dense> {
        if let Some(setting) = subspace.scaled_by() {
            bail!(
                "{setting}: weights whose rows or columns are scaled are not merged in weight space: merge the factors (--space factors)"
            );
        }
        let own = subspace.layout();
        let (mut layout, mut sources) = (Layout::default(), Vec::new());
        for block in &own.blocks {
            let start = layout.parameters();
            match &block.shape {
                Shape::LowRank { inputs, outputs, .. } => {
                    layout.push(format!("{}.weight", block.name), &[*outputs, *inputs]);
                    sources.push(Source { start: block.columns.start, shape: block.shape.clone() });
                }
                Shape::Dense => {
                    for Column { name, start, shape, .. } in
                        own.columns.iter().filter(|c| block.columns.contains(&c.start))
                    {
                        layout.push(name.clone(), shape);
                        sources.push(Source { start: *start, shape: Shape::Dense });
                    }
                }
            }
            layout.close_block(block.name.clone(), start, Shape::Dense);
        }
        Ok(Dense { layout, sources, origin: subspace.origin() })
    }

    /// Returns ΔW `[n, P']` for particles `theta: [n, P]`.
    pub fn updates(&self, theta: &Tensor) -> Tensor {
        let origin = self.origin.to_device(theta.device());
        self.each(theta.size()[0], |source, count| match source.shape {
            Shape::LowRank { rank, inputs, outputs, scale } => {
                let product = |rows: &Tensor| {
                    let Factors { a, b } = Factors::of(rows, source.start, Sizes { rank, inputs, outputs });
                    b.bmm(&a) * scale
                };
                // The frozen weights lack the product of the origin's factors, which most have not.
                let length = rank * (inputs + outputs);
                let is_plain = is_zero(&origin.narrow(0, source.start, length));
                let own = product(theta);
                if is_plain { own } else { own - product(&origin.unsqueeze(0).to_kind(theta.kind())) }
            }
            Shape::Dense => theta.narrow(1, source.start, count) - origin.narrow(0, source.start, count),
        })
    }

    /// Returns the variances `[n, P']` of ΔW in f64, where the columns of theta are independent with means `theta` and
    /// variances `variance`, both `[n, P]`. For s Σ_k b_ok a_ki the variance is s² Σ_k (b² σ_a² + a² σ_b² + σ_a² σ_b²).
    pub fn variances(&self, theta: &Tensor, variance: &Tensor) -> Tensor {
        let (squares, variance) = (theta.to_kind(Kind::Double).square(), variance.to_kind(Kind::Double));
        self.each(theta.size()[0], |source, count| match source.shape {
            Shape::LowRank { rank, inputs, outputs, scale } => {
                let sizes = Sizes { rank, inputs, outputs };
                let Factors { a, b } = Factors::of(&squares, source.start, sizes);
                let Factors { a: var_a, b: var_b } = Factors::of(&variance, source.start, sizes);
                (b.bmm(&var_a) + var_b.bmm(&(a + &var_a))) * (scale * scale)
            }
            Shape::Dense => variance.narrow(1, source.start, count),
        })
    }

    /// Applies `of` to each column's source and number of columns, and joins the results `[n, …]`.
    fn each(&self, particles: i64, of: impl Fn(&Source, i64) -> Tensor) -> Tensor {
        let columns = self.sources.iter().zip(&self.layout.columns);
        let parts = columns.map(|(source, column)| of(source, column.count()).reshape([particles, -1]));
        Tensor::cat(&parts.collect::<Vec<_>>(), 1)
    }
}

/// The lengths of the axes of the factors of a layer.
#[derive(Clone, Copy)]
struct Sizes {
    rank: i64,
    inputs: i64,
    outputs: i64,
}

/// The factors A `[n, r, in]` and B `[n, out, r]` of a layer.
struct Factors {
    a: Tensor,
    b: Tensor,
}

impl Factors {
    /// Takes the factors from the columns of rows `[n, P]` from `start` on.
    fn of(rows: &Tensor, start: i64, Sizes { rank, inputs, outputs }: Sizes) -> Factors {
        let a = rows.narrow(1, start, rank * inputs).reshape([-1, rank, inputs]);
        let b = rows.narrow(1, start + rank * inputs, outputs * rank).reshape([-1, outputs, rank]);
        Factors { a, b }
    }
}

impl Subspace for Dense {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns zeros, that is, no update.
    fn initial(&self, _: u64, _: u64) -> Result<Tensor> {
        Ok(self.origin())
    }

    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a> {
        let mut weights = Weights::frozen(base);
        for ((column, source), leaf) in self.layout.columns.iter().zip(&self.sources).zip(leaves) {
            let whole = match (base.value(&column.name), &source.shape) {
                // The update of a 1 × 1 convolution is a matrix, and its kernel has two more axes.
                (Some(frozen), _) => {
                    leaf.reshape([&[leaf.size()[0]], frozen.size().as_slice()].concat()) + frozen.unsqueeze(0)
                }
                // A head is not part of the base: its columns are relative to the origin.
                (None, _) => {
                    let start = self.origin.narrow(0, source.start, column.count()).view(column.shape.as_slice());
                    leaf + start.to_device(leaf.device()).to_kind(leaf.kind())
                }
            };
            weights.replace(&column.name, whole);
        }
        weights
    }

    fn forms_weights(&self) -> bool {
        true
    }

    fn origin(&self) -> Tensor {
        Tensor::zeros([self.layout.parameters()], (Kind::Float, self.origin.device()))
    }

    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined> {
        check(theta, coefficients)?;
        Ok(Combined { subspace: self.again(), theta: coefficients.matmul(theta) })
    }

    fn again(&self) -> Box<dyn Subspace> {
        let (layout, sources) = (self.layout.clone(), self.sources.clone());
        Box::new(Dense { layout, sources, origin: self.origin.shallow_clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_stay_and_b_gets_orthogonal_columns_of_the_singular_lengths() {
        tch::manual_seed(4);
        let (rank, inputs, outputs) = (3, 5, 4);
        let mut layout = Layout::default();
        layout.push("w.a", &[rank, inputs]);
        layout.push("w.b", &[outputs, rank]);
        layout.close_block("w", 0, Shape::LowRank { rank, inputs, outputs, scale: 2.0 });
        layout.push("head", &[2]);
        layout.close_block("head", rank * (inputs + outputs), Shape::Dense);
        let theta = Tensor::randn([2, layout.parameters()], tch::kind::DOUBLE_CPU);
        let factors = |theta: &Tensor| {
            let a = theta.narrow(1, 0, rank * inputs).reshape([2, rank, inputs]);
            (a, theta.narrow(1, rank * inputs, outputs * rank).reshape([2, outputs, rank]))
        };
        let near = |a: &Tensor, b: &Tensor| assert!((a - b).abs().max().double_value(&[]) < 1e-12, "{a} {b}");
        let found = spectral(&layout, &theta);
        let ((a, b), (before_a, before_b)) = (factors(&found.theta), factors(&theta));
        near(&b.matmul(&a), &before_b.matmul(&before_a));
        let (_, values, _) = before_b.svd(true, true);
        let d = factors(&found.singular_values).0.select(2, 1).flip([1]);
        near(&d, &values);
        near(&b.transpose(1, 2).matmul(&b), &Tensor::diag_embed(&d.flip([1]).square(), 0, -2, -1));
        near(&found.theta.narrow(1, 27, 2), &theta.narrow(1, 27, 2));
        assert_eq!(found.singular_values.narrow(1, 15, 14).abs().max().double_value(&[]), 0.0);
        assert_eq!(found.is_a.sum(Kind::Double).double_value(&[]), 15.0);
    }
}
