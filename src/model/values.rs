//! The values of a config in JSON, where a key that is absent or null means a default.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::model::vit::Activation;

/// The largest values of sizes, far above those of published networks.
const MOST: [(&[&str], i64); 3] = [
    (&["num_hidden_layers", "n_layer", "n_layers", "layers", "depth"], 4096),
    (&["image_size", "img_size", "patch_size"], 16_384),
    (
        &[
            "hidden_size",
            "intermediate_size",
            "head_dim",
            "num_attention_heads",
            "num_key_value_heads",
            "projection_dim",
            "n_embd",
            "n_inner",
            "n_head",
            "dim",
            "hidden_dim",
            "n_heads",
        ],
        WIDEST,
    ),
];

/// The largest width of anything.
const WIDEST: i64 = 1 << 20;

/// The largest value of any other whole number, such as a vocabulary or a context.
const MOST_OF_OTHERS: i64 = 1 << 24;

/// The end of the names of classes of transformers that classify texts.
const CLASSIFYING: &str = "ForSequenceClassification";

/// The text as which a value of another type is read, so that no rule takes the value for a word that it knows.
const NO_TEXT: &str = "(a value that is no text)";

/// Returns whether the value of a key says something: it is not null, false or empty.
pub fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        _ => true,
    }
}

/// Checks that a size that a config states is that of the weights. `shown` names the config.
///
/// # Errors
/// Fails if it is another.
pub fn agree(shown: &str, key: &str, said: i64, found: i64) -> Result<()> {
    ensure!(said == found, "{shown} says {key} = {said}, but the weights have {found}: they are not of one model");
    Ok(())
}

/// Returns the width of hidden values, `ratio` times a width, without its fraction.
///
/// # Errors
/// Fails if it is larger than any network's.
pub fn widened(key: &str, width: i64, ratio: f64) -> Result<i64> {
    let hidden = width as f64 * ratio;
    ensure!(
        hidden <= WIDEST as f64,
        "{key} = {ratio}: its product with the width {width} must be at most {WIDEST}: no network is that large; put the \
         publisher's config there"
    );
    Ok(hidden as i64)
}

/// A table of a config.
#[derive(Clone)]
pub struct Values {
    pub path: PathBuf,
    table: Value,
}

impl Values {
    pub fn new(path: &Path, table: Value) -> Values {
        Values { path: path.to_path_buf(), table }
    }

    /// Returns the JSON itself.
    pub fn table(&self) -> &Value {
        &self.table
    }

