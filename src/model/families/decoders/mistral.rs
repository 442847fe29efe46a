//! Mistral.

use crate::model::families::class::Published;
use crate::model::families::decoders::decoder::{Decoder, Sizes, USUAL};
use crate::model::families::decoders::views::windows;

pub static MISTRAL: Decoder = Decoder {
    model_type: "mistral",
    about: "Mistral",
    architecture: "MistralForCausalLM",
    usual: Sizes { mlp: Some(14_336), key_heads: Some(8), context: 131_072, ..USUAL.usual },
    keys: &["sliding_window"],
    // Those of Llama and Qwen, which the class does not read.
    harmless: &["attention_bias", "max_window_layers", "mlp_bias", "use_sliding_window"],
    views: |values, seeing| windows(values, seeing, Some(4096)),
    published: &[Published {
        key: "mistral-7b",
        about: "Mistral 7B",
        files: &["mistral-7b"],
        config: r#"{"model_type": "mistral", "torch_dtype": "bfloat16", "max_position_embeddings": 32768, "rms_norm_eps": 1e-5}"#,
    }],
    ..USUAL
};
