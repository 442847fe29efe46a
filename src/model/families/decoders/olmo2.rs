//! OLMo 2: norms behind attention and MLP, and of all queries and all keys together.

use crate::model::families::class::{Class, Layers, Published};
use crate::model::families::decoders::decoder::{Biases, Decoder, HeadNorms, NormPlaces, Sizes, Traits, USUAL};
use crate::model::families::decoders::layers::{BLOCK, CLASS, Classes, HEAD_NORMS, NAMES};
use crate::model::families::names::{Names, Pair};

const LAYERS: [Pair; 11] = {
    let [_, q, k, v, proj, _, gate, fc, down] = BLOCK;
    let [q_norm, k_norm] = HEAD_NORMS;
    let after = [("post_attention_layernorm", "ln_1_after"), ("post_feedforward_layernorm", "ln_2_after")];
    [q, q_norm, k, k_norm, v, proj, after[0], gate, fc, down, after[1]]
};

static OWN: Names = Names { layers: &LAYERS, ..NAMES };

const OWN_CLASS: Class = Class { layers: Layers::Named(&OWN), ..CLASS };

pub static OLMO2: Decoder = Decoder {
    model_type: "olmo2",
    about: "OLMo 2",
    architecture: "Olmo2ForCausalLM",
    classes: &Classes::beside(OWN_CLASS),
    names: &OWN,
    usual: Sizes { vocabulary: 50_304, eps: 1e-5, ..USUAL.usual },
    keys: &["attention_bias"],
    traits: |values| {
        let all = values.flag("attention_bias", false)?;
        let biases = Biases { qkv: all, attention_proj: all, mlp: false };
        Ok(Traits { biases, norms: NormPlaces::After, head_norms: HeadNorms::Together, ..(USUAL.traits)(values)? })
    },
    published: &[
        Published {
            key: "olmo-2-1b",
            about: "OLMo 2 1B",
            files: &["olmo-2-0425-1b"],
            config: r#"{"model_type": "olmo2", "torch_dtype": "float32", "max_position_embeddings": 4096, "hidden_size": 2048,
                "intermediate_size": 8192, "num_attention_heads": 16, "num_hidden_layers": 16, "rms_norm_eps": 1e-6,
                "rope_theta": 500000, "vocab_size": 100352}"#,
        },
        Published {
            key: "olmo-2-7b",
            about: "OLMo 2 7B",
            files: &["olmo-2-1124-7b"],
            config: r#"{"model_type": "olmo2", "torch_dtype": "float32", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
                "rope_theta": 500000, "vocab_size": 100352}"#,
        },
    ],
    ..USUAL
};
