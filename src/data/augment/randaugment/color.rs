//! RandAugment's operations on colours, computed like Pillow's `ImageEnhance` and `ImageOps`.

use image::{Rgb, RgbImage};

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

pub fn brightness(image: RgbImage, factor: f32) -> RgbImage {
    each(image, |_, value| blend(0, value, factor))
}

pub fn saturation(mut image: RgbImage, factor: f32) -> RgbImage {
    for pixel in image.pixels_mut() {
        let gray = luma(*pixel);
        pixel.0 = pixel.0.map(|value| blend(gray, value, factor));
    }
    image
}

/// Blends the image with its mean luma, rounded.
pub fn contrast(image: RgbImage, factor: f32) -> RgbImage {
    let sum: u64 = image.pixels().map(|pixel| u64::from(luma(*pixel))).sum();
    let count = u64::from(image.width()) * u64::from(image.height());
    let mean = (sum as f64 / count.max(1) as f64 + 0.5) as u8;
    each(image, |_, value| blend(mean, value, factor))
}

/// Blends the image with a 3 x 3 smoothing of weight 5 in the middle and 1 around it. The border stays unchanged.
pub fn sharpness(image: &RgbImage, factor: f32) -> RgbImage {
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

pub fn posterize(image: RgbImage, bits: u32) -> RgbImage {
    let mask = !((1u16 << (8 - bits.min(8))) - 1) as u8;
    each(image, |_, value| value & mask)
}

pub fn solarize(image: RgbImage, from: f64) -> RgbImage {
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
pub fn auto_contrast(image: RgbImage) -> RgbImage {
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
pub fn equalize(image: RgbImage) -> RgbImage {
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
