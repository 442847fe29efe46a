//! The first and the last section of the page: which runs there are, and how to repeat them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::base::outside::escape_html;
use crate::report::sources::{RunFiles, Sources};

/// Returns the title of the page, which names the experiment or counts them.
pub fn title(sources: &Sources) -> String {
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

pub fn header(sources: &Sources) -> Result<String> {
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
pub fn runs(sources: &Sources) -> Result<String> {
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

pub fn reproduce(sources: &Sources) -> Result<String> {
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
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn days_of_the_civil_calendar() {
        // Expected values are from `date -u -d @SECONDS +%F`.
        let cases = [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
        ];
        for (seconds, want) in cases {
            assert_eq!(day(UNIX_EPOCH + Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn digits_in_groups_of_three() {
        assert_eq!(["1", "123", "1234", "230400", "x<1"].map(grouped), ["1", "123", "1,234", "230,400", "x<1"]);
    }
}
