//! The sections of the page: the user's own results first, by topic, then the published tables that they can be compared
//! with, then every row.

use std::fmt::Write;

use anyhow::Result;

use crate::base::outside::escape_html;
use crate::report::figures::{Figure, Topic};
use crate::report::tables::{RenderedTable, with_code};

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
    /// The sheet of a run's uncertain and wrong images, as PNG. Empty if there is none.
    pub sheet: &'a [u8],
}

/// A section with its figures above its tables.
pub struct Section<'a> {
    pub anchor: &'static str,
    pub title: &'static str,
    about: String,
    figures: Vec<&'a Figure>,
    tables: Vec<&'a RenderedTable>,
    sheet: &'a [u8],
}

impl Section<'_> {
    /// Returns the anchors and titles of what is in the section.
    pub fn entries(&self) -> Vec<(String, &str)> {
        let figures = self.figures.iter().map(|figure| (format!("figure-{}", figure.key), figure.title.as_str()));
        let anchor = |table: &RenderedTable| if folded(table).is_some() { "folded" } else { "table" };
        let tables = self.tables.iter().map(|table| (format!("{}-{}", anchor(table), table.key), table.title.as_str()));
        figures.chain(tables).collect()
    }

    pub fn html(&self) -> Result<String> {
        let Section { anchor, title, about, .. } = self;
        let mut html = format!("<section aria-labelledby=\"{anchor}\">\n<h2 id=\"{anchor}\">{title}</h2>\n");
        if !about.is_empty() {
            writeln!(html, "<p>{about}</p>")?;
        }
        for figure in &self.figures {
            html.push_str(&drawn(figure)?);
        }
        if !self.sheet.is_empty() {
            let picture = base64(self.sheet);
            writeln!(
                html,
                "<figure class=\"picture\"><img alt=\"Images with their predictions: the most confidently wrong ones, the least \
                 certain ones and the most certain ones\" src=\"data:image/png;base64,{picture}\"></figure>"
            )?;
        }
        for table in &self.tables {
            html.push_str(&tabulated(table)?);
        }
        html.push_str("</section>\n");
        Ok(html)
    }
}

/// Returns the sections that hold something, in the order of the page.
pub fn sections<'a>(contents: &Contents<'a>) -> Vec<Section<'a>> {
    let mut sections: Vec<Section> = Topic::ALL.into_iter().map(|topic| of_topic(contents, topic)).collect();
    sections.push(Section {
        anchor: "published",
        title: "Beside the published numbers",
        about: "Each published number stands above ours. Fractions are shown in percent; a cell without a result of the same \
                setting says so."
            .into(),
        figures: vec![],
        sheet: &[],
        tables: contents.paper_tables.iter().filter(|table| table.matched > 0).collect(),
    });
    sections.push(Section {
        anchor: "results",
        title: "All results",
        about: "As in the results files; fractions in percent.".into(),
        figures: vec![],
        sheet: &[],
        tables: result_table(contents, "results"),
    });
    sections.retain(|section| !(section.figures.is_empty() && section.tables.is_empty() && section.sheet.is_empty()));
    sections
}

/// Returns the section of a topic.
fn of_topic<'a>(contents: &Contents<'a>, topic: Topic) -> Section<'a> {
    let (anchor, title) = topic.heading();
    let drawn = |figure: &&Figure| figure.topic == topic && figure.picture.is_some();
    let tables = match topic {
        Topic::Comparison => result_table(contents, "seeds"),
        Topic::Calibration => result_table(contents, "conformal"),
        Topic::Uncertainty => result_table(contents, "ood"),
        Topic::Classes => [result_table(contents, "classes"), result_table(contents, "mistakes")].concat(),
        Topic::Robustness | Topic::Training | Topic::Settings => vec![],
    };
    let sheet = if topic == Topic::Classes { contents.sheet } else { &[] };
    let figures = contents.figures.iter().filter(drawn).collect();
    Section { anchor, title, about: String::new(), figures, tables, sheet }
}

