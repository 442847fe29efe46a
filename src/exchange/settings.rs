//! Reads `adapter_config.json`: it tells the kind of an adapter and the factors of its updates.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use regex::Regex;
use serde_json::Value;

use super::config;
use super::formats::peft::CONFIG;
use crate::model::values::is_set;

/// The settings of an adapter by LoRA or DoRA.
pub struct Settings {
    values: Value,
    ranks: Patterns,
    alphas: Patterns,
}

impl Settings {
    /// Reads the settings of the adapter in a folder.
    ///
    /// # Errors
    /// Fails if there are none, or if bella does not compute such adapters.
    pub fn read(folder: &Path) -> Result<Settings> {
        let values = config::of_file(&folder.join(CONFIG))?;
        let shown = || folder.display().to_string();
        check_kind(&values).with_context(shown)?;
        let patterns = |table| Patterns::of(&values, table).with_context(shown);
        Ok(Settings { ranks: patterns("rank_pattern")?, alphas: patterns("alpha_pattern")?, values })
    }

    /// Returns the factor s of a module: α / r, or α / √r (rsLoRA; Kalajdzievski 2023, arXiv 2312.03732).
    pub fn scale(&self, path: &str, rank: i64) -> Result<f64> {
        let said = self.ranks.of_module(path)?.map_or_else(|| self.values["r"].as_i64(), |v| v.as_i64());
        let said = said.context("its config has no rank `r`")?;
        ensure!(said == rank, "{path} has rank {rank}, but its config says {said}");
        let alpha = self.alphas.of_module(path)?;
        let alpha = alpha.map_or_else(|| self.values["lora_alpha"].as_f64(), |value| value.as_f64());
        let alpha = alpha.context("its config has no number `lora_alpha`")?;
        ensure!(alpha.is_finite(), "its lora_alpha = {alpha}: must be a finite number");
        let by_root = self.values["use_rslora"].as_bool() == Some(true);
        Ok(if by_root { alpha / (rank as f64).sqrt() } else { alpha / rank as f64 })
    }

    /// Checks that a classifier of the adapter reads a text as a whole.
    ///
    /// # Errors
    /// Fails if the adapter's task is one of every token.
    pub fn expect_texts(&self) -> Result<()> {
        let task = self.values["task_type"].as_str().unwrap_or_default();
        ensure!(
            !OF_TOKENS.contains(&task),
            "{CONFIG}: task_type = \"{task}\": its classifier reads every token, and those of bella read a text as a whole"
        );
        Ok(())
    }

    /// Returns whether the rows of W_0 + ΔW have trained lengths (Liu et al. 2024, arXiv 2402.09353).
    pub fn uses_dora(&self) -> bool {
        self.values["use_dora"].as_bool() == Some(true)
    }
}

/// A table with a value for each of some layers: regular expressions that fit the path of a module or the end of it after a dot, as in PEFT's
/// `get_pattern_key`.
struct Patterns {
    table: &'static str,
    all: Vec<(Regex, Value)>,
}

impl Patterns {
    fn of(values: &Value, table: &'static str) -> Result<Patterns> {
        let one = |(key, value): (&String, &Value)| {
            let pattern = Regex::new(&format!(r"^(?:.*\.)?(?:{key})$"));
            let pattern = pattern.map_err(|why| {
                let why = why.to_string();
                let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                anyhow!(
                    "{CONFIG}: {table} has the regular expression `{key}`, which bella does not read ({why}): write the layers' full paths"
                )
            })?;
            Ok((pattern, value.clone()))
        };
        let all = values[table].as_object().into_iter().flatten().map(one).collect::<Result<_>>()?;
        Ok(Patterns { table, all })
    }

    /// Returns the value for a module. The first pattern that fits counts in PEFT; here all that fit must say the same, since JSON gives the
    /// entries of a table no order.
    fn of_module(&self, path: &str) -> Result<Option<&Value>> {
        let mut fitting = self.all.iter().filter(|(pattern, _)| pattern.is_match(path)).map(|(_, value)| value);
        let first = fitting.next();
        ensure!(
            fitting.all(|other| first == Some(other)),
            "{CONFIG}: {} has several values for {path}: write the layers' full paths",
            self.table
        );
        Ok(first)
    }
}

/// The settings that this file reads.
const READ: [&str; 8] =
    ["peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "init_lora_weights"];

/// The settings that change nothing in a trained adapter: its tensors say which layers it updates and whether biases were trained with
/// them, and the start of the factors says how they were made.
const HARMLESS: [&str; 24] = [
    "task_type",
    "peft_version",
    "auto_mapping",
    "bias",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "target_modules",
    "exclude_modules",
    "lora_dropout",
    "modules_to_save",
    "layers_to_transform",
    "layers_pattern",
    "megatron_config",
    "megatron_core",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "qalora_group_size",
    "ensure_weight_tying",
    "runtime_config",
    "ephemeral_gpu_offload",
    // The layout of the weights that PEFT merges into.
    "fan_in_fan_out",
];

/// PEFT's words for tasks whose classifiers read every token.
const OF_TOKENS: [&str; 2] = ["TOKEN_CLS", "QUESTION_ANS"];

/// The starts of PEFT 0.21 with which an adapter is an update of the checkpoint itself.
const STARTS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];

/// The way out for an adapter that is more than LoRA or DoRA of linear layers in blocks.
pub const MERGE: &str = "merge the adapter with PEFT's merge_and_unload, and import the model";

/// Checks that the config is that of an adapter by LoRA or DoRA.
fn check_kind(config: &Value) -> Result<()> {
    let kind = config["peft_type"].as_str().unwrap_or("none");
    ensure!(
        kind == "LORA",
        "{CONFIG}: peft_type = {kind}: bella reads \"LORA\" alone; where PEFT can merge this kind, {MERGE}"
    );
    let known = |key: &str| READ.contains(&key) || HARMLESS.contains(&key);
    let other = config.as_object().and_then(|all| all.iter().find(|(key, value)| !known(key) && is_set(value)));
    if let Some((key, value)) = other {
        bail!("{CONFIG}: {key} = {value}: a setting that bella does not compute: it reads LoRA and DoRA; {MERGE}");
    }
    check_start(config)
}

/// Checks that the adapter was trained on the checkpoint itself.
fn check_start(config: &Value) -> Result<()> {
    let start = match &config["init_lora_weights"] {
        Value::Null | Value::Bool(_) => return Ok(()),
        Value::String(start) => start.to_lowercase(),
        other => bail!("init_lora_weights = {other}: must be a word or a truth value"),
    };
    ensure!(
        STARTS.contains(&start.as_str()),
        "init_lora_weights = \"{start}\" has also changed the base, or is unknown; known: true, false, {}: convert the adapter \
         to plain LoRA (PEFT's path_initial_model_for_weight_conversion)",
        STARTS.join(", ")
    );
    Ok(())
}
