//! Folders whose weights are quantised already, in the formats that are plain: bitsandbytes in 8 bits and in 4 (`nf4`), GPTQ and AWQ in 4.
//! `quantization_config` names the format; any other is refused by its name. Their codes are kept as they are, in the order of bits that
//! bella's products read, so nothing is rounded anew.
//!
//! Sources: bitsandbytes' `QuantState.from_dict`; AutoGPTQ's `nn_modules/qlinear`, whose files store each zero less one unless
//! `checkpoint_format` is `gptq_v2` (`QuantLinear` of `qlinear_cuda.py`, where a stored 15 means 16); AutoAWQ's
//! `utils/packing_utils.py`, whose files store eight columns of a number of 32 bits in the order 0, 2, 4, 6, 1, 3, 5, 7.
//!
//! Differs: these packages compute scales and zeros in f16, and bella in f32.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use super::unread::Unread;
use super::weights::Place;
use crate::machine::quantised::{Groups, Quantised, Scheme};
use crate::model::values::Values;

/// The key of a config that says how weights are quantised.
pub const KEY: &str = "quantization_config";

/// A format of quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Bitsandbytes,
    /// With what is added to stored zeros, and the number of columns of a group if a file does not name each one's.
    Gptq {
        offset: i64,
        group: Option<i64>,
    },
    Awq {
        group: Option<i64>,
    },
}

impl Format {
    /// Returns the format of the folder of a config; `None` where its weights are plain.
    ///
    /// # Errors
    /// Fails if it is none that bella reads.
    pub fn of(values: &Values) -> Result<Option<Format>> {
        let Some(table) = values.get(KEY) else { return Ok(None) };
        let (own, shown) = (Values::new(&values.path, table.clone()), values.path.display());
        let named = own.text("quant_method").map(str::to_lowercase);
        let method = match (&named, own.is_true("load_in_4bit") || own.is_true("load_in_8bit")) {
            (Some(method), _) => method.as_str(),
            (None, true) => "bitsandbytes",
            (None, false) => bail!(
                "{shown}: {KEY} names no quant_method: bella reads bitsandbytes, gptq and awq; give the publisher's unquantised folder"
            ),
        };
        let format = match method {
            "bitsandbytes" => {
                let kind = own.text("bnb_4bit_quant_type").unwrap_or("fp4");
                ensure!(
                    !own.is_true("load_in_4bit") || kind == "nf4",
                    "{shown}: {KEY}.bnb_4bit_quant_type = \"{kind}\": bella reads nf4: quantise the unquantised folder by \
                     checkpoint.quantize = \"nf4\""
                );
                return Ok(Some(Format::Bitsandbytes));
            }
            "gptq" => {
                let format = own.text("checkpoint_format").unwrap_or("gptq");
                let offset = match format {
                    "gptq" => 1,
                    "gptq_v2" => 0,
                    other => bail!("{shown}: {KEY}.checkpoint_format = \"{other}\": bella reads gptq and gptq_v2"),
                };
                Format::Gptq { offset, group: group_of(&own)? }
            }
            "awq" => {
                let version = own.text("version").unwrap_or("gemm").to_lowercase();
                ensure!(version == "gemm", "{shown}: {KEY}.version = \"{version}\": bella reads gemm of AWQ");
                Format::Awq { group: group_of(&own)? }
            }
            other => bail!(
                "{shown}: {KEY}.quant_method = \"{other}\": bella reads bitsandbytes, gptq and awq; give the publisher's unquantised \
                 folder, which checkpoint.quantize stores in fewer bits"
            ),
        };
        let bits = own.get("bits").or(own.get("w_bit")).and_then(Value::as_i64);
        ensure!(
            bits == Some(4),
            "{shown}: {KEY}.bits = {}: bella reads 4 bits of {method}",
            bits.map_or("absent".to_string(), |bits| bits.to_string())
        );
        Ok(Some(format))
    }

