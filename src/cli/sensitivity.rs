//! `bella sensitivity`: finds the training images that a Gaussian posterior depends on most.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use clap::Args;

use super::opened::{Opened, Overrides};
use super::options::ComputeArgs;
use crate::analysis::sensitivity::{Sensitivity, sensitivities};
use crate::data::batches::SampleSet;
use crate::data::order::replaced_labels;
use crate::data::{Split, SplitName};
use crate::machine::Precision;
use crate::plot::contact_sheet::{Section, Tile, draw};
use crate::results::store::{self, Table};

/// Compute the sensitivity to each training image, and the leave-one-out estimate of the test loss (sensitivity.csv in
/// the run).
///
/// Needs a Gaussian posterior in a low-rank subspace ([method.ivon]).
#[derive(Args)]
#[command(after_help = "Example:\n  bella sensitivity low-rank-ivon-s1 --samples 2000")]
pub struct SensitivityArgs {
    /// Run: its folder, the start of its id, or settings [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    /// Number of training images, from the first on [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    samples: Option<u32>,

    /// Override a key that locates the data, such as data.cifar10.root=/data.
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Number type to compute in: f32, bf16, f64 or auto [default: as in training].
    #[arg(long, value_name = "TYPE")]
    precision: Option<Precision>,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// The number of images per section of the picture.
const SHOWN: usize = 12;

pub fn run(args: &SensitivityArgs) -> Result<()> {
    let overrides = Overrides { data: None, sets: args.sets.clone(), precision: args.precision };
    let opened = Opened::run(args.run.as_deref(), &overrides, &args.compute)?;
    let (experiment, session) = (&opened.experiment, &opened.session);
    let split = session.load(experiment, SplitName::Train)?;
    let replaced = replaced_labels(experiment.seed, split.len(), experiment.data.label_noise);
    let replaced: BTreeSet<u32> = replaced.into_iter().collect();
    let mut trained_on = experiment.data.validation.holdout(experiment.seed, &split.labels).train;
    trained_on.truncate(args.samples.map_or(usize::MAX, |count| count as usize));
    let set = SampleSet::new(split.clone(), session.device, session.settings.workers)?;
    let bar = crate::base::logging::bar(trained_on.len() as u64, "images");
    let posterior = &opened.stored()?.posterior;
    let mut found = sensitivities(&session.model, session.subspace()?, posterior, (&set, &trained_on), &bar)?;
    bar.finish_and_clear();
    ensure!(found.iter().all(|one| one.sensitivity.is_finite()), "a sensitivity is not finite: try --precision f32");
    let mean = |of: fn(&Sensitivity) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
    println!(
        "{} training images: loss {:.4}, leave-one-out loss {:.4}",
        found.len(),
        mean(|s| s.loss),
        mean(|s| s.loo_loss)
    );
    found.sort_by(|a, b| b.sensitivity.total_cmp(&a.sensitivity));
    if !replaced.is_empty() {
        let top = (found.len() as f64 * experiment.data.label_noise).round() as usize;
        let caught = found[..top].iter().filter(|one| replaced.contains(&one.index)).count();
        println!("{caught} of the {top} most sensitive images have a replaced label");
    }
    write(&opened, &found, &replaced)?;
    picture(&opened, &split, &found, &replaced)
}

fn write(opened: &Opened, found: &[Sensitivity], replaced: &BTreeSet<u32>) -> Result<()> {
    let path = opened.run.path().join("sensitivity.csv");
    let columns = ["index", "label", "class", "sensitivity", "variance", "error", "loss", "loo_loss", "label_replaced"];
    let mut table = Table::new(columns);
    for one in found {
        let class = opened.session.classes[one.label as usize].clone();
        let numbers = [one.sensitivity, one.variance, one.error, one.loss, one.loo_loss].map(|x| x.to_string());
        let mut cells = vec![one.index.to_string(), one.label.to_string(), class];
        cells.extend(numbers);
        cells.push(replaced.contains(&one.index).to_string());
        table.rows.push(cells);
    }
    store::write(&path, &table)?;
    tracing::info!("numbers: {}", path.display());
    Ok(())
}

/// Draws the most and the least sensitive images as a contact sheet.
fn picture(opened: &Opened, split: &Split, found: &[Sensitivity], replaced: &BTreeSet<u32>) -> Result<()> {
    let shown = SHOWN.min(found.len());
    let tiles =
        |of: &[Sensitivity]| -> Result<Vec<Tile>> { of.iter().map(|one| tile(opened, split, one, replaced)).collect() };
    let mut least = found[found.len() - shown..].to_vec();
    least.reverse();
    let sections = [
        Section { heading: "Most sensitive".into(), tiles: tiles(&found[..shown])? },
        Section { heading: "Least sensitive".into(), tiles: tiles(&least)? },
    ];
    let path = opened.run.path().join("sensitivity.png");
    draw(&sections, 6, &path)?;
    tracing::info!("picture: {}", path.display());
    Ok(())
}

fn tile(opened: &Opened, split: &Split, one: &Sensitivity, replaced: &BTreeSet<u32>) -> Result<Tile> {
    let (height, width) = split.inputs.size();
    let pixels = split.inputs.image(one.index as usize)?;
    let noted = if replaced.contains(&one.index) { " (replaced)" } else { "" };
    let lines = vec![
        format!("{}{noted}", opened.session.classes[one.label as usize]),
        format!("{:.3e}", one.sensitivity),
        format!("loss {:.3}", one.loss),
    ];
    Ok(Tile { pixels, height, width, lines })
}
