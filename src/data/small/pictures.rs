//! Made-up pictures: waves of different phases and colours, so that no two labels look alike and files compress roughly
//! like photographs.

use std::io::Cursor;

use anyhow::{Context, Result};
use image::{ImageFormat, RgbImage};

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
