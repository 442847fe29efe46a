//! Digital corruptions: fewer pixels and JPEG compression.

use anyhow::{Context, Result};
use fast_image_resize as fir;
use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageFormat};

use super::picture::{Corruption, Picture};

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
    let plane_of = |w: u32, h: u32| fir::images::Image::new(w, h, fir::PixelType::U8);
    let mean = fir::ResizeOptions::new().resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::Box));
    let repeat = fir::ResizeOptions::new().resize_alg(fir::ResizeAlg::Nearest);
    let mut resizer = fir::Resizer::new();
    for plane in picture.pixels.chunks_exact_mut(height * width) {
        let (w, h) = (width as u32, height as u32);
        let full = fir::images::Image::from_vec_u8(w, h, plane.to_vec(), fir::PixelType::U8)?;
        let mut small = plane_of(less(width), less(height));
        let mut back = plane_of(w, h);
        resizer.resize(&full, &mut small, &mean)?;
        resizer.resize(&small, &mut back, &repeat)?;
        plane.copy_from_slice(back.buffer());
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
