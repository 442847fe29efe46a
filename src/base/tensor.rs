//! The sharp edges of libtorch, each handled once: errors of one line, panics turned into errors, deep copies, host reads.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};
use tch::{Device, Kind, TchError, Tensor};

/// The type in which pixels, heads and losses are computed beside a compute type.
pub fn wide(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}

/// The first line of a libtorch error; the C++ trace that follows goes to the debug log.
pub fn first_line(error: &TchError) -> String {
    let text = error.to_string();
    tracing::debug!("libtorch: {text}");
    message_line(&text)
}

/// Picks the line that tells what happened out of a libtorch message.
fn message_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    // A TorchScript failure ends with `RuntimeError: …`; anything else starts with its message.
    let telling = lines.iter().rev().find_map(|l| l.split_once("RuntimeError: ").map(|(_, m)| m));
    telling.or(lines.first().copied()).unwrap_or("unknown libtorch error").to_string()
}

/// Advice for training that runs out of memory.
pub const ROOM_TO_TRAIN: &str = "set train.recompute = true, or train fewer particles or parameters";

/// Advice for predictions that run out of memory.
pub const ROOM_TO_PREDICT: &str =
    "lower train.eval_batch_size (--batch-size, where there is one), or set train.particle_chunk";

/// Advice where no setting helps.
pub const ROOM_ELSEWHERE: &str = "free memory, or use --device cpu";

/// libtorch found no memory. What it was doing, its message, and advice.
#[derive(Debug)]
pub struct OutOfMemory(pub String);

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OutOfMemory {}

/// Whether an error of [`guarded`] says that memory ran out.
pub fn is_out_of_memory(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutOfMemory>().is_some()
}

/// Runs tensor code and turns a libtorch panic into an error of one line; where memory has run out, `room` is how to need
/// less.
pub fn guarded<T>(what: &str, room: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let line = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => match error.downcast_ref::<TchError>() {
            Some(torch) => first_line(torch),
            None => return Err(error),
        },
        Err(payload) => panic_line(payload.as_ref()),
    };
    match line.contains("out of memory") || line.contains("can't allocate memory") {
        true => Err(OutOfMemory(format!("{what}: {line}: {room}")).into()),
        false => Err(anyhow!("{what}: {line}")),
    }
}

/// What a panic says, in one line.
pub fn panic_line(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
    tracing::debug!("panic: {text}");
    let text = text.replace("\\n", "\n");
    message_line(text.rsplit_once("Torch(\"").map_or(text.as_str(), |(_, inner)| inner))
}

/// A copy that shares neither storage nor graph.
pub fn snapshot(tensor: &Tensor) -> Tensor {
    tensor.detach().copy()
}

/// All elements as `f64` on the host, row-major. A device synchronisation: never inside a step.
pub fn host_f64(tensor: &Tensor) -> Result<Vec<f64>> {
    let flat = tensor.detach().to_device(tch::Device::Cpu).to_kind(Kind::Double).contiguous().view(-1);
    Vec::<f64>::try_from(&flat).map_err(|e| anyhow!("{}", first_line(&e)))
}

/// All elements as `f32` on the host, row-major. A device synchronisation: never inside a step.
pub fn host_f32(tensor: &Tensor) -> Result<Vec<f32>> {
    let flat = tensor.detach().to_device(tch::Device::Cpu).to_kind(Kind::Float).contiguous().view(-1);
    Vec::<f32>::try_from(&flat).map_err(|e| anyhow!("{}", first_line(&e)))
}

/// log p(y), `[…, B]`, of `logits: [.., B, C]` for `labels: [B]` or `[…, B]`, computed in `kind`.
pub fn label_log_probabilities(logits: &Tensor, labels: &Tensor, kind: Kind) -> Tensor {
    let size = logits.size();
    let index = labels.expand(&size[..size.len() - 1], false).unsqueeze(-1);
    logits.log_softmax(-1, kind).gather(-1, &index, false).squeeze_dim(-1)
}

/// log of the mean over members of p(y), `[B]`, for `logits: [m, B, C]` and `labels: [B]`, computed in `kind`.
pub fn mixture_log_probabilities(logits: &Tensor, labels: &Tensor, kind: Kind) -> Tensor {
    let members = logits.size()[0] as f64;
    label_log_probabilities(logits, labels, kind).logsumexp([0i64].as_slice(), false) - members.ln()
}

/// Quantiles of all elements, each of `shares` from 0 to 1; of a million evenly spaced ones where there are more.
pub fn quantiles(tensor: &Tensor, shares: &[f64]) -> Result<Vec<f64>> {
    const ENOUGH: i64 = 1_000_000;
    let flat = tensor.detach().reshape([-1]);
    let step = (flat.numel() as i64 + ENOUGH - 1) / ENOUGH;
    let mut values = host_f64(&flat.slice(0, None, None, step.max(1)))?;
    values.sort_by(f64::total_cmp);
    anyhow::ensure!(!values.is_empty(), "quantiles of nothing");
    Ok(shares.iter().map(|share| values[(share * (values.len() - 1) as f64).round() as usize]).collect())
}

/// Some rows and columns of tensors `[n, P]`.
pub struct Tile {
    rows: (i64, i64),
    columns: (i64, i64),
}

impl Tile {
    /// A view of this part of `[n, P]`.
    pub fn of(&self, tensor: &Tensor) -> Tensor {
        self.rows_of(tensor).narrow(1, self.columns.0, self.columns.1)
    }

    /// A view of its rows.
    pub fn rows_of(&self, tensor: &Tensor) -> Tensor {
        tensor.narrow(0, self.rows.0, self.rows.1)
    }
}

/// Parts of `[n, P]` to go through one after the other with many elementwise operations. On processors a part and what is
/// computed of it stay in the cache; on a GPU, where each operation is a launch, it is all of the tensor.
pub fn tiles(tensor: &Tensor) -> Vec<Tile> {
    const ELEMENTS: i64 = 1 << 19;
    let (rows, columns) = (tensor.size()[0], tensor.size()[1]);
    if tensor.device() != Device::Cpu {
        return vec![Tile { rows: (0, rows), columns: (0, columns) }];
    }
    let wide = columns.clamp(1, ELEMENTS);
    let high = (ELEMENTS / wide).max(1);
    let cut = |all: i64, most: i64| (0..all).step_by(most as usize).map(move |start| (start, most.min(all - start)));
    cut(rows, high).flat_map(|rows| cut(columns, wide).map(move |columns| Tile { rows, columns })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_number_once() {
        for size in [[3i64, 5], [7, 200_000], [2, 1_200_000], [1, 0]] {
            let counts = Tensor::zeros(size, tch::kind::FLOAT_CPU);
            let tiles = tiles(&counts);
            for tile in &tiles {
                let _ = tile.of(&counts).g_add_scalar_(1.0);
            }
            assert_eq!(counts.sum(Kind::Float).double_value(&[]), (size[0] * size[1]) as f64);
            assert!(counts.numel() == 0 || counts.max().double_value(&[]) == 1.0, "{size:?}");
        }
        assert!(tiles(&Tensor::zeros([7, 200_000], tch::kind::FLOAT_CPU)).len() > 1);
    }

    #[test]
    fn panic_becomes_one_line() {
        let error = guarded("adding", "", || {
            let _ = Tensor::zeros([2, 3], tch::kind::FLOAT_CPU) + Tensor::zeros([4, 5], tch::kind::FLOAT_CPU);
            Ok(())
        })
        .unwrap_err();
        let text = format!("{error}");
        assert!(text.starts_with("adding: The size of tensor a"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
