//! The rotary positions that a config describes.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::rope::{Rope, Scaling, Yarn};
use crate::model::families::decoders::{Decoder, Positions};
use crate::model::values::Values;
use crate::schema::hint;

/// The keys that are read of a config with rotary positions.
pub const KEYS: &[&str] = &["rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"];

/// The keys of the table of rotary positions of every type.
const TABLE_KEYS: &[&str] =
    &["rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"];

/// Returns the keys that a scaling reads besides those of every type.
fn keys_of(scaling: &Scaling) -> &'static [&'static str] {
    match scaling {
        Scaling::None => &[],
        Scaling::Linear { .. } | Scaling::Dynamic => &["factor"],
        Scaling::Llama3 { .. } => &["factor", "low_freq_factor", "high_freq_factor"],
        Scaling::Yarn(_) => {
            &["factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"]
        }
        Scaling::Long { .. } => &["factor", "attention_factor", "short_factor", "long_factor"],
    }
}

/// The types of transformers 5.24 that bella computes.
const TYPES: [&str; 6] = ["default", "linear", "dynamic", "llama3", "yarn", "longrope"];

/// The reading of rotary positions.
pub struct Reading<'a> {
    pub values: &'a Values,
    pub family: &'a Decoder,
    /// The number of channels of a head.
    pub channels: i64,
    /// The most tokens of a text, by the config.
    pub context: i64,
}

/// The rotary positions of a network, and the most tokens for which they hold.
pub struct Read {
    pub ropes: Vec<Rope>,
    pub context: i64,
}

