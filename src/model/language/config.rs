//! The sizes and settings of a language network in `config.json`, with the defaults of its family for absent keys.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::positions::{self, Read, Reading};
use super::rope::Rope;
use crate::model::families::decoders::{Decoder, NormKind, Positions, Seeing, Traits, View, check_types};
use crate::model::families::{HARMLESS_ANYWHERE, REFUSED_OF_TEXTS};
use crate::model::folder::quantised::{self, Format};
use crate::model::network::ops::{Ops, RmsNormed};
use crate::model::values::{Values, is_set};

/// The keys that are read of every family besides those of sizes.
const KEYS: &[&str] = &[
    "architectures",
    "dtype",
    "hidden_act",
    "id2label",
    "layer_types",
    "model_type",
    "num_labels",
    "tie_word_embeddings",
    "torch_dtype",
    "vocab_size",
];

/// The keys that change no logits besides those of every network: those of training and of writing texts.
const HARMLESS: &[&str] = &[
    "attention_dropout",
    "initializer_range",
    "max_sequence_length",
    "pretraining_tp",
    "rope_type",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// The matrix that turns features into the logits of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMatrix {
    Own,
    /// That of the embeddings.
    Embeddings,
    /// There is none: the network classifies, or gives features alone.
    None,
}

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
    /// The rotary positions among which blocks choose.
    pub ropes: Vec<Rope>,
    /// What tokens see in each block.
    pub views: Vec<View>,
    /// The number of learned positions, if there are some.
    pub learned: Option<i64>,
    pub output: OutputMatrix,
    pub traits: Traits,
    pub family: &'static Decoder,
}

/// The heads of attention.
struct Heads {
    heads: i64,
    /// Those of keys and values.
    key_heads: i64,
    /// The number of channels of each.
    channels: i64,
}

impl Heads {
    /// Reads the heads of a network of width `width`, and checks that they divide it.
    fn read(values: &Values, family: &'static Decoder, width: i64) -> Result<Heads> {
        let (usual, keys, shown) = (family.usual, family.spelling, values.path.display());
        let heads = values.integer(keys.heads, usual.heads)?;
        let key_heads = match keys.key_heads {
            Some(key) if values.table().get(key) != Some(&Value::Null) => {
                values.integer(key, usual.key_heads.unwrap_or(heads))?
            }
            _ => heads,
        };
        ensure!(
            heads % key_heads == 0,
            "{shown}: {} = {key_heads}: must divide {} = {heads}",
            keys.key_heads.unwrap_or_default(),
            keys.heads
        );
        let channels = match (keys.channels.filter(|key| values.get(key).is_some()), usual.channels) {
            (Some(key), _) => values.integer(key, 1)?,
            (None, Some(channels)) => channels,
            (None, None) if width % heads == 0 => width / heads,
            (None, None) => bail!("{shown}: {} = {heads}: must divide {} = {width}", keys.heads, keys.width),
        };
        Ok(Heads { heads, key_heads, channels })
    }
}

impl Geometry {
    /// Reads a config.
    ///
    /// # Errors
    /// Fails if a value is malformed, or asks for what bella does not compute.
    pub fn read(values: &Values, family: &'static Decoder) -> Result<Geometry> {
        let shown = values.path.display();
        refuse_others(values, family)?;
        let (usual, keys) = (family.usual, family.spelling);
        let width = values.integer(keys.width, usual.width)?;
        let Heads { heads, key_heads, channels } = Heads::read(values, family, width)?;
        let turns = family.positions != Positions::Learned;
        ensure!(
            !turns || channels % 2 == 0,
            "{shown}: head_dim = {channels}: must be even, since RoPE turns pairs of channels"
        );
        let context = values.integer(keys.context, usual.context)?;
        let learned = (!turns).then_some(context);
        let Read { ropes, context } = Reading { values, family, channels, context }.all()?;
        let blocks = values.integer(keys.blocks, usual.blocks)? as usize;
        let views = (family.views)(values, Seeing { blocks, turns })?;
        check_types(values, &views)?;
        Ok(Geometry {
            vocabulary: values.integer("vocab_size", usual.vocabulary)?,
            width,
            mlp: values.integer(keys.mlp, usual.mlp.unwrap_or(4 * width))?,
            blocks,
            heads,
            key_heads,
            channels,
            context,
            eps: values.number(keys.eps, usual.eps)?,
            ropes,
            views,
            learned,
            output: output_matrix(values, family)?,
            traits: (family.traits)(values)?,
            family,
        })
    }

