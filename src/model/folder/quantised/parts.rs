//! The tensors of a quantised weight, joined to one: the codes of bitsandbytes as they are, those of GPTQ and AWQ in another order of
//! bits.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use super::format::Format;
use crate::machine::quantised::{Groups, Quantised};
use crate::model::folder::Unread;

/// Tensors by their names.
pub struct Parts(pub BTreeMap<String, Unread>);

impl Parts {
    fn take(&mut self, name: &str) -> Result<Tensor> {
        self.0.remove(name).with_context(|| format!("the weights lack `{name}`"))?.tensor()
    }

    fn take_kind(&mut self, name: &str, kind: Kind) -> Result<Tensor> {
        let found = self.take(name)?;
        ensure!(found.kind() == kind, "`{name}` is stored as {:?}, and the format has {kind:?}", found.kind());
        Ok(found)
    }

    /// Takes the scales of a weight, in f32.
    fn take_scales(&mut self, name: &str) -> Result<Tensor> {
        let scales = self.take(name)?;
        ensure!(
            [Kind::Half, Kind::BFloat16, Kind::Float].contains(&scales.kind()),
            "`{name}` is stored as {:?}: must be f32, f16 or bf16",
            scales.kind()
        );
        finite(name, scales.to_kind(Kind::Float))
    }

    /// Returns the weight that begins with the tensor `name`, in 8 or 4 bits; `None` for a plain tensor.
    pub fn of_bitsandbytes(&mut self, name: &str) -> Result<Option<(String, Unread)>> {
        let Some(layer) = name.strip_suffix(".weight") else { return Ok(None) };
        match self.0[name].kind {
            Kind::Int8 => {
                let (scales, form) =
                    (self.take_scales(&format!("{layer}.SCB"))?, self.0.remove(&format!("{layer}.weight_format")));
                let form = form.map(Unread::tensor).transpose()?;
                let is_plain = form.is_none_or(|form| form.numel() == 1 && form.eq(0).all().int64_value(&[]) == 1);
                ensure!(is_plain, "its weight_format is another one than that of rows as they are, 0");
                let codes = self.take(name)?;
                let quantised = Quantised::int8(codes, &scales, Kind::Half)?;
                Ok(Some((name.to_string(), Unread::of_quantised(quantised))))
            }
            Kind::Uint8 => {
                let quantised = self.nf4(name)?;
                Ok(Some((name.to_string(), Unread::of_quantised(quantised))))
            }
            _ => Ok(None),
        }
    }

