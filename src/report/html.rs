//! The report as one self-contained HTML page, without external scripts, fonts or pictures. It follows the light or
//! dark mode of the reader's system and suits phones, wide screens and print.

mod overview;

use std::fmt::Write;

use anyhow::Result;

use super::figures::Figure;
use super::sources::Sources;
use super::tables::{RenderedTable, escape_html, with_code};

const STYLE: &str = include_str!("html/style.css");

/// The number of rows above which a table is folded.
const MOST_OPEN_ROWS: usize = 60;

/// The tables and figures of the page. The overview of the runs comes from the results folder.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The published tables with our results beside them.
    pub paper_tables: &'a [RenderedTable],
    /// The tables of our results alone.
    pub result_tables: &'a [RenderedTable],
    pub figures: &'a [Figure],
}

/// Returns the report as HTML. All text that comes from files is escaped.
pub fn page(sources: &Sources, contents: Contents) -> Result<String> {
    let mut html = String::new();
    writeln!(html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(html, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(
        html,
        "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>",
        escape_html(&overview::title(sources))
    )?;
    html.push_str(&overview::header(sources)?);
    html.push_str(&table_of_contents(contents)?);
    html.push_str("<main>\n");
    html.push_str(&overview::runs(sources)?);
    html.push_str(&tables(
        "published",
        "Beside the published numbers",
        "Each published number stands above ours. Fractions are shown in percent; a cell without a result of the same \
         setting says so.",
        contents.paper_tables,
    )?);
    html.push_str(&tables(
        "results",
        "Our results",
        "As in the results files; fractions in percent.",
        contents.result_tables,
    )?);
    html.push_str(&figures(contents.figures)?);
    html.push_str(&problems(sources, contents.figures)?);
    html.push_str(&overview::reproduce(sources)?);
    html.push_str("</main>\n</body>\n</html>\n");
    Ok(html)
}

fn table_of_contents(contents: Contents) -> Result<String> {
    let mut html = String::from("<nav aria-labelledby=\"contents\">\n<h2 id=\"contents\">Contents</h2>\n<ul>\n");
    html.push_str("<li><a href=\"#runs\">What was run</a></li>\n");
    let shown = |tables: &[RenderedTable]| {
        let entry = |table: &RenderedTable| Entry {
            anchor: format!("{}-{}", if folded(table).is_some() { "folded" } else { "table" }, table.key),
            text: table.title.clone(),
            absent: table.matched == 0,
        };
        tables.iter().filter(|table| !table.rows.is_empty()).map(entry).collect::<Vec<_>>()
    };
    let figure = |figure: &Figure| Entry {
        anchor: format!("figure-{}", figure.key),
        text: figure.title.to_string(),
        absent: figure.svg.is_none(),
    };
    let parts = [
        ("published", "Beside the published numbers", shown(contents.paper_tables)),
        ("results", "Our results", shown(contents.result_tables)),
        ("figures", "Figures", contents.figures.iter().map(figure).collect()),
    ];
    for (anchor, text, entries) in parts.iter().filter(|(_, _, entries)| !entries.is_empty()) {
        writeln!(html, "<li><a href=\"#{anchor}\">{text}</a>\n<ul>")?;
        for Entry { anchor, text, absent } in entries {
            let (class, mark) = if *absent { (" class=\"absent\"", " (not run)") } else { ("", "") };
            let (anchor, text) = (escape_html(anchor), escape_html(text));
            writeln!(html, "<li{class}><a href=\"#{anchor}\">{text}</a>{mark}</li>")?;
        }
        html.push_str("</ul></li>\n");
    }
    html.push_str(
        "<li><a href=\"#problems\">Problems</a></li>\n<li><a href=\"#reproduce\">How to reproduce</a></li>\n",
    );
    html.push_str("</ul>\n</nav>\n");
    Ok(html)
}

/// An entry of the table of contents. `absent` is set if bella has no result for it.
struct Entry {
    anchor: String,
    text: String,
    absent: bool,
}

fn tables(anchor: &str, title: &str, about: &str, tables: &[RenderedTable]) -> Result<String> {
    let mut html = String::new();
    let filled: Vec<_> = tables.iter().filter(|table| !table.rows.is_empty()).collect();
    if filled.is_empty() {
        return Ok(html);
    }
    writeln!(html, "<section aria-labelledby=\"{anchor}\">\n<h2 id=\"{anchor}\">{title}</h2>\n<p>{about}</p>")?;
    for table in filled {
        let title = escape_html(&table.title);
        // A scrolling region must be reachable by keyboard and needs a name for screen readers.
        let region = format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {title}\">");
        let figure = table.to_html().replacen("<div class=\"scroll\">", &region, 1);
        match folded(table) {
            Some(why) => {
                let key = escape_html(&table.key);
                writeln!(
                    html,
                    "<details id=\"folded-{key}\"><summary>{title} <small>{why}</small></summary>\n{figure}</details>"
                )?
            }
            None => html.push_str(&figure),
        }
    }
    html.push_str("</section>\n");
    Ok(html)
}

/// Returns the reason why a table is folded: it has no result of ours, or more than [`MOST_OPEN_ROWS`] rows. `None` if
/// it is open.
fn folded(table: &RenderedTable) -> Option<String> {
    match (table.matched, table.rows.len()) {
        (0, _) => Some("not run".to_string()),
        (_, rows) if rows > MOST_OPEN_ROWS => Some(format!("{rows} rows")),
        _ => None,
    }
}

fn figures(figures: &[Figure]) -> Result<String> {
    let mut html = String::new();
    if figures.is_empty() {
        return Ok(html);
    }
    html.push_str("<section aria-labelledby=\"figures\">\n<h2 id=\"figures\">Figures</h2>\n");
    for figure in figures {
        let paper = match figure.paper {
            "" => String::new(),
            paper => format!(" <small>{}</small>", escape_html(paper)),
        };
        let (key, title) = (escape_html(figure.key), escape_html(figure.title));
        writeln!(
            html,
            "<section class=\"figure\" aria-labelledby=\"figure-{key}\">\n<h3 id=\"figure-{key}\">{title}{paper}</h3>"
        )?;
        match &figure.svg {
            Some(svg) => html.push_str(&picture(figure, svg)?),
            None => writeln!(
                html,
                "<p class=\"absent\">Not run. Its data comes from, for example: <code>{}</code></p>",
                escape_html(figure.command)
            )?,
        }
        html.push_str("</section>\n");
    }
    html.push_str("</section>\n");
    Ok(html)
}

fn picture(figure: &Figure, svg: &str) -> Result<String> {
    let mut html = String::new();
    let label = escape_html(&format!("{}. {}", figure.title, figure.caption));
    let named = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1);
    let region = escape_html(&format!("Figure: {}", figure.title));
    writeln!(html, "<figure class=\"picture\">")?;
    writeln!(html, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{region}\">\n{named}</div>")?;
    writeln!(html, "<figcaption>{}</figcaption>\n</figure>", with_code(&figure.caption))?;
    Ok(html)
}

fn problems(sources: &Sources, figures: &[Figure]) -> Result<String> {
    let all: Vec<_> = sources.problems.iter().chain(figures.iter().flat_map(|figure| &figure.problems)).collect();
    let mut html = String::from("<section aria-labelledby=\"problems\">\n<h2 id=\"problems\">Problems</h2>\n");
    if all.is_empty() {
        html.push_str("<p>None: every file of the results folder could be read.</p>\n");
    } else {
        html.push_str("<p>These files count as not run, in whole or in part.</p>\n<ul class=\"problems\">\n");
        for problem in all {
            writeln!(html, "<li>{}</li>", escape_html(problem))?;
        }
        html.push_str("</ul>\n");
    }
    html.push_str("</section>\n");
    Ok(html)
}

#[cfg(test)]
mod tests;
