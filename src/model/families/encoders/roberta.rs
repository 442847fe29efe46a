//! RoBERTa, and XLM-RoBERTa and CamemBERT, which are the same networks with vocabularies of their own. Their classes for classification
//! have a layer of their own on the first token, in the place of BERT's, and do not read the one that other classes store.

use super::entry::{
    BASE, CLASSIFIER_DENSE, EMBEDDINGS, Encoder, Numbering, PLAIN, Sizes, bare, classifying, names, plain,
};
use crate::model::families::class::{Class, Published};
use crate::model::families::names::{Names, Pair};

static AROUND: [Pair; 6] = {
    let [words, positions, kinds, norm] = EMBEDDINGS;
    [words, positions, kinds, norm, ("classifier.dense", "pooler"), ("classifier.out_proj", "head")]
};

static NAMES: Names = names(&["roberta.", ""], &AROUND);
const CLASS: Class = Class {
    classifier: Some("classifier.out_proj"),
    around: &CLASSIFIER_DENSE,
    ..classifying("RobertaForSequenceClassification", "roberta.", &NAMES)
};

/// RoBERTa, whose facts the others share.
const PLAIN_ROBERTA: Encoder = Encoder {
    model_type: "roberta",
    about: "RoBERTa",
    names: &NAMES,
    class: &CLASS,
    bare: &bare("RobertaModel", &NAMES),
    usual: Sizes { vocabulary: 50_265, padding: 1, ..BASE },
    tokenizer: Some("RobertaTokenizer"),
    numbering: Numbering::BehindPadding,
    spelling: PLAIN,
    keys: &["position_embedding_type"],
    harmless: &[],
    refused: &["add_cross_attention", "is_decoder"],
    traits: plain,
    unread: &["embeddings.position_ids", "lm_head.", "pooler."],
    published: &[
        Published {
            key: "roberta-base",
            about: "RoBERTa base",
            files: &["roberta-base"],
            config: r#"{"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}"#,
        },
        Published {
            key: "roberta-large",
            about: "RoBERTa large",
            files: &["roberta-large"],
            config: r#"{"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
                "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}"#,
        },
    ],
};

pub static ROBERTA: Encoder = PLAIN_ROBERTA;

/// The sizes that absent keys mean for XLM-RoBERTa and CamemBERT.
const SIZES_OF_OTHERS: Sizes = Sizes { padding: 1, ..BASE };

pub static XLM_ROBERTA: Encoder = Encoder {
    model_type: "xlm-roberta",
    about: "XLM-RoBERTa",
    class: &Class { name: "XLMRobertaForSequenceClassification", ..CLASS },
    bare: &bare("XLMRobertaModel", &NAMES),
    usual: SIZES_OF_OTHERS,
    tokenizer: None,
    published: &[
        Published {
            key: "xlm-roberta-base",
            about: "XLM-RoBERTa base",
            files: &["xlm-roberta-base"],
            config: r#"{"model_type": "xlm-roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
                "vocab_size": 250002}"#,
        },
        Published {
            key: "xlm-roberta-large",
            about: "XLM-RoBERTa large",
            files: &["xlm-roberta-large"],
            config: r#"{"model_type": "xlm-roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
                "vocab_size": 250002, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                "num_attention_heads": 16}"#,
        },
    ],
    ..PLAIN_ROBERTA
};

pub static CAMEMBERT: Encoder = Encoder {
    model_type: "camembert",
    about: "CamemBERT",
    class: &Class { name: "CamembertForSequenceClassification", ..CLASS },
    bare: &bare("CamembertModel", &NAMES),
    usual: SIZES_OF_OTHERS,
    tokenizer: None,
    published: &[],
    ..PLAIN_ROBERTA
};
