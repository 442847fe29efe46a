//! Decodes an image file to `[3, H, W]` bytes: converts it to RGB, turns it by its EXIF orientation where that is asked for,
//! and resizes it as torchvision does with Pillow images (the shorter side with antialiasing, then a centre crop, of which
//! transformers has its own).

mod orientation;
mod pixels;
mod pnm;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use image::RgbImage;
use image::metadata::Orientation;
use rayon::prelude::*;

use super::request::Request;
use super::resize::{Centre, Interpolation, Window, resize};
use crate::base::files::read_file;
use crate::schema::words;

words! {
    /// The way in which an image file is brought to the size that the set needs.
    pub enum Resize {
        /// The shorter side is resized to the image size, then the centre is cut out.
        ShorterSideCrop = "shorter-side-crop",
        /// Both sides are resized to the image size, whatever the aspect ratio.
        Stretch = "stretch",
        /// Images are padded to squares with the mean colour of CLIP's images, (122, 116, 104), and then resized.
        Pad = "pad",
        /// Images are taken as stored, and have to be of one size.
        None = "none",
    }
}

/// The way in which every file of a set becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// The way in which an image is brought to its size.
    pub resize: Resize,
    /// The filter used for resizing.
    pub interpolation: Interpolation,
    /// The number of rows of the result.
    pub height: usize,
    /// The number of columns of the result.
    pub width: usize,
    /// The length in pixels to which the shorter side (of squares, either side) is resized before the centre is cut out.
    pub shorter_side: usize,
    /// The place of the part that is cut out.
    pub centre: Centre,
    /// Whether images are turned by their EXIF orientation, as a camera's photos need.
    pub turns: bool,
}

impl Resize {
    /// Returns the length to which the shorter side is resized, so that a centre crop of `size` pixels keeps the share
    /// `crop_pct` of it. It is rounded down like timm's.
    pub fn shorter_side(self, size: usize, crop_pct: f64) -> usize {
        match self {
            // 224 / (224 / 248) is a little less than 248.
            Resize::ShorterSideCrop | Resize::Stretch | Resize::Pad => {
                ((size as f64 / crop_pct + 1e-6) as usize).max(size)
            }
            Resize::None => size,
        }
    }
}

impl Decode {
    /// Creates a decoder to squares of the requested size, or, with [`Resize::None`], to the size of `first`, an image
    /// of the set. `turns` says whether images are turned by their EXIF orientation.
    ///
    /// # Errors
    /// Fails with [`Resize::None`] if the size of `first` cannot be read.
    pub fn new(resize: Resize, turns: bool, request: &Request, first: &Path) -> Result<Decode> {
        let read = || read_file(first).with_context(|| format!("{}: cannot read", first.display()));
        Decode::of(resize, turns, request, (first, &read))
    }

    /// Creates a decoder as [`Decode::new`] does, where `first` is the name of an image and the function that reads its bytes.
    ///
    /// # Errors
    /// Fails as [`Decode::new`] does.
    pub fn of(
        resize: Resize,
        turns: bool,
        request: &Request,
        (first, read): (&Path, &dyn Fn() -> Result<Vec<u8>>),
    ) -> Result<Decode> {
        let (height, width) = match resize {
            Resize::ShorterSideCrop | Resize::Stretch | Resize::Pad => (request.image_size, request.image_size),
            Resize::None => {
                let (width, height) = rgb_of(&read()?, first, turns)?.dimensions();
                (height as usize, width as usize)
            }
        };
        ensure!(height > 0 && width > 0, "{}: an image of {height} x {width} pixels", first.display());
        let (interpolation, centre) = (request.interpolation, request.centre);
        let shorter_side = resize.shorter_side(width, request.crop_pct);
        Ok(Decode { resize, interpolation, height, width, shorter_side, centre, turns })
    }

    /// Returns the number of bytes of one decoded image.
    pub fn image_bytes(&self) -> usize {
        3 * self.height * self.width
    }

    /// Returns the image in `path` as `[3, height, width]` bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is damaged or cut off, or has another size than [`Resize::None`] needs. The
    /// message names the file.
    pub fn file(&self, path: &Path) -> Result<Vec<u8>> {
        self.bytes(&read_file(path).with_context(|| format!("{}: cannot read", path.display()))?, path)
    }

    /// Returns the image whose file has these bytes as `[3, height, width]` bytes. `path` is its name in messages.
    ///
    /// # Errors
    /// Fails as [`Decode::file`] does.
    pub fn bytes(&self, bytes: &[u8], path: &Path) -> Result<Vec<u8>> {
        let image = rgb_of(bytes, path, self.turns)?;
        contained(|| Ok(planar(&self.sized(image)?))).with_context(|| path.display().to_string())
    }

