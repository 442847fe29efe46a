//! Reads the preparation of a folder's images from `processor_config.json` or `preprocessor_config.json` (transformers), `pretrained_cfg` (timm)
//! or `preprocess_cfg` (open_clip).

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::processors;
use super::wanted::{CROP, FILTER, Instead, NORMALIZE, Preprocessing, Refused, SHARE, SQUARE, is_share, normalize};
use super::weights::{FILES, Place, configs, has_weights, input_size};
use crate::base::files::{is_there, read_json};
use crate::data::{Centre, Interpolation, Resize};
use crate::hub::{PREPARATION, PROCESSOR};
use crate::model::Normalize;
use crate::model::values::Values;

/// Returns what a folder of transformers says of the preparation of images, with the file that says it; `None` if none does. Where both
/// files do, that of transformers 5 counts, as it does there.
///
/// # Errors
/// Fails if a file that is asked is there and no JSON.
pub fn stated(folder: &Path) -> Result<Option<(&'static str, Value)>> {
    for (name, key) in [(PROCESSOR, Some("image_processor")), (PREPARATION, None)] {
        let file = folder.join(name);
        if !is_there(&file) {
            continue;
        }
        let whole = read_json(&file)?;
        if let Some(table) = key.map_or(Some(&whole), |key| whole.get(key)) {
            return Ok(Some((name, table.clone())));
        }
    }
    Ok(None)
}

/// timm's `crop_pct` for a network that says none.
const TIMM_CROP_PCT: f64 = 0.875;

/// Returns the model type that the config beside weights names.
fn model_type_of(path: &Path) -> Option<String> {
    beside(path, configs(path)).find_map(|(_, config)| Some(config.get("model_type")?.as_str()?.to_string()))
}

/// Returns the model type beside weights, and the normalisation of images of published networks of that type.
pub fn usual_normalize(path: &Path) -> Option<(String, Normalize)> {
    let model_type = model_type_of(path)?;
    let usual = processors::usual_normalize(&model_type)?;
    Some((model_type, usual))
}

impl Preprocessing {
    /// Returns the filter of a config that names none. Where that of the folder is refused, a config has to name one, and the filter that a
    /// saved config leaves out otherwise is no default.
    pub fn default_interpolation(&self) -> Interpolation {
        let usual = if self.refuses("interpolation") { Interpolation::Bilinear } else { Interpolation::Bicubic };
        self.interpolation.unwrap_or(usual)
    }

    /// Returns the share that a centre crop keeps where a config names none; the same holds where that of the folder is refused.
    pub fn default_crop_pct(&self) -> f64 {
        self.crop_pct.unwrap_or(if self.refuses("crop_pct") { TIMM_CROP_PCT } else { 1.0 })
    }

    fn refuses(&self, key: &str) -> bool {
        self.refused.iter().any(|refused| refused.key == key)
    }

    /// Reads the values beside weights, a folder or a file. A missing file gives no values here; it is reported when the checkpoint is
    /// opened. A damaged one leaves the normalisation to the user.
    pub fn of(path: &Path) -> Preprocessing {
        let at = |name: &str, table: &Value| Values::new(&folder(path).unwrap_or_default().join(name), table.clone());
        let said = match folder(path).map_or(Ok(None), |folder| readable(&folder).and_then(|()| stated(&folder))) {
            Ok(said) => said,
            Err(error) => {
                let why = format!("{error:#}: repair the file, or copy it from its publisher again");
                return Preprocessing { refused: vec![Refused { key: "normalize", why }], ..Preprocessing::default() };
            }
        };
        if let Some((name, table)) = said {
            let found = processors::read(&at(name, &table), model_type_of(path));
            return Preprocessing { file: Some(name), ..found };
        }
        let found = beside(path, configs(path)).find_map(|(name, config)| {
            let open_clip = config.get("preprocess_cfg").map(|table| Preprocessing::of_open_clip(&at(name, table)));
            // Older folders of timm have one table.
            let timm = || config.get("architecture").map(|_| config.get("pretrained_cfg").unwrap_or(&config));
            // timm's arguments change the size for which a network is built.
            let own = Values::new(Path::new(name), config.get("model_args").cloned().unwrap_or(Value::Null));
            let own = own.get("img_size").and_then(|_| own.side("img_size", 0).ok());
            let of_timm = |table| {
                let found = Preprocessing::of_timm(&at(name, table));
                Preprocessing { image_size: own.or(found.image_size), ..found }
            };
            let found = open_clip.or_else(|| timm().map(of_timm))?;
            Some(Preprocessing { file: Some(name), ..found })
        });
        // Where no file says it, an export into the folder's package cuts as that does.
        let centre = if model_type_of(path).is_some() { Centre::Down } else { Centre::Even };
        found.unwrap_or(Preprocessing { centre, ..Preprocessing::default() })
    }

