//! Axes of numbers with round ticks.

/// An axis from 0 or a round number to the largest value, with round ticks.
#[derive(Debug, PartialEq)]
pub struct Scale {
    pub low: f64,
    pub high: f64,
    step: f64,
}

impl Scale {
    /// From 0, unless the values are so close that the differences would not be seen.
    pub fn around(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let base = if low >= 0.0 && low < 0.6 * high || high <= 0.0 && low == 0.0 { 0.0 } else { low };
        let span = if high > base { high - base } else { base.abs().max(1.0) * 0.1 };
        let step = round_step(span / 5.0);
        let low = (base / step + 1e-9).floor() * step;
        Self { low, high: high.max(low + 2.0 * step), step }
    }

    /// From `low` to `high` and no further.
    pub fn between(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + low.abs().max(1.0) * 0.1 };
        Self { low, high, step: round_step((high - low) / 5.0) }
    }

    /// Where a value lies, from 0 at the low end to 1 at the high end.
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

    /// A value, one digit finer than the ticks.
    pub fn value(&self, value: f64) -> String {
        format!("{value:.*}", self.decimals() + 1)
    }
}

/// The smallest of 1, 2, 5, 10, … × a power of ten that is no less than `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}
