//! Tests of the rendered text on both surfaces.

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
fn small_values_have_three_digits() {
    let row = [("method", "svgd"), ("mi", "0.000012345"), ("nll_lm", "1.2345e-8"), ("ece_lm", "0.000123 ± 0.0000456")];
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
    let row = [("method", "svgd"), ("accuracy_lm", "0.5"), ("accuracy_pm", "0.75"), ("nll_lm", "1.5"), ("mi", "0.25")];
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
