//! LLaVA-1.5 (Liu et al. 2023, arXiv 2310.03744): CLIP's tower without its last block, a projector of two layers, and Llama.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::entry::{Asking, EYES, Reading, Sight, SightedFamily, Start};
use crate::model::families::class::{Class, Outer, Published};
use crate::model::families::decoders::{CLASS, OUTPUT_LAYER};
use crate::model::values::Values;

/// The layers outside of the blocks.
static AROUND: [Outer; 3] = [
    Outer { layer: "projector.linear_1", prefix: "model.", end: "multi_modal_projector.linear_1" },
    Outer { layer: "projector.linear_2", prefix: "model.", end: "multi_modal_projector.linear_2" },
    OUTPUT_LAYER,
];

/// The class that an exported network is loaded in.
static OWN_CLASS: Class = Class {
    name: "LlavaForConditionalGeneration",
    prefix: ["model.language_model.", "model.language_model."],
    around: &AROUND,
    inner: Some(&EYES),
    ..CLASS
};

pub static LLAVA: SightedFamily = SightedFamily {
    model_type: "llava",
    about: "LLaVA",
    languages: &[("llama", &OWN_CLASS), ("mistral", &OWN_CLASS), ("qwen2", &OWN_CLASS), ("qwen3", &OWN_CLASS)],
    tower: "clip_vision_model",
    projector: &["projector.linear_1", "projector.linear_2"],
    image_token: 32_000,
    tied: false,
    table_ties: true,
    reads_prompt_whole: false,
    asking: Asking { start: Start::Front, ending: "", between: Some(" ") },
    questions: "",
    keys: &[
        "multimodal_projector_bias",
        "projector_hidden_act",
        "vision_feature_layer",
        "vision_feature_select_strategy",
    ],
    harmless: &[],
    harmless_in_text: &[],
    harmless_in_vision: &[],
    sight,
    processor: "Llava",
    preparation,
    published: PUBLISHED,
};

fn sight(reading: &Reading) -> Result<Sight> {
    let values = reading.values;
    let shown = values.path.display();
    let activation = values.text("projector_hidden_act").unwrap_or("gelu");
    ensure!(
        activation == "gelu",
        "{shown}: projector_hidden_act = \"{activation}\" is none that bella computes; known: gelu"
    );
    let keeps_class = match values.text("vision_feature_select_strategy").unwrap_or("default") {
        "default" => false,
        "full" => true,
        word => bail!("{shown}: vision_feature_select_strategy = \"{word}\": must be \"default\" or \"full\""),
    };
    let bias = values.flag("multimodal_projector_bias", true)?;
    Ok(Sight { blocks: blocks(values, reading.blocks)?, keeps_class, norm: false, bias })
}

/// Returns the number of blocks whose output is `vision_feature_layer` among the embeddings and the outputs of all blocks.
fn blocks(values: &Values, all: i64) -> Result<usize> {
    let layer = values.get("vision_feature_layer").map_or(Some(-2), Value::as_i64);
    let place = layer.map(|layer| if layer < 0 { all + 1 + layer } else { layer });
    match place {
        Some(place) if (1..=all).contains(&place) => Ok(place as usize),
        _ => bail!(
            "{}: vision_feature_layer: must be the number of one of {all} blocks, such as -2 for the last but one",
            values.path.display()
        ),
    }
}

/// Returns CLIP's preparation.
fn preparation(side: i64) -> Value {
    json!({
        "image_processor_type": "CLIPImageProcessor", "do_resize": true, "do_center_crop": true, "do_rescale": true,
        "do_normalize": true, "do_convert_rgb": true, "resample": 3, "rescale_factor": 1.0 / 255.0,
        "size": { "shortest_edge": side }, "crop_size": { "height": side, "width": side },
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
    })
}

/// The published networks.
static PUBLISHED: &[Published] = &[
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
