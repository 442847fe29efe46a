//! The training images that a posterior depends on most, and least.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::analysis::sensitivity::{Sensitivities, Sensitivity};
use crate::data::Split;
use crate::plot::contact_sheet::{self, Section, Sheet, Tile};

/// The number of images per section.
const SHOWN: usize = 12;

/// Draws the most and the least sensitive images of a run as a contact sheet.
///
/// # Errors
/// Fails if an image cannot be read, or if the file cannot be written.
pub fn draw(all: &Sensitivities, classes: &[String], run: &str, path: &Path) -> Result<()> {
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
