//! The classes of transformers that bella computes, with the defaults that apply if a key is absent from a config
//! (transformers 5.23).

use crate::model::vit::parts::Resize;

/// A class of image towers.
pub struct Class {
    pub model_type: &'static str,
    pub heads: i64,
    pub activation: &'static str,
    pub eps: f64,
    pub patch: i64,
    /// The way in which it resizes position embeddings.
    pub resize: Resize,
    /// Whether its classifier reads the features. Those of CLIP and SigLIP read other tokens.
    pub classifies: bool,
}

/// The model types of language networks, which `model/language` reads.
pub const LANGUAGE: [&str; 3] = ["llama", "mistral", "qwen2"];

/// The default of `image_size` in every class, in pixels.
pub const IMAGE_SIZE: i64 = 224;

/// Every known class.
pub const CLASSES: &[Class] = &[
    class("vit", 12, "gelu", 1e-12, 16).classifying(),
    class("deit", 12, "gelu", 1e-12, 16).classifying(),
    class("vit_mae", 12, "gelu", 1e-12, 16),
    class("beit", 12, "gelu", 1e-12, 16).classifying(),
    class("data2vec-vision", 12, "gelu", 1e-12, 16).classifying(),
    class("dinov2", 12, "gelu", 1e-6, 14).classifying(),
    Class { resize: Resize::Antialiased, ..class("dinov2_with_registers", 12, "gelu", 1e-6, 16).classifying() },
    class("dinov3_vit", 6, "gelu", 1e-5, 16),
    class("clip_vision_model", 12, "quick_gelu", 1e-5, 32),
    class("siglip_vision_model", 12, "gelu_pytorch_tanh", 1e-6, 16),
    class("siglip2_vision_model", 12, "gelu_pytorch_tanh", 1e-6, 16),
];

const fn class(model_type: &'static str, heads: i64, activation: &'static str, eps: f64, patch: i64) -> Class {
    Class { model_type, heads, activation, eps, patch, resize: Resize::Plain, classifies: false }
}

impl Class {
    const fn classifying(self) -> Class {
        Class { classifies: true, ..self }
    }
}

/// The model types of configs with two towers, and the class of their image tower.
pub const NESTED: [(&str, &str); 3] =
    [("clip", "clip_vision_model"), ("siglip", "siglip_vision_model"), ("siglip2", "siglip2_vision_model")];
