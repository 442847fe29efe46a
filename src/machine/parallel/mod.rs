//! Several processes that train one run together (`mpirun -n 4 bella train …`). Theta and the state of its method are the
//! same in every process; each computes losses and gradients of its [`Share`], and a [`Team`] hands them to all others.
//!
//! [`World`] is all of them, or this process alone; how they talk is a [`Network`], of which MPI (feature `mpi`) is one.

mod launch;
#[cfg(feature = "mpi")]
mod mpi;
mod network;
mod share;
mod team;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::{first_line, host_f32};

pub use launch::{launch_rank, processes};
pub use network::Network;
use network::gather_rows;
pub use share::{Share, cut};
pub use team::Team;

/// How long the other processes wait before they print their own error; rank 0 has usually printed the same one.
const FIRST_SPEAKS: Duration = Duration::from_secs(1);

/// All processes that work on this run.
pub struct World {
    /// Absent where this process is alone.
    network: Option<Box<dyn Network>>,
}

/// Where this process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of this process among those on the same machine.
    pub local_rank: usize,
    /// Processes on the same machine, this one included.
    pub neighbours: usize,
    /// Cores for this process: those that it may use, shared with the processes that may use the same.
    pub cores: usize,
}

impl World {
    /// This process.
    pub fn alone() -> World {
        World { network: None }
    }

    /// The processes of a network.
    pub fn over(network: Box<dyn Network>) -> World {
        World { network: Some(network) }
    }

    /// The processes that a launcher such as mpirun started together.
    ///
    /// # Errors
    /// More than one, and a binary without MPI; an MPI library that does not start.
    pub fn open() -> Result<World> {
        match processes() {
            1 => Ok(World::alone()),
            #[cfg(feature = "mpi")]
            _ => Ok(World::over(Box::new(mpi::Ranks::open()?))),
            #[cfg(not(feature = "mpi"))]
            count => bail!(
                "this bella was built without MPI, so {count} processes would train the same run {count} times: build it with \
                 `cargo build --release --features mpi`, or start it without mpirun"
            ),
        }
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.network.as_ref().map_or(0, |network| network.rank())
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.network.as_ref().map_or(1, |network| network.size())
    }

    /// Whether this is the one process that writes files and talks.
    pub fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// Whether it holds in any process.
    pub fn any(&self, flag: bool) -> bool {
        match &self.network {
            None => flag,
            Some(network) => network.numbers(u64::from(flag)).contains(&1),
        }
    }

    /// # Errors
    /// Another value of `what` in another process.
    pub fn agree(&self, what: &str, value: &str) -> Result<()> {
        let Some(network) = &self.network else { return Ok(()) };
        let all = network.numbers(fingerprint(value));
        let other = all.iter().position(|number| *number != all[0]);
        match other {
            None => Ok(()),
            Some(rank) => bail!("{what} of process {rank} differs from that of process 0 ({value} in this one)"),
        }
    }

    /// Bytes that the first process makes, in all of them.
    ///
    /// # Errors
    /// Those of `make`, in the first process.
    pub fn from_first(&self, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        /// What one message holds.
        const MOST: usize = 1 << 30;
        let mut bytes = if self.leads() { make()? } else { Vec::new() };
        if let Some(network) = &self.network {
            bytes.resize(network.numbers(bytes.len() as u64)[0] as usize, 0);
            bytes.chunks_mut(MOST).for_each(|part| network.broadcast(part));
        }
        Ok(bytes)
    }

    /// Floats of the first process written over those of the others: `[…]`, f32.
    ///
    /// Equal processors compute equal bits anyway; unequal ones drift apart without it.
    pub fn align(&self, tensor: &mut Tensor) -> Result<()> {
        if self.network.is_none() {
            return Ok(());
        }
        let floats = host_f32(tensor)?;
        let bytes = self.from_first(|| Ok(floats.iter().flat_map(|value| value.to_le_bytes()).collect()))?;
        let floats: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let first = Tensor::from_slice(&floats).view(tensor.size().as_slice());
        tensor.f_copy_(&first).map_err(|e| anyhow::anyhow!("{}", first_line(&e)))
    }

    /// The rows `[N_r, …]` that each process has, in the order of ranks: `[N, …]`, f32 on the CPU.
    pub fn gather(&self, rows: &Tensor) -> Result<Tensor> {
        let rows = rows.to_device(Device::Cpu).to_kind(Kind::Float);
        let Some(network) = &self.network else { return Ok(rows) };
        let mut size = rows.size();
        let counts: Vec<usize> = network.numbers(size[0] as u64).into_iter().map(|count| count as usize).collect();
        size[0] = counts.iter().sum::<usize>() as i64;
        let all = gather_rows(&**network, &rows.flatten(1, -1), &counts)?;
        Ok(all.view(size.as_slice()))
    }

    /// Who computes what in training `particles` particles.
    pub fn team(&self, particles: usize) -> Team<'_> {
        let share = Share::new(particles, self.rank(), self.size());
        Team::new(self.network.as_deref(), particles, share)
    }

    /// Where this process runs, among the others.
    pub fn place(&self) -> Place {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let Some(network) = &self.network else { return Place { local_rank: 0, neighbours: 1, cores } };
        let host = read("/proc/sys/kernel/hostname");
        let allowed = read("/proc/self/status").lines().find(|l| l.starts_with("Cpus_allowed:")).map(str::to_string);
        let machines = network.numbers(fingerprint(&host));
        let cpus = network.numbers(fingerprint(&format!("{host}{}", allowed.unwrap_or_default())));
        let (rank, same) = (network.rank(), |all: &[u64], of: usize| all.iter().filter(|n| **n == all[of]).count());
        Place {
            local_rank: same(&machines[..=rank], rank) - 1,
            neighbours: same(&machines, rank),
            cores: (cores / same(&cpus, rank)).max(1),
        }
    }

    /// The end of this process once all have come to theirs, whatever the exit code.
    pub fn end(&self, code: u8) -> ExitCode {
        if let Some(network) = &self.network {
            network.wait();
        }
        ExitCode::from(code)
    }

    /// The end of all processes at once, wherever they are.
    pub fn abort(&self, code: u8) -> ExitCode {
        match &self.network {
            None => ExitCode::from(code),
            Some(network) => network.abort(code),
        }
    }
}

/// Leaves the first process time to say what went wrong, after which it, or the launcher, ends the others.
pub fn let_first_speak() {
    if launch_rank() > 0 {
        std::thread::sleep(FIRST_SPEAKS);
    }
}

/// A number that stands for a text.
fn fingerprint(text: &str) -> u64 {
    let hash = Sha256::digest(text.as_bytes());
    hash[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
