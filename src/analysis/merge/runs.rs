//! Merges the posteriors of finished runs. The squared gradients of single images at labels drawn from the model estimate the
//! diagonal of the Fisher matrix (the baseline "SG" of Daheim et al. 2024).

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use super::{By, Contribution, Settings, is_by_column, merge};
use crate::base::random::{Purpose, some_of, stream};
use crate::base::small::Usage;
use crate::base::tensor::{ROOM_ELSEWHERE, guarded, host_f64, label_log_probabilities};
use crate::data::SplitName;
use crate::data::batches::{SampleSet, Samples, in_order};
use crate::model::Model;
use crate::model::families::encoders::{Features, POOLER};
use crate::model::network::Graph;
use crate::posterior::Posterior;
use crate::run::Cost;
use crate::session::Opened;
use crate::subspace::{Block, Combined, Shape, Space, Subspace};

/// The way in which runs are merged.
pub struct Merge {
    pub by: By,
    pub space: Space,
    /// The share of each model; 1 over their number by default.
    pub share: Option<f64>,
    /// The precision H_0 of the checkpoint's own weights.
    pub prior: f64,
    /// The number of training images per run for squared gradients.
    pub images: usize,
}

/// The model that runs were merged into.
pub struct Merged {
    pub model: Combined,
    /// The way of merging, and the runs after the first, as results name them.
    pub predictive: String,
    /// The cost of training all of them.
    pub cost: Option<Cost>,
}

impl Merge {
    /// Merges all particles of the opened run and of those that `open` opens, one at a time. `names` has the names that all
    /// of them were given, the opened one first.
    ///
    /// # Errors
    /// Fails if a run cannot be opened, if two runs do not fit together, or if memory runs out.
    pub fn runs(&self, opened: &Opened, names: &[String], open: impl Fn(&str) -> Result<Opened>) -> Result<Merged> {
        let mut runs = vec![self.contribution(opened)?];
        // Factors of particles that started elsewhere are written in different bases.
        let start = (self.space == Space::Factors).then(|| factors_at_start(opened, 0)).transpose()?;
        start.iter().try_for_each(|start| starts_at(opened, start))?;
        let (mut others, mut cost) = (Vec::new(), opened.cost());
        for name in &names[1..] {
            let other = open(name)?;
            let same = other.experiment.checkpoint.sha256()? == opened.experiment.checkpoint.sha256()?;
            ensure!(same, "{name}: fine-tuned from another checkpoint than {}: their updates do not add up", names[0]);
            reads_alike(opened, &other, name)?;
            classes_equal(opened, &other, name)?;
            start.iter().try_for_each(|start| starts_at(&other, start))?;
            runs.push(self.contribution(&other)?);
            others.push(other.run.id());
            cost = cost.zip(other.cost()).map(|(so_far, own)| so_far.and(own));
        }
        let models: i64 = runs.iter().map(|run| run.updates.size()[0]).sum();
        let entrywise = is_by_column(opened.session.subspace()?, self.space);
        let settings = Settings {
            share: self.share.unwrap_or(1.0 / models as f64),
            // The products B A do not include the checkpoint's weights, so no precision of these applies to them.
            prior: if entrywise { self.prior } else { 0.0 },
        };
        Ok(Merged { model: merge(runs, &settings)?, predictive: self.label(&others), cost })
    }

    /// Returns the data of an opened run that merging needs.
    fn contribution(&self, opened: &Opened) -> Result<Contribution> {
        let posterior = &opened.stored()?.posterior;
        ensure!(
            posterior.weights().is_none(),
            "{}: its draws have weights, and a merge gives every model the same share: average them by `bella soup {0}`",
            opened.run.id()
        );
        let subspace = opened.session.subspace()?;
        let variances = match self.by {
            By::Mean => None,
            By::Posterior => {
                let Posterior::Gaussians { std, .. } = posterior else {
                    bail!(Usage(format!(
                        "{}: its posterior is without variances of single parameters: train with [method.ivon], or merge --by \
                         squared-gradients or --by mean",
                        opened.run.id()
                    )))
                };
                Some(std.square())
            }
            By::SquaredGradients => Some((fisher(opened, self.images)? + self.prior).reciprocal()),
        };
        Contribution::new(subspace, posterior.theta(), variances, self.space)
    }

