//! DistilBERT (Sanh et al. 2019, arXiv 1910.01108): BERT's blocks under other names, without kinds of tokens.

use super::entry::{BASE, EMBEDDINGS, Encoder, Numbering, Readout, Sizes, Spelling, Traits, bare, classifying};
use crate::model::families::class::{Class, Outer, Published};
use crate::model::families::names::{Names, Pair};
use crate::model::network::ops::Activation;

const BLOCK: [Pair; 8] = [
    ("attention.q_lin", "attn.q"),
    ("attention.k_lin", "attn.k"),
    ("attention.v_lin", "attn.v"),
    ("attention.out_lin", "attn.proj"),
    ("sa_layer_norm", "ln_1"),
    ("ffn.lin1", "mlp.fc"),
    ("ffn.lin2", "mlp.proj"),
    ("output_layer_norm", "ln_2"),
];

static AROUND: [Pair; 5] = {
    let [words, positions, _, norm] = EMBEDDINGS;
    [words, positions, norm, ("pre_classifier", "pooler"), ("classifier", "head")]
};

static NAMES: Names = Names {
    prefixes: &["distilbert.", ""],
    blocks: "transformer.layer.",
    layers: &BLOCK,
    around: &AROUND,
    turned: &[],
    unread: &[],
};

/// The layer on the first token, which lies outside of the network in its class.
static POOLER: [Outer; 1] = [Outer { layer: "pooler", prefix: "", end: "pre_classifier" }];

static CLASS: Class = Class {
    classifier: Some("classifier"),
    around: &POOLER,
    ..classifying("DistilBertForSequenceClassification", "distilbert.", &NAMES)
};
static BARE: Class = bare("DistilBertModel", &NAMES);

pub static DISTILBERT: Encoder = Encoder {
    model_type: "distilbert",
    about: "DistilBERT",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: Sizes { blocks: 6, kinds: 0, ..BASE },
    tokenizer: Some("BertTokenizer"),
    numbering: Numbering::Columns,
    spelling: Spelling {
        width: "dim",
        mlp: "hidden_dim",
        blocks: "n_layers",
        heads: "n_heads",
        eps: None,
        activation: "activation",
    },
    keys: &[],
    // The sines of `sinusoidal_pos_embds` are stored as a table like any other.
    harmless: &[
        "attention_dropout",
        "dropout",
        "qa_dropout",
        "seq_classif_dropout",
        "sinusoidal_pos_embds",
        "tie_weights_",
    ],
    refused: &[],
    traits: |_, _| {
        let readout = Readout { activation: Activation::Relu, normed: false, mean: false };
        Ok(Traits { readout, ..Traits::plain() })
    },
    unread: &["vocab_layer_norm.", "vocab_projector.", "vocab_transform."],
    published: &[Published {
        key: "distilbert-base",
        about: "DistilBERT base, uncased",
        files: &["distilbert-base-uncased"],
        config: r#"{"model_type": "distilbert"}"#,
    }],
};
