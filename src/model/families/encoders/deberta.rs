//! DeBERTa v2 and v3 (He et al. 2021, arXiv 2006.03654 and 2111.09543): scores of contents and of distances, in buckets of which the far ones
//! are wider.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::entry::{
    BASE, BLOCK, Distances, EMBEDDINGS, Encoder, Numbering, PLAIN, Places, Readout, Shape, Sizes, Traits, bare,
    classifying,
};
use crate::model::families::class::{Class, Outer};
use crate::model::families::names::{Names, Pair};
use crate::model::values::Values;

static LAYERS: [Pair; 8] = {
    let [_, _, _, proj, ln_1, fc, mlp_proj, ln_2] = BLOCK;
    let [q, k, v] = [
        ("attention.self.query_proj", "attn.q"),
        ("attention.self.key_proj", "attn.k"),
        ("attention.self.value_proj", "attn.v"),
    ];
    [q, k, v, proj, ln_1, fc, mlp_proj, ln_2]
};

static AROUND: [Pair; 8] = {
    let [words, positions, kinds, norm] = EMBEDDINGS;
    let distances = [("encoder.rel_embeddings", "distance"), ("encoder.LayerNorm", "ln_distance")];
    [words, positions, kinds, norm, distances[0], distances[1], ("pooler.dense", "pooler"), ("classifier", "head")]
};

static NAMES: Names = Names {
    prefixes: &["deberta.", ""],
    blocks: "encoder.layer.",
    layers: &LAYERS,
    around: &AROUND,
    turned: &[],
    unread: &[],
};

/// The layer on the first token, which lies outside of the network in its class.
static POOLER: [Outer; 1] = [Outer { layer: "pooler", prefix: "", end: "pooler.dense" }];

static CLASS: Class = Class {
    classifier: Some("classifier"),
    around: &POOLER,
    ..classifying("DebertaV2ForSequenceClassification", "deberta.", &NAMES)
};
static BARE: Class = bare("DebertaV2Model", &NAMES);

pub static DEBERTA: Encoder = Encoder {
    model_type: "deberta-v2",
    about: "DeBERTa v2 and v3",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: Sizes { vocabulary: 128_100, width: 1536, mlp: 6144, blocks: 24, heads: 24, kinds: 0, eps: 1e-7, ..BASE },
    tokenizer: Some("DebertaV2Tokenizer"),
    numbering: Numbering::Columns,
    spelling: PLAIN,
    keys: &[
        "max_relative_positions",
        "norm_rel_ebd",
        "pooler_hidden_act",
        "pooler_hidden_size",
        "pos_att_type",
        "position_biased_input",
        "position_buckets",
        "relative_attention",
        "share_att_key",
    ],
    harmless: &["cls_dropout", "legacy", "pooler_dropout", "summary_activation", "summary_last_dropout"],
    refused: &["attention_head_size", "conv_act", "conv_kernel_size", "embedding_size"],
    traits,
    unread: &["embeddings.position_ids", "lm_predictions.", "mask_predictions.", "cls.", "lm_head."],
    published: &[],
};

fn traits(values: &Values, shape: Shape) -> Result<Traits> {
    let shown = values.path.display();
    let width = values.integer("hidden_size", DEBERTA.usual.width)?;
    let read = values.integer("pooler_hidden_size", width)?;
    ensure!(read == width, "{shown}: pooler_hidden_size = {read}: bella reads hidden_size = {width}");
    let learned = values.flag("position_biased_input", true)?;
    let kinds = kinds(values)?;
    let places = match values.flag("relative_attention", false)? {
        true => Places::Disentangled { distances: distances(values, shape, &kinds)?, learned },
        false => Places::Learned,
    };
    ensure!(
        kinds.is_empty() || places != Places::Learned,
        "{shown}: pos_att_type = {}: without relative_attention = true, transformers makes scores smaller by its words, and bella does not: set \
         relative_attention = true, or remove them",
        values.get("pos_att_type").unwrap_or(&Value::Null)
    );
    ensure!(
        learned || places != Places::Learned,
        "{shown}: position_biased_input = false: without relative_attention = true, no token knows its place"
    );
    let readout =
        Readout { activation: values.activation_of("pooler_hidden_act", "gelu")?, normed: false, mean: false };
    Ok(Traits { places, readout, ..Traits::plain() })
}

/// Returns the words of what distances are added to.
fn kinds(values: &Values) -> Result<Vec<String>> {
    let shown = values.path.display();
    let kinds: Vec<String> = match values.get("pos_att_type") {
        // An empty text is no word.
        Some(Value::String(kinds)) if kinds.trim().is_empty() => Vec::new(),
        Some(Value::String(kinds)) => kinds.split('|').map(|kind| kind.trim().to_lowercase()).collect(),
        Some(Value::Array(kinds)) => kinds.iter().map(|kind| kind.as_str().unwrap_or_default().to_string()).collect(),
        None => Vec::new(),
        Some(other) => {
            anyhow::bail!("{shown}: pos_att_type = {other}: must be a text such as \"p2c|c2p\" or a list of its words")
        }
    };
    if let Some(other) = kinds.iter().find(|kind| !["c2p", "p2c"].contains(&kind.as_str())) {
        anyhow::bail!("{shown}: pos_att_type has \"{other}\", which bella does not compute; known: c2p, p2c");
    }
    Ok(kinds)
}

/// Reads the distances of these words. Negative numbers mean what absent keys mean.
fn distances(values: &Values, shape: Shape, kinds: &[String]) -> Result<Distances> {
    let shown = values.path.display();
    let positive = |key: &str| match values.get(key).map(Value::as_i64) {
        None => Ok(None),
        Some(Some(number)) if number <= 0 => Ok(None),
        Some(_) => values.integer(key, 1).map(Some),
    };
    ensure!(
        values.flag("share_att_key", false)?,
        "{shown}: share_att_key = false: bella computes networks whose distances go through the layers of queries and keys; known: true"
    );
    let norm = values.text("norm_rel_ebd").unwrap_or("none");
    ensure!(
        ["none", "layer_norm"].contains(&norm),
        "{shown}: norm_rel_ebd = \"{norm}\" is none that bella computes; known: none, layer_norm"
    );
    Ok(Distances {
        buckets: positive("position_buckets")?,
        most: positive("max_relative_positions")?.unwrap_or(shape.positions),
        from_queries: kinds.iter().any(|kind| kind == "c2p"),
        from_keys: kinds.iter().any(|kind| kind == "p2c"),
        normed: norm == "layer_norm",
    })
}
