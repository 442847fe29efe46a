//! A table as text, and the formats it is written in: terminal, Markdown, CSV, LaTeX and HTML.

use comfy_table::presets::{ASCII_MARKDOWN, UTF8_FULL_CONDENSED};
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement};

use crate::base::outside::{csv_cell, escape_html, escape_markdown, printable};
use crate::base::small::{counted, wrapped};
use crate::results::table::{Surface, Texts};

/// The text in the column `source` of a published row.
pub const PUBLISHED: &str = "paper";

/// The start of the text in the column `source` of a row of ours.
pub const OURS: &str = "ours: ";

/// The text of a cell for which we have no result.
pub const NOT_RUN: &str = "not run";

/// The text of a cell without a number: the paper prints none, bella does not measure the quantity, or there is no run.
pub const NOTHING: &str = "–";

/// A table whose cells are texts. Fractions are in percent, and numbers are rounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedTable {
    /// The name that `--table` accepts.
    pub key: String,
    pub title: String,
    /// The source of the published numbers, or a description of the rows.
    pub caption: String,
    pub columns: Vec<String>,
    /// The number of leading columns that name the row. The other columns hold numbers.
    pub labels: usize,
    /// The rows, with one text per column.
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
    /// The number of cells with a result of ours.
    pub matched: usize,
}

impl RenderedTable {
    /// Returns rows of ours as a table.
    pub fn of_texts(key: &str, title: &str, caption: &str, texts: Texts) -> RenderedTable {
        RenderedTable {
            key: key.to_string(),
            title: title.to_string(),
            caption: caption.to_string(),
            labels: texts.labels,
            columns: texts.titles,
            matched: texts.rows.len(),
            rows: texts.rows,
            notes: vec![],
        }
    }

    /// Returns the table for a terminal with its title and notes, ending in a line break. Where words would be cut, only
    /// the columns with a result of ours are shown.
    pub fn to_terminal(&self, surface: Surface) -> String {
        let columns = self.fitting(surface);
        let left_out = self.columns.len() - columns.len();
        let mut table = comfy_table::Table::new();
        match surface.is_terminal {
            false => table.load_style(ASCII_MARKDOWN).force_no_tty(),
            true => {
                if let Some(width) = surface.width {
                    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
                }
                table.load_style(UTF8_FULL_CONDENSED).force_no_tty().enforce_styling()
            }
        };
        let align = |place| if place < self.labels { CellAlignment::Left } else { CellAlignment::Right };
        let cell = |(place, text): (usize, &String)| Cell::new(printable(text)).set_alignment(align(place));
        table.set_header(columns.iter().map(|place| match surface.is_terminal {
            false => cell((*place, &self.columns[*place])),
            true => cell((*place, &self.columns[*place])).add_attribute(Attribute::Bold),
        }));
        for row in self.shown_rows() {
            table.add_row(columns.iter().map(|place| cell((*place, &row[*place]))));
        }
        let (title, caption) = (printable(&self.title), printable(&self.caption));
        let mut text = format!("{}: {title}\n{caption}\n{}\n", self.key, table.trim_fmt());
        let width = surface.width.filter(|_| surface.is_terminal).map_or(usize::MAX, usize::from);
        let mut add = |note: &str| text.push_str(&format!("{}\n", wrapped(&format!("  {note}"), width)));
        self.notes.iter().for_each(|note| add(&printable(note)));
        if left_out > 0 {
            let columns = counted(left_out, "column without", "columns without");
            let way_out = format!("in a wider terminal, or with --table {} --format csv", self.key);
            add(&format!("{columns} a result of ours: {way_out}"));
        }
        text
    }