    fn nf4(&mut self, name: &str) -> Result<Quantised> {
        let state = self.take_kind(&format!("{name}.quant_state.bitsandbytes__nf4"), Kind::Uint8)?;
        let text = Vec::<u8>::try_from(&state.reshape([-1]))?;
        let state: Value = serde_json::from_slice(&text).context("its quant_state is no JSON")?;
        let number = |key: &str| state.get(key).and_then(Value::as_i64);
        ensure!(
            number("blocksize") == Some(64),
            "its blocksize is {}, and bella reads 64",
            number("blocksize").unwrap_or_default()
        );
        let shape: Vec<i64> =
            state.get("shape").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_i64).collect();
        let [outputs, inputs] = shape[..] else {
            bail!("its shape is {shape:?}, and that of a linear layer has two axes")
        };
        ensure!(
            outputs > 0 && inputs > 0 && outputs.checked_mul(inputs).is_some(),
            "its shape is {outputs} x {inputs}: must be two positive lengths"
        );
        let kind = match state.get("dtype").and_then(Value::as_str) {
            Some("float16") => Kind::Half,
            Some("bfloat16") => Kind::BFloat16,
            Some("float32") => Kind::Float,
            other => bail!("its dtype is {}: must be float16, bfloat16 or float32", other.unwrap_or("missing")),
        };
        let table = self.take_kind(&format!("{name}.quant_map"), Kind::Float)?;
        expect_table(&table)?;
        let scales = format!("{name}.absmax");
        let largest = match self.0.get(&scales).is_some_and(|stored| stored.kind == Kind::Uint8) {
            true => {
                let codes = self.take(&scales)?.reshape([-1]);
                finite(&format!("{name}.nested_absmax"), self.nested(name, &codes, &state)?)?
            }
            false => self.take_scales(&scales)?.reshape([-1]),
        };
        Quantised::nf4(&self.take(name)?, largest, [outputs, inputs], kind)
    }

    /// Returns the largest values of blocks, which are quantised themselves: those of a table, times the largest of each 256 of them,
    /// plus an offset.
    fn nested(&mut self, name: &str, codes: &Tensor, state: &Value) -> Result<Tensor> {
        let table = self.take_kind(&format!("{name}.nested_quant_map"), Kind::Float)?.reshape([-1]);
        let scales = self.take_kind(&format!("{name}.nested_absmax"), Kind::Float)?.reshape([-1]);
        let block = state.get("nested_blocksize").and_then(Value::as_i64).unwrap_or_default();
        let offset = state.get("nested_offset").and_then(Value::as_f64).context("its nested_offset is no number")?;
        let count = codes.size()[0];
        ensure!(
            block > 0 && count > 0 && table.size() == [256] && scales.size() == [(count - 1) / block + 1],
            "its nested scales do not fit its nested_blocksize of {block}"
        );
        let own = Tensor::arange(count, (Kind::Int64, Device::Cpu)).divide_scalar_mode(block, "floor");
        Ok(table.index_select(0, &codes.to_kind(Kind::Int64)) * scales.index_select(0, &own) + offset)
    }

    /// Returns the weight whose codes are the tensor `name`; `None` for another tensor.
    pub fn of_groups(&mut self, name: &str, format: Format) -> Result<Option<(String, Unread)>> {
        let Some(layer) = name.strip_suffix(".qweight") else { return Ok(None) };
        let codes = self.take_kind(name, Kind::Int)?;
        let zeros = self.take_kind(&format!("{layer}.qzeros"), Kind::Int)?;
        let stored = self.0.get(&format!("{layer}.scales")).map_or(Kind::Half, |scales| scales.kind);
        let scales = self.take_scales(&format!("{layer}.scales"))?;
        let named = self.0.remove(&format!("{layer}.g_idx")).map(Unread::tensor).transpose()?;
        ensure!(
            codes.dim() == 2 && zeros.dim() == 2 && scales.dim() == 2 && codes.numel() > 0 && zeros.numel() > 0,
            "its tensors have not two axes, or no number"
        );
        let (codes, zeros, group) = match format {
            // The package takes 1 from each eight zeros in one number of 32 bits, which a zero of 0 borrows from the next one.
            Format::Gptq { offset, group } => (spread(&codes, 0), spread(&(zeros + offset * EIGHT_ONES), 1), group),
            Format::Awq { group } => (in_order(&spread(&codes, 1)), in_order(&spread(&zeros, 1)), group),
            Format::Bitsandbytes => bail!("bitsandbytes has no groups"),
        };
        let inputs = codes.size()[0];
        ensure!(inputs % 2 == 0, "it has {inputs} inputs, an odd number");
        let group = match named {
            Some(named) => named.to_kind(Kind::Int).reshape([-1]),
            None => {
                let all = Tensor::arange(inputs, (Kind::Int, Device::Cpu));
                group.map_or_else(|| all.zeros_like(), |size| all.divide_scalar_mode(size, "floor").to_kind(Kind::Int))
            }
        };
        let codes = codes.to_kind(Kind::Uint8).tr();
        let halves = |from: i64| codes.slice(1, from, None, 2);
        let packed = (halves(0) * 16 + halves(1)).contiguous();
        let wide = |tensor: &Tensor| tensor.to_kind(Kind::Float).tr().contiguous();
        let (scales, zeros) = (wide(&scales), wide(&zeros));
        let quantised = Quantised::groups(Groups { codes: packed, scales, zeros, group }, stored)?;
        Ok(Some((format!("{layer}.weight"), Unread::of_quantised(quantised))))
    }
}

/// Returns scales that are numbers.
fn finite(name: &str, scales: Tensor) -> Result<Tensor> {
    ensure!(scales.isfinite().all().int64_value(&[]) == 1, "`{name}` has a number that is NaN or infinite");
    Ok(scales)
}

/// The number of 32 bits that holds eight ones of 4 bits.
const EIGHT_ONES: i64 = 0x1111_1111;

/// Returns the eight numbers of 4 bits in each number of 32, lowest bits first, along an axis.
fn spread(packed: &Tensor, axis: i64) -> Tensor {
    let (rows, columns) = (packed.size()[0], packed.size()[1]);
    let shifts = Tensor::arange_start_step(0, 32, 4, (Kind::Int, Device::Cpu));
    let (shape, size) = if axis == 0 { ([1, 8, 1], [8 * rows, columns]) } else { ([1, 1, 8], [rows, 8 * columns]) };
    let apart = packed.unsqueeze(axis + 1).bitwise_right_shift(&shifts.view(shape));
    apart.bitwise_and(15).reshape(size)
}

/// Returns columns in their order, of which AWQ stores each eight as 0, 2, 4, 6, 1, 3, 5, 7.
fn in_order(columns: &Tensor) -> Tensor {
    const PLACES: [i64; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
    let (rows, count) = (columns.size()[0], columns.size()[1]);
    columns.view([rows, -1, 8]).index_select(2, &Tensor::from_slice(&PLACES)).view([rows, count])
}

/// Checks that the table of a weight is that of `nf4`.
fn expect_table(table: &Tensor) -> Result<()> {
    let largest = Tensor::ones([1], (Kind::Float, Device::Cpu));
    let codes: Vec<u8> = (0..8).map(|pair| (2 * pair) << 4 | (2 * pair + 1)).collect();
    let known = Quantised::nf4(&Tensor::from_slice(&codes), largest, [1, 16], Kind::Float)?.numbers();
    let fits = table.numel() == 16 && (table.reshape([1, 16]) - known).abs().max().double_value(&[]) < 1e-6;
    ensure!(fits, "its quant_map is another one than that of nf4");
    Ok(())
}
