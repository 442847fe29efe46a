//! The entry of a family of image towers, and the reading of a config by it.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::model::Normalize;
use crate::model::families::class::Class;
use crate::model::families::tower_names::{TOWER, TowerNames};
use crate::model::values::{Values, agree};
use crate::model::vit::Geometry;
use crate::model::vit::architecture::Shape;
use crate::model::vit::parts::Resize;
use crate::model::vit::required::Required;
use crate::model::vit::text::TextStyle;

/// A family of image towers, a class of transformers.
pub struct Family {
    pub model_type: &'static str,
    /// The name by which the field knows it.
    pub name: &'static str,
    /// The names of its parameters.
    pub names: TowerNames,
    /// The model types that begin alike and are not read, with the reason and the way out.
    pub strangers: &'static [(&'static str, &'static str)],
    /// The published shapes that can be made up.
    pub shapes: &'static [Shape],
    /// The model type of configs that have this tower's table beside that of a text tower.
    pub outer: Option<&'static str>,
    pub heads: i64,
    pub activation: &'static str,
    pub eps: f64,
    pub patch: i64,
    pub width: i64,
    pub mlp: i64,
    /// The number of registers, if the family has them.
    pub registers: Option<i64>,
    /// The way in which it resizes position embeddings.
    pub resize: Resize,
    /// The base of its rotary positions, if it has them.
    pub rope_theta: Option<f64>,
    /// The style of the text tower beside it.
    pub text: Option<TextStyle>,
    /// The class that an exported network is loaded in, if it can be exported.
    pub class: Option<&'static Class>,
    /// The same for a network without the projection that the family has.
    pub without_projection: Option<&'static Class>,
    /// The image processor of its folders, by the start of its name.
    pub processor: &'static str,
    /// The normalisation of images of its publisher's networks, which may be another one than that of the processor's defaults.
    pub normalize: Normalize,
    /// Whether its classifier reads the features. Those of CLIP and SigLIP read other tokens.
    pub classifies: bool,
    /// The prefixes that the names of its parameters may have.
    pub prefixes: &'static [&'static str],
    /// The keys that are read besides those of every family.
    pub keys: &'static [&'static str],
    /// The keys that change no features, besides those of every family.
    pub harmless: &'static [&'static str],
    /// Returns the parts that a config calls for.
    pub required: fn(&TowerConfig) -> Result<Required>,
    /// Returns the width of the hidden values of an MLP, with the key that states it.
    pub hidden: fn(&TowerConfig) -> Result<(&'static str, i64)>,
}

/// The default of `image_size` in every family, in pixels.
pub const IMAGE_SIZE: i64 = 224;

/// The default of `num_hidden_layers` in every family.
pub const BLOCKS: i64 = 12;

/// The facts that most families share.
pub(super) const USUAL: Family = Family {
    model_type: "",
    name: "",
    names: TOWER,
    strangers: &[],
    shapes: &[],
    outer: None,
    heads: 12,
    activation: "gelu",
    eps: 1e-12,
    patch: 16,
    width: 768,
    mlp: 3072,
    registers: None,
    resize: Resize::Plain,
    rope_theta: None,
    text: None,
    class: None,
    without_projection: None,
    processor: "",
    normalize: Normalize::HALVES,
    classifies: false,
    prefixes: &[""],
    keys: &[],
    harmless: &[],
    required: |tower| Ok(tower.plain()),
    hidden: |tower| tower.intermediate(),
};

/// The keys that are read of every family.
const KEYS: &[&str] = &[
    "model_type",
    "architectures",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "layer_norm_eps",
    "image_size",
    "patch_size",
    "num_channels",
    "id2label",
    "num_labels",
];

/// The keys that change no features in any family: those of training and of what transformers' backbones return.
const HARMLESS: &[&str] = &[
    "attention_dropout",
    "attention_probs_dropout_prob",
    "drop_path_rate",
    "dropout",
    "hidden_dropout_prob",
    "initializer_factor",
    "initializer_range",
    "out_features",
    "out_indices",
    "stage_names",
];

/// The keys that change what every network that reads texts computes, in a way that bella does not.
pub const REFUSED_OF_TEXTS: &[&str] = &["is_encoder_decoder", "per_layer_config"];

/// The keys that change no features of any network of transformers: those of training, of loading, and of writing texts, which
/// version 4 writes into every config.
pub const HARMLESS_ANYWHERE: &[&str] = &[
    "_name_or_path",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "_num_labels",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
];

