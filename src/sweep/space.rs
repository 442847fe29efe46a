//! The settings that a search tries: the grid of listed values, a part of it, or draws from ranges.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::{Result, ensure};

use crate::base::random::{Purpose, below, permutation, stream, uniform};

/// The most points of a grid.
const MOST_POINTS: usize = 1_000_000;

/// A key of the config and the values that are tried: `KEY=A,B,…`, `KEY=LOW..HIGH` or `KEY=uniform:LOW..HIGH`.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub key: String,
    pub values: Values,
}

/// The values of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Values as they are written in a config.
    Listed(Vec<String>),
    Range(Range),
}

/// Numbers that are drawn between two ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    low: f64,
    high: f64,
    spacing: Spacing,
    /// Whether numbers are rounded to whole ones, as where both ends are written as whole numbers.
    whole: bool,
}

/// The distribution over a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// The logarithm is uniform; both ends are above 0.
    Log,
    Uniform,
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Axis, String> {
        let (key, values) =
            text.split_once('=').ok_or("must be KEY=VALUE,VALUE,… or KEY=LOW..HIGH, such as train.epochs=1,2")?;
        let key = key.trim().to_string();
        if key.is_empty() {
            return Err("names no key before `=`".to_string());
        }
        Ok(Axis { key, values: Values::from_str(values.trim())? })
    }
}

impl FromStr for Values {
    type Err = String;

    fn from_str(text: &str) -> Result<Values, String> {
        if let Some(range) = Range::parse(text)? {
            return Ok(Values::Range(range));
        }
        let listed = split(text);
        if listed.iter().any(String::is_empty) {
            return Err("has an empty value; give values with commas between them".to_string());
        }
        // 1e-3 and 0.001 are one value; whole numbers may have more digits than f64.
        let number = |text: &String| text.parse::<f64>().map_or_else(|_| text.clone(), |number| number.to_string());
        let value = |text: &String| text.parse::<i128>().map_or_else(|_| number(text), |number| number.to_string());
        let distinct: BTreeSet<String> = listed.iter().map(value).collect();
        if distinct.len() < listed.len() {
            return Err("has a value twice; leave one out".to_string());
        }
        Ok(Values::Listed(listed))
    }
}

impl Range {
    /// Reads `LOW..HIGH` or `uniform:LOW..HIGH`; `None` if the text is not of this form.
    fn parse(text: &str) -> Result<Option<Range>, String> {
        let (spacing, ends) = match text.strip_prefix("uniform:") {
            Some(ends) => (Spacing::Uniform, ends),
            None => (Spacing::Log, text),
        };
        let Some((low, high)) = ends.split_once("..") else { return Ok(None) };
        let whole = [low, high].iter().all(|end| end.trim().parse::<i64>().is_ok());
        let (Ok(low), Ok(high)) = (low.trim().parse::<f64>(), high.trim().parse::<f64>()) else { return Ok(None) };
        if !(low.is_finite() && high.is_finite() && low < high) {
            return Err(format!("{ends}: must run from a lower to a higher number"));
        }
        if spacing == Spacing::Log && low <= 0.0 {
            return Err(format!(
                "{ends}: is drawn in the logarithm, so both ends must be above 0; or write uniform:{ends}"
            ));
        }
        Ok(Some(Range { low, high, spacing, whole }))
    }

    /// Returns the number at `share` in [0, 1), as it is written in a config.
    fn at(&self, share: f64) -> String {
        let value = match self.spacing {
            Spacing::Log => (self.low.ln() + share * (self.high / self.low).ln()).exp(),
            Spacing::Uniform => self.low + share * (self.high - self.low),
        };
        if self.whole {
            return format!("{}", value.round() as i64);
        }
        // Three digits can be read, and are enough for a search unless they leave fewer than a hundred numbers between the ends.
        let width = match self.spacing {
            Spacing::Log => value * (self.high / self.low).ln(),
            Spacing::Uniform => self.high - self.low,
        };
        let exponent = |number: f64| number.abs().log10().floor() as i32;
        let behind_first = exponent(value).saturating_sub(exponent(width / 100.0)).clamp(2, 15) as usize;
        let rounded: f64 = format!("{value:.behind_first$e}").parse().unwrap_or(value);
        let rounded = rounded.clamp(self.low, self.high);
        if (1e-3..1e6).contains(&rounded.abs()) { format!("{rounded:?}") } else { format!("{rounded:e}") }
    }
}

