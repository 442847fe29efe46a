//! The table of methods: a row for each series on the clean images of each test set, and the two rows that a method has to beat: the single
//! network after temperature scaling, and the ensemble whose training costs as much as the method's. Both come from runs that exist; where there
//! is none, the row says so and a note how to get it.

use super::rendered::{NOTHING, RenderedTable};
use crate::base::small::push_new;
use crate::data::SplitName;
use crate::metrics::{self, Unit, of_column};
use crate::report::aggregate::Summary;
use crate::report::sources::{RowView, Sources, rows};
use crate::results::images::stored_name;
use crate::results::store::Table;

/// The metrics of a row, of averaged probabilities.
const METRICS: [&str; 4] = ["accuracy", "nll", "ece", "brier"];

/// The column that only seeds have whose temperature was fitted.
const SCALED: &str = "nll_ts_pm";

/// The column with the cost of a run.
const SECONDS: &str = "train_wall_seconds";

/// The largest relative difference of two costs that count as equal.
const EQUAL: f64 = 0.15;

/// The settings in which the rows of one table may be compared.
const SHARED: [&str; 4] = ["experiment", "checkpoint", "data", "set"];

/// The rows of one series on one clean test set, one for each seed.
struct Measured<'a> {
    name: String,
    rows: Vec<RowView<'a>>,
}

impl Measured<'_> {
    fn get(&self, column: &str) -> &str {
        self.rows[0].get(column)
    }

    fn summary(&self, column: &str) -> Option<Summary> {
        Summary::of(&self.rows.iter().filter_map(|row| row.number(column)).collect::<Vec<_>>())
    }

    fn seconds(&self) -> Option<f64> {
        self.summary(SECONDS).map(|summary| summary.mean).filter(|seconds| *seconds > 0.0)
    }

    fn particles(&self) -> f64 {
        self.rows[0].number("particles").unwrap_or(1.0)
    }

    /// Returns whether these are predictions of what was trained itself, by one of these methods; a merge or a soup has the method of what it
    /// was made of.
    fn is_trained_by(&self, methods: &[&str]) -> bool {
        self.get("predictive").is_empty() && methods.contains(&self.get("method"))
    }

    /// Returns the seeds whose temperature was fitted, so that every column of their row is of the same seeds; `None` if there are none.
    fn calibrated(&self) -> Option<Measured<'_>> {
        let rows: Vec<_> = self.rows.iter().filter(|row| row.number(SCALED).is_some()).copied().collect();
        (!rows.is_empty()).then(|| Measured { name: self.name.clone(), rows })
    }

    /// Returns the cells of this row under a name, with the metrics whose names `column` makes.
    fn cells(&self, name: String, column: impl Fn(&str) -> String) -> Vec<String> {
        let seeds = self.summary(&column("nll")).map_or(self.rows.len(), |summary| summary.count);
        let heads = [self.get("set").to_string(), name, seeds.to_string()];
        let numbers = METRICS.iter().map(|metric| shown(self.summary(&column(metric)), &format!("{metric}_pm")));
        let seconds = self.seconds().map_or(NOTHING.to_string(), |seconds| format!("{seconds:.1}"));
        heads.into_iter().chain(numbers).chain([seconds]).collect()
    }
}

/// Returns the table of methods; without rows unless a test set has two series.
pub fn methods(sources: &Sources) -> RenderedTable {
    let all = measured(sources);
    let mut groups: Vec<Vec<&str>> = Vec::new();
    all.iter().for_each(|one| push_new(&mut groups, SHARED.map(|column| one.get(column)).to_vec()));
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for group in groups {
        let own: Vec<&Measured> =
            all.iter().filter(|one| SHARED.map(|column| one.get(column)).to_vec() == group).collect();
        if own.len() > 1 {
            rows.extend(own.iter().map(|one| one.cells(one.name.clone(), |metric| format!("{metric}_pm"))));
            rows.extend(scaled(&own, &mut notes));
            rows.extend(own.iter().filter(|one| has_rival(one)).map(|one| equal_cost(one, &own, &mut notes)));
        }
    }
    if rows.is_empty() {
        notes.push(
            "no test set has clean results of two methods that predict classes: name the results of both".to_string(),
        );
    }
    let title = |metric: &&str| title_of(&format!("{metric}_pm"));
    let heads = ["set", "method", "seeds"].map(String::from);
    RenderedTable {
        key: "methods".into(),
        title: "Methods, beside the two that they have to beat".into(),
        caption: format!(
            "Means over seeds ± standard deviation, of averaged probabilities on clean images. An ensemble is of equal cost if its training took \
             as many seconds on the same device, within {:.0} %.",
            100.0 * EQUAL
        ),
        columns: heads.into_iter().chain(METRICS.iter().map(title)).chain(["training [s]".to_string()]).collect(),
        labels: 2,
        matched: rows.len(),
        rows,
        notes,
    }
}

