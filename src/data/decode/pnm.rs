//! The samples of PGM and PPM files as bytes, rounded like Pillow: `round(value / largest * 255)` with halves to the even number. The
//! decoder rounds twice on its way to bytes, so the file is given to it with a largest value that it does not scale.

use std::ops::Range;

use anyhow::{Result, ensure};
use image::DynamicImage;

/// The largest value that a PGM or PPM states.
pub struct Largest {
    value: u32,
    place: Range<usize>,
    /// Whether values are written as text.
    is_plain: bool,
}

impl Largest {
    /// Finds it in the header; `None` in files of other kinds, where it is no value that a decoder takes, and where it is the usual one
    /// of bytes, which nothing scales.
    pub fn of(bytes: &[u8]) -> Option<Largest> {
        let is_plain = match bytes.get(..2)? {
            b"P2" | b"P3" => true,
            b"P5" | b"P6" => false,
            _ => return None,
        };
        let mut place = 0..2;
        // Width and height stand before it.
        for _ in 0..3 {
            place = next_word(bytes, place.end)?;
        }
        let value = std::str::from_utf8(&bytes[place.clone()]).ok()?.parse().ok()?;
        ((1..=0xffff).contains(&value) && value != 255).then_some(Largest { value, place, is_plain })
    }

    /// Returns the file with the largest value that leaves samples as they are.
    pub fn unscaled(&self, bytes: &[u8]) -> Vec<u8> {
        let full: &[u8] = if self.value > 255 { b"65535" } else { b"255" };
        [&bytes[..self.place.start], full, &bytes[self.place.end..]].concat()
    }

    /// Returns the RGB bytes of the samples; `None` of images that are no such samples.
    ///
    /// # Errors
    /// Fails where a value that is written as text is above the largest.
    pub fn rgb(&self, samples: &DynamicImage) -> Result<Option<Vec<u8>>> {
        let (values, gray): (Vec<u16>, bool) = match samples {
            DynamicImage::ImageLuma8(image) => (image.iter().map(|value| (*value).into()).collect(), true),
            DynamicImage::ImageRgb8(image) => (image.iter().map(|value| (*value).into()).collect(), false),
            DynamicImage::ImageLuma16(image) => (image.to_vec(), true),
            DynamicImage::ImageRgb16(image) => (image.to_vec(), false),
            _ => return Ok(None),
        };
        if let Some(value) = values.iter().find(|value| self.is_plain && u32::from(**value) > self.value) {
            anyhow::bail!("the value {value} is above the largest one that the header states, {}", self.value);
        }
        ensure!(!values.is_empty(), "it has no samples");
        let full = if gray && self.value > 255 { 65535.0 } else { 255.0 };
        // Pillow clips gray of 16 bits at 255.
        let byte = |value: u16| (f64::from(value) / f64::from(self.value) * full).round_ties_even().min(255.0) as u8;
        let times = if gray { 3 } else { 1 };
        Ok(Some(values.into_iter().flat_map(|value| std::iter::repeat_n(byte(value), times)).collect()))
    }
}

/// Returns the place of the first word from `at` on; a comment reaches from `#` to the end of its line. `None` for a word that a comment
/// interrupts, since the decoder joins its parts.
fn next_word(bytes: &[u8], mut at: usize) -> Option<Range<usize>> {
    loop {
        match *bytes.get(at)? {
            b'#' => at += bytes[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r'))?,
            byte if byte.is_ascii_whitespace() || byte == 0x0b => at += 1,
            _ => break,
        }
    }
    let length = bytes[at..].iter().position(|byte| !byte.is_ascii_digit())?;
    (length > 0 && bytes[at + length] != b'#').then_some(at..at + length)
}
