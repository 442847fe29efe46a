//! LLaVA, a decoder that sees an image. How the image enters is in `model/llava`.

use crate::model::families::class::{self, Class, Inner, Outer, Published, TOWER};
use crate::model::families::decoders::decoder::{CLASS, OUTPUT_LAYER};

/// The model type of transformers.
pub const MODEL_TYPE: &str = "llava";

/// The layers outside of the blocks.
static AROUND: [Outer; 3] = [
    Outer { layer: "projector.linear_1", prefix: "model.", end: "multi_modal_projector.linear_1" },
    Outer { layer: "projector.linear_2", prefix: "model.", end: "multi_modal_projector.linear_2" },
    OUTPUT_LAYER,
];

/// The image tower.
static SIGHT: Inner = Inner {
    part: "vision.",
    component: class::SIGHT,
    prefix: ["model.vision_tower.vision_model.", "model.vision_tower."],
    styles: TOWER,
};

/// The class that an exported network is loaded in.
pub static LLAVA: Class = Class {
    name: "LlavaForConditionalGeneration",
    prefix: ["model.language_model.", "model.language_model."],
    around: &AROUND,
    inner: Some(&SIGHT),
    ..CLASS
};

/// The published networks.
pub static PUBLISHED: &[Published] = &[
    Published {
        key: "llava-1.5-7b",
        about: "LLaVA-1.5-7B",
        files: &["llava-1.5-7b", "llava-v1.5-7b"],
        config: r#"{"model_type": "llava", "torch_dtype": "float16",
            "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
            "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16,
                "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768}}"#,
    },
    Published {
        key: "llava-1.5-13b",
        about: "LLaVA-1.5-13B",
        files: &["llava-1.5-13b", "llava-v1.5-13b"],
        config: r#"{"model_type": "llava", "torch_dtype": "float16",
            "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                "hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40, "num_hidden_layers": 40},
            "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16,
                "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768}}"#,
    },
];