    fn of_timm(config: &Values) -> Preprocessing {
        let mut found = Preprocessing {
            normalize: Some(Normalize::IMAGENET),
            interpolation: Some(Interpolation::Bicubic),
            resize: Some(Resize::ShorterSideCrop),
            crop_pct: config.get("crop_pct").map_or(Some(TIMM_CROP_PCT), Value::as_f64),
            ..Preprocessing::default()
        };
        found.fill(config);
        match config.text("crop_mode") {
            None | Some("center") => {}
            Some("squash") => found.resize = Some(Resize::Stretch),
            Some(_) => found.refuse(config, "crop_mode", CROP),
        }
        if !found.crop_pct.as_ref().is_some_and(is_share) {
            found.crop_pct = None;
            found.refuse(config, "crop_pct", SHARE);
        }
        found.image_size = input_size(config.table());
        if config.get("input_size").is_some_and(|size| !is_square(size)) {
            found.refuse(config, "input_size", SQUARE);
        }
        found
    }

    fn of_open_clip(config: &Values) -> Preprocessing {
        let mut found = Preprocessing {
            normalize: Some(Normalize::CLIP),
            interpolation: Some(Interpolation::Bicubic),
            resize: Some(Resize::ShorterSideCrop),
            ..Preprocessing::default()
        };
        found.fill(config);
        match config.text("resize_mode") {
            None | Some("shortest") => {}
            Some("squash") => found.resize = Some(Resize::Stretch),
            Some(_) => found.refuse(config, "resize_mode", CROP),
        }
        if config.text("mode").is_some_and(|mode| mode != "RGB") {
            found.refuse(
                config,
                "mode",
                Instead { key: "normalize", advice: "reads images in RGB: set checkpoint.normalize to do so" },
            );
        }
        found
    }

    /// Reads the keys that timm and open_clip share.
    fn fill(&mut self, config: &Values) {
        match config.text("interpolation") {
            None | Some("bicubic") => {}
            // open_clip means it for training and takes bicubic otherwise; timm draws a filter.
            Some("random") if config.get("input_size").is_none() => {}
            Some("bilinear") => self.interpolation = Some(Interpolation::Bilinear),
            Some(_) => {
                self.interpolation = None;
                self.refuse(config, "interpolation", FILTER);
            }
        }
        if let Some(usual) = self.normalize {
            let three = |key: &str, usual: [f64; 3]| config.get(key).map_or(Some(usual), super::wanted::three);
            let found = three("mean", usual.mean).zip(three("std", usual.std));
            self.normalize = found.and_then(normalize);
            if self.normalize.is_none() {
                let odd = if config.get("mean").is_some_and(|mean| super::wanted::three(mean).is_none()) {
                    "mean"
                } else {
                    "std"
                };
                self.refuse(config, odd, NORMALIZE);
            }
        }
    }
}

/// Returns whether `[3, height, width]` are those of a square in colour.
fn is_square(size: &Value) -> bool {
    let sides: Vec<i64> = size.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    matches!(sides[..], [3, height, width] if height == width)
}

/// Returns the folder of the weights at a path, a folder or a file.
fn folder(path: &Path) -> Option<PathBuf> {
    // The weights of a folder may still have to be downloaded.
    if path.is_dir() {
        return Some(path.to_path_buf());
    }
    has_weights(path).is_ok_and(|has| has).then(|| Place::of(path).ok()).flatten().map(|place| place.folder)
}

