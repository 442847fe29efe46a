//! RandAugment (Cubuk et al. 2019, arXiv 1909.13719) with torchvision's fourteen operations and magnitudes. Each of the
//! `operations` is drawn uniformly, and its sign is the toss of a fair coin. Geometric operations take the nearest
//! pixel, and new pixels are black. Operations on colours are computed like Pillow's `ImageEnhance` and `ImageOps`.

use image::{Rgb, RgbImage};
use rand_chacha::ChaCha12Rng;

use crate::base::random::below;
use crate::schema::settings;

settings! {
    /// The settings of `[data.*.augment.randaugment]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RandAugment {
        /// Number of random operations on each image.
        operations: usize = 2, in 1..=14;
        /// Strength of each operation.
        magnitude: usize = 9, in 0..=STRONGEST as usize;
    }
}

/// The largest magnitude: torchvision's `num_magnitude_bins` minus one.
const STRONGEST: f64 = 30.0;

/// One operation with its strength.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    Identity,
    ShearX(f64),
    ShearY(f64),
    /// The shift in whole pixels.
    TranslateX(f64),
    TranslateY(f64),
    /// The angle in degrees, counter-clockwise.
    Rotate(f64),
    /// The factor. 1 leaves the image unchanged.
    Brightness(f32),
    Color(f32),
    Contrast(f32),
    Sharpness(f32),
    /// The number of bits that are kept.
    Posterize(u32),
    /// The value from which on values are inverted.
    Solarize(f64),
    AutoContrast,
    Equalize,
}

impl RandAugment {
    pub fn apply(&self, image: RgbImage, rng: &mut ChaCha12Rng) -> RgbImage {
        (0..self.operations).fold(image, |image, _| {
            let which = below(rng, 14);
            let sign = if below(rng, 2) == 1 { -1.0 } else { 1.0 };
            self.operation(which, sign, image.dimensions()).apply(image)
        })
    }

    /// Returns operation number `which` in torchvision's order, at this magnitude, for an image of `(width, height)`.
    fn operation(&self, which: u64, sign: f64, (width, height): (u32, u32)) -> Operation {
        let share = self.magnitude as f64 / STRONGEST;
        let signed = |most: f64| sign * most * share;
        let factor = (1.0 + signed(0.9)) as f32;
        let pixels = |side: u32| signed(150.0 / 331.0 * f64::from(side)).trunc();
        match which {
            0 => Operation::Identity,
            1 => Operation::ShearX(signed(0.3)),
            2 => Operation::ShearY(signed(0.3)),
            3 => Operation::TranslateX(pixels(width)),
            4 => Operation::TranslateY(pixels(height)),
            5 => Operation::Rotate(signed(30.0)),
            6 => Operation::Brightness(factor),
            7 => Operation::Color(factor),
            8 => Operation::Contrast(factor),
            9 => Operation::Sharpness(factor),
            10 => Operation::Posterize(8 - (4.0 * share).round_ties_even() as u32),
            11 => Operation::Solarize(255.0 - 255.0 * share),
            12 => Operation::AutoContrast,
            _ => Operation::Equalize,
        }
    }
}

impl Operation {
    pub fn apply(self, image: RgbImage) -> RgbImage {
        // Each matrix maps a target pixel to its source. The sign of a shift is inverted, as in torchvision.
        match self {
            Operation::Identity => image,
            Operation::ShearX(by) => mapped(&image, [1.0, by, 0.0, 0.0, 1.0, 0.0]),
            Operation::ShearY(by) => mapped(&image, [1.0, 0.0, 0.0, by, 1.0, 0.0]),
            Operation::TranslateX(by) => mapped(&image, [1.0, 0.0, -by, 0.0, 1.0, 0.0]),
            Operation::TranslateY(by) => mapped(&image, [1.0, 0.0, 0.0, 0.0, 1.0, -by]),
            Operation::Rotate(degrees) => rotated(&image, degrees),
            Operation::Brightness(factor) => brightness(image, factor),
            Operation::Color(factor) => saturation(image, factor),
            Operation::Contrast(factor) => contrast(image, factor),
            Operation::Sharpness(factor) => sharpness(&image, factor),
            Operation::Posterize(bits) => posterize(image, bits),
            Operation::Solarize(from) => solarize(image, from),
            Operation::AutoContrast => auto_contrast(image),
            Operation::Equalize => equalize(image),
        }
    }
}

/// Returns the image rotated about its centre.
fn rotated(image: &RgbImage, degrees: f64) -> RgbImage {
    let (x, y) = (f64::from(image.width()) / 2.0, f64::from(image.height()) / 2.0);
    // Pillow rounds the entries so that right angles are exact.
    let rounded = |value: f64| (value * 1e15).round() / 1e15;
    let (cos, sin) = (rounded((-degrees.to_radians()).cos()), rounded((-degrees.to_radians()).sin()));
    mapped(image, [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y])
}

