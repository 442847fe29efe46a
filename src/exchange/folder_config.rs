//! The config of a publisher's folder, and its preparation of images, as they are for a model that leaves: with its own head, classes and
//! pixels.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::config;
use super::modules::{HeadPlace, Target};
use super::outgoing::Outgoing;
use crate::data::{Interpolation, Medium, Resize};
use crate::hub::{PREPARATION, PROCESSOR};
use crate::model::folder::{input_size, stated};
use crate::model::recognition::Package;
use crate::model::vit::architecture::architecture;

/// Makes the output matrix another one than the embeddings.
pub fn untie(values: &mut Value) {
    values["tie_word_embeddings"] = json!(false);
    if values["text_config"].is_object() {
        values["text_config"]["tie_word_embeddings"] = json!(false);
    }
}

/// Changes the config to the new head, classes and preparation.
pub fn describe(outgoing: &Outgoing, target: &Target, place: &HeadPlace, values: &mut Value) {
    let size = outgoing.session.model.images().map(|images| images.size()).unwrap_or_default();
    let in_model = !matches!(place, HeadPlace::Beside { .. });
    let resize = outgoing.experiment.data.photos();
    let stretches = resize == Resize::Stretch;
    if resize == Resize::Pad && outgoing.experiment.checkpoint.medium() == Medium::Images {
        tracing::warn!(
            "images were padded to squares, and other programs do not pad them by the files of a folder: pad them before"
        );
    }
    match (target.package, target.class) {
        (Package::Timm, _) => {
            modernise_timm(values);
            if in_model {
                name_classes_of_timm(&outgoing.session.classes, values);
            }
            describe_timm(outgoing, size, stretches, values);
        }
        // Its models have no config.
        (Package::Torchvision, _) => {}
        (Package::OpenClip, _) => describe_open_clip(outgoing, size, stretches, values),
        (Package::Transformers4 | Package::Transformers5, class) => {
            if let (true, Some(class)) = (in_model, class) {
                let own = outgoing.session.names.name_of("head.weight").is_none();
                let class = (own && matches!(place, HeadPlace::Saved(..))).then_some(class.name);
                name_classes_of_transformers(&outgoing.session.classes, class, place, values);
            }
            if outgoing.experiment.checkpoint.medium() != Medium::Images {
                return;
            }
            let tower = if values["vision_config"].is_object() { &mut values["vision_config"] } else { values };
            tower["image_size"] = json!(size);
        }
    }
}

fn describe_timm(outgoing: &Outgoing, size: i64, stretches: bool, values: &mut Value) {
    let spec = &outgoing.experiment.checkpoint;
    if let Some(name) = &spec.fixed.architecture {
        values["architecture"] = json!(name);
    }
    size_timm(size, values);
    values["pretrained_cfg"]["crop_pct"] = json!(spec.crop_pct);
    values["pretrained_cfg"]["crop_mode"] = json!(if stretches { "squash" } else { "center" });
    describe_pixels(outgoing, &mut values["pretrained_cfg"]);
}

/// Makes timm build the network for images of `size` pixels per side. Without `img_size` among the arguments it builds it for the size of the
/// architecture, or for `input_size` where `fixed_input_size` says so and the architecture gives its class no size.
fn size_timm(size: i64, values: &mut Value) {
    let own = values["architecture"].as_str().and_then(|name| Some(architecture(name).ok()?.image_size));
    let stated = input_size(&values["pretrained_cfg"]).or(own);
    match values.pointer_mut("/model_args/img_size") {
        // A list is one of height and width.
        Some(Value::Array(sides)) => *sides = vec![json!(size); 2],
        None | Some(Value::Null) if [own, stated] == [Some(size); 2] => {}
        _ => values["model_args"]["img_size"] = json!(size),
    }
    values["pretrained_cfg"]["input_size"] = json!([3, size, size]);
}

/// Brings the config of an older folder of timm, in which what is `pretrained_cfg` now stands at the top, into the form of now, as timm does:
/// the old one has no place for arguments.
fn modernise_timm(values: &mut Value) {
    let Some(table) = values.as_object_mut().filter(|table| !table.contains_key("pretrained_cfg")) else { return };
    let stays = |name: &str| ["architecture", "num_features", "model_args"].contains(&name);
    let (top, pretrained): (Map<_, _>, Map<_, _>) =
        std::mem::take(table).into_iter().partition(|(name, _)| stays(name));
    *table = top;
    table.insert("pretrained_cfg".into(), Value::Object(pretrained));
}

fn describe_open_clip(outgoing: &Outgoing, size: i64, stretches: bool, values: &mut Value) {
    let tower = &mut values["model_cfg"]["vision_cfg"];
    tower["image_size"] = json!(size);
    if let (Some(name), true) =
        (&outgoing.experiment.checkpoint.fixed.architecture, tower["timm_model_name"].is_string())
    {
        tower["timm_model_name"] = json!(name);
    }
    values["preprocess_cfg"]["size"] = json!(size);
    values["preprocess_cfg"]["resize_mode"] = json!(if stretches { "squash" } else { "shortest" });
    if outgoing.experiment.checkpoint.crop_pct < 1.0 {
        tracing::warn!(
            "open_clip has no checkpoint.crop_pct: its own preparation of images takes a larger part of them"
        );
    }
    describe_pixels(outgoing, &mut values["preprocess_cfg"]);
}

fn describe_pixels(outgoing: &Outgoing, values: &mut Value) {
    let spec = &outgoing.experiment.checkpoint;
    values["mean"] = json!(spec.normalize.map(|pixels| pixels.mean));
    values["std"] = json!(spec.normalize.map(|pixels| pixels.std));
    values["interpolation"] = json!(spec.interpolation.to_string());
}

