use std::time::Duration;

use super::*;
use crate::report::figures;
use crate::results::store::Row;

/// Returns a results folder with one row whose names would be HTML markup if they were not escaped.
fn hostile() -> Sources {
    let mut sources = Sources::default();
    let mut row = Row::new();
    for column in ["experiment", "run", "checkpoint", "subspace", "method", "set", "adamw.lr", "seed"] {
        row.push(column, format!("<script>alert('{column}')</script>\"&"));
    }
    row.push("condition", "clean");
    row.push("accuracy_lm", "0.9");
    row.push("trainable_parameters", "1000");
    sources.results.append(&row);
    sources.problems.push("<img src=x onerror=alert(1)>".to_string());
    sources
}

fn rendered(sources: &Sources) -> String {
    let experiments = sources.by_experiment();
    let figures = figures::all(&figures::Material::of(&experiments));
    let tables = crate::report::tables::all(sources).unwrap();
    page(sources, Contents { paper_tables: &tables, result_tables: &[], figures: &figures, sheet: &[] }).unwrap()
}

#[test]
fn text_of_files_is_never_markup() {
    let html = rendered(&hostile());
    assert!(!html.contains("<script") && !html.contains("<img"), "markup of a file");
    assert!(html.contains("&lt;script&gt;alert(&#39;method&#39;)") && html.contains("&lt;img src=x"));
}

#[test]
fn nothing_is_requested_from_elsewhere() {
    let html = rendered(&hostile());
    for attribute in ["src=", "url(", "@import", "<link", "<iframe", "<script"] {
        assert!(!html.replace("&lt;img src=x", "").contains(attribute), "{attribute}");
    }
    for href in html.split("href=\"").skip(1) {
        assert!(href.starts_with('#'), "{}", &href[..href.len().min(60)]);
    }
    let elsewhere = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(!elsewhere.contains("http://"), "a plain address");
}

#[test]
fn every_link_of_the_contents_leads_somewhere_and_tags_are_balanced() {
    let html = rendered(&hostile());
    for anchor in html.split("href=\"#").skip(1).map(|rest| &rest[..rest.find('"').unwrap()]) {
        assert_eq!(html.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}");
    }
    for tag in ["section", "figure", "table", "tr", "ul", "li", "h2", "h3", "p", "div", "svg", "main", "nav"] {
        let open = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn a_figure_without_data_names_its_command_and_one_with_data_is_labelled() {
    let html = rendered(&hostile());
    assert!(html.contains("its data comes from, for example, <code>bella landscape RUN</code>"));
    assert!(html.contains("<svg role=\"img\" aria-label=\"Accuracy over trainable parameters."));
    assert!(html.contains("<html lang=\"en\">") && html.contains("prefers-color-scheme: dark"));
}

#[test]
fn colours_of_figures_that_need_light_ground_are_replaced_on_dark() {
    use crate::plot::canvas::{BAND, GRID, INK, MUTED, color};
    for color in [INK, MUTED, GRID, BAND, color(0), color(2)] {
        let hex = color.to_string();
        assert!(STYLE.contains(&format!("=\"{hex}\"]")), "{hex}");
    }
}

#[test]
fn days_of_the_civil_calendar() {
    // Expected values are from `date -u -d @SECONDS +%F`.
    let cases =
        [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (951_868_800, "2000-03-01"), (1_735_689_599, "2024-12-31")];
    for (seconds, want) in cases {
        assert_eq!(day(UNIX_EPOCH + Duration::from_secs(seconds)), want);
    }
}

#[test]
fn digits_in_groups_of_three() {
    assert_eq!(["1", "123", "1234", "230400", "x<1"].map(grouped), ["1", "123", "1,234", "230,400", "x<1"]);
}
