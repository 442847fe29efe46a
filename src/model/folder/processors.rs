//! The image processors of transformers, with the defaults that apply if a key is absent from `preprocessor_config.json`
//! (transformers 5.23).

use serde_json::Value;

use super::wanted::{FILTER, Instead, NORMALIZE, Preprocessing, Refused, SHARE, SQUARE, is_share, normalize, three};
use crate::data::{Centre, Interpolation, Resize};
use crate::model::Normalize;
use crate::model::families::sighted::sighted;
use crate::model::families::{family, within};
use crate::model::values::Values;

/// A class of image processors.
struct Processor {
    /// The name without its ending, `ImageProcessor` (before version 4.26 `FeatureExtractor`).
    name: &'static str,
    interpolation: Interpolation,
    size: Size,
    /// The side of the centre crop, if there is one by default.
    crop: Option<i64>,
    /// Whether a number in place of `size` is the side of a square, rather than the shorter side.
    is_square: bool,
    normalize: Normalize,
}

/// The size to which an image is resized.
#[derive(Clone, Copy)]
enum Size {
    /// The sides of a square.
    Square(i64),
    /// The shorter side; the other one follows.
    Shorter(i64),
}

/// Every known class.
const PROCESSORS: [Processor; 8] = [
    Processor {
        name: "ViT",
        interpolation: Interpolation::Bilinear,
        size: Size::Square(224),
        crop: None,
        is_square: true,
        normalize: Normalize::HALVES,
    },
    Processor {
        name: "DeiT",
        interpolation: Interpolation::Bicubic,
        size: Size::Square(256),
        crop: Some(224),
        is_square: true,
        normalize: Normalize::HALVES,
    },
    Processor {
        name: "Beit",
        interpolation: Interpolation::Bicubic,
        size: Size::Square(224),
        crop: None,
        is_square: true,
        normalize: Normalize::HALVES,
    },
    Processor { name: "Bit", ..CLIP },
    CLIP,
    Processor { name: "Llava", ..CLIP },
    Processor {
        name: "Siglip",
        interpolation: Interpolation::Bicubic,
        size: Size::Square(224),
        crop: None,
        is_square: false,
        normalize: Normalize::HALVES,
    },
    Processor {
        name: "DINOv3ViT",
        interpolation: Interpolation::Bilinear,
        size: Size::Square(224),
        crop: None,
        is_square: true,
        normalize: Normalize::IMAGENET,
    },
];

const CLIP: Processor = Processor {
    name: "CLIP",
    interpolation: Interpolation::Bicubic,
    size: Size::Shorter(224),
    crop: Some(224),
    is_square: false,
    normalize: Normalize::CLIP,
};

/// The side of a crop that no class says.
const SIDE: i64 = 224;

/// The keys that are read here.
const KEYS: [&str; 14] = [
    "image_processor_type",
    "feature_extractor_type",
    "do_resize",
    "size",
    "default_to_square",
    "resample",
    "do_center_crop",
    "crop_size",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
    "do_convert_rgb",
];

/// The switches among them.
const SWITCHES: [&str; 5] = ["do_resize", "default_to_square", "do_center_crop", "do_rescale", "do_normalize"];

/// The setting to give in place of a switch that is neither on nor off, and the reason.
const SWITCH: Instead =
    Instead { key: "normalize", advice: "reads true or false there: set checkpoint.normalize, or correct the file" };

/// The keys that change no image: names of other classes, of arrays and devices, and what is done to the labels of pixels.
const HARMLESS: [&str; 13] = [
    "processor_class",
    "tokenizer_class",
    "transformers_version",
    "auto_map",
    "_valid_processor_keys",
    "data_format",
    "input_data_format",
    "return_tensors",
    "device",
    "disable_grouping",
    "image_seq_length",
    "do_reduce_labels",
    "reduce_labels",
];

/// Returns the class of the family of a model type; `None` if bella does not know the type.
fn of_family(model_type: &str) -> Option<&'static Processor> {
    let family = within(model_type).or(family(model_type)).map(|family| family.processor);
    let name = family.or(sighted(model_type).map(|family| family.processor))?;
    PROCESSORS.iter().find(|known| known.name == name)
}

/// Returns the normalisation of images of published networks of a model type; `None` if bella does not know the type.
pub fn usual_normalize(model_type: &str) -> Option<Normalize> {
    let family = within(model_type).or(family(model_type)).map(|family| family.normalize);
    family.or_else(|| of_family(model_type).map(|processor| processor.normalize))
}

