//! The likelihood with noise in the factors A of low-rank updates, of which each sample has its own signs (flipout; Wen et al.
//! 2018, arXiv 1803.04386).

use std::ops::Range;

use anyhow::{Result, ensure};
use rand::Rng;
use tch::{Kind, Tensor};

use super::gradient::{Gradient, Root};
use super::likelihood::Likelihood;
use super::passes::Own;
use crate::base::random::{Purpose, stream};
use crate::base::tensor::upload;
use crate::methods::{Evaluation, Extended, FactorNoise, Request};
use crate::model::network::UNRECORDED;
use crate::model::network::low_rank::Flipped;
use crate::predict::in_parts;
use crate::subspace::Shape;

/// A layer whose factor A has noise.
struct Layer<'a> {
    name: &'a str,
    /// The index of A among the columns.
    column: usize,
    /// The signs of the inputs, `[k, b, in]`, and of the outputs of A, `[k, b, rank]`.
    inputs: Tensor,
    outputs: Tensor,
}

/// Some particles with their noise, and the rows to which their gradients are added.
struct Rows {
    /// The row of the first particle among those in this process.
    start: i64,
    /// The particles and the noise, `[k, P]`.
    theta: Tensor,
    noise: Tensor,
    /// The gradients with respect to the particles and to the noise, `[k, P]`.
    gradients: Tensor,
    by_noise: Tensor,
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
    /// Returns the requested losses and gradients with noise in the rows of theta, and the gradients with respect to the noise.
    ///
    /// # Errors
    /// Fails if there are no low-rank factors, or if libtorch fails.
    pub(super) fn flipped(&self, request: &Request, noise: FactorNoise) -> Result<Extended> {
        let (theta, particles) = (request.theta, request.theta.size()[0] as usize);
        let has_factors = self.model.network.records_layers() && !self.subspace.layout().is_dense();
        let unflipped = || {
            format!(
                "low-rank updates are needed within a network that bella runs layer by layer, which {UNRECORDED} is"
            )
        };
        ensure!(has_factors, request.refused(&unflipped()));
        let numbers = upload(&Tensor::from_slice(&self.numbers), theta.device());
        let parts = &self.parts[self.parts_of(request)];
        self.chunker.clamp(particles);
        self.chunker.run(|size| {
            let (gradients, by_noise) = (theta.zeros_like(), theta.zeros_like());
            let mut losses = Vec::new();
            for some in in_parts(0..particles, size.members) {
                let (start, count) = (some.start as i64, some.len() as i64);
                let of = |t: &Tensor| t.narrow(0, start, count);
                let rows = Rows {
                    start,
                    theta: of(theta),
                    noise: of(noise.noise),
                    gradients: of(&gradients),
                    by_noise: of(&by_noise),
                };
                let first = self.first + start;
                let layers = self.signed(noise, first..first + count, &numbers);
                let samples = parts.iter().flat_map(|part| in_parts(part.clone(), size.images));
                losses.push(self.flipped_rows(&rows, &layers, samples)?);
            }
            let own = Evaluation { losses: Tensor::cat(&losses, 0), gradients };
            Ok(Extended { own, extra: by_noise })
        })
    }

    /// Returns the layers with their signs for some particles, on the samples with these `numbers: [b]` in the batch.
    fn signed(&self, noise: FactorNoise, particles: Range<i64>, numbers: &Tensor) -> Vec<Layer<'_>> {
        let layout = self.subspace.layout();
        let mut layers = Vec::new();
        for (index, block) in layout.blocks.iter().enumerate() {
            let Shape::LowRank { rank, inputs, .. } = block.shape else { continue };
            let Some(column) = layout.columns.iter().position(|column| column.start == block.columns.start) else {
                continue;
            };
            let all = self.signs(noise, index, particles.clone(), rank + inputs);
            let all = upload(&all, numbers.device()).to_kind(self.model.kind);
            let own = all.index_select(1, numbers);
            let (inputs, outputs) = (own.narrow(2, 0, inputs).contiguous(), own.narrow(2, inputs, rank).contiguous());
            layers.push(Layer { name: &block.name, column, inputs, outputs });
        }
        layers
    }

    /// Returns signs `[k, B, width]` for some particles and all samples of the batch in a layer.
    fn signs(&self, noise: FactorNoise, layer: usize, particles: Range<i64>, width: i64) -> Tensor {
        let FactorNoise { seed, step, .. } = noise;
        let (count, batch) = (particles.end - particles.start, self.batch as i64);
        let of = |particle: i64| {
            let place = [step, layer as i64, particle].map(|index| index as u64);
            random(stream(seed, Purpose::Signs, &place), (batch * width) as usize)
        };
        Tensor::from_slice(&particles.flat_map(of).collect::<Vec<i8>>()).view([count, batch, width])
    }

    /// Returns the losses of some rows on some samples, and adds their gradients and those of the noise to the rows'.
    fn flipped_rows(
        &self,
        rows: &Rows,
        layers: &[Layer],
        samples: impl Iterator<Item = Range<usize>>,
    ) -> Result<Tensor> {
        let (layout, count) = (self.subspace.layout(), rows.theta.size()[0]);
        let kind = self.model.kind;
        let pass = |own: &Own| {
            let leaves = layout.leaves(&own.rows(&rows.theta), kind, true);
            let noises = layout.leaves(&own.rows(&rows.noise), kind, true);
            let mut weights = self.subspace.weights(&self.model.base, &leaves);
            for Layer { name, column, inputs, outputs } in layers {
                let signs = |signs: &Tensor| own.rows(signs).narrow(1, own.slice.from, own.slice.samples);
                let noise = noises[*column].shallow_clone();
                weights.flip(name, Flipped { noise, inputs: signs(inputs), outputs: signs(outputs) });
            }
            let all: Vec<&Tensor> = leaves.iter().chain(&noises).collect();
            self.pass(weights, &all, own, Root::Loss, None)
        };
        let losses = Tensor::zeros([count], (Kind::Float, rows.theta.device()));
        let add = |own: &Own, Gradient { values, by_leaves }: Gradient| {
            let (by_leaves, by_noise) = by_leaves.split_at(layout.columns.len());
            layout.gather(by_leaves, &own.rows(&rows.gradients));
            layout.gather(by_noise, &own.rows(&rows.by_noise));
            let _ = own.rows(&losses).g_add_(&values);
        };
        for samples in samples {
            self.in_pieces(self.slice(rows.start, count, samples), 2 * layout.parameters(), &pass, &add)?;
        }
        Ok(losses)
    }
}
