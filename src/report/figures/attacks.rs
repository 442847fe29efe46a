//! Accuracy under attack, against the budget of each attack and against the strength of the repulsion.

use anyhow::Result;

use super::material::{Drawing, Material};
use super::readings::{Place, Plan, Reading, ladder, sweeps, unit_of};
use crate::metrics::accuracy::interval;
use crate::report::sources::RowView;
use crate::results::CLEAN;
use crate::results::table::attacked;

/// Returns the column with the accuracy of the prediction that an attack changes.
fn attacked_accuracy(row: &RowView) -> String {
    format!("accuracy_{}", attacked(row.get("attack_target")).suffix())
}

pub fn budgets(material: &Material) -> Result<Option<Drawing>> {
    let several_sets = sets(material) > 1;
    let mut readings = vec![];
    for (series, one) in material.series.iter().enumerate() {
        for row in one.rows.iter().map(|row| RowView::new(&material.sources.results, *row)) {
            let (Some(epsilon), Some(value)) = (row.number("epsilon"), row.number(&attacked_accuracy(&row))) else {
                continue;
            };
            if row.get("attack").is_empty() {
                continue;
            }
            let panel = panel(&row, several_sets);
            readings.push(accuracy(panel, series, epsilon, value, &row));
        }
        readings.extend(unattacked(material, series, several_sets));
    }
    let plan = Plan {
        x_title: "budget ε (fraction of the pixel range, not to scale)",
        columns: 2,
        joined: true,
        notes: vec![],
    };
    let Some(mut chart) = ladder(&material.names, &readings, plan) else { return Ok(None) };
    chart.plot_height = 230;
    Drawing::of(
        &chart,
        "Accuracy on test images that were changed by at most ε in any pixel to raise the loss of the named target. \
         Rows of the results files with an attack; ε = 0 is the clean row of the same pipeline.",
    )
}

/// Returns the points at ε = 0 for attacks that were run without it, taken from the clean row of the same run, set,
/// predictive and precision.
fn unattacked(material: &Material, series: usize, several_sets: bool) -> Vec<Reading> {
    let rows = || material.series[series].rows.iter().map(|row| RowView::new(&material.sources.results, *row));
    let same = |a: &RowView, b: &RowView| {
        ["run", "set", "predictive", "precision"].iter().all(|column| a.get(column) == b.get(column))
    };
    let mut done: Vec<(String, &str)> = vec![];
    let mut readings = vec![];
    for row in rows().filter(|row| !row.get("attack").is_empty()) {
        let key = (panel(&row, several_sets), row.get("run"));
        let is_zero = |other: &RowView| {
            same(&row, other) && attack(other) == attack(&row) && other.number("epsilon") == Some(0.0)
        };
        if done.contains(&key) || rows().any(|other| is_zero(&other)) {
            continue;
        }
        let clean = rows().find(|other| same(&row, other) && other.is_clean());
        if let Some(value) = clean.and_then(|clean| clean.number(&attacked_accuracy(&row))) {
            readings.push(accuracy(key.0.clone(), series, 0.0, value, &row));
        }
        done.push(key);
    }
    readings
}

/// Returns an accuracy at a budget, with its interval over the test images.
fn accuracy(panel: String, series: usize, epsilon: f64, value: f64, row: &RowView) -> Reading {
    let ends = row.number("samples").and_then(|samples| interval(value, samples as u64));
    Reading {
        panel,
        unit: unit_of(&attacked_accuracy(row)),
        series,
        place: Place::number(epsilon),
        value: 100.0 * value,
        interval: ends.map(|[low, high]| (100.0 * low, 100.0 * high)),
    }
}

/// Returns the title of a panel: the attack of the row, followed by its test set if there are several.
fn panel(row: &RowView, several_sets: bool) -> String {
    let set = if several_sets { format!(", {}", row.get("set")) } else { String::new() };
    format!("{}{set}", attack(row))
}

