//! Work-arounds for the pitfalls of libtorch: errors of one line, panics turned into errors, deep copies, reads to the
//! host.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};
use tch::{Device, Kind, TchError, Tensor};

/// Returns the type in which pixels, heads and losses are computed beside the compute type `kind`.
pub fn wide(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}

/// Returns c tanh(x / c), which is x near 0 and bounded by c.
pub fn capped(x: &Tensor, cap: f64) -> Tensor {
    (x / cap).tanh() * cap
}

/// Returns whether every entry is 0.
pub fn is_zero(x: &Tensor) -> bool {
    x.count_nonzero(None::<i64>).int64_value(&[]) == 0
}

/// Returns the rows of `all: [N, d]` at which a mask with N entries is not 0; all of them without a mask.
pub fn selected(all: Tensor, mask: Option<&Tensor>) -> Tensor {
    match mask {
        None => all,
        Some(mask) => all.index_select(0, &mask.flatten(0, -1).nonzero().squeeze_dim(1)),
    }
}

/// Returns the first line of a libtorch error; the C++ trace that follows goes to the debug log.
pub fn first_line(error: &TchError) -> String {
    let text = error.to_string();
    tracing::debug!("libtorch: {text}");
    message_line(&text)
}

/// Returns what a failure to read a safetensors file means.
pub fn safetensors_line(error: &TchError) -> String {
    match first_line(error) {
        line if line.contains("MetadataIncompleteBuffer") => {
            "its length is not what its header says: it is cut off, or something stands behind it".into()
        }
        line => line,
    }
}

/// The text that tch puts before a message.
const PREFIX: &str = "Internal torch error:";

/// Returns the line of a libtorch message that tells what happened.
fn message_line(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    // A message that begins with an empty line stands below the prefix.
    if lines.len() > 1 && lines[0] == PREFIX {
        lines.remove(0);
    }
    // A TorchScript failure ends with `RuntimeError: …`; anything else starts with its message.
    let telling = lines.iter().rev().find_map(|l| l.split_once("RuntimeError: ").map(|(_, m)| m));
    telling.or(lines.first().copied()).unwrap_or("unknown libtorch error").to_string()
}

/// Advice printed when training runs out of memory.
pub const ROOM_TO_TRAIN: &str = "set train.recompute = true, or train fewer particles or parameters";

/// The same where recomputation saves nothing, or is set already.
pub const ROOM_WITH_FEWER: &str = "train fewer particles or parameters";

/// Advice printed when predictions run out of memory.
pub const ROOM_TO_PREDICT: &str =
    "lower train.eval_batch_size (--batch-size, where there is one), or set train.particle_chunk";

/// Advice printed when memory runs out and no setting helps.
pub const ROOM_ELSEWHERE: &str = "free memory, or use --device cpu";

/// Returns the bytes of a contiguous tensor on the CPU, where they lie.
///
/// # Panics
/// Panics if the tensor lies elsewhere or is not contiguous.
pub fn bytes(tensor: &Tensor) -> &[u8] {
    assert!(tensor.device() == Device::Cpu && tensor.is_contiguous(), "bytes are read where they lie");
    match tensor.numel() * tensor.kind().elt_size_in_bytes() {
        0 => &[],
        // SAFETY: the tensor is contiguous and on the CPU, and is borrowed for as long as its bytes are.
        length => unsafe { std::slice::from_raw_parts(tensor.data_ptr() as *const u8, length) },
    }
}

/// The error of libtorch running out of memory, with the operation, the message and advice.
#[derive(Debug)]
pub struct OutOfMemory(pub String);

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OutOfMemory {}

/// Returns whether an error of [`guarded`] means that memory ran out.
pub fn is_out_of_memory(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutOfMemory>().is_some()
}

/// Runs tensor code and turns a libtorch panic into an error of one line. If memory ran out, the error ends with the
/// advice `room`.
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

/// Returns the message of a panic as one line.
pub fn panic_line(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
    tracing::debug!("panic: {text}");
    let text = text.replace("\\n", "\n");
    message_line(text.rsplit_once("Torch(\"").map_or(text.as_str(), |(_, inner)| inner))
}

/// Returns whether no number of a tensor is NaN or infinite. The tensor is read once, and nothing of its size is made.
pub fn is_finite(tensor: &Tensor) -> bool {
    if tensor.numel() == 0 || !tensor.is_floating_point() {
        return true;
    }
    let (least, most) = tensor.detach().flatten(0, -1).aminmax(0, false);
    least.double_value(&[]).is_finite() && most.double_value(&[]).is_finite()
}

/// Returns a copy that shares neither storage nor graph.
pub fn snapshot(tensor: &Tensor) -> Tensor {
    tensor.detach().copy()
}

/// Returns a tensor of the host on `device`, without a wait: a GPU copies from page-locked memory while the host goes on.
/// libtorch keeps that memory until the copy is done. An ordinary `to_device` waits for all that was asked of the GPU.
pub fn upload(tensor: &Tensor, device: Device) -> Tensor {
    match device {
        Device::Cuda(_) if tensor.device() == Device::Cpu => {
            tensor.internal_pin_memory(device).to_device_(device, tensor.kind(), true, false)
        }
        _ => tensor.to_device(device),
    }
}

