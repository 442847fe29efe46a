//! Merges models that were fine-tuned from one checkpoint. Each parameter is weighted by how certain each model is of
//! it (Daheim et al. 2024, arXiv 2310.12808; with IVON's posterior: IVON, section 4.3.2 and appendix C.5).
//!
//! | symbol | here |
//! |---|---|
//! | θ_t − θ_0, what model t has learnt | a row of `updates` |
//! | α_t, its share | `share`, the same for all |
//! | H_0, the precision of the checkpoint | `prior` |
//! | H_0 + H_t, the precision of model t | a row of `precisions` |
//! | H̄ = H_0 + Σ_t α_t H_t | [`weighted`] |
//! | θ_0 + Σ_t α_t H̄⁻¹ (H_0 + H_t) (θ_t − θ_0) | its result |
//!
//! Low-rank runs are merged in ΔW, because factors with different starting points span different spaces.

mod runs;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::small::Usage;
use crate::posterior::Posterior;
use crate::schema::words;
use crate::subspace::updates::Dense;
use crate::subspace::{Combined, Space, Subspace};

pub use runs::{Merge, Merged, squared_gradients};

words! {
    /// The source of the models' precisions.
    pub enum By {
        /// All equal: Σ_t α (θ_t − θ_0), the plain mean where the shares sum to 1.
        Mean = "mean",
        /// 1/σ² of Gaussian posteriors.
        Posterior = "posterior",
        /// Squared gradients on training images, at labels drawn from the model.
        SquaredGradients = "squared-gradients",
    }
}

impl By {
    /// Returns the way of merging that a posterior supports: by its variances if it has any, else the mean.
    pub fn usual(posterior: &Posterior) -> By {
        if matches!(posterior, Posterior::Gaussians { .. }) { By::Posterior } else { By::Mean }
    }
}

/// The settings of a merge.
pub struct Settings {
    /// The share α of each model.
    pub share: f64,
    /// The precision H_0 of the checkpoint.
    pub prior: f64,
}

/// The particles that one run contributes, as rows of one layout.
pub struct Contribution {
    /// The updates θ_t − θ_0, `[n, P']`.
    pub updates: Tensor,
    /// The variances 1 / (H_0 + H_t), `[n, P']`. `None` if all models count equally.
    pub variances: Option<Tensor>,
    /// The subspace that gives the columns their meaning.
    pub subspace: Box<dyn Subspace>,
}

impl Contribution {
    /// Converts particles `theta: [n, P]`, with the variances of their columns if there are any, to the space to merge
    /// in.
    ///
    /// # Errors
    /// Fails if weights are no sums of updates.
    pub fn new(
        subspace: &dyn Subspace,
        theta: &Tensor,
        variances: Option<Tensor>,
        space: Space,
    ) -> Result<Contribution> {
        if is_by_column(subspace, space) {
            let updates = theta - subspace.origin().to_device(theta.device());
            return Ok(Contribution { updates, variances, subspace: subspace.again() });
        }
        let dense = Dense::of(subspace)?;
        let variances = variances.map(|v| dense.variances(theta, &v));
        Ok(Contribution { updates: dense.updates(theta), variances, subspace: Box::new(dense) })
    }
}

/// Returns whether the columns of theta are merged as they are: factors, if these are asked for, or entries of weights, whose subspace knows what
/// else follows from them, such as the head from a text projection. Other columns are merged as the updates ΔW that they stand for.
fn is_by_column(subspace: &dyn Subspace, space: Space) -> bool {
    space == Space::Factors || subspace.layout().is_dense() && subspace.scaled_by().is_none()
}

