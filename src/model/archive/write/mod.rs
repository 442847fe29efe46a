//! Writes TorchScript archives without Python: a zip of a pickled module tree, TorchScript code and one entry per
//! tensor, in the layout of `torch.jit.save` that libtorch reads.
//!
//! Tensors are asked for one by one and written at once, so that an archive needs only the memory of its largest
//! tensor.

mod pickle;

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

pub use pickle::{Class, Module, Parameter, number};

/// Tensors start at multiples of this number of bytes in the file, so that they can be memory-mapped.
const ALIGNMENT: u16 = 64;

/// The number of elements that are copied out of a tensor at once.
const CHUNK: i64 = 1 << 20;

/// The format version of archives whose operators are those of libtorch 1.12 and later, which has GELU by tanh.
const VERSION: &str = "10\n";

/// A module and its code, before its weights are known.
pub struct Blueprint {
    pub root: Module,
    /// The TorchScript code of every class in the tree, all in the file `code/__torch__/bella.py`.
    pub code: String,
}

/// Writes `blueprint` to `path`. An existing file is replaced only when the new one is complete. `weights` is called
/// with the full name of each parameter (`visual.conv1.weight`) and returns its value, which is converted to the
/// parameter's type.
///
/// # Errors
/// Fails if the file cannot be written, or if a weight cannot be made or has another shape.
pub fn write(
    path: &Path,
    blueprint: &Blueprint,
    mut weights: impl FnMut(&str, &[i64]) -> Result<Tensor>,
) -> Result<()> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).context("the archive's file name is not UTF-8")?;
    crate::base::files::write_atomic(path, |file| {
        let mut entries = Entries { zip: ZipWriter::new(file), folder: stem.to_string() };
        let mut number = 0;
        blueprint.root.visit("", &mut |name, parameter| {
            let tensor = weights(name, &parameter.shape)?;
            ensure!(
                tensor.size() == parameter.shape,
                "{name}: the weight has shape {:?}, but the module needs {:?}",
                tensor.size(),
                parameter.shape
            );
            entries.tensor(&format!("data/{number}"), &tensor, parameter.kind).with_context(|| name.to_string())?;
            number += 1;
            Ok(())
        })?;
        entries.bytes("data.pkl", &pickle::module(&blueprint.root)?)?;
        entries.bytes("constants.pkl", &pickle::no_constants())?;
        entries.bytes("code/__torch__/bella.py", blueprint.code.as_bytes())?;
        entries.bytes("byteorder", b"little")?;
        entries.bytes("version", VERSION.as_bytes())?;
        entries.zip.finish().map(drop).context("cannot finish the archive")
    })
}

/// The entries of an archive, all in the folder that bears its name.
struct Entries<'a> {
    zip: ZipWriter<&'a mut BufWriter<File>>,
    folder: String,
}

impl Entries<'_> {
    fn start(&mut self, name: &str, bytes: u64) -> Result<()>
    where
        BufWriter<File>: Seek,
    {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::default())
            .large_file(bytes > u64::from(u32::MAX / 2))
            .with_alignment(ALIGNMENT);
        Ok(self.zip.start_file(format!("{}/{name}", self.folder), options)?)
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.start(name, bytes.len() as u64)?;
        Ok(self.zip.write_all(bytes)?)
    }

    /// Writes the elements in row-major order, a chunk at a time.
    fn tensor(&mut self, name: &str, tensor: &Tensor, kind: Kind) -> Result<()> {
        let size = kind.elt_size_in_bytes();
        self.start(name, (tensor.numel() * size) as u64)?;
        let flat = tensor.contiguous().view(-1);
        let (count, mut from) = (flat.size1()?, 0);
        let mut buffer = vec![0u8; CHUNK.min(count) as usize * size];
        while from < count {
            let length = CHUNK.min(count - from);
            let part = flat.narrow(0, from, length).to_kind(kind);
            let bytes = &mut buffer[..length as usize * size];
            part.f_copy_data_u8(bytes, length as usize)?;
            self.zip.write_all(bytes)?;
            from += length;
        }
        Ok(())
    }
}