    /// Returns the places of the columns that a surface has room for without cutting words: all, or else the labels and
    /// those with a result of ours.
    fn fitting(&self, surface: Surface) -> Vec<usize> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = surface.width.map(usize::from).filter(|_| surface.is_terminal) else { return all };
        let longest = |text: &String| text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
        let cells = |place: usize| self.rows.iter().map(move |row| &row[place]).chain([&self.columns[place]]);
        let needed: usize = all.iter().map(|place| cells(*place).map(longest).max().unwrap_or(0) + 3).sum();
        let is_ours = |row: &&Vec<String>| row.iter().take(self.labels).any(|label| label.starts_with(OURS));
        let has_result = |place: &usize| {
            let found = |row: &Vec<String>| ![NOT_RUN, "", "–"].contains(&row[*place].as_str());
            *place < self.labels || self.rows.iter().filter(is_ours).any(found)
        };
        let ours: Vec<usize> = all.iter().copied().filter(has_result).collect();
        if needed < width || ours.len() == self.labels { all } else { ours }
    }

    /// Returns the table in GitHub's dialect of Markdown, with its title as a heading.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|cell| escape_markdown(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let (title, caption) = (escape_markdown(&self.title), escape_markdown(&self.caption));
        let mut text = format!("## {title}\n\n{caption}\n\n{}", line(&self.columns));
        let ruler = (0..self.columns.len()).map(|place| if place < self.labels { "---" } else { "---:" });
        text.push_str(&format!("|{}|\n", ruler.collect::<Vec<_>>().join("|")));
        self.shown_rows().iter().for_each(|row| text.push_str(&line(row)));
        if !self.notes.is_empty() {
            text.push('\n');
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("- {}\n", escape_markdown(note))));
        text
    }

    /// Returns the table as CSV with a header line. Labels that repeat the row above are kept.
    pub fn to_csv(&self) -> anyhow::Result<String> {
        let mut csv = csv::Writer::from_writer(vec![]);
        csv.write_record(&self.columns)?;
        self.rows.iter().try_for_each(|row| csv.write_record(row.iter().map(|cell| csv_cell(cell).into_owned())))?;
        Ok(String::from_utf8(csv.into_inner().map_err(|error| error.into_error())?)?)
    }

    /// Returns a `<figure>` element with the table and its notes, without any styling.
    pub fn to_html(&self) -> String {
        let row = |cells: Vec<(usize, &String)>, head: bool| {
            let cell = |(place, text): (usize, &String)| {
                let class = match (place < self.labels, text.as_str()) {
                    (true, _) => "label",
                    (false, NOT_RUN) => "number not-run",
                    (false, _) => "number",
                };
                let tag = match (head, place < self.labels) {
                    (true, _) => ("th scope=\"col\"", "th"),
                    (false, true) => ("th scope=\"row\"", "th"),
                    (false, false) => ("td", "td"),
                };
                format!("<{} class=\"{class}\">{}</{}>", tag.0, escape_html(text), tag.1)
            };
            cells.into_iter().map(cell).collect::<String>()
        };
        let mut html =
            format!("<figure class=\"table\" id=\"table-{}\">\n<div class=\"scroll\">\n", escape_html(&self.key));
        html.push_str(&format!(
            "<table>\n<caption><strong>{}</strong> <span>{}</span></caption>\n",
            escape_html(&self.title),
            with_code(&self.caption)
        ));
        html.push_str(&format!(
            "<thead>\n<tr>{}</tr>\n</thead>\n<tbody>\n",
            row(self.columns.iter().enumerate().collect(), true)
        ));
        for (shown, full) in self.shown_rows().iter().zip(&self.rows) {
            let class = self.row_class(full);
            html.push_str(&format!("<tr class=\"{class}\">{}</tr>\n", row(shown.iter().enumerate().collect(), false)));
        }
        html.push_str("</tbody>\n</table>\n</div>\n");
        if !self.notes.is_empty() {
            let notes: String = self.notes.iter().map(|note| format!("<li>{}</li>\n", with_code(note))).collect();
            html.push_str(&format!("<ul class=\"notes\">\n{notes}</ul>\n"));
        }
        html.push_str("</figure>\n");
        html
    }

    fn row_class(&self, row: &[String]) -> &'static str {
        match row.get(1).map(String::as_str) {
            Some(PUBLISHED) => "published",
            Some(text) if text.starts_with(OURS.trim_end_matches(": ")) => "ours",
            _ => "plain",
        }
    }

    /// Returns the rows with the first label left out if it repeats the one above.
    pub(super) fn shown_rows(&self) -> Vec<Vec<String>> {
        let mut rows = self.rows.clone();
        if self.labels < 2 {
            return rows;
        }
        for (shown, pair) in rows.iter_mut().skip(1).zip(self.rows.windows(2)) {
            if pair[0].first() == pair[1].first()
                && let Some(label) = shown.first_mut()
            {
                label.clear();
            }
        }
        rows
    }
}

