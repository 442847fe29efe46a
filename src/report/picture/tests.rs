use std::fs;

use super::*;
use crate::results::store::{Row, Table};

const COLUMNS: [&str; 12] = [
    "run",
    "subspace",
    "method",
    "particles",
    "seed",
    "condition",
    "accuracy_lm",
    "nll_lm",
    "ece_lm",
    "mi_correct_lm",
    "mi_wrong_lm",
    "svgd.drive",
];

fn table(rows: &[[&str; 12]]) -> Table {
    let mut table = Table::default();
    for cells in rows {
        let mut row = Row::new();
        COLUMNS.iter().zip(cells).for_each(|(column, value)| row.push(*column, *value));
        row.push("set", "digits");
        row.push("config", [cells[1], cells[2], cells[3], cells[11]].join("-"));
        table.append(&row);
    }
    table
}

fn small() -> Table {
    table(&[
        ["a", "low-rank", "svgd", "5", "1", "clean", "0.96", "0.13", "0.011", "0.03", "0.24", "own"],
        ["a", "low-rank", "svgd", "5", "1", "gaussian-noise:3 (bella)", "0.85", "0.45", "0.05", "0.05", "0.28", "own"],
        ["b", "low-rank", "svgd", "5", "2", "clean", "0.92", "0.17", "0.019", "0.05", "0.26", "own"],
        ["c", "full", "map", "1", "1", "clean", "0.951", "0.19", "0.031", "", "", ""],
        ["d", "", "checkpoint", "", "1", "clean", "0.70", "0.9", "0.06", "", "", ""],
    ])
}

fn svg(table: &Table) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.svg");
    draw(table, &path).unwrap();
    fs::read_to_string(path).unwrap()
}

/// Returns the texts of an SVG in order. Panics unless the tags are balanced and everything between them is text or
/// escapes.
fn texts(svg: &str) -> Vec<String> {
    let (mut open, mut texts) = (vec![], vec![]);
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag that ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
        assert!(!text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").contains('&'), "{text}");
        if !text.trim().is_empty() {
            texts.push(text.trim().to_string());
        }
    }
    assert!(open.is_empty(), "{open:?}");
    texts
}

fn count(texts: &[String], wanted: &str) -> usize {
    texts.iter().filter(|text| *text == wanted).count()
}

fn failure(table: &Table, path: &Path) -> String {
    format!("{:#}", draw(table, path).unwrap_err())
}

#[test]
fn names_conditions_and_means_are_written_and_the_ground_is_white() {
    let svg = svg(&small());
    assert!(svg.contains("<rect x=\"0\" y=\"0\"") && svg.contains("fill=\"#FFFFFF\""), "{svg}");
    let texts = texts(&svg);
    assert_eq!(texts[..3], ["checkpoint, zero-shot", "Single", "Bella-SVGD (n=5)"]);
    for title in ["Accuracy (%)", "NLL (nats)", "ECE (%)", "MI (nats)"] {
        assert_eq!(count(&texts, title), 1, "{title}");
    }
    assert_eq!((count(&texts, "clean"), count(&texts, "gaussian-noise:3")), (4, 4));
    // Accuracies are in percent. The two seeds of SVGD share one mark at their mean.
    for value in ["70.0", "95.1", "94.0", "85.0"] {
        assert_eq!(count(&texts, value), 1, "{value} in {texts:?}");
    }
    assert_eq!((count(&texts, "96.0"), count(&texts, "92.0")), (0, 0));
    assert!(texts.iter().any(|text| text.contains("mean of up to 2 seeds")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("softmax of the averaged logits of all members (lm)")), "{texts:?}");
}

#[test]
fn empty_cells_draw_no_mark() {
    let circles = |table: &Table| svg(table).matches("<circle").count();
    let mut cells = ["a", "full", "map", "1", "1", "clean", "0.951", "0.19", "0.031", "", "", ""];
    let (single, without) = (table(&[cells]), circles(&table(&[cells])));
    // The marks of the first series are circles: one in the legend and three in panels.
    assert_eq!(without, 4);
    assert!(!svg(&single).contains("MI (nats)"), "a panel without values");
    (cells[9], cells[10]) = ("0.02", "0.2");
    assert_eq!(circles(&table(&[cells])), without + 2);
    cells[7] = "";
    assert_eq!(circles(&table(&[cells])), without + 1);
}

#[test]
fn different_settings_are_different_series_and_a_row_given_twice_counts_once() {
    let row =
        |run, seed, drive| [run, "low-rank", "svgd", "5", seed, "clean", "0.9", "0.3", "0.02", "0.1", "0.2", drive];
    let two = texts(&svg(&table(&[row("a", "1", "own"), row("b", "1", "shared")])));
    assert_eq!(two[..2], ["drive = own", "drive = shared"]);
    assert!(two.iter().any(|text| text.starts_with("Bella-SVGD (n=5)")), "what they share is in a note: {two:?}");
    let unnamed = texts(&svg(&table(&[row("a", "1", "own"), row("b", "1", "own")])));
    assert_eq!(unnamed[0], "Bella-SVGD (n=5)");
    assert!(!unnamed.iter().any(|text| text.contains("seeds")), "two runs of one seed count once: {unnamed:?}");
    let twice = texts(&svg(&table(&[row("a", "1", "own"), row("a", "1", "own")])));
    assert_eq!(twice[0], "Bella-SVGD (n=5)");
    assert!(!twice.iter().any(|text| text.contains("seeds")), "{twice:?}");
}

#[test]
fn markup_in_names_is_escaped_and_long_names_are_cut() {
    let condition = format!("a<b>&c:1 {}", "x".repeat(200));
    let row = ["a", "full", "<m>", "1", "1", condition.as_str(), "0.9", "0.3", "0.02", "", "", ""];
    let texts = texts(&svg(&table(&[row])));
    assert_eq!(texts[0], "full × &lt;m&gt;");
    assert!(texts.iter().any(|text| text.starts_with('x') && text.ends_with('…')), "{texts:?}");
}

#[test]
fn errors_name_the_picture_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.svg");
    assert!(failure(&Table::default(), &path).ends_with("a.svg: no result rows to draw; evaluate a run first"));
    assert!(failure(&small(), &folder.path().join("none/a.svg")).ends_with("none; create it first"));
    assert!(failure(&small(), &folder.path().join("a.png")).ends_with("must end in .svg"));
    let mut bad = small();
    bad.rows[1][7] = "NaN".into();
    assert!(failure(&bad, &path).ends_with("row 2, column `nll_lm` = `NaN`: must be a finite number or empty"));
    let bare =
        Table { columns: vec!["method".into(), "condition".into()], rows: vec![vec!["map".into(), "clean".into()]] };
    assert!(failure(&bare, &path).contains("no row has a value of accuracy_lm, nll_lm"));
    let other = Table { columns: vec!["method".into()], rows: vec![vec!["map".into()]] };
    assert!(failure(&other, &path).ends_with("no column `condition`"));
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is left behind");
}
