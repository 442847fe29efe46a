//! The cache of built heads in the user's cache folder. Each file is written atomically and named by the hash of the content
//! it was built from, so processes may share the cache. Without such a folder there is no cache.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use super::Texts;
use crate::base::tensor_file::State;

/// The version in each file name. It changes whenever heads are built differently.
const VERSION: u32 = 3;

/// A head made of texts.
pub struct TextHead {
    /// The weight, `[C, d]`, in f32 on the CPU.
    pub weight: Tensor,
    /// The bias, `[C]`, likewise: the same for all classes.
    pub bias: Tensor,
    /// The texts in front of the projection, likewise.
    pub texts: Texts,
}

/// Reads a cached head. A damaged file gives a warning and counts as missing.
pub fn read(key: &str, classes: usize) -> Option<TextHead> {
    let path = path(key)?;
    if !path.is_file() {
        return None;
    }
    match checked(&path, classes) {
        Ok(head) => Some(head),
        Err(error) => {
            tracing::warn!("{}: built again, for the cached head is damaged ({error:#})", path.display());
            None
        }
    }
}

fn checked(path: &std::path::Path, classes: usize) -> Result<TextHead> {
    let state = State::read(path)?;
    let read = |name: &str, axes: usize| -> Result<Tensor> {
        let tensor = state.get(name)?;
        let of_classes = name == "projection" || tensor.size().first() == Some(&(classes as i64));
        let fits = tensor.dim() == axes && of_classes;
        ensure!(tensor.kind() == Kind::Float && fits, "its {name} is another one");
        ensure!(tensor.isfinite().all().int64_value(&[]) == 1, "its {name} is not finite");
        Ok(tensor.copy())
    };
    let texts = Texts { inputs: read("inputs", 2)?, offsets: read("offsets", 2)?, projection: read("projection", 2)? };
    Ok(TextHead { weight: read("weight", 2)?, bias: read("bias", 1)?, texts })
}

/// Stores a head. If the folder cannot be written to, this only warns, since it only costs the next run some time.
pub fn write(key: &str, head: &TextHead) {
    let Some(path) = path(key) else { return };
    let mut state = State::default();
    state.put("weight", &head.weight);
    state.put("bias", &head.bias);
    state.put("inputs", &head.texts.inputs);
    state.put("offsets", &head.texts.offsets);
    state.put("projection", &head.texts.projection);
    let folder = path.parent().map_or_else(PathBuf::new, |parent| parent.to_path_buf());
    let written = std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))
        .and_then(|()| state.write(&path));
    if let Err(error) = written {
        tracing::warn!(
            "the zero-shot head is not cached: {error:#}; set BELLA_CACHE to a folder that can be written to"
        );
    }
}

fn path(key: &str) -> Option<PathBuf> {
    let folder = crate::base::small::folder()?;
    Some(folder.join("heads").join(format!("v{VERSION}-{key}.safetensors")))
}
