//! The arguments by which timm builds a network, read in its order: those of a config's `model_args`, then those of the
//! architecture, then `num_classes` and `global_pool` of `pretrained_cfg`, then the defaults of the class (timm 1.0.31).

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::model::values::widened;
use crate::model::vit::Activation;
use crate::model::vit::architecture::{Architecture, Class, Pool};
use crate::model::vit::parts::Rope;
use crate::model::vit::required::{Projection, QkvBias, Required};

/// The arguments that are read here.
const READ: [&str; 34] = [
    "img_size",
    "patch_size",
    "in_chans",
    "embed_dim",
    "depth",
    "num_heads",
    "mlp_ratio",
    "num_classes",
    "global_pool",
    "init_values",
    "class_token",
    "pos_embed",
    "no_embed_class",
    "reg_tokens",
    "num_reg_tokens",
    "qkv_bias",
    "qkv_fused",
    "act_layer",
    "swiglu_mlp",
    "swiglu_align_to",
    "scale_mlp",
    "scale_attn_inner",
    "scale_attn_norm",
    "scale_mlp_norm",
    "fc_norm",
    "use_fc_norm",
    "pre_norm",
    "final_norm",
    "use_pre_transformer_norm",
    "use_post_transformer_norm",
    "use_abs_pos_emb",
    "use_rot_pos_emb",
    "use_rel_pos_bias",
    "use_shared_rel_pos_bias",
];

/// The arguments of training, and those that change nothing at the size of the images for which a network is built.
const HARMLESS: [&str; 14] = [
    "drop_rate",
    "pos_drop_rate",
    "patch_drop_rate",
    "proj_drop_rate",
    "attn_drop_rate",
    "drop_path_rate",
    "weight_init",
    "fix_init",
    "head_init_scale",
    "dynamic_img_size",
    "rope_shift_coords",
    "rope_jitter_coords",
    "rope_rescale_coords",
    "strict_img_size",
];

/// The arguments of one network.
#[derive(Clone, Debug)]
pub struct Arguments {
    pub architecture: &'static Architecture,
    /// Those that stand above the architecture's: `model_args`.
    own: Map<String, Value>,
    /// Those that count where the architecture has none.
    below: Map<String, Value>,
    /// The pooling of a network whose own one was replaced after it was built.
    replaced: Option<String>,
}

impl Arguments {
    /// Returns those of the architecture alone.
    pub fn of(architecture: &'static Architecture) -> Arguments {
        Arguments { architecture, own: Map::new(), below: Map::new(), replaced: None }
    }

    /// Returns those of a config: the table of its `model_args`, and that of `pretrained_cfg`.
    ///
    /// # Errors
    /// Fails if there is one that may change the network in a way that bella does not know.
    pub fn of_config(
        architecture: &'static Architecture,
        own: Option<&Value>,
        pretrained: Option<&Value>,
    ) -> Result<Arguments> {
        let odd = own.filter(|own| !own.is_object());
        ensure!(odd.is_none(), "model_args = {}: must be a table of arguments", odd.unwrap_or(&Value::Null));
        let table = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        let mut below = table(pretrained);
        below.retain(|key, value| ["num_classes", "global_pool"].contains(&key.as_str()) && !value.is_null());
        let arguments = Arguments { architecture, own: table(own), below, replaced: None };
        arguments.check()?;
        Ok(arguments)
    }

    /// Returns those with which open_clip builds its tower of timm: without a projection of its own, for `classes` classes and
    /// with this pooling; otherwise without a classifier, and the pooling is replaced afterwards.
    pub fn of_open_clip(
        architecture: &'static Architecture,
        pool: &str,
        (projects, classes): (bool, i64),
    ) -> Arguments {
        let mut arguments = Arguments::of(architecture);
        arguments.own.insert("num_classes".into(), json!(classes));
        if projects {
            arguments.replaced = Some(pool.to_string()).filter(|pool| !pool.is_empty());
        } else {
            arguments.own.insert("global_pool".into(), json!(pool));
        }
        arguments
    }

