//! Resizes images like Pillow: with a filter widened by the scale (antialiasing), along rows in one pass and along columns in
//! another. The intermediate values are bytes, which are clipped, so the order of the two passes matters. It is that of Pillow 13
//! (`ImagingResampleInner` in its Resample.c); older versions begin with rows whatever the sizes.

use std::fmt;

use anyhow::{Context, Result, ensure};
use fast_image_resize as fir;
use fir::images::{TypedImage, TypedImageRef};
use fir::pixels::U8x3;
use fir::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use image::RgbImage;

use crate::schema::words;

words! {
    /// The filter that resizes images.
    pub enum Interpolation {
        /// Pillow's `BICUBIC` (a = -0.5): CLIP.
        Bicubic = "bicubic",
        /// Pillow's `BILINEAR`: torchvision's own models.
        Bilinear = "bilinear",
    }
}

/// The number of pixels before a centre crop where an odd number of them is left over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Centre {
    /// Half of them, rounded to an even number: torchvision, timm, open_clip and CLIP.
    #[default]
    Even,
    /// Half of them, rounded down: the image processors of transformers.
    Down,
}

impl fmt::Display for Centre {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Centre::Even => "rounded to even",
            Centre::Down => "rounded down",
        })
    }
}

impl Centre {
    /// Returns how many of `spare` pixels lie before a crop.
    pub fn before(self, spare: usize) -> u32 {
        match self {
            // Python's `round(spare / 2)`.
            Centre::Even => (spare as f64 / 2.0).round_ties_even() as u32,
            Centre::Down => (spare / 2) as u32,
        }
    }
}

impl Interpolation {
    fn filter(self) -> FilterType {
        match self {
            Interpolation::Bicubic => FilterType::CatmullRom,
            Interpolation::Bilinear => FilterType::Bilinear,
        }
    }

    /// Returns the number of pixels on either side of a source position that the unscaled filter reads.
    fn reach(self) -> f64 {
        match self {
            Interpolation::Bicubic => 2.0,
            Interpolation::Bilinear => 1.0,
        }
    }
}

/// A rectangle of target pixels.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
}

/// Returns the part `window` of `image` resized to `size` (width, height). Pixels outside of `window` are not computed.
///
/// # Errors
/// Fails if the image or the size is empty.
pub fn resize(image: RgbImage, size: (u32, u32), window: Window, filter: Interpolation) -> Result<RgbImage> {
    let (width, height) = image.dimensions();
    ensure!(width > 0 && height > 0, "an image without pixels");
    let across = Line::new(width, size.0, window.left, window.width);
    let down = Line::new(height, size.1, window.top, window.height);
    let pass = |source: Pixels, to, [left, top, w, h]: [f64; 4]| {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter.filter())).use_alpha(false);
        resize_pixels(source, to, &options.crop(left, top, w, h))
    };
    let source = Pixels { pixels: image.as_raw(), size: (width, height) };
    let full = (window.width, window.height);
    // Only one side differs in a pass, so only one axis is filtered.
    let (between, half, rest) = if begins_with_columns((width, height), size) {
        let (first, last) = across.sources(width, filter);
        let half = (last - first, window.height);
        let between = pass(source, half, [f64::from(first), down.start, f64::from(half.0), down.length])?;
        (between, half, [across.start - f64::from(first), 0.0, across.length, f64::from(half.1)])
    } else {
        let (first, last) = down.sources(height, filter);
        let half = (window.width, last - first);
        let between = pass(source, half, [across.start, f64::from(first), across.length, f64::from(half.1)])?;
        (between, half, [0.0, down.start - f64::from(first), f64::from(half.0), down.length])
    };
    let pixels = pass(Pixels { pixels: &between, size: half }, full, rest)?;
    RgbImage::from_raw(window.width, window.height, pixels).context("resizing gave fewer pixels than asked")
}

/// Returns whether the first pass is along columns: where the height loses more than twice the pixels that the width loses.
fn begins_with_columns(from: (u32, u32), to: (u32, u32)) -> bool {
    let lost = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let (across, down) = (lost(from.0, to.0), lost(from.1, to.1));
    down > 0 && down > 2 * across
}

/// The bytes of an image of three colours, row by row, and its width and height.
#[derive(Clone, Copy)]
pub struct Pixels<'a> {
    pub pixels: &'a [u8],
    pub size: (u32, u32),
}

/// Returns the bytes of an image at another size. There is one type of pixels for all images: of each, the crate compiles sixty filters, and
/// of all its thirteen types unless one is named, a seventh of the whole program.
///
/// # Errors
/// Fails if the bytes do not match the size, or if the options leave the image.
pub fn resize_pixels(source: Pixels, (width, height): (u32, u32), options: &ResizeOptions) -> Result<Vec<u8>> {
    let mut bytes = vec![0; width as usize * height as usize * 3];
    let view = TypedImageRef::<U8x3>::from_buffer(source.size.0, source.size.1, source.pixels)?;
    let mut target = TypedImage::<U8x3>::from_buffer(width, height, &mut bytes)?;
    Resizer::new().resize_typed(&view, &mut target, options)?;
    Ok(bytes)
}

/// The stretch of the source that a window of the target covers along one axis, in source pixels.
struct Line {
    start: f64,
    length: f64,
    scale: f64,
}

impl Line {
    fn new(source: u32, target: u32, first: u32, count: u32) -> Line {
        let scale = f64::from(source) / f64::from(target);
        let start = f64::from(first) * scale;
        // Rounding must not lead beyond the last pixel.
        Line { start, length: (f64::from(count) * scale).min(f64::from(source) - start), scale }
    }

    /// Returns the range of source pixels that the filter may read.
    fn sources(&self, count: u32, filter: Interpolation) -> (u32, u32) {
        let reach = filter.reach() * self.scale.max(1.0) + 1.0;
        let first = (self.start - reach).floor().max(0.0) as u32;
        (first, ((self.start + self.length + reach).ceil() as u32).min(count))
    }
}
