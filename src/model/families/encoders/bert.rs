//! BERT.

use super::entry::{EMBEDDINGS, Encoder, Numbering, Sizes, bare, classifying, names};
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
    usual: Sizes { vocabulary: 30_522, positions: 512, kinds: 2, padding: 0 },
    numbering: Numbering::Columns,
    unread: &["embeddings.position_ids", "cls."],
};
