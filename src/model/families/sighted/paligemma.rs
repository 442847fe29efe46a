//! PaliGemma (Beyer et al. 2024, arXiv 2407.07726) and PaliGemma 2 (Steiner et al. 2024, arXiv 2412.03555): SigLIP's whole tower, a
//! projector of one layer, and Gemma 1 or 2, whose tokens read the image and the question in both directions and the answer in one.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::entry::{Asking, EYES, Reading, Sight, SightedFamily, Start};
use crate::model::families::class::{Class, Layers, Outer, Published};
use crate::model::families::decoders::{CLASS, GEMMA2_NAMES, OUTPUT_LAYER};

/// The layers outside of the blocks.
static AROUND: [Outer; 2] =
    [Outer { layer: "projector.linear", prefix: "model.", end: "multi_modal_projector.linear" }, OUTPUT_LAYER];

/// The class that an exported network on Gemma 1 is loaded in.
static ON_GEMMA: Class = Class {
    name: "PaliGemmaForConditionalGeneration",
    prefix: ["model.language_model.", "model.language_model."],
    around: &AROUND,
    inner: Some(&EYES),
    ..CLASS
};

/// The same on Gemma 2, whose scores are bounded by its plain code alone.
static ON_GEMMA2: Class = Class {
    name: "PaliGemmaForConditionalGeneration",
    prefix: ["model.language_model.", "model.language_model."],
    around: &AROUND,
    inner: Some(&EYES),
    layers: Layers::Named(&GEMMA2_NAMES),
    options: ", attn_implementation=\"eager\"",
    ..CLASS
};

pub static PALIGEMMA: SightedFamily = SightedFamily {
    model_type: "paligemma",
    about: "PaliGemma 1 and 2",
    languages: &[("gemma", &ON_GEMMA), ("gemma2", &ON_GEMMA2)],
    tower: "siglip_vision_model",
    projector: &["projector.linear"],
    image_token: 256_000,
    tied: true,
    table_ties: false,
    reads_prompt_whole: true,
    // The processor of transformers cuts the answer into tokens as the second text of a pair.
    asking: Asking { start: Start::BehindImage, ending: "\n", between: None },
    questions: "resize = \"stretch\" # as in its training, and so is the prompt\nprompt = \"<image>answer en {question}\"\n",
    keys: &["projection_dim"],
    harmless: &["_vocab_size", "hidden_size", "num_hidden_layers"],
    // The processor says which tokens are those of the prompt, and the mask follows it whatever the second key says.
    harmless_in_text: &["num_image_tokens", "use_bidirectional_attention"],
    // What reads SigLIP's tokens as one vector takes no part.
    harmless_in_vision: &[
        "num_image_tokens",
        "num_positions",
        "projection_dim",
        "projector_hidden_act",
        "vision_use_head",
        "vocab_size",
    ],
    sight,
    processor: "Siglip",
    preparation,
    published: PUBLISHED,
};

fn sight(reading: &Reading) -> Result<Sight> {
    let (values, width) = (reading.values, reading.width);
    let projected = values.integer("projection_dim", 2048)?;
    ensure!(
        projected == width,
        "{}: projection_dim = {projected}: must be text_config.hidden_size = {width}, since patches take the place of embeddings",
        values.path.display()
    );
    Ok(Sight { blocks: reading.blocks as usize, keeps_class: true, norm: true, bias: true })
}

/// Returns SigLIP's preparation.
fn preparation(side: i64) -> Value {
    json!({
        "image_processor_type": "SiglipImageProcessor", "do_resize": true, "do_rescale": true, "do_normalize": true,
        "do_convert_rgb": true, "resample": 3, "rescale_factor": 1.0 / 255.0,
        "size": { "height": side, "width": side }, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    })
}

/// The published networks.
static PUBLISHED: &[Published] = &[
    Published {
        key: "paligemma-3b-224",
        about: "PaliGemma 3B, 224 px",
        files: &["paligemma-3b-pt-224", "paligemma-3b-mix-224"],
        config: r#"{"model_type": "paligemma", "torch_dtype": "float32", "projection_dim": 2048, "image_token_index": 257152,
            "text_config": {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8,
                "num_hidden_layers": 18, "num_key_value_heads": 1, "vocab_size": 257216},
            "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
                "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}}"#,
    },
    Published {
        key: "paligemma2-3b-224",
        about: "PaliGemma 2 3B, 224 px",
        files: &["paligemma2-3b-pt-224", "paligemma2-3b-mix-224"],
        config: r#"{"model_type": "paligemma", "torch_dtype": "bfloat16", "projection_dim": 2304, "image_token_index": 257152,
            "text_config": {"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
                "num_hidden_layers": 26, "num_key_value_heads": 4, "vocab_size": 257216},
            "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
                "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}}"#,
    },
];