    /// Returns the name of the format, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Format::Bitsandbytes => "bitsandbytes",
            Format::Gptq { .. } => "GPTQ",
            Format::Awq { .. } => "AWQ",
        }
    }

    /// Joins the tensors of each quantised weight to one, which has the name that a plain one would have.
    ///
    /// # Errors
    /// Fails if a tensor of a weight is missing, has another shape or type than the format has, or is left over.
    pub fn joined(self, tensors: Vec<(String, Unread)>) -> Result<Vec<(String, Unread)>> {
        let mut parts = Parts(tensors.into_iter().collect());
        let mut joined = Vec::new();
        for name in parts.0.keys().cloned().collect::<Vec<_>>() {
            if !parts.0.contains_key(&name) {
                continue;
            }
            let own = match self {
                Format::Bitsandbytes => parts.of_bitsandbytes(&name),
                Format::Gptq { .. } | Format::Awq { .. } => parts.of_groups(&name, self),
            };
            joined.extend(own.with_context(|| format!("`{name}`"))?);
        }
        joined.extend(parts.0);
        Ok(joined)
    }
}

/// Returns the tensors of a folder with a config, those of a quantised weight joined to one.
///
/// # Errors
/// Fails if they cannot be read, or if they are quantised and `quantize` wants to do so.
pub fn tensors_of(place: &Place, values: &Values, quantize: Option<Scheme>) -> Result<Vec<(String, Unread)>> {
    let Some(format) = Format::of(values)? else { return place.unread(false) };
    ensure!(
        quantize.is_none(),
        "checkpoint.quantize: the weights of {} are quantised already, by {}: leave it out",
        place.path.display(),
        format.name()
    );
    let joined = format.joined(place.unread(true)?).map_err(|why| {
        anyhow!(
            "{}: {why:#}: download the folder again, or give the unquantised one and checkpoint.quantize",
            place.path.display()
        )
    })?;
    ensure!(
        joined.iter().any(|(_, tensor)| tensor.is_quantised()),
        "{}: {KEY} says that {} has quantised the weights, but {} has plain ones alone: remove the key, and let checkpoint.quantize \
         store them in fewer bits",
        values.path.display(),
        format.name(),
        place.path.display()
    );
    Ok(joined)
}

/// Checks that the weights of a network whose quantised ones are not read are plain.
///
/// # Errors
/// Fails with the name of the method where the config has one.
pub fn expect_plain(values: &Values, model_type: &str) -> Result<()> {
    let Some(table) = values.get(KEY) else { return Ok(()) };
    let method = table.get("quant_method").and_then(Value::as_str).unwrap_or("unnamed");
    bail!(
        "{}: {KEY}.quant_method = \"{method}\": quantised weights are read of language networks, networks that see images and text encoders, and not of \
         model_type {model_type}: give the publisher's unquantised folder, which checkpoint.quantize = \"int8\" or \"nf4\" stores in \
         as many bits",
        values.path.display()
    )
}

/// Returns the number of columns of a group; `None` if all are one.
fn group_of(own: &Values) -> Result<Option<i64>> {
    let size = own.get("group_size").or(own.get("q_group_size")).and_then(Value::as_i64).unwrap_or(128);
    ensure!(size == -1 || size > 0, "{}: {KEY}.group_size = {size}: must be positive, or -1", own.path.display());
    Ok((size > 0).then_some(size))
}