/// Returns an image whose pixel at `(x, y)` is the source pixel nearest to `(a x + b y + c, d x + e y + f)`, in
/// coordinates of pixel centres, or black outside of the source. Computed in 16.16 fixed point, like Pillow.
fn mapped(image: &RgbImage, [a, b, c, d, e, f]: [f64; 6]) -> RgbImage {
    let (width, height) = image.dimensions();
    let fixed = |value: f64| (value * 65536.0 + 0.5).floor() as i64;
    let (start_x, start_y) = (fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5));
    let [a, b, d, e] = [a, b, d, e].map(fixed);
    RgbImage::from_fn(width, height, |x, y| {
        let (x, y) = (i64::from(x), i64::from(y));
        let (from_x, from_y) = ((start_x + a * x + b * y) >> 16, (start_y + d * x + e * y) >> 16);
        let inside = (0..i64::from(width)).contains(&from_x) && (0..i64::from(height)).contains(&from_y);
        if inside { *image.get_pixel(from_x as u32, from_y as u32) } else { Rgb([0; 3]) }
    })
}

/// Blends `value` with `other` like Pillow's `Image.blend`. The result is truncated, and clipped if the factor leads
/// beyond the range of a byte.
fn blend(other: u8, value: u8, factor: f32) -> u8 {
    let mixed = f32::from(other) + factor * (f32::from(value) - f32::from(other));
    mixed.clamp(0.0, 255.0) as u8
}

/// Returns the ITU-R 601 luma in 16-bit arithmetic, as in Pillow's conversion to `L`.
fn luma(Rgb([r, g, b]): Rgb<u8>) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

fn each(mut image: RgbImage, change: impl Fn(usize, u8) -> u8) -> RgbImage {
    for pixel in image.pixels_mut() {
        pixel.0 = [0, 1, 2].map(|channel| change(channel, pixel.0[channel]));
    }
    image
}

fn brightness(image: RgbImage, factor: f32) -> RgbImage {
    each(image, |_, value| blend(0, value, factor))
}

fn saturation(mut image: RgbImage, factor: f32) -> RgbImage {
    for pixel in image.pixels_mut() {
        let gray = luma(*pixel);
        pixel.0 = pixel.0.map(|value| blend(gray, value, factor));
    }
    image
}

/// Blends the image with its mean luma, rounded.
fn contrast(image: RgbImage, factor: f32) -> RgbImage {
    let sum: u64 = image.pixels().map(|pixel| u64::from(luma(*pixel))).sum();
    let count = u64::from(image.width()) * u64::from(image.height());
    let mean = (sum as f64 / count.max(1) as f64 + 0.5) as u8;
    each(image, |_, value| blend(mean, value, factor))
}

/// Blends the image with a 3 x 3 smoothing of weight 5 in the middle and 1 around it. The border stays unchanged.
fn sharpness(image: &RgbImage, factor: f32) -> RgbImage {
    let (width, height) = image.dimensions();
    let smooth = |x: u32, y: u32, channel: usize| {
        let near = (0..9).map(|i| f32::from(image.get_pixel(x + i % 3 - 1, y + i / 3 - 1).0[channel]));
        let sum = near.sum::<f32>() + 4.0 * f32::from(image.get_pixel(x, y).0[channel]);
        (sum / 13.0 + 0.5) as u8
    };
    RgbImage::from_fn(width, height, |x, y| {
        let pixel = image.get_pixel(x, y);
        if x == 0 || y == 0 || x + 1 == width || y + 1 == height {
            return *pixel;
        }
        Rgb([0, 1, 2].map(|channel| blend(smooth(x, y, channel), pixel.0[channel], factor)))
    })
}

fn posterize(image: RgbImage, bits: u32) -> RgbImage {
    let mask = !((1u16 << (8 - bits.min(8))) - 1) as u8;
    each(image, |_, value| value & mask)
}

fn solarize(image: RgbImage, from: f64) -> RgbImage {
    each(image, |_, value| if f64::from(value) < from { value } else { 255 - value })
}

fn histograms(image: &RgbImage) -> [[usize; 256]; 3] {
    let mut counts = [[0; 256]; 3];
    for pixel in image.pixels() {
        for (count, value) in counts.iter_mut().zip(pixel.0) {
            count[usize::from(value)] += 1;
        }
    }
    counts
}

/// Stretches each channel to the range 0 to 255.
fn auto_contrast(image: RgbImage) -> RgbImage {
    let tables = histograms(&image).map(|counts| {
        let low = counts.iter().position(|&count| count > 0).unwrap_or(0);
        let high = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        let scale = 255.0 / (high as f64 - low as f64);
        let offset = -(low as f64) * scale;
        std::array::from_fn(|value| {
            if high <= low { value as u8 } else { (value as f64 * scale + offset).clamp(0.0, 255.0) as u8 }
        })
    });
    looked_up(image, tables)
}