/// Returns the name of an attack, such as `PGD on mean-probability, 10 steps`. The resolution is added if it is not the
/// model's.
fn attack(row: &RowView) -> String {
    let resolution = match row.get("attack_resolution") {
        "" | "model" => String::new(),
        other => format!(", {other} resolution"),
    };
    let target = match row.get("attack_target") {
        "" => String::new(),
        target => format!(" on {target}"),
    };
    let variant = match row.get("attack_variant") {
        "" => String::new(),
        variant => format!(", {variant}"),
    };
    let source = match row.get("attack_source") {
        "" => String::new(),
        run => format!(", made on {run}"),
    };
    let name = match row.get("attack") {
        "autoattack" => "AutoAttack".to_string(),
        "square" => "Square".to_string(),
        initials => initials.to_uppercase(),
    };
    format!("{name}{target}{variant}{resolution}{source}")
}

/// Returns whether the attack is the default one: on the mean probability of the members themselves, at the resolution of the
/// model.
fn on_members_mean(row: &RowView) -> bool {
    ["", "mean-probability"].contains(&row.get("attack_target"))
        && ["", "model"].contains(&row.get("attack_resolution"))
        && row.get("attack_source").is_empty()
}

fn sets(material: &Material) -> usize {
    let attacked = material.sources.result_rows().filter(|row| !row.get("attack").is_empty());
    super::readings::distinct(attacked.map(|row| row.get("set"))).len()
}

/// The accuracy that is shown over the strength of the repulsion: that of the mean probability, which is attacked.
const REPULSED: &str = "accuracy_pm";

/// The accuracy of a run of SVGD under FGSM of a budget, which is 0 for clean images.
struct Attacked {
    panel: String,
    gamma: f64,
    budget: f64,
    accuracy: f64,
}

pub fn gamma(material: &Material) -> Result<Option<Drawing>> {
    let sweeps = sweeps(&material.series, "svgd.gamma", &[]);
    let mut budgets: Vec<f64> = vec![];
    let mut found = vec![];
    for (sweep, gamma, series) in sweeps.iter().flat_map(|s| s.steps.iter().map(move |(gamma, at)| (s, gamma, at))) {
        for row in material.series[*series].rows.iter().map(|row| RowView::new(&material.sources.results, *row)) {
            if let (Some(budget), Some(value)) = (budget_of(&row), row.number(REPULSED)) {
                budgets.push(budget);
                let panel = format!("{} · {}", sweep.name, row.get("set"));
                found.push(Attacked { panel, gamma: *gamma, budget, accuracy: 100.0 * value });
            }
        }
    }
    budgets.sort_by(f64::total_cmp);
    budgets.dedup();
    let reading = |one: Attacked| Reading {
        panel: one.panel,
        unit: unit_of(REPULSED),
        series: budgets.iter().position(|budget| *budget == one.budget).unwrap_or(0),
        place: Place::number(one.gamma),
        value: one.accuracy,
        interval: None,
    };
    let readings: Vec<_> = found.into_iter().map(reading).collect();
    let name = |budget: &f64| if *budget == 0.0 { CLEAN.to_string() } else { format!("FGSM ε = {budget}") };
    let names: Vec<_> = budgets.iter().map(name).collect();
    let plan = Plan { x_title: "repulsion strength γ (not to scale)", columns: 2, joined: true, notes: vec![] };
    match ladder(&names, &readings, plan) {
        Some(chart) => Drawing::of(
            &chart,
            "Accuracy of SVGD runs that differ in γ alone, on clean images and under FGSM of several budgets (on \
             the members' mean probability).",
        ),
        None => Ok(None),
    }
}

/// Returns the budget of a row that is clean or attacked by FGSM. The row of an attack with budget 0 is the clean one
/// again.
fn budget_of(row: &RowView) -> Option<f64> {
    match (row.get("attack"), row.get("condition")) {
        ("", CLEAN) => Some(0.0),
        ("fgsm", _) if on_members_mean(row) => row.number("epsilon").filter(|budget| *budget != 0.0),
        _ => None,
    }
}
