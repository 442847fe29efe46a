//! Tests of whole tables and of the formats they are written in.

use super::*;
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};

fn sources() -> Sources {
    let columns =
        "experiment,run,checkpoint,subspace,method,particles,rank,predictive,seed,set,condition,accuracy_lm,config";
    let rows = [
        "e,r1,mini,full,map,1,,,1,domainnet-real,clean,0.70",
        "e,r1,mini,full,map,1,,,1,domainnet-clipart,clean,0.50",
        "e,r1,mini,full,map,1,,,1,domainnet-infograph,clean,0.30",
        "e,r1,mini,full,map,1,,,1,domainnet-painting,clean,0.40",
        "e,r1,mini,full,map,1,,,1,domainnet-sketch,clean,0.45",
        "e,r2,mini,low-rank,svgd,5,4,,1,domainnet-real,clean,0.80,c",
        "e,r3,mini,low-rank,svgd,5,4,,2,domainnet-real,clean,0.82,c",
        "e,r4,mini,low-rank,svgd,3,4,,1,domainnet-sketch,clean,0.99",
        "e,r5,a_b & c,low-rank,svgd,5,4,,1,camelyon17,clean,0.9",
    ];
    let mut results = Table::default();
    for line in rows {
        let mut row = Row::new();
        columns.split(',').zip(line.split(',').chain([""])).for_each(|(column, cell)| row.push(column, cell));
        results.append(&row);
    }
    Sources { results, ..Sources::default() }
}

fn table(key: &str) -> RenderedTable {
    named(&sources(), &[key.to_string()]).unwrap().remove(0)
}

#[test]
fn our_rows_stand_beneath_the_published_ones() {
    let expected = "\
bella-3: DomainNet: trained on Real
Bella (arXiv 2407.20891), Table 3.
| row            | source     |               Real [%] | Clip-Art [%] | Infograph [%] | Paint [%] | Sketch [%] | Average [%] |
|----------------|------------|------------------------|--------------|---------------|-----------|------------|-------------|
| Single base    | paper      |                  74.61 |        55.29 |         31.81 |     53.87 |      43.84 |       51.89 |
|                | ours: mini |                  70.00 |        50.00 |         30.00 |     40.00 |      45.00 |       47.00 |
| VBL            | paper      |                  82.97 |        59.94 |         26.56 |     52.81 |      46.96 |       53.85 |
|                | ours       |                not run |      not run |       not run |   not run |    not run |     not run |
| Ensemble Bella | paper      |                  82.70 |        61.22 |         28.15 |     55.32 |      51.58 |       55.60 |
|                | ours       |                not run |      not run |       not run |   not run |    not run |     not run |
| Ensemble base  | paper      |                  85.07 |        65.40 |         36.07 |     57.90 |      54.22 |       59.73 |
|                | ours       |                not run |      not run |       not run |   not run |    not run |     not run |
| SVGD Bella     | paper      |                  84.47 |        63.67 |         32.22 |     56.83 |      54.86 |       58.41 |
|                | ours: mini | 81.00 ± 1.41 (2 seeds) |      not run |       not run |   not run |    not run |     not run |
| SVGD base      | paper      |                  85.42 |        65.53 |         36.58 |     58.18 |      55.47 |       60.24 |
|                | ours       |                not run |      not run |       not run |   not run |    not run |     not run |
  n = 5 for Ensemble and SVGD, averaged logits. Average: over the five domains; the published 55.60 of Ensemble Bella is not the mean of its row (55.79).
  Ours: mean ± standard deviation over seeds.
  Ours: predictions are the softmax of the averaged logits of all members (lm).
";
    assert_eq!(table("bella-3").to_terminal(Surface::PLAIN), expected);
}

#[test]
fn a_row_of_ours_per_checkpoint_and_a_warning_for_few_seeds_of_camelyon() {
    let table = table("bella-1");
    let row = |label: &str, source: &str| {
        table.rows.iter().find(|row| row[0] == label && row[1] == source).unwrap_or_else(|| panic!("{label} {source}"))
    };
    assert_eq!(row("CAMELYON17", "ours: a_b & c")[3], "90.00");
    assert_eq!(row("CAMELYON17", "ours: a_b & c")[4], NOT_RUN);
    assert_eq!(row("CIFAR100", "ours")[3], NOT_RUN);
    assert!(!table.rows.iter().any(|row| row[0] == "CAMELYON17" && row[1] == "ours: mini"));
    assert_eq!(row("DomainNet", "ours: mini")[3], "81.00 ± 1.41 (2 seeds)");
    assert_eq!(row("ImageNet", "paper")[5], NOTHING);
    assert!(table.notes.iter().any(|note| note.starts_with("Warning: camelyon17: 1 of the 10 seeds")));
    assert_eq!(table.matched, 3);
}

