//! Whole models: the folder of the checkpoint again, with merged weights and the new head under the same names.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::base::files::is_there;
use crate::data::{Interpolation, Medium, Resize};
use crate::exchange::modules::Target;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::peft::{HeadPlace, head_place};
use crate::exchange::{config, whole};
use crate::model::archive::Archive;
use crate::model::folder::{PREPARATION, config_file};
use crate::model::recognition::Package;

/// The name of an archive that is written again.
pub const ARCHIVE: &str = "model.pt";

/// Endings of the files that hold weights, which are not copied.
const WEIGHTS: [&str; 6] = ["safetensors", "bin", "pt", "pth", "index.json", "onnx"];

/// Writes one model as a folder of the checkpoint's own kind into an existing folder.
///
/// # Errors
/// Fails if the checkpoint is no folder, if a layer is stored in a way that cannot hold the trained one, or if a file
/// cannot be written.
pub fn write(outgoing: &Outgoing, target: &Target, model: usize, folder: &Path) -> Result<()> {
    let (source, is_text) = (&*outgoing.source(), outgoing.experiment.checkpoint.medium() != Medium::Images);
    let place = place(outgoing, target, model)?;
    if outgoing.is_archive()? {
        return write_archive(outgoing, (model, &place), folder);
    }
    ensure!(
        source.is_dir(),
        "{}: is a file of weights without the config of a folder: make the publisher's folder checkpoint.path, or export --to peft",
        source.display()
    );
    whole::write(outgoing, target, model, (folder, &place))?;
    copy_others(source, folder)?;
    let mut values = config::read(source)?;
    match target.writer() {
        Some(_) if outgoing.unties(model) => untie(&mut values),
        Some(_) => {}
        None => write_config(outgoing, target, &place, &mut values),
    }
    let name = config_file(source).and_then(|path| path.file_name().map(|name| folder.join(name)));
    config::write(&name.context("the checkpoint has no config")?, &values)?;
    if target.class.is_some() && !is_text {
        write_preparation(outgoing, source, folder)?;
    }
    if matches!(place, HeadPlace::Beside { .. }) {
        outgoing.write_head(model, folder)?;
    }
    Ok(())
}

/// Writes the checkpoint's archive again, with its own code, and the head beside it if it has no place in the archive.
fn write_archive(outgoing: &Outgoing, (model, place): (usize, &HeadPlace), folder: &Path) -> Result<()> {
    let names = &outgoing.session.names;
    let new = |name: &str| outgoing.value(model, name);
    let archive = Archive::open(outgoing.checkpoint())?;
    if let HeadPlace::Saved(module, head) = place {
        let name = names.name_of("head.weight").unwrap_or_default();
        let own = archive.listed().iter().find(|parameter| parameter.name == name);
        ensure!(
            own.is_some_and(|own| own.shape == head.weight.size()),
            "{}: the trained {module} has shape {:?}, for which its own code has no place: --to torchscript writes the posterior as \
             an archive of its own",
            outgoing.checkpoint().display(),
            head.weight.size()
        );
    }
    archive.save_changed(&folder.join(ARCHIVE), &|name, old| names.restored(name, old, &new))?;
    if matches!(place, HeadPlace::Beside { .. }) {
        outgoing.write_head(model, folder)?;
    }
    Ok(())
}

/// Returns where the head of a model is. A classifier that the checkpoint has takes the trained one as it is.
///
/// # Errors
/// Fails as [`head_place`] does.
pub fn place(outgoing: &Outgoing, target: &Target, model: usize) -> Result<HeadPlace> {
    let head = outgoing.head(model);
    if outgoing.is_archive()? && outgoing.session.names.name_of("head.weight").is_none() {
        // Its own code computes features.
        return Ok(HeadPlace::Beside { normalised: head.normalised });
    }
    match (target.classifier(), outgoing.session.names.name_of("head.weight")) {
        (Some(classifier), Some(_)) if head.trained && !head.normalised => Ok(HeadPlace::Saved(classifier, head)),
        _ => head_place(outgoing, target, model),
    }
}

/// Copies what else is in the checkpoint's folder, such as a tokenizer.
fn copy_others(source: &Path, folder: &Path) -> Result<()> {
    let entries = std::fs::read_dir(source).with_context(|| format!("{}: cannot read", source.display()))?;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !WEIGHTS.iter().any(|end| name.ends_with(&format!(".{end}"))) {
            std::fs::copy(&path, folder.join(&name)).with_context(|| format!("{}: cannot copy", path.display()))?;
        }
    }
    Ok(())
}

/// Makes the output matrix another one than the embeddings.
fn untie(values: &mut Value) {
    values["tie_word_embeddings"] = json!(false);
    if values["text_config"].is_object() {
        values["text_config"]["tie_word_embeddings"] = json!(false);
    }
}

/// Changes the config to the new head, classes and preparation.
fn write_config(outgoing: &Outgoing, target: &Target, place: &HeadPlace, values: &mut Value) {
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
fn write_preparation(outgoing: &Outgoing, source: &Path, folder: &Path) -> Result<()> {
    let (size, spec) = (outgoing.image_size()?, &outgoing.experiment.checkpoint);
    let file = source.join(PREPARATION);
    let mut values = match is_there(&file) {
        true => config::of_file(&file)?,
        false => json!({ "image_processor_type": "ViTImageProcessor" }),
    };
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
