//! BERT.

use super::entry::{BASE, EMBEDDINGS, Encoder, Numbering, PLAIN, bare, classifying, names, plain};
use crate::model::families::class::{Class, Published};
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
    tokenizer: Some("BertTokenizer"),
    numbering: Numbering::Columns,
    spelling: PLAIN,
    keys: &["position_embedding_type"],
    // Those of a layer that the first program of BERT had for other uses; the class does not read them.
    harmless: &[
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    ],
    refused: &["add_cross_attention", "is_decoder"],
    traits: plain,
    unread: &["embeddings.position_ids", "cls."],
    published: &[
        Published {
            key: "bert-base",
            about: "BERT base, uncased",
            files: &["bert-base-uncased"],
            config: r#"{"model_type": "bert"}"#,
        },
        Published {
            key: "bert-large",
            about: "BERT large, uncased",
            files: &["bert-large-uncased"],
            config: r#"{"model_type": "bert", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                "num_attention_heads": 16}"#,
        },
    ],
};
