//! The most and the least certain ones among predicted images.

use std::path::Path;

use anyhow::Result;

use crate::plot::contact_sheet::{Section, Tile, draw};
use crate::predict::inputs::Prediction;

/// The images with the lowest and the highest predictive entropy so far.
#[derive(Default)]
pub struct Extremes {
    certain: Vec<(f64, Tile)>,
    uncertain: Vec<(f64, Tile)>,
}

impl Extremes {
    /// The number of images per section.
    const SHOWN: usize = 12;

    pub(super) fn offer(&mut self, path: &Path, prediction: &Prediction, pixels: &[u8], side: usize) {
        let entropy = prediction.predictive_entropy;
        let tile = || {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let lines = vec![
                prediction.class.clone(),
                format!("p {:.3}  H {entropy:.3}", prediction.probability),
                prediction.mutual_information.map_or_else(String::new, |mi| format!("MI {mi:.4}")),
                name,
            ];
            let lines = lines.into_iter().filter(|line| !line.is_empty()).collect();
            Tile { pixels: pixels.to_vec(), height: side, width: side, lines }
        };
        for (list, order) in [(&mut self.certain, entropy), (&mut self.uncertain, -entropy)] {
            let at = list.partition_point(|(other, _)| *other <= order);
            if at < Self::SHOWN {
                list.insert(at, (order, tile()));
                list.truncate(Self::SHOWN);
            }
        }
    }

    /// Draws them as a contact sheet.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<()> {
        let section = |heading: &str, list: &[(f64, Tile)]| Section {
            heading: heading.to_string(),
            tiles: list.iter().map(|(_, tile)| tile.clone()).collect(),
        };
        let sections = [section("Most certain", &self.certain), section("Least certain", &self.uncertain)];
        draw(&sections, 6, path)?;
        tracing::info!("contact sheet: {}", path.display());
        Ok(())
    }
}
