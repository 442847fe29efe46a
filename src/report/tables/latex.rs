//! Tables as LaTeX: a `table` environment that needs the package booktabs, and graphicx where it is wide; every text is
//! escaped.

use super::rendered::RenderedTable;

/// Columns above which a table is scaled to the width of the text.
const WIDE: usize = 6;

impl RenderedTable {
    /// A `table` environment with `\caption` and `\label{tab:<key>}`; its first line names the packages it needs.
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

/// Text that LaTeX sets as it is read.
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
            // An opening bracket after a line break would be read as its option.
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
