//! Several processes that train one run together (`mpirun -n 4 bella train …`). Theta and the state of the method are
//! the same in every process. Each process computes the losses and gradients of its [`Shard`], and a [`Sharding`] sends
//! them to all others.
//!
//! [`ProcessGroup`] is the set of these processes, or this process alone. They communicate through a [`Network`]; MPI (feature
//! `mpi`) is one.

#[cfg(feature = "mpi")]
mod mpi;
mod network;
mod shard;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::{first_line, host_f32};
use network::gather_rows;
use shard::cut;

pub use network::{Network, launch_rank, processes};
pub use shard::{Shard, Sharding};

/// The time that other processes wait before they print their own error; rank 0 has usually printed the same one by
/// then.
const FIRST_SPEAKS: Duration = Duration::from_secs(1);

/// All processes that work on this run.
pub struct ProcessGroup {
    /// The network between the processes; absent if this process is alone.
    network: Option<Box<dyn Network>>,
}

/// The place of this process among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rank of this process among those on the same machine.
    pub local_rank: usize,
    /// The number of processes on the same machine, including this one.
    pub neighbours: usize,
    /// The number of cores for this process: its allowed cores, divided among the processes that may use the same ones.
    pub cores: usize,
}

impl ProcessGroup {
    /// Returns a group of this process alone.
    pub fn alone() -> ProcessGroup {
        ProcessGroup { network: None }
    }

    /// Returns the group of the processes of a network.
    pub fn over(network: Box<dyn Network>) -> ProcessGroup {
        ProcessGroup { network: Some(network) }
    }

    /// Connects the processes that a launcher such as mpirun started together.
    ///
    /// # Errors
    /// Fails if there are several processes and the binary was built without MPI, or if the MPI library does not start.
    pub fn open() -> Result<ProcessGroup> {
        match processes() {
            1 => Ok(ProcessGroup::alone()),
            #[cfg(feature = "mpi")]
            _ => Ok(ProcessGroup::over(Box::new(mpi::Ranks::open()?))),
            #[cfg(not(feature = "mpi"))]
            count => bail!(
                "this bella was built without MPI, so {count} processes would train the same run {count} times: build it with \
                 `cargo build --release --features mpi`, or start it without mpirun"
            ),
        }
    }

