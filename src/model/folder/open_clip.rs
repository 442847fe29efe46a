//! Reads open_clip's config: its own image tower or one of timm's, and its text tower (open_clip 3.3).

use anyhow::{Result, bail, ensure};

use super::weights::FILES;
use crate::model::families::IMAGE_SIZE;
use crate::model::recognition::text::TextExpected;
use crate::model::values::{self, Values, widened};
use crate::model::vit::architecture::Architecture;
use crate::model::vit::arguments::Arguments;
use crate::model::vit::required::{Projection, Required};
use crate::model::vit::text::{TextGeometry, TextStyle};
use crate::model::vit::{Activation, Geometry, Traits, heads_fit};

/// The keys beside the tables of the towers.
const KEYS: [&str; 10] = [
    "embed_dim",
    "vision_cfg",
    "text_cfg",
    "quick_gelu",
    "custom_text",
    "init_logit_scale",
    "init_logit_bias",
    "nonscalar_logit_scale",
    "cast_dtype",
    "output_dict",
];

/// The keys of open_clip's own image tower. `pos_embed_type` says how positions begin, and they are stored.
const VISION: [&str; 12] = [
    "layers",
    "width",
    "head_width",
    "mlp_ratio",
    "patch_size",
    "image_size",
    "pool_type",
    "no_ln_pre",
    "act_kwargs",
    "norm_kwargs",
    "block_type",
    "pos_embed_type",
];

/// The keys of an image tower that change no features: those of training, and those of poolings and towers that are not there.
const HARMLESS: [&str; 8] = [
    "patch_dropout",
    "attn_pooler_queries",
    "attn_pooler_heads",
    "output_tokens",
    "timm_pool",
    "timm_proj",
    "timm_drop",
    "timm_drop_path",
];

/// The keys of timm's tower; those of open_clip's own mean nothing beside them.
const TIMM: [&str; 16] = [
    "image_size",
    "timm_model_name",
    "timm_model_pretrained",
    "timm_pool",
    "timm_proj",
    "timm_proj_bias",
    "timm_drop",
    "timm_drop_path",
    "patch_dropout",
    "output_tokens",
    "layers",
    "width",
    "head_width",
    "mlp_ratio",
    "patch_size",
    "norm_kwargs",
];

/// The keys of the text tower, with those of its tokenizer, which are read elsewhere.
const TEXT: [&str; 17] = [
    "context_length",
    "vocab_size",
    "width",
    "heads",
    "layers",
    "mlp_ratio",
    "no_causal_mask",
    "pool_type",
    "proj_type",
    "proj_bias",
    "act_kwargs",
    "norm_kwargs",
    "block_type",
    "hf_tokenizer_name",
    "tokenizer_kwargs",
    "pad_id",
    "eos_id",
];

/// The table `model_cfg`.
#[derive(Clone)]
pub struct OpenClip {
    whole: Values,
    pub vision: Values,
    pub text: Values,
}

impl OpenClip {
    /// Reads the tables.
    ///
    /// # Errors
    /// Fails if there is a key that may change the features in a way that bella does not know.
    pub fn read(whole: &Values) -> Result<OpenClip> {
        let (vision, text) = (whole.within("vision_cfg"), whole.within("text_cfg"));
        let model = OpenClip { whole: whole.clone(), vision, text };
        model.whole.expect_keys("a network of open_clip", &KEYS)?;
        match model.vision.text("timm_model_name") {
            Some(_) => model.vision.expect_keys("open_clip's towers of timm", &TIMM)?,
            None => model.vision.expect_keys("open_clip's image tower", &[&VISION[..], &HARMLESS].concat())?,
        }
        plain_blocks(&model.vision)?;
        Ok(model)
    }

    /// Returns the width of the features of both towers.
    fn width(&self) -> Result<i64> {
        self.whole.integer("embed_dim", 512)
    }

