//! Tables of the contents of a results folder without published numbers: all result rows, all out-of-distribution rows,
//! and the aggregates over seeds.

use std::collections::HashMap;

use anyhow::Result;

use super::rendered::RenderedTable;
use crate::base::outside::csv_cell;
use crate::base::small::{grouped, push_new};
use crate::metrics::{self, Average, Shown, Unit};
use crate::report::aggregate::{Aggregate, Summary, aggregates, seed_warning};
use crate::report::sources::Sources;
use crate::results::store::Table;
use crate::results::table::texts;

/// The columns that name a result row in tables. The settings that distinguish rows stand between the two parts.
const NAMES: [&[&str]; 2] =
    [&["file", "checkpoint", "subspace", "method", "particles", "rank"], &["predictive", "seed", "set", "condition"]];

/// The columns with the cost of a result, shown after its metrics.
const COSTS: &[&str] = &["trainable_parameters", "train_wall_seconds"];

/// The columns that say of which model a row is, and on which set, in tables of detection and of conformal sets.
const WHO: [&str; 8] = ["checkpoint", "subspace", "method", "particles", "rank", "predictive", "seed", "set"];

/// The columns of the table of out-of-distribution detection behind those of the model.
const OOD_COLUMNS: &[&str] =
    &["ood_set", "score", "average", "auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"];

/// Returns the columns shown for result rows: names, the metrics that are marked for tables, and costs. A setting such
/// as `svgd.gamma` is shown if rows that are otherwise alike differ in it.
pub fn result_columns(table: &Table) -> Vec<String> {
    let places = table.places(telling_names());
    let names = |row: usize| places.iter().map(|place| table.cell(row, *place)).collect::<Vec<_>>();
    let alike = grouped((0..table.rows.len()).map(|row| (names(row), row)));
    let tells = |column: &&String| {
        let place = table.index(column);
        let differ = |rows: &[usize]| rows.iter().any(|row| table.cell(*row, place) != table.cell(rows[0], place));
        column.contains('.') && alike.iter().any(|(_, rows)| differ(rows))
    };
    let settings: Vec<String> = table.columns.iter().filter(tells).cloned().collect();
    let mut telling: Vec<&str> = telling_names().collect();
    telling.extend(settings.iter().map(String::as_str));
    let run = runs_look_alike(table, &telling).then(|| "run".to_string());
    let [before, after, costs] = [NAMES[0], NAMES[1], COSTS].map(|names| names.iter().map(|name| name.to_string()));
    let metrics = metric_columns(table, |shown| shown.tables);
    before.chain(settings).chain(run).chain(after).chain(metrics).chain(costs).collect()
}

/// Returns the columns of the metrics that readers of a table's rows look for: those by which results on its sets are
/// published, those for which `chosen` names an average, and those of answers and of numbers that the table has.
pub fn metric_columns(table: &Table, chosen: fn(&Shown) -> &'static [Average]) -> Vec<String> {
    let sets = table.index("set");
    let named = |set: &str| (0..table.rows.len()).any(|row| table.cell(row, sets) == set);
    let mut columns = metrics::columns_of_sets(&named);
    metrics::columns_where(chosen).into_iter().for_each(|column| push_new(&mut columns, column));
    let own = metrics::answers::columns().into_iter().chain(metrics::numbers::shown_columns());
    columns.extend(own.filter(|column| table.index(column).is_some()).map(String::from));
    columns
}

/// Returns the columns that name a result, without the file that its predictions come from.
fn telling_names() -> impl Iterator<Item = &'static str> {
    NAMES.concat().into_iter().filter(|name| *name != "file")
}

/// Returns whether two runs have rows that are equal in all `columns`.
fn runs_look_alike(table: &Table, columns: &[&str]) -> bool {
    let (run, places) = (table.index("run"), table.places(columns.iter().copied()));
    let mut runs: HashMap<Vec<&str>, &str> = HashMap::new();
    (0..table.rows.len()).any(|row| {
        let of = table.cell(row, run);
        let cells = places.iter().map(|place| table.cell(row, *place)).collect();
        *runs.entry(cells).or_insert(of) != of
    })
}

/// Returns the table of all result rows.
pub fn results(sources: &Sources) -> RenderedTable {
    plain(
        "results",
        "Results of this folder",
        &format!("One row per run, test set and condition. {}", Average::legend()),
        &sources.results,
        &result_columns(&sources.results),
    )
}