/// Reads `preprocessor_config.json` of a network of a model type.
pub fn read(config: &Values, model_type: Option<String>) -> Preprocessing {
    let mut found = Preprocessing { centre: Centre::Down, ..Preprocessing::default() };
    let named = config.text("image_processor_type").or(config.text("feature_extractor_type"));
    let processor = match named.map(plain) {
        Some(name) => PROCESSORS.iter().find(|known| known.name == name),
        // Where a file names none, it is that of the family.
        None => of_family(&model_type.unwrap_or_default()),
    };
    let Some(processor) = processor else {
        let known = PROCESSORS.map(|known| known.name).join(", ");
        let what = named.map_or("it names no image_processor_type".into(), |name| {
            format!("image_processor_type = \"{name}\" is none whose steps bella knows")
        });
        let why = format!(
            "{}: {what}: set checkpoint.normalize to prepare images as the config of bella says; known: {known}, each \
             followed by ImageProcessor",
            config.path.display()
        );
        found.refused.push(Refused { key: "normalize", why });
        return found;
    };
    if let Err(why) = config.expect_keys("the preparation of images", &[&KEYS[..], &HARMLESS].concat()) {
        found.refused.push(Refused { key: "normalize", why: format!("{why:#}, or set checkpoint.normalize") });
    }
    for key in SWITCHES.into_iter().filter(|key| config.get(key).is_some_and(|value| !value.is_boolean())) {
        found.refuse(config, key, SWITCH);
    }
    read_filter(config, processor, &mut found);
    read_sizes(config, processor, &mut found);
    read_colours(config, processor, &mut found);
    found
}

/// Returns whether a switch is on. Null switches it off, as in the package; an absent key means the default of the class.
fn is_on(config: &Values, key: &str, usual: bool) -> bool {
    config.table().get(key).map_or(usual, |value| *value == Value::Bool(true))
}

/// Returns what `read` makes of the value of a key, which may be null, or the default of the class where the key is absent.
fn value_or<T>(config: &Values, key: &str, usual: T, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
    config.table().get(key).map_or(Some(usual), read)
}

/// Returns the name of a class without its endings.
fn plain(name: &str) -> &str {
    let name = name.trim_end_matches("Fast").trim_end_matches("Pil");
    name.trim_end_matches("ImageProcessor").trim_end_matches("FeatureExtractor")
}

fn read_filter(config: &Values, processor: &Processor, found: &mut Preprocessing) {
    let said = config.get("resample").map(Value::as_i64);
    found.interpolation = match said {
        // Without a value the package falls back to bilinear; without the key, to its class.
        None if config.has("resample") => Some(Interpolation::Bilinear),
        None => Some(processor.interpolation),
        Some(Some(2)) => Some(Interpolation::Bilinear),
        Some(Some(3)) => Some(Interpolation::Bicubic),
        Some(_) => None,
    };
    if found.interpolation.is_none() {
        found.refuse(config, "resample", FILTER);
    }
    if !is_on(config, "do_resize", true) {
        let advice = "resizes every image to the network's: set checkpoint.interpolation to the filter";
        found.refuse(config, "do_resize", Instead { key: "interpolation", advice });
    }
}

/// Reads the size to which images are resized, and that of the crop.
fn read_sizes(config: &Values, processor: &Processor, found: &mut Preprocessing) {
    let is_square = is_on(config, "default_to_square", processor.is_square);
    let Some(size) = value_or(config, "size", processor.size, |size| read_size(size, is_square)) else {
        return found.refuse(config, "size", SQUARE);
    };
    let (side, resize) = match size {
        Size::Square(side) => (side, Resize::Stretch),
        Size::Shorter(side) => (side, Resize::ShorterSideCrop),
    };
    found.resize = Some(resize);
    if !is_on(config, "do_center_crop", processor.crop.is_some()) {
        found.image_size = Some(side);
        if resize == Resize::ShorterSideCrop {
            let advice =
                "gives square images to the network: set checkpoint.crop_pct to the share that a crop shall keep";
            found.refuse(config, "size", Instead { key: "crop_pct", advice });
        }
        return;
    }
    let Some(crop) = value_or(config, "crop_size", processor.crop.unwrap_or(SIDE), square) else {
        return found.refuse(config, "crop_size", SQUARE);
    };
    found.image_size = Some(crop);
    found.crop_pct = Some(crop as f64 / side as f64).filter(is_share);
    if found.crop_pct.is_none() {
        found.refuse(config, "crop_size", SHARE);
    }
}

