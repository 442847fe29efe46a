//! The target of an attack: the loss of m members as one classifier, differentiated with respect to the pixels. The
//! members are fixed: the same ones give the gradient and the reported predictions.

use std::ops::Range;

use anyhow::{Result, bail, ensure};
use tch::{Kind, Tensor, no_grad, with_grad};

use super::{Classifier, Goal, Goals, Resolution, Scored, Slope, Target, one_by_one};
use crate::base::small::Usage;
use crate::base::tensor::{label_log_probabilities, mixture_log_probabilities};
use crate::data::fields::{Fields, PIXELS};
use crate::machine::memory::Chunker;
use crate::machine::workers::{self, Load};
use crate::model::Input;
use crate::model::network::Graph;
use crate::predict::{Predictor, in_parts};

/// The size of an attack.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub budgets: usize,
    /// The number of images of a batch.
    pub images: usize,
    /// The number of images whose logits are kept.
    pub samples: usize,
    /// The numbers in f64 that the attack keeps for each number of a pixel.
    pub kept: u64,
}

/// The refusal of predictions that have no weights.
pub const LINEARISED: &str = "linearised predictions cannot be attacked: attack drawn weights (bella eval --predictive sampled) or the mode \
                              (--draws 0)";

/// The members under attack.
pub struct Victim<'p, 'a> {
    predictor: &'p Predictor<'a>,
    target: Target,
    resolution: Resolution,
    /// The split into members and images for differentiation.
    attacking: Chunker,
    /// The split into members and images for prediction.
    predicting: Chunker,
}

impl<'p, 'a> Victim<'p, 'a> {
    /// Plans an attack.
    ///
    /// # Errors
    /// Fails if the target member does not exist, if predictions are linearised, or if memory does not suffice for one
    /// member and one image.
    pub fn new(
        predictor: &'p Predictor<'a>,
        target: Target,
        resolution: Resolution,
        Work { budgets, images, samples, kept }: Work,
    ) -> Result<Victim<'p, 'a>> {
        ensure!(predictor.has_weights(), Usage(LINEARISED.into()));
        target.check(predictor.members())?;
        let numbers = (predictor.members() * samples * budgets * predictor.classes()) as u64;
        let logits = 2 * numbers * predictor.kind().elt_size_in_bytes() as u64;
        // The fixed memory also holds the moved and the clean pixels of a whole batch.
        let side = predictor.model.images()?.size() as u64;
        let fixed = logits + (budgets as u64 + 1) * images as u64 * 3 * side * side * 4;
        // A graph is planned with two f32 for each budget, so that each f64 counts as a budget.
        let graph = Graph::Samples { budgets: budgets + kept as usize };
        predictor.decide_keeping(graph, images, fixed);
        let attacking = predictor.plan_pass("attack", graph, images, fixed)?;
        let predicting = predictor.plan_predictions(images, fixed)?;
        Ok(Victim { predictor, target, resolution, attacking, predicting })
    }

    /// Converts stored images `[B, 3, h, w]` to the pixels in [0, 1] that the attack moves.
    ///
    /// # Errors
    /// Fails if the network takes no images.
    pub fn pixels(&self, stored: &Fields) -> Result<Tensor> {
        let images = self.predictor.model.images()?;
        let pixels = images.unit(stored.get(PIXELS));
        Ok(match self.resolution {
            Resolution::Model => images.resize(&pixels),
            Resolution::Native => pixels,
        })
    }

    /// Returns the split into members and images for differentiation.
    pub fn chunker(&self) -> &Chunker {
        &self.attacking
    }

    /// Returns the logits `[m, B, C]` of all members for pixels `[B, 3, h, w]`, split as for predictions of clean
    /// images.
    ///
    /// # Errors
    /// Fails if [`Predictor::logits`] fails.
    pub fn logits(&self, pixels: &Tensor) -> Result<Tensor> {
        self.predictor.logits(&self.predicting, &all_see(pixels))
    }

