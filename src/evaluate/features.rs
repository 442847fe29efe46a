//! The scores of samples by their features: each member has detectors of its own, fitted once on images of the run, and a sample's score is
//! the mean over members, by their weights.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor, no_grad};

use super::Evaluation;
use crate::base::tensor::{ROOM_TO_PREDICT, guarded};
use crate::data::batches::SampleSet;
use crate::machine::memory::Chunker;
use crate::metrics::ood::features::{Classifier, Detector, Entry, Features, Sizes};

/// The scores of one set, `[N]`, by each entry.
pub(super) type Scored = Vec<Vec<f64>>;

impl<'a> Evaluation<'a> {
    /// Returns the scores of the samples of each of `sets` by detectors that are fitted on the features of `fitted_on`.
    ///
    /// # Errors
    /// Fails for members without features, if a detector cannot be fitted, if a score is not finite, or if memory does not suffice.
    pub(super) fn feature_scores(
        &self,
        by: &[&'static Entry],
        fitted_on: &SampleSet,
        sets: &[&SampleSet],
    ) -> Result<Vec<Scored>> {
        let passes = self.passes(by, fitted_on)?;
        let images = fitted_on.samples() + sets.iter().map(|set| set.samples()).sum::<usize>();
        let bar = crate::base::logging::bar((images * self.predictor.members()) as u64, "features");
        let zeros = |set: &&SampleSet| vec![vec![0.0; set.samples()]; by.len()];
        let mut scores: Vec<Scored> = sets.iter().map(zeros).collect();
        for (member, share) in self.predictor.shares().into_iter().enumerate() {
            let detectors = passes.fitted(member, fitted_on)?;
            bar.inc(fitted_on.samples() as u64);
            for (set, sums) in sets.iter().zip(&mut scores) {
                passes.add(member, set, &detectors, share, sums)?;
                bar.inc(set.samples() as u64);
            }
        }
        bar.finish_and_clear();
        for (key, scores) in scores.iter().flat_map(|of_set| by.iter().map(|entry| entry.key).zip(of_set)) {
            let odd = scores.iter().position(|score| !score.is_finite());
            ensure!(odd.is_none(), "--ood-by {key}: a score is not finite: leave {key} out for this network");
        }
        Ok(scores)
    }

    /// Plans the passes of all members beside what detectors keep.
    fn passes<'p>(&'p self, by: &'p [&'static Entry], fitted_on: &SampleSet) -> Result<Passes<'p, 'a>> {
        let model = self.predictor.model;
        model.check_classes()?;
        let size = model.head.weight.size();
        let sizes = Sizes {
            images: fitted_on.samples() as u64,
            width: size[1] as u64,
            classes: size[0] as u64,
            batch: self.batch_size as u64,
        };
        let features = 4 * sizes.images * sizes.width;
        let kept: u64 = by.iter().map(|entry| (entry.kept)(sizes)).sum();
        let chunker = self.predictor.plan_features(self.batch_size, features + kept)?;
        Ok(Passes { evaluation: self, by, chunker })
    }
}

/// The passes of single members.
struct Passes<'p, 'a> {
    evaluation: &'p Evaluation<'a>,
    by: &'p [&'static Entry],
    chunker: Chunker,
}

impl Passes<'_, '_> {
    /// Hands what the classifier sees of the samples of a set to `each`, a batch `[B, d]` at a time.
    fn each(&self, member: usize, set: &SampleSet, each: &mut dyn FnMut(Tensor) -> Result<()>) -> Result<()> {
        let predictor = &self.evaluation.predictor;
        predictor.each_features(member, &self.chunker, set, self.evaluation.batch_size, &mut |features| {
            each(predictor.model.head.inputs(&features))
        })
    }

    /// Returns the detectors of one member.
    fn fitted(&self, member: usize, on: &SampleSet) -> Result<Vec<Box<dyn Detector>>> {
        let model = self.evaluation.predictor.model;
        let values = Tensor::zeros([on.samples() as i64, model.head.weight.size()[1]], (Kind::Float, model.device));
        let mut start = 0;
        self.each(member, on, &mut |features| {
            let rows = features.size()[0];
            values.narrow(0, start, rows).copy_(&features);
            start += rows;
            Ok(())
        })?;
        let labels: Vec<i64> = on.split.labels.iter().map(|label| i64::from(*label)).collect();
        let labels = Tensor::from_slice(&labels).to_device(model.device);
        let member_weights = self.evaluation.predictor.weights(member..member + 1)?;
        let (weight, bias) = no_grad(|| model.head.classifier(&member_weights));
        // Of some classes alone, the logits are narrowed as those of predictions are; features and their classes stay.
        let [weight, bias] = [weight, bias].map(|rows| self.evaluation.predictor.narrowed_rows(rows));
        let features = Features { values, labels, classifier: Classifier { weight, bias } };
        let fit = |entry: &&Entry| guarded(entry.key, ROOM_TO_PREDICT, || no_grad(|| (entry.fit)(&features)));
        self.by.iter().map(fit).collect()
    }

    /// Adds a member's `share` of the scores of all samples of a set.
    fn add(
        &self,
        member: usize,
        set: &SampleSet,
        detectors: &[Box<dyn Detector>],
        share: f64,
        sums: &mut Scored,
    ) -> Result<()> {
        let mut start = 0;
        self.each(member, set, &mut |features| {
            let features = features.to_kind(Kind::Double);
            let count = features.size()[0] as usize;
            for (detector, sums) in detectors.iter().zip(&mut *sums) {
                let scores = guarded("features", ROOM_TO_PREDICT, || Ok(no_grad(|| detector.scores(&features))))?;
                let scores = Vec::<f64>::try_from(scores.to_device(tch::Device::Cpu))?;
                sums[start..start + count].iter_mut().zip(scores).for_each(|(sum, score)| *sum += share * score);
            }
            start += count;
            Ok(())
        })
    }
}
