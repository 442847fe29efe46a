//! The sizes and settings of a language network in `config.json`, with the defaults of its family for absent keys.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::rope::{Rope, Scaling};
use crate::model::families::HARMLESS_ANYWHERE;
use crate::model::families::decoders::{Decoder, Traits};
use crate::model::values::Values;
use crate::schema::hint;

/// The keys that are read of every family.
const KEYS: &[&str] = &[
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "tie_word_embeddings",
    "layer_types",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "partial_rotary_factor",
    "torch_dtype",
    "dtype",
];

/// The keys that change no logits besides those of every network: those of training, of writing texts, and of the heads of other
/// classes.
const HARMLESS: &[&str] = &[
    "architectures",
    "attention_dropout",
    "id2label",
    "initializer_range",
    "max_sequence_length",
    "max_window_layers",
    "num_labels",
    "pretraining_tp",
    "rope_type",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// The keys of the table of rotary positions.
const ROPE_KEYS: [&str; 8] = [
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "partial_rotary_factor",
];

/// The sizes and settings of a network.
#[derive(Clone, Debug)]
pub struct Geometry {
    pub vocabulary: i64,
    /// The width of hidden states, d.
    pub width: i64,
    /// The width of the hidden values of an MLP.
    pub mlp: i64,
    pub blocks: usize,
    /// The number of heads of queries.
    pub heads: i64,
    /// The number of heads of keys and values, each of which serves several heads of queries.
    pub key_heads: i64,
    /// The number of channels of a head.
    pub channels: i64,
    /// The most tokens of a text.
    pub context: i64,
    pub eps: f64,
    pub rope: Rope,
    /// Whether the embeddings are also the output matrix.
    pub tied: bool,
    pub traits: Traits,
    pub family: &'static Decoder,
}

impl Geometry {
    /// Reads a config.
    ///
    /// # Errors
    /// Fails if a value is malformed, or asks for what bella does not compute.
    pub fn read(values: &Values, family: &'static Decoder) -> Result<Geometry> {
        let shown = values.path.display();
        refuse_others(values, family)?;
        let usual = family.usual;
        let width = values.integer("hidden_size", usual.width)?;
        let heads = values.integer("num_attention_heads", usual.heads)?;
        let key_heads = match values.table().get("num_key_value_heads") {
            Some(Value::Null) => heads,
            _ => values.integer("num_key_value_heads", usual.key_heads.unwrap_or(heads))?,
        };
        ensure!(
            heads % key_heads == 0,
            "{shown}: num_key_value_heads = {key_heads}: must divide num_attention_heads = {heads}"
        );
        let channels = match (values.get("head_dim"), usual.channels) {
            (Some(_), _) => values.integer("head_dim", 1)?,
            (None, Some(channels)) => channels,
            (None, None) if width % heads == 0 => width / heads,
            (None, None) => bail!("{shown}: num_attention_heads = {heads}: must divide hidden_size = {width}"),
        };
        ensure!(channels % 2 == 0, "{shown}: head_dim = {channels}: must be even, since RoPE turns pairs of channels");
        let traits = (family.traits)(values)?;
        let positions = values.integer("max_position_embeddings", usual.context)?;
        Ok(Geometry {
            vocabulary: values.integer("vocab_size", usual.vocabulary)?,
            width,
            mlp: values.integer("intermediate_size", usual.mlp)?,
            blocks: values.integer("num_hidden_layers", usual.blocks)? as usize,
            heads,
            key_heads,
            channels,
            // A text that fits into the window looks the same with and without it.
            context: traits.window.map_or(positions, |window| window.min(positions)),
            eps: values.number("rms_norm_eps", usual.eps)?,
            rope: rope(values, usual.theta)?,
            tied: values.is_true("tie_word_embeddings"),
            traits,
            family,
        })
    }
}

/// Refuses settings with which the network computes something else.
fn refuse_others(values: &Values, family: &Decoder) -> Result<()> {
    let shown = values.path.display();
    ensure!(
        values.get("quantization_config").is_none(),
        "{shown}: quantization_config: bella reads plain weights only: give the publisher's unquantised folder"
    );
    let layers = values.get("layer_types").and_then(Value::as_array).into_iter().flatten();
    for layer in layers {
        ensure!(
            ["full_attention", "sliding_attention"].iter().any(|known| layer == known),
            "{shown}: layer_types has {layer}, which bella does not compute; known: full_attention, sliding_attention"
        );
    }
    let Decoder { model_type, keys, harmless, .. } = family;
    let known = [KEYS, HARMLESS, HARMLESS_ANYWHERE, keys, harmless].concat();
    values.expect_keys(&format!("a language network of model_type {model_type}"), &known)?;
    whole_heads(values)
}

/// Checks that rotary positions turn all channels of a head.
fn whole_heads(values: &Values) -> Result<()> {
    let partial = values.get("partial_rotary_factor").and_then(Value::as_f64).unwrap_or(1.0);
    ensure!(
        partial == 1.0,
        "{}: partial_rotary_factor = {partial}: bella turns all channels of a head; known: 1",
        values.path.display()
    );
    Ok(())
}

/// Reads rotary positions from `rope_scaling` (transformers 4), which transformers 5 prefers, or else `rope_parameters` (5),
/// and from `rope_theta` where the table has none.
fn rope(values: &Values, usual: f64) -> Result<Rope> {
    let filled = |table: &&Value| table.as_object().is_none_or(|all| !all.is_empty());
    let table = |key: &str| values.get(key).filter(filled).cloned().map(|table| Values::new(&values.path, table));
    let scaling = table("rope_scaling").or(table("rope_parameters"));
    let theta = match &scaling {
        Some(parameters) if parameters.has("rope_theta") => parameters.number("rope_theta", usual)?,
        _ => values.number("rope_theta", usual)?,
    };
    let scaling = match &scaling {
        Some(table) => {
            let read = scaling_of(table).context("rotary positions")?;
            table.expect_keys("rotary positions", &ROPE_KEYS)?;
            whole_heads(table)?;
            read
        }
        None => Scaling::None,
    };
    Ok(Rope { theta, scaling })
}

fn scaling_of(values: &Values) -> Result<Scaling> {
    /// The types of transformers 5.23 that bella computes.
    const KNOWN: [&str; 3] = ["default", "linear", "llama3"];
    let shown = values.path.display();
    let number = |key: &str| {
        ensure!(values.has(key), "{shown}: has no `{key}`, which this rope_type needs");
        values.number(key, 1.0)
    };
    match values.text("rope_type").or(values.text("type")).unwrap_or("default") {
        "default" => Ok(Scaling::None),
        "linear" => Ok(Scaling::Linear { factor: number("factor")? }),
        "llama3" => {
            let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
            ensure!(low < high, "{shown}: low_freq_factor = {low}: must be below high_freq_factor = {high}");
            let original = number("original_max_position_embeddings")?;
            Ok(Scaling::Llama3 { factor: number("factor")?, low, high, original })
        }
        word => bail!(
            "{shown}: rope_type = \"{word}\" is none that bella computes; known: {}{}",
            KNOWN.join(", "),
            hint(word, KNOWN.iter().copied())
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::model::families::decoders::{Biases, decoder};
    use crate::model::network::ops::Activation;

    fn read(model_type: &str, table: Value) -> Result<Geometry> {
        Geometry::read(&Values::new(Path::new("config.json"), table), decoder(model_type).unwrap())
    }

    /// `python3 -c "import transformers as hf; print(hf.LlamaConfig(), hf.MistralConfig(), hf.Qwen2Config(), hf.Qwen3Config())"`
    #[test]
    fn absent_keys_mean_the_defaults_of_the_class() {
        let llama = read("llama", json!({})).unwrap();
        assert_eq!((llama.vocabulary, llama.width, llama.mlp, llama.blocks), (32_000, 4096, 11_008, 32));
        assert_eq!((llama.heads, llama.key_heads, llama.channels, llama.context), (32, 32, 128, 2048));
        assert_eq!((llama.eps, llama.rope, llama.tied), (1e-6, Rope { theta: 1e4, scaling: Scaling::None }, false));
        let mistral = read("mistral", json!({})).unwrap();
        assert_eq!((mistral.key_heads, mistral.mlp, mistral.context), (8, 14_336, 4096));
        let qwen = read("qwen2", json!({})).unwrap();
        assert_eq!((qwen.vocabulary, qwen.key_heads, qwen.mlp, qwen.context), (151_936, 32, 22_016, 32_768));
        assert_eq!(qwen.traits.biases, Biases { qkv: true, attention_proj: false, mlp: false });
        let three =
            read("qwen3", json!({ "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": null }))
                .unwrap();
        assert_eq!((three.channels, three.key_heads, three.mlp, three.context), (128, 16, 22_016, 32_768));
        assert_eq!((three.traits.biases, three.traits.head_norms), (Biases::default(), true));
        assert!([&llama, &mistral, &qwen].iter().all(|other| !other.traits.head_norms));
    }

    #[test]
    fn keys_of_one_family_mean_nothing_to_another() {
        let all = json!({ "attention_bias": true, "mlp_bias": true, "hidden_act": "gelu_pytorch_tanh" });
        let llama = read("llama", all.clone()).unwrap().traits;
        assert_eq!(llama.biases, Biases { qkv: true, attention_proj: true, mlp: true });
        assert_eq!(llama.activation, Activation::GeluTanh);
        assert_eq!(read("mistral", all.clone()).unwrap().traits.biases, Biases::default());
        assert_eq!(read("qwen2", all).unwrap().traits.biases, Biases { qkv: true, ..Biases::default() });
        let three = read("qwen3", json!({ "attention_bias": true })).unwrap().traits.biases;
        assert_eq!(three, Biases { qkv: true, attention_proj: true, mlp: false });
    }

    #[test]
    fn a_window_limits_the_context_where_it_is_on() {
        assert_eq!(read("mistral", json!({ "sliding_window": null })).unwrap().context, 131_072);
        assert_eq!(read("mistral", json!({ "sliding_window": 64 })).unwrap().context, 64);
        assert_eq!(read("qwen2", json!({ "sliding_window": 64 })).unwrap().context, 32_768);
        let both = json!({ "sliding_window": 64, "use_sliding_window": true });
        assert_eq!(read("qwen2", both).unwrap().context, 64);
    }

    #[test]
    fn both_forms_of_rotary_positions_are_read() {
        let old = json!({ "rope_theta": 5e5, "rope_scaling": { "type": "linear", "factor": 2.0 } });
        let new = json!({ "rope_parameters": { "rope_theta": 5e5, "rope_type": "linear", "factor": 2.0 } });
        let expected = Rope { theta: 5e5, scaling: Scaling::Linear { factor: 2.0 } };
        assert_eq!([old, new].map(|table| read("llama", table).unwrap().rope), [expected, expected]);
    }

    /// `python3 -c "import transformers as hf; print(hf.LlamaConfig(rope_parameters=dict(rope_type='linear', factor=2.),
    /// rope_scaling=dict(rope_type='linear', factor=4., rope_theta=3e4), rope_theta=5e5).rope_parameters)"`, and with
    /// `rope_scaling={}`
    #[test]
    fn scaling_beside_parameters_wins_as_in_transformers() {
        let both = |scaling: Value| {
            let parameters = json!({ "rope_type": "linear", "factor": 2.0 });
            read("llama", json!({ "rope_parameters": parameters, "rope_scaling": scaling, "rope_theta": 5e5 }))
                .unwrap()
                .rope
        };
        let own = json!({ "rope_type": "linear", "factor": 4.0, "rope_theta": 3e4 });
        assert_eq!(both(own), Rope { theta: 3e4, scaling: Scaling::Linear { factor: 4.0 } });
        assert_eq!(both(json!({})), Rope { theta: 5e5, scaling: Scaling::Linear { factor: 2.0 } });
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        for (table, rule) in [
            (json!({ "num_hidden_layers": 1_000_000_000 }), "num_hidden_layers = 1000000000: must be at most 4096"),
            (json!({ "hidden_size": 1_000_000_000 }), "hidden_size = 1000000000: must be at most"),
            (json!({ "vocab_size": 10_000_000_000_i64 }), "vocab_size = 10000000000: must be at most"),
            (json!({ "logit_scale": 0.5 }), "logit_scale = 0.5"),
            (json!({ "layer_types": ["linear_attention"] }), "layer_types has \"linear_attention\""),
            (
                json!({ "rope_parameters": { "rope_type": "default", "mrope_section": [1, 2] } }),
                "mrope_section = [1,2]",
            ),
            (json!({ "rope_parameters": { "partial_rotary_factor": 0.5 } }), "partial_rotary_factor = 0.5"),
            (json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4.0 } }), "rope_type = \"yarn\""),
            (json!({ "rope_scaling": { "rope_type": "dynamic", "factor": 4.0 } }), "rope_type = \"dynamic\""),
            (json!({ "rope_scaling": { "rope_type": "linear" } }), "has no `factor`"),
            (json!({ "hidden_act": "relu" }), "hidden_act = \"relu\""),
            (json!({ "partial_rotary_factor": 0.5 }), "partial_rotary_factor = 0.5"),
            (json!({ "quantization_config": { "bits": 4 } }), "unquantised"),
            (json!({ "num_key_value_heads": 5 }), "must divide num_attention_heads"),
            (json!({ "hidden_size": 33 }), "must divide hidden_size"),
        ] {
            let error = format!("{:#}", read("llama", table).unwrap_err());
            assert!(error.contains(rule), "{error}");
        }
    }
}
