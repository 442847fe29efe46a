//! Tests of the rendered text on both surfaces.

use super::*;

fn example() -> Table {
    let rows = [
        ["svgd", "clean", "1", "0.71934", "0.05", "0.81234567", "12.3456789012", ""],
        ["ensemble", "clean", "1", "0.71934", "0.06", "0.9", "1.5", ""],
        ["svgd", "jpeg", "1", "0.5", "", "0.7", "1.5", ""],
        ["map", "jpeg", "2", "0.6", "0.2", "", "1.5", ""],
    ];
    let columns = ["method", "set", "seed", "accuracy_lm", "ece_lm", "mi", "wall_seconds", "top5_lm"];
    let text = |words: [&str; 8]| words.map(String::from).to_vec();
    Table { columns: text(columns), rows: rows.map(text).to_vec() }
}

fn spec(surface: Surface) -> Spec {
    let columns = ["set", "method", "none", "seed", "wall_seconds", "accuracy_lm", "ece_lm", "mi", "top5_lm"];
    let columns = columns.map(String::from).to_vec();
    Spec { columns, group_by: vec!["set".to_string()], surface }
}

#[test]
fn plain_table_is_ascii_with_percents_and_stars_per_group() {
    let text = render(&example(), &spec(Surface::Plain));
    let expected = "\
| set   | method   | seed | wall_seconds | accuracy_lm [%] | ece_lm [%] |     mi |
|-------|----------|------|--------------|-----------------|------------|--------|
| clean | svgd     |    1 |       12.346 |          71.93* |      5.00* | 0.8123 |
| clean | ensemble |    1 |          1.5 |          71.93* |       6.00 | 0.9000 |
| jpeg  | svgd     |    1 |          1.5 |           50.00 |            | 0.7000 |
| jpeg  | map      |    2 |          1.5 |          60.00* |      20.00 |        |
";
    assert_eq!(text, expected);
    assert!(text.is_ascii());
}

#[test]
fn terminal_table_fits_the_width_and_repeats_the_naming_columns() {
    for width in [60, 70, 80, 200] {
        let text = render(&example(), &spec(Surface::Terminal { width }));
        let visible = text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        assert!(!visible.contains('\u{1b}'));
        assert!(visible.lines().all(|line| line.chars().count() <= usize::from(width)), "{visible}");
        let blocks = visible.matches("method").count();
        assert_eq!(blocks > 1, width < 84, "{width}: {visible}");
        assert!(text.contains("\u{1b}[1m"));
    }
}

#[test]
fn nothing_to_show_is_said() {
    assert_eq!(render(&Table::default(), &spec(Surface::Plain)), "no results\n");
}
