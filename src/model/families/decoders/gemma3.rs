//! Gemma 3 for texts: norms of queries and keys, and two bases of rotary positions, of blocks that see all tokens and of those with
//! a window.

use crate::model::families::class::{Class, Layers, Published};
use crate::model::families::decoders::decoder::{Decoder, HeadNorms, Positions, Sizes, Traits, USUAL};
use crate::model::families::decoders::gemma2::{LAYERS, SIZES, traits};
use crate::model::families::decoders::layers::{CLASS, Classes, NAMES, with_head_norms};
use crate::model::families::decoders::views::{View, window};
use crate::model::families::names::{Names, Pair};

const OWN_LAYERS: [Pair; 13] = with_head_norms(LAYERS);

static OWN: Names = Names { layers: &OWN_LAYERS, ..NAMES };

const OWN_CLASS: Class = Class { layers: Layers::Named(&OWN), ..CLASS };

pub static GEMMA3: Decoder = Decoder {
    model_type: "gemma3_text",
    about: "Gemma 3 for texts",
    architecture: "Gemma3ForCausalLM",
    classes: &Classes::beside(OWN_CLASS),
    names: &OWN,
    usual: Sizes { vocabulary: 262_208, context: 131_072, theta: 1e6, ..SIZES },
    tied: true,
    positions: Positions::RotaryOfTwoBases { local: 1e4 },
    keys: &[
        "attention_bias",
        "final_logit_softcapping",
        "hidden_activation",
        "layer_types",
        "query_pre_attn_scalar",
        "rope_local_base_freq",
        "sliding_window",
        "sliding_window_pattern",
    ],
    harmless: &["cache_implementation", "hidden_act", "_sliding_window_pattern"],
    refused: &["attn_logit_softcapping", "use_bidirectional_attention"],
    traits: |values| Ok(Traits { head_norms: HeadNorms::Each, ..traits(values, 256.0, None)? }),
    views: |values, seeing| {
        let pattern = values.integer("sliding_window_pattern", 6)? as usize;
        let views = seeing.listed(values, window(values, Some(4096))?, |block| (block + 1) % pattern != 0)?;
        let turned = |view: View| View { rope: Some(usize::from(view.window.is_some())), ..view };
        Ok(views.into_iter().map(turned).collect())
    },
    published: &[
        Published {
            key: "gemma-3-1b",
            about: "Gemma 3 1B",
            files: &["gemma-3-1b"],
            config: r#"{"model_type": "gemma3_text", "torch_dtype": "bfloat16", "max_position_embeddings": 32768, "hidden_size": 1152,
                "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512,
                "vocab_size": 262144}"#,
        },
        Published {
            key: "gemma-3-270m",
            about: "Gemma 3 270M",
            files: &["gemma-3-270m"],
            config: r#"{"model_type": "gemma3_text", "torch_dtype": "bfloat16", "max_position_embeddings": 32768, "hidden_size": 640,
                "intermediate_size": 2048, "num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1,
                "sliding_window": 512, "vocab_size": 262144}"#,
        },
    ],
    ..USUAL
};
