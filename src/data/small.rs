//! Small data sets of made-up samples in the layouts of the published ones, so that bella's own readers read them: rehearsals
//! and tests use them. Each data set writes its own layout, beside its reader; here is what the writers share.

use std::io::Cursor;

use anyhow::{Context, Result};
use image::{ImageFormat, RgbImage};

use super::split::SplitName;

/// A data set that writes a small one in its layout, to the files that its reader looks for.
pub trait SmallSet {
    /// Returns the number of pixels per side of the published images, roughly if they differ; 0 for texts and numbers.
    fn side(&self) -> u32 {
        0
    }

    /// Returns the keys of the set's table that a small set needs and the published files do not. They are among the settings
    /// when the small set is written and read.
    fn overrides(&self, _sizes: &Sizes) -> toml::Table {
        toml::Table::new()
    }

    /// Writes the files below the root.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    fn write(&self, sizes: &Sizes) -> Result<()>;
}

/// The sizes of a small set.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The number of classes of the set.
    pub classes: usize,
    /// The number of classes that have samples. The labels are `0, 1, …` in turn.
    pub present: usize,
    pub train: usize,
    pub val: usize,
    /// The number of samples of each test set.
    pub test: usize,
    /// The number of pixels per side of image files, unless the layout fixes it.
    pub side: u32,
    /// The largest number of corruptions, for sets with corrupted versions.
    pub corruptions: usize,
}

impl Sizes {
    /// Returns the label of the `i`-th sample of a split.
    pub fn label(&self, i: usize) -> usize {
        i % self.present.max(1)
    }

    /// Returns the number of samples of a split.
    pub fn of(&self, split: SplitName) -> usize {
        match split {
            SplitName::Train => self.train,
            SplitName::Val => self.val,
            SplitName::Test => self.test,
        }
    }
}

/// The number of distinct pictures in one set. Further images repeat them.
const DISTINCT: usize = 64;

/// Returns the value of one channel of image `seed` at a pixel.
pub fn value(seed: usize, channel: usize, row: usize, column: usize) -> u8 {
    let wave = (row * (3 + seed % 5) + column * (2 + seed % 7) + channel * 31 + seed * 53) % 512;
    let smooth = if wave < 256 { wave } else { 511 - wave };
    let grain = (row * 31 + column * 17 + seed * 101 + channel * 7) % 13;
    ((smooth + grain) % 256) as u8
}

/// Returns an image `[3, side, side]`, channel by channel and row by row.
pub fn planar(seed: usize, side: usize) -> Vec<u8> {
    let place = |at: usize| (at / (side * side), at / side % side, at % side);
    (0..3 * side * side).map(place).map(|(channel, row, column)| value(seed, channel, row, column)).collect()
}

/// Encoded pictures of one size and format, each made once.
pub struct Pictures {
    side: u32,
    format: ImageFormat,
    made: Vec<Option<Vec<u8>>>,
}

impl Pictures {
    /// Returns pictures of `side` pixels per side, none of them encoded yet.
    pub fn new(side: u32, format: ImageFormat) -> Pictures {
        Pictures { side, format, made: vec![None; DISTINCT] }
    }

    /// Returns the bytes of a file with picture `seed`.
    ///
    /// # Errors
    /// Fails if the format cannot be written.
    pub fn file(&mut self, seed: usize) -> Result<&[u8]> {
        let place = seed % DISTINCT;
        if self.made[place].is_none() {
            let pixel = |x: u32, y: u32| image::Rgb([0, 1, 2].map(|c| value(place, c, y as usize, x as usize)));
            let mut bytes = Cursor::new(Vec::new());
            let picture = RgbImage::from_fn(self.side, self.side, pixel);
            picture.write_to(&mut bytes, self.format).context("cannot encode a made-up picture")?;
            self.made[place] = Some(bytes.into_inner());
        }
        Ok(self.made[place].as_deref().unwrap_or_default())
    }
}

/// Every word of a made text. The tokenizer of a rehearsal knows each as one token.
pub const WORDS: [&str; 32] = [
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as", "his", "they", "be",
    "at", "one", "have", "this", "from", "or", "had", "by", "not", "but", "some", "what", "there", "we", "can",
];

/// Returns a text of so many words, which depends on `number`.
pub fn text(words: usize, number: usize) -> String {
    let word = |at: usize| WORDS[(7 * number + at * at + at) % WORDS.len()];
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}
