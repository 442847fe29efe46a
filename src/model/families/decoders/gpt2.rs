//! GPT-2: learned positions, layer norms, and matrices that are stored transposed.

use crate::model::families::class::{Class, Layers, Published};
use crate::model::families::decoders::decoder::{
    Biases, Decoder, Mlp, NormKind, Positions, Sizes, Spelling, Traits, USUAL,
};
use crate::model::families::decoders::layers::{CLASS, CLASSIFIER, Classes};
use crate::model::families::names::{EMBEDDING, Names, OUTPUT};
use crate::model::network::ops::Scoring;

static OWN: Names = Names {
    prefixes: &["transformer.", ""],
    blocks: "h.",
    layers: &[
        ("ln_1", "ln_1"),
        ("attn.c_attn", "attn.qkv"),
        ("attn.c_proj", "attn.proj"),
        ("ln_2", "ln_2"),
        ("mlp.c_fc", "mlp.fc"),
        ("mlp.c_proj", "mlp.proj"),
    ],
    around: &[("wte", EMBEDDING), ("wpe", "position"), ("ln_f", "ln_post"), ("lm_head", OUTPUT), CLASSIFIER],
    turned: &["attn.qkv", "attn.proj", "mlp.fc", "mlp.proj"],
    // Early folders hold the causal mask.
    unread: &[".attn.bias", ".attn.masked_bias"],
};

const OWN_CLASS: Class = Class { prefix: ["transformer.", "transformer."], layers: Layers::Named(&OWN), ..CLASS };

pub static GPT2: Decoder = Decoder {
    model_type: "gpt2",
    about: "GPT-2",
    architecture: "GPT2LMHeadModel",
    classes: &Classes::beside(OWN_CLASS),
    names: &OWN,
    tokenizer: Some("GPT2Tokenizer"),
    spelling: Spelling {
        width: "n_embd",
        mlp: "n_inner",
        blocks: "n_layer",
        heads: "n_head",
        key_heads: None,
        channels: None,
        context: "n_positions",
        eps: "layer_norm_epsilon",
    },
    usual: Sizes {
        vocabulary: 50_257,
        width: 768,
        mlp: None,
        blocks: 12,
        heads: 12,
        context: 1024,
        eps: 1e-5,
        ..USUAL.usual
    },
    tied: true,
    positions: Positions::Learned,
    keys: &["activation_function", "scale_attn_weights"],
    harmless: &[
        "attn_pdrop",
        "embd_pdrop",
        "gradient_checkpointing",
        "n_ctx",
        // Those of GPT.
        "n_special",
        "predict_special_tokens",
        // The type in which scores are computed.
        "reorder_and_upcast_attn",
        "resid_pdrop",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    ],
    refused: &["add_cross_attention", "scale_attn_by_inverse_layer_idx"],
    traits: |values| {
        let scale = (!values.flag("scale_attn_weights", true)?).then_some(1.0);
        Ok(Traits {
            biases: Biases { qkv: true, attention_proj: true, mlp: true },
            norm: NormKind::Layer,
            is_qkv_fused: true,
            mlp: Mlp::Plain,
            scoring: Scoring { scale, cap: None },
            ..Traits::plain(values, "activation_function", "gelu_new")?
        })
    },
    published: &[
        Published {
            key: "gpt2-xl",
            about: "GPT-2 1.5B",
            files: &["gpt2-xl"],
            config: r#"{"model_type": "gpt2", "torch_dtype": "float32", "n_embd": 1600, "n_head": 25, "n_layer": 48}"#,
        },
        Published {
            key: "gpt2",
            about: "GPT-2 124M",
            files: &["gpt2"],
            config: r#"{"model_type": "gpt2", "torch_dtype": "float32"}"#,
        },
    ],
    ..USUAL
};