#[test]
fn what_never_ran_has_one_row_of_ours_and_what_bella_cannot_measure_a_dash() {
    let table = table("ibdr-2");
    assert_eq!(table.matched, 0);
    assert_eq!(table.rows[0][2..4], ["0.29", "0.38"]);
    assert_eq!(table.rows[0][10], "0.16 ± 0.030");
    assert_eq!(table.rows[1][..4], ["CIFAR100", "ours", NOT_RUN, NOT_RUN]);
    let bayes_tune = table.columns.iter().position(|column| column == "BayesTune").unwrap();
    assert_eq!(table.rows[1][bayes_tune], NOT_RUN);
    let unnamed = table.columns.iter().position(|column| column == "SA-BNN").unwrap();
    assert_eq!(table.rows[1][unnamed], NOTHING);
}

#[test]
fn settings_that_the_paper_does_not_tell_apart_are_each_shown() {
    let mut sources = sources();
    sources.results.rows.truncate(1);
    sources.results.columns.push("adamw.lr".into());
    let mut second = sources.results.rows[0].clone();
    second[1] = "r9".into();
    second[11] = "0.6".into();
    sources.results.rows[0].push("0.1".into());
    second.push("0.2".into());
    sources.results.rows.push(second);
    let table = named(&sources, &["bella-3".to_string()]).unwrap().remove(0);
    assert_eq!(table.rows[1][2], "70.00 [Single, lr = 0.1]; 60.00 [Single, lr = 0.2]");
    assert_eq!(table.rows[1][7], NOT_RUN, "no average over what is ambiguous");
}

#[test]
fn latex_is_escaped_and_stands_alone() {
    assert_eq!(
        escape_latex("a_b & 5 % {x} $~^\\#"),
        "a\\_b \\& 5 \\% \\{x\\} \\$\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\#"
    );
    assert_eq!(escape_latex("γ ± [1] –"), "$\\gamma$ $\\pm$ {[}1] --");
    let latex = table("bella-1").to_latex();
    assert!(latex.contains("ours: a\\_b \\& c") && latex.contains("\\begin{tabular}{@{}llrrrrrr@{}}"), "{latex}");
    for (open, close) in [("\\begin{table}", "\\end{table}"), ("\\begin{tabular}", "\\end{tabular}")] {
        assert!(latex.matches(open).count() == 1 && latex.matches(close).count() == 1);
    }
    let rows: Vec<_> = latex.lines().filter(|line| line.ends_with(" \\\\")).collect();
    assert_eq!(rows.len(), 1 + 2 * 5);
    assert!(rows.iter().all(|row| row.replace("\\&", "").matches('&').count() == 7), "{latex}");
}