/// Returns every series on every clean test set, in the order of the legend. Answers and numbers have none of the metrics, and other splits of a
/// test set are none.
fn measured(sources: &Sources) -> Vec<Measured<'_>> {
    let mut found = Vec::new();
    for series in sources.series() {
        let rows = series.rows.iter().map(|row| RowView::new(&sources.results, *row));
        let clean: Vec<RowView> = rows.filter(|row| row.is_clean() && !is_other_split(row, &sources.results)).collect();
        let mut sets = Vec::new();
        clean.iter().for_each(|row| push_new(&mut sets, row.get("set")));
        for set in sets {
            let rows = clean.iter().filter(|row| row.get("set") == set).copied().collect();
            let one = Measured { name: series.name.clone(), rows };
            if METRICS.iter().any(|metric| one.summary(&format!("{metric}_pm")).is_some()) {
                found.push(one);
            }
        }
    }
    found
}

/// Returns whether a row is of the training or validation images of a set whose test images other rows are of.
fn is_other_split(row: &RowView, results: &Table) -> bool {
    let stored = stored_name(results, "set");
    let name = row.get(stored);
    let tested = [SplitName::Train, SplitName::Val].iter().find_map(|split| name.strip_suffix(&format!("-{split}")));
    tested.is_some_and(|tested| rows(results).any(|other| other.get(stored) == tested))
}

/// Returns the rows of single networks after temperature scaling, and one that says what is missing where there is none.
fn scaled(own: &[&Measured], notes: &mut Vec<String>) -> Vec<Vec<String>> {
    let singles: Vec<&&Measured> = own.iter().filter(|one| one.is_trained_by(&["map"])).collect();
    let row = |one: &&&Measured| {
        let calibrated = one.calibrated()?;
        // A temperature changes the order of no single network's classes.
        let column = |metric: &str| match metric {
            "accuracy" => "accuracy_pm".to_string(),
            metric => format!("{metric}_ts_pm"),
        };
        if let Some(left_out) = one.rows.iter().find(|row| row.number(SCALED).is_none()) {
            let (count, all, run) = (calibrated.rows.len(), one.rows.len(), left_out.get("run"));
            let why = format!("{count} of {all} seeds are calibrated; bella eval {run} --calibrate");
            push_new(notes, format!("{}, temperature-scaled: {why}", one.name));
        }
        Some(calibrated.cells(format!("{}, temperature-scaled", one.name), column))
    };
    let rows: Vec<_> = singles.iter().filter_map(row).collect();
    if !rows.is_empty() {
        return rows;
    }
    push_new(notes, match singles.first() {
        Some(single) => format!("temperature-scaled single: missing; bella eval {} --calibrate", single.get("run")),
        None => "temperature-scaled single: missing; train with [method.map] on the same data and evaluate it with --calibrate".to_string(),
    });
    vec![missing(own[0].get("set"), "temperature-scaled single")]
}

/// Returns whether an ensemble of equal cost is asked for: for whatever is trained and is no ensemble or single network itself.
fn has_rival(one: &Measured) -> bool {
    let is_own = one.get("predictive").is_empty();
    is_own && !one.is_trained_by(&["map", "ensemble", "checkpoint", ""]) && one.seconds().is_some()
}

