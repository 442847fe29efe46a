//! The likelihood of a batch, computed by several processes together.

use std::ops::Range;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use super::objective::Likelihood;
use super::portion::Aim;
use crate::base::tensor::upload;
use crate::machine::parallel::Team;
use crate::methods::{Evaluation, HeadInputs, Mixed, Noisy, Objective, Outputs, Signs, Squared};

/// The likelihood of a batch of which every process computes a share. Theta and the results are the same in all
/// processes.
pub struct Shared<'a> {
    pub own: Likelihood<'a>,
    pub team: &'a Team<'a>,
}

impl Shared<'_> {
    /// Returns this process's rows of `theta: [n, P]`, and the index of the first.
    fn rows(&self, theta: &Tensor) -> (Tensor, i64) {
        let rows = &self.team.share().rows;
        (theta.narrow(0, rows.start as i64, rows.len() as i64), rows.start as i64)
    }

    fn over(&self, theta: &Tensor, parts: Range<usize>) -> Result<Evaluation> {
        let (rows, first) = self.rows(theta);
        self.exchange(self.own.evaluated(&rows, first, parts)?)
    }

    /// Returns the numbers in the batch of the samples of this process, `[b]`.
    fn samples(&self, device: Device) -> Tensor {
        let own = self.own.cut.samples(self.team.share(), self.own.batch).into_iter().flatten();
        upload(&Tensor::from_slice(&own.map(|sample| sample as i64).collect::<Vec<_>>()), device)
    }

    /// Returns `[n, B, K]` of all particles and samples, given `[k, b, K]` of this process.
    fn collect(&self, own: &Tensor, samples: &Tensor) -> Result<Tensor> {
        let (rows, columns) = (own.size()[0], own.size()[2]);
        let table = Tensor::zeros([rows, self.own.batch as i64, columns], (own.kind(), own.device()));
        let table = table.index_copy(1, samples, own).flatten(1, 2);
        Ok(self.team.collect(table)?.view([-1, self.own.batch as i64, columns]))
    }

    /// Returns the losses, the gradients and other numbers `[n, P]` of all processes, given those of this process.
    fn exchange_both(&self, own: Evaluation, others: Tensor) -> Result<(Evaluation, Tensor)> {
        let parameters = others.size()[1];
        // Both travel in one message, side by side.
        let both = Evaluation { losses: own.losses, gradients: Tensor::cat(&[own.gradients, others], 1) };
        let Evaluation { losses, gradients } = self.exchange(both)?;
        let half = |start: i64| gradients.narrow(1, start, parameters).contiguous();
        Ok((Evaluation { losses, gradients: half(0) }, half(parameters)))
    }

    /// Returns values `[n, B, K]` and labels `[n, B]` of all particles and samples, given those of this process.
    fn collect_labelled(&self, values: Tensor, labels: Tensor) -> Result<(Tensor, Tensor)> {
        if self.team.is_alone() {
            return Ok((values, labels));
        }
        let samples = self.samples(values.device());
        // The labels are sent as one more column, in the same message.
        let table = Tensor::cat(&[&values, &labels.unsqueeze(2).to_kind(values.kind())], 2);
        let all = self.collect(&table, &samples)?;
        let columns = all.size()[2] - 1;
        let labels = all.select(2, columns).to_kind(Kind::Int64);
        Ok((all.narrow(2, 0, columns).contiguous(), labels))
    }

    /// Returns this process's rows of `theta: [n, P]`, and what is its own of `[n, B, K]`.
    fn share_of(&self, theta: &Tensor, by_values: &Tensor) -> (Tensor, Tensor) {
        let (rows, first) = self.rows(theta);
        if self.team.is_alone() {
            return (rows, by_values.shallow_clone());
        }
        let own = by_values.narrow(0, first, rows.size()[0]).index_select(1, &self.samples(theta.device()));
        (rows, own)
    }

    /// Returns the losses and gradients of all processes, given those of this process.
    fn exchange(&self, own: Evaluation) -> Result<Evaluation> {
        let (losses, gradients) = self.team.exchange(own.losses, own.gradients)?;
        Ok(Evaluation { losses, gradients })
    }
}

impl Objective for Shared<'_> {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        self.over(theta, 0..self.own.parts())
    }

    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let mut mixing = self.own.mixing(theta, matrices)?;
        let (rows, first) = self.rows(theta);
        let own = self.exchange(self.own.over(&rows, first, 0..self.own.parts(), Aim::CrossEntropy, &mixing)?)?;
        mixing.sum(|gradients| self.team.sum(gradients))?;
        let gradients = mixing.finish(&own.gradients);
        Ok(Mixed { own, gradients })
    }

    fn outputs(&mut self, theta: &Tensor) -> Result<Outputs> {
        let (rows, _) = self.rows(theta);
        let Outputs { logits, labels } = self.own.outputs(&rows)?;
        let (logits, labels) = self.collect_labelled(logits, labels)?;
        Ok(Outputs { logits, labels })
    }

    fn pull_back(&mut self, theta: &Tensor, by_logits: &Tensor) -> Result<Tensor> {
        let (rows, own) = self.share_of(theta, by_logits);
        self.team.collect(self.own.pulled_back(&rows, Aim::Product(&own))?)
    }

    fn head_inputs(&mut self, theta: &Tensor) -> Result<HeadInputs> {
        let (rows, _) = self.rows(theta);
        let HeadInputs { features, labels } = self.own.head_inputs(&rows)?;
        let (features, labels) = self.collect_labelled(features, labels)?;
        Ok(HeadInputs { features, labels })
    }

    fn pull_back_head_inputs(&mut self, theta: &Tensor, by_features: &Tensor) -> Result<Tensor> {
        let (rows, own) = self.share_of(theta, by_features);
        self.team.collect(self.own.pulled_back(&rows, Aim::ProductAtHead(&own))?)
    }

    fn parts(&self) -> usize {
        self.own.parts()
    }

    fn share(&self, part: usize) -> f64 {
        self.own.share(part)
    }

    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        self.over(theta, part..part + 1)
    }

    fn evaluate_squared(&mut self, theta: &Tensor, part: usize) -> Result<Squared> {
        let (rows, _) = self.rows(theta);
        let Squared { own, squares } = self.own.evaluate_squared(&rows, part)?;
        let (own, squares) = self.exchange_both(own, squares)?;
        Ok(Squared { own, squares })
    }

    fn evaluate_flipped(&mut self, theta: &Tensor, noise: &Tensor, signs: Signs, part: usize) -> Result<Noisy> {
        let ((rows, first), (noise, _)) = (self.rows(theta), self.rows(noise));
        let numbers = self.samples(theta.device());
        let Noisy { own, by_noise } = self.own.flipped((&rows, &noise), (first, &numbers), signs, part)?;
        let (own, by_noise) = self.exchange_both(own, by_noise)?;
        Ok(Noisy { own, by_noise })
    }
}
