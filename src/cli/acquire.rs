//! `bella acquire`: chooses the images of a pool to label next.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::options::{ComputeArgs, PlaceArgs};
use super::output::Output;
use crate::base::files::expect_writable;
use crate::base::outside::{csv_cell, path_text};
use crate::base::small::{Usage, counted};
use crate::data::Medium;
use crate::inference::acquire::{Asked, Entry, Next, RULES, acquire};
use crate::predict::inputs::{Input, collect};
use crate::run::RunFolder;
use crate::schema::{find, keys};
use crate::session::Opened;

/// Choose the images of a pool to label next, as a list that [data.list] reads.
///
/// The list has a row per image, the most wanted first: its path, an empty label to fill in, the split `train`, the score of
/// the rule and the predicted class. Images among the training or held-out images of the run are left out, and so are
/// copies of an image of the pool; a warning says how many.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella acquire low-rank-svgd-s1 pool/ --by mi --count 100 -o next.csv\n  \
    bella acquire low-rank-svgd-s1 pool/ --by batchbald --count 5\n  \
    bella acquire low-rank-svgd-s1 pool/ --by core-set --count 100 --folder-labels    # pool/CLASS/IMAGE")]
pub struct AcquireArgs {
    /// Run: its folder, the start of its id, settings, or `latest`.
    #[arg(add = super::completions::of_runs())]
    run: String,

    /// Image files or folders to choose from.
    #[arg(required = true)]
    pool: Vec<PathBuf>,

    #[arg(help = format!("Rule: {}", keys(RULES)))]
    #[arg(long, value_name = "RULE", default_value = "mi", value_parser = |text: &str| find(RULES, text))]
    by: &'static Entry,

    /// Number of images to choose.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,

    /// Take the name of each image's folder as its label, as in pools of images whose labels are known.
    #[arg(long)]
    folder_labels: bool,

    /// Write the list to a file instead of standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Seed of a random choice; 0 by default.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,

    /// Images per forward pass.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_size: Option<u32>,

    #[command(flatten)]
    places: PlaceArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &AcquireArgs) -> Result<()> {
    args.output.iter().try_for_each(|path| expect_writable(path))?;
    if args.seed.is_some() && !args.by.is_seeded {
        let why = format!("--seed: --by {} draws no random numbers: leave it out", args.by.key);
        return Err(Usage(why).into());
    }
    if let Some(classes) = RunFolder::find(args.compute.out(), Some(&args.run))?.classes() {
        args.by.check_count(args.count as usize, classes)?;
    }
    let pool = collect(&args.pool, &mut std::io::stdin().lock())?;
    if let Some(why) = pool.images.iter().find_map(|input| input.problem.clone()) {
        return Err(Usage(format!("{why}: name image files or folders with images")).into());
    }
    args.check_names(&pool.images)?;
    let opened = Opened::run(Some(&args.run), &args.places.overrides(), args.compute.reading())?;
    if opened.experiment.checkpoint.medium() != Medium::Images {
        return Err(Usage("bella acquire: this run does not take images alone: name a run that does".into()).into());
    }
    let asked = Asked { count: args.count as usize, seed: args.seed.unwrap_or(0) };
    let chosen = acquire(args.by, &opened, &pool.images, asked, args.batch_size)?;
    args.write(&chosen)?;
    let place = args.output.as_ref().map_or_else(String::new, |path| format!(": {}", path.display()));
    tracing::info!("chose {} by {}{place}", counted(chosen.len(), "image", "images"), args.by.key);
    Ok(())
}

impl AcquireArgs {
    /// Refuses images that the list could not name, before any is predicted.
    fn check_names(&self, pool: &[Input]) -> Result<()> {
        for Input { path, .. } in pool {
            listed(path)?;
        }
        Ok(())
    }

    /// Writes the list. Paths are absolute, so that the list may lie anywhere.
    fn write(&self, chosen: &[Next]) -> Result<()> {
        let output = Output::open(self.output.as_deref())?;
        let mut writer = csv::Writer::from_writer(output.writer()?);
        writer.write_record(["path", "label", "split", "score", "predicted"])?;
        for Next { path, score, predicted } in chosen {
            // A link stays one: the folder that holds it has the name of its class.
            let path = listed(path)?;
            let folder = path.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
            let label = if self.folder_labels { folder.to_string_lossy() } else { "".into() };
            writer.write_record([
                &path_text(&path),
                &csv_cell(&label),
                "train",
                &score.to_string(),
                &csv_cell(predicted),
            ])?;
        }
        writer.flush()?;
        output.finish()
    }
}

/// Returns the path of an image as the list has it.
fn listed(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("{}: cannot find", path.display()))?;
    ensure!(
        path.to_str().is_some(),
        "{}: its name is no UTF-8, and so a list cannot have it: rename it",
        path_text(&path)
    );
    Ok(path)
}