/// Checks that the configs in a folder can be read.
///
/// # Errors
/// Fails if one is there and no JSON.
fn readable(folder: &Path) -> Result<()> {
    FILES
        .iter()
        .map(|name| folder.join(name))
        .filter(|file| is_there(file))
        .try_for_each(|file| read_json(&file).map(drop))
}

/// Returns those of the named files beside weights, a folder or a file, that can be read as JSON.
pub(super) fn beside<const N: usize>(
    path: &Path,
    names: [&'static str; N],
) -> impl Iterator<Item = (&'static str, Value)> {
    let folder = folder(path);
    let read = move |name| Some((name, read_json(&folder.as_ref()?.join(name)).ok()?));
    names.into_iter().filter_map(read)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(config: Value) -> Values {
        Values::new(Path::new("config.json"), config)
    }

    #[test]
    fn a_damaged_file_is_named_where_the_normalisation_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let refused = || Preprocessing::of(folder.path()).refused.first().map(|one| (one.key, one.why.clone()));
        write("config.json", r#"{"model_type": "vit"}"#);
        assert_eq!(refused(), None);
        for name in [PREPARATION, "config.json"] {
            write(name, "{\"model_type\": ");
            let (key, why) = refused().expect("a damaged file is refused");
            assert!(key == "normalize" && why.contains(&format!("{name}: no JSON")), "{name}: {why}");
        }
    }

    /// `timm.data.resolve_data_config(pretrained_cfg={})`, timm 1.0.31; open_clip 3.3's `PreprocessCfg()`.
    #[test]
    fn absent_keys_mean_the_defaults_of_the_package() {
        let timm = Preprocessing::of_timm(&values(json!({})));
        assert_eq!((timm.normalize, timm.crop_pct), (Some(Normalize::IMAGENET), Some(0.875)));
        let open_clip = Preprocessing::of_open_clip(&values(json!({})));
        assert_eq!((open_clip.normalize, open_clip.crop_pct), (Some(Normalize::CLIP), None));
        for found in [timm, open_clip] {
            let own = (found.interpolation, found.resize, found.refused);
            assert_eq!(own, (Some(Interpolation::Bicubic), Some(Resize::ShorterSideCrop), vec![]));
        }
    }

    #[test]
    fn what_bella_does_not_do_is_refused_by_name() {
        for (config, key, said) in [
            (json!({ "interpolation": "nearest" }), "interpolation", "interpolation = \"nearest\": bella resizes by"),
            (json!({ "interpolation": "lanczos" }), "interpolation", "interpolation = \"lanczos\": bella resizes by"),
            (json!({ "crop_mode": "border" }), "crop_pct", "crop_mode = \"border\": bella takes the centre"),
            (json!({ "crop_pct": 1.2 }), "crop_pct", "crop_pct = 1.2: bella keeps from 0.1 to 1"),
            (json!({ "crop_pct": "0.9" }), "crop_pct", "crop_pct = \"0.9\": bella keeps from 0.1 to 1"),
            (json!({ "crop_mode": 1 }), "crop_pct", "crop_mode = 1: bella takes the centre"),
            (json!({ "interpolation": 3 }), "interpolation", "interpolation = 3: bella resizes by"),
            (
                json!({ "input_size": [3, 224, 448] }),
                "image_size",
                "input_size = [3,224,448]: bella gives square images",
            ),
            (json!({ "input_size": [1, 224, 224] }), "image_size", "images of three colours"),
            (json!({ "mean": [0.5] }), "normalize", "mean = [0.5]: bella needs three numbers"),
            (json!({ "std": [0.5, 0.5, 0] }), "normalize", "std = [0.5,0.5,0]: bella needs three numbers"),
        ] {
            let found = Preprocessing::of_timm(&values(config)).refused;
            assert!(found.len() == 1 && found[0].key == key && found[0].why.contains(said), "{found:?}");
        }
        let found = Preprocessing::of_open_clip(&values(json!({ "resize_mode": "longest", "mode": "L" }))).refused;
        assert_eq!(found.iter().map(|refused| refused.key).collect::<Vec<_>>(), ["crop_pct", "normalize"]);
        let random = Preprocessing::of_open_clip(&values(json!({ "interpolation": "random" })));
        assert_eq!((random.interpolation, random.refused), (Some(Interpolation::Bicubic), vec![]));
    }
}