/// Merges all runs into one model.
///
/// # Errors
/// Fails if the runs trained different layers, or if merged weights are not finite.
pub fn merge(runs: Vec<Contribution>, settings: &Settings) -> Result<Combined> {
    let mut layouts = runs.iter().map(|run| run.subspace.layout());
    let first = layouts.next().context("there is nothing to merge")?;
    for other in layouts {
        ensure!(other.columns == first.columns, "the runs trained different layers: merge runs of equal [subspace.*]");
        ensure!(
            other.blocks == first.blocks,
            Usage(
                "--space factors: the runs scale their products B A differently (alpha, alpha_pattern, rslora): leave --space out"
                    .into()
            )
        );
    }
    // The columns are merged in parts, because the intermediate results take several times the memory of the updates.
    let columns = runs.iter().map(|run| run.updates.size()[1]).next().context("there is nothing to merge")?;
    let starts = (0..columns).step_by(COLUMNS as usize);
    let parts: Vec<Tensor> =
        starts.map(|start| merged_columns(&runs, start, COLUMNS.min(columns - start), settings)).collect();
    let merged = Tensor::cat(&parts, 1);
    let finite = merged.isfinite().all().int64_value(&[]) != 0;
    ensure!(finite, "the merged weights are not finite: a parameter is known beyond f32; raise --prior");
    let subspace = runs.into_iter().next().context("there is nothing to merge")?.subspace;
    let origin = subspace.origin().to_device(merged.device());
    let theta = merged + origin;
    Ok(Combined { subspace, theta })
}

/// The number of columns that are merged at once.
const COLUMNS: i64 = 1 << 22;

/// Returns the columns `start..start + count` of the merged update, `[1, count]`.
fn merged_columns(runs: &[Contribution], start: i64, count: i64, settings: &Settings) -> Tensor {
    let columns = |t: &Tensor| t.narrow(1, start, count);
    let updates = Tensor::cat(&runs.iter().map(|run| columns(&run.updates)).collect::<Vec<_>>(), 0);
    let variances = runs.iter().map(|run| run.variances.as_ref().map(columns)).collect::<Option<Vec<_>>>();
    match variances {
        Some(variances) => weighted(&updates, &Tensor::cat(&variances, 0).reciprocal(), settings),
        None => updates.sum_dim_intlist([0i64].as_slice(), true, Kind::Float) * settings.share,
    }
}

/// Returns Σ_t α H̄⁻¹ P_t Δ_t with H̄ = H_0 + Σ_t α (P_t − H_0), computed in f64, for updates Δ and precisions P, both
/// `[T, P]`. Shape `[1, P]`.
pub fn weighted(updates: &Tensor, precisions: &Tensor, settings: &Settings) -> Tensor {
    let over = [0i64];
    let precisions = precisions.to_kind(Kind::Double);
    let sum = |rows: Tensor| rows.sum_dim_intlist(over.as_slice(), true, Kind::Double) * settings.share;
    let joint = sum(&precisions - settings.prior) + settings.prior;
    (sum(&precisions * updates) / joint).to_kind(updates.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(share: f64, prior: f64) -> Settings {
        Settings { share, prior }
    }

    // Worked by hand with P = 1, 3 and 5, 5 and updates 2, 4 and -1, 1:
    // share 1/2, prior 0: (1*2 + 3*4) / (1 + 3) = 3.5; (5*-1 + 5*1) / 10 = 0.
    // share 1, prior 0.5: (2 + 12) / (0.5 + 0.5 + 2.5) = 4; 0.
    #[test]
    fn certain_models_count_more() {
        let updates = Tensor::from_slice(&[2.0, -1.0, 4.0, 1.0]).view([2, 2]);
        let precisions = Tensor::from_slice(&[1.0, 5.0, 3.0, 5.0]).view([2, 2]);
        assert_eq!(weighted(&updates, &precisions, &settings(0.5, 0.0)), Tensor::from_slice(&[3.5, 0.0]).view([1, 2]));
        assert_eq!(weighted(&updates, &precisions, &settings(1.0, 0.5)), Tensor::from_slice(&[4.0, 0.0]).view([1, 2]));
    }

    #[test]
    fn equally_certain_models_give_the_mean() {
        let updates = Tensor::from_slice(&[2.0, -1.0, 4.0, 1.0, 0.0, 3.0]).view([3, 2]);
        let merged = weighted(&updates, &updates.full_like(7.0), &settings(1.0 / 3.0, 2.0));
        let mean = updates.mean_dim([0i64].as_slice(), true, Kind::Double);
        assert!((merged - mean).abs().max().double_value(&[]) < 1e-12);
    }
}
