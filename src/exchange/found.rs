//! The folders of adapters and of models among what is to be imported.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::formats::peft::CONFIG as ADAPTER_CONFIG;
use crate::hub::lead;
use crate::model::folder::config_file;

/// Returns whether a folder is that of an adapter.
pub fn is_adapter(path: &Path) -> bool {
    path.join(ADAPTER_CONFIG).exists()
}

/// Returns whether a folder holds the weights of an adapter or a model.
fn has_weights(path: &Path) -> bool {
    let has = |name: &str| path.join(name).exists();
    ["adapter_model.safetensors", "adapter_model.bin"].into_iter().any(has) || lead(has).is_some()
}

/// Returns whether a folder holds an adapter or a whole model.
fn is_particle(path: &Path) -> bool {
    is_adapter(path) || config_file(path).is_some()
}

/// Refuses a TorchScript archive or an ONNX graph, a folder with one, any other file, and a folder that is not there.
fn refuse_programs(path: &Path) -> Result<()> {
    let is_program =
        |path: &PathBuf| path.is_file() && path.extension().is_some_and(|end| end == "pt" || end == "onnx");
    let inside = || std::fs::read_dir(path).ok()?.flatten().map(|entry| entry.path()).find(is_program);
    if let Some(program) = Some(path.to_path_buf()).filter(is_program).or_else(inside) {
        bail!(
            "{}: is a program with merged weights, whose particles do not come in: import the folders that bella export --to peft or \
             --to weights writes of a publisher's folder, or open the archive itself as checkpoint.path",
            program.display()
        );
    }
    ensure!(!path.is_file(), "{}: is a file: name the folder that holds it", path.display());
    ensure!(path.is_dir(), "{}: no such folder", path.display());
    Ok(())
}

/// Returns the given folders, with the folders of adapters or models in them in the order of their numbers and names.
///
/// # Errors
/// Fails if one of them cannot be read, holds neither, or is given twice.
pub fn expanded(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in given {
        match path.is_dir() && is_particle(path) {
            true => {
                warn_of_inner(path)?;
                all.push(path.clone());
            }
            false => all.extend(particles_in(path)?),
        }
    }
    // One folder may be spelled in several ways.
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let places: Vec<PathBuf> = all.iter().map(real).collect();
    let twice = all.iter().enumerate().find(|(at, _)| places[..*at].contains(&places[*at]));
    ensure!(
        twice.is_none(),
        "{}: is given twice",
        twice.map_or_else(String::new, |(_, path)| path.display().to_string())
    );
    Ok(all)
}

/// Warns of adapters or models in the folder of one. They may be those that PEFT keeps beside its `default`, or what a trainer saved on its way.
fn warn_of_inner(path: &Path) -> Result<()> {
    let inner = std::fs::read_dir(path).with_context(|| format!("{}: cannot read", path.display()))?;
    let mut inner: Vec<String> = inner
        .flatten()
        .filter(|entry| entry.path().is_dir() && is_particle(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    inner.sort();
    if !inner.is_empty() {
        tracing::warn!(
            "{}: is read alone; the folders {} in it are adapters or models, too: give each that is a particle by its own path",
            path.display(),
            inner.join(", ")
        );
    }
    Ok(())
}

/// Returns the folders of adapters or models in a folder, in the order of their numbers and names.
fn particles_in(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        refuse_programs(path)?;
    }
    let inner = std::fs::read_dir(path).with_context(|| format!("{}: cannot read", path.display()))?;
    let (mut inner, others): (Vec<PathBuf>, Vec<PathBuf>) =
        inner.flatten().map(|entry| entry.path()).partition(|path| is_particle(path));
    if let Some(lacking) = others.iter().find(|path| has_weights(path)) {
        bail!(
            "{}: holds weights, but neither {ADAPTER_CONFIG} nor config.json: copy the whole folder there, or move it elsewhere",
            lacking.display()
        );
    }
    if inner.is_empty() {
        refuse_programs(path)?;
        bail!(
            "{}: holds neither an adapter ({ADAPTER_CONFIG}) nor a model (model.safetensors), nor folders of these",
            path.display()
        );
    }
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let digits: String = name.chars().rev().take_while(char::is_ascii_digit).collect();
        let number = digits.chars().rev().collect::<String>().parse::<u64>().unwrap_or(0);
        (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string(), number)
    };
    inner.sort_by_key(number);
    Ok(inner)
}
