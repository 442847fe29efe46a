//! Gemma 1: scaled embeddings, and norms whose weights are differences from 1.

use anyhow::{Result, ensure};

use crate::model::families::class::Published;
use crate::model::families::decoders::decoder::{Biases, Decoder, NormKind, Sizes, Traits, USUAL};
use crate::model::network::ops::Activation;
use crate::model::values::Values;

pub static GEMMA: Decoder = Decoder {
    model_type: "gemma",
    about: "Gemma 1",
    architecture: "GemmaForCausalLM",
    usual: Sizes {
        vocabulary: 256_000,
        width: 3072,
        mlp: Some(24_576),
        blocks: 28,
        heads: 16,
        key_heads: Some(16),
        channels: Some(256),
        context: 8192,
        ..USUAL.usual
    },
    tied: true,
    keys: &["attention_bias", "hidden_activation"],
    refused: &["use_bidirectional_attention"],
    traits,
    published: &[
        Published {
            key: "gemma-2b",
            about: "Gemma 2B",
            files: &["gemma-2b", "gemma-1.1-2b"],
            config: r#"{"model_type": "gemma", "torch_dtype": "bfloat16", "hidden_size": 2048, "intermediate_size": 16384,
                "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1}"#,
        },
        Published {
            key: "gemma-7b",
            about: "Gemma 7B",
            files: &["gemma-7b", "gemma-1.1-7b"],
            config: r#"{"model_type": "gemma", "torch_dtype": "bfloat16"}"#,
        },
    ],
    ..USUAL
};

fn traits(values: &Values) -> Result<Traits> {
    let all = values.flag("attention_bias", false)?;
    let plain = Traits::plain(values, "hidden_act", "gelu_pytorch_tanh")?;
    // The first folders say `gelu` and mean its approximation by tanh, as the class does.
    let activation = if plain.activation == Activation::Gelu { Activation::GeluTanh } else { plain.activation };
    if let Some(newer) = values.text("hidden_activation") {
        ensure!(
            values.activation_of("hidden_activation", newer)? == activation,
            "{}: hidden_activation = \"{newer}\": transformers 4 computes with it, and 5 with hidden_act, which says something \
             else: let both be the same",
            values.path.display()
        );
    }
    Ok(Traits {
        biases: Biases { qkv: all, attention_proj: all, mlp: false },
        norm: NormKind::RmsAroundOne,
        scales_embeddings: true,
        activation,
        ..plain
    })
}
