//! The config of a publisher's folder, and its preparation of images, as they are for a model that leaves: with its own head, classes and
//! pixels.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::config;
use super::modules::{HeadPlace, Target};
use super::outgoing::Outgoing;
use crate::data::{Interpolation, Medium, Resize};
use crate::hub::{PREPARATION, PROCESSOR};
use crate::model::folder::stated;
use crate::model::recognition::Package;

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
    // timm takes a number, or a list of height and width. Where there is none, it builds the network for the architecture's own size.
    match values.pointer_mut("/model_args/img_size") {
        None | Some(Value::Null) => {}
        Some(Value::Array(sides)) => *sides = vec![json!(size); 2],
        Some(side) => *side = json!(size),
    }
    values["pretrained_cfg"]["input_size"] = json!([3, size, size]);
    values["pretrained_cfg"]["crop_pct"] = json!(outgoing.experiment.checkpoint.crop_pct);
    values["pretrained_cfg"]["crop_mode"] = json!(if stretches { "squash" } else { "center" });
    describe_pixels(outgoing, &mut values["pretrained_cfg"]);
}

fn describe_open_clip(outgoing: &Outgoing, size: i64, stretches: bool, values: &mut Value) {
    values["model_cfg"]["vision_cfg"]["image_size"] = json!(size);
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