    /// Normalises `[p, B, T, d]` by a layer.
    pub fn normed<O: Ops>(&self, ops: &O, layer: &str, x: &O::Value) -> O::Value {
        let eps = self.eps;
        match self.traits.norm {
            NormKind::Layer => ops.norm(layer, x, eps),
            NormKind::Rms => ops.rms_norm(RmsNormed { layer, eps, more: 0.0 }, x),
            NormKind::RmsAroundOne => ops.rms_norm(RmsNormed { layer, eps, more: 1.0 }, x),
        }
    }
}

/// Returns the output matrix of the class that has saved a network.
fn output_matrix(values: &Values, family: &Decoder) -> Result<OutputMatrix> {
    let tied = values.flag("tie_word_embeddings", family.tied)?;
    // Such as `MistralModel`, where `GPT2LMHeadModel` has a matrix.
    let is_bare = values.architectures().any(|class| class.ends_with("Model") && !class.contains("Head"));
    Ok(match (values.classifies_texts(), tied) {
        (true, _) => OutputMatrix::None,
        (false, true) => OutputMatrix::Embeddings,
        (false, false) if is_bare => OutputMatrix::None,
        (false, false) => OutputMatrix::Own,
    })
}

/// Refuses settings with which the network computes something else.
fn refuse_others(values: &Values, family: &Decoder) -> Result<()> {
    let how = Format::of(values)?.map(|_| quantised::KEY);
    let Decoder { model_type, refused, .. } = family;
    values.refuse(REFUSED_OF_TEXTS.iter().chain(*refused), is_set, model_type)?;
    let known: Vec<&str> = known_keys(family).into_iter().chain(how).collect();
    values.expect_keys(&format!("a language network of model_type {model_type}"), &known)
}

