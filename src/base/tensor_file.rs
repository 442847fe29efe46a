//! Files of named tensors: resume files and posteriors. Tensors are written and read one by one, without a second copy of
//! the file's content.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use safetensors::{SafeTensorError, SafeTensors};
use tch::{Device, Kind, Tensor};

use super::checksummed::{self, Part};
use super::mapped::Mapped;
use super::tensor::{bytes, first_line};

#[cfg(target_endian = "big")]
compile_error!("safetensors files are little-endian, and are read in place");

/// The metadata entry with the id of the run that a file belongs to.
pub const RUN: &str = "run";

/// Returns an entry of the metadata in the header of a safetensors file, of whose content nothing else is read or checked.
///
/// # Errors
/// Fails if the bytes have no such header, or are truncated.
pub fn described(file: &[u8], key: &str) -> Result<Option<String>, SafeTensorError> {
    let (_, header) = SafeTensors::read_metadata(file)?;
    Ok(header.metadata().as_ref().and_then(|all| all.get(key).cloned()))
}

/// Tensors by name; counters are tensors of one `i64`.
pub struct State {
    content: Content,
    /// The entries of the header's metadata.
    about: BTreeMap<String, String>,
}

enum Content {
    /// Tensors to be written. They share their storage with the tensors that were put in.
    Tensors(BTreeMap<String, Tensor>),
    /// The content of a file that was read. Each tensor is created when it is asked for.
    File { bytes: Bytes, tensors: BTreeMap<String, Stored> },
}

/// The content of a file.
enum Bytes {
    Mapped(Mapped),
    Read(Vec<u8>),
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Read(bytes) => bytes,
        }
    }

    /// Checks that all bytes that were read so far were those of the file.
    fn expect_whole(&self) -> Result<()> {
        match self {
            Bytes::Mapped(map) => map.expect_whole(),
            Bytes::Read(_) => Ok(()),
        }
    }
}

/// A tensor in a file.
struct Stored {
    kind: Kind,
    size: Vec<i64>,
    /// The tensor's range of bytes in the file.
    bytes: Range<usize>,
}

impl Default for State {
    fn default() -> Self {
        State { content: Content::Tensors(BTreeMap::new()), about: BTreeMap::new() }
    }
}

impl State {
    /// Adds a tensor, which must not change before the state is written: its storage is shared.
    pub fn put(&mut self, name: &str, tensor: &Tensor) {
        match &mut self.content {
            Content::Tensors(tensors) => drop(tensors.insert(name.to_string(), tensor.detach())),
            Content::File { .. } => unreachable!("a state that was read is not written to"),
        }
    }

    /// Returns the name of a tensor that was put in and has a NaN or an infinite value, if there is one.
    pub fn not_finite(&self) -> Option<&str> {
        let Content::Tensors(tensors) = &self.content else { return None };
        let broken =
            |tensor: &Tensor| tensor.is_floating_point() && !bool::try_from(tensor.isfinite().all()).unwrap_or(false);
        tensors.iter().find(|(_, tensor)| broken(tensor)).map(|(name, _)| name.as_str())
    }

    pub fn put_count(&mut self, name: &str, count: i64) {
        self.put(name, &Tensor::from_slice(&[count]));
    }

    /// Adds text as bytes.
    pub fn put_text(&mut self, name: &str, text: &str) {
        self.put(name, &Tensor::from_slice(text.as_bytes()));
    }

    /// Adds an entry to the header's metadata, which every reader of safetensors sees.
    pub fn describe(&mut self, key: &str, text: String) {
        self.about.insert(key.to_string(), text);
    }

    /// Returns an entry of the header's metadata, if there is one.
    pub fn described(&self, key: &str) -> Option<&str> {
        self.about.get(key).map(String::as_str)
    }

