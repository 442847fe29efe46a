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

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use crate::base::random::some_of;
use crate::base::tensor::{ROOM_ELSEWHERE, guarded, host_f64, label_log_probabilities};
use crate::data::batches::{Batch, SampleSet, Samples, in_order};
use crate::data::order::replaced_labels;
use crate::data::{Split, SplitName};
use crate::laplace::jacobian_graph;
use crate::laplace::pass::{Maps, Pass};
use crate::model::Model;
use crate::model::network::UNRECORDED;
use crate::posterior::Posterior;
use crate::results::store::{self, Table};
use crate::run::SENSITIVITY;
use crate::session::Opened;
use crate::subspace::Subspace;

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
    Samples { set, indices }: Samples,
    bar: &ProgressBar,
) -> Result<Vec<Sensitivity>> {
    let Posterior::Gaussians { mean, std } = posterior else {
        bail!("sensitivities need a Gaussian posterior with independent columns: train with [method.ivon]")
    };
    model.check_classes()?;
    ensure!(
        model.network.records_layers() || subspace.layout().blocks.iter().all(|block| block.name == "head"),
        "sensitivities need what enters and leaves the trained layers, which {UNRECORDED} shows: train [subspace.last-layer]"
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

/// The sensitivity to each training image of a run.
pub struct Sensitivities {
    /// The training split.
    pub split: Split,
    /// The images that were trained on, the most sensitive first.
    pub found: Vec<Sensitivity>,
    /// The images whose label was replaced by `label_noise`.
    pub replaced: BTreeSet<u32>,
    /// The mean loss of these images.
    pub loss: f64,
    /// The mean leave-one-out estimate of their loss.
    pub loo_loss: f64,
}

impl Sensitivities {
    /// Computes the sensitivities to `samples` training images of a run, a random choice by its seed, or to all, and writes them into
    /// its folder.
    ///
    /// # Errors
    /// Fails if the run has no Gaussian posterior, if memory runs out, if a sensitivity is not finite, or if the file
    /// cannot be written.
    pub fn of_run(opened: &Opened, samples: Option<u32>) -> Result<Sensitivities> {
        let (experiment, session) = (&opened.experiment, &opened.session);
        let split = opened.split(SplitName::Train)?;
        let replaced = replaced_labels(experiment.seed, split.len(), experiment.data.label_noise);
        let replaced: BTreeSet<u32> = replaced.into_iter().collect();
        let trained_on = experiment.data.validation.holdout(experiment.seed, &split.labels).train;
        let most = samples.map_or(usize::MAX, |count| count as usize);
        let trained_on = some_of(&trained_on, most, experiment.seed);
        let set = SampleSet::new(split.clone(), session.device, session.settings.workers)?;
        let bar = crate::base::logging::bar(trained_on.len() as u64, "images");
        let posterior = &opened.stored()?.posterior;
        let images = Samples { set: &set, indices: &trained_on };
        let mut found = sensitivities(&session.model, session.subspace()?, posterior, images, &bar)?;
        bar.finish_and_clear();
        ensure!(
            found.iter().all(|one| one.sensitivity.is_finite()),
            "a sensitivity is not finite: try --precision f32"
        );
        let mean = |of: fn(&Sensitivity) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
        let (loss, loo_loss) = (mean(|one| one.loss), mean(|one| one.loo_loss));
        found.sort_by(|a, b| b.sensitivity.total_cmp(&a.sensitivity));
        let all = Sensitivities { split, found, replaced, loss, loo_loss };
        all.write(opened)?;
        Ok(all)
    }

    /// Returns how many of the most sensitive images have a replaced label, and of how many; `None` if no label was
    /// replaced. As many are looked at as the share `label_noise` says.
    pub fn caught(&self, label_noise: f64) -> Option<(usize, usize)> {
        let top = (self.found.len() as f64 * label_noise).round() as usize;
        let caught = || self.found[..top].iter().filter(|one| self.replaced.contains(&one.index)).count();
        (!self.replaced.is_empty()).then(|| (caught(), top))
    }

    fn write(&self, opened: &Opened) -> Result<()> {
        let path = opened.run.path().join(SENSITIVITY);
        let columns =
            ["index", "label", "class", "sensitivity", "variance", "error", "loss", "loo_loss", "label_replaced"];
        let mut table = Table::new(columns);
        for one in &self.found {
            let class = opened.session.classes[one.label as usize].clone();
            let numbers = [one.sensitivity, one.variance, one.error, one.loss, one.loo_loss].map(|x| x.to_string());
            let mut cells = vec![one.index.to_string(), one.label.to_string(), class];
            cells.extend(numbers);
            cells.push(self.replaced.contains(&one.index).to_string());
            table.rows.push(cells);
        }
        store::write(&path, &table)?;
        tracing::info!("numbers: {}", path.display());
        Ok(())
    }
}
