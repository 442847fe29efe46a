//! Sheets of images: the test images of a run that say most of it (the most confidently wrong, the least and the most certain
//! ones), and the training images that its posterior depends on most and least.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::analysis::sensitivity::{Sensitivities, Sensitivity};
use crate::data::{Fingerprint, Medium, Request, Split, SplitName};
use crate::experiment::Overrides;
use crate::inference::{Extremes, Offered};
use crate::machine::cores;
use crate::metrics::Uncertainty;
use crate::plot::contact_sheet::{self, Section, Sheet, Tile};
use crate::predict::inputs::Prediction;
use crate::predictions::Predictions;
use crate::results::CLEAN;
use crate::run::IMAGES;
use crate::run::{RunFolder, open_predictions};
use crate::session::Named;
use crate::tasks::has_logits;

/// The side in pixels of images that are read from files.
const SIDE: usize = 224;

/// Returns the images of a run's own test sets with its saved predictions on them. No network is opened. `None` if the run
/// has no images, or no predictions on clean ones.
///
/// # Errors
/// Fails if a test set cannot be read, if its images are not those that were predicted, or, as bad usage, if the overrides change what the
/// run was trained with.
pub fn of_run(run: &RunFolder, overrides: &Overrides) -> Result<Option<Extremes>> {
    let named = Named::of(run.clone(), overrides)?;
    if named.experiment.checkpoint.medium() != Medium::Images {
        return Ok(None);
    }
    let mut saved = vec![];
    for file in run.predicted_files()?.into_iter().filter(|file| has_logits(file)) {
        let fact = |key: &str| Predictions::described(&file, key);
        if fact("condition")?.as_deref() == Some(CLEAN) && fact("predictive")?.is_none_or(|name| name.is_empty()) {
            saved.push(file);
        }
    }
    let mut extremes = None;
    for split in if saved.is_empty() { vec![] } else { splits(&named)? } {
        let fingerprint = Fingerprint::of(&split)?.short();
        let is_own = |file: &&std::path::PathBuf| {
            Predictions::described(file, IMAGES).is_ok_and(|images| images.as_deref() == Some(&*fingerprint))
        };
        let file = saved.iter().find(is_own);
        let file = file.with_context(|| {
            format!("{}: not the images that {} predicted: evaluate it again (bella eval)", split.name, run.id())
        })?;
        offer(&split, file, extremes.get_or_insert_default())?;
    }
    Ok(extremes)
}

/// Reads the test sets of a run.
fn splits(named: &Named) -> Result<Vec<Split>> {
    let request = Request { image_size: SIDE, ..Request::listing(cores(), &|_, _| ()) };
    named.test_images(|set| set.load(SplitName::Test, &request))
}

fn offer(split: &Split, file: &Path, extremes: &mut Extremes) -> Result<()> {
    let predictions = open_predictions(file)?;
    let labels = predictions.labels().with_context(|| format!("{}: has no labels", file.display()))?;
    ensure!(labels.len() == split.len(), "{}: {} predictions of {} images", file.display(), labels.len(), split.len());
    let uncertainty = Uncertainty::compute(&predictions)?;
    let classes = predictions.names_or_numbers();
    for (at, label) in labels.iter().enumerate() {
        let prediction = Prediction::of(&predictions, &uncertainty, at, &classes)?;
        let path = split.sample_name(at);
        let image = || split.inputs.image(at);
        let label = Some(classes[*label as usize].as_str());
        extremes.offer(Offered { path: &path, label, size: split.inputs.size() }, &prediction, image)?;
    }
    Ok(())
}

/// The number of images per section.
const SHOWN: usize = 12;

/// Draws the most and the least sensitive images of a run as a contact sheet.
///
/// # Errors
/// Fails if an image cannot be read, or if the file cannot be written.
pub fn draw_sensitivities(all: &Sensitivities, classes: &[String], run: &str, path: &Path) -> Result<()> {
    let Sensitivities { split, found, replaced, .. } = all;
    let shown = SHOWN.min(found.len());
    let tiles = |of: &[Sensitivity]| -> Result<Vec<Tile>> {
        of.iter().map(|one| tile(classes, split, one, replaced)).collect()
    };
    let mut least = found[found.len() - shown..].to_vec();
    least.reverse();
    let sections = vec![
        Section { heading: "Most sensitive".into(), tiles: tiles(&found[..shown])? },
        Section { heading: "Least sensitive".into(), tiles: tiles(&least)? },
    ];
    let note = "The label, the sensitivity to the image, and its loss in nats.".to_string();
    contact_sheet::draw(&Sheet { title: run.to_string(), note, sections, columns: 6 }, path)
}

fn tile(classes: &[String], split: &Split, one: &Sensitivity, replaced: &BTreeSet<u32>) -> Result<Tile> {
    let (height, width) = split.inputs.size();
    let pixels = split.inputs.image(one.index as usize)?;
    let noted = if replaced.contains(&one.index) { " (replaced)" } else { "" };
    let lines = vec![
        format!("{}{noted}", classes[one.label as usize]),
        format!("{:.3e}", one.sensitivity),
        format!("loss {:.3}", one.loss),
    ];
    Ok(Tile { pixels, height, width, lines })
}
