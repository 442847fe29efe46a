//! `bella landscape`: computes train and test error over the plane through three particles of a run.

use anyhow::Result;
use clap::Args;

use super::options::{ComputeArgs, OverrideArgs};
use crate::analysis::landscape::{Computed, Landscape};
use crate::base::small::Usage;
use crate::run::LANDSCAPE;
use crate::session::Opened;

/// Compute train and test error over the plane through three particles (landscape.csv and landscape.svg in the run).
#[derive(Args)]
#[command(after_help = "Example:\n  bella landscape low-rank-svgd-s1 --particles 0,1,2 --grid 21 --samples 2000")]
pub struct LandscapeArgs {
    /// Run: its folder, the start of its id, settings, or `latest` [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    /// Three particles, counted from 0.
    #[arg(long, value_name = "I,J,K", value_delimiter = ',', default_value = "0,1,2")]
    particles: Vec<i64>,

    /// Points along each side of the grid.
    #[arg(long, value_name = "N", default_value = "21", value_parser = clap::value_parser!(u16).range(2..=1001))]
    grid: u16,

    /// Margin of the grid around the triangle, as a share of its extent.
    #[arg(long, value_name = "SHARE", default_value = "0.4", allow_negative_numbers = true)]
    margin: f64,

    /// Number of images of the training and of the test split, taken from the classes in turn.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,

    /// Most grid points that go through the network at once.
    #[arg(long, value_name = "N", default_value = "9", value_parser = clap::value_parser!(u16).range(1..=4096))]
    chunk: u16,

    #[command(flatten)]
    overrides: OverrideArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &LandscapeArgs) -> Result<()> {
    if !(0.0..=10.0).contains(&args.margin) {
        return Err(Usage(format!("--margin {}: must be from 0 to 10", args.margin)).into());
    }
    let opened = Opened::run(args.run.as_deref(), &args.overrides.overrides(), args.compute.computing())?;
    let landscape = Landscape {
        particles: args.particles.clone(),
        grid: usize::from(args.grid),
        margin: args.margin,
        samples: args.samples as usize,
        chunk: usize::from(args.chunk),
    };
    let Computed { csv, marks, lowest: [train, test] } = landscape.compute(&opened)?;
    let picture = opened.run.path().join(LANDSCAPE[2]);
    crate::report::figures::landscape::draw(&csv, &marks, &picture)?;
    println!("lowest error on the plane: train {train:.4}, test {test:.4}");
    tracing::info!("picture: {}, numbers: {}", picture.display(), csv.display());
    Ok(())
}
