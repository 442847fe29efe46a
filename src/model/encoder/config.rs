//! The sizes and settings of a text encoder in `config.json`, with the defaults of its family for absent keys.

use anyhow::{Result, ensure};

use crate::model::families::encoders::{self, Features, Numbering, Places, Shape, Traits};
use crate::model::families::{HARMLESS_ANYWHERE, REFUSED_OF_TEXTS};
use crate::model::folder::quantised::{self, Format};
use crate::model::network::ops::Activation;
use crate::model::values::{Values, is_set};

/// The keys that are read of every family.
const KEYS: &[&str] = &[
    "architectures",
    "id2label",
    "max_position_embeddings",
    "model_type",
    "num_labels",
    "pad_token_id",
    "type_vocab_size",
    "vocab_size",
];

/// The keys that change no features besides those of every network: those of training, and of what sentence-transformers puts behind logits.
const HARMLESS: &[&str] = &[
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "initializer_range",
    "sbert_ce_default_activation_function",
    "sentence_transformers",
    "tie_word_embeddings",
    "use_cache",
];

/// The sizes and settings of a network.
#[derive(Clone, Debug)]
pub struct Geometry {
    pub vocabulary: i64,
    /// The width of hidden states, d.
    pub width: i64,
    /// The width of the hidden values of an MLP.
    pub mlp: i64,
    pub blocks: usize,
    pub heads: i64,
    /// The rows of the table of positions, or the most tokens of a text where there is none.
    pub positions: i64,
    /// The kinds of tokens; 0 without a table of them.
    pub kinds: i64,
    /// The token of padding.
    pub padding: i64,
    pub eps: f64,
    pub activation: Activation,
    pub traits: Traits,
    pub features: Features,
    pub family: &'static encoders::Encoder,
}

impl Geometry {
    /// Reads a config, which does not say what the features of a text are.
    ///
    /// # Errors
    /// Fails if a value is malformed, or asks for what bella does not compute.
    pub fn read(values: &Values, family: &'static encoders::Encoder, features: Features) -> Result<Geometry> {
        let shown = values.path.display();
        refuse_others(values, family)?;
        let (usual, keys) = (family.usual, family.spelling);
        let width = values.integer(keys.width, usual.width)?;
        let heads = values.integer(keys.heads, usual.heads)?;
        ensure!(width % heads == 0, "{shown}: {} = {heads}: must divide {} = {width}", keys.heads, keys.width);
        let blocks = values.integer(keys.blocks, usual.blocks)? as usize;
        let positions = values.integer("max_position_embeddings", usual.positions)?;
        let geometry = Geometry {
            vocabulary: values.integer("vocab_size", usual.vocabulary)?,
            width,
            mlp: values.integer(keys.mlp, usual.mlp)?,
            blocks,
            heads,
            positions,
            kinds: if family.has_kinds() { values.count("type_vocab_size", usual.kinds)? } else { 0 },
            padding: values.count("pad_token_id", usual.padding)?,
            eps: keys.eps.map_or(Ok(usual.eps), |key| values.number(key, usual.eps))?,
            activation: values.activation_of(keys.activation, usual.activation)?,
            traits: (family.traits)(values, Shape { width, blocks, channels: width / heads, positions })?,
            features,
            family,
        };
        ensure!(
            geometry.context() > 0,
            "{shown}: max_position_embeddings = {}: leaves no position for a token",
            geometry.positions
        );
        Ok(geometry)
    }

    /// Returns the most tokens of a text.
    pub fn context(&self) -> i64 {
        match self.family.numbering {
            Numbering::Columns => self.positions,
            Numbering::BehindPadding => self.positions - self.padding - 1,
        }
    }

    /// Returns the token of padding, where texts that spell it have other positions than their masks say.
    pub fn unplaced(&self) -> Option<i64> {
        (self.family.numbering == Numbering::BehindPadding).then_some(self.padding)
    }

    /// Returns whether a table of positions is added to the embeddings.
    pub fn has_positions(&self) -> bool {
        matches!(
            self.traits.places,
            Places::Learned | Places::Relative { .. } | Places::Disentangled { learned: true, .. }
        )
    }

    /// Returns the number of blocks with weights of their own.
    pub fn distinct(&self) -> usize {
        self.traits.groups.unwrap_or(self.blocks)
    }

