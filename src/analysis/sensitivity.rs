//! Estimates how the removal of one training image would change its own prediction, from a Gaussian posterior and
//! without training again (the memory-perturbation equation, Nickl et al. 2023, arXiv 2310.19273; IVON, section 4.4 and
//! appendix C.6).
//!
//! | symbol | here |
//! |---|---|
//! | f_i | logits of image i at the mean m |
//! | J_i, Σ | Jacobian of f_i with respect to a row of theta; its variances σ² on the diagonal |
//! | V_i = J_i Σ J_iᵀ, the prediction variance | `variance` is its trace |
//! | e_i = softmax(f_i) − onehot(y_i), the prediction error | `error` is its norm |
//! | f_i + V_i e_i, the logits without image i | `loo_loss` is their cross-entropy |
//! | ‖V_i e_i‖₂, the sensitivity | `sensitivity` |

mod run;

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use crate::base::tensor::{ROOM_ELSEWHERE, guarded, host_f64, label_log_probabilities};
use crate::data::batches::{Batch, SampleSet, in_order};
use crate::laplace::jacobian_graph;
use crate::laplace::pass::{Maps, Pass};
use crate::model::Model;
use crate::posterior::Posterior;
use crate::subspace::Subspace;

pub use run::Sensitivities;

/// The measures of one training image, as means over the particles.
#[derive(Clone, Copy, Debug)]
pub struct Sensitivity {
    /// The index of the image in the training split.
    pub index: u32,
    pub label: u32,
    pub loss: f64,
    pub loo_loss: f64,
    pub sensitivity: f64,
    pub variance: f64,
    pub error: f64,
}

/// The number of measures of an image, besides its index and label.
const MEASURES: i64 = 5;

/// Returns the sensitivities of the images `indices`, in this order.
///
/// # Errors
/// Fails if the posterior is not made of Gaussians with independent columns, the Jacobians of the subspace would be too
/// large (full), or an image cannot be read.
pub fn sensitivities(
    model: &Model,
    subspace: &dyn Subspace,
    posterior: &Posterior,
    (set, indices): (&SampleSet, &[u32]),
    bar: &ProgressBar,
) -> Result<Vec<Sensitivity>> {
    let Posterior::Gaussians { mean, std } = posterior else {
        bail!("sensitivities need a Gaussian posterior with independent columns: train with [method.ivon]")
    };
    model.check_classes()?;
    ensure!(
        model.network.records_layers() || subspace.layout().blocks.iter().all(|block| block.name == "head"),
        "sensitivities need what enters and leaves the trained layers, which a module (checkpoint.kind = \"module\") does \
         not show: train [subspace.last-layer]"
    );
    let maps = Maps::all(subspace).context("sensitivities need per-image Jacobians")?;
    let gaussians = Gaussians { model, subspace, maps, mean, std };
    let graph = jacobian_graph(subspace);
    let sizes = (batch_size(model.head.classes(), gaussians.maps.parameters()), 2 * JACOBIAN_BYTES as u64);
    let chunker = model.plan("sensitivity", graph, sizes, ROOM_ELSEWHERE)?;
    let batches = in_order(indices, chunker.cut().images);
    let mut found = Vec::new();
    for (batch_indices, batch) in batches.iter().zip(set.batches(batches.clone())) {
        let mean = gaussians.measures(&batch?)?;
        for (index, row) in batch_indices.iter().zip(mean.chunks_exact(MEASURES as usize)) {
            let &[loss, loo_loss, sensitivity, variance, error] = row else { unreachable!("rows of five") };
            let label = set.split.labels[*index as usize];
            found.push(Sensitivity { index: *index, label, loss, loo_loss, sensitivity, variance, error });
        }
        bar.inc(batch_indices.len() as u64);
    }
    Ok(found)
}

/// Gaussians over theta with independent columns, and the network that they are of.
struct Gaussians<'a> {
    model: &'a Model,
    subspace: &'a dyn Subspace,
    maps: Maps,
    /// The means and standard deviations, `[n, P]`.
    mean: &'a Tensor,
    std: &'a Tensor,
}

impl Gaussians<'_> {
    /// Returns the five measures of each image of a batch, as means over the particles.
    fn measures(&self, batch: &Batch) -> Result<Vec<f64>> {
        let images = self.model.preparation.prepare(&batch.samples.for_all());
        guarded("sensitivity", ROOM_ELSEWHERE, || {
            let of = |particle: i64| {
                let theta = self.mean.narrow(0, particle, 1);
                let pass = Pass::new(self.model, self.subspace, &self.maps, &theta, &images)?;
                measure(&pass, &self.maps, &self.std.get(particle), &batch.labels)
            };
            let all = (0..self.mean.size()[0]).map(of).collect::<Result<Vec<Tensor>>>()?;
            host_f64(&Tensor::stack(&all, 0).mean_dim([0i64].as_slice(), false, Kind::Double))
        })
    }
}

/// The memory that the Jacobians of a batch may take, in bytes.
const JACOBIAN_BYTES: i64 = 256 << 20;

/// Returns the number of images whose Jacobians fit into [`JACOBIAN_BYTES`].
fn batch_size(classes: i64, parameters: i64) -> usize {
    (JACOBIAN_BYTES / (4 * classes * parameters)).clamp(1, 256) as usize
}

/// Returns the loss, leave-one-out loss, sensitivity, variance and error of each image, `[B, 5]`, with `std: [P]` and
/// `labels: [B]`.
fn measure(pass: &Pass, maps: &Maps, std: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let logits = pass.logits.detach().to_kind(Kind::Double);
    let (batch, classes) = logits.size2()?;
    let mut covariance = Tensor::zeros([batch, classes, classes], (Kind::Double, logits.device()));
    let mut start = maps.columns.start;
    for (map, jacobian) in maps.maps.iter().zip(pass.jacobians(|_| true)?) {
        let jacobian = jacobian.view([batch, classes, map.parameters()]);
        let scaled = jacobian * std.narrow(0, start, map.parameters());
        covariance += scaled.bmm(&scaled.transpose(1, 2)).to_kind(Kind::Double);
        start += map.parameters();
    }
    let error = logits.softmax(-1, Kind::Double) - labels.onehot(classes).to_kind(Kind::Double);
    let change = covariance.bmm(&error.unsqueeze(2)).squeeze_dim(2);
    let loss = |logits: &Tensor| -label_log_probabilities(logits, labels, Kind::Double);
    let norm = |rows: &Tensor| rows.norm_scalaropt_dim(2.0, [1i64].as_slice(), false);
    let trace = covariance.diagonal(0, 1, 2).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
    Ok(Tensor::stack(&[loss(&logits), loss(&(&logits + &change)), norm(&change), trace, norm(&error)], 1))
}