    /// Returns the value of each image of a function of the logits `[m, B, C]`, the gradient of their sum at pixels `[B, 3, h, w]`,
    /// and the logits. What an image gets does not depend on the other images, so the caller may split the batch as
    /// [`chunker`](Self::chunker) says.
    ///
    /// Members in several chunks take two passes, so only one chunk needs memory at a time.
    fn pulled(&self, pixels: &Tensor, values: &dyn Fn(&Tensor) -> Tensor) -> Result<(Tensor, Slope)> {
        let members = self.attacking.cut().members;
        let pixels = pixels.detach().set_requires_grad(true);
        let all = 0..self.predictor.members();
        if members >= all.len() {
            return self.pulled_at_once(&pixels, values);
        }
        let parts =
            in_parts(all.clone(), members).map(|some| no_grad(|| self.predictor.forward(some, &all_see(&pixels))));
        let logits = Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 0).set_requires_grad(true);
        let losses = values(&logits);
        let by_logits = Tensor::f_run_backward(&[losses.sum(losses.kind())], &[&logits], false, false)?.remove(0);
        let mut total = pixels.zeros_like().detach();
        for some in in_parts(all, members) {
            let by_logits = by_logits.narrow(0, some.start as i64, some.len() as i64);
            let root = (self.predictor.forward(some, &all_see(&pixels))? * by_logits).sum(logits.kind());
            total += Tensor::f_run_backward(&[root], &[&pixels], false, false)?.remove(0);
        }
        Ok((logits.detach(), Slope { losses: losses.detach(), gradient: finite(total)? }))
    }

    /// Returns the same with the graph of all members in memory, made and followed back by threads for some images each.
    fn pulled_at_once(&self, pixels: &Tensor, values: &dyn Fn(&Tensor) -> Tensor) -> Result<(Tensor, Slope)> {
        let (members, model) = (self.predictor.members(), self.predictor.model);
        let weights = self.predictor.weights(0..members)?;
        let images = pixels.size()[0] as usize;
        let parts = model.pieces_of_samples(members, images).unwrap_or_else(|| std::iter::once(0..images).collect());
        let of = |t: &Tensor, axis: i64, part: &Range<usize>| t.narrow(axis, part.start as i64, part.len() as i64);
        let leaves: Vec<Tensor> =
            parts.iter().map(|part| of(pixels, 0, part).detach().set_requires_grad(true)).collect();
        let forward = |number: usize| with_grad(|| self.predictor.logits_by(&weights, &all_see(&leaves[number])));
        // SAFETY: each piece has pixels and a graph of its own, and reads the weights through a network that divides.
        let graphs = unsafe { in_threads(Load { pieces: parts.len(), particles: members }, &forward)? };
        let logits = Tensor::cat(&graphs.iter().map(Tensor::detach).collect::<Vec<_>>(), 1).set_requires_grad(true);
        let losses = values(&logits);
        let by_logits = Tensor::f_run_backward(&[losses.sum(losses.kind())], &[&logits], false, false)?.remove(0);
        let backward = |number: usize| {
            let own = with_grad(|| (&graphs[number] * of(&by_logits, 1, &parts[number])).sum(logits.kind()));
            Ok(Tensor::f_run_backward(&[own], &[&leaves[number]], false, false)?.remove(0))
        };
        // SAFETY: as above.
        let gradients = unsafe { in_threads(Load { pieces: parts.len(), particles: members }, &backward)? };
        let gradient = finite(Tensor::cat(&gradients, 0))?;
        Ok((logits.detach(), Slope { losses: losses.detach(), gradient }))
    }

    /// Returns the loss of each image, `[B]`, from logits `[m, B, C]` and labels `[B]`.
    fn losses(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        target_losses(self.target, self.predictor.averaging_weights(), logits, labels)
    }
}

impl Classifier for Victim<'_, '_> {
    fn loss(&self, pixels: &Tensor, labels: &Tensor) -> Result<Slope> {
        Ok(self.pulled(pixels, &|logits| self.losses(logits, labels))?.1)
    }

    fn scores(&self, pixels: &Tensor) -> Result<Tensor> {
        no_grad(|| Ok(target_scores(self.target, self.predictor.averaging_weights(), &self.logits(pixels)?)))
    }

    fn climb(&self, pixels: &Tensor, goal: Goal) -> Result<Scored> {
        let scores = |logits: &Tensor| target_scores(self.target, self.predictor.averaging_weights(), logits);
        let (logits, slope) = self.pulled(pixels, &|logits| goal(&scores(logits)))?;
        Ok(Scored { scores: scores(&logits), slope })
    }

    /// One pass forward serves all goals, where the members go through the network together.
    fn climbs(&self, pixels: &Tensor, goals: Goals, each: &mut dyn FnMut(Slope)) -> Result<()> {
        let all = 0..self.predictor.members();
        if self.attacking.cut().members < all.len() {
            return one_by_one(self, pixels, goals, each);
        }
        let pixels = pixels.detach().set_requires_grad(true);
        let logits = self.predictor.forward(all, &all_see(&pixels))?;
        let values = goals(&target_scores(self.target, self.predictor.averaging_weights(), &logits));
        for losses in &values {
            let root = losses.sum(losses.kind());
            let gradient = finite(Tensor::f_run_backward(&[root], &[&pixels], true, false)?.remove(0))?;
            each(Slope { losses: losses.detach(), gradient });
        }
        Ok(())
    }
}

