//! `bella landscape`: computes train and test error over the plane through three particles of a run.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;

use super::failure::Usage;
use super::opened::{Opened, Overrides};
use super::options::ComputeArgs;
use crate::analysis::landscape::{Plane, errors};
use crate::data::SplitName;
use crate::data::batches::SampleSet;
use crate::data::subset::{Subset, chosen};
use crate::results::store::{self, Table};

/// Compute train and test error over the plane through three particles (landscape.csv and landscape.svg in the run).
#[derive(Args)]
#[command(after_help = "Example:\n  bella landscape low-rank-svgd-s1 --particles 0,1,2 --grid 21 --samples 2000")]
pub struct LandscapeArgs {
    /// Run: its folder, the start of its id, or settings [default: the latest finished run].
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
    overrides: Overrides,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &LandscapeArgs) -> Result<()> {
    if !(0.0..=10.0).contains(&args.margin) {
        return Err(Usage(format!("--margin {}: must be from 0 to 10", args.margin)).into());
    }
    let opened = Opened::run(args.run.as_deref(), &args.overrides, &args.compute)?;
    let theta = opened.stored()?.posterior.theta();
    let count = theta.size()[0];
    ensure!(count > 2, "{}: this run has {count} of the three particles that a plane needs", opened.run.id());
    let three = args.particles.len() == 3 && args.particles.iter().all(|i| (0..count).contains(i));
    if !three {
        let why =
            format!("--particles {:?}: name three of this run's {count} particles, counted from 0", args.particles);
        return Err(Usage(why).into());
    }
    let rows = theta.index_select(0, &tch::Tensor::from_slice(&args.particles).to_device(theta.device()));
    let subspace = opened.session.subspace()?;
    let plane = Plane::through(subspace, &rows).with_context(|| format!("--particles {:?}", args.particles))?;
    let points = plane.grid(usize::from(args.grid), args.margin);
    let coefficients: Vec<[f64; 3]> = points.iter().map(|point| plane.coefficients(*point)).collect();
    let sizes = (usize::from(args.chunk), opened.batch_size(None));
    let over = |split| -> Result<Vec<f64>> {
        let images = subset(&opened, split, args.samples as usize)?;
        errors(&opened.session.model, subspace, &rows, &coefficients, &images, sizes)
    };
    let (train, test) = (over(SplitName::Train)?, over(SplitName::Test)?);
    let (csv, marks) = (opened.run.path().join("landscape.csv"), opened.run.path().join("landscape-particles.csv"));
    let lines = points.iter().zip(train.iter().zip(&test)).map(|((x, y), (train, test))| [*x, *y, *train, *test]);
    write(&csv, ["x", "y", "train_error", "test_error"], lines)?;
    let named = args.particles.iter().zip(plane.particles()).map(|(particle, (x, y))| [*particle as f64, x, y]);
    write(&marks, ["particle", "x", "y"], named)?;
    let picture = opened.run.path().join("landscape.svg");
    crate::report::figures::landscape::draw(&csv, &marks, &picture)?;
    let best = |errors: &[f64]| errors.iter().copied().fold(f64::INFINITY, f64::min);
    println!("lowest error on the plane: train {:.4}, test {:.4}", best(&train), best(&test));
    tracing::info!("picture: {}, numbers: {}", picture.display(), csv.display());
    Ok(())
}

/// Returns `count` images of a split, or all if it has fewer, taken from the classes in turn.
fn subset(opened: &Opened, split: SplitName, count: usize) -> Result<SampleSet> {
    let split_images = opened.session.load(&opened.experiment, split)?;
    let count = count.min(split_images.len());
    let chosen = chosen(Some(Subset::Each(count)), split, &split_images.labels)?;
    let chosen = chosen.ok_or_else(|| anyhow!("{split}: no images"))?;
    SampleSet::new(split_images.select(&chosen), opened.session.device, opened.session.settings.workers)
}

fn write<const N: usize>(path: &Path, header: [&str; N], lines: impl Iterator<Item = [f64; N]>) -> Result<()> {
    let mut table = Table::new(header);
    table.rows.extend(lines.map(|line| line.map(|value| value.to_string()).to_vec()));
    store::write(path, &table)
}
