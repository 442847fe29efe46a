//! Tensors of files that are read one by one, when their turn comes: a network of many gigabytes whose weights are then stored in fewer
//! bits is never in memory as a whole.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::base::files::open_file;
use crate::base::tensor::first_line;
use crate::base::tensor_file::kind_of;
use crate::machine::quantised::Quantised;
use crate::model::network::Weight;

/// A tensor that may not have been read yet.
pub struct Unread {
    pub size: Vec<i64>,
    pub kind: Kind,
    content: Content,
}

enum Content {
    Read(Tensor),
    Quantised(Quantised),
    /// The place of its first byte in a file.
    InFile(Rc<Source>, u64),
}

/// A file of tensors.
struct Source {
    file: RefCell<File>,
    path: PathBuf,
}

impl Unread {
    /// Takes a tensor that has been read.
    pub fn of(tensor: Tensor) -> Unread {
        Unread { size: tensor.size(), kind: tensor.kind(), content: Content::Read(tensor) }
    }

    /// Takes a weight that is stored in fewer bits.
    pub fn of_quantised(quantised: Quantised) -> Unread {
        Unread { size: quantised.size().to_vec(), kind: quantised.kind(), content: Content::Quantised(quantised) }
    }

    /// Returns whether it is stored in fewer bits.
    pub fn is_quantised(&self) -> bool {
        matches!(self.content, Content::Quantised(_))
    }

    /// Returns the weight in the form in which it is stored.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn weight(self) -> Result<Weight> {
        match self.content {
            Content::Quantised(quantised) => Ok(Weight::Quantised(quantised)),
            _ => self.tensor().map(Weight::Plain),
        }
    }

    /// Returns its values; those of a quantised weight are made.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn tensor(self) -> Result<Tensor> {
        let Unread { size, kind, content } = self;
        match content {
            Content::Read(tensor) => Ok(tensor),
            Content::Quantised(quantised) => Ok(quantised.numbers()),
            Content::InFile(source, start) => source.tensor(start, &size, kind),
        }
    }
}

impl Source {
    fn tensor(&self, start: u64, size: &[i64], kind: Kind) -> Result<Tensor> {
        let made = Tensor::f_empty(size, (kind, Device::Cpu)).map_err(|why| anyhow!("{}", first_line(&why)))?;
        let length = made.numel() * kind.elt_size_in_bytes();
        if length > 0 {
            // SAFETY: the new tensor is contiguous and on the CPU, nothing else knows of it, and every byte makes a number of these types.
            let bytes = unsafe { std::slice::from_raw_parts_mut(made.data_ptr().cast::<u8>(), length) };
            let mut file = self.file.borrow_mut();
            let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(bytes));
            read.with_context(|| format!("{}: cannot read", self.path.display()))?;
        }
        Ok(made)
    }
}

/// Returns the tensors of a safetensors file, given the JSON of its header and the place of the first byte behind that.
///
/// # Errors
/// Fails if the header does not describe tensors that are in the file.
pub fn listed(path: &Path, header: &Value, start: u64) -> Result<Vec<(String, Unread)>> {
    let file = open_file(path)?;
    let behind = file.metadata().with_context(|| format!("{}: cannot read", path.display()))?.len();
    let source = Rc::new(Source { file: RefCell::new(file), path: path.to_path_buf() });
    let entries = header.as_object().into_iter().flatten().filter(|(name, _)| *name != "__metadata__");
    let one = |(name, entry): (&String, &Value)| {
        let (kind, size, [from, to]) =
            described(entry).with_context(|| format!("its header does not describe `{name}`"))?;
        let bytes = size.iter().product::<i64>() as u64 * kind.elt_size_in_bytes() as u64;
        ensure!(from <= to && to - from == bytes, "its header gives `{name}` another number of bytes than its shape");
        let end = start.checked_add(to);
        ensure!(end.is_some_and(|end| end <= behind), "it is cut off: `{name}` ends behind its end");
        let content = Content::InFile(Rc::clone(&source), start + from);
        Ok((name.clone(), Unread { size, kind, content }))
    };
    entries.map(one).collect()
}

/// Returns the type, the shape and the range of bytes of a header's entry.
fn described(entry: &Value) -> Option<(Kind, Vec<i64>, [u64; 2])> {
    let kind = kind_of(entry.get("dtype")?.as_str()?)?;
    let shape = entry.get("shape")?.as_array()?;
    let size: Option<Vec<i64>> = shape.iter().map(|length| length.as_i64().filter(|length| *length >= 0)).collect();
    let size = size?;
    size.iter().try_fold(1i64, |all, length| all.checked_mul(*length))?.checked_mul(8)?;
    let [from, to] = entry.get("data_offsets")?.as_array()?.as_slice() else { return None };
    Some((kind, size, [from.as_u64()?, to.as_u64()?]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_outside_the_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        std::fs::write(&path, [0; 16]).unwrap();
        let listed = |shape: serde_json::Value, offsets: [u64; 2]| {
            let entry = json!({ "dtype": "U8", "shape": shape, "data_offsets": offsets });
            listed(&path, &json!({ "a": entry }), 8).map_err(|why| format!("{why:#}"))
        };
        assert_eq!(listed(json!([8]), [0, 8]).unwrap().remove(0).1.tensor().unwrap().numel(), 8);
        let most = u64::MAX;
        for (shape, offsets, rule) in [
            (json!([8]), [1, 9], "`a` ends behind its end"),
            (json!([8]), [most - 9, most - 1], "`a` ends behind its end"),
            (json!([8]), [8, 0], "another number of bytes than its shape"),
            (json!([8]), [0, 7], "another number of bytes than its shape"),
            (json!([-8]), [0, 8], "does not describe `a`"),
            (json!([most / 4, 8]), [0, 8], "does not describe `a`"),
        ] {
            let error = listed(shape, offsets).err().unwrap();
            assert!(error.contains(rule), "{error}");
        }
    }
}