    /// Returns a tensor on the CPU; a copy if the state was read from a file.
    ///
    /// # Errors
    /// Fails if there is no tensor of that name.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let lacks = || format!("the file lacks `{name}`");
        match &self.content {
            Content::Tensors(tensors) => Ok(tensors.get(name).with_context(lacks)?.to_device(Device::Cpu)),
            Content::File { bytes, tensors } => {
                let Stored { kind, size, bytes: range } = tensors.get(name).with_context(lacks)?;
                let found = Tensor::f_from_data_size(&bytes.all()[range.clone()], size, *kind);
                bytes.expect_whole()?;
                found.map_err(|e| anyhow!("{}", first_line(&e)))
            }
        }
    }

    /// Returns the names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        match &self.content {
            Content::Tensors(tensors) => tensors.keys().cloned().collect(),
            Content::File { tensors, .. } => tensors.keys().cloned().collect(),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        match &self.content {
            Content::Tensors(tensors) => tensors.contains_key(name),
            Content::File { tensors, .. } => tensors.contains_key(name),
        }
    }

    pub fn count(&self, name: &str) -> Result<i64> {
        let tensor = self.get(name)?;
        ensure!(tensor.size() == [1] && tensor.kind() == Kind::Int64, "the file's `{name}` is no counter");
        Ok(tensor.int64_value(&[0]))
    }

    pub fn text(&self, name: &str) -> Result<String> {
        let bytes = Vec::<u8>::try_from(&self.get(name)?).map_err(|e| anyhow!("{}", first_line(&e)))?;
        String::from_utf8(bytes).with_context(|| format!("the file's `{name}` is no text"))
    }

    /// Copies a tensor into one of equal shape. It is copied in pieces, so that no second tensor of that size is
    /// created.
    ///
    /// # Errors
    /// Fails if there is no such tensor, or if it has another shape.
    pub fn copy_into(&self, name: &str, target: &mut Tensor) -> Result<()> {
        const PIECE: i64 = 1 << 24;
        let fits = |size: &[i64], target: &Tensor| -> Result<()> {
            let wanted = target.size();
            ensure!(size == wanted, "the file's `{name}` has shape {size:?}, this run needs {wanted:?}");
            Ok(())
        };
        let stored = match &self.content {
            Content::File { bytes, tensors } => tensors.get(name).map(|stored| (bytes, stored)),
            Content::Tensors(_) => None,
        };
        let Some((bytes, Stored { kind, size, bytes: range })) = stored else {
            let tensor = self.get(name)?;
            fits(&tensor.size(), target)?;
            target.copy_(&tensor);
            return Ok(());
        };
        fits(size, target)?;
        ensure!(target.is_contiguous(), "`{name}` is copied into a tensor that is not contiguous");
        let (flat, all) = (target.view([-1]), &bytes.all()[range.clone()]);
        let each = kind.elt_size_in_bytes();
        for start in (0..flat.size()[0]).step_by(PIECE as usize) {
            let count = PIECE.min(flat.size()[0] - start);
            let piece = &all[start as usize * each..(start + count) as usize * each];
            let piece = Tensor::f_from_data_size(piece, &[count], *kind).map_err(|e| anyhow!("{}", first_line(&e)))?;
            flat.narrow(0, start, count).copy_(&piece);
        }
        bytes.expect_whole()
    }

    /// Writes all tensors atomically: the old file stays valid whatever happens.
    ///
    /// # Errors
    /// Fails if a tensor has a type that cannot be stored, or if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let Content::Tensors(tensors) = &self.content else { bail!("{}: it was read, not made", path.display()) };
        // Wide types first, so that every tensor is aligned.
        let mut order: Vec<(&String, &Tensor)> = tensors.iter().collect();
        order.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.kind().elt_size_in_bytes()));
        let parts = order.iter().map(|(name, tensor)| part(name, tensor)).collect::<Result<Vec<Part>>>()?;
        let about = self.about.iter().map(|(key, text)| (key.as_str(), text.clone())).collect();
        checksummed::write(path, &about, &parts, |part, file| write_tensor(order[part].1, file))
    }

    /// Opens a file written by [`write`](Self::write) as a memory map. Such files are replaced by a rename and never
    /// changed in place.
    ///
    /// # Errors
    /// Fails if the file does not exist, is not a safetensors file, or differs from what was written.
    pub fn read(path: &Path) -> Result<State> {
        let shown = path.display();
        ensure!(path.is_file(), "{shown}: no such file");
        let file = std::fs::File::open(path).with_context(|| format!("{shown}: cannot read"))?;
        let map = Mapped::new(&file, path).with_context(|| format!("{shown}: cannot read"))?;
        // The hash is that of the file as it is read, so that its bytes do not count as memory of this process.
        checksummed::check(&file).with_context(|| shown.to_string())?;
        State::of(Bytes::Mapped(map), path)
    }

    /// Reads the state from `bytes`, the content of the file `path`.
    ///
    /// # Errors
    /// Fails as [`read`](Self::read) does.
    pub fn parse(bytes: Vec<u8>, path: &Path) -> Result<State> {
        checksummed::check(&bytes[..]).with_context(|| path.display().to_string())?;
        State::of(Bytes::Read(bytes), path)
    }

    fn of(bytes: Bytes, path: &Path) -> Result<State> {
        let shown = path.display();
        let all = bytes.all();
        let unreadable = || format!("{shown}: not a readable safetensors file");
        let file = SafeTensors::deserialize(all).with_context(unreadable)?;
        let (_, header) = SafeTensors::read_metadata(all).with_context(unreadable)?;
        let about: BTreeMap<String, String> =
            header.metadata().iter().flatten().map(|(key, text)| (key.clone(), text.clone())).collect();
        checksummed::check_present(&about).with_context(|| path.display().to_string())?;
        let stored = |(name, view): (String, safetensors::tensor::TensorView)| {
            let kind = kind_of(&format!("{:?}", view.dtype())).with_context(|| {
                format!("{shown}: `{name}` is of type {:?}, which bella does not store", view.dtype())
            })?;
            let start = view.data().as_ptr() as usize - all.as_ptr() as usize;
            let size = view.shape().iter().map(|length| *length as i64).collect();
            Ok((name, Stored { kind, size, bytes: start..start + view.data().len() }))
        };
        let tensors = file.tensors().into_iter().map(stored).collect::<Result<_>>()?;
        Ok(State { content: Content::File { bytes, tensors }, about })
    }
}