/// Returns the row of the ensemble that costs as much as `one`, or one that says that it is missing.
fn equal_cost(one: &Measured, own: &[&Measured], notes: &mut Vec<String>) -> Vec<String> {
    let name = format!("ensemble at the cost of {}", one.name);
    let seconds = one.seconds().unwrap_or(f64::NAN);
    let comparable = |other: &&&Measured| {
        other.is_trained_by(&["map", "ensemble"])
            && other.get("device") == one.get("device")
            && other.seconds().is_some()
    };
    let distance = |other: &Measured| (other.seconds().unwrap_or(f64::NAN) / seconds).ln().abs();
    let nearest = own.iter().filter(comparable).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    match nearest {
        Some(nearest) if distance(nearest) <= EQUAL.ln_1p() => {
            nearest.cells(format!("{name}: {}", nearest.name), |metric| format!("{metric}_pm"))
        }
        _ => {
            let way = nearest.map_or("train with [method.ensemble] on the same data".to_string(), |nearest| {
                let of_one = nearest.seconds().unwrap_or(f64::NAN) / nearest.particles();
                format!("train with method.ensemble.particles={:.0}", (seconds / of_one).max(1.0))
            });
            push_new(notes, format!("{name}: missing; {way} ({seconds:.0} s on {})", one.get("device")));
            missing(one.get("set"), &name)
        }
    }
}

fn missing(set: &str, name: &str) -> Vec<String> {
    let empty = std::iter::repeat_n(NOTHING.to_string(), METRICS.len() + 2);
    [set, name].map(String::from).into_iter().chain(empty).collect()
}

fn title_of(column: &str) -> String {
    let Some(metric) = of_column(column) else { return column.to_string() };
    format!("{}{}", metric.short, if metric.unit == Unit::Fraction { " [%]" } else { "" })
}