    /// Returns the value of a key; `None` if it is absent or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.table.get(key).filter(|value| !value.is_null())
    }

    /// Returns the table of a key; one without keys if it is absent. [`expect_keys`](Self::expect_keys) refuses a value of another type.
    pub fn within(&self, key: &str) -> Values {
        Values::new(&self.path, self.get(key).cloned().unwrap_or(Value::Null))
    }

    /// Returns the table without some keys.
    pub fn without(mut self, keys: &[&str]) -> Values {
        if let Some(table) = self.table.as_object_mut() {
            table.retain(|key, _| !keys.contains(&key.as_str()));
        }
        self
    }

    /// Returns the table of a tower of transformers, `vision` or `text`. The older key counts, as it does there.
    pub fn tower(&self, which: &str) -> Values {
        let older = format!("{which}_config_dict");
        if self.get(&older).is_some() { self.within(&older) } else { self.within(&format!("{which}_config")) }
    }

    /// Returns whether there is a key, though its value may be null.
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Returns the text of a key; for a value of another type, one that no rule knows.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).map(|value| value.as_str().unwrap_or(NO_TEXT))
    }

    pub fn is_true(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool) == Some(true)
    }

    /// Returns a whole number above 0.
    ///
    /// # Errors
    /// Fails if the value is something else.
    pub fn integer(&self, key: &str, default: i64) -> Result<i64> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => match value.as_i64() {
                Some(number) if number > 0 => self.bounded(key, number),
                _ => bail!("{}: {key} = {value}: must be a whole number above 0", self.path.display()),
            },
        }
    }

    /// Returns a whole number, which may be 0.
    ///
    /// # Errors
    /// Fails if the value is something else.
    pub fn count(&self, key: &str, default: i64) -> Result<i64> {
        match self.get(key).map(Value::as_i64) {
            Some(Some(0)) => Ok(0),
            _ if default == 0 && self.get(key).is_none() => Ok(0),
            _ => self.integer(key, default),
        }
    }

    /// Returns whether a switch is on.
    ///
    /// # Errors
    /// Fails if the value is neither true nor false.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(on)) => Ok(*on),
            Some(value) => bail!("{}: {key} = {value}: must be true or false", self.path.display()),
        }
    }

    /// Checks that this is a table, or nothing, of which every key that is set is one of `known`.
    ///
    /// # Errors
    /// Fails if it is something else, and at the first other key whose value is not null, false or empty.
    pub fn expect_keys(&self, what: &str, known: &[&str]) -> Result<()> {
        let (shown, table) = (self.path.display(), &self.table);
        ensure!(
            table.is_object() || table.is_null(),
            "{shown}: {what}: is {table}: must be a table, {{\"KEY\": VALUE, …}}"
        );
        let all = self.table.as_object().into_iter().flatten();
        if let Some((key, value)) = all.into_iter().find(|(key, value)| !known.contains(&key.as_str()) && is_set(value))
        {
            bail!(
                "{}: {key} = {value}: a key that bella does not know for {what}: remove it from the file if it changes nothing",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Refuses keys that change what a network of a model type computes, where `is_set` says that their values do.
    ///
    /// # Errors
    /// Fails at the first such key.
    pub fn refuse<'k>(
        &self,
        mut keys: impl Iterator<Item = &'k &'static str>,
        is_set: impl Fn(&Value) -> bool,
        model_type: &str,
    ) -> Result<()> {
        if let Some((key, value)) = keys.find_map(|key| Some((key, self.get(key).filter(|value| is_set(value))?))) {
            bail!(
                "{}: {key} = {value}: changes what a network of model_type {model_type} computes, and bella does not compute it",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Returns a size that a network may have.
    ///
    /// # Errors
    /// Fails if it is larger than any, before something is allocated for it.
    fn bounded(&self, key: &str, number: i64) -> Result<i64> {
        let most = MOST.iter().find(|(keys, _)| keys.contains(&key)).map_or(MOST_OF_OTHERS, |(_, most)| *most);
        ensure!(
            number <= most,
            "{}: {key} = {number}: must be at most {most}: no network is that large; put the publisher's config there",
            self.path.display()
        );
        Ok(number)
    }

    /// Returns the side of a square from `224` or `[224, 224]`.
    ///
    /// # Errors
    /// Fails if the value is something else.
    pub fn side(&self, key: &str, default: i64) -> Result<i64> {
        let Some(Value::Array(sides)) = self.get(key) else { return self.integer(key, default) };
        match sides.iter().map(Value::as_i64).collect::<Vec<_>>()[..] {
            [Some(height), Some(width)] if height == width && height > 0 => self.bounded(key, height),
            _ => bail!("{}: {key}: must be the side of a square", self.path.display()),
        }
    }

    /// Returns a number above 0.
    ///
    /// # Errors
    /// Fails if the value is something else.
    pub fn number(&self, key: &str, default: f64) -> Result<f64> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => match value.as_f64() {
                Some(number) if number > 0.0 => Ok(number),
                _ => bail!("{}: {key} = {value}: must be a number above 0", self.path.display()),
            },
        }
    }

    /// Returns a number above 0, or `None` for null, which switches the bound off; an absent key means the default.
    ///
    /// # Errors
    /// Fails if the value is something else.
    pub fn bound(&self, key: &str, default: Option<f64>) -> Result<Option<f64>> {
        match self.table.get(key) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(_) => self.number(key, 1.0).map(Some),
        }
    }

    /// Returns a list of numbers above 0.
    ///
    /// # Errors
    /// Fails if the value is something else.
    pub fn numbers(&self, key: &str) -> Result<Vec<f64>> {
        let all: Vec<Option<f64>> =
            self.get(key).and_then(Value::as_array).into_iter().flatten().map(Value::as_f64).collect();
        let all: Option<Vec<f64>> = all.into_iter().map(|one| one.filter(|number| *number > 0.0)).collect();
        match all {
            Some(all) if !all.is_empty() => Ok(all),
            _ => bail!("{}: {key}: must be a list of numbers above 0", self.path.display()),
        }
    }

    /// Returns the classes of transformers that have saved the weights.
    pub fn architectures(&self) -> impl Iterator<Item = &str> {
        let all = self.get("architectures").and_then(Value::as_array);
        all.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns whether the class that has saved the weights classifies texts.
    pub fn classifies_texts(&self) -> bool {
        self.architectures().any(|class| class.ends_with(CLASSIFYING))
    }

    /// Checks that the class that saved a classifier reads a text as a whole by it.
    ///
    /// # Errors
    /// Fails at a class that reads something else, such as every token.
    pub fn expect_classifier(&self) -> Result<()> {
        let other = self.architectures().find(|class| !class.ends_with(CLASSIFYING));
        ensure!(
            other.is_none(),
            "{}: architectures has {}, whose classifier reads something else than a text as a whole; known: …{CLASSIFYING}",
            self.path.display(),
            other.unwrap_or_default()
        );
        Ok(())
    }

    /// Returns the number of classes with the key that states it: that of the names in `id2label`, else `num_labels`; transformers takes 2
    /// where there is neither.
    ///
    /// # Errors
    /// Fails if the names are no table, if the number is not a whole one above 0, or if the keys state two numbers.
    pub fn classes(&self) -> Result<(&'static str, i64)> {
        let shown = self.path.display();
        let Some(named) = self.get("id2label") else { return Ok(("num_labels", self.integer("num_labels", 2)?)) };
        let named =
            named.as_object().with_context(|| format!("{shown}: id2label = {named}: must be a table of names"))?;
        let (named, said) = (named.len() as i64, self.integer("num_labels", named.len() as i64)?);
        ensure!(said == named, "{shown}: num_labels = {said}, but id2label has {named} names: they must be as many");
        Ok(("id2label", named))
    }

    /// Returns the activation of the MLP.
    ///
    /// # Errors
    /// Fails if bella does not compute it.
    pub fn activation(&self, default: &str) -> Result<Activation> {
        // DINOv2's giant model has a gate, whose activation the config does not state.
        if self.is_true("use_swiglu_ffn") {
            return Ok(Activation::Silu);
        }
        self.activation_of("hidden_act", default)
    }

    /// Returns the activation that a key names.
    ///
    /// # Errors
    /// Fails if bella does not compute it.
    pub fn activation_of(&self, key: &str, default: &str) -> Result<Activation> {
        match self.text(key).unwrap_or(default) {
            "gelu" | "gelu_python" => Ok(Activation::Gelu),
            "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_new" | "gelu_fast" | "gelu_accurate" => {
                Ok(Activation::GeluTanh)
            }
            "quick_gelu" => Ok(Activation::QuickGelu),
            "silu" | "swish" => Ok(Activation::Silu),
            "relu" => Ok(Activation::Relu),
            "tanh" => Ok(Activation::Tanh),
            word => bail!(
                "{}: {key} = \"{word}\" is none that bella computes; known: gelu, gelu_pytorch_tanh, quick_gelu, silu, \
                 relu, tanh",
                self.path.display()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use tch::Tensor;

    use super::*;

    /// Every name of an activation computes the numbers that `ACT2FN` of transformers computes for it (scripts/make_activation_goldens.py).
    #[test]
    fn activations_are_those_of_transformers() {
        let golden: Value = serde_json::from_str(include_str!("../../tests/fixtures/activations.json")).unwrap();
        let numbers = |value: &Value| -> Vec<f64> { serde_json::from_value(value.clone()).unwrap() };
        let inputs = Tensor::from_slice(&numbers(&golden["inputs"]));
        let outputs: BTreeMap<String, Value> = serde_json::from_value(golden["outputs"].clone()).unwrap();
        let mut computed = 0;
        for (name, expected) in outputs {
            let values = Values::new(Path::new("config.json"), json!({ "hidden_act": name }));
            match values.activation("gelu") {
                Ok(activation) => {
                    let apart = (activation.apply(&inputs) - Tensor::from_slice(&numbers(&expected))).abs().max();
                    assert!(apart.double_value(&[]) < 1e-9, "{name}: {apart:?}");
                    computed += 1;
                }
                Err(why) => assert!(why.to_string().contains("is none that bella computes"), "{name}: {why}"),
            }
        }
        assert_eq!(computed, 12);
    }
}

#[cfg(test)]
pub mod testing {
    use std::collections::BTreeMap;

    use anyhow::Result;
    use serde_json::{Value, json};

    /// The keys of a family that are read or change nothing, and those with which it computes something else.
    pub struct Keys {
        pub known: Vec<&'static str>,
        pub refused: Vec<&'static str>,
    }

    /// Checks that each field of the classes in transformers (lists by model type, as JSON) is known, or refused where it has `value`, and
    /// that a key which there is not is refused.
    pub fn every_key_is_known(
        (fields, families): (&str, usize),
        value: &Value,
        keys: impl Fn(&str) -> Keys,
        error: impl Fn(&str, Value) -> String,
    ) {
        let all: BTreeMap<String, Vec<String>> = serde_json::from_str(fields).unwrap();
        assert_eq!(all.len(), families);
        for (model_type, fields) in all {
            let Keys { known, refused } = keys(&model_type);
            for field in fields {
                let of = |keys: &[&str]| usize::from(keys.contains(&field.as_str()));
                assert_eq!(of(&known) + of(&refused), 1, "{model_type}: {field}");
            }
            for key in refused {
                let found = error(&model_type, json!({ key: value }));
                assert!(found.contains(&format!("config.json: {key} = {value}: changes what")), "{found}");
            }
            let found = error(&model_type, json!({ "from_the_future": 3 }));
            assert!(found.contains("config.json: from_the_future = 3: a key that bella does not know"), "{found}");
        }
    }

    /// Returns the error of a config.
    pub fn error<T>(found: Result<T>) -> String {
        format!("{:#}", found.err().expect("a config that is refused"))
    }
}
