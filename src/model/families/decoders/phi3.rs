//! Phi-3, Phi-3.5 and Phi-4-mini: queries, keys and values in one layer, and gate and value of the MLP in another.

use crate::model::families::class::{Class, Layers, Published};
use crate::model::families::decoders::decoder::{Decoder, Mlp, Positions, Sizes, Traits, USUAL};
use crate::model::families::decoders::layers::{BLOCK, CLASS, Classes, NAMES};
use crate::model::families::decoders::views::windows;
use crate::model::families::names::{Names, Pair};

const LAYERS: [Pair; 6] = {
    let [ln_1, _, _, _, proj, ln_2, _, _, down] = BLOCK;
    [ln_1, ("self_attn.qkv_proj", "attn.qkv"), proj, ln_2, ("mlp.gate_up_proj", "mlp.gate_fc"), down]
};

static OWN: Names = Names { layers: &LAYERS, ..NAMES };

const OWN_CLASS: Class = Class { layers: Layers::Named(&OWN), ..CLASS };

pub static PHI3: Decoder = Decoder {
    model_type: "phi3",
    about: "Phi-3, Phi-3.5 and Phi-4",
    architecture: "Phi3ForCausalLM",
    classes: &Classes::beside(OWN_CLASS),
    names: &OWN,
    usual: Sizes { vocabulary: 32_064, width: 3072, mlp: Some(8192), context: 4096, eps: 1e-5, ..USUAL.usual },
    positions: Positions::RotaryInPart,
    keys: &["original_max_position_embeddings", "sliding_window"],
    // Those of the code that the folders bring, which the class does not read.
    harmless: &[
        "attention_bias",
        "embd_pdrop",
        "full_attn_mod",
        "interpolate_factor",
        "lm_head_bias",
        "mlp_bias",
        "resid_pdrop",
    ],
    traits: |values| Ok(Traits { is_qkv_fused: true, mlp: Mlp::GatedInOne, ..(USUAL.traits)(values)? }),
    views: |values, seeing| windows(values, seeing, None),
    published: &[
        Published {
            key: "phi-3-mini-4k",
            about: "Phi-3-mini 4k",
            files: &["phi-3-mini-4k"],
            config: r#"{"model_type": "phi3", "torch_dtype": "bfloat16", "sliding_window": 2047}"#,
        },
        Published {
            key: "phi-4",
            about: "Phi-4",
            // Phi-4-mini is another network of nearly this name.
            files: &[],
            config: r#"{"model_type": "phi3", "torch_dtype": "bfloat16", "max_position_embeddings": 16384,
                "original_max_position_embeddings": 16384, "hidden_size": 5120, "intermediate_size": 17920, "num_attention_heads": 40,
                "num_hidden_layers": 40, "num_key_value_heads": 10, "rope_theta": 250000, "vocab_size": 100352}"#,
        },
    ],
    ..USUAL
};
