//! Renders a table as a LaTeX `table` environment. It needs the package booktabs and, for a wide table, graphicx. All
//! text is escaped.

use super::rendered::RenderedTable;

/// The number of columns above which a table is scaled to the text width.
const WIDE: usize = 6;

impl RenderedTable {
    /// Returns the table as a `table` environment with `\caption` and `\label{tab:<key>}`. Its first line names the
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
