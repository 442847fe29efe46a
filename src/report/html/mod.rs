//! The report as one self-contained HTML page, without external scripts, fonts or pictures. It follows the light or
//! dark mode of the reader's system and suits phones, wide screens and print.

mod overview;
mod sections;

use std::fmt::Write;

use anyhow::Result;

use self::sections::{Section, further, sections};
use super::figures::Figure;
use super::sources::Sources;
use crate::base::outside::escape_html;
pub use sections::Contents;

const STYLE: &str = include_str!("style.css");

/// Returns the report as HTML. All text that comes from files is escaped.
pub fn page(sources: &Sources, contents: Contents) -> Result<String> {
    let sections = sections(&contents);
    let mut html = String::new();
    writeln!(html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(html, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(
        html,
        "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>",
        escape_html(&overview::title(sources))
    )?;
    html.push_str(&overview::header(sources)?);
    html.push_str(&table_of_contents(&sections)?);
    html.push_str("<main>\n");
    html.push_str(&overview::runs(sources)?);
    for section in &sections {
        html.push_str(&section.html()?);
    }
    html.push_str(&further(&contents)?);
    html.push_str(&problems(sources, contents.figures)?);
    html.push_str(&overview::reproduce(sources)?);
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

#[cfg(test)]
mod tests;
