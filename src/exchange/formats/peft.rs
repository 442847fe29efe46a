//! Adapters as PEFT stores them: a folder with `adapter_config.json` and `adapter_model.safetensors`, in which the layer
//! `path` has `base_model.model.<path>.lora_A.weight` `[r, in]` and `….lora_B.weight` `[out, r]`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::base::small::push_new;
use crate::base::tensor_file::State;
use crate::exchange::format::{Apart, Format, Leaves};
use crate::exchange::lora::{Lora, updates};
use crate::exchange::modules::{HeadPlace, OUT_PROJ, Part, Target, head_place};
use crate::exchange::outgoing::{HeadOf, Outgoing};
use crate::exchange::python::{Loading, Places, Source, lines};
use crate::exchange::{config, modules};
use crate::hub::ADAPTER;
use crate::model::families::{Class, LastToken, Outer};
use crate::model::network::Slot;
use crate::posterior::description::alpha;

pub static FORMAT: Format = Format {
    key: "peft",
    about: "an adapter in a folder",
    leaves: Leaves::Apart(Apart { check, write, lines: python, modules: None }),
};

/// The names of an adapter's files.
pub const CONFIG: &str = ADAPTER;
pub const WEIGHTS: &str = "adapter_model.safetensors";

/// The end of the name of a magnitude vector.
pub const LENGTHS: &str = ".lora_magnitude_vector";

/// The beginning of every tensor's name.
pub const ROOT: &str = "base_model.model.";

/// The entry of the weights' metadata that holds the SHA-256 of the checkpoint.
pub const CHECKPOINT: &str = "checkpoint_sha256";

/// An adapter as its files hold it.
#[derive(Default)]
struct Adapter {
    /// The update of each module, by the path of its tensors.
    updates: BTreeMap<String, Lora>,
    /// The paths that `target_modules` names.
    targets: Vec<String>,
}

fn check(outgoing: &Outgoing, target: &Target) -> Result<()> {
    if outgoing.session.model.base.has_quantised() {
        tracing::warn!(
            "the adapters were trained on quantised weights, and the expected logits are theirs: on the plain weights, programs compute \
             somewhat other ones"
        );
    }
    target.expect_adapters(&outgoing.session.names)
}

/// Returns the Python that loads the checkpoint by its package and puts the adapter on it.
fn python(outgoing: &Outgoing, target: &Target, places: &Places) -> Result<String> {
    let target = &target.classifying(outgoing)?;
    let at = outgoing.folder(&places.folder, 0).display().to_string();
    let loading = Loading {
        head: head_place(outgoing, target, 0)?,
        from: places.checkpoint.clone(),
        is_whole: false,
        import: "from peft import PeftModel\n",
        wrap: format!("model = PeftModel.from_pretrained(model, {at:?})\n"),
        at,
    };
    lines(outgoing, target, &loading)
}

/// Writes one model as an adapter into an existing folder.
///
/// # Errors
/// Fails if the model is no low-rank update, if its layers have no names in the target, or if a file cannot be written.
fn write(outgoing: &Outgoing, target: &Target, model: usize, folder: &Path) -> Result<()> {
    ensure!(
        outgoing.session.names.name_of("head_dist.weight").is_none(),
        "the checkpoint is a distilled DeiT with two classifiers, for which PEFT has no place in an adapter: export it by --to weights"
    );
    let target = &target.classifying(outgoing)?;
    let mut adapter = Adapter::of(outgoing, target, model)?;
    let (mut state, mut saved) = (State::default(), Vec::new());
    let mut whole = whole_layers(outgoing, target)?;
    saved.extend(whole.values().cloned());
    match head_place(outgoing, target, model)? {
        HeadPlace::Own => {}
        HeadPlace::Saved(module, HeadOf { weight, bias, .. }) => {
            state.put(&format!("{ROOT}{module}.weight"), &weight.contiguous());
            if target.decoder().is_none() {
                state.put(&format!("{ROOT}{module}.bias"), &bias);
            }
            let beside = saved_beside(target, module);
            whole.extend(beside.map(|outer| (outer.layer.to_string(), format!("{}{}", outer.prefix, outer.end))));
            saved.retain(|path| !path.ends_with(module));
            saved.push(module.to_string());
        }
        HeadPlace::Beside { .. } => outgoing.write_head(model, folder)?,
    }
    whole.iter().try_for_each(|(layer, path)| adapter.save_whole(outgoing, model, [layer, path], &mut state))?;
    for (path, Lora { a, b, magnitude, .. }) in &adapter.updates {
        state.put(&format!("{ROOT}{path}.lora_A.weight"), a);
        state.put(&format!("{ROOT}{path}.lora_B.weight"), b);
        if let Some(lengths) = magnitude {
            state.put(&format!("{ROOT}{path}{LENGTHS}"), lengths);
        }
    }
    state.describe("format", "pt".to_string());
    state.describe(CHECKPOINT, outgoing.experiment.checkpoint.sha256()?.to_string());
    state.write(&folder.join(WEIGHTS))?;
    let mut values = adapter.config(&Source::of(outgoing), &saved);
    describe_class(target, &mut values);
    config::write(&folder.join(CONFIG), &values)
}