    /// Returns whether the classifier of timm's tower is the projection: where `timm_proj` is null or empty. An absent key
    /// means a projection of its own, and "none" means none.
    pub fn projects_by_head(&self) -> bool {
        self.vision.table().get("timm_proj").is_some_and(|word| word.is_null() || word == "")
    }

    /// Returns whether timm's tower is followed by a projection of its own.
    fn projects(&self) -> Result<bool> {
        match self.vision.table().get("timm_proj").map(|word| word.as_str().unwrap_or_default()) {
            None | Some("linear") => Ok(true),
            Some("" | "none") => Ok(false),
            Some(word) => bail!(
                "{}: timm_proj = \"{word}\" is none that bella computes; known: linear, none, null",
                self.vision.path.display()
            ),
        }
    }

    /// Returns the arguments by which open_clip builds a tower of timm.
    ///
    /// # Errors
    /// Fails if bella does not compute its pooling.
    pub fn arguments(&self, architecture: &'static Architecture) -> Result<Arguments> {
        let classes = if self.projects_by_head() { self.width()? } else { 0 };
        let pool = self.vision.text("timm_pool").unwrap_or(if self.vision.has("timm_pool") { "" } else { "avg" });
        let arguments = Arguments::of_open_clip(architecture, pool, (self.projects()?, classes));
        match arguments.pool() {
            Ok(_) => Ok(arguments),
            Err(why) => bail!("{}: timm_pool: {why:#}", self.vision.path.display()),
        }
    }

    /// Returns the parameters of a tower of timm.
    ///
    /// # Errors
    /// Fails if it has parts that bella does not compute.
    pub fn required_of_timm(&self, arguments: &Arguments) -> Result<Required> {
        let bias = self.vision.flag("timm_proj_bias", false)?;
        let projection = match self.projects()? {
            false => Projection::None,
            true if bias => Projection::Biased,
            true => Projection::Plain,
        };
        Ok(Required { projection, ..arguments.required()? })
    }

    /// Returns the parameters of open_clip's own image tower.
    ///
    /// # Errors
    /// Fails if a switch is neither true nor false.
    pub fn required(&self) -> Result<Required> {
        let pre_norm = !self.vision.flag("no_ln_pre", false)?;
        Ok(Required { pre_norm, heads: Some(&[]), ..Required::CLIP })
    }

    /// Checks that the weights have the sizes of the config, and that the class token is read.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights.
    pub fn check(&self, geometry: &Geometry, is_of_timm: bool) -> Result<()> {
        let vision = &self.vision;
        if !is_of_timm {
            let pool = vision.text("pool_type").unwrap_or("tok");
            ensure!(
                pool == "tok",
                "{} says pool_type = \"{pool}\", which bella does not compute for open_clip's own towers: it knows \"tok\"",
                FILES[1]
            );
            let (width, heads) = (vision.integer("width", 768)?, vision.integer("head_width", 64)?);
            ensure!(
                heads_fit(heads, width),
                "{} says head_width = {heads}, which does not divide width = {width}",
                FILES[1]
            );
            agree("width", width, geometry.width)?;
            agree("layers", vision.integer("layers", 12)?, geometry.blocks as i64)?;
            agree("patch_size", vision.integer("patch_size", 16)?, geometry.patch)?;
            agree("width * mlp_ratio", scaled(width, vision)?, geometry.mlp)?;
        }
        agree("image_size", vision.side("image_size", IMAGE_SIZE)?, geometry.image_size())?;
        agree("embed_dim", self.width()?, geometry.output)
    }

    /// Returns the traits of the image tower.
    ///
    /// # Errors
    /// Fails if the activation is unknown.
    pub fn traits(&self) -> Result<Traits> {
        let heads = self.vision.integer("width", 768)? / self.vision.integer("head_width", 64)?;
        self.traits_of(&self.vision, heads.max(1))
    }