    /// Returns the rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.network.as_ref().map_or(0, |network| network.rank())
    }

    /// Returns the number of processes.
    pub fn size(&self) -> usize {
        self.network.as_ref().map_or(1, |network| network.size())
    }

    /// Returns whether this is the process that writes files and prints messages.
    pub fn is_main(&self) -> bool {
        self.rank() == 0
    }

    /// Returns this process's part of all pieces of some work, in order.
    pub fn own<T: Clone>(&self, all: &[T]) -> Vec<T> {
        all[cut(all.len(), self.size(), self.rank())].to_vec()
    }

    /// Returns whether `flag` is set in any process.
    pub fn any(&self, flag: bool) -> bool {
        match &self.network {
            None => flag,
            Some(network) => network.numbers(u64::from(flag)).contains(&1),
        }
    }

    /// Checks that all processes have the same value of `what`.
    ///
    /// # Errors
    /// Fails if another process has another value of `what`.
    pub fn agree(&self, what: &str, value: &str) -> Result<()> {
        let Some(network) = &self.network else { return Ok(()) };
        let all = network.numbers(fingerprint(value));
        let other = all.iter().position(|number| *number != all[0]);
        match other {
            None => Ok(()),
            Some(rank) => bail!("{what} of process {rank} differs from that of process 0 ({value} in this one)"),
        }
    }

    /// Returns, in all processes, the bytes that the first process makes.
    ///
    /// # Errors
    /// Fails if `make` fails in the first process.
    pub fn from_first(&self, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        /// The largest number of bytes in one message.
        const MOST: usize = 1 << 30;
        let mut bytes = if self.is_main() { make()? } else { Vec::new() };
        if let Some(network) = &self.network {
            bytes.resize(network.numbers(bytes.len() as u64)[0] as usize, 0);
            bytes.chunks_mut(MOST).for_each(|part| network.broadcast(part));
        }
        Ok(bytes)
    }

    /// Returns the least of the numbers that the processes pass.
    pub fn least(&self, own: usize) -> usize {
        let all = self.network.as_ref().map(|network| network.numbers(own as u64));
        all.and_then(|all| all.into_iter().min()).map_or(own, |least| least as usize)
    }

    /// Returns, in all processes, the bytes that each process passes, in the order of ranks.
    ///
    /// # Errors
    /// Fails if libtorch fails.
    pub fn gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let Some(network) = &self.network else { return Ok(vec![own.to_vec()]) };
        let lengths: Vec<usize> = network.numbers(own.len() as u64).into_iter().map(|length| length as usize).collect();
        let all = host_f32(&self.gather(&packed(own).unsqueeze(1))?)?;
        let mut rest = &all[..];
        let of = |length: usize| {
            let (these, others) = rest.split_at(length.div_ceil(PACKED));
            rest = others;
            unpacked(these, length)
        };
        Ok(lengths.into_iter().map(of).collect())
    }

    /// Overwrites a tensor `[…]` of f32 in all processes with that of the first process.
    ///
    /// Processors of the same kind compute the same bits anyway; the results of different ones would drift apart
    /// without this.
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

    /// Returns the rows `[N_r, …]` of all processes in the order of ranks, as `[N, …]` in f32 on the CPU.
    pub fn gather(&self, rows: &Tensor) -> Result<Tensor> {
        let rows = rows.to_device(Device::Cpu).to_kind(Kind::Float);
        let Some(network) = &self.network else { return Ok(rows) };
        let mut size = rows.size();
        let counts: Vec<usize> = network.numbers(size[0] as u64).into_iter().map(|count| count as usize).collect();
        size[0] = counts.iter().sum::<usize>() as i64;
        let all = gather_rows(&**network, &rows.flatten(1, -1), &counts)?;
        Ok(all.view(size.as_slice()))
    }

    /// Returns the division of the work of training `particles` particles among the processes.
    pub fn sharding(&self, particles: usize) -> Sharding<'_> {
        let share = Shard::new(particles, self.rank(), self.size());
        Sharding::new(self.network.as_deref(), particles, share)
    }

    /// Returns the place of this process among the others.
    pub fn place(&self) -> Place {
        let cores = crate::machine::cores();
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

    /// Waits until all processes have come to their end, and returns the exit code of this one.
    pub fn end(&self, code: u8) -> ExitCode {
        if let Some(network) = &self.network {
            network.wait();
        }
        ExitCode::from(code)
    }

    /// Ends all processes at once, whatever they are doing.
    pub fn abort(&self, code: u8) -> ExitCode {
        match &self.network {
            None => ExitCode::from(code),
            Some(network) => network.abort(code),
        }
    }
}

/// The number of bytes in one f32, which holds whole numbers below 2^24 exactly.
const PACKED: usize = 3;

/// Returns bytes as whole numbers in f32, `[⌈N / 3⌉]`.
fn packed(bytes: &[u8]) -> Tensor {
    let number = |part: &[u8]| part.iter().rev().fold(0u32, |number, byte| number << 8 | u32::from(*byte)) as f32;
    Tensor::from_slice(&bytes.chunks(PACKED).map(number).collect::<Vec<f32>>())
}

/// Returns the first `length` bytes of packed ones.
fn unpacked(numbers: &[f32], length: usize) -> Vec<u8> {
    let parts = numbers.iter().flat_map(|number| (*number as u32).to_le_bytes().into_iter().take(PACKED));
    parts.take(length).collect()
}

/// Waits so that the first process has time to print what went wrong. After that, it or the launcher ends the others.
pub fn let_first_speak() {
    if launch_rank() > 0 {
        std::thread::sleep(FIRST_SPEAKS);
    }
}

/// Returns a hash of a text as a number.
fn fingerprint(text: &str) -> u64 {
    let hash = Sha256::digest(text.as_bytes());
    hash[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
