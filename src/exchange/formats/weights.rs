//! Whole models: the folder of the checkpoint again, with merged weights and the new head under the same names.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor_file::State;
use crate::data::Medium;
use crate::exchange::format::{Apart, Format, Leaves, Modules};
use crate::exchange::modules::{HeadPlace, Target, head_place};
use crate::exchange::outgoing::{ARCHIVE, Outgoing};
use crate::exchange::python::{Loading, Places, Source, lines};
use crate::exchange::shards::Files;
use crate::exchange::{config, folder_config, module};
use crate::model::CheckpointSpec;
use crate::model::archive::Archive;
use crate::model::families::encoders::POOLER_NORM;
use crate::model::families::{Class, EMBEDDING, Layers, OUTPUT};
use crate::model::folder::{Place, config_file, sentences};

pub static FORMAT: Format = Format {
    key: "weights",
    about: "the checkpoint's own folder or archive with merged weights",
    leaves: Leaves::Apart(Apart {
        check,
        write,
        lines: python,
        modules: Some(Modules { write: module::write, lines: module::lines }),
    }),
};

/// Checks that the checkpoint's own form holds merged weights. Where the run quantised them itself, they are merged into the numbers that
/// the codes mean.
///
/// # Errors
/// Fails if the checkpoint is quantised itself, or if it is an archive whose code takes images of another size than the run's.
fn check(outgoing: &Outgoing, _: &Target) -> Result<()> {
    if outgoing.is_archive()? {
        expect_own_size(outgoing)?;
    }
    if !outgoing.session.model.base.has_quantised() {
        return Ok(());
    }
    let scheme = outgoing.experiment.checkpoint.quantize;
    let scheme = scheme.with_context(|| {
        format!(
            "{}: its weights are quantised, and merged ones have no place in such files: export --to peft, or --to onnx or torchscript",
            outgoing.checkpoint().display()
        )
    })?;
    tracing::info!(
        "the weights are those that the run computes with: the numbers that {scheme} means, not the checkpoint's own, with the updates added"
    );
    Ok(())
}

/// Checks that the run has as many positions as the archive, whose code adds those that it has to the patches.
fn expect_own_size(outgoing: &Outgoing) -> Result<()> {
    let Some(name) = outgoing.session.names.name_of("position") else { return Ok(()) };
    let archive = Archive::open(outgoing.checkpoint())?;
    let own = archive.listed().iter().find(|parameter| parameter.name == name);
    let own = own.map(|parameter| parameter.shape.iter().product::<i64>());
    let read = outgoing.session.model.base.get("position").map(|table| table.numel() as i64);
    let asks = outgoing.experiment.checkpoint.image_size.is_some();
    ensure!(
        own == read || !asks,
        "{}: the run reads images of {} pixels per side, and the archive's own code those of its own size alone: train without \
         checkpoint.image_size, or export --to onnx or torchscript",
        outgoing.checkpoint().display(),
        outgoing.image_size()?
    );
    Ok(())
}

/// Endings of the files that hold weights, in any program's format, or name their parts. They are not copied: beside merged weights, those of
/// the checkpoint would be another model.
const WEIGHTS: [&str; 14] = [
    "safetensors",
    "bin",
    "pt",
    "pth",
    "index.json",
    "onnx",
    "onnx_data",
    "h5",
    "msgpack",
    "ot",
    "ckpt",
    "gguf",
    "npz",
    "tflite",
];

/// Writes one model as a folder of the checkpoint's own kind into an existing folder.
///
/// # Errors
/// Fails if the checkpoint is no folder, if a layer is stored in a way that cannot hold the trained one, or if a file
/// cannot be written.
fn write(outgoing: &Outgoing, target: &Target, model: usize, folder: &Path) -> Result<()> {
    let (source, is_text) = (&*outgoing.source(), outgoing.experiment.checkpoint.medium() != Medium::Images);
    let place = place(outgoing, target, model)?;
    if outgoing.is_archive()? {
        return write_archive(outgoing, model, &place, folder);
    }
    ensure!(
        source.is_dir(),
        "{}: is a file of weights without the config of a folder: make the publisher's folder checkpoint.path, or export --to peft",
        source.display()
    );
    write_tensors(outgoing, target, model, folder, &place)?;
    copy_others(source, folder)?;
    let CheckpointSpec { features, unit_features, .. } = outgoing.experiment.checkpoint;
    sentences::copy(source, folder, features, unit_features)
        .with_context(|| format!("{}: cannot copy", source.display()))?;
    let mut values = config::read(source)?;
    match target.decoder() {
        Some(_) => {
            if outgoing.unties(model) {
                folder_config::untie(&mut values);
            }
            if matches!(place, HeadPlace::Saved(..)) {
                folder_config::name_classes_of_transformers(&outgoing.session.classes, None, &place, &mut values);
            }
        }
        None => folder_config::describe(outgoing, target, &place, &mut values),
    }
    let name = config_file(source).and_then(|path| path.file_name().map(|name| folder.join(name)));
    config::write(&name.context("the checkpoint has no config")?, &values)?;
    if target.class.is_some() && !is_text {
        folder_config::write_preparation(outgoing, source, folder)?;
    }
    if matches!(place, HeadPlace::Beside { .. }) {
        outgoing.write_head(model, folder)?;
    }
    Ok(())
}

/// Returns the Python that loads a model by its package, or the archive.
fn python(outgoing: &Outgoing, target: &Target, places: &Places) -> Result<String> {
    let at = outgoing.folder(&places.folder, 0).display().to_string();
    let head = place(outgoing, target, 0)?;
    let loading = Loading { head, from: Source::Path(at.clone()), at, is_whole: true, import: "", wrap: String::new() };
    lines(outgoing, target, &loading)
}

