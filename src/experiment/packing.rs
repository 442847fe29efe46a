//! The runs that can be trained together, as rows of one matrix (`--packed`): their passes through the network are one, so what a pass reads
//! must be the same in all of them.

use std::collections::BTreeMap;

use super::Experiment;
use crate::data::Medium;
use crate::machine::Precision;

/// The settings of `[train]` that a run follows by itself.
const OWN_OF_TRAIN: [&str; 9] =
    ["warmup_steps", "schedule", "head_rate", "layer_decay", "b_rate", "clip_norm", "ema", "select", "early_stop"];

impl Experiment {
    /// Checks that runs can be trained together.
    ///
    /// # Errors
    /// Fails with the first key that stands against it, its values, and why.
    pub fn check_packed(all: &[&Experiment]) -> Result<(), String> {
        let Some(first) = all.first() else { return Ok(()) };
        all.iter().try_for_each(|one| one.check_packable())?;
        let shared = settings(first);
        for other in &all[1..] {
            let own = settings(other);
            let differing = |key: &&String| shared.get(*key) != own.get(*key) && !may_differ(key);
            if let Some(key) = shared.keys().chain(own.keys()).find(differing) {
                let value = |of: &BTreeMap<String, String>| of.get(key).map_or("nothing", String::as_str).to_string();
                return Err(format!(
                    "{key}: is {} in one run and {} in another, and packed runs share the passes through the network: they may differ in the \
                     seed, the keys of the optimizer, those of the method but `particles`, and {} of [train]",
                    value(&shared),
                    value(&own),
                    OWN_OF_TRAIN.join(", ")
                ));
            }
        }
        if all.iter().any(|one| one.seed != first.seed) { first.check_packed_seeds() } else { Ok(()) }
    }

    /// Checks that a run can be trained together with others.
    fn check_packable(&self) -> Result<(), String> {
        let training = self.training.as_ref().ok_or("the config has nothing to train")?;
        let (method, optimizer) = (&training.method, &training.optimizer);
        if !method.spec.asks_at_theta() {
            return Err(format!(
                "method.{}: with its settings, a step asks for more than one gradient at the particles themselves, which is all that \
                 packed runs share: train the runs by themselves, or use map, ensemble or svgd (in weight space, without sharpness)",
                method.key
            ));
        }
        if optimizer.spec.gradients_of_a_step() > 0 {
            return Err(format!(
                "optimizer.{}: takes gradients beside the particles, and packed runs share those at the particles alone: choose another one",
                optimizer.key
            ));
        }
        if training.train.precision == Precision::F16 {
            let why = "scales the losses of each run by itself, and packed runs share passes: use \"bf16\" or \"f32\"";
            return Err(format!("train.precision = \"f16\": {why}"));
        }
        Ok(())
    }

    /// Checks that runs of this config with several seeds can be trained together.
    pub fn check_packed_seeds(&self) -> Result<(), String> {
        let data = &self.data;
        if matches!(data.dataset.medium(), Medium::Texts | Medium::Questions) {
            return Err(format!(
                "seed: packed runs of several seeds would need batches of equal length, and those of data.{} are as long as their longest text",
                data.key
            ));
        }
        if data.label_noise > 0.0 {
            return Err(format!(
                "data.{}.label_noise: gives each seed other numbers of training images of a class, and packed runs share the steps of an epoch",
                data.key
            ));
        }
        Ok(())
    }
}

/// Returns whether packed runs may have different values of a key.
fn may_differ(key: &str) -> bool {
    match key.split('.').collect::<Vec<_>>()[..] {
        ["seed"] | ["optimizer", ..] => true,
        ["method", _, own] => own != "particles",
        ["train", own, ..] => OWN_OF_TRAIN.contains(&own),
        _ => false,
    }
}

/// Returns all settings by key; a table without keys, such as `[method.map]`, has none of its own and is one itself.
fn settings(experiment: &Experiment) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    flatten("", &experiment.resolved(), &mut all);
    all
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) if !inner.is_empty() => flatten(&path, inner, into),
            other => drop(into.insert(path, other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pass_reads_may_not_differ() {
        for key in [
            "seed",
            "optimizer.adamw.lr",
            "optimizer.sgd.momentum",
            "method.svgd.gamma",
            "train.ema.decay",
            "train.clip_norm",
        ] {
            assert!(may_differ(key), "{key}");
        }
        let shared = [
            "name",
            "method.svgd.particles",
            "method.map",
            "subspace.low-rank.rank",
            "train.epochs",
            "train.batch_size",
            "data.digits",
        ];
        for key in shared {
            assert!(!may_differ(key), "{key}");
        }
    }
}
