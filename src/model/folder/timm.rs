//! Reads timm's config: the arguments of a network, and the facts about it that its weights must have (timm 1.0.31).

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::weights::input_size;
use crate::model::families::HARMLESS_ANYWHERE;
use crate::model::recognition::Named;
use crate::model::values::{Values, agree};
use crate::model::vit::architecture::{Architecture, of_sizes};
use crate::model::vit::arguments::Arguments;
use crate::model::vit::required::Required;

/// The keys beside `pretrained_cfg`.
const KEYS: [&str; 8] = [
    "architecture",
    "num_classes",
    "num_features",
    "global_pool",
    "model_args",
    "pretrained_cfg",
    "label_names",
    "label_descriptions",
];

/// The keys of `pretrained_cfg`, which older folders have beside the others: the preparation of images, and where the weights
/// came from.
const PRETRAINED: [&str; 38] = [
    "architecture",
    "num_classes",
    "num_features",
    "global_pool",
    "input_size",
    "test_input_size",
    "min_input_size",
    "fixed_input_size",
    "interpolation",
    "crop_pct",
    "test_crop_pct",
    "crop_mode",
    "mean",
    "std",
    "pool_size",
    "test_pool_size",
    "first_conv",
    "classifier",
    "label_offset",
    "label_names",
    "label_descriptions",
    "labels",
    "tag",
    "tags",
    "custom_load",
    "url",
    "file",
    "source",
    "hf_hub_id",
    "hf_hub_filename",
    "license",
    "origin_url",
    "paper_ids",
    "paper_name",
    "notes",
    "description",
    "training_data",
    "pretrain_dataset",
];

/// Returns the arguments of the network that a config describes.
///
/// # Errors
/// Fails if a key or an argument may change the network in a way that bella does not know.
pub fn arguments(architecture: &'static Architecture, values: &Values) -> Result<Arguments> {
    let own = values.get("pretrained_cfg");
    let table = |table: &Value| Values::new(&values.path, table.clone());
    match own {
        Some(own) => {
            values.expect_keys("a network of timm", &[&KEYS[..], HARMLESS_ANYWHERE].concat())?;
            table(own).expect_keys("pretrained_cfg", &PRETRAINED)?;
        }
        None => values.expect_keys("a network of timm", &[&KEYS[..], &PRETRAINED, HARMLESS_ANYWHERE].concat())?,
    }
    // What stands at the top counts for `pretrained_cfg`.
    let mut pretrained = own.unwrap_or(values.table()).clone();
    if let (Some(classes), Some(table)) = (values.get("num_classes"), pretrained.as_object_mut()) {
        table.insert("num_classes".into(), classes.clone());
    }
    // Older folders have no arguments, and their pooling is that of the network.
    let arguments = Arguments::of_config(architecture, values.get("model_args"), Some(&pretrained))?;
    let (classes, said) = (arguments.classes()?, values.get("num_classes").and_then(Value::as_i64));
    ensure!(
        said.is_none_or(|said| said == classes),
        "num_classes = {}, but timm builds this network for {classes}, since it reads model_args first",
        said.unwrap_or_default()
    );
    let pool = arguments.pool()?.to_string();
    let said = values.text("global_pool").unwrap_or(&pool);
    ensure!(
        said == pool,
        "global_pool = \"{said}\", but timm builds this network with \"{pool}\", since it reads model_args and the architecture: \
         set global_pool in model_args if the weights were trained so"
    );
    Ok(arguments)
}

/// Returns the parameters that the weights must have.
///
/// # Errors
/// Fails if the network has parts that bella does not compute.
pub fn required(arguments: &Arguments, values: &Values) -> Result<Required> {
    let required = arguments.required().with_context(|| values.path.display().to_string())?;
    // Without a config only the weights tell whether there is a classifier.
    Ok(if values.table().is_null() { Required { heads: None, ..required } } else { required })
}

/// Returns the number of pixels per side for which the network is built.
///
/// # Errors
/// Fails if the value is malformed.
pub fn image_size(arguments: &Arguments, values: &Values) -> Result<i64> {
    let said = values.get("pretrained_cfg").and_then(input_size).or(input_size(values.table()));
    let own = arguments.image_size().with_context(|| values.path.display().to_string())?;
    Ok(own.or(said).unwrap_or(arguments.architecture.image_size))
}

/// Checks that the weights have the sizes of the architecture, or those that the config gives in their place. A network whose
/// heads the user sets may have others.
///
/// # Errors
/// Fails at the first size that differs.
pub fn check(arguments: &Arguments, values: &Values, named: &Named) -> Result<()> {
    let geometry = &named.geometry;
    let name = arguments.architecture.name;
    let [width, blocks, patch] = arguments.sizes()?;
    for (what, said, found) in [
        ("width", width, geometry.width),
        ("blocks", blocks, geometry.blocks as i64),
        ("patch", patch, geometry.patch),
        ("hidden width of the MLP", arguments.hidden()?, geometry.mlp),
        ("number of registers", arguments.registers()?, named.registers()),
    ] {
        if said != found {
            let fitting = of_sizes(geometry.width, geometry.blocks as i64, geometry.patch).next();
            let instead = fitting.map_or(String::new(), |known| format!(", such as {}", known.name));
            bail!(
                "{what} {said} belongs to the architecture {name}, but the weights have {found}: set checkpoint.architecture to \
                 that of the weights{instead}, or checkpoint.heads if the network is your own"
            );
        }
    }
    let shown = values.path.display().to_string();
    let features = values.get("num_features").and_then(Value::as_i64).unwrap_or(geometry.width);
    agree(&shown, "num_features", features, geometry.width)?;
    let said = if values.table().is_null() { None } else { Some(arguments.classes()?) };
    said.zip(named.classes()).map_or(Ok(()), |(said, found)| agree(&shown, "num_classes", said, found))
}
