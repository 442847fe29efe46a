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
";
    assert_eq!(text, expected);
}

#[test]
fn nothing_to_show_is_said() {
    assert_eq!(render(&Table::default(), &spec(Some(80), true)), "no results\n");
}
