//! The particles, and the samples of their batches, that a process computes; and the losses and gradients of all particles,
//! collected in every process from those that each has computed.

use std::ops::Range;

use anyhow::Result;
use tch::Tensor;

use super::network::{MOST, Network, gather_rows};
use crate::base::tensor::host_f32;

/// The work of one of several processes: rows of theta, and a part of each of their batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The rows of theta that the process computes.
    pub rows: Range<usize>,
    /// The number of this process among those with the same rows.
    pub member: usize,
    /// The number of processes with the same rows; more than one if there are more processes than particles.
    pub members: usize,
}

impl Shard {
    /// Returns the share of process `rank` of `ranks`.
    pub fn new(particles: usize, rank: usize, ranks: usize) -> Shard {
        let groups = particles.min(ranks);
        let group = Shard::group(particles, rank, ranks);
        let ranks_of_group = cut(ranks, groups, group);
        Shard {
            rows: cut(particles, groups, group),
            member: rank - ranks_of_group.start,
            members: ranks_of_group.len(),
        }
    }

    /// Returns the number of the group of processes that has the same rows as `rank`.
    pub fn group(particles: usize, rank: usize, ranks: usize) -> usize {
        let groups = particles.min(ranks);
        (0..groups).find(|group| cut(ranks, groups, *group).contains(&rank)).unwrap_or(0)
    }

    /// Returns the share of a process that is alone.
    pub fn whole(particles: usize) -> Shard {
        Shard { rows: 0..particles, member: 0, members: 1 }
    }

    /// Returns the samples of this process in each part of a batch of `batch` samples, which is cut into parts of
    /// `size`.
    pub fn samples(&self, batch: usize, size: usize) -> Vec<Range<usize>> {
        let part = |from: usize| {
            let own = cut(size.min(batch - from), self.members, self.member);
            from + own.start..from + own.end
        };
        (0..batch).step_by(size.max(1)).map(part).collect()
    }
}

/// Returns part `index` of `0..count`, cut into `parts` parts whose lengths differ by at most one, the longer ones
/// first.
pub fn cut(count: usize, parts: usize, index: usize) -> Range<usize> {
    let (short, longer) = (count / parts, count % parts);
    let start = index * short + index.min(longer);
    start..start + short + usize::from(index < longer)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_everything_once() {
        for (count, parts) in [(0, 3), (1, 3), (7, 3), (9, 3), (5, 5), (3, 5)] {
            let all: Vec<usize> = (0..parts).flat_map(|index| cut(count, parts, index)).collect();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
            let lengths: Vec<usize> = (0..parts).map(|index| cut(count, parts, index).len()).collect();
            assert!(lengths.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1), "{lengths:?}");
        }
        assert_eq!([0, 1, 2].map(|index| cut(8, 3, index)), [0..3, 3..6, 6..8]);
    }

    /// Checks that every sample of every particle is computed by exactly one process, for any number of processes.
    #[test]
    fn shares_cover_every_sample_of_every_particle_once() {
        for (particles, ranks) in [(1, 1), (5, 1), (5, 2), (5, 4), (5, 5), (1, 3), (2, 5), (3, 4)] {
            for (batch, size) in [(8, 8), (8, 3), (1, 1), (5, 2)] {
                let mut seen = vec![0; particles * batch];
                for rank in 0..ranks {
                    let share = Shard::new(particles, rank, ranks);
                    let samples: Vec<usize> = share.samples(batch, size).into_iter().flatten().collect();
                    share.rows.for_each(|row| samples.iter().for_each(|sample| seen[row * batch + sample] += 1));
                }
                assert!(seen.iter().all(|times| *times == 1), "{particles} particles, {ranks} processes: {seen:?}");
            }
        }
    }

    #[test]
    fn more_processes_than_particles_share_batches() {
        let shares: Vec<Shard> = (0..5).map(|rank| Shard::new(2, rank, 5)).collect();
        let facts: Vec<_> = shares.iter().map(|s| (s.rows.clone(), s.member, s.members)).collect();
        assert_eq!(facts, [(0..1, 0, 3), (0..1, 1, 3), (0..1, 2, 3), (1..2, 0, 2), (1..2, 1, 2)]);
        assert_eq!(shares[1].samples(8, 4), [2..3, 6..7]);
        assert!(shares[2].samples(1, 1).iter().all(Range::is_empty));
        assert_eq!(Shard::new(5, 0, 1), Shard::whole(5));
    }
}
