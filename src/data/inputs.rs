//! The inputs of a split: images as bytes in memory, images as files that are decoded when needed, texts, questions about images, or
//! rows of numbers. Images are u8 RGB in row-major layout, `[N, 3, H, W]`.

use anyhow::{Context, Result, bail, ensure};
use rayon::prelude::*;

use super::augment::{Seen, Views};
use super::corruptions::Applied;
use super::decode::{interleaved, planar};
use super::images::{Files, Images, Packed};
use super::numbers::Rows;
use super::texts::{Questions, Texts};
use crate::schema::words;

words! {
    /// The kind of samples: images, texts, questions about images, or rows of numbers.
    pub enum Medium {
        Images = "images",
        Texts = "texts",
        Questions = "questions",
        Rows = "rows",
    }
}

impl Medium {
    /// Returns the words for one sample.
    pub fn one(self) -> &'static str {
        match self {
            Medium::Images => "an image",
            Medium::Texts => "a text",
            Medium::Questions => "a question",
            Medium::Rows => "a row of numbers",
        }
    }

    /// Returns the name of what is done with such samples, as model cards of the Hugging Face hub have it.
    pub fn pipeline(self) -> &'static str {
        match self {
            Medium::Images => "image-classification",
            Medium::Texts => "text-classification",
            Medium::Questions => "visual-question-answering",
            Medium::Rows => "tabular-classification",
        }
    }
}

/// The inputs of a split.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// Images in memory, ready to be moved to a device as a whole.
    Packed(Packed),
    /// Images on disk; see [`super::stream::stream`].
    Files(Files),
    /// Prompts of a language network.
    Texts(Texts),
    /// Questions about images.
    Questions(Questions),
    /// Rows of numbers.
    Rows(Rows),
}

/// Why there is no image to show or to change.
fn no_images(of: Medium) -> String {
    format!("this set holds {of}, and this command needs images")
}

impl From<Images> for Inputs {
    fn from(images: Images) -> Inputs {
        match images {
            Images::Packed(packed) => Inputs::Packed(packed),
            Images::Files(files) => Inputs::Files(files),
        }
    }
}

impl Inputs {
    /// Returns the number of inputs.
    pub fn len(&self) -> usize {
        match self {
            Inputs::Packed(packed) => packed.len(),
            Inputs::Files(files) => files.paths.len(),
            Inputs::Texts(texts) => texts.prompts.texts.len(),
            Inputs::Questions(questions) => questions.prompts.len(),
            Inputs::Rows(rows) => rows.len(),
        }
    }

    /// Returns what they are.
    pub fn medium(&self) -> Medium {
        match self {
            Inputs::Packed(_) | Inputs::Files(_) => Medium::Images,
            Inputs::Texts(_) => Medium::Texts,
            Inputs::Questions(_) => Medium::Questions,
            Inputs::Rows(_) => Medium::Rows,
        }
    }

    /// Hands over the bytes by which a resumed run knows the inputs: of files their names and sizes.
    pub fn describe(&self, take: &mut dyn FnMut(&[u8])) {
        match self {
            Inputs::Packed(packed) => take(&packed.pixels),
            Inputs::Files(files) => files.describe(take),
            Inputs::Texts(texts) => texts.prompts.all().for_each(|text| {
                take(&(text.len() as u64).to_le_bytes());
                take(text.as_bytes());
            }),
            Inputs::Questions(questions) => questions.describe(take),
            Inputs::Rows(rows) => rows.describe(take),
        }
    }

    /// Returns the files of images, also of those that questions are about.
    pub fn files(&self) -> Option<&Files> {
        match self {
            Inputs::Files(files) => Some(files),
            Inputs::Questions(Questions { images: Images::Files(files), .. }) => Some(files),
            Inputs::Questions(_) | Inputs::Packed(_) | Inputs::Texts(_) | Inputs::Rows(_) => None,
        }
    }

    /// Returns whether there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the `(height, width)` of every image, also of those that questions are about; texts have none.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Inputs::Packed(packed) => (packed.height, packed.width),
            Inputs::Files(files) => (files.decode.height, files.decode.width),
            Inputs::Texts(_) | Inputs::Rows(_) => (0, 0),
            Inputs::Questions(questions) => questions.images.size(),
        }
    }

    /// Returns image i, `[3, H, W]`.
    ///
    /// # Errors
    /// Fails if there is no such image, if its file cannot be decoded, or for texts.
    pub fn image(&self, i: usize) -> Result<Vec<u8>> {
        ensure!(i < self.len(), "image {i} is asked of a split of {}", self.len());
        match self {
            Inputs::Packed(packed) => Ok(packed.image(i).to_vec()),
            Inputs::Files(files) => files.image(i),
            Inputs::Texts(_) | Inputs::Questions(_) | Inputs::Rows(_) => bail!(no_images(self.medium())),
        }
    }

    /// Returns the random view of image i when it is `seen`, `[3, H, W]`.
    ///
    /// # Errors
    /// Fails like [`Inputs::image`].
    pub fn view(&self, i: usize, views: &Views, seen: Seen) -> Result<Vec<u8>> {
        let (height, width) = self.size();
        let image = match self {
            Inputs::Files(files) if views.augment.crops() => files.rgb(i)?,
            _ => {
                let image = interleaved(&self.image(i)?, height, width);
                image.context("an image of another size than its split's")?
            }
        };
        Ok(planar(&views.view(image, (width as u32, height as u32), seen, i as u64)?))
    }

    /// Returns the inputs at `indices`, in that order.
    pub fn select(&self, indices: &[u32]) -> Inputs {
        match self {
            Inputs::Packed(packed) => Inputs::Packed(Packed { pixels: packed.gather(indices), ..*packed }),
            Inputs::Files(files) => Inputs::Files(files.select(indices)),
            Inputs::Texts(texts) => Inputs::Texts(texts.select(indices)),
            Inputs::Questions(questions) => Inputs::Questions(questions.select(indices)),
            Inputs::Rows(rows) => Inputs::Rows(rows.select(indices)),
        }
    }

    /// Returns the bytes of the images at `indices`, `[B, 3, H, W]`. Files are decoded on the calling thread's rayon
    /// pool.
    ///
    /// # Errors
    /// Fails if a file cannot be decoded.
    pub fn gather(&self, indices: &[u32]) -> Result<Vec<u8>> {
        match self {
            Inputs::Packed(packed) => Ok(packed.gather(indices)),
            Inputs::Files(files) => {
                let decoded: Result<Vec<_>> = indices.par_iter().map(|&i| files.image(i as usize)).collect();
                Ok(decoded?.concat())
            }
            Inputs::Texts(_) | Inputs::Questions(_) | Inputs::Rows(_) => bail!(no_images(self.medium())),
        }
    }

    /// Returns the same images with a built-in corruption. The noise of image i depends on the seed and on i alone, and
    /// not on threads, batches or the order of reading.
    ///
    /// # Errors
    /// Fails if the corruption cannot be applied to an image.
    pub fn corrupted(&self, applied: Applied) -> Result<Inputs> {
        Ok(match self {
            Inputs::Packed(packed) => Inputs::Packed(packed.corrupted(applied)?),
            Inputs::Files(files) => Inputs::Files(files.corrupted(applied)),
            Inputs::Texts(_) | Inputs::Questions(_) | Inputs::Rows(_) => bail!(no_images(self.medium())),
        })
    }
}
