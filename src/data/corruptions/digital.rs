//! Digital corruptions: fewer pixels and JPEG compression.

use anyhow::{Context, Result};
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageFormat};

use super::picture::{Corruption, Picture};
use crate::data::{Pixels, resize_pixels};

pub static PIXELATE: Corruption = Corruption {
    key: "pixelate",
    about: "averaged to 0.95 to 0.65 of the side, and back by repetition",
    apply: |picture, severity, _| pixelate(picture, [0.95, 0.90, 0.85, 0.75, 0.65][severity - 1]),
};

pub static JPEG: Corruption = Corruption {
    key: "jpeg",
    about: "JPEG at quality 80 to 50",
    apply: |picture, severity, _| jpeg(picture, [80, 65, 58, 54, 50][severity - 1]),
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
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, quality)
        .encode(&interleaved(picture), picture.width as u32, picture.height as u32, ExtendedColorType::Rgb8)
        .context("corruption `jpeg`: cannot compress the image")?;
    let image = image::load_from_memory_with_format(&file, ImageFormat::Jpeg)
        .context("corruption `jpeg`: cannot read the image back")?;
    put(picture, image.into_rgb8().as_raw());
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
