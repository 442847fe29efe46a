//! The requirements and limits under which a split is read.

use std::path::Path;

use super::resize::{Centre, Interpolation};

/// The image size that the caller needs, and the cache folder, memory and threads that it allows for decoding.
pub struct Request<'a> {
    /// The side in pixels of images that are decoded from files. Sets with a native size (CIFAR, digits) keep it, and
    /// the caller resizes on its device.
    pub image_size: usize,
    /// The filter that resizes decoded images.
    pub interpolation: Interpolation,
    /// The share of the resized shorter side that the centre crop keeps, in (0, 1].
    pub crop_pct: f64,
    /// The place of the centre crop.
    pub centre: Centre,
    /// The folder in which decoded images are kept on disk, if they are. It never changes a result.
    pub cache: Option<&'a Path>,
    /// The memory in bytes for decoded images. If all images of a split fit, its files are decoded only once.
    pub memory_bytes: usize,
    /// Whether damaged images stay in a split that leaves them out, so that no image is decoded to find them.
    pub keeps_corrupt: bool,
    /// The number of threads that decode. It never changes a result.
    pub workers: usize,
    /// Called with the numbers of finished and of all images while files are decoded, from any thread.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl<'a> Request<'a> {
    /// Returns a request for splits whose pixels are not used: nothing is decoded into memory, and the size is small.
    pub const fn listing(workers: usize, progress: &'a (dyn Fn(usize, usize) + Sync)) -> Request<'a> {
        Request {
            image_size: 32,
            interpolation: Interpolation::Bicubic,
            crop_pct: 1.0,
            centre: Centre::Even,
            cache: None,
            memory_bytes: 0,
            keeps_corrupt: false,
            workers,
            progress,
        }
    }
}
