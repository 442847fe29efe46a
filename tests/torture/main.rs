//! Torture: kills before every operation on files, disks that fill up or fail, flipped bits of what bella wrote, swapped and
//! edited files, damaged inputs of every format that it reads, numbers at the edges of their ranges, devices and links as
//! inputs and as targets, and mapped files that are cut off. All of it follows from a seed.
//!
//! By default a small part runs, in less than a minute. Variables ask for more (`scripts/torture.sh` sets them):
//! `TORTURE_KILLS`, `TORTURE_FAULTS`, `TORTURE_FLIPS`, `TORTURE_SWAPS`, `TORTURE_INPUTS`, `TORTURE_TARGETS`, `TORTURE_CUTS`,
//! `TORTURE_NUMBERS` and `TORTURE_STREAMS` are the numbers of cases, `TORTURE_SEED` is the seed, `TORTURE_FORMAT` names the only
//! format whose inputs are damaged (`TorchScript`), and `TORTURE_BELLA` another program than the one that was just built. Every
//! part prints its counts.

mod bounded;
#[path = "../common/mod.rs"]
mod common;
mod containers;
#[cfg(unix)]
mod cuts;
mod disks;
mod flips;
mod inputs;
mod languages;
mod mutate;
mod numbers;
#[cfg(unix)]
mod outputs;
mod reference;
#[cfg(unix)]
mod streams;
mod swaps;
mod targets;

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

/// The value of a variable that is a number.
fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} = {text}: must be a whole number")),
        Err(_) => default,
    }
}

/// The random numbers of one case.
fn random(purpose: u64, case: u64) -> ChaCha12Rng {
    let seed = variable("TORTURE_SEED", 1);
    ChaCha12Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (purpose << 56) ^ case)
}
