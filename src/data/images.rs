//! Images in memory, and images as files that are decoded when needed. Images are u8 RGB in row-major layout, `[N, 3, H, W]`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use image::RgbImage;
use rayon::prelude::*;

use super::cache;
use super::corruptions::Applied;
use super::decode::{Decode, decode_all, rgb_of};
use super::request::Request;
use super::stored::{Members, Stored};

/// Images in memory or on disk.
#[derive(Clone, Debug)]
pub enum Images {
    Packed(Packed),
    Files(Files),
}

impl Images {
    /// Returns the `(height, width)` of every image.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Images::Packed(packed) => (packed.height, packed.width),
            Images::Files(files) => (files.decode.height, files.decode.width),
        }
    }
}

/// Images in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The bytes of all images, `[N, 3, height, width]`.
    pub pixels: Vec<u8>,
    /// The height of each image.
    pub height: usize,
    /// The width of each image.
    pub width: usize,
}

/// Images on disk, with the settings for decoding them.
#[derive(Clone, Debug)]
pub struct Files {
    /// The files, one for each image.
    pub paths: Vec<PathBuf>,
    /// The members of archives that the images are, where they are no files of their own; the paths then name them.
    pub members: Option<Members>,
    /// The settings by which a file becomes `[3, height, width]`.
    pub decode: Decode,
    /// A corruption applied to each decoded image, if any, with the index of each image in the uncorrupted split.
    pub corruption: Option<(Applied, Vec<u32>)>,
    cached: Option<Cached>,
}

/// Decoded images on disk.
#[derive(Clone, Debug)]
struct Cached {
    store: Arc<cache::Store>,
    /// The index in `store` of each image.
    places: Vec<u32>,
}

impl Packed {
    /// Returns the number of bytes of one image.
    pub fn image_bytes(&self) -> usize {
        3 * self.height * self.width
    }

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.pixels.len() / self.image_bytes()
    }

    /// Returns whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.pixels.is_empty()
    }

    /// Returns image i, `[3, H, W]`.
    pub fn image(&self, i: usize) -> &[u8] {
        let bytes = self.image_bytes();
        &self.pixels[i * bytes..(i + 1) * bytes]
    }

    /// Returns the images at `indices`, `[B, 3, H, W]`.
    pub fn gather(&self, indices: &[u32]) -> Vec<u8> {
        let mut batch = Vec::with_capacity(indices.len() * self.image_bytes());
        indices.iter().for_each(|&i| batch.extend_from_slice(self.image(i as usize)));
        batch
    }

    pub(super) fn corrupted(&self, applied: Applied) -> Result<Packed> {
        let mut pixels = self.pixels.clone();
        pixels
            .par_chunks_mut(self.image_bytes())
            .enumerate()
            .try_for_each(|(i, image)| applied.apply(image, self.height, self.width, i as u32))?;
        Ok(Packed { pixels, ..*self })
    }
}

impl Files {
    /// Creates image files without corruption or cache, one for each image.
    pub fn new(paths: Vec<PathBuf>, decode: Decode) -> Files {
        Files { paths, members: None, decode, corruption: None, cached: None }
    }

    /// Returns the same images as members of archives, which the paths name, if they are.
    pub fn within(self, members: Option<Members>) -> Files {
        Files { members, ..self }
    }

    /// Returns the same images, read from the cache that `request` names. The cache is created first if it does not
    /// exist.
    ///
    /// # Errors
    /// Fails if the cache folder cannot be written or the disk is full.
    pub fn with_cache(self, request: &Request) -> Result<Files> {
        let Some(folder) = request.cache else { return Ok(self) };
        let store = Arc::new(cache::open(folder, &self.stored(), request)?);
        let cached = Some(Cached { store, places: (0..self.paths.len() as u32).collect() });
        Ok(Files { cached, ..self })
    }

    /// Hands over the names and sizes of the files.
    pub(super) fn describe(&self, take: &mut dyn FnMut(&[u8])) {
        for (i, path) in self.paths.iter().enumerate() {
            take(path.file_name().map_or(&[][..], |name| name.as_encoded_bytes()));
            let of_file = || path.metadata().map_or(0, |meta| meta.len());
            take(&self.members.as_ref().map_or_else(of_file, |members| members.of[i].size).to_le_bytes());
        }
    }

    pub(super) fn corrupted(&self, applied: Applied) -> Files {
        let index = (0..self.paths.len() as u32).collect();
        Files { corruption: Some((applied, index)), ..self.clone() }
    }

    pub(super) fn path(&self, i: usize) -> Result<&PathBuf> {
        self.paths.get(i).with_context(|| format!("image {i} is asked of a split of {}", self.paths.len()))
    }

    fn stored(&self) -> Stored<'_> {
        Stored { paths: &self.paths, members: self.members.as_ref(), decode: self.decode }
    }

    /// Returns the bytes of the file of image i.
    pub(super) fn bytes(&self, i: usize) -> Result<Vec<u8>> {
        self.stored().bytes(i)
    }

    /// Returns image i in RGB at its stored size.
    pub(super) fn rgb(&self, i: usize) -> Result<RgbImage> {
        rgb_of(&self.stored().bytes(i)?, self.path(i)?, self.decode.turns)
    }

    /// Returns image i, `[3, H, W]`: decoded and resized, or read from the cache, and corrupted if there is a
    /// corruption.
    ///
    /// # Errors
    /// Fails if the file cannot be read or decoded, if `resize = "none"` and it has another size than required, or if
    /// the cache is damaged.
    pub fn image(&self, i: usize) -> Result<Vec<u8>> {
        self.path(i)?;
        let packed = match &self.cached {
            Some(cached) => cached.store.image(cached.places[i] as usize)?,
            None => None,
        };
        let mut pixels = match packed {
            Some(pixels) => pixels.to_vec(),
            None => self.stored().decoded(i)?,
        };
        if let Some((applied, index)) = &self.corruption {
            applied.apply(&mut pixels, self.decode.height, self.decode.width, index[i])?;
        }
        Ok(pixels)
    }

    /// Returns the number of bytes of all images after decoding.
    pub fn decoded_bytes(&self) -> usize {
        self.paths.len().saturating_mul(self.decode.image_bytes())
    }

    pub(super) fn select(&self, indices: &[u32]) -> Files {
        let corruption =
            self.corruption.as_ref().map(|(applied, of)| (*applied, indices.iter().map(|&i| of[i as usize]).collect()));
        let cached = self.cached.as_ref().map(|cached| Cached {
            store: cached.store.clone(),
            places: indices.iter().map(|&i| cached.places[i as usize]).collect(),
        });
        let paths = indices.iter().map(|&i| self.paths[i as usize].clone()).collect();
        let members = self.members.as_ref().map(|members| members.select(indices));
        Files { paths, members, decode: self.decode, corruption, cached }
    }

    /// Decodes every file on `workers` threads and passes each result to `keep`, in any order. Returns the failures,
    /// sorted by index.
    pub(super) fn decode_all(
        &self,
        workers: usize,
        progress: &(dyn Fn(usize, usize) + Sync),
        keep: impl Fn(usize, Vec<u8>) + Sync,
    ) -> Result<Vec<(usize, anyhow::Error)>> {
        decode_all(self.paths.len(), |i| self.image(i), workers, progress, keep)
    }
}
