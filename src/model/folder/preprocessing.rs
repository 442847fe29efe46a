//! Reads the preparation of a folder's images from `preprocessor_config.json` (transformers), `pretrained_cfg` (timm)
//! or `preprocess_cfg` (open_clip).

use std::path::Path;

use serde_json::Value;

use super::config::{FILES, input_size};
use super::weights::{Place, has_weights};
use crate::base::files::read_json;
use crate::data::{Interpolation, Resize};
use crate::model::Normalize;

/// The file in which transformers stores the preparation of images.
pub const FILE: &str = "preprocessor_config.json";

/// timm's `crop_pct` for a network that says none.
const TIMM_CROP_PCT: f64 = 0.875;

/// The preparation of images that a folder asks for. Keys that it leaves out are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Preprocessing {
    /// The file that asks for it.
    pub file: Option<&'static str>,
    pub normalize: Option<Normalize>,
    pub interpolation: Option<Interpolation>,
    /// Whether the aspect ratio is kept.
    pub resize: Option<Resize>,
    /// The share of the resized shorter side that the centre crop keeps.
    pub crop_pct: Option<f64>,
    /// The number of pixels per side of the images that enter the network.
    pub image_size: Option<i64>,
}

impl Preprocessing {
    /// Reads the values beside weights, a folder or a file. A missing or damaged file gives no values here; it is reported
    /// when the checkpoint is opened.
    pub fn of(path: &Path) -> Preprocessing {
        if let Some((_, found)) = beside(path, [FILE]).next() {
            return Preprocessing { file: Some(FILE), ..Preprocessing::of_transformers(&found) };
        }
        let found = beside(path, FILES).find_map(|(name, config)| {
            let open_clip = config.get("preprocess_cfg").map(Preprocessing::of_open_clip);
            let found = open_clip.or(config.get("pretrained_cfg").map(Preprocessing::of_timm))?;
            Some(Preprocessing { file: Some(name), ..found })
        });
        found.unwrap_or_default()
    }

    /// Returns what is asked for as one line, and the file that asks; `None` if no file does.
    pub fn line(&self) -> Option<String> {
        let said = [
            self.image_size.map(|size| format!("{size} x {size} px")),
            self.resize.map(|resize| resize.to_string()),
            self.crop_pct.map(|share| format!("crop_pct {share}")),
            self.interpolation.map(|filter| filter.to_string()),
            self.normalize.map(|normalize| normalize.to_string()),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        self.file.map(|file| format!("{} ({file})", said.join(", ")))
    }

    fn of_transformers(config: &Value) -> Preprocessing {
        let interpolation = match config.get("resample").and_then(Value::as_i64) {
            Some(2) => Some(Interpolation::Bilinear),
            Some(3) => Some(Interpolation::Bicubic),
            _ => None,
        };
        let crops = config.get("do_center_crop").and_then(Value::as_bool).unwrap_or(false);
        let key = if crops { "crop_size" } else { "size" };
        let (size, sides) = (config.get("size"), ["height", "width"]);
        let resize = match size {
            Some(size) if size.get("shortest_edge").is_some() => Some(Resize::ShorterSideCrop),
            // Before transformers 4.26, a number was the shorter side where a crop follows.
            Some(size) if size.is_number() => Some(if crops { Resize::ShorterSideCrop } else { Resize::Stretch }),
            // A square, of which a crop only takes the centre.
            Some(size) if sides.iter().all(|side| size.get(side).is_some()) => Some(Resize::Stretch),
            _ => None,
        };
        let cropped = config.get("crop_size").and_then(side).zip(size.and_then(side)).filter(|_| crops);
        Preprocessing {
            file: None,
            normalize: normalize(config.get("image_mean"), config.get("image_std")),
            interpolation,
            resize,
            crop_pct: cropped.map(|(crop, side)| crop as f64 / side as f64).filter(is_share),
            image_size: config.get(key).and_then(side),
        }
    }

    fn of_timm(config: &Value) -> Preprocessing {
        let crop_pct = config.get("crop_pct").map_or(Some(TIMM_CROP_PCT), Value::as_f64).filter(is_share);
        Preprocessing { crop_pct, ..Preprocessing::of_open_clip(config) }
    }

    fn of_open_clip(config: &Value) -> Preprocessing {
        let interpolation = match config.get("interpolation").and_then(Value::as_str) {
            Some("bilinear") => Some(Interpolation::Bilinear),
            Some("bicubic") => Some(Interpolation::Bicubic),
            _ => None,
        };
        let normalize = normalize(config.get("mean"), config.get("std"));
        let word = |key: &str| config.get(key).and_then(Value::as_str);
        // open_clip's word, then timm's.
        let resize = match word("resize_mode").or(word("crop_mode")) {
            Some("shortest" | "center") => Some(Resize::ShorterSideCrop),
            Some("squash") => Some(Resize::Stretch),
            _ => None,
        };
        Preprocessing { file: None, normalize, interpolation, resize, crop_pct: None, image_size: input_size(config) }
    }
}

fn is_share(value: &f64) -> bool {
    (0.1..=1.0).contains(value)
}

/// Returns those of the named files beside weights, a folder or a file, that can be read as JSON.
pub(super) fn beside<const N: usize>(
    path: &Path,
    names: [&'static str; N],
) -> impl Iterator<Item = (&'static str, Value)> {
    let folder =
        has_weights(path).is_ok_and(|has| has).then(|| Place::of(path).ok()).flatten().map(|place| place.folder);
    let read = move |name| Some((name, read_json(&folder.as_ref()?.join(name)).ok()?));
    names.into_iter().filter_map(read)
}

/// Returns the number of pixels per side from `224`, `{"height": 224, "width": 224}` or `{"shortest_edge": 224}`.
fn side(size: &Value) -> Option<i64> {
    size.as_i64().or_else(|| ["height", "shortest_edge"].iter().find_map(|key| size.get(key)?.as_i64()))
}

fn normalize(mean: Option<&Value>, std: Option<&Value>) -> Option<Normalize> {
    let three = |value: &Value| -> Option<[f64; 3]> {
        let numbers: Vec<f64> = value.as_array()?.iter().filter_map(Value::as_f64).collect();
        numbers.try_into().ok()
    };
    let (mean, std) = (three(mean?)?, three(std?)?);
    std.iter().all(|value| *value > 0.0).then_some(Normalize { mean, std })
}
