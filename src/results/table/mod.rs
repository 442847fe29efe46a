//! Renders rows as tables that fit the terminal: what is equal in all rows stands once above the table, metrics have
//! short names, fractions are in percent, and the best value of each group is marked in the direction of the metric.
//! A single row is shown with its metrics down the side.

mod columns;
mod draw;
mod fit;
mod single;
mod surface;

use self::columns::{Kind, Rendered, units};
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

/// The treatment of the columns that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// A line counts them.
    Counted,
    /// They stand in further tables, as those that a user asked for by name.
    Shown,
}

/// Renders `table` as text that ends in a line break. Without rows or columns, the text is a line that says so.
pub fn render(table: &Table, spec: &Spec) -> String {
    render_with(table, spec, Rest::Counted)
}

/// Renders `table` like [`render`]; `rest` says what becomes of the columns that do not fit.
pub fn render_with(table: &Table, spec: &Spec, rest: Rest) -> String {
    let table = &table.printable();
    let columns = columns::rendered(table, &spec.columns, &spec.group_by);
    if columns.is_empty() {
        return "no results\n".to_string();
    }
    let has_metrics = columns.iter().any(|column| column.kind == Kind::Metric);
    if table.rows.len() == 1 && has_metrics && spec.surface.width.is_some() {
        return single::render(table, &columns, spec.surface);
    }
    several(columns, spec, rest)
}

/// Renders several rows: what all rows share, the table, and what it does not show.
fn several(columns: Vec<Rendered>, spec: &Spec, rest: Rest) -> String {
    let (labels, values): (Vec<_>, Vec<_>) = columns.into_iter().partition(|column| column.kind == Kind::Label);
    let Some(limit) = spec.surface.width.map(usize::from).filter(|_| !values.is_empty()) else {
        let columns: Vec<_> = labels.into_iter().chain(values).collect();
        return draw::table(&columns, spec.surface) + &legend(columns.iter());
    };
    let is_shared = |column: &Rendered| column.kind != Kind::Metric && column.cells.len() > 1 && column.is_constant();
    let (mut shared, labels): (Vec<_>, Vec<_>) = labels.into_iter().partition(is_shared);
    let (costs, values): (Vec<_>, Vec<_>) = values.into_iter().partition(is_shared);
    shared.extend(costs);
    let mut text = draw::names(&shared.iter().map(|label| label.pair(0)).collect::<Vec<_>>(), spec.surface);
    let [mut labels, mut values] = fit::with_headings(labels, values, &spec.group_by);
    fit::break_names(&mut labels, &values, limit);
    let room = limit.saturating_sub(labels.iter().map(Rendered::width).sum::<usize>() + 1);
    let mut left_out = values.split_off(fit::fitting(&values, room));
    text.push_str(&draw::table(labels.iter().chain(&values), spec.surface));
    while rest == Rest::Shown && !left_out.is_empty() {
        let others = left_out.split_off(fit::fitting(&left_out, room));
        text.push_str(&format!("\n{}", draw::table(labels.iter().chain(&left_out), spec.surface)));
        values.append(&mut left_out);
        left_out = others;
    }
    text.push_str(&legend(labels.iter().chain(&values)));
    if !left_out.is_empty() {
        let more = counted(left_out.len(), "more column", "more columns");
        text.push_str(&format!("{more} with --wide, or chosen by --columns\n"));
    }
    text
}

/// Returns lines that say of which predictions the metrics are, and in which units; empty without metrics.
fn legend<'a>(shown: impl Iterator<Item = &'a Rendered> + Clone) -> String {
    let averages =
        Average::ALL.into_iter().filter(|average| shown.clone().any(|column| column.average == Some(*average)));
    let text = match averages.collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => format!("A prediction is the {}.\n", one.words()),
        _ => Average::ALL.map(|average| format!("{}\n", capital(average.words()))).concat(),
    };
    text + &units(shown)
}

#[cfg(test)]
mod tests;
