//! How a folder's images are prepared: `preprocessor_config.json` of transformers, `pretrained_cfg` of timm,
//! `preprocess_cfg` of open_clip.

use std::path::Path;

use serde_json::Value;

use crate::data::Interpolation;
use crate::model::Normalize;

/// What a folder says of its images; what it does not say is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Preprocessing {
    pub normalize: Option<Normalize>,
    pub interpolation: Option<Interpolation>,
    /// Pixels a side of the images that enter the network.
    pub image_size: Option<i64>,
}

impl Preprocessing {
    /// Reads what there is; a file that is missing or damaged says nothing here, and is named when the folder is opened.
    pub fn of(folder: &Path) -> Preprocessing {
        let json = |name: &str| -> Option<Value> {
            serde_json::from_str(&std::fs::read_to_string(folder.join(name)).ok()?).ok()
        };
        if let Some(found) = json("preprocessor_config.json") {
            return Preprocessing::of_transformers(&found);
        }
        if let Some(clip) = json("open_clip_config.json").as_ref().and_then(|config| config.get("preprocess_cfg")) {
            return Preprocessing::of_timm(clip);
        }
        match json("config.json") {
            Some(config) => config.get("pretrained_cfg").map_or_else(Preprocessing::default, Preprocessing::of_timm),
            None => Preprocessing::default(),
        }
    }

    fn of_transformers(config: &Value) -> Preprocessing {
        let interpolation = match config.get("resample").and_then(Value::as_i64) {
            Some(2) => Some(Interpolation::Bilinear),
            Some(3) => Some(Interpolation::Bicubic),
            _ => None,
        };
        let crops = config.get("do_center_crop").and_then(Value::as_bool).unwrap_or(false);
        let key = if crops { "crop_size" } else { "size" };
        Preprocessing {
            normalize: normalize(config.get("image_mean"), config.get("image_std")),
            interpolation,
            image_size: config.get(key).and_then(side),
        }
    }

    fn of_timm(config: &Value) -> Preprocessing {
        let interpolation = match config.get("interpolation").and_then(Value::as_str) {
            Some("bilinear") => Some(Interpolation::Bilinear),
            Some("bicubic") => Some(Interpolation::Bicubic),
            _ => None,
        };
        let image_size = config.get("input_size").and_then(|size| size.get(1)).and_then(Value::as_i64);
        Preprocessing { normalize: normalize(config.get("mean"), config.get("std")), interpolation, image_size }
    }
}

/// `224`, `{"height": 224, "width": 224}` or `{"shortest_edge": 224}`.
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
