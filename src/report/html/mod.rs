//! The report as one self-contained HTML page, without external scripts, fonts or pictures. It follows the light or
//! dark mode of the reader's system and suits phones, wide screens and print. Its first section says which runs there are, and its last
//! one how to repeat them.

mod sections;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use self::sections::{Section, further, sections};
use super::figures::Figure;
use crate::base::outside::escape_html;
use crate::report::sources::{RunFiles, Sources};

pub use sections::Contents;

const STYLE: &str = include_str!("style.css");

/// Returns the report as HTML. All text that comes from files is escaped.
pub fn page(sources: &Sources, contents: Contents) -> Result<String> {
    let sections = sections(&contents);
    let mut html = String::new();
    writeln!(html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(html, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(html, "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>", escape_html(&title(sources)))?;
    html.push_str(&header(sources)?);
    html.push_str(&table_of_contents(&sections)?);
    html.push_str("<main>\n");
    html.push_str(&runs(sources)?);
    for section in &sections {
        html.push_str(&section.html()?);
    }
    html.push_str(&further(&contents)?);
    html.push_str(&problems(sources, contents.figures)?);
    html.push_str(&reproduce(sources)?);
    html.push_str("</main>\n</body>\n</html>\n");
    Ok(html)
}

fn table_of_contents(sections: &[Section]) -> Result<String> {
    let mut html = String::from("<nav aria-labelledby=\"contents\">\n<h2 id=\"contents\">Contents</h2>\n<ul>\n");
    html.push_str("<li><a href=\"#runs\">What was run</a></li>\n");
    for section in sections {
        writeln!(html, "<li><a href=\"#{}\">{}</a>\n<ul>", section.anchor, section.title)?;
        for (anchor, text) in section.entries() {
            writeln!(html, "<li><a href=\"#{}\">{}</a></li>", escape_html(&anchor), escape_html(text))?;
        }
        html.push_str("</ul></li>\n");
    }
    html.push_str(
        "<li><a href=\"#problems\">Problems</a></li>\n<li><a href=\"#reproduce\">How to reproduce</a></li>\n",
    );
    html.push_str("</ul>\n</nav>\n");
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

/// Returns the title of the page, which names the experiment or counts them.
fn title(sources: &Sources) -> String {
    match experiments(sources).as_slice() {
        [one] => format!("bella: {one}"),
        [] => "bella: results".to_string(),
        several => format!("bella: {} experiments", several.len()),
    }
}

/// Returns the names of the experiments in result rows and run folders.
fn experiments(sources: &Sources) -> Vec<&str> {
    let of_rows = sources.result_rows().map(|row| row.get("experiment"));
    let of_runs = sources.runs.iter().map(|run| run.experiment.as_str());
    let all: BTreeSet<_> = of_rows.chain(of_runs).filter(|name| !name.is_empty()).collect();
    all.into_iter().collect()
}

/// Returns the distinct values of a column over all result rows.
fn column<'a>(sources: &'a Sources, column: &str) -> Vec<&'a str> {
    let all: BTreeSet<_> = sources.result_rows().map(|row| row.get(column)).filter(|cell| !cell.is_empty()).collect();
    all.into_iter().collect()
}

fn header(sources: &Sources) -> Result<String> {
    let mut html = String::from("<header>\n");
    writeln!(html, "<h1>{}</h1>", escape_html(&title(sources)))?;
    let days: BTreeSet<_> = sources.runs.iter().filter_map(finished).collect();
    let when = match (days.first(), days.last()) {
        (Some(first), Some(last)) if first == last => format!(", finished on {first}"),
        (Some(first), Some(last)) => format!(", finished between {first} and {last}"),
        _ => String::new(),
    };
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let runs = column(sources, "run").len();
    writeln!(
        html,
        "<p class=\"lede\">Bayesian fine-tuning of pretrained networks: {} with results on {}, {}{when}.</p>",
        count(runs, "run"),
        count(column(sources, "set").len(), "test set"),
        count(column(sources, "seed").len(), "seed"),
    )?;
    html.push_str("</header>\n");
    Ok(html)
}

/// Returns the day on which the record of a finished run was written.
fn finished(run: &RunFiles) -> Option<String> {
    run.record.as_ref()?;
    Some(day(std::fs::metadata(run.folder.join("run.json")).ok()?.modified().ok()?))
}

/// Returns the day in UTC, as `2025-03-14`. Computed for the civil calendar in cycles of 400 years that start in March.
fn day(time: SystemTime) -> String {
    let days = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) + 719_468;
    let (cycle, of_cycle) = (days / 146_097, days % 146_097);
    let year = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", cycle * 400 + year + later)
}

