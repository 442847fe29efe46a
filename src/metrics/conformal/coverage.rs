//! The coverage and the size of conformal sets, over all images and over parts of them, and the columns of result rows that have
//! them.

use std::collections::BTreeMap;

use anyhow::Result;

use super::calibrate::{Calibrated, check_classes};
use crate::metrics::average::{Average, UNSCALED};
use crate::metrics::metric::{Better, Column, Unit};
use crate::metrics::sample::each_sample;
use crate::predictions::Predictions;
use crate::schema::words;

/// The largest set of each stratum by size.
const SIZES: [(usize, &str); 8] = [
    (0, "0"),
    (1, "1"),
    (3, "2-3"),
    (10, "4-10"),
    (30, "11-30"),
    (100, "31-100"),
    (300, "101-300"),
    (usize::MAX, "above 300"),
];

words! {
    /// The images over which a coverage is taken.
    pub enum Part {
        All = "all",
        /// The images of one true class.
        Class = "class",
        /// The images of one group of the data set.
        Group = "group",
        /// The images whose sets have about this many classes.
        SetSize = "set-size",
    }
}

/// The sets of some of the images.
#[derive(Clone, Debug, PartialEq)]
pub struct Stratum {
    pub part: Part,
    /// The class, the group or the sizes; empty for all images.
    pub name: String,
    pub samples: usize,
    /// The share of sets that hold the true class. `None` without labels.
    pub coverage: Option<f64>,
    /// The mean number of classes of a set.
    pub mean_set_size: f64,
    /// The share of sets without any class.
    pub empty: f64,
}

/// The set of one image.
#[derive(Clone, Copy)]
struct Outcome {
    size: usize,
    covered: Option<bool>,
}

/// The sets of all images of one test set.
pub struct Coverage {
    /// All images first, then classes, groups and sizes that occur.
    pub strata: Vec<Stratum>,
}

impl Coverage {
    /// Makes the sets of all samples in one parallel pass and returns what they cover, for each of `all`. Predictions
    /// without labels have no coverage, and no strata by class.
    ///
    /// # Errors
    /// Fails if the predictions have another number of classes, or if a logit is not finite.
    pub fn measure(all: &[Calibrated], predictions: &Predictions) -> Result<Vec<Coverage>> {
        check_classes(all, predictions)?;
        let labels = predictions.labels();
        let rows = each_sample(predictions, UNSCALED, |scratch, i| {
            scratch.read(predictions, i)?;
            let ranked = Average::ALL.map(|average| scratch.ranked(average));
            let outcome = |one: &Calibrated| {
                let set = one.set(&ranked[one.average as usize], i);
                Outcome { size: set.len(), covered: labels.map(|labels| set.contains(&(labels[i] as usize))) }
            };
            Ok(all.iter().map(outcome).collect::<Vec<_>>())
        })?;
        let of = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<_>>();
        Ok((0..all.len()).map(|at| Coverage { strata: strata(&of(at), predictions) }).collect())
    }

    /// Returns the lowest coverage among the strata of one kind. `None` if there are none with a coverage.
    pub fn lowest(&self, part: Part) -> Option<f64> {
        let own = self.strata.iter().filter(|stratum| stratum.part == part);
        own.filter_map(|stratum| stratum.coverage).min_by(f64::total_cmp)
    }
}

fn strata(outcomes: &[Outcome], predictions: &Predictions) -> Vec<Stratum> {
    let all = (0..outcomes.len()).map(|_| 0).collect::<Vec<usize>>();
    let sizes: Vec<usize> =
        outcomes.iter().map(|one| SIZES.iter().position(|(most, _)| one.size <= *most).unwrap_or(0)).collect();
    let ids = |ids: Option<&[u32]>| ids.map(|ids| ids.iter().map(|id| *id as usize).collect::<Vec<_>>());
    let named = |names: &[String], id: usize| names.get(id).cloned().unwrap_or_else(|| id.to_string());
    let mut found = split(Part::All, outcomes, &all, |_| String::new());
    if let Some(labels) = ids(predictions.labels()) {
        found.extend(split(Part::Class, outcomes, &labels, |id| named(predictions.class_names(), id)));
    }
    if let Some(groups) = ids(predictions.groups()) {
        found.extend(split(Part::Group, outcomes, &groups, |id| named(predictions.group_names(), id)));
    }
    found.extend(split(Part::SetSize, outcomes, &sizes, |id| SIZES[id].1.to_string()));
    found
}

/// The sums over the images of a stratum.
#[derive(Default)]
struct Sums {
    samples: usize,
    covered: usize,
    /// The number of classes in all sets.
    classes: usize,
    empty: usize,
}

/// Returns one stratum for every id that occurs in `ids: [N]`, by rising id.
fn split(part: Part, outcomes: &[Outcome], ids: &[usize], name: impl Fn(usize) -> String) -> Vec<Stratum> {
    let mut sums = BTreeMap::<usize, Sums>::new();
    for (outcome, id) in outcomes.iter().zip(ids) {
        let of = sums.entry(*id).or_default();
        of.samples += 1;
        of.covered += usize::from(outcome.covered == Some(true));
        of.classes += outcome.size;
        of.empty += usize::from(outcome.size == 0);
    }
    let labelled = outcomes.iter().all(|one| one.covered.is_some());
    let stratum = |(id, of): (usize, Sums)| {
        let share = |count: usize| count as f64 / of.samples as f64;
        Stratum {
            part,
            name: name(id),
            samples: of.samples,
            coverage: labelled.then(|| share(of.covered)),
            mean_set_size: share(of.classes),
            empty: share(of.empty),
        }
    };
    sums.into_iter().map(stratum).collect()
}

/// Every measure with the meaning of its column.
static MEASURES: [(&str, Column); 7] = [
    measure(
        "set_coverage",
        "Coverage",
        "share of sets that hold the true class, or of intervals that hold the true number",
        Unit::Fraction,
        Better::Neither,
    ),
    measure("mean_set_size", "Set size", "mean number of classes of a set", Unit::One, Better::Lower),
    measure("mean_width", "Width", "mean width of an interval", Unit::One, Better::Lower),
    measure(
        "empty_sets",
        "Empty sets",
        "share of sets without any class, or of empty intervals",
        Unit::Fraction,
        Better::Neither,
    ),
    measure("lowest_class", "Lowest class", "lowest coverage of a class", Unit::Fraction, Better::Higher),
    measure("lowest_group", "Lowest group", "lowest coverage of a group", Unit::Fraction, Better::Higher),
    measure(
        "lowest_set_size",
        "Lowest set size",
        "lowest coverage of images with sets of about one size",
        Unit::Fraction,
        Better::Higher,
    ),
];

const fn measure(
    key: &'static str,
    short: &'static str,
    definition: &'static str,
    unit: Unit,
    better: Better,
) -> (&'static str, Column) {
    (key, Column { short, definition, unit, better })
}

/// Returns the columns of the measures with their definitions.
pub fn measures() -> impl Iterator<Item = (&'static str, &'static str)> {
    MEASURES.iter().map(|(key, column)| (*key, column.definition))
}

/// Returns the meaning of a column of measures.
pub fn of_column(column: &str) -> Option<Column> {
    MEASURES.iter().find(|(key, _)| *key == column).map(|(_, column)| *column)
}
