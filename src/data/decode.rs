//! One image file to `[3, H, W]` bytes: decoded, made RGB as Pillow's `convert("RGB")` does, resized as
//! torchvision does on Pillow images (bicubic with a = -0.5 and antialiasing, then a centre crop).

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fast_image_resize as fir;
use image::{DynamicImage, ImageReader, RgbImage};
use serde::Serialize;

use crate::config::Choice;

/// How an image file gets the size that the set needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resize {
    /// The shorter side is resized to the image size, then the centre is cut out.
    ShorterSideCrop,
    /// Both sides are resized to the image size, whatever the aspect ratio.
    Stretch,
    /// Images are taken as stored, and have to be of one size.
    None,
}

impl Choice for Resize {
    const CHOICES: &'static [(&'static str, Resize)] =
        &[("shorter-side-crop", Resize::ShorterSideCrop), ("stretch", Resize::Stretch), ("none", Resize::None)];
}

/// How every file of a set becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// The way to the size.
    pub resize: Resize,
    /// Rows of the result.
    pub height: usize,
    /// Columns of the result.
    pub width: usize,
}

impl Decode {
    /// Decoding to squares of `image_size`; with [`Resize::None`] to the size of `first`, an image of the set.
    ///
    /// # Errors
    /// With [`Resize::None`], where the header of `first` cannot be read.
    pub fn new(resize: Resize, image_size: usize, first: &Path) -> Result<Decode> {
        let (height, width) = match resize {
            Resize::ShorterSideCrop | Resize::Stretch => (image_size, image_size),
            Resize::None => {
                let (width, height) = image::ImageReader::open(first)
                    .and_then(ImageReader::with_guessed_format)
                    .map_err(anyhow::Error::from)
                    .and_then(|reader| Ok(reader.into_dimensions()?))
                    .with_context(|| format!("{}: cannot read the size of the image", first.display()))?;
                (height as usize, width as usize)
            }
        };
        ensure!(height > 0 && width > 0, "{}: an image of {height} x {width} pixels", first.display());
        Ok(Decode { resize, height, width })
    }

    /// Bytes of one decoded image.
    pub fn image_bytes(&self) -> usize {
        3 * self.height * self.width
    }

    /// `[3, height, width]` of the image in `path`.
    ///
    /// # Errors
    /// Names the file where it cannot be read, is damaged or cut off, or has another size than [`Resize::None`] needs.
    pub fn file(&self, path: &Path) -> Result<Vec<u8>> {
        let name = || path.display().to_string();
        let bytes = std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?;
        // a decoder that panics on a damaged file must not take the run with it
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(&bytes)));
        let image = decoded.unwrap_or_else(|_| Err(anyhow!("the decoder failed"))).with_context(name)?;
        let image = self.sized(image).with_context(name)?;
        Ok(planar(&image))
    }

    fn sized(&self, image: RgbImage) -> Result<RgbImage> {
        let (width, height) = (image.width() as usize, image.height() as usize);
        match self.resize {
            _ if (width, height) == (self.width, self.height) => Ok(image),
            Resize::None => bail!(
                "{width} x {height} pixels, but the first image of the set has {} x {}; set resize = \"shorter-side-crop\"",
                self.width,
                self.height
            ),
            Resize::Stretch => resized(image, self.width, self.height),
            Resize::ShorterSideCrop => {
                let side = self.width;
                let longer = |long: usize, short: usize| side * long / short;
                let (w, h) =
                    if width <= height { (side, longer(height, width)) } else { (longer(width, height), side) };
                let image = resized(image, w, h)?;
                let (left, top) = (centred(w - side), centred(h - side));
                Ok(image::imageops::crop_imm(&image, left, top, side as u32, side as u32).to_image())
            }
        }
    }
}

/// Half of `spare`, halves rounded to even, as Python's `round(spare / 2)` in torchvision's `center_crop`.
fn centred(spare: usize) -> u32 {
    (spare as f64 / 2.0).round_ties_even() as u32
}

fn decode(bytes: &[u8]) -> Result<RgbImage> {
    if bytes.starts_with(&[0xff, 0xd8]) {
        ensure!(jpeg_has_end(bytes), "the JPEG is cut off: it has no end marker");
    }
    let image = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?.decode()?;
    let high = |value: &u16| (value >> 8) as u8;
    // Differs: Pillow clips 16-bit gray at 255, which makes it white; 16-bit colour it reads as here.
    let image = match image {
        DynamicImage::ImageLuma16(i) => spread(i.width(), i.height(), i.as_raw().iter().map(high)),
        DynamicImage::ImageLumaA16(i) => spread(i.width(), i.height(), i.as_raw().iter().step_by(2).map(high)),
        DynamicImage::ImageRgb16(i) => RgbImage::from_raw(i.width(), i.height(), i.as_raw().iter().map(high).collect()),
        DynamicImage::ImageRgba16(i) => RgbImage::from_raw(
            i.width(),
            i.height(),
            i.pixels().flat_map(|p| [0, 1, 2].map(|c| high(&p.0[c]))).collect(),
        ),
        DynamicImage::ImageRgb32F(_) | DynamicImage::ImageRgba32F(_) => {
            bail!("floating-point pixels have no agreed range; store the image with 8 or 16 bits")
        }
        image => Some(image.into_rgb8()),
    };
    image.context("fewer pixels than its size needs")
}

/// Gray as RGB.
fn spread(width: u32, height: u32, gray: impl Iterator<Item = u8>) -> Option<RgbImage> {
    RgbImage::from_raw(width, height, gray.flat_map(|value| [value; 3]).collect())
}

/// Whether the end marker follows the first scan. The decoder fills what is missing of a cut-off file with gray and
/// says nothing, so this is how such a file is noticed. Segments before the scan are skipped: a thumbnail has an end
/// marker of its own.
fn jpeg_has_end(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[0xff, marker, high, low]) = bytes.get(at..at + 4).and_then(|b| <&[u8; 4]>::try_from(b).ok()) {
        match marker {
            0xda => return bytes[at..].windows(2).any(|pair| pair == [0xff, 0xd9]),
            0xff => at += 1,
            _ => at += 2 + usize::from(u16::from_be_bytes([high, low])),
        }
    }
    // not the usual segments: the decoder decides
    at < bytes.len()
}

fn resized(image: RgbImage, width: usize, height: usize) -> Result<RgbImage> {
    let (w, h) = (width as u32, height as u32);
    let source =
        fir::images::Image::from_vec_u8(image.width(), image.height(), image.into_raw(), fir::PixelType::U8x3)?;
    let mut target = fir::images::Image::new(w, h, fir::PixelType::U8x3);
    let bicubic = fir::ResizeAlg::Convolution(fir::FilterType::CatmullRom);
    let options = fir::ResizeOptions::new().resize_alg(bicubic).use_alpha(false);
    fir::Resizer::new().resize(&source, &mut target, &options)?;
    RgbImage::from_raw(w, h, target.into_vec()).context("resizing gave fewer pixels than asked")
}

/// `[H, W, 3]` to `[3, H, W]`.
fn planar(image: &RgbImage) -> Vec<u8> {
    let interleaved = image.as_raw();
    (0..3).flat_map(|channel| interleaved.iter().skip(channel).step_by(3).copied()).collect()
}

#[cfg(test)]
mod tests;