/// Returns the table of the runs, with one row for each series.
fn runs(sources: &Sources) -> Result<String> {
    let mut html = String::from("<section aria-labelledby=\"runs\">\n<h2 id=\"runs\">What was run</h2>\n");
    html.push_str("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What was run\">\n<table>\n");
    html.push_str("<caption><span>A row for each method and setting; its runs differ in the seed alone.</span></caption>\n<thead>\n<tr>");
    for name in ["method", "experiment", "checkpoint", "seeds", "test sets", "conditions", "trained parameters"] {
        let class = if ["conditions", "trained parameters"].contains(&name) { "number" } else { "label" };
        write!(html, "<th scope=\"col\" class=\"{class}\">{name}</th>")?;
    }
    html.push_str("</tr>\n</thead>\n<tbody>\n");
    for series in sources.series() {
        let cells = |column: &str| {
            let get = |row: &usize| sources.results.get(*row, column).filter(|cell| !cell.is_empty());
            series.rows.iter().filter_map(get).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        write!(html, "<tr><th scope=\"row\" class=\"label\">{}</th>", escape_html(&series.name))?;
        for column in ["experiment", "checkpoint", "seed", "set"] {
            write!(html, "<td class=\"label\">{}</td>", escape_html(&cells(column).join(", ")))?;
        }
        let parameters: Vec<_> = cells("trainable_parameters").into_iter().map(grouped).collect();
        let parameters = escape_html(&parameters.join("; "));
        writeln!(
            html,
            "<td class=\"number\">{}</td><td class=\"number\">{parameters}</td></tr>",
            cells("condition").len()
        )?;
    }
    html.push_str("</tbody>\n</table>\n</div>\n</section>\n");
    Ok(html)
}

/// Groups digits in threes: `230400` becomes `230,400`. Other text is returned unchanged.
fn grouped(text: &str) -> String {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.to_string();
    }
    let start = text.len() % 3;
    let groups = (start..text.len()).step_by(3).map(|at| &text[at..at + 3]);
    (start > 0).then_some(&text[..start]).into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

fn reproduce(sources: &Sources) -> Result<String> {
    let mut html =
        String::from("<section aria-labelledby=\"reproduce\">\n<h2 id=\"reproduce\">How to reproduce</h2>\n");
    html.push_str(
        "<p>Each run folder holds its resolved config, which holds every setting that changes a number. From the results \
         folder, the commands below train the runs (<code>--force</code> repeats a finished one) or evaluate the \
         checkpoint as it is; then <code>bella report . --html report.html</code> makes this page.</p>\n",
    );
    if !sources.runs.is_empty() {
        html.push_str("<pre><code>");
        for run in &sources.runs {
            let path = format!("runs/{}/{}/config.toml", run.experiment, run.run);
            let trained = run.config.as_ref().is_none_or(|config| config.contains_key("method"));
            let command = if trained { "train" } else { "eval" };
            writeln!(html, "bella {command} --out . --config {}", escape_html(&path))?;
        }
        html.push_str("</code></pre>\n");
    }
    let built: BTreeSet<_> = sources.runs.iter().filter_map(built_with).collect();
    if !built.is_empty() {
        html.push_str("<p>The runs were made with:</p>\n<ul>\n");
        for one in built {
            writeln!(html, "<li>{}</li>", escape_html(&one))?;
        }
        html.push_str("</ul>\n");
    }
    html.push_str("</section>\n");
    Ok(html)
}

/// Returns the versions, the device and the precision of a finished run.
fn built_with(run: &RunFiles) -> Option<String> {
    let text = |key: &str| Some(run.record.as_ref()?.get(key)?.as_str()?.to_string()).filter(|text| !text.is_empty());
    let commit = text("commit").map_or(String::new(), |commit| format!(" (commit {commit})"));
    let version = text("bella_version")?;
    let rest = [("libtorch ", "libtorch_version"), ("device ", "device"), ("", "precision")];
    let rest = rest.iter().filter_map(|(label, key)| Some(format!(", {label}{}", text(key)?)));
    Some(format!("bella {version}{commit}{}", rest.collect::<String>()))
}

#[cfg(test)]
mod tests;
