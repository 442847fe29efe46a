//! The corruptions, and the image that they work on: noise, which disturbs each value of each channel independently; a Gaussian blur
//! over rows and columns, where the last value is repeated beyond an edge; colour, which changes the contrast, or the value or saturation
//! of the HSV model; and digital ones, fewer pixels and JPEG compression.

use anyhow::{Context, Result};
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use libjpeg_turbo_rs::{Encoder, PixelFormat, Subsampling, decompress_to};
use rand_chacha::ChaCha12Rng;

use crate::base::random::{normal, uniform};
use crate::data::{Pixels, resize_pixels};
use crate::schema::keyed;

/// A way to corrupt an image, at severities 1 to 5.
pub struct Corruption {
    /// The name in configs and results.
    pub key: &'static str,
    /// A description in one line for `bella list`.
    pub about: &'static str,
    /// Corrupts one image in place. The severity is from 1 to 5.
    pub(super) apply: fn(&mut Picture, severity: usize, &mut ChaCha12Rng) -> Result<()>,
}

keyed!(Corruption, "corruption");

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

pub static GAUSSIAN_NOISE: Corruption = Corruption {
    key: "gaussian-noise",
    about: "x + N(0, s^2), s = 0.04 to 0.10",
    apply: |picture, severity, rng| {
        let scale = [0.04, 0.06, 0.08, 0.09, 0.10][severity - 1];
        picture.map(|x| x + scale * normal(rng));
        Ok(())
    },
};

pub static SHOT: Corruption = Corruption {
    key: "shot-noise",
    about: "Poisson(c x) / c, c = 500 to 50 photons",
    apply: |picture, severity, rng| {
        let photons = [500.0, 250.0, 100.0, 75.0, 50.0][severity - 1];
        shot(picture, photons, rng);
        Ok(())
    },
};

pub static IMPULSE: Corruption = Corruption {
    key: "impulse-noise",
    about: "a share p of the values is 0 or 255, p = 0.01 to 0.07",
    apply: |picture, severity, rng| {
        let share = [0.01, 0.02, 0.03, 0.05, 0.07][severity - 1];
        picture.map(|x| {
            let draw = uniform(rng);
            if draw >= share { x } else { f64::from(draw < share / 2.0) }
        });
        Ok(())
    },
};

pub static SPECKLE: Corruption = Corruption {
    key: "speckle-noise",
    about: "x + x N(0, s^2), s = 0.06 to 0.20",
    apply: |picture, severity, rng| {
        let scale = [0.06, 0.10, 0.12, 0.16, 0.20][severity - 1];
        picture.map(|x| x + x * scale * normal(rng));
        Ok(())
    },
};

/// Draws Poisson counts by inversion, with one table of sums for each byte value in the image.
fn shot(picture: &mut Picture, photons: f64, rng: &mut ChaCha12Rng) {
    let mut sums: Vec<Option<Vec<f64>>> = vec![None; 256];
    for value in picture.pixels.iter_mut() {
        let mean = photons * f64::from(*value) / 255.0;
        let sums = sums[usize::from(*value)].get_or_insert_with(|| poisson_sums(mean));
        let draw = uniform(rng);
        *value = byte(sums.partition_point(|&sum| sum <= draw) as f64 / photons);
    }
}

/// Returns P(count <= k) for k = 0, 1, … until it is within 1e-12 of 1.
fn poisson_sums(mean: f64) -> Vec<f64> {
    // exp(-500) is still a normal f64, so the sum can start with its smallest term.
    let mut term = (-mean).exp();
    let mut sums = vec![term];
    while sums[sums.len() - 1] < 1.0 - 1e-12 && (sums.len() as f64) < mean + 12.0 * mean.sqrt() + 20.0 {
        term *= mean / sums.len() as f64;
        sums.push(sums[sums.len() - 1] + term);
    }
    sums
}

pub static GAUSSIAN_BLUR: Corruption = Corruption {
    key: "gaussian-blur",
    about: "Gaussian of s = 0.4 to 1 pixel up to 32x32, in proportion on larger images",
    apply: |picture, severity, _| {
        let side = picture.height.min(picture.width) as f64;
        blur(picture, [0.4, 0.6, 0.7, 0.8, 1.0][severity - 1] * (side / 32.0).max(1.0));
        Ok(())
    },
};

fn blur(picture: &mut Picture, sigma: f64) {
    let kernel = kernel(sigma);
    let (height, width) = (picture.height, picture.width);
    for plane in picture.pixels.chunks_exact_mut(height * width) {
        let values: Vec<f64> = plane.iter().map(|&value| f64::from(value) / 255.0).collect();
        let rows = along(&values, &kernel, height, |line, at| line * width + at, width);
        let both = along(&rows, &kernel, width, |line, at| at * width + line, height);
        plane.iter_mut().zip(both).for_each(|(value, x)| *value = byte(x));
    }
}

