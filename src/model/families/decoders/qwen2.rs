//! Qwen 2 and 2.5, whose queries, keys and values always have biases.

use crate::model::families::class::Published;
use crate::model::families::decoders::decoder::{Biases, Decoder, Sizes, Traits, USUAL};
use crate::model::families::decoders::views::late_windows;

pub static QWEN2: Decoder = Decoder {
    model_type: "qwen2",
    about: "Qwen 2 and 2.5",
    architecture: "Qwen2ForCausalLM",
    tokenizer: Some("Qwen2Tokenizer"),
    usual: Sizes { vocabulary: 151_936, mlp: Some(22_016), key_heads: Some(32), context: 32_768, ..USUAL.usual },
    keys: &["layer_types", "max_window_layers", "sliding_window", "use_sliding_window"],
    // Those of Llama, which the class does not read.
    harmless: &["attention_bias", "mlp_bias"],
    traits: |values| {
        let biases = Biases { qkv: true, ..Biases::default() };
        Ok(Traits { biases, ..(USUAL.traits)(values)? })
    },
    views: late_windows,
    published: &[Published {
        key: "qwen2.5-7b",
        about: "Qwen2.5 7B",
        files: &["qwen2.5-7b"],
        config: r#"{"model_type": "qwen2", "torch_dtype": "bfloat16", "max_position_embeddings": 131072, "hidden_size": 3584,
            "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "rope_theta": 1000000.0, "vocab_size": 152064}"#,
    }],
    ..USUAL
};
