//! The images of a contact sheet: the most and the least certain ones, and the most confidently wrong ones.

use std::path::Path;

use anyhow::Result;

use crate::plot::contact_sheet::{Section, Sheet, Tile, draw, png};
use crate::predict::inputs::Prediction;

/// The images with the lowest and the highest predictive entropy so far, and the wrong ones with the highest
/// probability.
#[derive(Default)]
pub struct Extremes {
    certain: Chosen,
    uncertain: Chosen,
    wrong: Chosen,
}

/// An image that may be shown.
#[derive(Clone, Copy)]
pub struct Offered<'a> {
    pub path: &'a Path,
    /// The true class, if it is known.
    pub label: Option<&'a str>,
    /// Height and width in pixels.
    pub size: (usize, usize),
}

/// The tiles with the lowest keys, sorted by them.
#[derive(Default)]
struct Chosen(Vec<(f64, Tile)>);

impl Chosen {
    /// The number of images per section.
    const SHOWN: usize = 12;

    /// Returns the place of an image with this key; `None` if it is not among the first.
    fn place(&self, key: f64) -> Option<usize> {
        Some(self.0.partition_point(|(other, _)| *other <= key)).filter(|place| *place < Self::SHOWN)
    }

    fn section(&self, heading: &str) -> Section {
        Section { heading: heading.to_string(), tiles: self.0.iter().map(|(_, tile)| tile.clone()).collect() }
    }
}

impl Extremes {
    /// Offers an image with its prediction. `pixels` reads the image, `[3, height, width]`, if it is kept.
    ///
    /// # Errors
    /// Fails if the image cannot be read.
    pub fn offer(
        &mut self,
        Offered { path, label, size: (height, width) }: Offered,
        prediction: &Prediction,
        pixels: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<()> {
        let entropy = prediction.predictive_entropy;
        let is_wrong = label.is_some_and(|label| label != prediction.class);
        let offers = [
            (&mut self.certain, entropy, true),
            (&mut self.uncertain, -entropy, true),
            (&mut self.wrong, -prediction.probability, is_wrong),
        ];
        let kept = offers.into_iter().filter(|(_, _, counts)| *counts);
        let kept: Vec<_> = kept.filter_map(|(list, key, _)| Some((list.place(key)?, key, list))).collect();
        if kept.is_empty() {
            return Ok(());
        }
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let lines = [
            prediction.class.clone(),
            label.map_or_else(String::new, |label| format!("true: {label}")),
            format!("p {:.3}  H {entropy:.3}", prediction.probability),
            prediction.mutual_information.map_or_else(String::new, |mi| format!("MI {mi:.4}")),
            name,
        ];
        let lines = lines.into_iter().filter(|line| !line.is_empty()).collect();
        let tile = Tile { pixels: pixels()?, height, width, lines };
        for (place, key, list) in kept {
            list.0.insert(place, (key, tile.clone()));
            list.0.truncate(Chosen::SHOWN);
        }
        Ok(())
    }

    /// Draws them as a contact sheet of a run.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn draw(&self, run: &str, path: &Path) -> Result<()> {
        draw(&self.sheet(run), path)?;
        tracing::info!("contact sheet: {}", path.display());
        Ok(())
    }

    /// Returns the contact sheet of a run as PNG.
    ///
    /// # Errors
    /// Fails if it cannot be drawn.
    pub fn png(&self, run: &str) -> Result<Vec<u8>> {
        png(&self.sheet(run))
    }

    fn sheet(&self, run: &str) -> Sheet {
        Sheet {
            title: run.to_string(),
            note: "p: probability of the class. H: predictive entropy, MI: mutual information, both in nats.".into(),
            sections: vec![
                self.wrong.section("Most confidently wrong"),
                self.uncertain.section("Least certain"),
                self.certain.section("Most certain"),
            ],
            columns: 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn prediction(entropy: f64) -> Prediction {
        Prediction {
            class: "cat".into(),
            probability: 1.0 - entropy,
            predictive_entropy: entropy,
            expected_entropy: entropy,
            mutual_information: None,
            disagreement: None,
            probabilities: vec![],
        }
    }

    #[test]
    fn each_section_has_its_images_the_furthest_first() {
        let mut extremes = Extremes::default();
        // The larger its number, the less certain an image is; those of odd numbers are wrong.
        for at in (0..30).map(|i| i * 7 % 30) {
            let (path, label) = (format!("a/{at}"), if at % 2 == 0 { "cat" } else { "dog" });
            let offered = Offered { path: Path::new(&path), label: Some(label), size: (1, 1) };
            extremes.offer(offered, &prediction(f64::from(at) / 100.0), || Ok(vec![0; 3])).unwrap();
        }
        let unlabelled = Offered { path: Path::new("between"), label: None, size: (1, 1) };
        extremes.offer(unlabelled, &prediction(0.155), || bail!("no section has it")).unwrap();
        let sheet = extremes.sheet("run");
        let name = |tile: &Tile| tile.lines.last().unwrap().parse::<u32>().unwrap();
        let found: Vec<(&str, Vec<u32>)> =
            sheet.sections.iter().map(|one| (one.heading.as_str(), one.tiles.iter().map(name).collect())).collect();
        let expected: [(&str, Vec<u32>); 3] = [
            ("Most confidently wrong", (0..12).map(|i| 2 * i + 1).collect()),
            ("Least certain", (18..30).rev().collect()),
            ("Most certain", (0..12).collect()),
        ];
        assert_eq!(found, expected);
    }
}