/// Flattens the histogram of each channel.
fn equalize(image: RgbImage) -> RgbImage {
    let tables = histograms(&image).map(|counts| {
        let total: usize = counts.iter().sum();
        let last = counts.iter().rev().find(|&&count| count > 0).copied().unwrap_or(0);
        let step = (total - last) / 255;
        let mut seen = step / 2;
        std::array::from_fn(|value| {
            if step == 0 {
                return value as u8;
            }
            let level = (seen / step).min(255) as u8;
            seen += counts[value];
            level
        })
    });
    looked_up(image, tables)
}

fn looked_up(image: RgbImage, tables: [[u8; 256]; 3]) -> RgbImage {
    each(image, |channel, value| tables[channel][usize::from(value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the picture `numpy.stack([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7], -1) % 256`.
    fn picture(width: u32, height: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| {
            Rgb([x * 37 + y * 11, x * x * 5 + y * 3, x * y * 7].map(|value| (value % 256) as u8))
        })
    }

    /// The number in the list, the sign, the CRC-32 of the result and its pixel in row 5, column 7. They come from:
    /// space = torchvision.transforms.RandAugment()._augmentation_space(31, (12, 20)); for each (name, (m, signed)):
    /// out = torchvision.transforms.autoaugment._apply_op(picture, name, sign * m[9], InterpolationMode.NEAREST, None)
    const OPERATIONS: [(u64, f64, u32, [u8; 3]); 23] = [
        (0, 1.0, 1639423085, [58, 4, 245]),
        (1, 1.0, 4044115681, [58, 4, 245]),
        (2, 1.0, 355984753, [69, 7, 38]),
        (3, 1.0, 1988994608, [240, 140, 175]),
        (4, 1.0, 1575997778, [47, 1, 196]),
        (5, 1.0, 2739777514, [58, 4, 245]),
        (6, 1.0, 1948620329, [73, 5, 255]),
        (7, 1.0, 1787388644, [60, 0, 255]),
        (8, 1.0, 4169439818, [43, 0, 255]),
        (9, 1.0, 2863758580, [58, 0, 255]),
        (10, 1.0, 1855009887, [58, 4, 244]),
        (11, 1.0, 3691571866, [58, 4, 10]),
        (12, 1.0, 1734408209, [58, 4, 247]),
        (13, 1.0, 1639423085, [58, 4, 245]),
        (1, -1.0, 2951633525, [58, 4, 245]),
        (2, -1.0, 926947958, [47, 1, 196]),
        (3, -1.0, 2863842690, [132, 164, 59]),
        (4, -1.0, 383186451, [69, 7, 38]),
        (5, -1.0, 2647692812, [58, 4, 245]),
        (6, -1.0, 896788292, [42, 2, 178]),
        (7, -1.0, 1411030811, [55, 15, 191]),
        (8, -1.0, 653826652, [72, 33, 209]),
        (9, -1.0, 1207523130, [58, 20, 229]),
    ];

    #[test]
    fn operations_are_torchvisions() {
        let randaugment = RandAugment { operations: 2, magnitude: 9 };
        for (which, sign, checksum, pixel) in OPERATIONS {
            let operation = randaugment.operation(which, sign, (20, 12));
            let found = operation.apply(picture(20, 12));
            assert_eq!(found.get_pixel(7, 5).0, pixel, "{operation:?}");
            assert_eq!(crc32fast::hash(found.as_raw()), checksum, "{operation:?}");
        }
    }

    #[test]
    fn histograms_are_pillows() {
        let mut dark = picture(40, 24);
        dark.iter_mut().for_each(|value| *value /= 3);
        // zlib.crc32(numpy.asarray(ImageOps.equalize(Image.fromarray(b // 3))).tobytes()), and likewise for autocontrast.
        assert_eq!(crc32fast::hash(Operation::Equalize.apply(dark.clone()).as_raw()), 1797169173);
        assert_eq!(crc32fast::hash(Operation::AutoContrast.apply(dark).as_raw()), 3437139440);
    }

    #[test]
    fn small_and_plain_images_pass_through_every_operation() {
        let randaugment = RandAugment { operations: 1, magnitude: 30 };
        for which in 0..14 {
            for image in [RgbImage::new(1, 1), RgbImage::from_pixel(2, 3, Rgb([7; 3]))] {
                let size = image.dimensions();
                assert_eq!(randaugment.operation(which, 1.0, size).apply(image).dimensions(), size);
            }
        }
    }

    #[test]
    fn magnitudes_are_torchvisions() {
        // {name: m[30] for name, (m, signed) in _augmentation_space(31, (224, 224)).items()}, with translations cut to int.
        let strongest = |which| RandAugment { operations: 1, magnitude: 30 }.operation(which, 1.0, (224, 224));
        assert_eq!(strongest(3), Operation::TranslateX(101.0));
        assert_eq!(strongest(10), Operation::Posterize(4));
        assert_eq!(strongest(11), Operation::Solarize(0.0));
        assert_eq!(strongest(5), Operation::Rotate(30.0));
        assert_eq!(strongest(6), Operation::Brightness(1.9));
    }
}
