//! Gemma 2: scaled embeddings, norms around every sublayer, bounded scores and logits, and a window in every other block.

use anyhow::Result;

use crate::model::families::class::{Class, Layers, Published};
use crate::model::families::decoders::decoder::{Biases, Decoder, NormKind, NormPlaces, Sizes, Traits, USUAL};
use crate::model::families::decoders::layers::{self, BLOCK, CLASS, Classes};
use crate::model::families::decoders::views::window;
use crate::model::families::names::{Names, Pair};
use crate::model::network::ops::Scoring;
use crate::model::values::Values;

/// The layers of a block, of which two more norms have names that are others' elsewhere.
pub(super) const LAYERS: [Pair; 11] = {
    let [ln_1, q, k, v, proj, _, gate, fc, down] = BLOCK;
    let after = [("post_attention_layernorm", "ln_1_after"), ("post_feedforward_layernorm", "ln_2_after")];
    [ln_1, q, k, v, proj, after[0], ("pre_feedforward_layernorm", "ln_2"), gate, fc, down, after[1]]
};

pub static NAMES: Names = Names { layers: &LAYERS, ..layers::NAMES };

/// Scores are bounded by its plain code alone.
const OWN_CLASS: Class = Class { layers: Layers::Named(&NAMES), options: ", attn_implementation=\"eager\"", ..CLASS };

/// The sizes of Gemma 2 2B.
pub(super) const SIZES: Sizes = Sizes {
    vocabulary: 256_000,
    width: 2304,
    mlp: Some(9216),
    blocks: 26,
    heads: 8,
    key_heads: Some(4),
    channels: Some(256),
    context: 8192,
    ..USUAL.usual
};

pub static GEMMA2: Decoder = Decoder {
    model_type: "gemma2",
    about: "Gemma 2",
    architecture: "Gemma2ForCausalLM",
    classes: &Classes::beside(OWN_CLASS),
    names: &NAMES,
    usual: SIZES,
    tied: true,
    keys: &[
        "attention_bias",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "hidden_activation",
        "layer_types",
        "query_pre_attn_scalar",
        "sliding_window",
    ],
    // The class reads `hidden_activation` alone, and its cache is of one kind.
    harmless: &["cache_implementation", "hidden_act", "sliding_window_size"],
    refused: &["use_bidirectional_attention"],
    traits: |values| {
        let traits = traits(values, 256.0, Some(30.0))?;
        let cap = values.bound("attn_logit_softcapping", Some(50.0))?;
        Ok(Traits { scoring: Scoring { cap, ..traits.scoring }, ..traits })
    },
    views: |values, seeing| seeing.listed(values, window(values, Some(4096))?, |block| block % 2 == 0),
    published: &[
        Published {
            key: "gemma-2-2b",
            about: "Gemma 2 2B",
            files: &["gemma-2-2b"],
            config: r#"{"model_type": "gemma2", "torch_dtype": "bfloat16"}"#,
        },
        Published {
            key: "gemma-2-9b",
            about: "Gemma 2 9B",
            files: &["gemma-2-9b"],
            config: r#"{"model_type": "gemma2", "torch_dtype": "bfloat16", "hidden_size": 3584, "intermediate_size": 14336,
                "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8}"#,
        },
    ],
    ..USUAL
};

/// Returns the traits that all of Gemma share, with the defaults of what divides scores and of the bound of logits.
pub(super) fn traits(values: &Values, divisor: f64, bound: Option<f64>) -> Result<Traits> {
    let all = values.flag("attention_bias", false)?;
    let scale = values.number("query_pre_attn_scalar", divisor)?.powf(-0.5);
    Ok(Traits {
        biases: Biases { qkv: all, attention_proj: all, mlp: false },
        norm: NormKind::RmsAroundOne,
        norms: NormPlaces::Both,
        scales_embeddings: true,
        scoring: Scoring { scale: Some(scale), cap: None },
        logit_cap: values.bound("final_logit_softcapping", bound)?,
        ..Traits::plain(values, "hidden_activation", "gelu_pytorch_tanh")?
    })
}