#[test]
fn html_and_markdown_are_escaped_and_csv_reads_back() {
    let mut table = table("bella-3");
    table.rows[0][0] = "<b>a|b</b>\"'&".into();
    let html = table.to_html();
    assert!(html.contains("&lt;b&gt;a|b&lt;/b&gt;&quot;&#39;&amp;") && !html.contains("<b>"), "{html}");
    assert!(html.contains("<tr class=\"ours\">") && html.contains("<td class=\"number not-run\">not run</td>"));
    for tag in ["figure", "table", "thead", "tbody", "tr", "td", "th", "ul", "li"] {
        let opened = html.matches(&format!("<{tag} ")).count() + html.matches(&format!("<{tag}>")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    let markdown = table.to_markdown();
    assert!(
        markdown.contains("| &lt;b>a\\|b&lt;/b>\"'& | paper |") && markdown.contains("|---|---|---:|"),
        "{markdown}"
    );
    let csv = table.to_csv().unwrap();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows: Vec<Vec<String>> = reader.records().map(|row| row.unwrap().iter().map(String::from).collect()).collect();
    assert_eq!(rows, table.rows);
}

#[test]
fn unknown_tables_are_refused_with_the_known_ones() {
    let error = named(&sources(), &["bella-11".to_string()]).unwrap_err().to_string();
    assert!(
        error.starts_with("unknown table `bella-11`; known: all, results, methods, ood, conformal, bella-1, "),
        "{error}"
    );
    assert_eq!(named(&sources(), &["all".to_string()]).unwrap().len(), keys().len());
}

#[test]
fn seeds_are_aggregated_for_eyes_and_for_files() {
    let sources = sources();
    let table = seeds(&sources);
    let row = table.rows.iter().find(|row| row[0] == "Bella-SVGD (n=5), mini").unwrap_or_else(|| panic!("{table:?}"));
    // numpy.std([0.80, 0.82], ddof=1) = 0.01414; scipy.stats.t.ppf(0.975, 1) * 0.01 = 0.12706
    assert_eq!(row[3..5], ["2", "81.00 ± 1.41 [68.29, 93.71]"]);
    assert!(table.notes.iter().any(|note| note.contains("1 of the 10 seeds")), "{:?}", table.notes);
    let shown = seeds_overview(&sources, &["accuracy_lm".to_string()]);
    let spec = Spec {
        columns: shown.columns.clone(),
        group_by: vec!["condition".into()],
        surface: Surface { width: Some(120), is_terminal: false },
    };
    let text = render(&shown, &spec);
    assert!(text.contains("81.00 ± 1.41") && text.contains("accuracy [%]"), "{text}");
    let csv = seeds_csv(&sources).unwrap();
    let line = csv.lines().find(|line| line.starts_with("\"Bella-SVGD (n=5), mini\",domainnet-real")).unwrap();
    assert!(line.contains(",clean,accuracy_lm,2,0.81") && line.split(',').count() == 10, "{line}");
}

#[test]
fn means_of_some_seeds_alone_say_so() {
    let mut sources = sources();
    sources.results.columns.push("nll_lm".into());
    sources.results.rows.iter_mut().for_each(|row| row.push(if row[1] == "r2" { "0.5" } else { "" }.into()));
    let said = "Bella-SVGD (n=5), mini (domainnet-real, clean): 1 of 2 seeds have nll_lm.";
    assert!(seeds(&sources).notes.iter().any(|note| note == said), "{:?}", seeds(&sources).notes);
    let numbers = ["accuracy_lm", "nll_lm"].map(String::from);
    let (_, table) = intervals(&sources, &numbers).into_iter().find(|(heading, _)| heading.contains("n=5")).unwrap();
    let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["accuracy [%]", "NLL (1 of 2 seeds)"]);
}

#[test]
fn every_row_of_ours_is_in_the_plain_table() {
    let table = results(&sources());
    assert_eq!((table.rows.len(), table.labels), (9, 8));
    assert_eq!(table.columns.last().unwrap(), "accuracy_lm [%]");
    assert!(ood(&sources()).rows.is_empty());
}

#[test]
fn columns_without_results_make_room_for_words() {
    let row = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect::<Vec<_>>();
    let table = RenderedTable {
        key: "t".into(),
        title: "Title".into(),
        caption: "Caption".into(),
        columns: row(&["row", "source", "consumption", "particles", "temperature"]),
        labels: 2,
        rows: vec![row(&["a", "paper", "1", "2", "3"]), row(&["a", "ours: vit", "not run", "5", "–"])],
        notes: vec![],
        matched: 1,
    };
    let at = |width| table.to_terminal(Surface { width: Some(width), is_terminal: true });
    assert!(at(80).contains("consumption") && !at(80).contains("result of ours"), "{}", at(80));
    let narrow = at(40);
    assert!(narrow.contains("particles") && !narrow.contains("consumption"), "{narrow}");
    let note = "  2 columns without a result of ours: in\n  a wider terminal, or with --table t\n  --format csv\n";
    assert!(narrow.ends_with(note), "{narrow}");
    // Without a result of ours, nothing is left out.
    let none = RenderedTable { rows: vec![table.rows[0].clone()], ..table.clone() };
    assert!(none.to_terminal(Surface { width: Some(40), is_terminal: true }).matches("3").count() == 1);
}