/// Tensors by their names.
struct Parts(BTreeMap<String, Unread>);

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
    fn of_bitsandbytes(&mut self, name: &str) -> Result<Option<(String, Unread)>> {
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
    fn of_groups(&mut self, name: &str, format: Format) -> Result<Option<(String, Unread)>> {
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
            Format::Gptq { offset, group } => (spread(&codes, 0), spread(&zeros, 1) + offset, group),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn of(table: Value) -> Result<Option<Format>> {
        Format::of(&Values::new(Path::new("config.json"), json!({ KEY: table })))
    }

    #[test]
    fn formats_are_known_by_their_config() {
        assert_eq!(Format::of(&Values::new(Path::new("config.json"), json!({}))).unwrap(), None);
        let four = json!({ "quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4" });
        assert_eq!(of(four).unwrap(), Some(Format::Bitsandbytes));
        assert_eq!(of(json!({ "load_in_8bit": true })).unwrap(), Some(Format::Bitsandbytes));
        let gptq = |more: Value| {
            let mut table = json!({ "quant_method": "gptq", "bits": 4, "group_size": -1 });
            table.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            of(table).unwrap()
        };
        assert_eq!(gptq(json!({})), Some(Format::Gptq { offset: 1, group: None }));
        let newer = json!({ "checkpoint_format": "gptq_v2", "group_size": 64 });
        assert_eq!(gptq(newer), Some(Format::Gptq { offset: 0, group: Some(64) }));
        assert_eq!(of(json!({ "quant_method": "awq", "bits": 4 })).unwrap(), Some(Format::Awq { group: Some(128) }));
    }

    #[test]
    fn other_formats_are_refused_by_name() {
        for (table, rule) in [
            (json!({ "bits": 4 }), "names no quant_method"),
            (json!({ "quant_method": "fp8" }), "quant_method = \"fp8\": bella reads bitsandbytes, gptq and awq"),
            (json!({ "quant_method": "hqq", "bits": 4 }), "quant_method = \"hqq\""),
            (json!({ "quant_method": "gptq", "bits": 8 }), "bits = 8: bella reads 4 bits of gptq"),
            (json!({ "quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin" }), "\"marlin\""),
            (json!({ "quant_method": "gptq", "bits": 4, "group_size": 0 }), "group_size = 0"),
            (json!({ "quant_method": "awq", "bits": 4, "version": "gemv" }), "version = \"gemv\""),
            (json!({ "quant_method": "bitsandbytes", "load_in_4bit": true }), "\"fp4\": bella reads nf4"),
        ] {
            let error = of(table).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
    }

    #[test]
    fn plain_weights_are_expected_of_others() {
        let of = |table: Value| expect_plain(&Values::new(Path::new("config.json"), table), "vit");
        assert!(of(json!({})).is_ok() && of(json!({ KEY: null })).is_ok());
        let error =
            of(json!({ KEY: { "quant_method": "bitsandbytes", "load_in_4bit": true } })).unwrap_err().to_string();
        let start = "config.json: quantization_config.quant_method = \"bitsandbytes\": quantised weights are read of";
        assert!(error.starts_with(start) && error.contains("not of model_type vit: give"), "{error}");
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let (bytes, numbers) = (|of: &[u8]| Tensor::from_slice(of), |of: &[f32]| Tensor::from_slice(of));
        let state = |text: &str| ("a.weight.quant_state.bitsandbytes__nf4", bytes(text.as_bytes()));
        let nf4 = |state, beside: &[(&str, Tensor)]| {
            let all = [("a.weight", bytes(&[0x78; 32])), state].into_iter();
            let all = all.chain(beside.iter().map(|(name, tensor)| (*name, tensor.shallow_clone())));
            Format::Bitsandbytes.joined(all.map(|(name, tensor)| (name.to_string(), Unread::of(tensor))).collect())
        };
        let plain = r#"{"blocksize": 64, "shape": [8, 8], "dtype": "float32"}"#;
        let table = ("a.weight.quant_map", numbers(&[0.0; 16]));
        let two = ("a.weight.absmax", numbers(&[1.0; 2]));
        for (found, rule) in [
            (nf4(state("{}"), &[]), "blocksize is 0"),
            (nf4(state(r#"{"blocksize": 64, "shape": [64]}"#), &[]), "shape is [64]"),
            (nf4(state(r#"{"blocksize": 64, "shape": [-8, -8]}"#), &[]), "-8 x -8: must be two positive lengths"),
            (
                nf4(state(r#"{"blocksize": 64, "shape": [4611686018427387904, 4]}"#), &[]),
                "4611686018427387904 x 4: must be two positive lengths",
            ),
            (
                nf4(state(r#"{"blocksize": 64, "shape": [8, 8], "dtype": "int8"}"#), &[]),
                "dtype is int8: must be float16",
            ),
            (nf4(state(plain), &[]), "lack `a.weight.quant_map`"),
            (nf4(state(plain), &[table]), "another one than that of nf4"),
            (nf4(("a.weight.quant_state.bitsandbytes__fp4", bytes(b"{}")), &[two]), "lack `a.weight.quant_state"),
        ] {
            let error = format!("{:#}", found.err().unwrap());
            assert!(error.starts_with("`a.weight`: ") && error.contains(rule), "{error}");
        }
        let words = |shape: &[i64]| Unread::of(Tensor::zeros(shape, (Kind::Int, Device::Cpu)));
        let gptq = |scales: &[i64]| {
            let scales = Unread::of(Tensor::ones(scales, tch::kind::FLOAT_CPU));
            let all = [("a.qweight", words(&[1, 8])), ("a.qzeros", words(&[1, 1])), ("a.scales", scales)];
            let all = all.map(|(name, tensor)| (name.to_string(), tensor)).into();
            Format::Gptq { offset: 1, group: Some(4) }.joined(all)
        };
        let awq = |codes: &[i64], kind: Kind| {
            let scales = Unread::of(Tensor::ones([1, 8], (kind, Device::Cpu)));
            let all = [("a.qweight", words(codes)), ("a.qzeros", words(&[1, 1])), ("a.scales", scales)];
            let found = Format::Awq { group: None }.joined(all.map(|(name, tensor)| (name.to_string(), tensor)).into());
            format!("{:#}", found.err().unwrap())
        };
        assert!(awq(&[0, 1], Kind::Float).contains("have not two axes, or no number"));
        assert!(awq(&[2, 1], Kind::Int).contains("`a.scales` is stored as Int: must be f32, f16 or bf16"));
        let eight = |form: &[u8]| {
            let codes = Tensor::zeros([2, 3], (Kind::Int8, Device::Cpu));
            let all = [("a.weight", codes), ("a.SCB", numbers(&[1.0; 2])), ("a.weight_format", bytes(form))];
            Format::Bitsandbytes.joined(all.map(|(name, tensor)| (name.to_string(), Unread::of(tensor))).into())
        };
        assert!(eight(&[0]).is_ok());
        let nan = [("a.weight", Tensor::zeros([1, 3], (Kind::Int8, Device::Cpu))), ("a.SCB", numbers(&[f32::NAN]))];
        let nan = Format::Bitsandbytes.joined(nan.map(|(name, tensor)| (name.to_string(), Unread::of(tensor))).into());
        let error = format!("{:#}", nan.err().unwrap());
        assert!(error.contains("`a.SCB` has a number that is NaN or infinite"), "{error}");
        let flat = [("a.weight", Tensor::zeros([3], (Kind::Int8, Device::Cpu))), ("a.SCB", numbers(&[1.0]))];
        let flat =
            Format::Bitsandbytes.joined(flat.map(|(name, tensor)| (name.to_string(), Unread::of(tensor))).into());
        let error = format!("{:#}", flat.err().unwrap());
        assert!(error.contains("its codes have the shape [3], and those of a linear layer have two axes"), "{error}");
        for form in [&[1][..], &[0, 0]] {
            assert!(format!("{:#}", eight(form).err().unwrap()).contains("weight_format is another one"));
        }
        let error = format!("{:#}", gptq(&[1, 8]).err().unwrap());
        assert!(error.contains("its columns name groups up to 1, but it has 1"), "{error}");
        let error = format!("{:#}", gptq(&[2, 8]).err().unwrap());
        assert!(error.contains("its codes, scales and zeros do not fit each other"), "{error}");
    }
}
