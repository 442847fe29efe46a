//! Ranges of numbers and the texts by which messages state them.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::node::Value;

/// The requirement on a number: its kind and its limits (empty if there are none).
pub struct Rule {
    kind: &'static str,
    limits: String,
}

impl Rule {
    /// Returns the rule as stated in a message about a missing value: "a whole number, at least 2".
    pub fn full(&self) -> String {
        match self.limits.as_str() {
            "" => self.kind.to_owned(),
            limits if limits.starts_with("from") => format!("{} {limits}", self.kind),
            limits => format!("{}, {limits}", self.kind),
        }
    }

    /// Returns the rule as stated in a message about a value of another kind.
    pub fn must_be(&self) -> String {
        format!("must be {}", self.full())
    }

    /// Returns the rule as stated in a message about a value beyond the limits.
    pub fn must_fit(&self) -> String {
        match self.limits.as_str() {
            limits if limits.is_empty() || limits.starts_with("from") => self.must_be(),
            limits => format!("must be {limits}"),
        }
    }
}

/// Returns the rule "a whole number within `range`" for a type whose values reach from `least` to `most`.
pub fn range_rule<T: Display + PartialEq>(range: &RangeInclusive<T>, least: T, most: T) -> Rule {
    let (low, high) = (range.start(), range.end());
    let limits = match (*low == least, *high == most) {
        (true, true) if least.to_string() == "0" => "at least 0".to_owned(),
        (true, true) => String::new(),
        (false, true) => format!("at least {low}"),
        (true, false) if least.to_string() != "0" => format!("at most {high}"),
        _ => format!("from {low} to {high}"),
    };
    Rule { kind: "a whole number", limits }
}

/// The limits of a real number. NaN and infinity are never within them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    Any,
    /// x ≥ the limit.
    AtLeast(f64),
    /// x > the limit.
    Above(f64),
    /// Both limits are included.
    Between(f64, f64),
    /// The first limit is included and the second is not.
    FromBelow(f64, f64),
}

impl Bounds {
    fn contains(self, x: f64) -> bool {
        match self {
            Bounds::Any => true,
            Bounds::AtLeast(limit) => x >= limit,
            Bounds::Above(limit) => x > limit,
            Bounds::Between(low, high) => low <= x && x <= high,
            Bounds::FromBelow(low, high) => low <= x && x < high,
        }
    }

    pub fn rule(self) -> Rule {
        let limits = match self {
            Bounds::Any => String::new(),
            Bounds::AtLeast(limit) => format!("at least {limit}"),
            Bounds::Above(limit) => format!("above {limit}"),
            Bounds::Between(low, high) => format!("from {low} to {high}"),
            Bounds::FromBelow(low, high) => format!("at least {low} and below {high}"),
        };
        Rule { kind: "a number", limits }
    }

    pub fn check(self, value: &Value) -> Result<f64, String> {
        let x = match value {
            Value::Float(x) => *x,
            // The conversion is exact up to 2^53, far beyond any setting.
            Value::Integer(i) => *i as f64,
            _ => return Err(self.rule().must_be()),
        };
        if !x.is_finite() {
            Err("must be a finite number".to_owned())
        } else if !self.contains(x) {
            Err(self.rule().must_fit())
        } else {
            Ok(x)
        }
    }
}

/// The limits of real numbers by their names.
pub mod limits {
    use super::Bounds;

    /// Returns the rule that allows any finite number.
    pub fn any() -> Bounds {
        Bounds::Any
    }

    /// Returns the rule x ≥ `limit`.
    pub fn at_least(limit: f64) -> Bounds {
        Bounds::AtLeast(limit)
    }

    /// Returns the rule x > `limit`.
    pub fn above(limit: f64) -> Bounds {
        Bounds::Above(limit)
    }

    /// Returns the rule `low` ≤ x ≤ `high`.
    pub fn between(low: f64, high: f64) -> Bounds {
        Bounds::Between(low, high)
    }

    /// Returns the rule `low` ≤ x < `high`.
    pub fn from_below(low: f64, high: f64) -> Bounds {
        Bounds::FromBelow(low, high)
    }
}
