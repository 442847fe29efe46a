//! Explicit updates ΔW of the trained layers. Particles of any subspace take this form when they are combined entry by
//! entry, each entry with its own weight. They are evaluated, never trained.

use anyhow::{Result, bail};
use tch::{Kind, Tensor};

use super::{Column, Combined, Layout, Shape, Subspace};
use crate::model::network::{Parameters, Weights};

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
                let is_plain = origin.narrow(0, source.start, length).count_nonzero(None::<i64>).int64_value(&[]) == 0;
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
                (Some(frozen), _) => leaf + frozen.unsqueeze(0),
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
        super::updates::check(theta, coefficients)?;
        Ok(Combined { subspace: self.again(), theta: coefficients.matmul(theta) })
    }

    fn again(&self) -> Box<dyn Subspace> {
        let (layout, sources) = (self.layout.clone(), self.sources.clone());
        Box::new(Dense { layout, sources, origin: self.origin.shallow_clone() })
    }
}