    /// Returns the number of the weights that a block computes with.
    pub fn weights_of(&self, block: usize) -> usize {
        match self.traits.groups {
            // In the numbers in which transformers divides.
            Some(groups) => (block as f64 / (self.blocks as f64 / groups as f64)) as usize,
            None => block,
        }
    }

    /// Returns the first block that computes with the weights of a number.
    pub fn first_with(&self, weights: usize) -> usize {
        (0..self.blocks).find(|block| self.weights_of(*block) == weights).unwrap_or(self.blocks)
    }

    /// Returns whether features are the outputs of the layer by which a text is read as a whole.
    pub fn is_pooled(&self) -> bool {
        self.features == Features::Pooled
    }

    /// Returns whether features are read from the mean of all tokens.
    pub fn reads_mean(&self) -> bool {
        self.features == Features::Mean || self.is_pooled() && self.traits.readout.mean
    }
}

/// Refuses settings with which the network computes something else.
fn refuse_others(values: &Values, family: &encoders::Encoder) -> Result<()> {
    let encoders::Encoder { model_type, refused, .. } = family;
    let how = Format::of(values)?.map(|_| quantised::KEY);
    values.refuse(REFUSED_OF_TEXTS.iter().chain(*refused), |value| is_set(value) && *value != 0, model_type)?;
    let known: Vec<&str> = known_keys(family).into_iter().chain(how).collect();
    values.expect_keys(&format!("a text encoder of model_type {model_type}"), &known)
}

