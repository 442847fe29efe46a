//! The cases that the options of `bella bench` ask for.

use super::options::BenchArgs;
use crate::bench::case::{BenchMethod, Choices, Source};

/// Returns all combinations of the lists.
pub fn cases(args: &BenchArgs) -> Vec<(Source<'_>, Choices)> {
    let mut cases = Vec::new();
    for source in args.sources() {
        for precision in args.precisions() {
            for (subspace, method, particles) in combinations(args) {
                let choices = Choices {
                    subspace,
                    method,
                    particles,
                    batch_size: args.batch_size,
                    rank: args.rank,
                    blocks: args.blocks.clone(),
                    precision,
                    particle_chunk: args.particle_chunk.clone(),
                    recompute: args.recompute,
                    sets: args.sets.clone(),
                };
                cases.push((source, choices));
            }
        }
    }
    cases
}

/// Returns the subspace, method and number of particles of each case.
fn combinations(args: &BenchArgs) -> Vec<(String, BenchMethod, i64)> {
    if args.table2 {
        let named = |word: &'static str| BenchMethod::all().into_iter().filter(move |method| method.word() == word);
        let of = |subspace: &'static str, word: &'static str, counts: &'static [i64]| {
            named(word).flat_map(move |method| counts.iter().map(move |n| (subspace.to_string(), method, *n)))
        };
        let counts = &[3, 5, 20, 40, 100];
        return of("full", "map", &[1])
            .chain(of("full", "svgd", counts))
            .chain(of("low-rank", "svgd", counts))
            .collect();
    }
    let mut all: Vec<(String, BenchMethod, i64)> = Vec::new();
    for subspace in &args.subspaces {
        for method in &args.methods {
            for particles in &args.particles {
                let case = (subspace.clone(), *method, method.particles(*particles));
                if !all.iter().any(|known| (&known.0, known.1.word(), known.2) == (&case.0, case.1.word(), case.2)) {
                    all.push(case);
                }
            }
        }
    }
    all
}