    /// Returns the cell in results: the way of merging, and the runs after the first.
    fn label(&self, others: &[String]) -> String {
        let (mut label, prior) = (format!("merge-{}", self.by), self.prior);
        if self.space == Space::Factors {
            label += "-factors";
        }
        if let Some(share) = self.share {
            label += &format!(" share {share}");
        }
        if self.by != By::Mean && prior != 0.0 {
            label += &format!(" prior {prior}");
        }
        if self.by == By::SquaredGradients {
            label += &format!(" images {}", self.images);
        }
        format!("{label} with {}", others.join(", "))
    }
}

/// Returns the squared gradients of every particle, `[n, P]`, scaled to a sum over all training images.
fn fisher(opened: &Opened, count: usize) -> Result<Tensor> {
    let (experiment, session) = (&opened.experiment, &opened.session);
    session.model.check_classes().context("--by squared-gradients")?;
    let split = opened.split(SplitName::Train)?;
    let indices = experiment.data.validation.holdout(experiment.seed, &split.labels).train;
    let all = indices.len();
    let indices = some_of(&indices, count, experiment.seed);
    let set = SampleSet::new(split, session.device, session.settings.workers)?;
    let theta = opened.stored()?.posterior.theta();
    let bar = crate::base::logging::bar((theta.size()[0] as usize * indices.len()) as u64, "squared gradients");
    let images = Samples { set: &set, indices: &indices };
    let of = |particle: i64| {
        let row = theta.narrow(0, particle, 1);
        squared_gradients(&session.model, session.subspace()?, &row, images, &bar, experiment.seed)
    };
    let rows = (0..theta.size()[0]).map(of).collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    Ok((Tensor::stack(&rows, 0) * (all as f64 / indices.len() as f64)).to_kind(Kind::Double))
}

/// Checks that both runs read texts by the same features.
fn reads_alike(first: &Opened, other: &Opened, name: &str) -> Result<()> {
    let features = |opened: &Opened| {
        // By default the layer in front of a classifier is read where the weights have it.
        let has_pooler = opened.session.model.base.get(&format!("{POOLER}.weight")).is_some();
        let usual = if has_pooler { Features::Pooled } else { Features::First };
        opened.experiment.checkpoint.features.unwrap_or(usual)
    };
    let is_unit = |opened: &Opened| opened.experiment.checkpoint.unit_features;
    let keys = [("features", features(first) == features(other)), ("unit_features", is_unit(first) == is_unit(other))];
    let differs = keys.into_iter().find(|(_, is_same)| !is_same).map(|(key, _)| key);
    ensure!(
        differs.is_none(),
        "{name}: trained with another checkpoint.{} than {}: one network cannot read texts in both ways: merge runs that agree in it",
        differs.unwrap_or_default(),
        first.run.id()
    );
    Ok(())
}

/// Checks that trained heads have a row for the same classes. Frozen heads are not merged: the first run's stays.
fn classes_equal(first: &Opened, other: &Opened, name: &str) -> Result<()> {
    if first.session.subspace()?.layout().outputs_of_head().is_none() {
        return Ok(());
    }
    let (own, others) = (&first.session.classes, &other.session.classes);
    let differs = own.iter().zip(others).position(|(own, other)| own != other);
    if let Some(place) = differs.or((own.len() != others.len()).then_some(own.len().min(others.len()))) {
        let class = |classes: &[String]| classes.get(place).map_or("none".to_string(), |class| format!("`{class}`"));
        bail!(
            "{name}: class {place} is {}, and {} in {}: trained heads are merged row by row: merge runs that were trained with the same \
             classes in the same order",
            class(others),
            class(own),
            first.run.id()
        );
    }
    Ok(())
}

/// Checks that the factors of all particles of a run started from these.
fn starts_at(opened: &Opened, start: &Tensor) -> Result<()> {
    let run = opened.run.id();
    ensure!(
        opened.session.subspace()?.directed().is_empty(),
        Usage(format!(
            "{run}: --space factors needs particles that started from the same A, and init = \"eva\" takes a run's A from its own training \
             images: leave --space out"
        ))
    );
    for particle in 0..opened.stored()?.posterior.theta().size()[0] as u64 {
        let own = factors_at_start(opened, particle)?;
        ensure!(
            own.size() == start.size() && own.equal(start),
            Usage(format!(
                "{run}: --space factors needs particles that started from the same A (runs of one particle with equal seeds): leave --space out"
            ))
        );
    }
    Ok(())
}

