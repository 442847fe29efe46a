//! Folders whose weights are quantised already, in the formats that are plain: bitsandbytes in 8 bits and in 4 (`nf4`), GPTQ and AWQ in 4.
//! `quantization_config` names the format; any other is refused by its name. Their codes are kept as they are, in the order of bits that
//! bella's products read, so nothing is rounded anew.
//!
//! Sources: bitsandbytes' `QuantState.from_dict`; GPTQModel's `utils/model.py`, whose files store zeros less one unless `checkpoint_format` is
//! `gptq_v2` (`convert_gptq_v1_to_v2_format_module`, which adds the ones to eight zeros in one number of 32 bits); AutoAWQ's
//! `utils/packing_utils.py`, whose files store eight columns of a number of 32 bits in the order 0, 2, 4, 6, 1, 3, 5, 7.
//!
//! Differs: these packages compute scales and zeros in f16, and bella in f32. AutoGPTQ packs a zero of 0 in such a way that its neighbours are
//! lost, and its programs do not agree on what it means (0 in CUDA, 16 in Python); GPTQModel's reading counts.

mod format;
mod parts;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::unread::Unread;
use super::weights::Place;
use crate::machine::quantised::Scheme;
use crate::model::values::Values;
pub use format::{Format, KEY};
use parts::Parts;

impl Format {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use tch::{Device, Kind, Tensor};

    use super::*;

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

    /// `qzeros -= 0b0001…0001` of GPTQModel f4c327a1 (`utils/model.py`, `convert_gptq_v2_to_v1_format_module`) on the zeros 0, 5, 0, 15, 7, 1, 0, 3:
    /// eight in 0x3017F050. Codes of 0 with the scale 1 are the zeros, negated.
    #[test]
    fn zeros_that_have_borrowed_come_back() {
        let one = |name: &str, tensor: Tensor| (name.to_string(), Unread::of(tensor));
        let stored = 0x3017_F050_i64 - 0x1111_1111;
        let all = vec![
            one("a.qweight", Tensor::zeros([1, 8], (Kind::Int, Device::Cpu))),
            one("a.qzeros", Tensor::from_slice(&[stored as i32]).view([1, 1])),
            one("a.scales", Tensor::ones([1, 8], tch::kind::FLOAT_CPU)),
        ];
        let found = Format::Gptq { offset: 1, group: None }.joined(all).unwrap().remove(0).1.tensor().unwrap();
        let zeros: Vec<f32> = (-found.to_kind(Kind::Float).select(1, 0)).try_into().unwrap();
        assert_eq!(zeros, [0.0, 5.0, 0.0, 15.0, 7.0, 1.0, 0.0, 3.0]);
    }
}