/// Writes what the class of a model decides into an adapter's config: PEFT's word for its task, and whether its matrices are stored transposed.
fn describe_class(target: &Target, values: &mut Value) {
    if let Some((_, last_token)) = target.decoder() {
        values["task_type"] = json!(task(last_token, !values["modules_to_save"].is_null()));
    }
    values["fan_in_fan_out"] = json!(target.class.is_some_and(Class::has_turned_layers));
}

/// Returns the paths of the layers that particles train whole, by their canonical names.
fn whole_layers(outgoing: &Outgoing, target: &Target) -> Result<BTreeMap<String, String>> {
    let layout = outgoing.subspace.layout();
    let is_whole = |slot: &Slot| layout.columns.iter().any(|column| column.name == format!("{}.weight", slot.name));
    let slots = outgoing.session.model.network.slots().into_iter().filter(is_whole);
    let path = |slot: Slot| {
        let modules = modules::of(&slot, target, &outgoing.session.names, outgoing.is_gated())?;
        Ok(modules.into_iter().map(|module| (slot.name.clone(), module.path)).collect::<Vec<_>>())
    };
    Ok(slots.map(path).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Returns the layers that PEFT saves whole beside a classifier, since their names end in its name.
fn saved_beside<'t>(target: &'t Target, module: &'t str) -> impl Iterator<Item = &'static Outer> + 't {
    let around = target.class.map_or(&[][..], |class| class.around);
    around.iter().filter(move |outer| outer.end != module && outer.end.ends_with(module))
}

/// Returns PEFT's word for what a class of decoders makes of the last token. Adapters of the task `SEQ_CLS` hold a classifier.
fn task(last_token: LastToken, holds_classifier: bool) -> Option<&'static str> {
    match last_token {
        LastToken::Words => Some("CAUSAL_LM"),
        LastToken::Classes(_) => holds_classifier.then_some("SEQ_CLS"),
        LastToken::Features => Some("FEATURE_EXTRACTION"),
    }
}

/// The updates of one module.
struct Parts {
    /// The number of its outputs.
    outputs: i64,
    /// Each with the row at which it begins.
    of_rows: Vec<(i64, Lora)>,
}

impl Parts {
    /// Returns the update of the whole layer `path`.
    fn joined(self, path: &str) -> Result<Lora> {
        let update = Lora::joined(&self.of_rows, self.outputs)?;
        let whole = update.magnitude.as_ref().is_none_or(|m| m.isfinite().all().int64_value(&[]) == 1);
        ensure!(
            whole,
            "{path}: only a part of its rows has trained lengths (DoRA): export whole models by --to weights"
        );
        Ok(update)
    }
}

impl Adapter {
    fn of(outgoing: &Outgoing, target: &Target, model: usize) -> Result<Adapter> {
        outgoing.expect_low_rank()?;
        let row = outgoing.row(model).squeeze_dim(0);
        let mut parts: BTreeMap<String, Parts> = BTreeMap::new();
        let mut adapter = Adapter::default();
        for (layer, update) in updates(outgoing.subspace.layout(), &row) {
            let update = update.trimmed();
            if update.rank() == 0 {
                continue;
            }
            let slot = outgoing.slot(&layer)?;
            for module in modules::of(&slot, target, &outgoing.session.names, outgoing.is_gated())? {
                let fits = update.magnitude.is_none() || module.times == 1.0 && !module.wrapped.ends_with(".attn");
                ensure!(
                    fits,
                    "PEFT has no DoRA of {}, which its package fuses with other layers: export whole models by --to weights",
                    module.wrapped
                );
                push_new(&mut adapter.targets, module.wrapped.clone());
                let rows = slot.outputs / 3;
                let (row, outputs, part) = match module.part {
                    Part::Whole => (0, slot.outputs, update.again()),
                    Part::Third(index) => (0, rows, update.rows(index * rows, rows)),
                    Part::Half(half) => (half * slot.outputs, 2 * slot.outputs, update.again()),
                };
                let own = parts.entry(module.path).or_insert_with(|| Parts { outputs, of_rows: Vec::new() });
                own.of_rows.push((row, part.divided(module.times)));
            }
        }
        ensure!(!parts.is_empty(), "the updates of this model are all zero: there is nothing to export");
        for (path, parts) in parts {
            let update = parts.joined(&path)?;
            adapter.updates.insert(path, update);
        }
        adapter.complete_attentions(outgoing);
        Ok(adapter)
    }

