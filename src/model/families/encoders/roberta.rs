//! RoBERTa. Its class for classification has a layer of its own on the first token, in the place of BERT's, and does not read the one
//! that other classes store.

use super::entry::{EMBEDDINGS, Encoder, Numbering, Sizes, bare, classifying, names};
use crate::model::families::class::{Class, Outer};
use crate::model::families::names::{Names, Pair};

static AROUND: [Pair; 6] = {
    let [words, positions, kinds, norm] = EMBEDDINGS;
    [words, positions, kinds, norm, ("classifier.dense", "pooler"), ("classifier.out_proj", "head")]
};

/// The layer on the first token, which lies outside of the network in its class.
static POOLER: [Outer; 1] = [Outer { layer: "pooler", prefix: "", end: "classifier.dense" }];

static NAMES: Names = names(&["roberta.", ""], &AROUND);
static CLASS: Class = Class {
    classifier: Some("classifier.out_proj"),
    around: &POOLER,
    ..classifying("RobertaForSequenceClassification", "roberta.", &NAMES)
};
static BARE: Class = bare("RobertaModel", &NAMES);

pub static ROBERTA: Encoder = Encoder {
    model_type: "roberta",
    about: "RoBERTa",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: Sizes { vocabulary: 50_265, positions: 512, kinds: 2, padding: 1 },
    numbering: Numbering::BehindPadding,
    unread: &["embeddings.position_ids", "lm_head.", "pooler."],
};
