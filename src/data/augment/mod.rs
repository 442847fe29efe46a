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
        if self.crop == Crop::Fixed && (table.sets("scale") || table.sets("ratio")) {
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

/// The moment at which an image is seen. Its random view depends on the moment and on the image alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub epoch: u64,
    pub particle: u64,
    /// The number of times that the image came before in the order of the epoch.
    pub draw: u64,
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
        Seen { epoch, particle, draw }: Seen,
        index: u64,
    ) -> Result<RgbImage> {
        let place = [epoch, particle, index, draw];
        // The first view in an epoch is that of orders in which no image comes twice.
        let mut rng = stream(self.seed, Purpose::Augment, if draw == 0 { &place[..3] } else { &place });
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
mod tests {
    use image::Rgb;

    use super::*;
    use crate::schema::Tree;

    fn read(toml: &str) -> Result<Option<Augment>, String> {
        let sets: Vec<String> = toml.lines().map(str::to_owned).collect();
        let tree = Tree::load(&[], &sets, &[]).map_err(|problems| problems.to_string())?;
        let root = Reader::root(&tree);
        let augment = root.table_if_given("augment", Augment::read);
        root.close(augment).map_err(|problems| problems.to_string())
    }

    fn views(toml: &str) -> Views {
        Views { augment: read(toml).unwrap().unwrap(), seed: 1, interpolation: Interpolation::Bicubic }
    }

    fn picture() -> RgbImage {
        RgbImage::from_fn(50, 30, |x, y| Rgb([5 * x as u8, 8 * y as u8, (x * y % 256) as u8]))
    }

    #[test]
    fn defaults_are_torchvisions() {
        assert_eq!(read("").unwrap(), None);
        let found = read("augment.flip=0.5").unwrap().unwrap();
        let expected = Augment {
            crop: Crop::RandomResized,
            scale: [0.08, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
            flip: 0.5,
            randaugment: None,
        };
        assert_eq!(found, expected);
        let stored = crate::schema::table(&found).to_string();
        let again: Vec<String> = stored.lines().map(|line| format!("augment.{}", line.replace(" = ", "="))).collect();
        assert_eq!(read(&again.join("\n")).unwrap(), Some(found));
    }

    #[test]
    fn mistakes_are_named() {
        for (toml, expected) in [
            ("augment.scale=[1.0, 0.5]", "the smaller one first"),
            ("augment.scale=[0.5]", "two numbers"),
            ("augment.crop='fixed'\naugment.ratio=[1.0, 1.0]", "belong to crop"),
            ("augment.flip=2.0", "flip"),
            ("augment.randaugment.magnitude=31", "magnitude"),
            ("augment.flips=0.5", "flips"),
        ] {
            let error = read(toml).unwrap_err();
            assert!(error.contains(expected), "{toml}: {error}");
        }
    }

    #[test]
    fn crops_have_the_area_and_ratio_asked_for() {
        let augment = views("augment.scale=[0.2, 0.6]").augment;
        let mut rng = stream(1, Purpose::Check, &[]);
        let (mut areas, mut lefts) = (Vec::new(), 0);
        for _ in 0..2000 {
            let [left, top, width, height] = augment.rectangle((200, 150), &mut rng);
            assert!(width > 0 && height > 0 && left + width <= 200 && top + height <= 150);
            let ratio = f64::from(width) / f64::from(height);
            assert!((0.73..1.37).contains(&ratio), "{ratio}");
            areas.push(f64::from(width * height) / 30_000.0);
            lefts += u32::from(left > (200 - width) / 2);
        }
        assert!(areas.iter().all(|area| (0.19..0.61).contains(area)));
        // The shares are uniform on [0.2, 0.6], so five standard errors of the mean are 0.013. The few draws that do not
        // fit are drawn again.
        let mean = areas.iter().sum::<f64>() / 2000.0;
        assert!((mean - 0.4).abs() < 0.02, "{mean}");
        assert!((850..1150).contains(&lefts), "{lefts}");
    }

    #[test]
    fn images_that_no_crop_fits_give_their_centre() {
        // torchvision's fallback for (width, height) takes round(30 * 4 / 3) = 40 of the 4000 columns, and likewise for
        // rows.
        let augment = views("augment.scale=[1.0, 1.0]").augment;
        let mut rng = stream(1, Purpose::Check, &[]);
        assert_eq!(augment.rectangle((4000, 30), &mut rng), [1980, 0, 40, 30]);
        assert_eq!(augment.rectangle((30, 4000), &mut rng), [0, 1980, 30, 40]);
    }

    #[test]
    fn a_view_depends_on_epoch_particle_draw_and_image_alone() {
        let views = views("augment.randaugment.magnitude=9");
        let seen = |[epoch, particle, draw]: [u64; 3]| Seen { epoch, particle, draw };
        let view = |at: [u64; 3], image| views.view(picture(), (16, 12), seen(at), image).unwrap();
        let first = view([0, 0, 0], 0);
        assert_eq!(first.dimensions(), (16, 12));
        assert_eq!(first, view([0, 0, 0], 0));
        assert_ne!(first, view([0, 0, 0], 1));
        for other in [[1, 0, 0], [0, 1, 0], [0, 0, 1]] {
            assert_ne!(first, view(other, 0));
        }
        assert_ne!(first, Views { seed: 2, ..views }.view(picture(), (16, 12), seen([0; 3]), 0).unwrap());
    }

    #[test]
    fn half_of_the_views_are_mirrored() {
        let views = views("augment.crop='fixed'");
        let mut mirrored = picture();
        image::imageops::flip_horizontal_in_place(&mut mirrored);
        let first = Seen { epoch: 0, particle: 0, draw: 0 };
        let seen = |image| views.view(picture(), (50, 30), first, image).unwrap();
        let count = (0..400).map(seen).filter(|view| *view == mirrored).count();
        assert!((0..400).map(seen).all(|view| view == mirrored || view == picture()));
        // Five standard deviations are 50.
        assert!((150..250).contains(&count), "{count}");
    }
}