    /// Returns a value; `None` where nothing has it, so that the default of the class counts.
    fn get(&self, key: &str) -> Option<&Value> {
        self.own.get(key).or(self.architecture.arguments.get(key)).or(self.below.get(key)).filter(|v| !v.is_null())
    }

    /// Returns whether `model_args` have a value.
    pub fn has_own(&self, key: &str) -> bool {
        self.own.get(key).is_some_and(|value| !value.is_null())
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_bool().with_context(|| format!("{key} = {value}: must be true or false")),
        }
    }

    fn number(&self, key: &str, default: f64) -> Result<f64> {
        let number = self.get(key).map_or(Some(default), Value::as_f64);
        number.filter(|number| *number > 0.0).with_context(|| self.odd(key, "must be a number above 0"))
    }

    /// Returns a whole number, which may be 0, or the side of a square.
    fn whole(&self, key: &str, default: i64) -> Result<i64> {
        let number = match self.get(key) {
            None => Some(default),
            Some(Value::Array(sides)) => match sides.iter().map(Value::as_i64).collect::<Vec<_>>()[..] {
                [Some(height), Some(width)] if height == width => Some(height),
                _ => None,
            },
            Some(value) => value.as_i64(),
        };
        let number = number.filter(|number| (0..1 << 24).contains(number));
        number.with_context(|| self.odd(key, "must be a whole number, or the side of a square"))
    }

    fn odd(&self, key: &str, rule: &str) -> String {
        format!("{key} = {}: {rule}", self.get(key).unwrap_or(&Value::Null))
    }

    /// Checks that there is no argument that may change the network in a way that bella does not know.
    ///
    /// # Errors
    /// Fails at the first one.
    pub fn check(&self) -> Result<()> {
        for (key, value) in &self.own {
            let known = READ.contains(&key.as_str()) || HARMLESS.contains(&key.as_str());
            let usual = self.architecture.arguments.get(key);
            let is_off = |value: &Value| value.is_null() || *value == Value::Bool(false);
            // What the architecture switches on may not be switched off either.
            let stays = usual == Some(value) || (is_off(value) && usual.is_none_or(is_off));
            ensure!(
                known || stays,
                "model_args has {key} = {value}, which changes the network in a way that bella does not know: export it with \
                 scripts/export_torchscript.py"
            );
        }
        ensure!(self.whole("in_chans", 3)? == 3, "{}", self.odd("in_chans", "bella reads images of three colours"));
        let learnt = self.get("pos_embed").is_none_or(|word| word == "learn");
        ensure!(learnt, "{}", self.odd("pos_embed", "bella computes learnt ones (\"learn\")"));
        Ok(())
    }

    pub fn heads(&self) -> Result<i64> {
        self.whole("num_heads", self.architecture.heads)
    }

    /// Returns the width, the number of blocks and the side of a patch.
    pub fn sizes(&self) -> Result<[i64; 3]> {
        let Architecture { width, blocks, patch, .. } = *self.architecture;
        Ok([self.whole("embed_dim", width)?, self.whole("depth", blocks)?, self.whole("patch_size", patch)?])
    }

    /// Returns the number of pixels per side that `model_args` state.
    pub fn image_size(&self) -> Result<Option<i64>> {
        if self.has_own("img_size") { self.whole("img_size", 0).map(Some) } else { Ok(None) }
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> Result<i64> {
        self.whole("num_classes", 1000)
    }

    pub fn activation(&self) -> Result<Activation> {
        if let Some(said) = self.own.get("act_layer") {
            return match said.as_str() {
                Some("gelu") => Ok(Activation::Gelu),
                Some("gelu_tanh") => Ok(Activation::GeluTanh),
                Some("quick_gelu" | "quickgelu") => Ok(Activation::QuickGelu),
                Some("silu" | "swish") => Ok(Activation::Silu),
                // The class has GELU where it is given none, whatever the architecture would have given.
                None if said.is_null() => Ok(Activation::Gelu),
                _ => bail!("{}", self.odd("act_layer", "known: gelu, gelu_tanh, quick_gelu, silu")),
            };
        }
        // A gate of these classes always has SiLU, and without one there is GELU.
        Ok(match (self.own.get("swiglu_mlp").and_then(Value::as_bool), self.architecture.class) {
            (Some(true), Class::Beit | Class::Eva) => Activation::Silu,
            (Some(false), Class::Beit | Class::Eva) => Activation::Gelu,
            _ => self.architecture.activation,
        })
    }

    /// Returns the pooling by which the features are read.
    ///
    /// # Errors
    /// Fails if bella does not compute it.
    pub fn pool(&self) -> Result<Pool> {
        self.pool_of(self.replaced.as_deref())
    }

    fn pool_of(&self, replaced: Option<&str>) -> Result<Pool> {
        let usual = match self.architecture.class {
            Class::Vit | Class::Distilled => "token",
            Class::Beit | Class::Eva => "avg",
        };
        let word = replaced.or(self.get("global_pool").map(|word| word.as_str().unwrap_or_default())).unwrap_or(usual);
        let pool: Pool = word
            .parse()
            .ok()
            .with_context(|| format!("global_pool = \"{word}\" is none that bella computes; known: token, avg, map"))?;
        let is_alone = pool != Pool::Map || self.front()? == 0;
        ensure!(is_alone, "global_pool = \"map\" with tokens in front of the patches is none that bella computes");
        let has_token = pool != Pool::Token || self.class_token()?;
        ensure!(has_token, "global_pool = \"token\" without a class token, which timm refuses, too");
        let has = |pools: &[Pool]| pools.contains(&pool);
        let fits = match self.architecture.class {
            Class::Distilled => has(&[Pool::Token]),
            Class::Beit => has(&[Pool::Token, Pool::Average]),
            Class::Vit | Class::Eva => true,
        };
        ensure!(fits, "global_pool = \"{word}\" is none of this class of timm");
        Ok(pool)
    }

    /// Returns the number of tokens in front of the patches.
    fn front(&self) -> Result<i64> {
        Ok(i64::from(self.class_token()?) + self.registers()?)
    }

    fn class_token(&self) -> Result<bool> {
        if self.architecture.class == Class::Beit { Ok(true) } else { self.flag("class_token", true) }
    }

    /// Returns the number of registers.
    pub fn registers(&self) -> Result<i64> {
        match self.architecture.class {
            Class::Eva => self.whole("num_reg_tokens", 0),
            Class::Beit => Ok(0),
            Class::Vit | Class::Distilled => self.whole("reg_tokens", 0),
        }
    }

    /// Returns the width of the hidden values of an MLP.
    pub fn hidden(&self) -> Result<i64> {
        let hidden = widened("mlp_ratio", self.sizes()?[0], self.number("mlp_ratio", 4.0)?)?;
        let align = match self.architecture.class {
            Class::Eva if self.flag("swiglu_mlp", false)? => self.whole("swiglu_align_to", 0)?.max(1),
            _ => 1,
        };
        Ok(if self.architecture.is_packed { hidden / 2 } else { (hidden + align - 1) / align * align })
    }

    /// Returns the rotary positions.
    ///
    /// # Errors
    /// Fails if bella does not compute them.
    pub fn rope(&self) -> Result<Option<Rope>> {
        if self.architecture.class != Class::Eva || !self.flag("use_rot_pos_emb", false)? {
            return Ok(None);
        }
        let theta = self.number("rope_temperature", 10_000.0)?;
        match self.get("rope_type").map_or(Some("cat"), Value::as_str) {
            Some("dinov3") => Ok(Some(Rope::Centred { theta })),
            Some("cat") => {
                let reference = self.whole("ref_feat_shape", 0)?;
                ensure!(reference > 0, "{}", self.odd("ref_feat_shape", "bella computes scaled rotary positions only"));
                Ok(Some(Rope::Indexed { theta, reference: reference as f64 }))
            }
            _ => bail!("{}", self.odd("rope_type", "known: cat, dinov3")),
        }
    }

    /// Returns the parameters that the network has.
    ///
    /// # Errors
    /// Fails if it has parts that bella does not compute.
    pub fn required(&self) -> Result<Required> {
        let class = self.architecture.class;
        let head: &[&str] = match (self.classes()?, class) {
            (0, _) => &[],
            (_, Class::Distilled) => &["head", "head_dist"],
            _ => &["head"],
        };
        // Norms are built for the pooling of the arguments, whatever takes its place afterwards.
        let (pool, read) = (self.pool_of(None)?, self.pool()?);
        let reads = read == Pool::Map;
        ensure!(!reads || pool == Pool::Map, "a pooling by attention cannot take the place of another one");
        ensure!(
            !reads || class != Class::Eva || self.activation()? == Activation::Gelu,
            "global_pool = \"map\" beside swiglu_mlp is none that bella computes"
        );
        let plain = Required {
            class_token: self.class_token()?,
            registers: self.registers()? > 0,
            // 0 switches it off where the class asks whether the number is true.
            layer_scale: self
                .get("init_values")
                .is_some_and(|value| value.as_f64() != Some(0.0) || class == Class::Eva),
            mean_norm: self.mean_norm(pool)?,
            pool: reads,
            projection: Projection::None,
            heads: Some(head),
            ..Required::PLAIN
        };
        match class {
            Class::Vit | Class::Distilled => self.required_of_vit(plain),
            Class::Beit | Class::Eva => self.required_of_beit(plain),
        }
    }

    /// Returns the parameters of timm's `VisionTransformer` and `VisionTransformerDistilled` besides those that all classes have.
    fn required_of_vit(&self, plain: Required) -> Result<Required> {
        let (has_bias, pre_norm) = (self.flag("qkv_bias", true)?, self.flag("pre_norm", false)?);
        Ok(Required {
            patch_bias: !pre_norm,
            pre_norm,
            distillation_token: self.architecture.class == Class::Distilled,
            qkv_bias: if has_bias { QkvBias::All } else { QkvBias::None },
            gated: self.architecture.is_packed,
            attention_norm: self.flag("scale_attn_norm", false)?,
            mlp_norm: self.flag("scale_mlp_norm", false)?,
            ..plain
        })
    }

    /// Returns the parameters of timm's `Beit` and `Eva` besides those that all classes have.
    fn required_of_beit(&self, plain: Required) -> Result<Required> {
        let class = self.architecture.class;
        let has_bias = self.flag("qkv_bias", true)?;
        let pre_norm = self.flag("use_pre_transformer_norm", false)? && class == Class::Eva;
        Ok(Required {
            patch_bias: !pre_norm,
            pre_norm,
            position: self.flag("use_abs_pos_emb", true)?,
            relative: self.flag("use_rel_pos_bias", false)? && class == Class::Beit,
            shared_relative: self.flag("use_shared_rel_pos_bias", false)? && class == Class::Beit,
            qkv_bias: if has_bias { QkvBias::Keyless } else { QkvBias::None },
            gated: self.flag("swiglu_mlp", false)?,
            attention_norm: self.flag("scale_attn_inner", false)? && class == Class::Eva,
            mlp_norm: self.flag("scale_mlp", false)?,
            ..plain
        })
    }

    /// Returns whether the last norm follows the pooling.
    fn mean_norm(&self, pool: Pool) -> Result<bool> {
        let key =
            if matches!(self.architecture.class, Class::Vit | Class::Distilled) { "fc_norm" } else { "use_fc_norm" };
        let after = self.flag(key, pool == Pool::Average)?;
        // Another one before it, or none at all, are what some arguments ask for.
        let before = self.flag("use_post_transformer_norm", !after)?;
        let last = self.flag("final_norm", true)?;
        ensure!(
            before != after && last,
            "model_args ask for {} norms behind the blocks: bella computes one",
            if before && last { 2 } else { 0 }
        );
        Ok(after)
    }
}
