//! The classes in which transformers loads networks that write texts, also those that see images.

use super::class::{self, Class, Inner, Outer, SELF, Style, TOWER, reading, style};

const LLAMA: [Style; 2] = [
    style("layers.", SELF, ["self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]),
    style("layers.", SELF, ["self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]),
];

const OUTPUT: Outer = Outer { layer: "lm_head", prefix: "", end: "lm_head" };

/// The layers of LLaVA outside of the blocks.
static AROUND_LLAVA: [Outer; 3] = [
    Outer { layer: "projector.linear_1", prefix: "model.", end: "multi_modal_projector.linear_1" },
    Outer { layer: "projector.linear_2", prefix: "model.", end: "multi_modal_projector.linear_2" },
    OUTPUT,
];

/// The image tower of LLaVA.
static SIGHT: Inner = Inner {
    part: "vision.",
    component: class::SIGHT,
    prefix: ["model.vision_tower.vision_model.", "model.vision_tower."],
    styles: TOWER,
};

/// Every model type that is exported, with its class.
static CLASSES: [(&str, Class); 4] = [
    ("llama", DECODER),
    ("mistral", DECODER),
    ("qwen2", DECODER),
    (
        "llava",
        Class {
            name: "LlavaForConditionalGeneration",
            prefix: ["model.language_model.", "model.language_model."],
            around: &AROUND_LLAVA,
            inner: Some(&SIGHT),
            ..DECODER
        },
    ),
];

const DECODER: Class = Class {
    prefix: ["model.", "model."],
    around: std::slice::from_ref(&OUTPUT),
    writes: true,
    ..reading("AutoModelForCausalLM", "hidden_states[-1]", LLAMA)
};

/// Returns the class of a model type.
pub(super) fn class(model_type: &str) -> Option<&'static Class> {
    CLASSES.iter().find(|(known, _)| *known == model_type).map(|(_, class)| class)
}

/// Returns the model types that have a class.
pub(super) fn model_types() -> impl Iterator<Item = &'static str> {
    CLASSES.iter().map(|(model_type, _)| *model_type)
}
