//! Messages between processes, and the environment variables by which a launcher tells each process its rank and their number.

use anyhow::Result;
use tch::Tensor;

use crate::base::tensor::host_f32;

/// The largest number of floats in one message.
pub const MOST: usize = 1 << 30;

/// Messages between processes. All of them must make the same calls in the same order.
pub trait Network {
    /// Returns the rank of this process, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn size(&self) -> usize;

    /// Returns the numbers that all processes pass, in the order of ranks.
    fn numbers(&self, own: u64) -> Vec<u64>;

    /// Collects the floats of all processes in `all`, one process after the other; the process of rank r has
    /// `counts[r]` of them.
    fn gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]);

    /// Sums the values over all processes, with the same bits in each process.
    fn sum(&self, values: &mut [f32]);

    /// Overwrites `bytes` with those of rank 0.
    fn broadcast(&self, bytes: &mut [u8]);

    /// Returns the network of the processes that pass the same color.
    fn split(&self, color: usize) -> Box<dyn Network>;

    /// Waits for all other processes, without a busy loop.
    fn wait(&self);

    /// Ends all processes.
    fn abort(&self, code: u8) -> !;
}

/// Returns the rows `[N_r, K]` of all processes as `[N, K]`, where process r has `counts[r]` rows. They are sent in
/// groups of columns that fit in one message.
pub fn gather_rows(network: &dyn Network, own: &Tensor, counts: &[usize]) -> Result<Tensor> {
    let rows: usize = counts.iter().sum();
    let columns = own.size()[1];
    let most = (MOST / rows.max(1)).max(1) as i64;
    let mut pieces = Vec::new();
    for start in (0..columns).step_by(most as usize) {
        let width = most.min(columns - start);
        let floats = host_f32(&own.narrow(1, start, width))?;
        let counts: Vec<usize> = counts.iter().map(|rows| rows * width as usize).collect();
        let mut all = vec![0.0; rows * width as usize];
        network.gather(&floats, &counts, &mut all);
        pieces.push(Tensor::from_slice(&all).view([rows as i64, width]));
    }
    Ok(Tensor::cat(&pieces, 1))
}

/// The environment variables that a launcher sets.
struct Launcher {
    /// A variable that only this launcher sets.
    mark: &'static str,
    size: &'static str,
    rank: &'static str,
}

const LAUNCHERS: &[Launcher] = &[
    // mpirun of Open MPI
    Launcher { mark: "OMPI_COMM_WORLD_SIZE", size: "OMPI_COMM_WORLD_SIZE", rank: "OMPI_COMM_WORLD_RANK" },
    // mpiexec of MPICH and its relatives
    Launcher { mark: "PMI_SIZE", size: "PMI_SIZE", rank: "PMI_RANK" },
    // srun --mpi=pmix
    Launcher { mark: "PMIX_RANK", size: "SLURM_STEP_NUM_TASKS", rank: "PMIX_RANK" },
];

/// Returns the number of processes that were started together, including this one.
pub fn processes() -> usize {
    launched(|name| std::env::var(name).ok()).0
}

/// Returns the rank of this process among those that were started together, from 0.
pub fn launch_rank() -> usize {
    launched(|name| std::env::var(name).ok()).1
}

/// Returns the number of processes and the rank of this one.
fn launched(variable: impl Fn(&str) -> Option<String>) -> (usize, usize) {
    let number = |name: &str| variable(name)?.parse::<usize>().ok();
    let launcher = LAUNCHERS.iter().find(|launcher| variable(launcher.mark).is_some());
    let found = launcher.and_then(|launcher| Some((number(launcher.size)?, number(launcher.rank)?)));
    found.filter(|(size, rank)| rank < size).unwrap_or((1, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_recognised() {
        let with = |set: &[(&str, &str)]| {
            launched(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(with(&[]), (1, 0));
        assert_eq!(with(&[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3")]), (4, 3));
        assert_eq!(with(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), (2, 1));
        assert_eq!(with(&[("PMIX_RANK", "5"), ("SLURM_STEP_NUM_TASKS", "8")]), (8, 5));
        // a batch script is itself a step with tasks
        assert_eq!(with(&[("SLURM_STEP_NUM_TASKS", "8")]), (1, 0));
        assert_eq!(with(&[("OMPI_COMM_WORLD_SIZE", "x"), ("OMPI_COMM_WORLD_RANK", "0")]), (1, 0));
    }
}