/// Returns the mean and the deviation of a column as text.
fn shown(summary: Option<Summary>, column: &str) -> String {
    let Some(Summary { mean, spread, .. }) = summary else { return NOTHING.to_string() };
    let is_fraction = of_column(column).is_some_and(|metric| metric.unit == Unit::Fraction);
    let (factor, decimals) = if is_fraction { (100.0, 2) } else { (1.0, 4) };
    let number = |value: f64| metrics::rounded(factor * value, decimals, factor * mean);
    spread.map_or(number(mean), |spread| format!("{} ± {}", number(mean), number(spread.sd)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::{Row, Table};

    /// A run, its method, its seconds, and further cells, which count before the usual ones.
    type Run<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn sources(rows: &[Run]) -> Sources {
        let mut results = Table::default();
        for (run, method, seconds, more) in rows {
            let mut row = Row::new();
            let cells =
                [("run", *run), ("config", *run), ("method", *method), ("subspace", "low-rank"), ("set", "digits")];
            let measured =
                [("condition", "clean"), ("device", "cpu"), ("seed", "1"), (SECONDS, *seconds), ("accuracy_pm", "0.5")];
            // Of two cells of one column the first counts.
            more.iter().copied().chain(cells).chain(measured).for_each(|(column, cell)| row.push(column, cell));
            results.append(&row);
        }
        Sources { results, ..Sources::default() }
    }

    #[test]
    fn both_rows_are_there_or_said_to_be_missing() {
        let bare = methods(&sources(&[
            ("r1", "map", "10", &[("particles", "1")]),
            ("r2", "svgd", "52", &[("particles", "5")]),
        ]));
        let names: Vec<&str> = bare.rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(bare.rows.len(), 4, "{names:?}");
        assert_eq!((names[2], bare.rows[2][4].as_str()), ("temperature-scaled single", NOTHING));
        assert!(names[3].starts_with("ensemble at the cost of "), "{names:?}");
        assert_eq!(bare.notes[0], "temperature-scaled single: missing; bella eval r1 --calibrate");
        assert!(
            bare.notes[1].contains("missing; train with method.ensemble.particles=5 (52 s on cpu)"),
            "{:?}",
            bare.notes
        );

        let scaled: &[(&str, &str)] = &[("particles", "1"), ("nll_pm", "0.9"), ("nll_ts_pm", "0.7")];
        let ensemble: &[(&str, &str)] = &[("particles", "5"), ("nll_pm", "0.6")];
        let whole = methods(&sources(&[
            ("r1", "map", "10", scaled),
            ("r2", "svgd", "52", &[]),
            ("r3", "ensemble", "48", ensemble),
        ]));
        assert!(whole.notes.is_empty(), "{:?}", whole.notes);
        let row = |part: &str| whole.rows.iter().find(|row| row[1].contains(part)).unwrap();
        assert_eq!((row("temperature-scaled")[4].as_str(), row("temperature-scaled")[3].as_str()), ("0.7000", "50.00"));
        assert_eq!((row("at the cost of")[4].as_str(), row("at the cost of")[7].as_str()), ("0.6000", "48.0"));
    }

    #[test]
    fn every_column_of_a_scaled_row_is_of_the_calibrated_seeds() {
        let of_seed = |seed, accuracy, scaled| {
            vec![("config", "single"), ("seed", seed), ("accuracy_pm", accuracy), ("nll_pm", "0.9"), (SCALED, scaled)]
        };
        let seeds = [of_seed("1", "0.5", ""), of_seed("2", "0.6", "0.7"), of_seed("3", "0.9", "")];
        let found = methods(&sources(&[
            ("r1", "map", "10", &seeds[0]),
            ("r2", "map", "20", &seeds[1]),
            ("r3", "map", "60", &seeds[2]),
            ("r4", "ensemble", "48", &[]),
        ]));
        let row = found.rows.iter().find(|row| row[1].ends_with("temperature-scaled")).unwrap();
        // Seeds, accuracy in %, NLL, ECE and Brier score, seconds.
        assert_eq!(row[2..], ["1", "60.00", "0.7000", NOTHING, NOTHING, "20.0"]);
        let said = "temperature-scaled: 1 of 3 seeds are calibrated; bella eval r1 --calibrate";
        assert!(found.notes.iter().any(|note| note.ends_with(said)), "{:?}", found.notes);
    }

    #[test]
    fn what_was_made_of_trained_networks_is_no_rival_and_has_none() {
        let single: &[(&str, &str)] = &[("particles", "1"), ("nll_ts_pm", "0.7")];
        let merged: &[(&str, &str)] =
            &[("particles", "1"), ("predictive", "merge-mean with r0"), ("nll_ts_pm", "0.1"), ("config", "r1")];
        let found = methods(&sources(&[
            ("r1", "map", "10", single),
            ("r1", "map", "52", merged),
            ("r2", "svgd", "52", &[("particles", "5")]),
            ("r2", "svgd", "52", &[("particles", "1"), ("predictive", "soup")]),
        ]));
        let names: Vec<&str> = found.rows.iter().map(|row| row[1].as_str()).collect();
        let of = |part: &str| names.iter().filter(|name| name.contains(part)).count();
        assert_eq!((of("temperature-scaled"), of("at the cost of"), names.len()), (1, 1, 6), "{names:?}");
        assert!(
            found.notes.iter().any(|note| note.contains("missing; train with method.ensemble.particles=5")),
            "{:?}",
            found.notes
        );
    }

    #[test]
    fn images_that_were_held_out_are_no_test_set() {
        let held_out: &[(&str, &str)] = &[("set", "digits-val")];
        let found = methods(&sources(&[
            ("r1", "map", "10", &[]),
            ("r2", "svgd", "52", &[]),
            ("r1", "map", "10", held_out),
            ("r2", "svgd", "52", held_out),
        ]));
        assert!(found.rows.iter().all(|row| row[0] == "digits"), "{:?}", found.rows);
        let alone = methods(&sources(&[("r1", "map", "10", held_out), ("r2", "svgd", "52", held_out)]));
        assert_eq!(alone.rows[0][0], "digits-val", "a set may have this name");
    }

    #[test]
    fn methods_that_predict_numbers_have_no_rows() {
        let number: &[(&str, &str)] = &[("rmse", "0.3")];
        let mut rows = sources(&[("r1", "map", "10", number), ("r2", "svgd", "52", number)]);
        let place = rows.results.index("accuracy_pm").unwrap();
        rows.results.rows.iter_mut().for_each(|cells| cells[place].clear());
        let found = methods(&rows);
        assert!(found.rows.is_empty() && found.notes.len() == 1, "{:?}", found.notes);
    }

    #[test]
    fn one_method_alone_is_no_comparison() {
        let alone = methods(&sources(&[("r1", "svgd", "10", &[])]));
        assert!(alone.rows.is_empty() && alone.notes[0].starts_with("no test set has clean results of two methods"));
    }
}
