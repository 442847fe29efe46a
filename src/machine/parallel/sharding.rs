//! Collects the losses and gradients of all particles in every process, from those that each process has computed.

use std::ops::Range;

use anyhow::Result;
use tch::Tensor;

use super::network::{MOST, Network, gather_rows};
use super::shard::Shard;
use crate::base::tensor::host_f32;

/// The processes of a run with n particles.
pub struct Sharding<'a> {
    network: Option<&'a dyn Network>,
    /// The processes with the same rows, if there are several.
    group: Option<Box<dyn Network>>,
    /// The rows that each process contributes. The first process of a group contributes those of the group.
    contributed: Vec<Range<usize>>,
    share: Shard,
}

impl<'a> Sharding<'a> {
    /// Creates a sharding. All processes must do this at the same time.
    pub(super) fn new(network: Option<&'a dyn Network>, particles: usize, share: Shard) -> Sharding<'a> {
        let ranks = network.map_or(1, Network::size);
        let contributed = (0..ranks).map(|rank| Shard::new(particles, rank, ranks));
        let contributed = contributed.map(|share| if share.member == 0 { share.rows } else { 0..0 }).collect();
        let shared = network.filter(|_| ranks > particles);
        let group = shared.map(|network| network.split(Shard::group(particles, network.rank(), ranks)));
        Sharding { network, group, contributed, share }
    }

    /// Returns the share of the work that this process computes.
    pub fn share(&self) -> &Shard {
        &self.share
    }

    /// Returns the losses `[n]` and gradients `[n, P]` of all particles, given `[k]` and `[k, P]` for the k rows of
    /// this process, summed over its samples alone.
    pub fn exchange(&self, losses: Tensor, gradients: Tensor) -> Result<(Tensor, Tensor)> {
        if self.network.is_none() {
            return Ok((losses, gradients));
        }
        // The losses are sent as one more column of the gradients, in the same message.
        let all = self.collect(Tensor::cat(&[losses.unsqueeze(1).to_kind(gradients.kind()), gradients], 1))?;
        let parameters = all.size()[1] - 1;
        let losses = all.select(1, 0).to_kind(losses.kind()).contiguous();
        Ok((losses, all.narrow(1, 1, parameters).contiguous()))
    }

    /// Returns `[n, K]` of all particles, given `[k, K]` for the k rows of this process, summed over its samples alone.
    pub fn collect(&self, own: Tensor) -> Result<Tensor> {
        let Some(network) = self.network else { return Ok(own) };
        let (device, kind) = (own.device(), own.kind());
        Ok(self.rows(network, &own)?.to_device(device).to_kind(kind))
    }

    /// Returns whether this process has all samples of all particles.
    pub fn is_alone(&self) -> bool {
        self.network.is_none()
    }

    /// Returns the rows `[k, K]` of all processes as `[n, K]`.
    fn rows(&self, network: &dyn Network, own: &Tensor) -> Result<Tensor> {
        let summed = match &self.group {
            Some(group) => &sum(&**group, own)?,
            None => own,
        };
        let contributed = if self.share.member == 0 { summed } else { &summed.narrow(0, 0, 0) };
        let counts: Vec<usize> = self.contributed.iter().map(|rows| rows.len()).collect();
        gather_rows(network, contributed, &counts)
    }

    /// Returns the sum over all processes.
    pub fn sum(&self, own: Tensor) -> Result<Tensor> {
        let Some(network) = self.network else { return Ok(own) };
        Ok(sum(network, &own)?.to_device(own.device()).to_kind(own.kind()))
    }
}

/// Returns the sum over the processes of a network, in f32 on the CPU.
fn sum(network: &dyn Network, own: &Tensor) -> Result<Tensor> {
    let mut floats = host_f32(own)?;
    floats.chunks_mut(MOST).for_each(|part| network.sum(part));
    Ok(Tensor::from_slice(&floats).view(own.size().as_slice()))
}
