//! Llama 2 and 3, and networks of their form.

use crate::model::families::class::Published;
use crate::model::families::decoders::decoder::{Biases, Decoder, Traits, USUAL};

pub static LLAMA: Decoder = Decoder {
    model_type: "llama",
    about: "Llama 2 and 3, Vicuna, SmolLM 1 and 2",
    architecture: "LlamaForCausalLM",
    keys: &["attention_bias", "mlp_bias"],
    // Those of Mistral and Qwen, which the class does not read.
    harmless: &[
        "is_llama_config",
        "max_window_layers",
        "sliding_window",
        "transformers.js_config",
        "use_sliding_window",
    ],
    traits: |values| {
        let all = values.flag("attention_bias", false)?;
        let biases = Biases { qkv: all, attention_proj: all, mlp: values.flag("mlp_bias", false)? };
        Ok(Traits { biases, ..(USUAL.traits)(values)? })
    },
    published: &[
        Published {
            key: "llama-7b",
            about: "Llama 2 7B",
            files: &["llama-2-7b", "llama-7b", "vicuna-7b"],
            config: r#"{"model_type": "llama", "torch_dtype": "float16", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}"#,
        },
        Published {
            key: "llama-13b",
            about: "Llama 2 13B",
            files: &["llama-2-13b", "llama-13b", "vicuna-13b"],
            config: r#"{"model_type": "llama", "torch_dtype": "float16", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                "hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40, "num_hidden_layers": 40}"#,
        },
        Published {
            key: "llama-3-8b",
            about: "Llama 3 8B",
            files: &["llama-3-8b", "llama-3.1-8b"],
            config: r#"{"model_type": "llama", "torch_dtype": "bfloat16", "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
                "intermediate_size": 14336, "num_key_value_heads": 8, "rope_theta": 500000.0, "vocab_size": 128256}"#,
        },
        Published {
            key: "tinyllama-1.1b",
            about: "TinyLlama 1.1B",
            files: &["tinyllama-1.1b"],
            config: r#"{"model_type": "llama", "torch_dtype": "float32", "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_key_value_heads": 4}"#,
        },
    ],
    ..USUAL
};