/// Returns the columns of the factors with which a particle started. Entries of weights have one meaning wherever they started.
fn factors_at_start(opened: &Opened, particle: u64) -> Result<Tensor> {
    let subspace = opened.session.subspace()?;
    let start = subspace.initial(opened.experiment.seed, particle)?;
    if subspace.scaled_by().is_some() {
        return Ok(start);
    }
    let factors = subspace.layout().blocks.iter().filter(|block| block.shape != Shape::Dense);
    let columns = factors.map(|Block { columns, .. }| start.narrow(0, columns.start, columns.end - columns.start));
    Ok(Tensor::cat(&std::iter::once(start.narrow(0, 0, 0)).chain(columns).collect::<Vec<_>>(), 0))
}

/// Returns Σ_n (∂ log p(y_n | x_n) / ∂θ)² over the images `indices`, with y_n ~ p(· | x_n), for `theta: [1, P]`. Each
/// image is passed through its own copy of the particle, so that one backward pass yields all gradients. Shape `[P]`.
///
/// # Errors
/// Fails if some gradients are not finite.
pub fn squared_gradients(
    model: &Model,
    subspace: &dyn Subspace,
    theta: &Tensor,
    Samples { set, indices }: Samples,
    bar: &ProgressBar,
    seed: u64,
) -> Result<Tensor> {
    use rand::RngExt;
    let layout = subspace.layout();
    let parameters = layout.parameters();
    let mut sum = Tensor::zeros([parameters], (Kind::Double, theta.device()));
    let mut rng = stream(seed, Purpose::Posterior, &[1]);
    let at_once = layout.copies_at_once();
    let graph = Graph::Weights { trained: layout, recompute: false, own_samples: true, twice: false };
    // The memory of the sum and of the copies.
    let fixed = 8 * parameters as u64 + layout.copies_bytes();
    let chunker = model.plan("squared gradients", graph, (at_once, fixed), ROOM_ELSEWHERE)?;
    for batch in set.batches(in_order(indices, chunker.cut().images)) {
        let batch = batch?;
        let count = batch.labels.size()[0];
        let uniform: Vec<f64> = (0..count).map(|_| rng.random::<f64>()).collect();
        guarded("squared gradients", ROOM_ELSEWHERE, || {
            let images = model.preparation.prepare(&batch.samples.of_particles(count));
            let leaves = layout.leaves(&theta.expand([count, -1], false), model.kind, true);
            let logits = model.logits(&subspace.weights(&model.base, &leaves), &images);
            let labels = drawn(&logits.detach(), &Tensor::from_slice(&uniform));
            let loss = -label_log_probabilities(&logits, &labels, logits.kind()).sum(logits.kind());
            ensure!(loss.requires_grad(), "the loss does not depend on any trainable parameter");
            let rows = Tensor::zeros([count, parameters], (Kind::Float, theta.device()));
            layout.gather(&Tensor::f_run_backward(&[loss], &leaves, false, false)?, &rows);
            sum += rows.square().sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
            Ok(())
        })?;
        bar.inc(count as u64);
    }
    ensure!(host_f64(&sum.sum(Kind::Double))?[0].is_finite(), "squared gradients: some are not finite");
    Ok(sum)
}

/// Draws labels `[k, 1]` from logits `[k, 1, C]`: the first class at which the summed probability exceeds
/// `uniform: [k]`.
fn drawn(logits: &Tensor, uniform: &Tensor) -> Tensor {
    let classes = logits.size()[2];
    let below = logits.softmax(-1, Kind::Double).cumsum(-1, Kind::Double);
    let passed = below.le_tensor(&uniform.to_device(logits.device()).view([-1, 1, 1]));
    passed.sum_dim_intlist([2i64].as_slice(), false, Kind::Int64).clamp_max(classes - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_from_the_model() {
        let logits = Tensor::from_slice(&[0.2f64, 0.5, 0.3]).log().view([1, 1, 3]).expand([5, 1, 3], false);
        let found = drawn(&logits, &Tensor::from_slice(&[0.0, 0.19, 0.21, 0.69, 0.71]));
        assert_eq!(found.view([-1]), Tensor::from_slice(&[0i64, 0, 1, 1, 2]));
    }
}
