//! ALBERT (Lan et al. 2020, arXiv 1909.11942): BERT's network whose blocks share their weights, with embeddings that are narrower.

use anyhow::ensure;

use super::entry::{
    BASE, EMBEDDING_PROJ, EMBEDDINGS, Encoder, Numbering, PLAIN, Sizes, Traits, bare, classifying, plain,
};
use crate::model::families::class::{Class, Published};
use crate::model::families::names::{Names, Pair};

/// The layers of a group of blocks.
const LAYERS: [Pair; 8] = [
    ("albert_layers.0.attention.query", "attn.q"),
    ("albert_layers.0.attention.key", "attn.k"),
    ("albert_layers.0.attention.value", "attn.v"),
    ("albert_layers.0.attention.dense", "attn.proj"),
    ("albert_layers.0.attention.LayerNorm", "ln_1"),
    ("albert_layers.0.ffn", "mlp.fc"),
    ("albert_layers.0.ffn_output", "mlp.proj"),
    ("albert_layers.0.full_layer_layer_norm", "ln_2"),
];

static AROUND: [Pair; 7] = {
    let [words, positions, kinds, norm] = EMBEDDINGS;
    let projection = ("encoder.embedding_hidden_mapping_in", EMBEDDING_PROJ);
    [words, positions, kinds, norm, projection, ("pooler", "pooler"), ("classifier", "head")]
};

static NAMES: Names = Names {
    prefixes: &["albert.", ""],
    blocks: "encoder.albert_layer_groups.",
    layers: &LAYERS,
    around: &AROUND,
    turned: &[],
    unread: &[],
};

static CLASS: Class =
    Class { classifier: Some("classifier"), ..classifying("AlbertForSequenceClassification", "albert.", &NAMES) };
static BARE: Class = bare("AlbertModel", &NAMES);

pub static ALBERT: Encoder = Encoder {
    model_type: "albert",
    about: "ALBERT",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: Sizes { vocabulary: 30_000, width: 4096, mlp: 16_384, heads: 64, activation: "gelu_new", ..BASE },
    tokenizer: Some("AlbertTokenizer"),
    numbering: Numbering::Columns,
    spelling: PLAIN,
    keys: &["embedding_size", "inner_group_num", "num_hidden_groups", "position_embedding_type"],
    // Keys of the first program of ALBERT, which the class does not read.
    harmless: &["classifier_dropout_prob", "down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"],
    refused: &[],
    traits: |values, shape| {
        let shown = values.path.display();
        let (inner, groups) = (values.integer("inner_group_num", 1)?, values.integer("num_hidden_groups", 1)?);
        ensure!(inner == 1, "{shown}: inner_group_num = {inner}: bella computes groups of one block; known: 1");
        ensure!(
            groups as usize <= shape.blocks,
            "{shown}: num_hidden_groups = {groups}: must not exceed num_hidden_layers = {}",
            shape.blocks
        );
        let embedded = Some(values.integer("embedding_size", 128)?);
        Ok(Traits { embedded, groups: Some(groups as usize), ..plain(values, shape)? })
    },
    unread: &["embeddings.position_ids", "predictions.", "sop_classifier."],
    published: &[Published {
        key: "albert-base",
        about: "ALBERT base",
        files: &["albert-base"],
        config: r#"{"model_type": "albert", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}"#,
    }],
};