/// Returns all elements as `f64` on the host, row-major. This synchronises with the device, so it must not run inside a
/// step.
pub fn host_f64(tensor: &Tensor) -> Result<Vec<f64>> {
    let flat = tensor.detach().to_device(tch::Device::Cpu).to_kind(Kind::Double).contiguous().view(-1);
    Vec::<f64>::try_from(&flat).map_err(|e| anyhow!("{}", first_line(&e)))
}

/// Returns all elements as `f32` on the host, row-major. This synchronises with the device, so it must not run inside a
/// step.
pub fn host_f32(tensor: &Tensor) -> Result<Vec<f32>> {
    let flat = tensor.detach().to_device(tch::Device::Cpu).to_kind(Kind::Float).contiguous().view(-1);
    Vec::<f32>::try_from(&flat).map_err(|e| anyhow!("{}", first_line(&e)))
}

/// Returns log p(y), `[…, B]`, for `logits: […, B, C]` and `labels: [B]` or `[…, B]`, computed in `kind`.
pub fn label_log_probabilities(logits: &Tensor, labels: &Tensor, kind: Kind) -> Tensor {
    let size = logits.size();
    let index = labels.expand(&size[..size.len() - 1], false).unsqueeze(-1);
    logits.log_softmax(-1, kind).gather(-1, &index, false).squeeze_dim(-1)
}

/// Returns the log of the mean over members of p(y), `[B]`, for `logits: [m, B, C]` and `labels: [B]`, computed in
/// `kind`.
pub fn mixture_log_probabilities(logits: &Tensor, labels: &Tensor, kind: Kind) -> Tensor {
    let members = logits.size()[0] as f64;
    label_log_probabilities(logits, labels, kind).logsumexp([0i64].as_slice(), false) - members.ln()
}

/// Returns the quantiles of all elements at `shares` from 0 to 1. Of more than a million elements, at most a million
/// evenly spaced ones are used.
pub fn quantiles(tensor: &Tensor, shares: &[f64]) -> Result<Vec<f64>> {
    const ENOUGH: i64 = 1_000_000;
    let flat = tensor.detach().reshape([-1]);
    let step = (flat.numel() as i64 + ENOUGH - 1) / ENOUGH;
    let mut values = host_f64(&flat.slice(0, None, None, step.max(1)))?;
    values.sort_by(f64::total_cmp);
    anyhow::ensure!(!values.is_empty(), "quantiles of nothing");
    Ok(shares.iter().map(|share| values[(share * (values.len() - 1) as f64).round() as usize]).collect())
}

/// A range of rows and of columns of tensors `[n, P]`.
pub struct Tile {
    rows: (i64, i64),
    columns: (i64, i64),
}

impl Tile {
    /// Returns a view of this part of `[n, P]`.
    pub fn of(&self, tensor: &Tensor) -> Tensor {
        self.rows_of(tensor).narrow(1, self.columns.0, self.columns.1)
    }

    /// Returns a view of these rows.
    pub fn rows_of(&self, tensor: &Tensor) -> Tensor {
        tensor.narrow(0, self.rows.0, self.rows.1)
    }

    /// Returns a view of this part of `[n, P]`, or of these rows of a column `[n, 1]`.
    pub fn broadcast(&self, tensor: &Tensor) -> Tensor {
        if tensor.size()[1] == 1 { self.rows_of(tensor) } else { self.of(tensor) }
    }
}

/// Returns parts of `[n, P]` for many elementwise operations, one part after the other. On a CPU, a part and its
/// intermediate results stay in the cache. On a GPU, where each operation is a kernel launch, the only part is the
/// whole tensor.
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
    fn the_line_that_tells_what_happened_is_never_empty() {
        assert_eq!(message_line("Internal torch error: \nUnknown type name 'X':\n  File"), "Unknown type name 'X':");
        assert_eq!(message_line("Internal torch error: expected )\nat"), "Internal torch error: expected )");
        assert_eq!(message_line("Internal torch error: "), "Internal torch error:");
        assert_eq!(message_line("Internal torch error: \nTraceback\nRuntimeError: no\n"), "no");
    }

    #[test]
    fn one_number_that_is_not_finite_is_seen() {
        for kind in [Kind::Float, Kind::BFloat16, Kind::Half, Kind::Double] {
            let zeros = || Tensor::zeros([7, 33], (kind, Device::Cpu));
            assert!(is_finite(&zeros()) && is_finite(&zeros().tr()));
            for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let tensor = zeros();
                let _ = tensor.get(6).narrow(0, 32, 1).fill_(odd);
                assert!(!is_finite(&tensor), "{kind:?} {odd}");
            }
        }
        assert!(is_finite(&Tensor::zeros([0, 3], tch::kind::FLOAT_CPU)) && is_finite(&Tensor::from_slice(&[1i64])));
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