impl Reading<'_> {
    /// Returns the rotary positions: none, those of all blocks, or those of blocks that see all tokens and of blocks with a window.
    ///
    /// # Errors
    /// Fails if a value is malformed, or asks for what bella does not compute.
    pub fn all(&self) -> Result<Read> {
        let theta = self.family.usual.theta;
        let ropes = match self.family.positions {
            Positions::Learned => Vec::new(),
            Positions::Rotary | Positions::RotaryInPart => {
                let table = self.table("rope_scaling").or(self.table("rope_parameters"));
                vec![self.rope(table, "rope_theta", theta)?]
            }
            Positions::RotaryOfTwoBases { local } => self.two(theta, local)?,
        };
        let longest = ropes.iter().map(|rope| self.longest(rope)).collect::<Result<Vec<_>>>()?;
        Ok(Read { ropes, context: longest.into_iter().min().unwrap_or(self.context) })
    }

    /// Returns a table that has keys. Of the two tables, transformers 5 prefers that of version 4.
    fn table(&self, key: &str) -> Option<Values> {
        let filled = |table: &&Value| table.as_object().is_none_or(|all| !all.is_empty());
        let found = self.values.get(key).filter(filled).cloned();
        found.map(|table| Values::new(&self.values.path, table))
    }

    /// Returns the positions of blocks that see all tokens, and of blocks with a window. Only the former are scaled by `rope_scaling`.
    fn two(&self, theta: f64, local: f64) -> Result<Vec<Rope>> {
        let both = self.table("rope_parameters");
        if let Some(both) = &both {
            both.expect_keys("rotary positions of two bases", &["full_attention", "sliding_attention"])?;
        }
        let of = |layers: &str| {
            let table = both.as_ref().and_then(|both| both.get(layers)).cloned();
            table.map(|table| Values::new(&self.values.path, table))
        };
        Ok(vec![
            self.rope(self.table("rope_scaling").or(of("full_attention")), "rope_theta", theta)?,
            self.rope(of("sliding_attention"), "rope_local_base_freq", local)?,
        ])
    }

    /// Reads a table, and the base from the key of the config where the table has none.
    fn rope(&self, table: Option<Values>, key: &str, usual: f64) -> Result<Rope> {
        let theta = match &table {
            Some(table) if table.has("rope_theta") => table.number("rope_theta", usual)?,
            _ => self.values.number(key, usual)?,
        };
        let table = table.unwrap_or_else(|| Values::new(&self.values.path, Value::Null));
        let channels = self.turned(&table)?;
        let scaling = self.scaling(&table, channels)?;
        table.expect_keys("rotary positions", &[TABLE_KEYS, keys_of(&scaling)].concat())?;
        Ok(Rope { theta, scaling, channels })
    }

    /// Returns the number of channels that are turned.
    fn turned(&self, table: &Values) -> Result<i64> {
        const KEY: &str = "partial_rotary_factor";
        let shown = self.values.path.display();
        let partial = table.number(KEY, self.values.number(KEY, 1.0)?)?;
        if partial == 1.0 {
            return Ok(self.channels);
        }
        ensure!(
            self.family.positions == Positions::RotaryInPart && partial < 1.0,
            "{shown}: {KEY} = {partial}: bella turns all channels of a head of {}; known: 1",
            self.family.model_type
        );
        let turned = (self.channels as f64 * partial) as i64;
        ensure!(
            turned > 0 && turned % 2 == 0,
            "{shown}: {KEY} = {partial}: leaves {turned} of {} channels, and RoPE turns pairs of channels",
            self.channels
        );
        Ok(turned)
    }

    fn scaling(&self, table: &Values, channels: i64) -> Result<Scaling> {
        let shown = self.values.path.display();
        let number = |key: &str| {
            self.expect(table.get(key).is_some(), key)?;
            table.number(key, 1.0)
        };
        match (table.text("rope_type").or(table.text("type")).unwrap_or("default"), self.family.positions) {
            ("default", _) => Ok(Scaling::None),
            ("longrope" | "su" | "yarn", Positions::RotaryInPart) => self.long(table, channels),
            ("linear", _) => Ok(Scaling::Linear { factor: number("factor")? }),
            ("dynamic", _) => number("factor").map(|_| Scaling::Dynamic),
            ("llama3", _) => {
                let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
                ensure!(low < high, "{shown}: low_freq_factor = {low}: must be below high_freq_factor = {high}");
                Ok(Scaling::Llama3 { factor: number("factor")?, low, high, original: self.original(table)? })
            }
            ("yarn", _) => self.yarn(table),
            ("longrope", _) => self.long(table, channels),
            (word, _) => bail!(
                "{shown}: rotary positions: rope_type = \"{word}\" is none that bella computes; known: {}{}",
                TYPES.join(", "),
                hint(word, TYPES.iter().copied())
            ),
        }
    }

    /// Checks that a scaling has what it needs.
    fn expect(&self, is_there: bool, key: &str) -> Result<()> {
        let shown = self.values.path.display();
        ensure!(is_there, "{shown}: rotary positions: has no `{key}`, which this rope_type needs");
        Ok(())
    }

    /// Returns the number of tokens of the texts that the network was first trained with.
    fn original(&self, table: &Values) -> Result<f64> {
        const KEY: &str = "original_max_position_embeddings";
        // That of the whole config counts, and Phi-3 always has it.
        let usual = match self.family.positions {
            Positions::RotaryInPart => self.family.usual.context,
            _ => table.integer(KEY, self.context)?,
        };
        // transformers takes an absent key for its default, and fails at null.
        let is_null = |of: &Values| of.has(KEY) && of.get(KEY).is_none();
        self.expect(![self.values, table].into_iter().any(is_null), KEY)?;
        self.values.integer(KEY, usual).map(|tokens| tokens as f64)
    }

    fn yarn(&self, table: &Values) -> Result<Scaling> {
        let original = self.original(table)?;
        self.expect(table.has("factor"), "factor")?;
        // Null is the ratio of both lengths.
        let factor = table.number("factor", self.context as f64 / original)?;
        let grown = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
        // Zero is as good as absent here.
        let set = |key: &str, usual: f64| match table.get(key).and_then(Value::as_f64) {
            Some(0.0) => Ok(usual),
            _ => table.number(key, usual),
        };
        let usual = match (set("mscale", 0.0)?, set("mscale_all_dim", 0.0)?) {
            (own, all) if own > 0.0 && all > 0.0 => grown(own) / grown(all),
            _ => grown(1.0),
        };
        Ok(Scaling::Yarn(Yarn {
            factor,
            slow: set("beta_slow", 1.0)?,
            fast: set("beta_fast", 32.0)?,
            original,
            is_whole: table.flag("truncate", true)?,
            amplitude: table.number("attention_factor", usual)?,
        }))
    }

    fn long(&self, table: &Values, channels: i64) -> Result<Scaling> {
        let original = self.original(table)?;
        let factor = table.number("factor", self.context as f64 / original)?;
        ensure!(
            original > 1.0,
            "{}: original_max_position_embeddings = {original}: must be above 1, since longrope divides by its logarithm",
            self.values.path.display()
        );
        let usual = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() };
        let factors = table.numbers("short_factor")?;
        ensure!(
            factors.len() as i64 == channels / 2 && table.numbers("long_factor")?.len() == factors.len(),
            "{}: rotary positions: short_factor and long_factor have {} and {} numbers, but heads have {} pairs of channels",
            self.values.path.display(),
            factors.len(),
            table.numbers("long_factor")?.len(),
            channels / 2
        );
        Ok(Scaling::Long { factors, amplitude: table.number("attention_factor", usual)? })
    }

    /// Returns the most tokens for which frequencies do not depend on the length of a text.
    fn longest(&self, rope: &Rope) -> Result<i64> {
        match rope.scaling {
            Scaling::Long { .. } => {
                let table = self.table("rope_scaling").or(self.table("rope_parameters"));
                let original = table.map_or(Ok(self.context as f64), |table| self.original(&table))?;
                Ok(self.context.min(original as i64))
            }
            _ => Ok(self.context),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_str;
    use tch::Kind;

    use super::*;
    use crate::model::families::decoders::decoder;
    use crate::model::language::config::Geometry;

    /// Configs have the frequencies by which transformers' classes turn queries and keys; some are refused by these classes (scripts/make_position_goldens.py).
    #[test]
    fn positions_are_those_of_transformers() {
        let cases: Vec<Value> = from_str(include_str!("../../../tests/fixtures/positions.json")).unwrap();
        assert_eq!(cases.len(), 42);
        for case in cases {
            let family = decoder(case["model_type"].as_str().unwrap()).unwrap();
            let values = Values::new("config.json".as_ref(), case["config"].clone());
            let found = Geometry::read(&values, family);
            let Some(expected) = case["ropes"].as_array() else {
                let why = format!("{:#}", found.err().unwrap_or_else(|| panic!("computes {case}")));
                assert!(why.contains("has no `"), "{why}");
                continue;
            };
            let found = found.unwrap().ropes;
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                let frequencies: Vec<f64> = serde_json::from_value(expected["frequencies"].clone()).unwrap();
                let own = Vec::<f64>::try_from(found.frequencies().to_kind(Kind::Double)).unwrap();
                assert_eq!(own.len(), frequencies.len());
                let all = own.into_iter().zip(frequencies);
                let amplitudes = (found.amplitude(), expected["amplitude"].as_f64().unwrap());
                for (found, expected) in all.chain([amplitudes]) {
                    // At most the last bit of f32, which other processors may round otherwise.
                    assert!((found / expected - 1.0).abs() < 1.2e-7, "{found} in place of {expected}: {case}");
                }
            }
        }
    }
}