    /// Puts a layer, by its canonical name and its path, into a file whole, with its update if it has one.
    fn save_whole(
        &mut self,
        outgoing: &Outgoing,
        model: usize,
        [layer, path]: [&String; 2],
        state: &mut State,
    ) -> Result<()> {
        for part in ["weight", "bias"] {
            let name = format!("{layer}.{part}");
            let frozen = || outgoing.session.model.base.value(&name);
            if let Some(value) = outgoing.value(model, &name).or_else(frozen) {
                let value = value.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
                state.put(&format!("{ROOT}{path}.{part}"), &value);
            }
        }
        self.updates.remove(path);
        self.targets.retain(|target| target != path);
        ensure!(
            !self.updates.is_empty(),
            "PEFT saves {path} whole beside a trained classifier, so no low-rank update is left: export it by --to weights"
        );
        Ok(())
    }

    /// Gives both layers of every `nn.MultiheadAttention` an update of one rank and of one alpha, since PEFT wraps it whole.
    fn complete_attentions(&mut self, outgoing: &Outgoing) {
        let width = outgoing.width();
        for path in self.targets.clone().into_iter().filter(|path| path.ends_with(".attn")) {
            let pair = [(path.clone(), 3 * width), (format!("{path}{OUT_PROJ}"), width)];
            let known: Vec<&Lora> = pair.iter().filter_map(|(path, _)| self.updates.get(path)).collect();
            let Some((rank, scale)) = known.iter().map(|update| (update.rank(), update.scale)).max_by_key(|(r, _)| *r)
            else {
                continue;
            };
            for (path, outputs) in pair {
                let none = || {
                    let zeros = |size: [i64; 2]| Tensor::zeros(size, tch::kind::FLOAT_CPU);
                    Lora { a: zeros([0, width]), b: zeros([outputs, 0]), scale, magnitude: None }
                };
                let update = self.updates.remove(&path).unwrap_or_else(none).scaled_to(scale).padded(rank);
                self.updates.insert(path, update);
            }
        }
    }

    /// Returns the content of `adapter_config.json`.
    fn config(&self, base: &Source, saved: &[String]) -> Value {
        let own = |update: &Lora| (update.rank(), alpha(update.rank(), update.scale));
        let all: Vec<(i64, f64)> = self.updates.values().map(own).collect();
        let count = |one: &(i64, f64)| all.iter().filter(|other| *other == one).count();
        let usual = all.iter().copied().max_by_key(count).unwrap_or((1, 1.0));
        let others = || {
            let differing = self.updates.iter().filter(|(_, update)| own(update) != usual);
            differing.map(|(path, update)| (path.trim_end_matches(OUT_PROJ).to_string(), own(update)))
        };
        let ranks: BTreeMap<String, Value> = others().map(|(path, (rank, _))| (path, json!(rank))).collect();
        let alphas: BTreeMap<String, Value> = others().map(|(path, (_, alpha))| (path, number(alpha))).collect();
        json!({
            "peft_type": "LORA",
            "task_type": null,
            "base_model_name_or_path": base.name(),
            "revision": base.commit(),
            "r": usual.0,
            "lora_alpha": number(usual.1),
            "lora_dropout": 0.0,
            "target_modules": self.targets,
            "modules_to_save": if saved.is_empty() { Value::Null } else { json!(saved) },
            "rank_pattern": ranks,
            "alpha_pattern": alphas,
            "bias": "none",
            "fan_in_fan_out": false,
            "init_lora_weights": true,
            "inference_mode": true,
            "use_rslora": false,
            "use_dora": self.updates.values().any(|update| update.magnitude.is_some()),
            "layers_to_transform": null,
        })
    }
}

/// Returns a whole number without a decimal point.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}