/// Returns the keys that are read of a family, and those that change nothing.
fn known_keys(family: &Decoder) -> Vec<&'static str> {
    let rotary = if family.positions == Positions::Learned { &[] } else { positions::KEYS };
    let sizes = family.spelling.keys();
    [KEYS, HARMLESS, HARMLESS_ANYWHERE, &sizes, rotary, family.keys, family.harmless].concat()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::model::families::decoders::{Biases, DECODERS, HeadNorms, decoder};
    use crate::model::language::rope::Scaling;
    use crate::model::network::ops::Activation;
    use crate::model::values::testing::{Keys, error, every_key_is_known};

    fn read(model_type: &str, table: Value) -> Result<Geometry> {
        Geometry::read(&Values::new(Path::new("config.json"), table), decoder(model_type).unwrap())
    }

    /// `python3 -c "import transformers as hf; print(hf.LlamaConfig(), hf.MistralConfig(), hf.Qwen2Config(), hf.Qwen3Config())"`
    #[test]
    fn absent_keys_mean_the_defaults_of_the_class() {
        let llama = read("llama", json!({})).unwrap();
        assert_eq!((llama.vocabulary, llama.width, llama.mlp, llama.blocks), (32_000, 4096, 11_008, 32));
        assert_eq!((llama.heads, llama.key_heads, llama.channels, llama.context), (32, 32, 128, 2048));
        let plain = Rope { theta: 1e4, scaling: Scaling::None, channels: 128 };
        assert_eq!((llama.eps, llama.ropes, llama.output), (1e-6, vec![plain], OutputMatrix::Own));
        let mistral = read("mistral", json!({})).unwrap();
        assert_eq!((mistral.key_heads, mistral.mlp, mistral.context), (8, 14_336, 131_072));
        assert!(mistral.views.iter().all(|view| view.window == Some(4096)));
        let qwen = read("qwen2", json!({})).unwrap();
        assert_eq!((qwen.vocabulary, qwen.key_heads, qwen.mlp, qwen.context), (151_936, 32, 22_016, 32_768));
        assert_eq!(qwen.traits.biases, Biases { qkv: true, attention_proj: false, mlp: false });
        let three =
            read("qwen3", json!({ "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": null }))
                .unwrap();
        assert_eq!((three.channels, three.key_heads, three.mlp, three.context), (128, 16, 22_016, 32_768));
        assert_eq!((three.traits.biases, three.traits.head_norms), (Biases::default(), HeadNorms::Each));
        let gemma = read("gemma3_text", json!({ "sliding_window": 512 })).unwrap();
        assert_eq!((gemma.channels, gemma.context, gemma.output), (256, 131_072, OutputMatrix::Embeddings));
        assert_eq!(gemma.ropes.iter().map(|rope| rope.theta).collect::<Vec<_>>(), [1e6, 1e4]);
        let whole = gemma.views.iter().enumerate().filter(|(_, view)| view.window.is_none()).map(|(block, _)| block);
        assert_eq!(whole.collect::<Vec<_>>(), [5, 11, 17, 23]);
        let gpt = read("gpt2", json!({})).unwrap();
        assert_eq!((gpt.mlp, gpt.channels, gpt.learned), (3072, 64, Some(1024)));
        assert_eq!(gpt.output, OutputMatrix::Embeddings);
    }

    /// The fields of the classes in transformers 5.24 (written by scripts/make_language_fixtures.py): each is read, changes nothing, or is
    /// refused where it is set.
    #[test]
    fn every_key_of_every_class_is_known() {
        let keys = |model_type: &str| {
            let family = decoder(model_type).unwrap();
            Keys { known: known_keys(family), refused: [REFUSED_OF_TEXTS, family.refused].concat() }
        };
        let fields = include_str!("../../../tests/fixtures/language/keys.json");
        every_key_is_known((fields, DECODERS.len()), &json!(true), keys, |of, table| error(read(of, table)));
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

    /// The class says what a config alone does not: `transformers.MistralModel` has no output matrix of its own.
    #[test]
    fn the_class_of_a_config_says_whether_there_is_an_output_matrix() {
        let output = |model_type: &str, class: &str, tied: bool| {
            read(model_type, json!({ "architectures": [class], "tie_word_embeddings": tied })).unwrap().output
        };
        assert_eq!(output("mistral", "MistralModel", false), OutputMatrix::None);
        assert_eq!(output("mistral", "MistralModel", true), OutputMatrix::Embeddings);
        assert_eq!(output("mistral", "MistralForCausalLM", false), OutputMatrix::Own);
        assert_eq!(output("llama", "LLaMAForCausalLM", false), OutputMatrix::Own);
        assert_eq!(output("gpt2", "GPT2Model", false), OutputMatrix::None);
        assert_eq!(output("gpt2", "GPT2LMHeadModel", false), OutputMatrix::Own);
    }

    #[test]
    fn windows_are_in_the_blocks_that_the_config_names() {
        let windows = |model_type: &str, table: Value| {
            let geometry = read(model_type, table).unwrap();
            geometry.views.iter().map(|view| view.window).collect::<Vec<_>>()
        };
        let of = |count: i64, table: Value| {
            let mut table = table;
            table["num_hidden_layers"] = json!(count);
            table["sliding_window"] = json!(64);
            table
        };
        assert_eq!(windows("mistral", json!({ "sliding_window": null, "num_hidden_layers": 2 })), [None, None]);
        assert_eq!(windows("mistral", of(2, json!({}))), [Some(64), Some(64)]);
        assert_eq!(windows("qwen2", of(2, json!({ "max_window_layers": 0 }))), [None, None]);
        let asked = json!({ "use_sliding_window": true, "max_window_layers": 1 });
        assert_eq!(windows("qwen2", of(3, asked)), [None, Some(64), Some(64)]);
        let listed = json!({ "use_sliding_window": true, "layer_types": ["sliding_attention", "full_attention"] });
        assert_eq!(windows("qwen3", of(2, listed)), [Some(64), None]);
        assert_eq!(windows("gemma2", of(3, json!({}))), [Some(64), None, Some(64)]);
    }

    /// Configs with all combinations of their keys have the windows that transformers' classes read from them (scripts/make_window_goldens.py).
    #[test]
    fn windows_are_those_of_transformers() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../../../tests/fixtures/windows.json")).unwrap();
        assert_eq!(cases.len(), 54);
        let mut refused = 0;
        for case in cases {
            let geometry = read(case["model_type"].as_str().unwrap(), case["config"].clone());
            let expected: Vec<Option<i64>> = serde_json::from_value(case["windows"].clone()).unwrap();
            let Ok(geometry) = geometry else {
                // Lists that the class does not read, as the other keys call for no window.
                let why = error(geometry);
                assert!(why.contains("layer_types has") && !expected.iter().any(Option::is_some), "{case}: {why}");
                refused += 1;
                continue;
            };
            assert_eq!(geometry.views.iter().map(|view| view.window).collect::<Vec<_>>(), expected, "{case}");
        }
        assert_eq!(refused, 8);
    }

    #[test]
    fn factors_that_follow_the_length_of_a_text_end_the_context() {
        let factors = vec![1.5; 48];
        let table = json!({ "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096,
            "rope_scaling": { "type": "su", "short_factor": factors, "long_factor": factors } });
        let phi = read("phi3", table).unwrap();
        assert_eq!(phi.context, 4096);
        let Scaling::Long { amplitude, .. } = phi.ropes[0].scaling else { panic!("{:?}", phi.ropes[0]) };
        assert!((amplitude - (1.0 + 32f64.ln() / 4096f64.ln()).sqrt()).abs() < 1e-12);
    }

    /// transformers divides by 0 there, and takes whole numbers alone.
    #[test]
    fn a_first_length_of_one_token_is_refused() {
        let of = |first: Value| {
            let factors = vec![1.5; 48];
            let scaling = json!({ "type": "longrope", "short_factor": factors, "long_factor": factors });
            error(read("phi3", json!({ "original_max_position_embeddings": first, "rope_scaling": scaling })))
        };
        assert!(of(json!(1)).contains("original_max_position_embeddings = 1: must be above 1"), "{}", of(json!(1)));
        assert!(of(json!(0.5)).contains("original_max_position_embeddings = 0.5: must be a whole number"));
    }

    #[test]
    fn both_forms_of_rotary_positions_are_read() {
        let old = json!({ "rope_theta": 5e5, "rope_scaling": { "type": "linear", "factor": 2.0 } });
        let new = json!({ "rope_parameters": { "rope_theta": 5e5, "rope_type": "linear", "factor": 2.0 } });
        let expected = Rope { theta: 5e5, scaling: Scaling::Linear { factor: 2.0 }, channels: 128 };
        for table in [old, new] {
            assert_eq!(read("llama", table).unwrap().ropes, std::slice::from_ref(&expected));
        }
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
                .ropes
                .remove(0)
        };
        let own = json!({ "rope_type": "linear", "factor": 4.0, "rope_theta": 3e4 });
        let linear = |theta, factor| Rope { theta, scaling: Scaling::Linear { factor }, channels: 128 };
        assert_eq!(both(own), linear(3e4, 4.0));
        assert_eq!(both(json!({})), linear(5e5, 2.0));
    }

    /// Keys of the published configs of `distilgpt2`, `gpt2-medium` and `gpt2-xl` that no class of transformers 5.24 reads.
    #[test]
    fn keys_of_early_folders_of_gpt_2_change_nothing() {
        let table = json!({ "_num_labels": 1, "n_special": 0, "output_past": true, "predict_special_tokens": true });
        assert_eq!(read("gpt2", table).unwrap().blocks, 12);
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
            (json!({ "rope_scaling": { "rope_type": "proportional", "factor": 4.0 } }), "rope_type = \"proportional\""),
            (json!({ "rope_scaling": { "rope_type": "yarn" } }), "has no `factor`"),
            (
                json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4.0, "low_freq_factor": 1.0 } }),
                "low_freq_factor = 1.0: a key that bella does not know for rotary positions",
            ),
            (json!({ "original_max_position_embeddings": 4096 }), "original_max_position_embeddings = 4096"),
            (json!({ "layer_types": ["full_attention"] }), "layer_types has 1 layers, but the network has 32 blocks"),
            (json!({ "layer_types": vec!["sliding_attention"; 32] }), "but the other keys call for no window"),
            (json!({ "sliding_window_size": 3 }), "sliding_window_size = 3: a key that bella does not know"),
            (json!({ "rope_scaling": { "rope_type": "linear" } }), "has no `factor`"),
            (json!({ "hidden_act": "mish" }), "hidden_act = \"mish\""),
            (json!({ "rope_scaling": "linear" }), "rotary positions: is \"linear\": must be a table"),
            (json!({ "rope_parameters": [2] }), "rotary positions: is [2]: must be a table"),
            (json!({ "rope_scaling": { "rope_type": 5 } }), "rope_type = \"(a value that is no text)\""),
            (json!({ "partial_rotary_factor": 0.5 }), "partial_rotary_factor = 0.5"),
            (
                json!({ "from_the_future": { "a": 1 } }),
                "from_the_future = {\"a\":1}: a key that bella does not know for a language network",
            ),
            (json!({ "quantization_config": { "bits": 4 } }), "unquantised"),
            (json!({ "num_key_value_heads": 5 }), "must divide num_attention_heads"),
            (json!({ "hidden_size": 33 }), "must divide hidden_size"),
        ] {
            let found = error(read("llama", table));
            assert!(found.contains(rule), "{found}");
        }
    }
}
