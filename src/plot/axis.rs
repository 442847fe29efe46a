//! The axes of a panel: numbers with round ticks, powers of ten, or names at equal distances.

use crate::base::small::shows_zero;

/// An axis with its title. A unit in the title stands in brackets.
#[derive(Clone, Debug)]
pub struct Axis {
    pub title: String,
    pub ticks: Ticks,
}

/// The way values are placed on an axis.
#[derive(Clone, Debug)]
pub enum Ticks {
    Numbers(Scale),
    /// Powers of ten between two positive values.
    Log(f64, f64),
    /// The places 0, 1, 2, …, each with a name.
    Names(Vec<String>),
}

impl Ticks {
    /// Returns an axis that holds all values, with room for a mark above the largest. `None` if there are no values.
    pub fn around(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let (low, high) = (values.clone().reduce(f64::min)?, values.reduce(f64::max)?);
        Some(Self::Numbers(Scale::around([low, high + 0.08 * (high - low)].into_iter())))
    }

    pub fn between(low: f64, high: f64) -> Self {
        Self::Numbers(Scale::between(low, high))
    }
}

impl Axis {
    pub fn new(title: impl Into<String>, ticks: Ticks) -> Self {
        Self { title: title.into(), ticks }
    }

    /// Returns the number of named places. `None` for an axis of numbers.
    pub fn places(&self) -> Option<usize> {
        match &self.ticks {
            Ticks::Names(names) => Some(names.len()),
            _ => None,
        }
    }

    /// Returns the position of a value along the axis, from 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        match &self.ticks {
            Ticks::Numbers(scale) => scale.share(value),
            Ticks::Log(low, high) => (value / low).ln() / (high / low).ln(),
            Ticks::Names(names) => (value + 0.5) / names.len() as f64,
        }
    }

    /// Formats a value. On an axis of numbers it has one digit more than the ticks.
    pub fn value(&self, value: f64) -> String {
        match &self.ticks {
            Ticks::Numbers(scale) => scale.value(value),
            _ => compact(value),
        }
    }

    /// Returns the positions of the ticks with their labels.
    pub fn labels(&self) -> Vec<(f64, String)> {
        self.choices().swap_remove(0)
    }

    /// Returns the ticks with their labels, and after them fewer and fewer ones for an axis on which these would touch. At least two
    /// stay where there are two, and all names.
    pub fn choices(&self) -> Vec<Vec<(f64, String)>> {
        let mut choices: Vec<Vec<(f64, String)>> = match &self.ticks {
            Ticks::Numbers(scale) => {
                let every = |stride| -> Vec<(f64, String)> {
                    scale.ticks().step_by(stride).map(|tick| (tick, scale.tick(tick))).collect()
                };
                [1, 2, 3, 5].map(every).to_vec()
            }
            Ticks::Log(low, high) => log_choices(*low, *high),
            Ticks::Names(names) => vec![names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect()],
        };
        let enough = choices.iter().skip(1).take_while(|some| some.len() > 1).count();
        choices.truncate(1 + enough);
        choices
    }
}

/// Returns the ticks of a logarithmic axis with their labels, and after them fewer and fewer ones.
fn log_choices(low: f64, high: f64) -> Vec<Vec<(f64, String)>> {
    const DIGITS: [&[f64]; 4] = [&[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let ticks = |digits: &[f64], stride: usize| {
        let all = powers.clone().step_by(stride).flat_map(|power| digits.iter().map(move |digit| (*digit, power)));
        let numbers = all.filter_map(|(digit, power)| decimal(digit, power)).filter(|tick| (low..=high).contains(tick));
        numbers.map(|tick| (tick, compact(tick))).collect::<Vec<_>>()
    };
    let first = match high / low {
        wide if wide > 300.0 => 3,
        narrow if narrow < 5.0 => 0,
        _ => 1,
    };
    // Labels of many powers of ten would touch on any axis.
    let stride = if powers.clone().count() > 7 { 2 } else { 1 };
    let by_digits = DIGITS[first..].iter().map(|digits| ticks(digits, stride));
    by_digits.chain((stride + 1..stride + 4).map(|wider| ticks(DIGITS[3], wider))).collect()
}

/// Returns `digit` times a power of ten as it is written: a product would be off in the last bit, and 0.00003 have the label
/// `3.0000000000000004e-5`.
fn decimal(digit: f64, power: i32) -> Option<f64> {
    format!("{digit}e{power}").parse().ok()
}

/// Formats a number with a unit letter and at most two decimals: 230,400 becomes `230.4k`, and 0.00002 `2e-5`.
fn compact(value: f64) -> String {
    if value > 0.0 && value < 1e-3 {
        return format!("{value:e}");
    }
    [(1e9, "G"), (1e6, "M"), (1e3, "k")]
        .into_iter()
        .find(|(unit, _)| value >= *unit)
        .map_or(format!("{value}"), |(unit, letter)| format!("{}{letter}", (value / unit * 100.0).round() / 100.0))
}

/// An axis from 0 or a round number to the largest value, with round ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    pub low: f64,
    pub high: f64,
    step: f64,
}

impl Scale {
    /// Returns a scale that holds all values. It starts at 0, unless the values are so close that their differences
    /// would not be seen.
    pub fn around(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let base = if low >= 0.0 && low < 0.6 * high || high <= 0.0 && low == 0.0 { 0.0 } else { low };
        let span = if high > base { high - base } else { base.abs().max(1.0) * 0.1 };
        let step = round_step(span / 5.0);
        let low = (base / step + 1e-9).floor() * step;
        Self { low, high: high.max(low + 2.0 * step), step }
    }

    /// Returns a scale from exactly `low` to exactly `high`.
    pub fn between(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + low.abs().max(1.0) * 0.1 };
        Self { low, high, step: round_step((high - low) / 5.0) }
    }

    /// Returns the position of a value, from 0 at the low end to 1 at the high end.
    pub fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    pub fn ticks(&self) -> impl Iterator<Item = f64> {
        let first = (self.low / self.step - 1e-9).ceil();
        let count = (self.high / self.step - first + 1e-9).floor() as usize;
        (0..=count).map(move |tick| (first + tick as f64) * self.step)
    }

    fn decimals(&self) -> usize {
        (-(self.step.log10() + 1e-9).floor()).max(0.0) as usize
    }

    pub fn tick(&self, value: f64) -> String {
        format!("{value:.*}", self.decimals())
    }

    /// Formats a value with one digit more than the ticks, or by its first digit if it would be 0 so and is not.
    pub fn value(&self, value: f64) -> String {
        let text = format!("{value:.*}", self.decimals() + 1);
        if shows_zero(&text) && value.is_finite() && value != 0.0 { format!("{value:.0e}") } else { text }
    }
}

/// Returns the smallest of 1, 2, 5 or 10 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::{Axis, Ticks};

    #[test]
    fn a_value_that_is_not_0_does_not_look_like_it() {
        let axis = Axis::new("", Ticks::between(0.0, 0.5));
        assert_eq!([0.0, 0.00094, -0.0002, 0.26].map(|value| axis.value(value)), ["0.00", "9e-4", "-2e-4", "0.26"]);
    }

    #[test]
    fn ticks_of_a_logarithmic_axis_have_short_labels() {
        for power in -12..9 {
            for wide in [3.0, 20.0, 1e3] {
                let low = 10f64.powi(power);
                let labels = Axis::new("", Ticks::Log(low, wide * low)).labels();
                assert!(labels.len() > 1 && labels.iter().all(|(_, label)| label.len() < 8), "{labels:?}");
            }
        }
    }
}
