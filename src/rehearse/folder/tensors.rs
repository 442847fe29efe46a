//! Files of random weights, which are written a piece of a tensor at a time, so that a network of any size needs a few MB.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tch::{Device, Kind, Tensor};

use crate::base::files::write_atomic;
use crate::rehearse::models::spread;

/// The most bytes of a file, as transformers splits weights by default; a larger tensor has a file of its own.
pub const SHARD_BYTES: u64 = 5_000_000_000;

/// The number of random values that are drawn: a prime, so that hardly any two rows of a matrix begin at the same one.
const DRAWN: i64 = 4_194_301;

/// The seed of random weights.
const SEED: i64 = 1;

/// A tensor: its name and shape.
type Named = (String, Vec<i64>);

fn count(shape: &[i64]) -> i64 {
    shape.iter().product()
}

/// Returns the bytes of tensors in a type.
pub fn bytes(tensors: &[Named], kind: Kind) -> u64 {
    tensors.iter().map(|(_, shape)| count(shape) as u64 * kind.elt_size_in_bytes() as u64).sum()
}

/// Splits tensors, in their order, among files of at most `most` bytes.
pub fn split(tensors: &[Named], kind: Kind, most: u64) -> Vec<&[Named]> {
    let (mut shards, mut from, mut filled) = (Vec::new(), 0, 0);
    for (at, tensor) in tensors.iter().enumerate() {
        let own = bytes(std::slice::from_ref(tensor), kind);
        if at > from && filled + own > most {
            shards.push(&tensors[from..at]);
            (from, filled) = (at, 0);
        }
        filled += own;
    }
    shards.push(&tensors[from..]);
    shards
}

/// Writes tensors into a folder: one file, or shards of at most `most` bytes with their index.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write(folder: &Path, tensors: &[Named], kind: Kind, most: u64) -> Result<()> {
    let shards = split(tensors, kind, most);
    let all = shards.len();
    let name = |at: usize| match all {
        1 => "model.safetensors".to_string(),
        _ => format!("model-{:05}-of-{all:05}.safetensors", at + 1),
    };
    let mut numbers = Numbers::new();
    let mut map = Map::new();
    for (at, shard) in shards.iter().enumerate() {
        write_atomic(&folder.join(name(at)), |file| write_shard(file, shard, kind, &mut numbers))?;
        map.extend(shard.iter().map(|(tensor, _)| (tensor.clone(), name(at).into())));
    }
    if all == 1 {
        return Ok(());
    }
    let index = json!({ "metadata": { "total_size": bytes(tensors, kind) }, "weight_map": map });
    write_atomic(&folder.join("model.safetensors.index.json"), |file| Ok(serde_json::to_writer(file, &index)?))
}

/// Writes the header, which tells where each tensor lies, and the tensors.
fn write_shard(file: &mut impl Write, tensors: &[Named], kind: Kind, numbers: &mut Numbers) -> Result<()> {
    let word = match kind {
        Kind::Half => "F16",
        Kind::BFloat16 => "BF16",
        _ => "F32",
    };
    let mut header = Map::from_iter([("__metadata__".to_string(), json!({ "format": "pt" }))]);
    let mut from = 0;
    for tensor in tensors {
        let to = from + bytes(std::slice::from_ref(tensor), kind);
        let (name, shape) = tensor;
        header.insert(name.clone(), json!({ "dtype": word, "shape": shape, "data_offsets": [from, to] }));
        from = to;
    }
    let mut header = Value::from(header).to_string();
    // Tensors begin at a multiple of eight bytes.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    tensors.iter().try_for_each(|(name, shape)| numbers.write(file, name, shape, kind))
}

/// Standard normal values that are drawn once and repeated, each tensor where the one before it ended. Drawing billions of values
/// would take minutes, and nothing that a rehearsal measures depends on their independence.
struct Numbers {
    drawn: Tensor,
    /// The number of values of `drawn` that are behind the current place.
    at: i64,
}

impl Numbers {
    fn new() -> Numbers {
        tch::manual_seed(SEED);
        Numbers { drawn: Tensor::randn([DRAWN], (Kind::Float, Device::Cpu)), at: 0 }
    }

    /// Writes the values of a tensor.
    fn write(&mut self, file: &mut impl Write, name: &str, shape: &[i64], kind: Kind) -> Result<()> {
        let (scale, around) = spread(name, shape);
        let mut left = count(shape);
        let mut buffer = Vec::new();
        while left > 0 {
            let length = left.min(DRAWN - self.at);
            let part = self.drawn.narrow(0, self.at, length).f_mul_scalar(scale)?.f_add_scalar_(around)?.to_kind(kind);
            buffer.resize(length as usize * kind.elt_size_in_bytes(), 0);
            part.f_copy_data_u8(&mut buffer, length as usize)?;
            file.write_all(&buffer)?;
            left -= length;
            self.at = (self.at + length) % DRAWN;
        }
        Ok(())
    }
}
