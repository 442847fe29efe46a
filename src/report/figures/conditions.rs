//! Metrics of every method under its test conditions: diversity, STL-10, corruptions, and the main metrics under each, as
//! `bella report --picture` draws them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::material::{Drawing, Material};
use super::readings::{Place, Plan, distinct, ladder, measured};
use crate::base::small::{capital, push_new};
use crate::report::picture;
use crate::report::sources::RowView;
use crate::results::CLEAN;
use crate::results::store::Table;

const DIVERSITY: &[&str] = &["diversity_kl"];
const UNCERTAINTY: &[&str] = &["mi", "predictive_entropy", "accuracy_lm", "nll_lm"];

/// The number of conditions that fit side by side in one panel; the others are left out.
const MOST_CONDITIONS: usize = 6;

pub fn diversity(material: &Material) -> Result<Option<Drawing>> {
    let caption = "Mean divergence KL(p̄ ‖ p_k) of the members' predictions from their mean (Bella, appendix A), on each test \
                   set, clean and under each corruption at the highest severity that was tested. Single models have none.";
    let highest = highest_severities(material);
    let shown = rows(material).filter(|(series, row)| {
        let most = highest.get(&(*series, row.get("set"), row.get("corruption")));
        row.get("attack").is_empty() && most.is_none_or(|most| row.number("severity") == Some(*most))
    });
    by_condition(material, DIVERSITY, 1, caption, &shown.collect::<Vec<_>>())
}

/// Returns the highest severity at which each series was tested on each set under each corruption.
fn highest_severities<'a>(material: &'a Material) -> BTreeMap<(usize, &'a str, &'a str), f64> {
    let mut highest: BTreeMap<_, f64> = BTreeMap::new();
    for (series, row) in rows(material) {
        if let Some(severity) = row.number("severity").filter(|_| !row.get("corruption").is_empty()) {
            let most = highest.entry((series, row.get("set"), row.get("corruption"))).or_insert(severity);
            *most = most.max(severity);
        }
    }
    highest
}

pub fn stl10(material: &Material) -> Result<Option<Drawing>> {
    let tested: BTreeSet<usize> = rows(material).filter(|(_, row)| is_stl(row)).map(|(series, _)| series).collect();
    if tested.is_empty() {
        return Ok(None);
    }
    let caption = "Methods on STL-10 images of the classes shared with the set they were trained on, beside the clean \
                   images of that set.";
    let shown = rows(material).filter(|(series, row)| tested.contains(series) && row.is_clean());
    // STL-10 comes first, because the last sets are left out if there are too many.
    let (stl, others): (Vec<_>, Vec<_>) = shown.partition(|(_, row)| is_stl(row));
    by_condition(material, UNCERTAINTY, 2, caption, &[stl, others].concat())
}

fn is_stl(row: &RowView) -> bool {
    row.get("set").to_lowercase().starts_with("stl")
}

/// Draws one panel for each quantity, with the conditions in the order of `rows`. Each row comes with the index of its
/// series.
fn by_condition(
    material: &Material,
    quantities: &[&str],
    columns: usize,
    caption: &str,
    rows: &[(usize, RowView)],
) -> Result<Option<Drawing>> {
    let name = |row: &RowView| format!("{} {}", row.get("set"), row.get("condition"));
    let filled = |row: &RowView| quantities.iter().any(|column| row.number(column).is_some());
    let conditions = distinct(rows.iter().filter(|(_, row)| filled(row)).map(|(_, row)| name(row)));
    let mut readings = vec![];
    for column in quantities {
        for (series, row) in rows {
            let Some(order) = conditions.iter().position(|one| *one == name(row)) else { continue };
            if let (Some(found), true) = (measured(row, column), order < MOST_CONDITIONS) {
                let (place, panel) = (Place { order: order as f64, name: name(row) }, capital(found.short));
                readings.push(found.reading(panel, *series, place));
            }
        }
    }
    let mut notes = vec![];
    if conditions.len() > MOST_CONDITIONS {
        notes
            .push(format!("The first {MOST_CONDITIONS} of {} test conditions; the tables hold all.", conditions.len()));
    }
    let plan = Plan { x_title: "", columns, joined: false, notes };
    match ladder(&material.names, &readings, plan) {
        Some(chart) => Drawing::of(&chart, caption),
        None => Ok(None),
    }
}

/// Returns all result rows, each with the index of its series.
fn rows<'a>(material: &'a Material) -> impl Iterator<Item = (usize, RowView<'a>)> {
    let of_series = move |(series, one): (usize, &'a crate::results::series::Series)| {
        one.rows.iter().map(move |row| (series, RowView::new(&material.sources.results, *row)))
    };
    material.series.iter().enumerate().flat_map(of_series)
}