impl Family {
    /// Checks the keys beside the tables of two towers.
    ///
    /// # Errors
    /// Fails at the first key that may change the features in a way that bella does not know.
    pub fn check_outer(&self, outer: &Values) -> Result<()> {
        const KEYS: &[&str] = &[
            "model_type",
            "architectures",
            "projection_dim",
            "vision_config",
            "text_config",
            "vision_config_dict",
            "text_config_dict",
            // The names of classes, whose classifier is refused by its weights.
            "id2label",
            // The starts of parameters that are stored.
            "logit_scale_init_value",
            "initializer_factor",
            "initializer_range",
            "tie_word_embeddings",
        ];
        outer.expect_keys("a network of two towers", &[KEYS, HARMLESS_ANYWHERE].concat())
    }
}

/// The config of a tower.
pub struct TowerConfig<'a> {
    pub family: &'static Family,
    /// The table of the tower.
    pub values: &'a Values,
    /// The whole config, if the table lies in it.
    pub outer: Option<&'a Values>,
}

impl TowerConfig<'_> {
    /// Returns the classes of transformers that saved the weights.
    pub(super) fn architectures(&self) -> impl Iterator<Item = &str> {
        let all = self.outer.unwrap_or(self.values).get("architectures").and_then(Value::as_array);
        all.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns the classifiers that the class which saved the weights has.
    pub(super) fn heads(&self) -> Option<&'static [&'static str]> {
        let is_double = self.architectures().any(|class| class.ends_with("ForImageClassificationWithTeacher"));
        let is_single = self.architectures().any(|class| class.ends_with("ForImageClassification"));
        match (is_double, is_single) {
            (true, _) => Some(&["head", "head_dist"]),
            (_, true) => Some(&["head"]),
            _ => None,
        }
    }

    /// Returns the parts of a plain vision transformer with the classifiers of this class.
    pub(super) fn plain(&self) -> Required {
        Required { heads: self.heads(), ..Required::PLAIN }
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        self.values.flag(key, default)
    }

    fn intermediate(&self) -> Result<(&'static str, i64)> {
        Ok(("intermediate_size", self.values.integer("intermediate_size", self.family.mlp)?))
    }

    /// Checks that weights have the sizes that the config states, of which absent ones are the family's. `classes` and
    /// `registers` are those of the weights.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights.
    pub fn check_sizes(&self, geometry: &Geometry, registers: i64, classes: Option<i64>) -> Result<()> {
        let (values, family) = (self.values, self.family);
        let shown = values.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (hidden_key, hidden) = (family.hidden)(self)?;
        let mut stated = vec![
            ("hidden_size", values.integer("hidden_size", family.width)?, geometry.width),
            ("num_hidden_layers", values.integer("num_hidden_layers", BLOCKS)?, geometry.blocks as i64),
            ("patch_size", values.side("patch_size", family.patch)?, geometry.patch),
            ("image_size", values.side("image_size", IMAGE_SIZE)?, geometry.image_size()),
            (hidden_key, hidden, geometry.mlp),
        ];
        if let Some(usual) = family.registers {
            stated.push(("num_register_tokens", values.count("num_register_tokens", usual)?, registers));
        }
        if let Some(classes) = classes {
            let (key, said) = values.classes()?;
            stated.push((key, said, classes));
        }
        if family.keys.contains(&"projection_dim") && geometry.output != geometry.width {
            let said = self.outer.unwrap_or(values).integer("projection_dim", 512)?;
            stated.push(("projection_dim", said, geometry.output));
        }
        stated.into_iter().try_for_each(|(key, said, found)| agree(&shown, key, said, found))
    }

    /// Checks that the config has no key that may change the features in a way that bella does not know.
    ///
    /// # Errors
    /// Fails at the first such key.
    pub fn check_keys(&self) -> Result<()> {
        let Family { model_type, keys, harmless, .. } = self.family;
        let known = [KEYS, HARMLESS, HARMLESS_ANYWHERE, keys, harmless].concat();
        self.values.expect_keys(&format!("a network of model_type {model_type}"), &known)?;
        let channels = self.values.integer("num_channels", 3)?;
        ensure!(
            channels == 3,
            "{}: num_channels = {channels}: bella reads images of three colours",
            self.values.path.display()
        );
        Ok(())
    }
}