/// Returns the keys that are read of a family, and those that change nothing.
fn known_keys(family: &encoders::Encoder) -> Vec<&'static str> {
    [KEYS, HARMLESS, HARMLESS_ANYWHERE, &family.spelling.keys(), family.keys, family.harmless].concat()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::model::families::encoders::{ENCODERS, encoder};
    use crate::model::values::testing::{Keys, error, every_key_is_known};

    fn read(model_type: &str, table: Value) -> Result<Geometry> {
        Geometry::read(&Values::new(Path::new("config.json"), table), encoder(model_type).unwrap(), Features::Pooled)
    }

    /// The fields of the classes in transformers 5.24 (written by scripts/make_encoder_fixtures.py): each is read, changes nothing, or is
    /// refused where it is set.
    #[test]
    fn every_key_of_every_class_is_known() {
        let keys = |model_type: &str| {
            let family = encoder(model_type).unwrap();
            Keys { known: known_keys(family), refused: [REFUSED_OF_TEXTS, family.refused].concat() }
        };
        let fields = include_str!("../../../tests/fixtures/encoder/keys.json");
        every_key_is_known((fields, ENCODERS.len()), &json!(3), keys, |of, table| error(read(of, table)));
    }

    /// `python3 -c "import transformers as hf; print(hf.ModernBertConfig(), hf.DebertaV2Config())"`
    #[test]
    fn absent_keys_mean_the_defaults_of_the_class() {
        let modern = read("modernbert", json!({})).unwrap();
        assert_eq!((modern.vocabulary, modern.mlp, modern.blocks, modern.context()), (50_368, 1152, 22, 8192));
        let Places::Turned { bases, local, reach } = &modern.traits.places else { panic!("{:?}", modern.traits) };
        assert_eq!((*bases, &local[..4], *reach), ([160_000.0, 10_000.0], &[false, true, true, false][..], 64));
        assert!(!modern.has_positions() && !modern.reads_mean());
        let deberta = json!({ "relative_attention": true, "share_att_key": true, "pos_att_type": "p2c|c2p", "position_buckets": 256,
            "norm_rel_ebd": "layer_norm", "max_relative_positions": -1, "position_biased_input": false });
        let deberta = read("deberta-v2", deberta).unwrap();
        let Places::Disentangled { distances, learned } = deberta.traits.places else { panic!("{:?}", deberta.traits) };
        assert_eq!((distances.span(), distances.most, distances.normed, learned), (256, 512, true, false));
        assert!(distances.from_queries && distances.from_keys);
        let contents = json!({ "relative_attention": true, "share_att_key": true, "pos_att_type": "" });
        let contents = read("deberta-v2", contents).unwrap();
        let Places::Disentangled { distances, .. } = contents.traits.places else { panic!("{:?}", contents.traits) };
        assert!(!distances.from_queries && !distances.from_keys);
    }

    #[test]
    fn kinds_of_tokens_are_read_where_the_class_has_a_table() {
        let kinds = |family: &str| read(family, json!({ "type_vocab_size": 3 })).unwrap().kinds;
        assert_eq!(["bert", "electra", "distilbert", "mpnet", "modernbert"].map(kinds), [3, 3, 0, 0, 0]);
    }

    /// The group of a block is `int(i / (num_hidden_layers / num_hidden_groups))` in `modeling_albert.py`.
    #[test]
    fn blocks_of_albert_share_weights_by_groups() {
        let albert = read("albert", json!({ "num_hidden_layers": 5, "num_hidden_groups": 2 })).unwrap();
        let weights: Vec<usize> = (0..5).map(|block| albert.weights_of(block)).collect();
        assert_eq!((weights, albert.distinct()), (vec![0, 0, 0, 1, 1], 2));
        assert_eq!([0, 1].map(|weights| albert.first_with(weights)), [0, 3]);
        assert_eq!((albert.width, albert.activation, albert.traits.embedded), (4096, Activation::GeluTanh, Some(128)));
    }

    /// Keys of published configs that no class of transformers 5.24 reads (`grep -rw KEY` in the package finds none of them): those of
    /// `bert-base-chinese`, `nlptown/bert-base-multilingual-uncased-sentiment`, `roberta-large-mnli` and of cross-encoders.
    #[test]
    fn keys_that_no_class_reads_change_nothing() {
        let bert = json!({ "_num_labels": 5, "directionality": "bidi", "output_past": true, "pooler_fc_size": 768,
            "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
            "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity" });
        assert_eq!(read("bert", bert).unwrap().width, 768);
        let activation = json!({ "activation_fn": "torch.nn.modules.activation.Sigmoid" });
        let roberta = json!({ "_num_labels": 3, "max_position_embeddings": 514, "sentence_transformers": activation });
        assert_eq!(read("roberta", roberta).unwrap().context(), 512);
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let disentangled = |key: &str, value: Value| {
            let mut table = json!({ "relative_attention": true, "share_att_key": true });
            table[key] = value;
            table
        };
        for (model_type, table, rule) in [
            ("deberta-v2", json!({ "relative_attention": true }), "share_att_key = false"),
            ("deberta-v2", json!({ "position_biased_input": false }), "no token knows its place"),
            // `hf.DebertaV2Model` counts the words in the divisor of its scores all the same.
            ("deberta-v2", json!({ "pos_att_type": ["c2p"] }), "[\"c2p\"]: without relative_attention = true"),
            ("deberta-v2", json!({ "conv_kernel_size": 3 }), "conv_kernel_size = 3: changes what"),
            (
                "deberta-v2",
                disentangled("position_buckets", json!("8")),
                "position_buckets = \"8\": must be a whole number",
            ),
            ("deberta-v2", disentangled("position_buckets", json!(i64::MAX)), "must be at most 16777216"),
            ("deberta-v2", disentangled("pos_att_type", json!(5)), "pos_att_type = 5: must be a text"),
            ("bert", json!({ "position_embedding_type": 5 }), "known: absolute"),
            ("albert", json!({ "inner_group_num": 2 }), "inner_group_num = 2: bella computes groups of one block"),
            (
                "albert",
                json!({ "num_hidden_groups": 13 }),
                "num_hidden_groups = 13: must not exceed num_hidden_layers = 12",
            ),
            (
                "mpnet",
                json!({ "pad_token_id": 0 }),
                "pad_token_id = 0: transformers counts the positions of MPNet behind",
            ),
            ("mpnet", json!({ "relative_attention_num_buckets": 8 }), "it must be at least 32"),
            ("modernbert", json!({ "classifier_pooling": "max" }), "must be \"cls\" or \"mean\""),
            ("modernbert", json!({ "classifier_pooling": 5 }), "must be \"cls\" or \"mean\""),
            (
                "modernbert",
                json!({ "rope_parameters": "x" }),
                "rotary positions of two bases: is \"x\": must be a table",
            ),
            ("modernbert", json!({ "layer_types": ["full_attention"] }), "must be a list of 22 words"),
            (
                "modernbert",
                json!({ "rope_parameters": { "full_attention": { "rope_type": "yarn" } } }),
                "rope_type = \"yarn\"",
            ),
        ] {
            let found = error(read(model_type, table));
            assert!(found.contains(rule), "{found}");
        }
    }
}
