//! Axes: numbers, powers of ten, or names at equal distances.

use crate::results::picture::scale::Scale;

/// An axis with its title, the unit in brackets.
#[derive(Clone, Debug)]
pub struct Axis {
    pub title: String,
    pub ticks: Ticks,
}

/// How values lie on an axis.
#[derive(Clone, Debug)]
pub enum Ticks {
    Numbers(NumberScale),
    /// Powers of ten, between two positive values.
    Log(f64, f64),
    /// Places 0, 1, 2, …, named.
    Names(Vec<String>),
}

/// Low and high end of an axis of numbers.
#[derive(Clone, Copy, Debug)]
pub enum NumberScale {
    /// Exactly from here to there.
    Between(f64, f64),
    /// Around values from here to there: from 0 or a round number.
    Around(f64, f64),
}

impl Ticks {
    /// Around all values; `None` where there are none.
    pub fn around(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let (low, high) = (values.clone().reduce(f64::min)?, values.reduce(f64::max)?);
        // Room for a mark above the largest value.
        Some(Self::Numbers(NumberScale::Around(low, high + 0.08 * (high - low))))
    }

    pub fn between(low: f64, high: f64) -> Self {
        Self::Numbers(NumberScale::Between(low, high))
    }
}

impl NumberScale {
    fn scale(self) -> Scale {
        match self {
            Self::Between(low, high) => Scale::between(low, high),
            Self::Around(low, high) => Scale::around([low, high].into_iter()),
        }
    }
}

impl Axis {
    pub fn new(title: impl Into<String>, ticks: Ticks) -> Self {
        Self { title: title.into(), ticks }
    }

    /// Where a value lies, from 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        match &self.ticks {
            Ticks::Numbers(numbers) => numbers.scale().share(value),
            Ticks::Log(low, high) => (value / low).ln() / (high / low).ln(),
            Ticks::Names(names) => (value + 0.5) / names.len() as f64,
        }
    }

    /// Places with their labels.
    pub fn labels(&self) -> Vec<(f64, String)> {
        match &self.ticks {
            Ticks::Numbers(numbers) => {
                let scale = numbers.scale();
                scale.ticks().map(|tick| (tick, scale.tick(tick))).collect()
            }
            Ticks::Log(low, high) => {
                let digits = if high / low > 300.0 { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
                let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
                let ticks = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
                ticks.filter(|tick| (*low..=*high).contains(tick)).map(|tick| (tick, compact(tick))).collect()
            }
            Ticks::Names(names) => names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
        }
    }
}

/// 230,400 as `230k`: as many digits as an axis needs.
fn compact(value: f64) -> String {
    [(1e9, "G"), (1e6, "M"), (1e3, "k")]
        .into_iter()
        .find(|(unit, _)| value >= *unit)
        .map_or(format!("{value}"), |(unit, letter)| format!("{}{letter}", (value / unit * 100.0).round() / 100.0))
}
