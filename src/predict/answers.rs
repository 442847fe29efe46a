//! The likelihood of known answers under the members of a posterior.

use anyhow::Result;
use tch::{Kind, Tensor, no_grad};

use super::{Predictor, in_parts, joined};
use crate::base::tensor::host_f64;
use crate::data::Fields;
use crate::data::batches::{SampleSet, in_order};
use crate::machine::parallel::ProcessGroup;
use crate::model::Input;
use crate::model::head::token_log_probabilities;
use crate::model::network::Graph;

/// Returns the numbers of all processes, in the order of ranks.
fn all_totals(group: &ProcessGroup, own: &[f64]) -> Result<Vec<f64>> {
    let bytes: Vec<u8> = own.iter().flat_map(|total| total.to_le_bytes()).collect();
    let all = group.gather_bytes(&bytes)?.concat();
    Ok(all.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
}

impl Predictor<'_> {
    /// Returns, in every process of `group`, the mean over some questions of −log p(answer | prompt), where the members'
    /// probabilities are averaged at every token, as they are when answers are written. Each process computes its share of the
    /// batches.
    ///
    /// # Errors
    /// Fails if images cannot be read, if the members have no weights, or if memory does not suffice, here or in another process.
    pub fn answer_loss(
        &self,
        group: &ProcessGroup,
        set: &SampleSet,
        indices: &[u32],
        batch_size: usize,
    ) -> Result<f64> {
        let batch_size = batch_size.min(indices.len()).max(1);
        self.decide_keeping(Graph::None, batch_size, 0);
        let chunker = self.plan_pass("validation", Graph::None, batch_size, 0)?;
        let mut totals = Vec::new();
        for batch in set.batches(group.own(&in_order(indices, batch_size))) {
            let batch = batch?;
            let (samples, targets) = (batch.samples.for_all(), batch.labels.unsqueeze(0));
            let found = chunker.run(|cut| {
                let parts = in_parts(0..targets.size()[1] as usize, cut.images).map(|part| {
                    let (start, length) = (part.start as i64, part.len() as i64);
                    let samples = samples.narrow(1, start, length);
                    self.token_scores(cut.members, &samples, &targets.narrow(1, start, length))
                });
                Ok(joined(parts.collect::<Result<Vec<_>>>()?, 1))
            })?;
            totals.push(-host_f64(&self.averaged(&found).sum(Kind::Double).reshape([1]))?[0]);
        }
        self.made.borrow_mut().clear();
        // Summed batch by batch, as one process does it.
        Ok(all_totals(group, &totals)?.iter().sum::<f64>() / indices.len().max(1) as f64)
    }

    /// Returns the log-probabilities of the tokens of answers under each member, `[m, B, A]`.
    fn token_scores(&self, at_once: usize, samples: &Fields, targets: &Tensor) -> Result<Tensor> {
        let members = in_parts(0..self.members(), at_once).map(|members| {
            let (weights, count) = (self.weights(members.clone())?, members.len() as i64);
            let found = no_grad(|| -> Result<Tensor> {
                let hidden = self.model.features_of(&weights, &Input::Stored(samples.again()))?;
                Ok(token_log_probabilities(&weights, &hidden, targets))
            })?;
            Ok(found.to_kind(Kind::Double).expand([count, -1, -1], false))
        });
        Ok(joined(members.collect::<Result<Vec<_>>>()?, 0))
    }

    /// Returns the log of the members' averaged probabilities, `[B, A]`, from their logs `[m, B, A]`.
    fn averaged(&self, scores: &Tensor) -> Tensor {
        let members = scores.size()[0];
        let share = match self.averaging_weights() {
            Some(weights) => (Tensor::from_slice(weights) / weights.iter().sum::<f64>()).to_device(scores.device()),
            None => Tensor::full([members], 1.0 / members as f64, (Kind::Double, scores.device())),
        };
        (scores + share.log().view([-1, 1, 1])).logsumexp([0i64].as_slice(), false)
    }
}