/// Returns bytes in base 64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let all = part.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        let digit = |at: usize| char::from(DIGITS[(all >> (18 - 6 * at)) as usize & 63]);
        (0..4).for_each(|at| text.push(if at <= part.len() { digit(at) } else { '=' }));
    }
    text
}

/// Returns the table of results with this key, if it has rows.
fn result_table<'a>(contents: &Contents<'a>, key: &str) -> Vec<&'a RenderedTable> {
    contents.result_tables.iter().find(|table| table.key == key && !table.rows.is_empty()).into_iter().collect()
}

/// Returns a folded list of what the results could show besides, with the commands for it. Empty if there is nothing.
pub fn further(contents: &Contents) -> Result<String> {
    let figures: Vec<_> = contents.figures.iter().filter(|figure| figure.picture.is_none()).collect();
    let tables: Vec<_> = contents.paper_tables.iter().filter(|table| table.matched == 0).collect();
    if figures.is_empty() && tables.is_empty() {
        return Ok(String::new());
    }
    let mut html = String::from("<section aria-labelledby=\"further\">\n<h2 id=\"further\">Not run yet</h2>\n");
    html.push_str("<details><summary>Figures and published tables without results here</summary>\n<ul>\n");
    for figure in figures {
        let (title, command) = (escape_html(&figure.title), escape_html(figure.command));
        writeln!(html, "<li>{title}: its data comes from, for example, <code>{command}</code></li>")?;
    }
    for table in tables {
        let (title, key) = (escape_html(&table.title), escape_html(&table.key));
        writeln!(html, "<li>{title}: <code>bella report --table {key}</code> shows the published numbers</li>")?;
    }
    html.push_str("</ul>\n</details>\n</section>\n");
    Ok(html)
}

fn tabulated(table: &RenderedTable) -> Result<String> {
    let title = escape_html(&table.title);
    // A scrolling region must be reachable by keyboard and needs a name for screen readers.
    let region = format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {title}\">");
    let figure = table.to_html().replacen("<div class=\"scroll\">", &region, 1);
    let Some(why) = folded(table) else { return Ok(figure) };
    let key = escape_html(&table.key);
    Ok(format!("<details id=\"folded-{key}\"><summary>{title} <small>{why}</small></summary>\n{figure}</details>\n"))
}

/// Returns the reason why a table is folded, which is more than [`MOST_OPEN_ROWS`] rows. `None` if it is open.
fn folded(table: &RenderedTable) -> Option<String> {
    let rows = table.rows.len();
    (rows > MOST_OPEN_ROWS).then(|| format!("{rows} rows"))
}

fn drawn(figure: &Figure) -> Result<String> {
    let Some(picture) = &figure.picture else { return Ok(String::new()) };
    let paper = match figure.paper {
        "" => String::new(),
        paper => format!(" <small>{}</small>", escape_html(paper)),
    };
    let (key, title) = (escape_html(&figure.key), escape_html(&figure.title));
    let mut html = format!("<section class=\"figure\" aria-labelledby=\"figure-{key}\">\n");
    writeln!(html, "<h3 id=\"figure-{key}\">{title}{paper}</h3>")?;
    let label = escape_html(&format!("{}. {}", figure.title, figure.caption));
    let named = picture.svg().replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1);
    let region = escape_html(&format!("Figure: {}", figure.title));
    writeln!(html, "<figure class=\"picture\">")?;
    writeln!(html, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{region}\">\n{named}</div>")?;
    writeln!(html, "<figcaption>{}</figcaption>\n</figure>\n</section>", with_code(&figure.caption))?;
    Ok(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_base_64() {
        // base64.b64encode of b"", b"f", b"fo", b"foo", b"foobar" (RFC 4648, section 10) and of bytes([255, 254, 0, 253])
        let cases: [(&[u8], &str); 6] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[255, 254, 0, 253], "//4A/Q=="),
        ];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes), text);
        }
    }
}
