//! Named tensors that make up the state of a training run, on their way to and from `checkpoint.safetensors`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::{Device, Kind, Tensor};

use crate::tensor::first_line;

/// Tensors by name; counters are tensors of one `i64`.
#[derive(Default)]
pub struct State {
    tensors: BTreeMap<String, Tensor>,
}

impl State {
    /// Stores a copy on the host.
    pub fn put(&mut self, name: &str, tensor: &Tensor) {
        // `contiguous`: safetensors refuses strided tensors. `copy`: the original goes on changing.
        let copy = tensor.detach().to_device(Device::Cpu).contiguous().copy();
        self.tensors.insert(name.to_string(), copy);
    }

    pub fn put_count(&mut self, name: &str, count: i64) {
        self.tensors.insert(name.to_string(), Tensor::from_slice(&[count]));
    }

    /// Stores text as bytes.
    pub fn put_text(&mut self, name: &str, text: &str) {
        self.tensors.insert(name.to_string(), Tensor::from_slice(text.as_bytes()));
    }

    pub fn get(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).with_context(|| format!("the checkpoint lacks `{name}`"))
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn count(&self, name: &str) -> Result<i64> {
        let tensor = self.get(name)?;
        ensure!(tensor.size() == [1] && tensor.kind() == Kind::Int64, "the checkpoint's `{name}` is no counter");
        Ok(tensor.int64_value(&[0]))
    }

    pub fn text(&self, name: &str) -> Result<String> {
        let bytes = Vec::<u8>::try_from(self.get(name)?).map_err(|e| anyhow!("{}", first_line(&e)))?;
        String::from_utf8(bytes).with_context(|| format!("the checkpoint's `{name}` is no text"))
    }

    /// Copies a stored tensor into one of equal shape.
    pub fn copy_into(&self, name: &str, target: &mut Tensor) -> Result<()> {
        let stored = self.get(name)?;
        ensure!(
            stored.size() == target.size(),
            "the checkpoint's `{name}` has shape {:?}, this run needs {:?}",
            stored.size(),
            target.size()
        );
        target.copy_(stored);
        Ok(())
    }

    /// Writes all tensors atomically: the old file stays valid whatever happens.
    pub fn write(&self, path: &Path) -> Result<()> {
        let views: Vec<(&String, Bytes)> =
            self.tensors.iter().map(|(name, t)| Ok((name, Bytes::of(t)?))).collect::<Result<_>>()?;
        crate::files::write_atomic(path, |file| {
            use std::io::Write;
            let bytes = safetensors::serialize(views, None).context("cannot serialise the checkpoint")?;
            file.write_all(&bytes)?;
            Ok(())
        })
    }

    /// Reads what [`write`](Self::write) wrote.
    pub fn read(path: &Path) -> Result<State> {
        let shown = path.display();
        ensure!(path.is_file(), "{shown}: no such file");
        State::parse(&std::fs::read(path).with_context(|| format!("{shown}: cannot read"))?, path)
    }

    /// From the bytes of the file `path`.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<State> {
        let shown = path.display();
        let file = safetensors::SafeTensors::deserialize(bytes)
            .with_context(|| format!("{shown}: not a readable safetensors file"))?;
        let tensor = |(name, view): (String, safetensors::tensor::TensorView)| {
            let kind = match view.dtype() {
                safetensors::Dtype::F32 => Kind::Float,
                safetensors::Dtype::F64 => Kind::Double,
                safetensors::Dtype::I64 => Kind::Int64,
                safetensors::Dtype::U8 => Kind::Uint8,
                other => bail!("{shown}: `{name}` is of type {other:?}, which no checkpoint has"),
            };
            let size: Vec<i64> = view.shape().iter().map(|length| *length as i64).collect();
            let tensor =
                Tensor::f_from_data_size(view.data(), &size, kind).map_err(|e| anyhow!("{}", first_line(&e)))?;
            Ok((name, tensor))
        };
        Ok(State { tensors: file.tensors().into_iter().map(tensor).collect::<Result<_>>()? })
    }
}

/// A host tensor as safetensors wants it.
struct Bytes {
    dtype: safetensors::Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Bytes {
    fn of(tensor: &Tensor) -> Result<Bytes> {
        let dtype = match tensor.kind() {
            Kind::Float => safetensors::Dtype::F32,
            Kind::Double => safetensors::Dtype::F64,
            Kind::Int64 => safetensors::Dtype::I64,
            Kind::Uint8 => safetensors::Dtype::U8,
            other => return Err(anyhow!("a state tensor of type {other:?} cannot be stored")),
        };
        let size = tensor.kind().elt_size_in_bytes() * tensor.numel();
        let mut data = vec![0u8; size];
        tensor.f_copy_data_u8(&mut data, tensor.numel()).map_err(|e| anyhow!("{}", first_line(&e)))?;
        Ok(Bytes { dtype, shape: tensor.size().iter().map(|s| *s as usize).collect(), data })
    }
}

impl safetensors::View for Bytes {
    fn dtype(&self) -> safetensors::Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.data).into()
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
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
        state.write(&path).unwrap();
        let read = State::read(&path).unwrap();
        assert_eq!(read.get("strided").unwrap(), &tensor.tr());
        assert_eq!(read.count("steps").unwrap(), 7);
        assert_eq!(read.text("note").unwrap(), "wörd");
        assert!(read.count("strided").is_err());
        assert!(read.get("absent").unwrap_err().to_string().contains("lacks `absent`"));
    }
}
