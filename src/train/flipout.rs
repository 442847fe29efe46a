//! The likelihood with noise in the factors A of low-rank updates, of which each sample has its own signs (flipout; Wen et al.
//! 2018, arXiv 1803.04386).

use std::ops::Range;

use anyhow::{Result, ensure};
use rand::Rng;
use tch::{Kind, Tensor};

use super::mixing::Mixing;
use super::objective::Likelihood;
use super::portion::{Aim, Portion};
use crate::base::random::{Purpose, stream};
use crate::base::tensor::upload;
use crate::machine::memory::Cut;
use crate::methods::{Evaluation, Noisy, Signs};
use crate::model::network::low_rank::Flipped;
use crate::predict::in_parts;
use crate::subspace::Shape;

const NO_FLIPS: &str = "flipout needs low-rank updates within a network that bella runs layer by layer, which a module \
    (checkpoint.kind = \"module\") is not: set method.blob.flipout = false";

/// A layer whose factor A has noise.
struct Layer<'a> {
    name: &'a str,
    /// The index of A among the columns.
    column: usize,
    /// The signs of the inputs, `[k, b, in]`, and of the outputs of A, `[k, b, rank]`.
    inputs: Tensor,
    outputs: Tensor,
}

/// Returns this many random signs.
fn random(mut rng: impl Rng, count: usize) -> Vec<i8> {
    let mut signs = Vec::with_capacity(count);
    while signs.len() < count {
        let word = rng.next_u64();
        signs.extend((0..64).map(|bit| if word >> bit & 1 == 1 { 1 } else { -1 }).take(count - signs.len()));
    }
    signs
}

impl Likelihood<'_> {
    /// Returns the losses and gradients of rows of theta and of the noise on a part of the batch. The first row is particle
    /// `first`, and the samples of this process have these `numbers: [b]` in the batch.
    pub(super) fn flipped(
        &self,
        (theta, noise): (&Tensor, &Tensor),
        (first, numbers): (i64, &Tensor),
        signs: Signs,
        part: usize,
    ) -> Result<Noisy> {
        let rows = theta.size()[0];
        ensure!(self.model.network.records_layers() && !self.subspace.layout().is_dense(), NO_FLIPS);
        self.cutter.clamp(rows as usize);
        self.cutter.run(|cut| {
            let (gradients, by_noise) = (theta.zeros_like(), theta.zeros_like());
            let mut losses = Vec::new();
            for some in in_parts(0..rows as usize, cut.members) {
                let (start, count) = (some.start as i64, some.len() as i64);
                let of = |t: &Tensor| t.narrow(0, start, count);
                let layers = self.signed(signs, (first + start, count), numbers);
                let sums = (&of(&gradients), &of(&by_noise));
                losses.push(self.flipped_rows((&of(theta), &of(noise)), (first, start), &layers, (part, cut), sums)?);
            }
            let own = Evaluation { losses: Tensor::cat(&losses, 0), gradients };
            Ok(Noisy { own, by_noise })
        })
    }

    /// Returns the layers with their signs for `count` particles from number `particle` on.
    fn signed(&self, signs: Signs, (particle, count): (i64, i64), numbers: &Tensor) -> Vec<Layer<'_>> {
        let layout = self.subspace.layout();
        let mut layers = Vec::new();
        for (index, block) in layout.blocks.iter().enumerate() {
            let Shape::LowRank { rank, inputs, .. } = block.shape else { continue };
            let Some(column) = layout.columns.iter().position(|column| column.start == block.columns.start) else {
                continue;
            };
            let all = self.signs(signs, index, particle..particle + count, rank + inputs);
            let all = upload(&all, numbers.device()).to_kind(self.model.kind);
            let own = all.index_select(1, numbers);
            let (inputs, outputs) = (own.narrow(2, 0, inputs).contiguous(), own.narrow(2, inputs, rank).contiguous());
            layers.push(Layer { name: &block.name, column, inputs, outputs });
        }
        layers
    }

    /// Returns signs `[k, B, width]` for some particles and all samples of the batch in a layer.
    fn signs(&self, Signs { seed, step }: Signs, layer: usize, particles: Range<i64>, width: i64) -> Tensor {
        let (count, batch) = (particles.end - particles.start, self.batch as i64);
        let of = |particle: i64| {
            let place = [step, layer as i64, particle].map(|index| index as u64);
            random(stream(seed, Purpose::Signs, &place), (batch * width) as usize)
        };
        Tensor::from_slice(&particles.flat_map(of).collect::<Vec<i8>>()).view([count, batch, width])
    }

    /// Returns the losses of some rows on a part, and adds their gradients and those of the noise to `sums`.
    fn flipped_rows(
        &self,
        (theta, noise): (&Tensor, &Tensor),
        (first, start): (i64, i64),
        layers: &[Layer],
        (part, cut): (usize, Cut),
        (gradients, by_noise): (&Tensor, &Tensor),
    ) -> Result<Tensor> {
        let layout = self.subspace.layout();
        let none = Mixing::none(layout);
        let leaves = layout.leaves(theta, self.model.kind, true);
        let noises = layout.leaves(noise, self.model.kind, true);
        let all: Vec<&Tensor> = leaves.iter().chain(&noises).collect();
        let count = theta.size()[0];
        let mut losses = Tensor::zeros([count], (Kind::Float, theta.device()));
        for samples in in_parts(self.parts[part].clone(), cut.images) {
            let (from, samples) = (samples.start as i64, samples.len() as i64);
            let weight = samples as f64 / self.batch as f64;
            let of = Portion { particle: first + start, start, count, from, samples, weight };
            let mut weights = self.subspace.weights(&self.model.base, &leaves);
            for Layer { name, column, inputs, outputs } in layers {
                let own = |signs: &Tensor| signs.narrow(1, from, samples);
                let noise = noises[*column].shallow_clone();
                weights.flip(name, Flipped { noise, inputs: own(inputs), outputs: own(outputs) });
            }
            let (found, both) = self.backward(weights, &all, &none, Aim::CrossEntropy, of)?;
            layout.gather(&both[..leaves.len()], gradients);
            layout.gather(&both[leaves.len()..], by_noise);
            losses += found;
        }
        Ok(losses)
    }
}
