//! BERT.

use super::entry::{BASE, EMBEDDINGS, Encoder, Numbering, PLAIN, bare, classifying, names, plain};
use crate::model::families::class::Class;
use crate::model::families::names::{Names, Pair};

static AROUND: [Pair; 6] = {
    let [words, positions, kinds, norm] = EMBEDDINGS;
    [words, positions, kinds, norm, ("pooler.dense", "pooler"), ("classifier", "head")]
};

static NAMES: Names = names(&["bert.", ""], &AROUND);
static CLASS: Class =
    Class { classifier: Some("classifier"), ..classifying("BertForSequenceClassification", "bert.", &NAMES) };
static BARE: Class = bare("BertModel", &NAMES);

pub static BERT: Encoder = Encoder {
    model_type: "bert",
    about: "BERT",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: BASE,
    numbering: Numbering::Columns,
    spelling: PLAIN,
    keys: &["position_embedding_type"],
    harmless: &[],
    refused: &["add_cross_attention", "is_decoder"],
    traits: plain,
    unread: &["embeddings.position_ids", "cls."],
};
