//! Random views of training images: torchvision's `RandomResizedCrop`, `RandomHorizontalFlip` and `RandAugment`, in
//! that order. A view is a pure function of the seed, epoch, particle and image, whatever the number of workers.

mod randaugment;

use anyhow::Result;
use image::RgbImage;
use rand_chacha::ChaCha12Rng;

use super::resize::{Interpolation, Window, resize};
use crate::base::random::{Purpose, below, stream, uniform};
use crate::schema::{Reader, limits, settings, words};

use randaugment::RandAugment;

settings! {
    /// The settings of `[data.*.augment]`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Augment {
        /// Part of the image that is seen: a random crop, or the one that evaluation sees.
        crop: Crop = Crop::RandomResized;
        // The smallest and the largest.
        scale: [f64; 2], by |table| pair(table, "scale", "Least and largest share of the area that a crop takes.", [0.08, 1.0]);
        ratio: [f64; 2],
            by |table| pair(table, "ratio", "Least and largest ratio of a crop's width to its height.", [3.0 / 4.0, 4.0 / 3.0]);
        /// Probability that an image is mirrored.
        flip: f64 = 0.5, in between(0.0, 1.0);
        randaugment: Option<RandAugment>, by |table| table.table_if_given("randaugment", RandAugment::read);
    } then check
}

/// Reads two numbers, the smaller one first.
fn pair(table: &Reader, key: &str, about: &'static str, default: [f64; 2]) -> [f64; 2] {
    let values = table.floats(key, limits::above(0.0)).about(about).or(default.to_vec());
    match <[f64; 2]>::try_from(values) {
        Ok([low, high]) if low <= high => [low, high],
        _ => {
            table.problem(key, "must be two numbers, the smaller one first");
            default
        }
    }
}

/// The settings and the seed that determine random views.
#[derive(Clone, Copy, Debug)]
pub struct Views {
    pub augment: Augment,
    pub seed: u64,
    /// The filter that resizes crops to the size of the set.
    pub interpolation: Interpolation,
}

words! {
    /// The part of a training image that a view shows.
    enum Crop {
        /// A random rectangle of the stored image, resized to the size of the set.
        RandomResized = "random-resized",
        /// The image as evaluation sees it.
        Fixed = "fixed",
    }
}

/// The number of crops that are tried before torchvision falls back on a central one.
const TRIES: usize = 10;

/// A rectangle of source pixels: left, top, width, height.
type Rectangle = [u32; 4];

impl Augment {
    fn check(&self, table: &Reader) {
        if self.crop == Crop::Fixed && (table.has("scale") || table.has("ratio")) {
            table.problem("crop", "scale and ratio belong to crop = \"random-resized\"");
        }
    }

    /// Returns whether views are crops of the stored images, as opposed to the images that evaluation sees.
    pub fn crops(&self) -> bool {
        self.crop == Crop::RandomResized
    }

    /// Draws a crop as torchvision's `RandomResizedCrop.get_params` does, for an image of `(width, height)`.
    fn rectangle(&self, (width, height): (u32, u32), rng: &mut ChaCha12Rng) -> Rectangle {
        let mut between = |low: f64, high: f64| low + (high - low) * uniform(rng);
        let sizes: [(f64, f64); TRIES] = std::array::from_fn(|_| {
            let area = f64::from(width) * f64::from(height) * between(self.scale[0], self.scale[1]);
            let ratio = between(self.ratio[0].ln(), self.ratio[1].ln()).exp();
            ((area * ratio).sqrt().round_ties_even(), (area / ratio).sqrt().round_ties_even())
        });
        let fits = |(w, h): &&(f64, f64)| (1.0..=width.into()).contains(w) && (1.0..=height.into()).contains(h);
        match sizes.iter().find(fits) {
            Some(&(w, h)) => {
                let (w, h) = (w as u32, h as u32);
                let top = below(rng, u64::from(height - h) + 1) as u32;
                [below(rng, u64::from(width - w) + 1) as u32, top, w, h]
            }
            None => self.central(width, height),
        }
    }

    /// Returns the largest central rectangle with an allowed ratio.
    fn central(&self, width: u32, height: u32) -> Rectangle {
        let ratio = f64::from(width) / f64::from(height);
        let rounded = |value: f64, most: u32| (value.round_ties_even() as u32).clamp(1, most);
        let (w, h) = if ratio < self.ratio[0] {
            (width, rounded(f64::from(width) / self.ratio[0], height))
        } else if ratio > self.ratio[1] {
            (rounded(f64::from(height) * self.ratio[1], width), height)
        } else {
            (width, height)
        };
        [(width - w) / 2, (height - h) / 2, w, h]
    }
}

impl Views {
    /// Returns the view of image `index` that `particle` has in `epoch`, with the given size `(width, height)`. If
    /// [`Augment::crops`], `image` is the stored image; otherwise it already has that size.
    ///
    /// # Errors
    /// Fails if the image has no pixels.
    pub fn view(
        &self,
        image: RgbImage,
        (width, height): (u32, u32),
        [epoch, particle, index]: [u64; 3],
    ) -> Result<RgbImage> {
        let mut rng = stream(self.seed, Purpose::Augment, &[epoch, particle, index]);
        let Augment { crop, flip, randaugment, .. } = self.augment;
        let mut image = match crop {
            Crop::Fixed => image,
            Crop::RandomResized => {
                let [left, top, w, h] = self.augment.rectangle(image.dimensions(), &mut rng);
                let cut = image::imageops::crop_imm(&image, left, top, w, h).to_image();
                resize(cut, (width, height), Window { left: 0, top: 0, width, height }, self.interpolation)?
            }
        };
        if uniform(&mut rng) < flip {
            image::imageops::flip_horizontal_in_place(&mut image);
        }
        Ok(match randaugment {
            Some(randaugment) => randaugment.apply(image, &mut rng),
            None => image,
        })
    }
}

#[cfg(test)]
mod tests;
