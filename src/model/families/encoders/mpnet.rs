//! MPNet (Song et al. 2020, arXiv 2004.09297): RoBERTa's network with a learnt number for each head and bucket of distances.

use anyhow::{Result, ensure};

use super::entry::{
    BASE, BLOCK, CLASSIFIER_DENSE, EMBEDDINGS, Encoder, Numbering, PLAIN, Places, RELATIVE, Shape, Sizes, Traits, bare,
    classifying,
};
use crate::model::families::class::{Class, Published};
use crate::model::families::names::{Names, Pair};
use crate::model::values::Values;

static LAYERS: [Pair; 8] = {
    let [_, _, _, _, _, fc, mlp_proj, ln_2] = BLOCK;
    let [q, k, v] = [("attention.attn.q", "attn.q"), ("attention.attn.k", "attn.k"), ("attention.attn.v", "attn.v")];
    [q, k, v, ("attention.attn.o", "attn.proj"), ("attention.LayerNorm", "ln_1"), fc, mlp_proj, ln_2]
};

static AROUND: [Pair; 6] = {
    let [words, positions, _, norm] = EMBEDDINGS;
    let table = ("encoder.relative_attention_bias", RELATIVE);
    [words, positions, norm, table, ("classifier.dense", "pooler"), ("classifier.out_proj", "head")]
};

static NAMES: Names = Names {
    prefixes: &["mpnet.", ""],
    blocks: "encoder.layer.",
    layers: &LAYERS,
    around: &AROUND,
    turned: &[],
    unread: &[],
};

static CLASS: Class = Class {
    classifier: Some("classifier.out_proj"),
    around: &CLASSIFIER_DENSE,
    ..classifying("MPNetForSequenceClassification", "mpnet.", &NAMES)
};
static BARE: Class = bare("MPNetModel", &NAMES);

/// The token behind which the class counts positions, whatever its config says of padding.
const PADDING: i64 = 1;

/// The buckets that the class computes, however many rows its table has.
const BUCKETS: i64 = 32;

pub static MPNET: Encoder = Encoder {
    model_type: "mpnet",
    about: "MPNet",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: Sizes { vocabulary: 30_527, kinds: 0, padding: PADDING, ..BASE },
    tokenizer: Some("MPNetTokenizer"),
    numbering: Numbering::BehindPadding,
    spelling: PLAIN,
    keys: &["relative_attention_num_buckets"],
    harmless: &[],
    refused: &[],
    traits,
    unread: &["embeddings.position_ids", "lm_head.", "pooler."],
    published: &[Published {
        key: "mpnet-base",
        about: "MPNet base",
        files: &["mpnet-base"],
        config: r#"{"model_type": "mpnet", "max_position_embeddings": 514, "layer_norm_eps": 1e-5}"#,
    }],
};

fn traits(values: &Values, _: Shape) -> Result<Traits> {
    let shown = values.path.display();
    let padding = values.count("pad_token_id", PADDING)?;
    ensure!(
        padding == PADDING,
        "{shown}: pad_token_id = {padding}: transformers counts the positions of MPNet behind the token {PADDING}: set \
         pad_token_id = {PADDING}, and give a tokenizer that pads with it"
    );
    let rows = values.integer("relative_attention_num_buckets", BUCKETS)?;
    ensure!(
        rows >= BUCKETS,
        "{shown}: relative_attention_num_buckets = {rows}: transformers reads {BUCKETS} rows of that table, however many there are: \
         it must be at least {BUCKETS}"
    );
    Ok(Traits { places: Places::Relative { rows, buckets: BUCKETS, most: 128 }, ..Traits::plain() })
}