/// Returns the scores of a target's prediction, `[B, C]`, from logits `[m, B, C]` and the weights of the members: log p̄, the mean
/// logits, or the logits of one member. [`Target::MeanLoss`] predicts no class, so that attacks which ask for scores refuse it.
fn target_scores(target: Target, weights: Option<&[f64]>, logits: &Tensor) -> Tensor {
    let kind = logits.kind();
    let weights = weights.map(|weights| {
        let weights = Tensor::from_slice(weights).to_device(logits.device());
        (&weights / weights.sum(Kind::Double)).to_kind(kind).view([-1, 1, 1])
    });
    let equal = || Tensor::full([1], 1.0 / logits.size()[0] as f64, (kind, logits.device()));
    match target {
        Target::MeanProbability => {
            let weights = weights.unwrap_or_else(equal).log();
            (logits.log_softmax(-1, kind) + weights).logsumexp([0i64].as_slice(), false)
        }
        Target::MeanLogit | Target::MeanLoss => {
            (logits * weights.unwrap_or_else(equal)).sum_dim_intlist([0i64].as_slice(), false, kind)
        }
        Target::Member(member) => logits.get(member as i64),
    }
}

/// Returns a target's loss of each image, `[B]`, from logits `[m, B, C]`, labels `[B]` and the weights of the members
/// (`None`: all weigh the same).
fn target_losses(target: Target, weights: Option<&[f64]>, logits: &Tensor, labels: &Tensor) -> Tensor {
    let kind = logits.kind();
    // `[m, 1, …]` with the sum 1.
    let weights = |dimensions: usize| {
        let weights = Tensor::from_slice(weights?).to_device(logits.device());
        let weights = &weights / weights.sum(Kind::Double);
        let mut shape = vec![1; dimensions];
        shape[0] = -1;
        Some(weights.to_kind(kind).view(shape.as_slice()))
    };
    let mean = |values: &Tensor, keep: bool| match weights(values.dim()) {
        None => values.mean_dim([0i64].as_slice(), keep, kind),
        Some(weights) => (values * weights).sum_dim_intlist([0i64].as_slice(), keep, kind),
    };
    match target {
        Target::MeanProbability => -match weights(2) {
            None => mixture_log_probabilities(logits, labels, kind),
            Some(weights) => {
                (label_log_probabilities(logits, labels, kind) + weights.log()).logsumexp([0i64].as_slice(), false)
            }
        },
        Target::MeanLogit => -label_log_probabilities(&mean(logits, true), labels, kind),
        Target::MeanLoss => -mean(&label_log_probabilities(logits, labels, kind), false),
        Target::Member(member) => -label_log_probabilities(&logits.get(member as i64), labels, kind),
    }
}

/// Returns what `work` gives for each part. One part alone is left to libtorch's own threads.
///
/// # Safety
/// As for [`workers::run`].
unsafe fn in_threads(load: Load, work: &dyn Fn(usize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    if load.pieces == 1 {
        return Ok(vec![work(0)?]);
    }
    // SAFETY: the caller vouches for `work`.
    unsafe { workers::each(load, work) }
}

/// Returns pixels `[B, 3, h, w]` as an input shared by all members.
pub fn all_see(pixels: &Tensor) -> Input {
    Input::Pixels(pixels.unsqueeze(0))
}

fn finite(gradient: Tensor) -> Result<Tensor> {
    if gradient.isfinite().all().int64_value(&[]) == 0 {
        bail!("the gradient on the pixels is not finite: try --precision f32");
    }
    Ok(gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    /// A member with twice the weight counts as two members.
    #[test]
    fn a_double_weight_is_a_member_twice() {
        tch::manual_seed(4);
        let logits = Tensor::randn([3, 5, 4], (Kind::Double, Device::Cpu));
        let labels = Tensor::from_slice(&[0i64, 3, 1, 2, 2]);
        let twice = Tensor::cat(&[&logits, &logits.narrow(0, 1, 1)], 0);
        for target in [Target::MeanProbability, Target::MeanLogit, Target::MeanLoss] {
            let weighted = target_losses(target, Some(&[0.25, 0.5, 0.25]), &logits, &labels);
            let expected = target_losses(target, None, &twice, &labels);
            assert!((weighted - expected).abs().max().double_value(&[]) < 1e-12, "{target}");
        }
        let other = target_losses(Target::MeanLoss, None, &logits, &labels);
        let weighted = target_losses(Target::MeanLoss, Some(&[0.25, 0.5, 0.25]), &logits, &labels);
        assert!((weighted - other).abs().max().double_value(&[]) > 1e-3);
    }
}
