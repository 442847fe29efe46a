//! The definition of a corruption, and the image that it works on.

use anyhow::Result;
use rand_chacha::ChaCha12Rng;

/// A way to corrupt an image, at severities 1 to 5.
pub struct Corruption {
    /// The name in configs and results.
    pub key: &'static str,
    /// A description in one line for `bella list`.
    pub about: &'static str,
    /// Corrupts one image in place. The severity is from 1 to 5.
    pub(super) apply: fn(&mut Picture, severity: usize, &mut ChaCha12Rng) -> Result<()>,
}

/// One image, `pixels: [3, height, width]`.
pub struct Picture<'a> {
    pub pixels: &'a mut [u8],
    pub height: usize,
    pub width: usize,
}

impl Picture<'_> {
    /// Replaces every value x in `[0, 1]` by `f(x)`, clipped and rounded.
    pub fn map(&mut self, mut f: impl FnMut(f64) -> f64) {
        self.pixels.iter_mut().for_each(|value| *value = byte(f(f64::from(*value) / 255.0)));
    }

    /// Replaces the colour (r, g, b) of every pixel, in `[0, 1]`, by `f` of it, clipped and rounded.
    pub fn map_colors(&mut self, f: impl Fn([f64; 3]) -> [f64; 3]) {
        let plane = self.height * self.width;
        for i in 0..plane {
            let color = f([0, 1, 2].map(|c| f64::from(self.pixels[c * plane + i]) / 255.0));
            (0..3).for_each(|c| self.pixels[c * plane + i] = byte(color[c]));
        }
    }
}

/// Converts a value in `[0, 1]` to the nearest byte. Values outside are clipped.
pub fn byte(value: f64) -> u8 {
    (value * 255.0).round().clamp(0.0, 255.0) as u8
}