fn name_classes_of_timm(classes: &[String], values: &mut Value) {
    values["num_classes"] = json!(classes.len());
    values["label_names"] = json!(classes);
    if values["model_args"]["num_classes"].is_number() {
        values["model_args"]["num_classes"] = json!(classes.len());
    }
    values["pretrained_cfg"]["num_classes"] = json!(classes.len());
}

/// Names the classes, and the class of the model where the checkpoint had another one.
pub fn name_classes_of_transformers(classes: &[String], class: Option<&str>, place: &HeadPlace, values: &mut Value) {
    if let Some(class) = class {
        values["architectures"] = json!([class]);
    }
    if matches!(place, HeadPlace::Saved(..)) {
        values["num_labels"] = json!(classes.len());
    }
    let numbered = || classes.iter().enumerate();
    let names = numbered().map(|(number, class)| (number.to_string(), json!(class)));
    let numbers = numbered().map(|(number, class)| (class.clone(), json!(number)));
    values["id2label"] = Value::Object(names.collect());
    values["label2id"] = Value::Object(numbers.collect());
}

/// The classes of transformers, of every generation, that resize the shorter side and cut out the centre. The others keep the sides'
/// ratio in one generation and not in the other, or refuse such a size.
const CROPPING: [&str; 2] = ["CLIPImageProcessor", "BitImageProcessor"];

/// Writes how transformers prepares images, as they were prepared for the run.
///
/// # Errors
/// Fails if the checkpoint's own file cannot be read, or if the new one cannot be written.
pub fn write_preparation(outgoing: &Outgoing, source: &Path, folder: &Path) -> Result<()> {
    let own = stated(source)?.filter(|(_, table)| table.is_object());
    let is_nested = own.as_ref().is_some_and(|(name, _)| *name == PROCESSOR);
    let own = own.map_or_else(|| json!({ "image_processor_type": "ViTImageProcessor" }), |(_, table)| table);
    let values = preparation(outgoing, own)?;
    config::write(&folder.join(PREPARATION), &values)?;
    if !is_nested {
        return Ok(());
    }
    let mut processor = config::of_file(&source.join(PROCESSOR))?;
    processor["image_processor"] = values;
    config::write(&folder.join(PROCESSOR), &processor)
}

/// Returns the settings of a class of transformers with the preparation of the run.
fn preparation(outgoing: &Outgoing, mut values: Value) -> Result<Value> {
    let (size, spec) = (outgoing.image_size()?, &outgoing.experiment.checkpoint);
    let square = |side: i64| json!({ "height": side, "width": side });
    let pillow = match spec.interpolation {
        Interpolation::Bilinear => 2,
        Interpolation::Bicubic => 3,
    };
    let resize = outgoing.experiment.data.photos();
    let side = resize.shorter_side(size as usize, spec.crop_pct) as i64;
    let stretches = resize == Resize::Stretch;
    values["size"] = if stretches { square(side) } else { json!({ "shortest_edge": side }) };
    let crops = !stretches || side > size;
    values["do_center_crop"] = json!(crops);
    values["crop_size"] = square(size);
    let class = values["image_processor_type"].as_str().unwrap_or_default();
    if crops && !CROPPING.iter().any(|able| class.starts_with(able)) {
        values["image_processor_type"] = json!(CROPPING[0]);
    }
    for key in ["do_resize", "do_rescale", "do_normalize"] {
        values[key] = json!(true);
    }
    // The mean and the deviation are those of pixels from 0 to 1.
    values["rescale_factor"] = json!(1.0 / 255.0);
    values["resample"] = json!(pillow);
    values["image_mean"] = json!(spec.normalize.map(|pixels| pixels.mean));
    values["image_std"] = json!(spec.normalize.map(|pixels| pixels.std));
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes for which timm 1.0.31 builds are those of `scripts/compare_exports.py`.
    #[test]
    fn timm_is_told_any_size_but_the_architectures_own() {
        let sized = |values: Value, size: i64| {
            let mut values = values;
            size_timm(size, &mut values);
            assert_eq!(values["pretrained_cfg"]["input_size"], json!([3, size, size]));
            values["model_args"]["img_size"].clone()
        };
        let of = |name: &str, input: i64, args: Value| json!({ "architecture": name, "model_args": args, "pretrained_cfg": { "input_size": [3, input, input] } });
        let plain = |input: i64, args: Value| of("vit_tiny_patch16_224.augreg_in21k", input, args);
        assert_eq!(sized(plain(224, Value::Null), 224), Value::Null);
        assert_eq!(sized(plain(224, json!({})), 96), json!(96));
        assert_eq!(sized(plain(96, json!({})), 96), json!(96), "the architecture is built for 224");
        assert_eq!(sized(plain(224, json!({ "img_size": null })), 96), json!(96));
        assert_eq!(sized(plain(224, json!({ "img_size": 224 })), 96), json!(96));
        assert_eq!(sized(plain(224, json!({ "img_size": [224, 224] })), 96), json!([96, 96]));
        assert_eq!(sized(json!({ "architecture": "my_vit" }), 224), json!(224), "whose own size is unknown");
    }

    #[test]
    fn an_older_folder_of_timm_gets_a_place_for_arguments() {
        let mut values = json!({ "architecture": "vit_tiny_patch16_224", "num_features": 192, "num_classes": 3, "global_pool": "avg" });
        modernise_timm(&mut values);
        let new = json!({ "architecture": "vit_tiny_patch16_224", "num_features": 192, "pretrained_cfg": { "num_classes": 3, "global_pool": "avg" } });
        assert_eq!(values, new);
        modernise_timm(&mut values);
        assert_eq!(values, new);
    }
}