/// Convolves each of `lines` lines of `length` values. `index(line, at)` is the position of a value.
fn along(
    values: &[f64],
    kernel: &[f64],
    lines: usize,
    index: impl Fn(usize, usize) -> usize,
    length: usize,
) -> Vec<f64> {
    let radius = kernel.len() / 2;
    let mut result = vec![0.0; values.len()];
    for line in 0..lines {
        for at in 0..length {
            let near = |(k, weight): (usize, &f64)| {
                weight * values[index(line, (at + k).saturating_sub(radius).min(length - 1))]
            };
            result[index(line, at)] = kernel.iter().enumerate().map(near).sum();
        }
    }
    result
}

/// Returns the normal density at whole distances up to 4 sigma, scaled to sum to 1.
fn kernel(sigma: f64) -> Vec<f64> {
    let radius = (4.0 * sigma + 0.5) as i64;
    let weights: Vec<f64> = (-radius..=radius).map(|d| (-0.5 * (d as f64 / sigma).powi(2)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

pub static CONTRAST: Corruption = Corruption {
    key: "contrast",
    about: "c (x - mean) + mean of each channel, c = 0.75 to 0.15",
    apply: |picture, severity, _| {
        let factor = [0.75, 0.50, 0.40, 0.30, 0.15][severity - 1];
        let plane = picture.height * picture.width;
        for channel in picture.pixels.chunks_exact_mut(plane) {
            let mean = channel.iter().map(|&value| f64::from(value)).sum::<f64>() / plane as f64;
            let less = |value: u8| (mean + factor * (f64::from(value) - mean)).round() as u8;
            channel.iter_mut().for_each(|value| *value = less(*value));
        }
        Ok(())
    },
};

pub static BRIGHTNESS: Corruption = Corruption {
    key: "brightness",
    about: "HSV value raised by 0.05 to 0.30",
    apply: |picture, severity, _| {
        let more = [0.05, 0.10, 0.15, 0.20, 0.30][severity - 1];
        picture.map_colors(|color| with_value(color, more));
        Ok(())
    },
};

pub static SATURATE: Corruption = Corruption {
    key: "saturate",
    about: "HSV saturation a s + b, from 0.3 s (paler) to 2.5 s + 0.2 (glaring)",
    apply: |picture, severity, _| {
        let (factor, more) = [(0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)][severity - 1];
        picture.map_colors(|color| with_saturation(color, |s| factor * s + more));
        Ok(())
    },
};

fn extremes(color: [f64; 3]) -> (f64, f64) {
    (color.into_iter().fold(1.0, f64::min), color.into_iter().fold(0.0, f64::max))
}

/// Raises the value (the largest channel) by `more`, to at most 1. Hue and saturation stay the same.
fn with_value(color: [f64; 3], more: f64) -> [f64; 3] {
    let (_, value) = extremes(color);
    let raised = (value + more).min(1.0);
    // Black has no hue, so it becomes gray.
    if value == 0.0 { [raised; 3] } else { color.map(|x| x * raised / value) }
}

/// Replaces the saturation (max - min) / max by `f` of it, limited to `[0, 1]`. Hue and value stay the same.
fn with_saturation(color: [f64; 3], f: impl Fn(f64) -> f64) -> [f64; 3] {
    let (least, value) = extremes(color);
    if least == value {
        // Gray has no hue, so it is taken as red, as in HSV conversion.
        let rest = value * (1.0 - f(0.0).clamp(0.0, 1.0));
        return [value, rest, rest];
    }
    let saturation = (value - least) / value;
    let scale = f(saturation).clamp(0.0, 1.0) / saturation;
    color.map(|x| value - (value - x) * scale)
}

pub static PIXELATE: Corruption = Corruption {
    key: "pixelate",
    about: "averaged to 0.95 to 0.65 of the side, and back by repetition",
    apply: |picture, severity, _| pixelate(picture, [0.95, 0.90, 0.85, 0.75, 0.65][severity - 1]),
};

pub static JPEG: Corruption = Corruption {
    key: "jpeg",
    about: "JPEG at quality 80 to 40, colours at half resolution",
    apply: |picture, severity, _| jpeg(picture, [80, 65, 58, 50, 40][severity - 1]),
};

fn pixelate(picture: &mut Picture, share: f64) -> Result<()> {
    let less = |side: usize| ((side as f64 * share) as u32).max(1);
    let (height, width) = (picture.height, picture.width);
    let mean = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Box));
    let repeat = ResizeOptions::new().resize_alg(ResizeAlg::Nearest);
    let (full, small) = ((width as u32, height as u32), (less(width), less(height)));
    let few = resize_pixels(Pixels { pixels: &interleaved(picture), size: full }, small, &mean)?;
    put(picture, &resize_pixels(Pixels { pixels: &few, size: small }, full, &repeat)?);
    Ok(())
}

fn jpeg(picture: &mut Picture, quality: u8) -> Result<()> {
    let pixels = interleaved(picture);
    let file = Encoder::new(&pixels, picture.width, picture.height, PixelFormat::Rgb)
        .quality(quality)
        .subsampling(Subsampling::S420)
        .encode()
        .context("corruption `jpeg`: cannot compress the image")?;
    let image = decompress_to(&file, PixelFormat::Rgb).context("corruption `jpeg`: cannot read the image back")?;
    put(picture, &image.data);
    Ok(())
}

/// Returns the bytes of a picture with the three colours of a pixel side by side.
fn interleaved(picture: &Picture) -> Vec<u8> {
    let plane = picture.height * picture.width;
    (0..plane).flat_map(|i| [i, plane + i, 2 * plane + i]).map(|at| picture.pixels[at]).collect()
}

/// Sets the bytes of a picture from those of [`interleaved`].
fn put(picture: &mut Picture, interleaved: &[u8]) {
    let plane = picture.height * picture.width;
    for (i, color) in interleaved.chunks_exact(3).enumerate() {
        (0..3).for_each(|c| picture.pixels[c * plane + i] = color[c]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::base::golden::Golden;
    use crate::base::random::{Purpose, stream};
    use crate::data::corruptions::CORRUPTIONS;
    use crate::schema::find;

    #[test]
    fn poisson_sums_are_those_of_the_distribution() {
        // scipy.stats.poisson.cdf([0, 2, 5], 3.0); scipy.stats.poisson.cdf([500], 500.0)
        let sums = poisson_sums(3.0);
        for (k, expected) in [(0, 0.049787068), (2, 0.423190081), (5, 0.916082058)] {
            assert!((sums[k] - expected).abs() < 1e-8, "{k}: {}", sums[k]);
        }
        assert!((poisson_sums(500.0)[500] - 0.511891122).abs() < 1e-8);
        assert_eq!(poisson_sums(0.0), [1.0]);
    }

    #[test]
    fn a_point_spreads_as_the_normal_density() {
        // x = numpy.zeros((9, 9)); x[4, 4] = 1
        // numpy.round(255 * scipy.ndimage.gaussian_filter(x, 1.0, mode="nearest"))[4], and
        // row 0 of the same with x[0, 0] = 1
        for (point, row, expected) in [(40, 4, [0, 0, 5, 25, 41, 25, 5, 0, 0]), (0, 0, [125, 54, 10, 1, 0, 0, 0, 0, 0])]
        {
            let mut pixels = [0u8; 81];
            pixels[point] = 255;
            blur(&mut Picture { pixels: &mut pixels, height: 9, width: 9 }, 1.0);
            assert_eq!(pixels[row * 9..row * 9 + 9], expected);
        }
    }

    /// The images that CIFAR-10-C's own code makes, for all corruptions that draw nothing (scripts/make_corruption_goldens.py).
    #[test]
    fn corruptions_are_those_of_the_authors() {
        let golden = Golden::of_authors("corruptions");
        let bytes = |value: &Value| -> Vec<u8> {
            let digits = value.as_str().unwrap().as_bytes();
            digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
        };
        let image = bytes(golden.value("image"));
        for (key, images) in golden.value("corrupted").as_object().unwrap() {
            let kind = find(CORRUPTIONS, key).unwrap();
            for (severity, expected) in (1..).zip(images.as_array().unwrap()) {
                let mut pixels = image.clone();
                let mut rng = stream(0, Purpose::Corruption, &[0]);
                (kind.apply)(&mut Picture { pixels: &mut pixels, height: 32, width: 32 }, severity, &mut rng).unwrap();
                let expected = bytes(expected);
                let apart = pixels.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b));
                // Halves go up or down by the rounding of means and of HSV colours.
                let has_halves = ["brightness", "pixelate", "saturate"].contains(&key.as_str());
                assert!(apart.max() <= Some(u8::from(has_halves)), "{key}:{severity}");
            }
        }
    }

    fn close(found: [f64; 3], expected: [f64; 3]) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?} {expected:?}");
    }

    #[test]
    fn hsv_changes_are_those_of_colorsys() {
        // h, s, v = colorsys.rgb_to_hsv(.2, .4, .8); colorsys.hsv_to_rgb(h, s, v + .1)
        close(with_value([0.2, 0.4, 0.8], 0.1), [0.225, 0.45, 0.9]);
        // colorsys.hsv_to_rgb(h, .3 * s, v)
        close(with_saturation([0.2, 0.4, 0.8], |s| 0.3 * s), [0.62, 0.68, 0.8]);
        // h, s, v = colorsys.rgb_to_hsv(.5, .5, .5); colorsys.hsv_to_rgb(h, .1, v)
        close(with_saturation([0.5; 3], |_| 0.1), [0.5, 0.45, 0.45]);
        close(with_value([0.0; 3], 0.3), [0.3; 3]);
    }
}