/// Writes the checkpoint's archive again, with its own code, and the head beside it if it has no place in the archive.
fn write_archive(outgoing: &Outgoing, model: usize, place: &HeadPlace, folder: &Path) -> Result<()> {
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
fn place(outgoing: &Outgoing, target: &Target, model: usize) -> Result<HeadPlace> {
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

/// Writes all tensors in their stored types, into as many files as the checkpoint has.
fn write_tensors(outgoing: &Outgoing, target: &Target, model: usize, folder: &Path, place: &HeadPlace) -> Result<()> {
    let names = &outgoing.session.names;
    let new = |name: &str| match (name, place) {
        ("head.weight", HeadPlace::Saved(_, head)) => Some(head.weight.shallow_clone()),
        ("head.bias", HeadPlace::Saved(_, head)) => Some(head.bias.shallow_clone()),
        // The folder keeps its own classifier where the trained one lies beside it.
        ("head.weight" | "head.bias", HeadPlace::Beside { .. }) => None,
        ("position", _) => outgoing.value(model, name).or_else(|| outgoing.session.model.base.get(name).map(to_host)),
        _ => {
            outgoing.value(model, name).or_else(|| outgoing.value(model, outgoing.session.model.base.first_name(name)))
        }
    };
    let mut added = Added::of(outgoing, target, model, place);
    added.tensors.extend(new_layer(outgoing, model));
    let stored = Place::of(outgoing.checkpoint())?;
    let mut files = Files::new(folder, target.package, stored.indexed());
    for tensors in stored.shards() {
        let tensors = tensors?;
        let mut state = State::default();
        let kind = kind_of_weights(&tensors);
        for (name, old) in tensors {
            let value = names.restored(&name, &old, &new).unwrap_or_else(|| old.shallow_clone());
            let full = if name.starts_with(added.prefix) { name } else { format!("{}{name}", added.prefix) };
            state.put(&full, &value);
        }
        if files.is_last() {
            added.tensors.iter().for_each(|(name, value)| state.put(name, &value.to_kind(kind).contiguous()));
        }
        files.write(state)?;
    }
    files.finish()
}

/// Returns the parameters of a layer that the checkpoint does not have, by the names of the class that has it.
fn new_layer(outgoing: &Outgoing, model: usize) -> Vec<(String, Tensor)> {
    let (session, Some(layer)) = (outgoing.session, outgoing.session.new_layer) else { return Vec::new() };
    let named = |name: String| {
        let value = outgoing.value(model, &name).or_else(|| session.model.base.get(&name).map(to_host))?;
        Some((session.names.name_of(&name)?.to_string(), value))
    };
    // Where a norm follows the layer, the checkpoint has none for it either.
    let names = [layer, POOLER_NORM].map(|layer| ["weight", "bias"].map(|part| format!("{layer}.{part}")));
    names.into_iter().flatten().filter_map(named).collect()
}

/// Returns the type in which a file stores weights; beside them it may hold indices, in whole numbers.
fn kind_of_weights(tensors: &[(String, Tensor)]) -> Kind {
    let mut kinds = tensors.iter().filter(|(_, tensor)| tensor.is_floating_point()).map(|(_, tensor)| tensor.kind());
    kinds.next_back().unwrap_or(Kind::Float)
}

/// Tensors that the checkpoint does not have.
#[derive(Default)]
struct Added {
    tensors: Vec<(String, Tensor)>,
    /// The prefix that all other names get beside them, where the checkpoint is only a part of the class that has them.
    prefix: &'static str,
}

impl Added {
    fn of(outgoing: &Outgoing, target: &Target, model: usize, place: &HeadPlace) -> Added {
        let names = &outgoing.session.names;
        let prefix = target.class.map_or("", |class| class.prefix[0]);
        let first = names.name_of(&format!("{EMBEDDING}.weight")).unwrap_or_default();
        // Tensors of other heads beside a network that has the prefix keep their names.
        let prefix = if first.starts_with(prefix) { "" } else { prefix };
        if let (HeadPlace::Saved(module, head), None) = (place, names.name_of("head.weight")) {
            // The classifier of a decoder has no bias.
            let bias = target.decoder().is_none().then_some(("bias", &head.bias));
            let tensors = [("weight", &head.weight)].into_iter().chain(bias);
            let tensors = tensors.map(|(part, tensor)| (format!("{module}.{part}"), tensor.contiguous()));
            return Added { tensors: tensors.collect(), prefix };
        }
        let output = format!("{OUTPUT}.weight");
        if names.name_of(&output).is_some() || !outgoing.unties(model) {
            return Added::default();
        }
        let embedding = names.name_of(&format!("{EMBEDDING}.weight")).unwrap_or_default().to_string();
        let prefix = if embedding.starts_with("embed") { prefix } else { "" };
        let published = |Class { layers, .. }: &Class| match layers {
            Layers::Named(names) => names.published(&output, &[embedding]),
            Layers::Styles(_) => output.clone(),
        };
        let tensor = target.class.map(published).zip(outgoing.value(model, &output));
        Added { tensors: tensor.into_iter().collect(), prefix }
    }
}

fn to_host(tensor: &Tensor) -> Tensor {
    tensor.to_device(tch::Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_head_has_the_type_of_weights_and_not_of_indices() {
        let ones = |kind: Kind| Tensor::ones([2], (kind, tch::Device::Cpu));
        let named = |kinds: &[Kind]| kinds.iter().map(|kind| (format!("{kind:?}"), ones(*kind))).collect::<Vec<_>>();
        assert_eq!(kind_of_weights(&named(&[Kind::Half, Kind::Int64])), Kind::Half);
        assert_eq!(kind_of_weights(&named(&[Kind::Int64])), Kind::Float);
    }
}
