//! The likelihood of a batch, computed by several processes together.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use super::gradient::Root;
use super::likelihood::Likelihood;
use crate::base::tensor::upload;
use crate::machine::parallel::Sharding;
use crate::methods::{Answer, Evaluation, Extended, Extra, FactorNoise, Objective, Outputs, Request, Target};

/// The likelihood of a batch of which every process computes a share. Theta and the results are the same in all
/// processes.
pub struct Shared<'a> {
    pub own: Likelihood<'a>,
    pub sharding: &'a Sharding<'a>,
}

impl Objective for Shared<'_> {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        if self.sharding.is_alone() {
            return self.own.evaluate(request);
        }
        let Request { theta, target, extra, .. } = *request;
        if let (Target::Losses, Extra::Mixing(matrices)) = (target, extra) {
            return self.mixed(request, matrices).map(Answer::Extended);
        }
        let by_output = if let Target::PullBack(_, all) = target { Some(self.share_of(all)) } else { None };
        let noise = if let Extra::Noise(FactorNoise { noise, .. }) = extra { Some(self.rows(noise)) } else { None };
        let own = Request {
            theta: &self.rows(theta),
            target: match (target, &by_output) {
                (Target::PullBack(output, _), Some(own)) => Target::PullBack(output, own),
                _ => target,
            },
            extra: match (extra, &noise) {
                (Extra::Noise(all), Some(noise)) => Extra::Noise(FactorNoise { noise, ..all }),
                _ => extra,
            },
            ..*request
        };
        let found = self.own.evaluate(&own)?;
        Ok(match found {
            Answer::Losses(own) => self.exchange(own)?.into(),
            Answer::Extended(own) => self.exchange_both(own)?.into(),
            Answer::Outputs(own) => self.collect(own)?.into(),
            Answer::Gradients(own) => Answer::Gradients(self.sharding.collect(own)?),
        })
    }

    fn parts(&self) -> usize {
        self.own.parts()
    }

    fn share(&self, part: usize) -> f64 {
        self.own.share(part)
    }
}

impl Shared<'_> {
    /// Returns this process's rows of `[n, …]`.
    fn rows(&self, all: &Tensor) -> Tensor {
        let rows = &self.sharding.share().rows;
        all.narrow(0, rows.start as i64, rows.len() as i64)
    }

    /// Returns the numbers in the batch of the samples of this process, `[b]`.
    fn samples(&self, device: Device) -> Tensor {
        upload(&Tensor::from_slice(&self.own.numbers), device)
    }

    /// Returns the rows and samples of this process, `[k, b, K]`, of `[n, B, K]`.
    fn share_of(&self, all: &Tensor) -> Tensor {
        self.rows(all).index_select(1, &self.samples(all.device()))
    }

    /// Mixes gradients: the particles of this process add to the mixed gradients of all.
    fn mixed(&self, request: &Request, matrices: &Tensor) -> Result<Extended> {
        let mut mixing = self.own.mixing(request, matrices)?;
        let parts = self.own.parts_of(request);
        let own = self.own.gradients(&self.rows(request.theta), parts, Root::Loss, Some(&mixing))?;
        let own = self.exchange(own)?;
        mixing.sum(|gradients| self.sharding.sum(gradients))?;
        Ok(mixing.finish(own))
    }

    /// Returns the losses and gradients of all processes, given those of this process.
    fn exchange(&self, own: Evaluation) -> Result<Evaluation> {
        let (losses, gradients) = self.sharding.exchange(own.losses, own.gradients)?;
        Ok(Evaluation { losses, gradients })
    }

    /// Returns the losses, the gradients and the other numbers of all processes, given those of this process.
    fn exchange_both(&self, Extended { own, extra }: Extended) -> Result<Extended> {
        let parameters = extra.size()[1];
        // Both travel in one message, side by side.
        let both = Evaluation { losses: own.losses, gradients: Tensor::cat(&[own.gradients, extra], 1) };
        let Evaluation { losses, gradients } = self.exchange(both)?;
        let half = |start: i64| gradients.narrow(1, start, parameters).contiguous();
        Ok(Extended { own: Evaluation { losses, gradients: half(0) }, extra: half(parameters) })
    }

    /// Returns the output and the labels of all particles and samples, given those of this process.
    fn collect(&self, Outputs { values, labels }: Outputs) -> Result<Outputs> {
        // The labels are sent as one more column, in the same message.
        let own = Tensor::cat(&[&values, &labels.unsqueeze(2).to_kind(values.kind())], 2);
        let (rows, batch, columns) = (own.size()[0], self.own.batch as i64, own.size()[2]);
        let table = Tensor::zeros([rows, batch, columns], (own.kind(), own.device()));
        let table = table.index_copy(1, &self.samples(own.device()), &own).flatten(1, 2);
        let all = self.sharding.collect(table)?.view([-1, batch, columns]);
        let labels = all.select(2, columns - 1).to_kind(Kind::Int64);
        Ok(Outputs { values: all.narrow(2, 0, columns - 1).contiguous(), labels })
    }
}
