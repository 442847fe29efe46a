//! SmolLM 3, which has blocks without positions. (SmolLM and SmolLM 2 are of Llama's class.)

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::model::families::class::Published;
use crate::model::families::decoders::decoder::{Biases, Decoder, Sizes, Traits, USUAL};
use crate::model::families::decoders::views::{Seeing, View, window};
use crate::model::values::Values;

pub static SMOLLM3: Decoder = Decoder {
    model_type: "smollm3",
    about: "SmolLM 3",
    architecture: "SmolLM3ForCausalLM",
    usual: Sizes {
        vocabulary: 128_256,
        width: 2048,
        blocks: 36,
        heads: 16,
        key_heads: Some(4),
        context: 32_768,
        theta: 2e6,
        ..USUAL.usual
    },
    tied: true,
    keys: &[
        "attention_bias",
        "layer_types",
        "mlp_bias",
        "no_rope_layer_interval",
        "no_rope_layers",
        "sliding_window",
        "use_sliding_window",
    ],
    harmless: &["max_window_layers"],
    traits: |values| {
        let all = values.flag("attention_bias", false)?;
        let biases = Biases { qkv: all, attention_proj: all, mlp: values.flag("mlp_bias", false)? };
        Ok(Traits { biases, ..(USUAL.traits)(values)? })
    },
    views,
    published: &[Published {
        key: "smollm3-3b",
        about: "SmolLM3 3B",
        files: &["smollm3-3b"],
        config: r#"{"model_type": "smollm3", "torch_dtype": "bfloat16", "max_position_embeddings": 65536, "rope_theta": 5000000.0}"#,
    }],
    ..USUAL
};

/// Blocks without positions are those with 0 in `no_rope_layers`, or every fourth. They have the window, unless `layer_types` says
/// otherwise.
fn views(values: &Values, seeing: Seeing) -> Result<Vec<View>> {
    let turned = turned(values, seeing.blocks)?;
    let window = if values.flag("use_sliding_window", false)? { window(values, None)? } else { None };
    let views = seeing.listed(values, window, |block| !turned[block])?;
    Ok(views.into_iter().zip(&turned).map(|(view, turned)| View { rope: turned.then_some(0), ..view }).collect())
}

/// Returns for each block whether it has positions.
fn turned(values: &Values, blocks: usize) -> Result<Vec<bool>> {
    let Some(listed) = values.get("no_rope_layers") else {
        let interval = values.integer("no_rope_layer_interval", 4)? as usize;
        return Ok((1..=blocks).map(|block| block % interval != 0).collect());
    };
    let listed: Vec<Option<i64>> = listed.as_array().into_iter().flatten().map(Value::as_i64).collect();
    let is_list = listed.len() == blocks && listed.iter().all(|one| matches!(one, Some(0 | 1)));
    ensure!(is_list, "{}: no_rope_layers: must be a list of {blocks} numbers, each 0 or 1", values.path.display());
    Ok(listed.into_iter().map(|one| one == Some(1)).collect())
}
