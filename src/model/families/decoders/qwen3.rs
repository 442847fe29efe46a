//! Qwen 3, which normalises queries and keys, each head by itself.

use crate::model::families::class::{Class, Layers, Published};
use crate::model::families::decoders::decoder::{Biases, Decoder, HeadNorms, Sizes, Traits, USUAL};
use crate::model::families::decoders::layers::{BLOCK, CLASS, Classes, NAMES, with_head_norms};
use crate::model::families::decoders::views::late_windows;
use crate::model::families::names::{Names, Pair};

const LAYERS: [Pair; 11] = with_head_norms(BLOCK);

static OWN: Names = Names { layers: &LAYERS, ..NAMES };

const OWN_CLASS: Class = Class { layers: Layers::Named(&OWN), ..CLASS };

pub static QWEN3: Decoder = Decoder {
    model_type: "qwen3",
    about: "Qwen 3",
    architecture: "Qwen3ForCausalLM",
    classes: &Classes::beside(OWN_CLASS),
    names: &OWN,
    tokenizer: Some("Qwen2Tokenizer"),
    usual: Sizes {
        vocabulary: 151_936,
        mlp: Some(22_016),
        key_heads: Some(32),
        channels: Some(128),
        context: 32_768,
        ..USUAL.usual
    },
    keys: &["attention_bias", "layer_types", "max_window_layers", "sliding_window", "use_sliding_window"],
    traits: |values| {
        let all = values.flag("attention_bias", false)?;
        let biases = Biases { qkv: all, attention_proj: all, mlp: false };
        Ok(Traits { biases, head_norms: HeadNorms::Each, ..(USUAL.traits)(values)? })
    },
    views: late_windows,
    published: &[
        Published {
            key: "qwen3-8b",
            about: "Qwen3 8B",
            files: &["qwen3-8b"],
            config: r#"{"model_type": "qwen3", "torch_dtype": "bfloat16", "max_position_embeddings": 40960,
                "intermediate_size": 12288, "num_hidden_layers": 36, "num_key_value_heads": 8, "rope_theta": 1000000.0}"#,
        },
        Published {
            key: "qwen3-0.6b",
            about: "Qwen3 0.6B",
            files: &["qwen3-0.6b"],
            config: r#"{"model_type": "qwen3", "torch_dtype": "bfloat16", "max_position_embeddings": 40960, "hidden_size": 1024,
                "intermediate_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
                "rope_theta": 1000000.0, "tie_word_embeddings": true}"#,
        },
    ],
    ..USUAL
};
