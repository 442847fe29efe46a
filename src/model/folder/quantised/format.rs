//! The formats of quantised weights, as `quantization_config` names them.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

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
        let [in_4, in_8] = ["load_in_4bit", "load_in_8bit"].map(|key| own.flag(key, false));
        let in_4 = in_4?;
        let method = match (&named, in_4 || in_8?) {
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
                    !in_4 || kind == "nf4",
                    "{shown}: {KEY}.bnb_4bit_quant_type = \"{kind}\": bella reads nf4: quantise the unquantised folder by \
                     checkpoint.quantize = \"nf4\""
                );
                return Ok(Some(Format::Bitsandbytes));
            }
            "gptq" => Format::Gptq { offset: offset_of(&own)?, group: group_of(&own)? },
            "awq" => {
                let (key, version) = layout(&own, "version", "gemm");
                ensure!(version == "gemm", "{shown}: {KEY}.{key} = \"{version}\": bella reads gemm of AWQ");
                Format::Awq { group: group_of(&own)? }
            }
            other => bail!(
                "{shown}: {KEY}.quant_method = \"{other}\": bella reads bitsandbytes, gptq and awq; give the publisher's unquantised \
                 folder, which checkpoint.quantize stores in fewer bits"
            ),
        };
        expect_4_bits(&own, method)?;
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
}

/// Returns what is added to the zeros that GPTQ stores.
fn offset_of(own: &Values) -> Result<i64> {
    let (key, format) = layout(own, "checkpoint_format", "gptq");
    match format.as_str() {
        "gptq" => Ok(1),
        "gptq_v2" => Ok(0),
        other => bail!("{}: {KEY}.{key} = \"{other}\": bella reads gptq and gptq_v2", own.path.display()),
    }
}

/// Returns the key and the word of the layout of a method's files: the key of its own package counts before `format`, as in transformers.
fn layout(own: &Values, key: &'static str, usual: &str) -> (&'static str, String) {
    let keys = [key, "format"].into_iter();
    let mut said = keys.filter_map(|key| Some((key, own.text(key)?.to_lowercase())));
    said.next().unwrap_or((key, usual.to_string()))
}

fn expect_4_bits(own: &Values, method: &str) -> Result<()> {
    let bits = own.get("bits").or(own.get("w_bit")).and_then(Value::as_i64);
    ensure!(
        bits == Some(4),
        "{}: {KEY}.bits = {}: bella reads 4 bits of {method}",
        own.path.display(),
        bits.map_or("absent".to_string(), |bits| bits.to_string())
    );
    Ok(())
}

/// Returns the number of columns of a group; `None` if all are one.
fn group_of(own: &Values) -> Result<Option<i64>> {
    let size = own.get("group_size").or(own.get("q_group_size")).and_then(Value::as_i64).unwrap_or(128);
    ensure!(size == -1 || size > 0, "{}: {KEY}.group_size = {size}: must be positive, or -1", own.path.display());
    Ok((size > 0).then_some(size))
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
        // `GPTQConfig` of transformers 5.24 calls the key `format`, and lets `checkpoint_format` count before it.
        assert_eq!(gptq(json!({ "format": "gptq_v2" })), Some(Format::Gptq { offset: 0, group: None }));
        let both = json!({ "format": "gptq_v2", "checkpoint_format": "GPTQ" });
        assert_eq!(gptq(both), Some(Format::Gptq { offset: 1, group: None }));
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
            (json!({ "quant_method": "awq", "bits": 4, "format": "llm-awq" }), "format = \"llm-awq\""),
            (json!({ "quant_method": "bitsandbytes", "load_in_4bit": true }), "\"fp4\": bella reads nf4"),
        ] {
            let error = of(table).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
    }
}
