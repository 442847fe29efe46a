//! Renders rows as tables that fit the terminal: what is equal in all rows stands once above the table, metrics have
//! short names, fractions are in percent, and the best value of each group is marked in the direction of the metric.
//! A single row is shown with its metrics down the side.

mod columns;
mod draw;

use self::columns::{Kind, Rendered, units};
use super::store::Table;
use crate::base::small::{capital, counted, push_new};
use crate::metrics::Average;

pub use columns::{SPREAD, Texts, averages_of, metric_title, texts};
pub use draw::Surface;

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
        return draw::render(table, &columns, spec.surface);
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
    let [mut labels, mut values] = draw::with_headings(labels, values, &spec.group_by);
    draw::break_names(&mut labels, &values, limit);
    let room = limit.saturating_sub(labels.iter().map(Rendered::width).sum::<usize>() + 1);
    let mut left_out = values.split_off(draw::fitting(&values, room));
    text.push_str(&draw::table(labels.iter().chain(&values), spec.surface));
    while rest == Rest::Shown && !left_out.is_empty() {
        let others = left_out.split_off(draw::fitting(&left_out, room));
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

/// Returns the average whose prediction an attack changes, given its target (column `attack_target`).
pub fn attacked(target: &str) -> Average {
    match target {
        "mean-logit" | "mean-loss" => Average::Logit,
        _ => Average::Probability,
    }
}

/// Returns the average that a look at several rows shows: that of what attacks change, or else that of the logits; `None` if some rows
/// need the one and some the other.
pub fn average_of(table: &Table) -> Option<Average> {
    let [attack, target] = ["attack", "attack_target"].map(|column| table.index(column));
    let rows = (0..table.rows.len()).filter(|row| !table.cell(*row, attack).is_empty());
    let mut averages: Vec<Average> = vec![];
    rows.for_each(|row| push_new(&mut averages, attacked(table.cell(row, target))));
    match averages[..] {
        [] => Some(Average::Logit),
        [one] => Some(one),
        _ => None,
    }
}

/// Returns lines that say of which predictions the metrics are, and in which units; empty without metrics.
fn legend<'a>(shown: impl Iterator<Item = &'a Rendered> + Clone) -> String {
    let averages =
        Average::ALL.into_iter().filter(|average| shown.clone().any(|column| column.average == Some(*average)));
    let text = match averages.collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => format!("{}\n", one.legend_of_one()),
        _ => Average::ALL.map(|average| format!("{}\n", capital(average.words()))).concat(),
    };
    text + &units(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let rows = [
            ["svgd", "clean", "1", "0.71934", "0.05", "0.81234567", "12.3456789012", ""],
            ["ensemble", "clean", "1", "0.71934", "0.06", "0.9", "1.5", ""],
            ["svgd", "jpeg", "1", "0.5", "", "0.7", "1.5", ""],
            ["map", "jpeg", "1", "0.6", "0.2", "", "1.5", ""],
        ];
        let columns = ["method", "set", "seed", "accuracy_lm", "ece_lm", "mi", "wall_seconds", "top5_lm"];
        let text = |words: [&str; 8]| words.map(String::from).to_vec();
        Table { columns: text(columns), rows: rows.map(text).to_vec() }
    }

    fn spec(width: Option<u16>, is_terminal: bool) -> Spec {
        let columns = ["set", "method", "none", "seed", "accuracy_lm", "ece_lm", "mi", "top5_lm", "wall_seconds"];
        let columns = columns.map(String::from).to_vec();
        Spec { columns, group_by: vec!["set".to_string()], surface: Surface { width, is_terminal } }
    }

    #[test]
    fn plain_table_is_ascii_with_percents_and_stars_per_group() {
        let text = render(&example(), &spec(None, false));
        assert!(text.is_ascii());
        for cells in ["| clean | svgd     |    1 |", "71.93*", "5.00*", "60.00*", "12.346"] {
            assert!(text.contains(cells), "{cells} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_equal_stands_above_and_groups_have_headings() {
        let text = render(&example(), &spec(Some(80), false));
        let expected = "\
seed: 1
|            | accuracy |   ECE |        |    wall |
| method     |      [%] |   [%] |     MI | seconds |
|------------|----------|-------|--------|---------|
| clean      |          |       |        |         |
|   svgd     |   71.93* | 5.00* | 0.8123 |  12.346 |
|   ensemble |   71.93* |  6.00 | 0.9000 |     1.5 |
| jpeg       |          |       |        |         |
|   svgd     |    50.00 |       | 0.7000 |     1.5 |
|   map      |   60.00* | 20.00 |        |     1.5 |
A prediction is the softmax of the averaged logits of all members (lm).
In nats: MI.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn numbers_that_do_not_fit_are_counted() {
        for width in [30, 40, 50, 60, 80] {
            for is_terminal in [false, true] {
                let text = render(&example(), &spec(Some(width), is_terminal));
                let visible = text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
                assert!(!visible.contains('\u{1b}'));
                let table = visible.lines().filter(|line| line.contains('|') || line.contains('│'));
                assert!(table.clone().all(|line| line.chars().count() <= usize::from(width)), "{visible}");
                assert_eq!(visible.contains("with --wide"), width <= 50, "{width}: {visible}");
                assert_eq!(text.contains("\u{1b}[1m"), is_terminal);
            }
        }
    }

    #[test]
    fn columns_that_were_asked_for_stand_in_further_tables() {
        let text = render_with(&example(), &spec(Some(40), false), Rest::Shown);
        assert!(!text.contains("with --wide"), "{text}");
        for title in ["accuracy", "ECE", "MI", "wall"] {
            assert!(text.contains(title), "{title} is not in\n{text}");
        }
        assert_eq!(text.matches("|   svgd     |").count(), 4, "every table names its rows:\n{text}");
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.len() <= 40), "{text}");
    }

    #[test]
    fn numbers_that_all_rows_share_stand_above() {
        let mut table = example();
        table.rows.iter_mut().for_each(|row| row[6] = "1.5".to_string());
        let text = render(&table, &spec(Some(80), false));
        assert!(text.starts_with("seed: 1  wall seconds: 1.5\n"), "{text}");
    }

    #[test]
    fn an_accuracy_has_its_interval_where_the_number_of_samples_is_known() {
        let row = [("set", "s"), ("condition", "clean"), ("samples", "36"), ("accuracy_lm", "0.9722222222222222")];
        let mut table = Table::new(row.map(|(column, _)| column));
        for condition in ["clean", "fgsm 0.1", "mean-15:3"] {
            let cells = row.map(|(column, value)| if column == "condition" { condition } else { value }.to_string());
            table.rows.push(cells.to_vec());
        }
        let columns = ["set", "condition", "accuracy_lm"].map(String::from).to_vec();
        let surface = Surface { width: Some(80), is_terminal: false };
        let text = render(&table, &Spec { columns, group_by: vec![], surface });
        assert_eq!(text.matches("97.22 [85.8, 99.5]").count(), 2, "not of the mean over conditions:\n{text}");
        assert!(text.ends_with("In brackets: the 95 % interval over the samples (Wilson).\n"), "{text}");
    }

    #[test]
    fn several_rows_show_the_average_that_is_attacked() {
        let of = |rows: &[[&str; 2]]| {
            let mut table = Table::new(["attack", "attack_target"]);
            table.rows = rows.iter().map(|row| row.map(String::from).to_vec()).collect();
            average_of(&table)
        };
        let [clean, mean, logit, member] =
            [["", ""], ["fab", "mean-probability"], ["pgd", "mean-logit"], ["pgd", "member-0"]];
        assert_eq!(of(&[clean, clean]), Some(Average::Logit));
        assert_eq!(of(&[clean, mean, member]), Some(Average::Probability));
        assert_eq!(of(&[clean, logit]), Some(Average::Logit));
        assert_eq!(of(&[mean, logit]), None);
        assert_eq!(average_of(&Table::new(["accuracy_lm"])), Some(Average::Logit));
    }

    #[test]
    fn small_values_have_three_digits() {
        let row =
            [("method", "svgd"), ("mi", "0.000012345"), ("nll_lm", "1.2345e-8"), ("ece_lm", "0.000123 ± 0.0000456")];
        let mut table = Table::new(row.map(|(column, _)| column));
        table.rows.push(row.map(|(_, value)| value.to_string()).to_vec());
        table.rows.push(["map", "0.5", "0.25", "0.5 ± 0.000012"].map(String::from).to_vec());
        let columns = row.map(|(column, _)| column.to_string()).to_vec();
        let surface = Surface { width: Some(80), is_terminal: false };
        let text = render(&table, &Spec { columns, group_by: vec![], surface });
        for cell in ["0.0000123", "1.23e-8", "0.0123 ± 0.0046", "0.5000", "0.2500", "50.00 ± 0.00"] {
            assert!(text.contains(cell), "{cell} is not in\n{text}");
        }
    }

    #[test]
    fn long_names_are_broken_between_words() {
        let mut table = example();
        table.rows[0][0] = "svgd, gamma = 0.01, drive = own, alpha = 16".to_string();
        let text = render(&table, &spec(Some(60), false));
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.len() <= 60), "{text}");
        assert!(text.contains("|   svgd, gamma") && text.contains("0.8123"), "{text}");
    }

    #[test]
    fn one_row_has_its_metrics_down_the_side() {
        let row =
            [("method", "svgd"), ("accuracy_lm", "0.5"), ("accuracy_pm", "0.75"), ("nll_lm", "1.5"), ("mi", "0.25")];
        let mut table = Table::new(row.map(|(column, _)| column));
        table.rows.push(row.map(|(_, value)| value.to_string()).to_vec());
        let columns = row.map(|(column, _)| column.to_string()).to_vec();
        let surface = Surface { width: Some(80), is_terminal: false };
        let text = render(&table, &Spec { columns, group_by: vec![], surface });
        let expected = "\
method: svgd

              averaged logits  averaged probabilities
accuracy [%]            50.00                   75.00
NLL                    1.5000
MI                     0.2500
In nats: NLL, MI.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert_eq!(render(&Table::default(), &spec(Some(80), true)), "no results\n");
    }
}
