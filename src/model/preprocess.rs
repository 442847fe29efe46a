//! Turns stored bytes into the input of the network: resized, scaled and normalised.

use std::fmt;

use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::base::tensor::wide;
use crate::data::Interpolation;
use crate::schema::{Bounds, Reader, limits, words};

/// The mean and standard deviation of each colour channel, for pixels in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Normalize {
    pub mean: [f64; 3],
    pub std: [f64; 3],
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{{ mean = {:?}, std = {:?} }}", self.mean, self.std)
    }
}

impl Normalize {
    /// The values of OpenAI's CLIP.
    pub const CLIP: Normalize =
        Normalize { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] };
    pub const IMAGENET: Normalize = Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
}

words! {
    /// The published normalizations.
    enum Published { Clip = "clip", Imagenet = "imagenet" }
}

impl Normalize {
    /// Reads the key `normalize`, a word or a table; `usual` is what the checkpoint's own folder says.
    pub fn read(reader: &Reader, usual: Option<Normalize>) -> Normalize {
        if let (Some(usual), false) = (usual, reader.has("normalize")) {
            return usual;
        }
        if !reader.is_table("normalize") {
            let field = reader.choice("normalize").about(
                "Mean and standard deviation of the pixels that the checkpoint was trained with. A publisher's folder says its \
                 own; for an archive or a file of weights alone, the key is required.",
            );
            // Whether it is required depends on the checkpoint, which the list of keys does not know.
            let published = match reader.is_surveyed() {
                true => field.optional().unwrap_or(Published::Clip),
                false => field.required_or(Published::Clip, WHAT_NORMALIZE),
            };
            return match published {
                Published::Clip => Normalize::CLIP,
                Published::Imagenet => Normalize::IMAGENET,
            };
        }
        let section = reader.section("normalize");
        let three = |key: &str, bounds: Bounds| -> [f64; 3] {
            let values = section.floats(key, bounds).about("Red, green and blue, for pixels from 0 to 1.").required();
            <[f64; 3]>::try_from(values.as_slice()).unwrap_or_else(|_| {
                if !values.is_empty() {
                    section.problem(key, "must be three numbers: red, green, blue");
                }
                [1.0; 3]
            })
        };
        let normalize = Normalize { mean: three("mean", limits::any()), std: three("std", limits::above(0.0)) };
        section.finish();
        normalize
    }
}

const WHAT_NORMALIZE: &str =
    "\"clip\", \"imagenet\", or { mean = [r, g, b], std = [r, g, b] }: what the checkpoint was trained with";

/// The preprocessing of images: their size, normalization and filter.
pub struct Preprocess {
    size: i64,
    mean: Tensor,
    std: Tensor,
    interpolation: Interpolation,
    kind: Kind,
}

impl Preprocess {
    /// Preprocesses images to `size` pixels per side, on a device and in a type.
    pub fn new(
        size: i64,
        normalize: Normalize,
        interpolation: Interpolation,
        (device, kind): (Device, Kind),
    ) -> Preprocess {
        let channels =
            |values: &[f64; 3]| Tensor::from_slice(values).to_kind(wide(kind)).to_device(device).view([1, 3, 1, 1]);
        let (mean, std) = (channels(&normalize.mean), channels(&normalize.std));
        Preprocess { size, mean, std, interpolation, kind }
    }

    /// Returns the number of pixels per side of the images that the network sees.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Turns bytes `[K, 3, h, w]` into pixels in [0, 1].
    pub fn unit(&self, bytes: &Tensor) -> Tensor {
        bytes.to_kind(wide(self.kind)) / 255.0
    }

    /// Returns the filter that resizes images.
    pub fn interpolation(&self) -> Interpolation {
        self.interpolation
    }

    /// Resizes pixels in [0, 1] `[K, 3, h, w]` to the network's size, antialiased and clipped; differentiable.
    pub fn resize(&self, pixels: &Tensor) -> Tensor {
        let size = pixels.size();
        if size[2] == self.size && size[3] == self.size {
            return pixels.shallow_clone();
        }
        let to = [self.size, self.size];
        match self.interpolation {
            // Bicubic interpolation can leave [0, 1].
            Interpolation::Bicubic => pixels.internal_upsample_bicubic2d_aa(to, false, None, None).clamp(0.0, 1.0),
            Interpolation::Bilinear => pixels.internal_upsample_bilinear2d_aa(to, false, None, None),
        }
    }

    /// Normalises pixels in [0, 1] `[K, 3, S, S]` into images in the compute type.
    pub fn normalise(&self, pixels: &Tensor) -> Tensor {
        ((pixels - &self.mean) / &self.std).to_kind(self.kind)
    }

    /// Turns bytes `[p, B, 3, h, w]` into normalised images `[p, B, 3, S, S]`.
    pub fn images(&self, bytes: &Tensor) -> Tensor {
        // In place where no other code holds the tensor: a batch is too large to allocate again for each operation.
        let mut pixels = self.resize(&bytes.flatten(0, 1).to_kind(wide(self.kind)).g_div_scalar_(255.0));
        let images = pixels.g_sub_(&self.mean).g_div_(&self.std).to_kind(self.kind);
        images.view([bytes.size()[0], -1, 3, self.size, self.size])
    }
}
