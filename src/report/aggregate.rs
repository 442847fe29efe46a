//! Statistics over seeds: the mean, the standard deviation, the 95 % interval of the mean (Student's t) and the count.

use std::f64::consts::{FRAC_PI_2, PI};

use super::sources::{RowView, Sources};
use crate::base::small::grouped;
use crate::results::series::Series;

/// The number of seeds that WILDS asks for on CAMELYON17, because results on its test hospital vary that much.
pub const CAMELYON_SEEDS: usize = 10;

/// The count, mean and spread of a sample with one value per seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub count: usize,
    pub mean: f64,
    /// `None` if there is only one value.
    pub spread: Option<Spread>,
}

/// The statistics that need at least two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The standard deviation with denominator n − 1.
    pub sd: f64,
    /// Half the width of the 95 % interval: t · sd / √n.
    pub half_width: f64,
}

impl Summary {
    /// Summarises `values`. Returns `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let spread = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let sd = (squares / (count - 1) as f64).sqrt();
            Spread { sd, half_width: t_quantile(count - 1) * sd / (count as f64).sqrt() }
        });
        Some(Self { count, mean, spread })
    }

    /// Returns the ends of the 95 % interval of the mean. `None` if there is only one value.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.spread.map(|spread| (self.mean - spread.half_width, self.mean + spread.half_width))
    }
}

/// Returns the value that Student's t distribution with `degrees` ≥ 1 degrees of freedom exceeds with probability 2.5
/// %.
fn t_quantile(degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if central_probability(middle, degrees) < 0.95 { low = middle } else { high = middle }
    }
    (degrees as f64).sqrt() * low.tan()
}

/// Returns P(|T| ≤ √ν tan θ) for integer ν by the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.
fn central_probability(theta: f64, degrees: usize) -> f64 {
    let (sine, cosine) = theta.sin_cos();
    let odd = degrees % 2 == 1;
    let (mut term, mut sum) = (if odd { cosine } else { 1.0 }, 0.0);
    // The series ends with the power ν − 2 of the cosine.
    let mut power = usize::from(odd);
    while power + 2 <= degrees {
        sum += term;
        term *= (power + 1) as f64 / (power + 2) as f64 * cosine * cosine;
        power += 2;
    }
    if odd { 2.0 / PI * (theta + sine * sum) } else { sine * sum }
}

/// The test set and the condition that a result row measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub set: String,
    pub condition: String,
}

/// The rows of one series on one test set under one condition, one for each seed.
pub struct Aggregate<'a> {
    pub series: String,
    pub group: Group,
    rows: Vec<RowView<'a>>,
}

impl Aggregate<'_> {
    /// Returns the number of seeds.
    pub fn seeds(&self) -> usize {
        self.rows.len()
    }

    /// Summarises a metric over the seeds. The count may be below the number of seeds, because rows without the metric
    /// are left out; `None` if no row has it.
    pub fn summary(&self, column: &str) -> Option<Summary> {
        Summary::of(&self.rows.iter().filter_map(|row| row.number(column)).collect::<Vec<_>>())
    }

    /// Returns a line for each number of seeds, below that of all, that only some rows have metrics of `columns` for.
    pub fn shortfalls(&self, columns: &[String]) -> Vec<String> {
        let mut found: Vec<(usize, Vec<&str>)> = vec![];
        for column in columns {
            match self.summary(column).map(|summary| summary.count).filter(|count| *count < self.seeds()) {
                Some(count) => match found.iter_mut().find(|(other, _)| *other == count) {
                    Some((_, names)) => names.push(column),
                    None => found.push((count, vec![column])),
                },
                None => continue,
            }
        }
        let Group { set, condition } = &self.group;
        let line = |(count, names): (usize, Vec<&str>)| {
            format!(
                "{} ({set}, {condition}): {count} of {} seeds have {}.",
                self.series,
                self.seeds(),
                names.join(", ")
            )
        };
        found.into_iter().map(line).collect()
    }
}

/// Returns one aggregate for each series, test set and condition of the results; series come in the order of the
/// legend.
pub fn aggregates(sources: &Sources) -> Vec<Aggregate<'_>> {
    sources.series().iter().flat_map(|series| of_series(sources, series)).collect()
}

fn of_series<'a>(sources: &'a Sources, series: &Series) -> Vec<Aggregate<'a>> {
    let places = ["set", "condition"].map(|column| sources.results.index(column));
    let group = |row: &usize| {
        let [set, condition] = places.map(|place| sources.results.cell(*row, place));
        ((set, condition), RowView::new(&sources.results, *row))
    };
    let groups = grouped(series.rows.iter().map(group)).into_iter();
    let aggregate = |((set, condition), rows): ((&str, &str), _)| {
        let group = Group { set: set.into(), condition: condition.into() };
        Aggregate { series: series.name.clone(), group, rows }
    };
    groups.map(aggregate).collect()
}

/// Returns the warning shown with a result on CAMELYON17 that has fewer seeds than [`CAMELYON_SEEDS`].
pub fn seed_warning(set: &str, seeds: usize) -> Option<String> {
    let few = set.to_lowercase().contains("camelyon17") && seeds < CAMELYON_SEEDS;
    few.then(|| format!("{set}: {seeds} of the {CAMELYON_SEEDS} seeds that WILDS asks for on CAMELYON17"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy.stats.t.ppf(0.975, v) for v in (1, 2, 3, 4, 5, 9, 29, 30, 100)
    const QUANTILES: &[(usize, f64)] = &[
        (1, 12.706204736174705),
        (2, 4.302652729749464),
        (3, 3.182446305283708),
        (4, 2.776445105197793),
        (5, 2.5705818356363146),
        (9, 2.2621571628540997),
        (29, 2.045229642132703),
        (30, 2.042272456301238),
        (100, 1.983971518523552),
    ];

    #[test]
    fn quantiles_are_those_of_scipy() {
        for (degrees, expected) in QUANTILES {
            let quantile = t_quantile(*degrees);
            assert!((quantile / expected - 1.0).abs() < 1e-9, "{degrees}: {quantile}");
        }
    }

    #[test]
    fn summary_is_that_of_numpy_and_scipy() {
        // x = [0.951, 0.947, 0.962, 0.939, 0.955]; numpy.mean(x), numpy.std(x, ddof=1)
        // scipy.stats.t.interval(0.95, 4, numpy.mean(x), scipy.stats.sem(x))
        let summary = Summary::of(&[0.951, 0.947, 0.962, 0.939, 0.955]).unwrap();
        let (low, high) = summary.interval().unwrap();
        let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-12, "{value} {expected}");
        close(summary.mean, 0.9507999999999999);
        close(summary.spread.unwrap().sd, 0.008613942186943219);
        close(low, 0.9401043781038638);
        close(high, 0.9614956218961359);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[0.5]), Some(Summary { count: 1, mean: 0.5, spread: None }));
    }

    #[test]
    fn camelyon_wants_ten_seeds() {
        assert!(seed_warning("camelyon17", 9).unwrap().starts_with("camelyon17: 9 of the 10 seeds"));
        assert!(seed_warning("camelyon17", 10).is_none() && seed_warning("cifar10", 1).is_none());
    }
}
