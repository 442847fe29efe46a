//! The config of a publisher's folder, and its preparation of images, as they are for a model that leaves: with its own head, classes and
//! pixels.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::config;
use super::modules::{HeadPlace, Target};
use super::outgoing::Outgoing;
use crate::data::{Interpolation, Medium, Resize};
use crate::model::folder::{PREPARATION, stated};
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
    match (target.package, target.class) {
        (Package::Timm, _) => {
            if in_model {
                name_classes_of_timm(&outgoing.session.classes, values);
            }
            if values["model_args"]["img_size"].is_number() {
                values["model_args"]["img_size"] = json!(size);
            }
            values["pretrained_cfg"]["input_size"] = json!([3, size, size]);
            values["pretrained_cfg"]["crop_pct"] = json!(outgoing.experiment.checkpoint.crop_pct);
            describe_pixels(outgoing, &mut values["pretrained_cfg"]);
        }
        // Its models have no config.
        (Package::Torchvision, _) => {}
        (Package::OpenClip, _) => {
            values["model_cfg"]["vision_cfg"]["image_size"] = json!(size);
            values["preprocess_cfg"]["size"] = json!(size);
            describe_pixels(outgoing, &mut values["preprocess_cfg"]);
        }
        (Package::Transformers4 | Package::Transformers5, class) => {
            if let (true, Some(class)) = (in_model, class) {
                let own = outgoing.session.names.name_of("head.weight").is_none();
                let class = (own && matches!(place, HeadPlace::Saved(..))).then_some(class.name);
                name_classes_of_transformers(&outgoing.session.classes, (class, place), values);
            }
            if outgoing.experiment.checkpoint.medium() != Medium::Images {
                return;
            }
            let tower = if values["vision_config"].is_object() { &mut values["vision_config"] } else { values };
            tower["image_size"] = json!(size);
        }
    }
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
fn name_classes_of_transformers(classes: &[String], (class, place): (Option<&str>, &HeadPlace), values: &mut Value) {
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

/// Writes how transformers prepares images.
///
/// # Errors
/// Fails if the checkpoint's own file cannot be read, or if the new one cannot be written.
pub fn write_preparation(outgoing: &Outgoing, source: &Path, folder: &Path) -> Result<()> {
    let (size, spec) = (outgoing.image_size()?, &outgoing.experiment.checkpoint);
    let own = stated(source)?.map(|(_, table)| table);
    let mut values = own.unwrap_or_else(|| json!({ "image_processor_type": "ViTImageProcessor" }));
    let side = json!({ "height": size, "width": size });
    let pillow = match spec.interpolation {
        Interpolation::Bilinear => 2,
        Interpolation::Bicubic => 3,
    };
    let crops = values["do_center_crop"].as_bool().unwrap_or(false);
    if crops || spec.crop_pct < 1.0 {
        let shorter_side = Resize::ShorterSideCrop.shorter_side(size as usize, spec.crop_pct);
        values["size"] = json!({ "shortest_edge": shorter_side });
        values["do_center_crop"] = json!(true);
        values["crop_size"] = side;
    } else {
        values["size"] = side;
    }
    for key in ["do_resize", "do_rescale", "do_normalize"] {
        values[key] = json!(true);
    }
    values["resample"] = json!(pillow);
    values["image_mean"] = json!(spec.normalize.map(|pixels| pixels.mean));
    values["image_std"] = json!(spec.normalize.map(|pixels| pixels.std));
    config::write(&folder.join(PREPARATION), &values)
}