/// Returns the table of all out-of-distribution rows.
pub fn ood(sources: &Sources) -> RenderedTable {
    let caption = format!(
        "One row per run, out-of-distribution set, score and average. {} Definitions and orientation: column `definition` of \
         the files.",
        Average::legend()
    );
    let columns = ood_columns(&sources.ood);
    plain("ood", "Out-of-distribution detection in this folder", &caption, &sources.ood, &columns)
}

/// Returns the columns shown for rows of out-of-distribution detection.
pub fn ood_columns(_: &Table) -> Vec<String> {
    let own = ["file", "ood_file"].iter().chain(&WHO).chain(OOD_COLUMNS);
    own.map(|column| column.to_string()).collect()
}

/// The columns of the table of conformal sets between those of the model and the measures.
const CONFORMAL_COLUMNS: &[&str] = &["condition", "alpha", "score", "settings", "thresholds", "draw", "average"];

/// Returns the table of conformal sets over all images of a test set.
pub fn conformal(sources: &Sources) -> RenderedTable {
    let table = of_all_images(&sources.conformal);
    let columns = conformal_columns(&table);
    let caption = format!(
        "Sets of classes, or intervals of numbers, that hold the true one with probability 1 - alpha for images like the calibration images: one \
         row per run, test set, condition, score and average, over all images; the files have them by class, group and \
         size of set, too. {}",
        Average::legend()
    );
    plain("conformal", "Conformal sets in this folder", &caption, &table, &columns)
}

/// Returns the columns shown for rows of conformal sets.
pub fn conformal_columns(_: &Table) -> Vec<String> {
    let measures = metrics::conformal::measures().map(|(key, _)| key);
    let own = ["file"].iter().chain(&WHO).chain(CONFORMAL_COLUMNS).copied();
    own.chain(measures).map(String::from).collect()
}

/// Returns the rows of conformal sets that are not of a part of the images.
pub fn of_all_images(table: &Table) -> Table {
    let part = table.index("part");
    let is_whole = |row: &&Vec<String>| part.is_none_or(|part| row[part] == "all");
    Table { columns: table.columns.clone(), rows: table.rows.iter().filter(is_whole).cloned().collect() }
}

fn plain(key: &str, title: &str, caption: &str, table: &Table, columns: &[String]) -> RenderedTable {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let texts = texts(table, &columns);
    let first_number = texts.titles.iter().position(|title| title == "auroc").unwrap_or(texts.labels);
    let labels = texts.labels.min(first_number);
    RenderedTable { labels, ..RenderedTable::of_texts(key, title, caption, texts) }
}

/// Returns the table of each series and condition over seeds: mean ± standard deviation and the 95 % interval.
pub fn seeds(sources: &Sources) -> RenderedTable {
    let aggregates = aggregates(sources);
    let mut columns = metric_columns(&sources.results, |shown| shown.seeds);
    columns.retain(|metric| aggregates.iter().any(|one| one.summary(metric).is_some()));
    let title = |column: &String| match is_fraction(column) {
        true => format!("{column} [%]"),
        false => column.to_string(),
    };
    let heads = ["series", "set", "condition", "seeds"].map(String::from);
    RenderedTable {
        key: "seeds".into(),
        title: "Results over seeds".into(),
        caption: format!(
            "Mean ± standard deviation (n − 1) and the 95 % interval of the mean (Student's t). {}",
            Average::legend()
        ),
        columns: heads.into_iter().chain(columns.iter().map(title)).collect(),
        labels: 3,
        rows: aggregates.iter().map(|one| seed_row(one, &columns)).collect(),
        notes: seed_notes(&aggregates, &columns),
        matched: aggregates.len(),
    }
}

fn seed_row(one: &Aggregate, columns: &[String]) -> Vec<String> {
    let heads = [one.series.clone(), one.group.set.clone(), one.group.condition.clone(), one.seeds().to_string()];
    let cell =
        |column: &String| one.summary(column).map_or(String::new(), |summary| show(&summary, is_fraction(column)));
    heads.into_iter().chain(columns.iter().map(cell)).collect()
}

/// Returns the mean, standard deviation and 95 % interval, such as `68.37 ± 0.22 [66.40, 70.33]`.
fn show(summary: &Summary, percent: bool) -> String {
    let number = |value: f64| match percent {
        true => metrics::rounded(100.0 * value, 2, 100.0 * summary.mean),
        false => metrics::rounded(value, 4, summary.mean),
    };
    match (summary.spread, summary.interval()) {
        (Some(spread), Some((low, high))) => {
            let [mean, sd, low, high] = [summary.mean, spread.sd, low, high].map(number);
            format!("{mean} ± {sd} [{low}, {high}]")
        }
        _ => number(summary.mean),
    }
}