/// Splits at the commas that are not within brackets or quotes.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut quote) = (vec![String::new()], 0, None);
    for letter in text.chars() {
        match letter {
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            _ if quote == Some(letter) => quote = None,
            '[' | '{' if quote.is_none() => depth += 1,
            ']' | '}' if quote.is_none() => depth -= 1,
            ',' if quote.is_none() && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(letter);
        }
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

/// Returns the points to try, each with one value per axis: the whole grid if it has at most `budget` points, else that
/// many of them, drawn without repetition. With a range, all points are drawn.
///
/// # Errors
/// Fails if a range has no budget, if a grid has more than a million points, or if a range has too few values.
pub fn points(axes: &[Axis], budget: Option<usize>, seed: u64) -> Result<Vec<Vec<String>>> {
    let listed = |axis: &Axis| match &axis.values {
        Values::Listed(values) => Some(values.clone()),
        Values::Range(_) => None,
    };
    let Some(lists) = axes.iter().map(listed).collect::<Option<Vec<_>>>() else {
        let range = axes.iter().find(|axis| matches!(axis.values, Values::Range(_))).map_or("", |axis| &axis.key);
        let budget = budget.ok_or_else(|| {
            anyhow::anyhow!("--over {range}: numbers are drawn from a range: say how many by --budget N")
        })?;
        return drawn(axes, budget, seed);
    };
    let size = lists.iter().try_fold(1usize, |size, list| size.checked_mul(list.len()));
    let size = size.filter(|size| *size <= MOST_POINTS);
    ensure!(size.is_some(), "--over: the grid has more than {MOST_POINTS} points: list fewer values, or give ranges");
    let size = size.unwrap_or(0);
    let mut chosen: Vec<usize> = (0..size).collect();
    if let Some(budget) = budget.filter(|budget| *budget < size) {
        let order = permutation(&mut stream(seed, Purpose::Search, &[]), size);
        chosen = order[..budget].iter().map(|place| *place as usize).collect();
        chosen.sort_unstable();
    }
    Ok(chosen.into_iter().map(|place| of_grid(&lists, place)).collect())
}

/// Returns a point of the grid; the last axis changes first.
fn of_grid(lists: &[Vec<String>], mut place: usize) -> Vec<String> {
    let mut point = Vec::new();
    for list in lists.iter().rev() {
        point.push(list[place % list.len()].clone());
        place /= list.len();
    }
    point.reverse();
    point
}

/// Returns `budget` different points, each of which is a function of the seed and its number alone.
fn drawn(axes: &[Axis], budget: usize, seed: u64) -> Result<Vec<Vec<String>>> {
    let mut points: Vec<Vec<String>> = Vec::new();
    for number in 0..100 * budget as u64 {
        let mut rng = stream(seed, Purpose::Search, &[number]);
        let value = |axis: &Axis| match &axis.values {
            Values::Listed(values) => values[below(&mut rng, values.len() as u64) as usize].clone(),
            Values::Range(range) => range.at(uniform(&mut rng)),
        };
        let point: Vec<String> = axes.iter().map(value).collect();
        if !points.contains(&point) {
            points.push(point);
        }
        if points.len() == budget {
            return Ok(points);
        }
    }
    anyhow::bail!("--budget {budget}: the ranges hold only about {} different points: ask for fewer", points.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(texts: &[&str]) -> Vec<Axis> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_grid_is_whole_or_a_part_without_repetition() {
        let axes = axes(&["method.svgd.gamma=0.01, 0.1", "optimizer.adamw.lr=[1e-3,2e-3],3e-3,\"a,b\""]);
        let all = points(&axes, None, 1).unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!([&all[0][..], &all[5][..]], [["0.01", "[1e-3,2e-3]"], ["0.1", "\"a,b\""]]);
        assert_eq!(points(&axes, Some(6), 1).unwrap(), all);
        let part = points(&axes, Some(3), 1).unwrap();
        assert!(part.len() == 3 && part.iter().all(|point| all.contains(point)));
        assert_eq!(part, points(&axes, Some(3), 1).unwrap());
        let distinct: BTreeSet<Vec<Vec<String>>> = (0..20).map(|seed| points(&axes, Some(3), seed).unwrap()).collect();
        assert!(distinct.len() > 5, "seeds draw different parts");
    }

    #[test]
    fn ranges_are_drawn_within_their_ends_and_a_larger_budget_keeps_the_first_points() {
        let axes =
            axes(&["optimizer.adamw.lr=1e-5..1e-1", "subspace.low-rank.rank=1..64", "head.dropout=uniform:0..0.5"]);
        let found = points(&axes, Some(200), 7).unwrap();
        assert_eq!(points(&axes, Some(20), 7).unwrap(), found[..20]);
        let column = |at: usize| found.iter().map(|point| point[at].parse::<f64>().unwrap()).collect::<Vec<_>>();
        let (rates, ranks, shares) = (column(0), column(1), column(2));
        assert!(rates.iter().all(|rate| (1e-5..=1e-1).contains(rate)));
        // Half of the rates lie below the geometric mean of the ends: 100 ± 5 standard deviations.
        let low = rates.iter().filter(|rate| **rate < 1e-3).count();
        assert!((65..=135).contains(&low), "{low}");
        // So do half of the ranks below 8, and half of the shares below the arithmetic mean.
        let low = ranks.iter().filter(|rank| **rank < 8.0).count();
        assert!(ranks.iter().all(|rank| rank.fract() == 0.0 && (1.0..=64.0).contains(rank)));
        assert!((65..=135).contains(&low), "{low}");
        let low = shares.iter().filter(|share| **share < 0.25).count();
        assert!(shares.iter().all(|share| (0.0..=0.5).contains(share)) && (65..=135).contains(&low), "{low}");
    }

    #[test]
    fn narrow_ranges_are_drawn_evenly_and_wide_ones_in_three_digits() {
        for ends in ["uniform:0.999..0.9999", "0.999..0.9999", "uniform:100.1..100.9", "uniform:0.99..0.9999"] {
            let axes = axes(&[&format!("a={ends}")]);
            let found = points(&axes, Some(100), 7).unwrap();
            let shares: Vec<f64> = found.iter().map(|point| point[0].parse::<f64>().unwrap()).collect();
            let Values::Range(Range { low, high, .. }) = axes[0].values else { panic!("{ends} is a range") };
            assert!(shares.iter().all(|share| (low..=high).contains(share)));
            for quarter in 0..4 {
                let from = low + 0.25 * f64::from(quarter) * (high - low);
                let inside = shares.iter().filter(|share| (from..from + 0.25 * (high - low)).contains(*share)).count();
                // 25 ± 4 standard deviations.
                assert!((8..=42).contains(&inside), "{ends}, quarter {quarter}: {inside}");
            }
        }
        let at = |ends: &str, share| Range::parse(ends).unwrap().unwrap().at(share);
        assert_eq!(
            [at("1e-5..1e-1", 0.3), at("uniform:0..0.5", 0.4689), at("uniform:0..9e7", 0.0)],
            ["1.58e-4", "0.234", "0e0"]
        );
    }

    #[test]
    fn bad_axes_are_refused() {
        let refused = |text: &str| text.parse::<Axis>().unwrap_err();
        assert!(refused("gamma").starts_with("must be KEY=VALUE"));
        assert!(refused("=1").contains("no key"));
        assert!(refused("a=1,,2").contains("empty value") && refused("a=").contains("empty value"));
        for twice in ["a=1,1", "a=1e-3,0.001", "a=b,c,b"] {
            assert!(refused(twice).contains("twice"), "{twice}");
        }
        assert!(refused("a=0..1").contains("write uniform:0..1") && refused("a=2..1").contains("from a lower"));
        assert!(points(&axes(&["a=1..2"]), None, 0).unwrap_err().to_string().contains("--over a: numbers are drawn"));
        assert!(points(&axes(&["a=1..2"]), Some(5), 0).unwrap_err().to_string().contains("only about 2"));
    }
}
