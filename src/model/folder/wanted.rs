//! What a folder asks of the preparation of images, and what of it bella does not do.

use serde_json::Value;

use crate::data::{Centre, Interpolation, Resize};
use crate::model::Normalize;
use crate::model::values::Values;

/// The preparation of images that a folder asks for. Keys that it leaves out are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preprocessing {
    /// The file that asks for it.
    pub file: Option<&'static str>,
    pub normalize: Option<Normalize>,
    pub interpolation: Option<Interpolation>,
    /// Whether the aspect ratio is kept.
    pub resize: Option<Resize>,
    /// The share of the resized shorter side that the centre crop keeps.
    pub crop_pct: Option<f64>,
    /// The place of that crop, which follows from the package.
    pub centre: Centre,
    /// The number of pixels per side of the images that enter the network.
    pub image_size: Option<i64>,
    /// What the file asks for besides, which bella does not do.
    pub refused: Vec<Refused>,
}

/// A part of a preparation that bella does not do.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The key of `[checkpoint]` that counts in its place where the user sets it.
    pub key: &'static str,
    pub why: String,
}

impl Preprocessing {
    /// Returns the lines that `bella inspect` prints about it.
    pub fn report(&self) -> String {
        let asked = self.line().unwrap_or("nothing says it: checkpoint.normalize is needed".into());
        let refused = self.refused.iter().map(|refused| format!("              refused: {}\n", refused.why));
        format!("preparation   {asked}\n{}", refused.collect::<String>())
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

    /// Notes that `key` of the file has a value that bella does not compute.
    pub(super) fn refuse(&mut self, values: &Values, key: &str, way: Instead) {
        let said = values.get(key).map_or("null".into(), Value::to_string);
        let why = format!("{}: {key} = {said}: bella {}", values.path.display(), way.advice);
        self.refused.push(Refused { key: way.key, why });
    }
}

/// The answer to a file that asks for what bella does not do.
#[derive(Clone, Copy)]
pub(super) struct Instead {
    /// The key of `[checkpoint]` that settles it.
    pub key: &'static str,
    /// The end of the sentence that begins with the file, its value, and `bella`.
    pub advice: &'static str,
}

/// The answer to a filter that bella does not have.
pub(super) const FILTER: Instead = Instead {
    key: "interpolation",
    advice: "resizes by \"bicubic\" or \"bilinear\": set checkpoint.interpolation to the one that shall take its place",
};

/// The answer to a crop that bella does not make.
pub(super) const CROP: Instead = Instead {
    key: "crop_pct",
    advice: "takes the centre of a resized image and pads none: set checkpoint.crop_pct to the share that it shall keep",
};

/// The answer to a share that bella does not take.
pub(super) const SHARE: Instead =
    Instead { key: "crop_pct", advice: "keeps from 0.1 to 1 of the side of a resized image: set checkpoint.crop_pct" };

/// The answer to images that are no squares.
pub(super) const SQUARE: Instead = Instead {
    key: "image_size",
    advice: "gives square images of three colours to the network: set checkpoint.image_size",
};

/// The answer to a mean or a standard deviation that is none of three colours.
pub(super) const NORMALIZE: Instead = Instead {
    key: "normalize",
    advice: "needs three numbers, and a standard deviation above 0: set checkpoint.normalize",
};

pub(super) fn is_share(value: &f64) -> bool {
    (0.1..=1.0).contains(value)
}

/// Returns three numbers, one for each colour.
pub(super) fn three(value: &Value) -> Option<[f64; 3]> {
    let numbers: Vec<f64> = value.as_array()?.iter().filter_map(Value::as_f64).collect();
    numbers.try_into().ok()
}

/// Returns the normalisation by a mean and a standard deviation, which must be above 0.
pub(super) fn normalize((mean, std): ([f64; 3], [f64; 3])) -> Option<Normalize> {
    std.iter().all(|value| *value > 0.0).then_some(Normalize { mean, std })
}
