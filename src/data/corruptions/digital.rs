//! Digital corruptions: fewer pixels and JPEG compression.

use anyhow::{Context, Result};
use fast_image_resize::pixels::U8;
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
    for plane in picture.pixels.chunks_exact_mut(height * width) {
        let few = resize_pixels::<U8>(Pixels { pixels: plane, size: full }, small, &mean)?;
        plane.copy_from_slice(&resize_pixels::<U8>(Pixels { pixels: &few, size: small }, full, &repeat)?);
    }
    Ok(())
}

fn jpeg(picture: &mut Picture, quality: u8) -> Result<()> {
    let plane = picture.height * picture.width;
    let interleaved: Vec<u8> =
        (0..plane).flat_map(|i| [i, plane + i, 2 * plane + i]).map(|at| picture.pixels[at]).collect();
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, quality)
        .encode(&interleaved, picture.width as u32, picture.height as u32, ExtendedColorType::Rgb8)
        .context("corruption `jpeg`: cannot compress the image")?;
    let image = image::load_from_memory_with_format(&file, ImageFormat::Jpeg)
        .context("corruption `jpeg`: cannot read the image back")?;
    for (i, color) in image.into_rgb8().pixels().enumerate() {
        (0..3).for_each(|c| picture.pixels[c * plane + i] = color.0[c]);
    }
    Ok(())
}
