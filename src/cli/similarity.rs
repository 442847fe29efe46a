//! `bella similarity`: measures how similar the particles of a run are.

use anyhow::{Context, Result};
use clap::Args;

use super::options::{ComputeArgs, PlaceArgs};
use crate::analysis::similarity::{Similarity, of_run};
use crate::session::Opened;

/// Compute pairwise cosines and distances of the particles' updates (similarity.csv in the run).
#[derive(Args)]
#[command(after_help = "Example:\n  bella similarity low-rank-svgd-s1")]
pub struct SimilarityArgs {
    /// Run: its folder, the start of its id, settings, or `latest` [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    #[command(flatten)]
    places: PlaceArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &SimilarityArgs) -> Result<()> {
    let opened = Opened::run(args.run.as_deref(), &args.places.overrides(), args.compute.computing())?;
    let (all, path) = of_run(&opened)?;
    let total = all.first().context("a subspace has at least one block")?;
    print(total, opened.stored()?.posterior.theta().size()[0] as usize);
    tracing::info!("per block: {}", path.display());
    Ok(())
}

fn print(total: &Similarity, particles: usize) {
    println!("cosine of the updates of all layers, particles 0 to {}", particles - 1);
    let cell = |cosine: &Option<f64>| cosine.map_or("     -".to_string(), |cosine| format!("{cosine:8.4}"));
    for row in total.cosines.chunks_exact(particles) {
        println!("{}", row.iter().map(cell).collect::<Vec<_>>().join(" "));
    }
    let pairs = (0..particles * particles).filter(|pair| pair / particles != pair % particles);
    let distances: Vec<f64> = pairs.map(|pair| total.distances[pair]).collect();
    println!("mean pairwise distance {:.4}", distances.iter().sum::<f64>() / distances.len() as f64);
}
