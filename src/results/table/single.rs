//! Renders one row with its metrics down the side, and both averages beside each other.

use super::columns::{Kind, Rendered, rendered, units};
use super::draw;
use super::surface::Surface;
use crate::base::small::push_new;
use crate::metrics::Average;
use crate::results::store::Table;

/// The titles of the two columns of values.
const TITLES: [&str; 2] = ["averaged logits", "averaged probabilities"];

/// Renders the only row of `table`. Of a metric that has a value for each average, both are shown.
pub fn render(table: &Table, columns: &[Rendered], surface: Surface) -> String {
    let is_label = |column: &&Rendered| column.kind == Kind::Label && !column.cells[0].is_empty();
    let labels: Vec<_> = columns.iter().filter(is_label).map(|label| label.pair(0)).collect();
    let lines = lines(table, columns);
    let title_width = lines.iter().map(|line| line.title.chars().count()).max().unwrap_or(0);
    let has_averages = lines.iter().any(|line| line.values[1].is_some());
    let widest = |place: usize| lines.iter().filter_map(|line| line.values[place].as_ref()).map(String::len).max();
    let width = |place: usize| widest(place).unwrap_or(0).max(if has_averages { TITLES[place].len() } else { 10 });
    let widths = [0, 1].map(width);
    let mut text = draw::names(&labels, surface);
    text.push('\n');
    if has_averages {
        let [first, second] = widths;
        text.push_str(&format!("{:title_width$}  {:>first$}  {:>second$}\n", "", TITLES[0], TITLES[1]));
    }
    for line in &lines {
        let values = line
            .values
            .iter()
            .zip(widths)
            .flat_map(|(value, width)| value.as_ref().map(|value| format!("  {value:>width$}")));
        text.push_str(&format!("{:title_width$}{}\n", line.title, values.collect::<String>()));
    }
    text + &units(columns.iter())
}

/// A metric or a cost with its value, or one for each average.
struct Line {
    title: String,
    values: [Option<String>; 2],
}

/// Returns a line for every metric and every cost.
fn lines(table: &Table, columns: &[Rendered]) -> Vec<Line> {
    let mut stems: Vec<&str> = Vec::new();
    columns.iter().filter(|column| column.kind != Kind::Label).for_each(|column| push_new(&mut stems, column.stem()));
    stems.into_iter().map(|stem| line(table, stem)).collect()
}

fn line(table: &Table, stem: &str) -> Line {
    let mut line = Line { title: String::new(), values: [None, None] };
    let names = Average::ALL.map(|average| format!("{stem}_{}", average.suffix()));
    for name in names.into_iter().chain([stem.to_string()]) {
        if let Some(column) = rendered(table, &[name], &[]).pop() {
            let place = usize::from(column.average == Some(Average::Probability));
            line.values[place] = column.cells.into_iter().next();
            line.title = column.title.replace('_', " ");
        }
    }
    line
}
