//! The main metrics of every method under every condition, as `bella report --picture` draws them.

use anyhow::Result;

use super::drawing::{Drawing, Material};
use crate::base::small::push_new;
use crate::report::picture;
use crate::results::store::Table;

/// The most conditions that fit side by side.
const MOST_CONDITIONS: usize = 8;

pub fn draw(material: &Material) -> Result<Option<Drawing>> {
    let results = &material.sources.results;
    let mut shown: Vec<usize> = material.series.iter().flat_map(|series| series.rows.iter().copied()).collect();
    shown.sort_unstable();
    let places = ["set", "condition"].map(|column| results.index(column));
    let condition = |row: &usize| places.map(|place| results.cell(*row, place));
    let mut conditions = vec![];
    shown.iter().for_each(|row| push_new(&mut conditions, condition(row)));
    let left_out = conditions.len().saturating_sub(MOST_CONDITIONS);
    conditions.truncate(MOST_CONDITIONS);
    shown.retain(|row| conditions.contains(&condition(row)));
    let rows = shown.iter().map(|row| results.rows[*row].clone()).collect();
    let Some(svg) = picture::of(&Table { columns: results.columns.clone(), rows })? else { return Ok(None) };
    Ok(Some(Drawing { svg, caption: caption(left_out) }))
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