/// Converts text to HTML. Text between backticks becomes code.
pub fn with_code(text: &str) -> String {
    let part = |(at, part): (usize, &str)| match at % 2 {
        0 => escape_html(part),
        _ => format!("<code>{}</code>", escape_html(part)),
    };
    text.split('`').enumerate().map(part).collect()
}

/// The number of columns above which a LaTeX table is scaled to the text width.
const WIDE: usize = 6;

impl RenderedTable {
    /// Returns the table as a LaTeX `table` environment with `\caption` and `\label{tab:<key>}`. Its first line names the
    /// packages it needs.
    pub fn to_latex(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|cell| escape_latex(cell)).collect();
            format!("{} \\\\\n", cells.join(" & "))
        };
        let (packages, open, close) = match self.columns.len() > WIDE {
            true => ("booktabs,graphicx", "\\resizebox{\\textwidth}{!}{%\n", "\\end{tabular}}\n"),
            false => ("booktabs", "\\small\n", "\\end{tabular}\n"),
        };
        let title = format!("{}. {}", self.title, self.caption);
        let align: String = (0..self.columns.len()).map(|place| if place < self.labels { 'l' } else { 'r' }).collect();
        let mut text = format!("% needs \\usepackage{{{packages}}}\n\\begin{{table}}[htbp]\n\\centering\n");
        text.push_str(&format!("\\caption{{{}}}\n\\label{{tab:{}}}\n", escape_latex(&title), self.key));
        text.push_str(&format!("{open}\\begin{{tabular}}{{@{{}}{align}@{{}}}}\n\\toprule\n"));
        text.push_str(&line(&self.columns));
        text.push_str("\\midrule\n");
        self.shown_rows().iter().for_each(|row| text.push_str(&line(row)));
        text.push_str(&format!("\\bottomrule\n{close}"));
        for note in &self.notes {
            text.push_str(&format!("\n\\footnotesize {}\n", escape_latex(note)));
        }
        text.push_str("\\end{table}\n");
        text
    }
}

/// Escapes text so that LaTeX prints it literally.
pub fn escape_latex(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => safe.push_str("\\textbackslash{}"),
            '~' => safe.push_str("\\textasciitilde{}"),
            '^' => safe.push_str("\\textasciicircum{}"),
            '<' => safe.push_str("\\textless{}"),
            '>' => safe.push_str("\\textgreater{}"),
            '|' => safe.push_str("\\textbar{}"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => safe.extend(['\\', character]),
            // LaTeX would read an opening bracket after a line break as the optional argument of `\\`.
            '[' => safe.push_str("{[}"),
            '±' => safe.push_str("$\\pm$"),
            '×' => safe.push_str("$\\times$"),
            'γ' => safe.push_str("$\\gamma$"),
            'ε' => safe.push_str("$\\varepsilon$"),
            '∞' => safe.push_str("$\\infty$"),
            '≤' => safe.push_str("$\\le$"),
            '≥' => safe.push_str("$\\ge$"),
            '−' => safe.push_str("$-$"),
            '–' => safe.push_str("--"),
            '…' => safe.push_str("\\dots{}"),
            '\n' | '\r' | '\t' => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}