    fn sized(&self, image: RgbImage) -> Result<RgbImage> {
        let (width, height) = (image.width() as usize, image.height() as usize);
        match self.resize {
            _ if (width, height) == (self.width, self.height) && self.shorter_side == self.width => Ok(image),
            Resize::None => bail!(
                "{width} x {height} pixels, but the first image of the set has {} x {}; set resize = \"shorter-side-crop\"",
                self.width,
                self.height
            ),
            Resize::Pad if width != height => self.sized(padded(&image)),
            Resize::Stretch | Resize::Pad => {
                let (across, down) = (self.shorter_side, self.shorter_side + self.height - self.width);
                resize(image, (across as u32, down as u32), self.window(across, down), self.interpolation)
            }
            Resize::ShorterSideCrop => {
                let side = self.shorter_side;
                let longer = |long: usize, short: usize| side * long / short;
                let (w, h) =
                    if width <= height { (side, longer(height, width)) } else { (longer(width, height), side) };
                resize(image, (w as u32, h as u32), self.window(w, h), self.interpolation)
            }
        }
    }

    /// Returns the part that is cut out of a resized image.
    fn window(&self, width: usize, height: usize) -> Window {
        let (left, top) = (self.centre.before(width - self.width), self.centre.before(height - self.height));
        Window { left, top, width: self.width as u32, height: self.height as u32 }
    }
}

/// Returns an image in the middle of a square of the mean colour.
fn padded(image: &RgbImage) -> RgbImage {
    const MEAN: image::Rgb<u8> = image::Rgb([122, 116, 104]);
    let (width, height) = image.dimensions();
    let side = width.max(height);
    let mut square = RgbImage::from_pixel(side, side, MEAN);
    image::imageops::replace(&mut square, image, i64::from((side - width) / 2), i64::from((side - height) / 2));
    square
}

/// Returns the image whose file has these bytes in RGB, at its stored size. `path` is its name in messages; `turns`
/// says whether it is turned by its EXIF orientation.
///
/// # Errors
/// Fails if the file is damaged or cut off, or too large. The message names it.
pub fn rgb_of(bytes: &[u8], path: &Path, turns: bool) -> Result<RgbImage> {
    contained(|| pixels::decode(bytes, turns)).with_context(|| path.display().to_string())
}

/// Returns whether the image whose file starts with `bytes` is turned where images are turned by their EXIF orientation.
pub fn is_turned(bytes: &[u8]) -> bool {
    contained(|| Ok(orientation::of(bytes) != Orientation::NoTransforms)).unwrap_or(false)
}

/// Returns the result of `work` on one image. A panic of the decoder on a damaged file becomes an error, so that it
/// does not end the run.
fn contained<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(anyhow!("the decoder failed: the file is damaged")))
}

/// Converts an image `[H, W, 3]` to `[3, H, W]`.
pub fn planar(image: &RgbImage) -> Vec<u8> {
    let pixels = image.as_raw();
    let mut planes = vec![0; pixels.len()];
    let (red, rest) = planes.split_at_mut(pixels.len() / 3);
    let (green, blue) = rest.split_at_mut(pixels.len() / 3);
    for (((pixel, r), g), b) in pixels.chunks_exact(3).zip(red).zip(green).zip(blue) {
        (*r, *g, *b) = (pixel[0], pixel[1], pixel[2]);
    }
    planes
}

/// Converts `[3, H, W]` to an image `[H, W, 3]`; `None` if `planes` does not have that size.
pub fn interleaved(planes: &[u8], height: usize, width: usize) -> Option<RgbImage> {
    let plane = height * width;
    let pixels = (0..plane).flat_map(|at| [0, 1, 2].map(|channel| planes[channel * plane + at]));
    let pixels = if planes.len() == 3 * plane { pixels.collect() } else { return None };
    RgbImage::from_raw(width as u32, height as u32, pixels)
}

/// Makes `total` images with `image` on `workers` threads and passes each to `keep`, in any order. Returns the
/// failures, sorted by index.
///
/// # Errors
/// Fails if the threads cannot be started.
pub fn decode_all(
    total: usize,
    image: impl Fn(usize) -> Result<Vec<u8>> + Sync,
    workers: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
    keep: impl Fn(usize, Vec<u8>) + Sync,
) -> Result<Vec<(usize, anyhow::Error)>> {
    let done = AtomicUsize::new(0);
    let one = |i: usize| {
        let failure = image(i).map(|pixels| keep(i, pixels)).err();
        progress(1 + done.fetch_add(1, Ordering::Relaxed), total);
        failure.map(|error| (i, error))
    };
    ensure!(workers > 0, "workers = 0: at least one thread must decode the images");
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .build()
        .with_context(|| format!("starting {workers} threads to decode images"))?;
    Ok(pool.install(|| (0..total).into_par_iter().filter_map(one).collect()))
}

#[cfg(test)]
mod tests;