/// Returns what must be known of the means over seeds of `columns`: that there are too few seeds, or that some have no such metric.
pub fn seed_notes(aggregates: &[Aggregate], columns: &[String]) -> Vec<String> {
    warnings(aggregates).into_iter().chain(aggregates.iter().flat_map(|one| one.shortfalls(columns))).collect()
}

fn warnings(aggregates: &[Aggregate]) -> Vec<String> {
    let mut warnings = vec![];
    for one in aggregates {
        let warning = seed_warning(&one.group.set, one.seeds()).map(|text| format!("Warning: {}, {text}.", one.series));
        warnings.extend(warning.filter(|text| !warnings.contains(text)).into_iter().collect::<Vec<_>>());
    }
    warnings
}

/// Returns the aggregates over seeds as CSV, with one line per series, condition and metric, in the units of the
/// results files.
pub fn seeds_csv(sources: &Sources) -> Result<String> {
    let mut csv = csv::Writer::from_writer(vec![]);
    csv.write_record(["series", "set", "condition", "metric", "n", "mean", "sd", "low_95", "high_95"])?;
    let columns: Vec<&String> =
        sources.results.columns.iter().filter(|name| metrics::of_column(name).is_some()).collect();
    for one in aggregates(sources) {
        for column in &columns {
            let Some(summary) = one.summary(column) else { continue };
            let spread =
                [summary.spread.map(|s| s.sd), summary.interval().map(|i| i.0), summary.interval().map(|i| i.1)];
            let names =
                [&one.series, &one.group.set, &one.group.condition, *column].map(|name| csv_cell(name).into_owned());
            let numbers = [summary.count.to_string(), summary.mean.to_string()];
            let spread = spread.map(|value| value.map_or(String::new(), |value| value.to_string()));
            csv.write_record(names.into_iter().chain(numbers).chain(spread))?;
        }
    }
    Ok(String::from_utf8(csv.into_inner().map_err(|error| error.into_error())?)?)
}

fn is_fraction(column: &str) -> bool {
    metrics::of_column(column).is_some_and(|metric| metric.unit == Unit::Fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::Row;

    #[test]
    fn settings_are_shown_where_rows_would_look_alike() {
        let mut table = Table::default();
        for (method, gamma, lr) in [("svgd", "0.01", "1e-3"), ("svgd", "0.3", "1e-3"), ("map", "", "1e-4")] {
            let mut row = Row::new();
            let cells = [("method", method), ("seed", "1"), ("svgd.gamma", gamma), ("adamw.lr", lr)];
            cells.into_iter().for_each(|(column, cell)| row.push(column, cell));
            table.append(&row);
        }
        assert_eq!(result_columns(&table)[5..8], ["rank", "svgd.gamma", "predictive"]);
        table.rows.remove(1);
        let expected = "file checkpoint subspace method particles rank predictive seed set condition accuracy_lm nll_lm ece_lm \
                        mi_correct_lm mi_wrong_lm auroc_mi_error_lm accuracy_pm nll_pm brier_pm ece_pm \
                        trainable_parameters train_wall_seconds";
        assert_eq!(result_columns(&table).join(" "), expected);
    }

    #[test]
    fn rows_over_seeds_have_the_metrics_of_their_sets() {
        let mut table = Table::default();
        for (set, column) in [("glue-cola", "matthews_lm"), ("toy-vqa", "vqa_accuracy")] {
            for seed in ["1", "2"] {
                let mut row = Row::new();
                let cells = [("run", seed), ("config", set), ("method", "map"), ("seed", seed), ("set", set)];
                let measured = [("condition", "clean"), (column, "0.5")];
                cells.into_iter().chain(measured).for_each(|(column, cell)| row.push(column, cell));
                table.append(&row);
            }
        }
        let found = seeds(&Sources { results: table, ..Sources::default() });
        assert_eq!(found.columns[4..], ["matthews_lm", "vqa_accuracy [%]"]);
    }

    #[test]
    fn runs_are_shown_where_nothing_else_tells_them_apart() {
        let mut table = Table::default();
        for (run, set) in [("r1", "digits"), ("r2", "digits")] {
            let mut row = Row::new();
            [("run", run), ("set", set)].into_iter().for_each(|(column, cell)| row.push(column, cell));
            table.append(&row);
        }
        assert!(result_columns(&table).iter().any(|column| column == "run"));
        table.rows.remove(1);
        assert!(result_columns(&table).iter().all(|column| column != "run"));
    }
}
