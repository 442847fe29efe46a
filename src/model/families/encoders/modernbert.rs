//! ModernBERT (Warner et al. 2024, arXiv 2412.13663): rotary positions of two bases, local attention in most blocks, gated MLPs, and norms
//! before attention and MLP, of which the first block has one alone.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::entry::{
    BASE, Biases, Encoder, Numbering, PLAIN, Places, Readout, Shape, Sizes, Spelling, Traits, bare, classifying,
};
use crate::model::families::class::{Class, Outer};
use crate::model::families::names::{EMBEDDING, Names};
use crate::model::values::Values;

static NAMES: Names = Names {
    prefixes: &["model.", ""],
    blocks: "layers.",
    layers: &[
        ("attn_norm", "ln_1"),
        ("attn.Wqkv", "attn.qkv"),
        ("attn.Wo", "attn.proj"),
        ("mlp_norm", "ln_2"),
        ("mlp.Wi", "mlp.gate_fc"),
        ("mlp.Wo", "mlp.proj"),
    ],
    around: &[
        ("embeddings.tok_embeddings", EMBEDDING),
        ("embeddings.norm", "ln_pre"),
        ("final_norm", "ln_post"),
        ("head.dense", "pooler"),
        ("head.norm", "ln_pooler"),
        ("classifier", "head"),
    ],
    turned: &[],
    unread: &[],
};

/// The layer by which a text is read, which lies outside of the network in its class.
static POOLER: [Outer; 1] = [Outer { layer: "pooler", prefix: "", end: "head.dense" }];

static CLASS: Class = Class {
    classifier: Some("classifier"),
    around: &POOLER,
    ..classifying("ModernBertForSequenceClassification", "model.", &NAMES)
};
static BARE: Class = bare("ModernBertModel", &NAMES);

pub static MODERNBERT: Encoder = Encoder {
    model_type: "modernbert",
    about: "ModernBERT",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: Sizes {
        vocabulary: 50_368,
        mlp: 1152,
        blocks: 22,
        positions: 8192,
        kinds: 0,
        padding: 50_283,
        eps: 1e-5,
        ..BASE
    },
    tokenizer: None,
    numbering: Numbering::Columns,
    spelling: Spelling { eps: Some("norm_eps"), activation: "hidden_activation", ..PLAIN },
    keys: &[
        "attention_bias",
        "classifier_activation",
        "classifier_bias",
        "classifier_pooling",
        "global_attn_every_n_layers",
        "global_rope_theta",
        "layer_types",
        "local_attention",
        "local_rope_theta",
        "mlp_bias",
        "norm_bias",
        "rope_parameters",
    ],
    harmless: &[
        "attention_dropout",
        "cls_token_id",
        "decoder_bias",
        "deterministic_flash_attn",
        "embedding_dropout",
        "initializer_cutoff_factor",
        "layer_norm_eps",
        "mlp_dropout",
        "position_embedding_type",
        "reference_compile",
        "repad_logits_with_grad",
        "sparse_pred_ignore_index",
        "sparse_prediction",
    ],
    refused: &["rope_scaling"],
    traits,
    unread: &["decoder."],
    published: &[],
};

fn traits(values: &Values, shape: Shape) -> Result<Traits> {
    let shown = values.path.display();
    let mean = match values.text("classifier_pooling").unwrap_or("cls") {
        "cls" => false,
        "mean" => true,
        word => bail!("{shown}: classifier_pooling = \"{word}\": must be \"cls\" or \"mean\""),
    };
    ensure!(shape.channels % 2 == 0, "{shown}: heads have {} channels: RoPE turns pairs of channels", shape.channels);
    let activation = values.activation_of("classifier_activation", "gelu")?;
    Ok(Traits {
        norms_first: true,
        biases: Biases {
            norms: values.flag("norm_bias", false)?,
            attention: values.flag("attention_bias", false)?,
            mlp: values.flag("mlp_bias", false)?,
            readout: values.flag("classifier_bias", false)?,
        },
        is_fused: true,
        places: Places::Turned {
            bases: [
                base(values, "full_attention", "global_rope_theta", 160_000.0)?,
                base(values, "sliding_attention", "local_rope_theta", 10_000.0)?,
            ],
            local: local(values, shape.blocks)?,
            reach: values.integer("local_attention", 128)? / 2,
        },
        readout: Readout { activation, normed: true, mean },
        ..Traits::plain()
    })
}

/// Returns the base of rotary positions of blocks of a type.
fn base(values: &Values, layers: &str, key: &str, usual: f64) -> Result<f64> {
    let usual = values.number(key, usual)?;
    let both = values.within("rope_parameters");
    both.expect_keys("rotary positions of two bases", &["full_attention", "sliding_attention"])?;
    let table = both.within(layers);
    let word = table.text("rope_type").or(table.text("type")).unwrap_or("default");
    ensure!(
        word == "default",
        "{}: rotary positions: rope_type = \"{word}\" is none that bella computes for ModernBERT; known: default",
        values.path.display()
    );
    table.expect_keys("rotary positions", &["rope_type", "type", "rope_theta"])?;
    table.number("rope_theta", usual)
}

/// Returns for each block whether its attention is local.
fn local(values: &Values, blocks: usize) -> Result<Vec<bool>> {
    let every = values.integer("global_attn_every_n_layers", 3)? as usize;
    let Some(listed) = values.get("layer_types") else {
        return Ok((0..blocks).map(|block| block % every != 0).collect());
    };
    let of = |word: &Value| match word.as_str() {
        Some("sliding_attention") => Some(true),
        Some("full_attention") => Some(false),
        _ => None,
    };
    let all: Vec<Option<bool>> = listed.as_array().into_iter().flatten().map(of).collect();
    let all: Option<Vec<bool>> = all.into_iter().collect();
    match all {
        Some(all) if all.len() == blocks => Ok(all),
        _ => bail!(
            "{}: layer_types: must be a list of {blocks} words, each full_attention or sliding_attention",
            values.path.display()
        ),
    }
}