/// Returns the accuracy and NLL under each corruption by severity. Means over the published corruptions have panels of
/// their own, if the results hold them.
pub fn shift(material: &Material) -> Result<Option<Drawing>> {
    let mut readings = vec![];
    for (series, row) in rows(material).filter(|(_, row)| !row.get("corruption").is_empty()) {
        let severity = row.number("severity");
        let Some(severity) = severity.filter(|severity| *severity >= 1.0) else { continue };
        let source = match row.get("shift_source") {
            "bella" => " (made by bella)",
            _ => "",
        };
        let of = format!("{}: {}{source}", row.get("set"), row.get("corruption"));
        for column in ["accuracy_lm", "nll_lm"] {
            let Some(found) = measured(&row, column) else { continue };
            let (panel, place) = (format!("{of}, {}", found.short), Place::number(severity));
            readings.push(found.reading(panel, series, place));
        }
    }
    let plan = Plan { x_title: "severity", columns: 2, joined: true, notes: vec![] };
    match ladder(&material.names, &readings, plan) {
        Some(mut chart) => {
            chart.plot_height = 130;
            Drawing::of(
                &chart,
                "Accuracy and negative log-likelihood (logits averaged) under each corruption by severity. Panels of a mean \
                 are over several corruptions, as the results files name it.",
            )
        }
        None => Ok(None),
    }
}

/// Returns the rows of each run and condition with the most images: an attack on fewer images evaluates these as clean ones, too.
fn of_most_images(rows: Vec<(usize, RowView)>) -> Vec<(usize, RowView)> {
    let most = |row: &RowView| {
        let same = rows.iter().filter(|(_, other)| ["run", "condition"].iter().all(|at| other.get(at) == row.get(at)));
        same.filter_map(|(_, other)| other.number("samples")).reduce(f64::max)
    };
    rows.iter().filter(|(_, row)| row.number("samples") == most(row)).copied().collect()
}

/// The columns of calibration under shift, before and after temperature scaling.
const CALIBRATION: [&str; 4] = ["ece_pm", "ece_ts_pm", "nll_pm", "nll_ts_pm"];

/// Returns the calibration on clean images and under each corruption. The images of corruptions may be fewer.
pub fn calibration_under_shift(material: &Material) -> Result<Option<Drawing>> {
    let set = |row: &RowView| row.stored_name("set").to_string();
    let is_shifted = |row: &RowView| !row.get("corruption").is_empty();
    let sets = distinct(rows(material).filter(|(_, row)| is_shifted(row)).map(|(_, row)| set(&row)));
    let is_shown = |row: &RowView| sets.contains(&set(row)) && (is_shifted(row) || row.is_clean());
    let shown = of_most_images(rows(material).filter(|(_, row)| is_shown(row)).collect());
    // Clean images come first.
    let mut conditions = vec![CLEAN];
    shown.iter().for_each(|(_, row)| push_new(&mut conditions, row.get("condition")));
    let left_out = conditions.len().saturating_sub(MOST_CONDITIONS);
    conditions.truncate(MOST_CONDITIONS);
    let mut readings = vec![];
    for column in CALIBRATION {
        for (series, row) in &shown {
            let Some(order) = conditions.iter().position(|one| *one == row.get("condition")) else { continue };
            let Some(found) = measured(row, column) else { continue };
            let name = row.get("condition").trim_end_matches(" (bella)").to_string();
            let after = if column.contains("_ts_") { ", temperature-scaled" } else { "" };
            let panel = format!("{}: {}{after}", set(row), found.short);
            let place = Place { order: order as f64, name };
            readings.push(found.reading(panel, *series, place));
        }
    }
    let notes = match left_out {
        0 => vec![],
        left_out => vec![format!("{left_out} more conditions stand in the tables.")],
    };
    let plan = Plan { x_title: "", columns: 1, joined: false, notes };
    match ladder(&material.names, &readings, plan) {
        Some(chart) => Drawing::of(
            &chart,
            "Expected calibration error and negative log-likelihood (probabilities averaged) on clean images and under each corruption, as \
             predicted and after temperature scaling on clean held-out images. Fewer images have a larger error by chance alone.",
        ),
        None => Ok(None),
    }
}

/// The most conditions that fit side by side in the comparison.
const MOST_COMPARED: usize = 8;

pub fn comparison(material: &Material) -> Result<Option<Drawing>> {
    let results = &material.sources.results;
    let mut shown: Vec<usize> = material.series.iter().flat_map(|series| series.rows.iter().copied()).collect();
    shown.sort_unstable();
    let places = ["set", "condition"].map(|column| results.index(column));
    let condition = |row: &usize| places.map(|place| results.cell(*row, place));
    let mut conditions = vec![];
    shown.iter().for_each(|row| push_new(&mut conditions, condition(row)));
    let left_out = conditions.len().saturating_sub(MOST_COMPARED);
    conditions.truncate(MOST_COMPARED);
    shown.retain(|row| conditions.contains(&condition(row)));
    let rows = shown.iter().map(|row| results.rows[*row].clone()).collect();
    let Some(picture) = picture::of(&Table { columns: results.columns.clone(), rows })? else { return Ok(None) };
    Ok(Some(Drawing { picture, caption: caption(left_out) }))
}

/// Returns the caption, which says how many conditions stand in the tables alone.
fn caption(left_out: usize) -> String {
    let mut caption = "Accuracy, negative log-likelihood, expected calibration error and mutual information on each test \
                       set under each condition. Marks are means over the seeds; whiskers reach from the smallest to the \
                       largest seed."
        .to_string();
    if left_out > 0 {
        caption.push_str(&format!(" {left_out} more conditions stand in the tables."));
    }
    caption
}