    /// Returns the traits of one of open_clip's own towers, whose table is `tower`.
    fn traits_of(&self, tower: &Values, heads: i64) -> Result<Traits> {
        let (activation, norm) = (tower.within("act_kwargs"), tower.within("norm_kwargs"));
        activation.expect_keys("act_kwargs", &["approximate"])?;
        norm.expect_keys("norm_kwargs", &["eps"])?;
        let activation = match activation.text("approximate") {
            _ if self.whole.flag("quick_gelu", false)? => Activation::QuickGelu,
            None | Some("none") => Activation::Gelu,
            Some("tanh") => Activation::GeluTanh,
            Some(word) => bail!("{}: approximate = \"{word}\" is none that bella computes", tower.path.display()),
        };
        Ok(Traits { heads, activation, eps: norm.number("eps", 1e-5)? })
    }

    /// Returns whether the config says which activation its own towers have.
    pub fn says_activation(&self) -> bool {
        self.whole.get("quick_gelu").is_some()
    }

    /// Returns what the text tower's parameters must be.
    pub fn text_expected(&self) -> TextExpected {
        let style = if self.text.is_true("no_causal_mask") { TextStyle::Siglip } else { TextStyle::Clip };
        TextExpected { style, logit_bias: self.whole.get("init_logit_bias").is_some() }
    }

    /// Returns the traits of the text tower, whose weights have this geometry.
    ///
    /// # Errors
    /// Fails if it is neither CLIP's nor SigLIP's, if a key may change its features in a way that bella does not know, or if
    /// the weights have other sizes.
    pub fn text_traits(&self, geometry: &TextGeometry) -> Result<Traits> {
        let tower = &self.text;
        tower.expect_keys("open_clip's text tower", &TEXT)?;
        plain_blocks(tower)?;
        let (sees_all, read) = match geometry.style {
            TextStyle::Clip => (false, "argmax"),
            TextStyle::Siglip => (true, "last"),
        };
        let pool = tower.text("pool_type").unwrap_or("argmax");
        let is_open = tower.flag("no_causal_mask", false)?;
        ensure!(
            is_open == sees_all && pool == read,
            "{}: no_causal_mask = {} with pool_type = \"{pool}\" is neither CLIP's text tower nor SigLIP's: set \
             head.zero-shot.weights instead",
            tower.path.display(),
            is_open
        );
        let projection = tower.text("proj_type").unwrap_or("linear");
        ensure!(
            projection == "linear",
            "{}: proj_type = \"{projection}\" is none that bella computes; known: linear",
            tower.path.display()
        );
        let width = tower.integer("width", 512)?;
        for (key, said, found) in [
            ("text_cfg.width", width, geometry.width),
            ("text_cfg.layers", tower.integer("layers", 12)?, geometry.blocks as i64),
            ("text_cfg.width * mlp_ratio", scaled(width, tower)?, geometry.mlp),
            ("text_cfg.vocab_size", tower.integer("vocab_size", 49_408)?, geometry.vocabulary),
            ("text_cfg.context_length", tower.integer("context_length", 77)?, geometry.context),
            ("embed_dim", self.width()?, geometry.output),
        ] {
            agree(key, said, found)?;
        }
        self.traits_of(tower, tower.integer("heads", 8)?)
    }
}

/// Returns the width of the hidden values of an MLP.
fn scaled(width: i64, tower: &Values) -> Result<i64> {
    widened("mlp_ratio", width, tower.number("mlp_ratio", 4.0)?)
}

/// Checks that blocks are not of open_clip's custom kind.
fn plain_blocks(tower: &Values) -> Result<()> {
    let kind = tower.text("block_type").unwrap_or("default");
    ensure!(
        kind == "default",
        "{}: block_type = \"{kind}\" is none that bella computes; known: default",
        tower.path.display()
    );
    Ok(())
}

fn agree(key: &str, said: i64, found: i64) -> Result<()> {
    values::agree(FILES[1], key, said, found)
}