/// Reads `224`, `[224, 224]`, `{"height": 224, "width": 224}` or `{"shortest_edge": 224}`.
fn read_size(size: &Value, is_square: bool) -> Option<Size> {
    let shorter = size.get("shortest_edge").and_then(Value::as_i64);
    if let Some(shorter) = shorter.filter(|_| size.get("longest_edge").is_none_or(Value::is_null)) {
        return Some(Size::Shorter(shorter));
    }
    match size.as_i64() {
        Some(side) if !is_square => Some(Size::Shorter(side)),
        _ => square(size).map(Size::Square),
    }
}

/// Returns the side of `224`, `[224, 224]` or `{"height": 224, "width": 224}`.
fn square(size: &Value) -> Option<i64> {
    let sides = match size {
        Value::Array(sides) => sides.iter().map(Value::as_i64).collect(),
        Value::Object(_) => ["height", "width"].map(|key| size.get(key).and_then(Value::as_i64)).to_vec(),
        _ => vec![size.as_i64(); 2],
    };
    match sides[..] {
        [Some(height), Some(width)] if height == width && height > 0 => Some(height),
        _ => None,
    }
}

/// Reads the normalisation of bytes / 255. The package multiplies bytes by `rescale_factor` first, then subtracts the mean.
fn read_colours(config: &Values, processor: &Processor, found: &mut Preprocessing) {
    let above_0 = |factor: &Value| factor.as_f64().filter(|factor| *factor > 0.0);
    let factor = match is_on(config, "do_rescale", true) {
        true => value_or(config, "rescale_factor", 1.0 / 255.0, above_0),
        false => Some(1.0),
    };
    let Some(factor) = factor else {
        let advice = "multiplies pixels by a number above 0: set checkpoint.normalize";
        return found.refuse(config, "rescale_factor", Instead { key: "normalize", advice });
    };
    let Normalize { mean, std } = processor.normalize;
    let (mean, std) = match is_on(config, "do_normalize", true) {
        true => (value_or(config, "image_mean", mean, three), value_or(config, "image_std", std, three)),
        false => (Some([0.0; 3]), Some([1.0; 3])),
    };
    let range = 255.0 * factor;
    // A factor of 1 / 255 as files have it leaves the numbers as they are.
    let scaled =
        |values: [f64; 3]| if (range - 1.0).abs() < 1e-12 { values } else { values.map(|value| value / range) };
    found.normalize = mean
        .zip(std)
        .and_then(normalize)
        .map(|Normalize { mean, std }| Normalize { mean: scaled(mean), std: scaled(std) });
    if found.normalize.is_none() {
        found.refuse(config, if mean.is_none() { "image_mean" } else { "image_std" }, NORMALIZE);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn of(model_type: &str, config: Value) -> Preprocessing {
        read(&Values::new(Path::new("preprocessor_config.json"), config), Some(model_type.into()))
    }

    /// `hf.ViTImageProcessor().to_dict()` and so on, transformers 5.23.
    #[test]
    fn absent_keys_mean_the_defaults_of_the_class() {
        for (model_type, filter, resize, crop, size, mean) in [
            ("vit", Interpolation::Bilinear, Resize::Stretch, None, 224, 0.5),
            ("deit", Interpolation::Bicubic, Resize::Stretch, Some(0.875), 224, 0.5),
            ("data2vec-vision", Interpolation::Bicubic, Resize::Stretch, None, 224, 0.5),
            ("dinov2", Interpolation::Bicubic, Resize::ShorterSideCrop, Some(1.0), 224, 0.48145466),
            ("clip", Interpolation::Bicubic, Resize::ShorterSideCrop, Some(1.0), 224, 0.48145466),
            ("siglip", Interpolation::Bicubic, Resize::Stretch, None, 224, 0.5),
            ("dinov3_vit", Interpolation::Bilinear, Resize::Stretch, None, 224, 0.485),
        ] {
            let found = of(model_type, json!({}));
            assert_eq!(found.refused, [], "{model_type}");
            let own = (found.interpolation, found.resize, found.crop_pct, found.image_size);
            assert_eq!(own, (Some(filter), Some(resize), crop, Some(size)), "{model_type}");
            assert_eq!(found.normalize.unwrap().mean[0], mean, "{model_type}");
        }
        let centres = [of("clip", json!({})), Preprocessing::of(Path::new("nowhere"))].map(|found| found.centre);
        assert_eq!(centres, [Centre::Down, Centre::Even]);
        let named = json!({ "image_processor_type": "CLIPImageProcessorFast" });
        assert_eq!(of("vit", named.clone()), of("clip", json!({})));
        assert_eq!(of("vit", json!({ "feature_extractor_type": "CLIPFeatureExtractor" })), of("vit", named));
        assert_eq!(of("clip", json!({ "size": 224 })).resize, Some(Resize::ShorterSideCrop));
        assert_eq!(of("beit", json!({ "size": 256, "crop_size": 224, "do_center_crop": true })).crop_pct, Some(0.875));
    }

    /// The package computes (bytes · factor − mean) / std; bella (bytes / 255 − mean) / std.
    #[test]
    fn other_factors_are_in_the_normalisation() {
        let of = |config| of("vit", config).normalize.unwrap();
        assert_eq!(of(json!({ "do_normalize": false })), Normalize { mean: [0.0; 3], std: [1.0; 3] });
        assert_eq!(of(json!({ "rescale_factor": 0.00392156862745098 })), Normalize::HALVES);
        let bytes = of(json!({ "do_rescale": false, "image_mean": [127.5, 0.0, 0.0], "image_std": [255.0, 1.0, 1.0] }));
        assert_eq!((bytes.mean[0], bytes.std[0], bytes.std[1]), (0.5, 1.0, 1.0 / 255.0));
        // 2 x / 255 − 1 by a factor of 2 / 255.
        let twice = of(json!({ "rescale_factor": 2.0 / 255.0, "image_mean": [1, 1, 1], "image_std": [1, 1, 1] }));
        assert_eq!(twice, Normalize::HALVES);
    }

    /// `hf.AutoImageProcessor.from_pretrained(folder)`, transformers 5.24: null stays in the place of the default of the class.
    #[test]
    fn null_is_no_default() {
        let none = Normalize { mean: [0.0; 3], std: [1.0; 3] };
        assert_eq!(of("vit", json!({ "do_normalize": null })).normalize, Some(none));
        let bytes = of("vit", json!({ "do_rescale": null, "do_normalize": null })).normalize.unwrap();
        assert_eq!((bytes.mean[0], bytes.std[0]), (0.0, 1.0 / 255.0));
        let whole = of("deit", json!({ "size": 224, "do_center_crop": null, "crop_size": null }));
        assert_eq!((whole.crop_pct, whole.image_size, whole.refused), (None, Some(224), vec![]));
        assert_eq!(of("vit", json!({ "size": 256, "default_to_square": null })).refused.len(), 1);
        for key in ["size", "do_resize", "image_mean", "image_std", "rescale_factor"] {
            let refused = of("vit", json!({ key: null })).refused;
            assert!(refused.len() == 1 && refused[0].why.contains(&format!("{key} = null: bella")), "{refused:?}");
        }
    }

    #[test]
    fn what_bella_does_not_do_is_refused_by_name() {
        for (config, key, said) in [
            (json!({ "resample": 0 }), "interpolation", "resample = 0: bella resizes by \"bicubic\" or \"bilinear\""),
            (json!({ "resample": 1 }), "interpolation", "resample = 1: bella resizes"),
            (json!({ "resample": 4 }), "interpolation", "resample = 4: bella resizes"),
            (json!({ "do_resize": false }), "interpolation", "do_resize = false: bella resizes every image"),
            (json!({ "size": { "shortest_edge": 256 } }), "crop_pct", "bella gives square images"),
            (json!({ "size": { "height": 224, "width": 448 } }), "image_size", "\"width\":448}: bella gives square"),
            (json!({ "size": 192, "do_center_crop": true }), "crop_pct", "crop_size = null: bella keeps from 0.1 to 1"),
            (
                json!({ "image_std": [1.0, 0.0, 1.0] }),
                "normalize",
                "image_std = [1.0,0.0,1.0]: bella needs three numbers",
            ),
            (json!({ "rescale_factor": -1 }), "normalize", "rescale_factor = -1: bella multiplies"),
            (json!({ "do_pad": true }), "normalize", "do_pad = true: a key that bella does not know"),
            (json!({ "do_normalize": 0 }), "normalize", "do_normalize = 0: bella reads true or false there"),
            (json!({ "image_processor_type": 5 }), "normalize", "is none whose steps bella knows"),
            (json!({ "image_processor_type": "OwlViTImageProcessor" }), "normalize", "known: ViT, DeiT"),
        ] {
            let found = of("vit", config);
            assert!(found.refused.len() == 1 && found.refused[0].key == key, "{:?}", found.refused);
            assert!(found.refused[0].why.contains(said), "{:?}", found.refused);
        }
    }
}
