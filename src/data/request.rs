//! How a split is to be read.

use std::path::Path;

use super::resize::Interpolation;

/// The image size that the caller needs, and the cache folder, memory and threads that it allows for decoding.
pub struct Request<'a> {
    /// Side in pixels of images that are decoded from files. Sets of one native size (CIFAR,
    /// digits) keep theirs: the caller resizes on its device.
    pub image_size: usize,
    /// The filter by which decoded images get their size.
    pub interpolation: Interpolation,
    /// The folder of decoded images that are kept on disk, if they are; never changes a result.
    pub cache: Option<&'a Path>,
    /// Image files are decoded once into memory where all of them fit in this many bytes.
    pub memory_bytes: usize,
    /// Threads that decode; never changes a result.
    pub workers: usize,
    /// Called with (done, total) images while files are decoded, from any thread.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}
