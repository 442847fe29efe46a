//! Renders rows as tables that fit the terminal: what is equal in all rows stands once above the table, metrics have
//! short names, fractions are in percent, and the best value of each group is marked in the direction of the metric.
//! A single row is shown with its metrics down the side.

mod columns;
mod draw;
mod fit;
mod single;
mod surface;

use self::columns::{Kind, Rendered};
use super::store::Table;
use crate::base::small::{capital, counted};
use crate::metrics::Average;

pub use columns::{SPREAD, Texts, texts};
pub use surface::Surface;

/// The columns to render and the surface to render them for.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The columns in order. Columns that the table lacks, or that are empty in every row, are left out. Those from the
    /// first metric on are left out from the right if they do not fit.
    pub columns: Vec<String>,
    /// The best cell is determined among rows that agree in these columns, or among all rows if there are none.
    pub group_by: Vec<String>,
    pub surface: Surface,
}

/// Renders `table` as text that ends in a line break. Without rows or columns, the text is a line that says so.
pub fn render(table: &Table, spec: &Spec) -> String {
    let table = &table.printable();
    let columns = columns::rendered(table, &spec.columns, &spec.group_by);
    if columns.is_empty() {
        return "no results\n".to_string();
    }
    let has_metrics = columns.iter().any(|column| column.kind == Kind::Metric);
    if table.rows.len() == 1 && has_metrics && spec.surface.width.is_some() {
        return single::render(table, &columns, spec.surface);
    }
    several(columns, spec)
}

/// Renders several rows: the names that all rows share, the table, and what it does not show.
fn several(columns: Vec<Rendered>, spec: &Spec) -> String {
    let (labels, values): (Vec<_>, Vec<_>) = columns.into_iter().partition(|column| column.kind == Kind::Label);
    let total = values.len();
    let Some(limit) = spec.surface.width.map(usize::from).filter(|_| total > 0) else {
        let columns: Vec<_> = labels.into_iter().chain(values).collect();
        return draw::table(&columns, spec.surface) + &legend(&columns);
    };
    let can_hoist = labels.first().is_some_and(|label| label.cells.len() > 1);
    let (shared, labels): (Vec<_>, Vec<_>) = labels.into_iter().partition(|label| can_hoist && label.is_constant());
    let mut text = draw::names(&shared.iter().map(|label| label.pair(0)).collect::<Vec<_>>(), spec.surface);
    let [mut labels, mut values] = fit::with_headings(labels, values, &spec.group_by);
    fit::break_names(&mut labels, &values, limit);
    let used = labels.iter().map(Rendered::width).sum::<usize>() + 1;
    values.truncate(fit::fitting(&values, limit.saturating_sub(used)));
    let left_out = total - values.len();
    labels.extend(values);
    text.push_str(&draw::table(&labels, spec.surface));
    text.push_str(&legend(&labels));
    if left_out > 0 {
        let more = counted(left_out, "more column", "more columns");
        text.push_str(&format!("{more} with --wide, or chosen by --columns\n"));
    }
    text
}

/// Returns a line that says of which predictions the metrics are; empty if they are of none.
fn legend(shown: &[Rendered]) -> String {
    let averages =
        Average::ALL.into_iter().filter(|average| shown.iter().any(|column| column.average == Some(*average)));
    match averages.collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => format!("A prediction is the {}.\n", one.words()),
        _ => Average::ALL.map(|average| format!("{}\n", capital(average.words()))).concat(),
    }
}

#[cfg(test)]
mod tests;
