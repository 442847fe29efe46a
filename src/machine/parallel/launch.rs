//! A launcher's environment variables that tell each process its rank and the number of processes.

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