fn part<'a>(name: &'a str, tensor: &Tensor) -> Result<Part<'a>> {
    let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
    let shape = tensor.size().into_iter().map(|length| length as usize).collect();
    Ok(Part { name, dtype: dtype_of(tensor.kind())?, shape, bytes })
}

/// The types of tensors that safetensors and libtorch share, by their names in safetensors.
const KINDS: [(&str, Kind); 10] = [
    ("F64", Kind::Double),
    ("F32", Kind::Float),
    ("F16", Kind::Half),
    ("BF16", Kind::BFloat16),
    ("I64", Kind::Int64),
    ("I32", Kind::Int),
    ("I16", Kind::Int16),
    ("I8", Kind::Int8),
    ("U8", Kind::Uint8),
    ("BOOL", Kind::Bool),
];

fn dtype_of(kind: Kind) -> Result<&'static str> {
    let found = KINDS.iter().find(|(_, known)| *known == kind);
    found.map(|(name, _)| *name).with_context(|| format!("a tensor of type {kind:?} cannot be stored"))
}

/// Returns libtorch's type by its name in safetensors, if there is one.
pub fn kind_of(name: &str) -> Option<Kind> {
    KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// Writes a tensor in row-major order, without a copy if it is stored so on the CPU.
fn write_tensor(tensor: &Tensor, file: &mut dyn Write) -> Result<()> {
    // safetensors has no strides.
    Ok(file.write_all(bytes(&tensor.to_device(Device::Cpu).contiguous()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_is_exact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.safetensors");
        let tensor = Tensor::from_slice(&[1.5f32, -0.0, f32::MIN_POSITIVE, 3.0]).view([2, 2]);
        let mut state = State::default();
        state.put("strided", &tensor.tr());
        state.put_count("steps", 7);
        state.put_text("note", "wörd");
        let whole = Tensor::from_slice(&[3i64, 0, 1]);
        let kinds = KINDS.map(|(_, kind)| kind);
        kinds.iter().for_each(|kind| state.put(&format!("{kind:?}"), &whole.to_kind(*kind)));
        state.describe("about", "\"ä\"".to_string());
        state.write(&path).unwrap();
        let read = State::read(&path).unwrap();
        assert_eq!(read.get("strided").unwrap(), tensor.tr());
        for kind in kinds {
            let again = read.get(&format!("{kind:?}")).unwrap();
            assert!(again.kind() == kind && again.equal(&whole.to_kind(kind)), "{kind:?}");
        }
        let mut target = Tensor::zeros([2, 2], tch::kind::FLOAT_CPU);
        read.copy_into("strided", &mut target).unwrap();
        assert_eq!(target, tensor.tr());
        let error = read.copy_into("strided", &mut Tensor::zeros([4], tch::kind::FLOAT_CPU)).unwrap_err().to_string();
        assert!(error.contains("has shape [2, 2], this run needs [4]"), "{error}");
        assert_eq!(read.count("steps").unwrap(), 7);
        assert_eq!(read.text("note").unwrap(), "wörd");
        assert_eq!((read.described("about"), read.described("more")), (Some("\"ä\""), None));
        assert!(read.count("strided").is_err());
        assert!(read.get("absent").unwrap_err().to_string().contains("lacks `absent`"));
    }
}
