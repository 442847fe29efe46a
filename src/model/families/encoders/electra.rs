//! ELECTRA (Clark et al. 2020, arXiv 2003.10555): BERT's blocks, with embeddings that may be narrower than they are.

use super::entry::{
    BASE, CLASSIFIER_DENSE, EMBEDDING_PROJ, EMBEDDINGS, Encoder, Numbering, PLAIN, Readout, Sizes, Traits, bare,
    classifying, names, plain,
};
use crate::model::families::class::{Class, Published};
use crate::model::families::names::{Names, Pair};
use crate::model::network::ops::Activation;

static AROUND: [Pair; 7] = {
    let [words, positions, kinds, norm] = EMBEDDINGS;
    let projection = ("embeddings_project", EMBEDDING_PROJ);
    [words, positions, kinds, norm, projection, ("classifier.dense", "pooler"), ("classifier.out_proj", "head")]
};

static NAMES: Names = names(&["electra.", ""], &AROUND);
static CLASS: Class = Class {
    classifier: Some("classifier.out_proj"),
    around: &CLASSIFIER_DENSE,
    ..classifying("ElectraForSequenceClassification", "electra.", &NAMES)
};
static BARE: Class = bare("ElectraModel", &NAMES);

pub static ELECTRA: Encoder = Encoder {
    model_type: "electra",
    about: "ELECTRA",
    names: &NAMES,
    class: &CLASS,
    bare: &BARE,
    usual: Sizes { width: 256, mlp: 1024, heads: 4, ..BASE },
    tokenizer: Some("BertTokenizer"),
    numbering: Numbering::Columns,
    spelling: PLAIN,
    keys: &["embedding_size", "position_embedding_type"],
    harmless: &["summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"],
    refused: &["add_cross_attention", "is_decoder"],
    traits: |values, shape| {
        let embedded = values.integer("embedding_size", 128)?;
        let readout = Readout { activation: Activation::Gelu, normed: false, mean: false };
        Ok(Traits { embedded: (embedded != shape.width).then_some(embedded), readout, ..plain(values, shape)? })
    },
    unread: &["embeddings.position_ids", "discriminator_predictions.", "generator_predictions.", "generator_lm_head."],
    published: &[
        Published {
            key: "electra-small",
            about: "ELECTRA small",
            files: &["electra-small"],
            config: r#"{"model_type": "electra"}"#,
        },
        Published {
            key: "electra-base",
            about: "ELECTRA base",
            files: &["electra-base"],
            config: r#"{"model_type": "electra", "embedding_size": 768, "hidden_size": 768, "intermediate_size": 3072,
                "num_attention_heads": 12}"#,
        },
    ],
};
