//! Losses and gradients of all particles in every process, from those that each has computed.

use std::ops::Range;

use anyhow::Result;
use tch::Tensor;

use super::{Network, Share};
use crate::methods::Evaluation;
use crate::tensor::host_f32;

/// Floats that one message holds.
const MOST: usize = 1 << 30;

/// The processes of a run with n particles.
pub struct Team<'a> {
    network: Option<&'a dyn Network>,
    /// The processes with the same rows, where there are others.
    group: Option<Box<dyn Network>>,
    /// Rows that each process contributes: those of a group come from its first one.
    contributed: Vec<Range<usize>>,
    share: Share,
    particles: usize,
}

impl<'a> Team<'a> {
    /// Every process makes its team at the same time.
    pub(super) fn new(network: Option<&'a dyn Network>, particles: usize, share: Share) -> Team<'a> {
        let ranks = network.map_or(1, Network::size);
        let contributed = (0..ranks).map(|rank| Share::new(particles, rank, ranks));
        let contributed = contributed.map(|share| if share.member == 0 { share.rows } else { 0..0 }).collect();
        let shared = network.filter(|_| ranks > particles);
        let group = shared.map(|network| network.split(Share::group(particles, network.rank(), ranks)));
        Team { network, group, contributed, share, particles }
    }

    /// What this process computes.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Everybody's losses `[n]` and gradients `[n, P]` from this process's share: `[k]` and `[k, P]` of its k rows, summed
    /// over its samples alone.
    pub fn exchange(&self, own: Evaluation) -> Result<Evaluation> {
        let Some(network) = self.network else { return Ok(own) };
        let Evaluation { losses, gradients } = own;
        let (device, kind) = (gradients.device(), gradients.kind());
        // A particle's loss is one more column, so that one message takes both.
        let table = Tensor::cat(&[losses.unsqueeze(1).to_kind(kind), gradients], 1);
        let all = self.rows(network, &table)?.to_device(device).to_kind(kind);
        let parameters = all.size()[1] - 1;
        let losses = all.select(1, 0).to_kind(losses.kind()).contiguous();
        Ok(Evaluation { losses, gradients: all.narrow(1, 1, parameters).contiguous() })
    }

    /// Rows `[k, K]` of every process as `[n, K]`, in pieces of columns that fit into a message.
    fn rows(&self, network: &dyn Network, own: &Tensor) -> Result<Tensor> {
        let (rows, columns) = own.size2()?;
        let most = (MOST / self.particles).max(1) as i64;
        let mut pieces = Vec::new();
        for start in (0..columns).step_by(most as usize) {
            let count = most.min(columns - start);
            let mut floats = host_f32(&own.narrow(1, start, count))?;
            if let Some(group) = &self.group {
                group.sum(&mut floats);
            }
            let counts: Vec<usize> = self.contributed.iter().map(|rows| rows.len() * count as usize).collect();
            let mut all = vec![0.0; self.particles * count as usize];
            let own = if self.share.member == 0 { &floats[..] } else { &[] };
            debug_assert_eq!(floats.len(), (rows * count) as usize);
            network.gather(own, &counts, &mut all);
            pieces.push(Tensor::from_slice(&all).view([self.particles as i64, count]));
        }
        Ok(Tensor::cat(&pieces, 1))
    }

    /// The sum over all processes.
    pub fn sum(&self, own: Tensor) -> Result<Tensor> {
        let Some(network) = self.network else { return Ok(own) };
        let mut floats = host_f32(&own)?;
        floats.chunks_mut(MOST).for_each(|part| network.sum(part));
        Ok(Tensor::from_slice(&floats).view(own.size().as_slice()).to_device(own.device()).to_kind(own.kind()))
    }
}
