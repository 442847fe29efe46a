//! Writes tables and figures to files, and renders one table in the format that was asked for.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::figures::Figure;
use super::tables::RenderedTable;
use crate::base::files::{create_folder, write_atomic};
use crate::base::outside::printable;
use crate::plot::raster::png;
use crate::results::table::Surface;
use crate::schema::words;

/// The number of PNG pixels per unit of the SVG.
const PNG_SCALE: f32 = 2.0;

words! {
    /// The format in which a table is printed.
    pub enum Format { Terminal = "terminal", Markdown = "markdown", Csv = "csv", Latex = "latex" }
}

/// Returns the table in the given format, ending in a line break.
pub fn text(table: &RenderedTable, format: Format) -> Result<String> {
    Ok(match format {
        Format::Terminal => table.to_terminal(Surface::of_stdout()),
        Format::Markdown => table.to_markdown(),
        Format::Csv => printable(&table.to_csv()?).into_owned(),
        Format::Latex => printable(&table.to_latex()).into_owned(),
    })
}

/// Writes every table with a result of ours to `<key>.md`, `<key>.csv` and `<key>.tex` in `folder`, which is created if needed.
pub fn tables(folder: &Path, tables: &[RenderedTable]) -> Result<()> {
    create_folder(folder)?;
    for table in tables.iter().filter(|table| table.matched > 0) {
        for (ending, format) in [("md", Format::Markdown), ("csv", Format::Csv), ("tex", Format::Latex)] {
            write(&folder.join(format!("{}.{ending}", table.key)), &text(table, format)?)?;
        }
    }
    Ok(())
}

/// Writes tables to `<key>.csv` in `folder`.
pub fn csv(folder: &Path, tables: &[RenderedTable]) -> Result<()> {
    tables.iter().try_for_each(|table| write(&folder.join(format!("{}.csv", table.key)), &text(table, Format::Csv)?))
}

/// Writes every figure that could be drawn to `<key>.svg` and `<key>.png` in `folder`, which is created if needed.
pub fn figures(folder: &Path, figures: &[Figure]) -> Result<()> {
    create_folder(folder)?;
    for figure in figures {
        let Some(picture) = &figure.picture else { continue };
        let pixels = png(picture, PNG_SCALE).with_context(|| format!("figure {}", figure.key))?;
        write(&folder.join(format!("{}.svg", figure.key)), &picture.svg())?;
        bytes(&folder.join(format!("{}.png", figure.key)), &pixels)?;
    }
    Ok(())
}

/// Writes `text` to the file at `path`, which is replaced atomically.
pub fn write(path: &Path, text: &str) -> Result<()> {
    bytes(path, text.as_bytes())
}

/// Writes `content` to the file at `path`, which is replaced atomically.
pub fn bytes(path: &Path, content: &[u8]) -> Result<()> {
    write_atomic(path, |writer| Ok(writer.write_all(content)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Canvas;
    use crate::report::Sources;
    use crate::report::tables::all;

    #[test]
    fn every_table_with_a_result_of_ours_is_written_in_three_forms() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/out");
        let mut rendered = all(&Sources::default()).unwrap();
        tables(&out, &rendered).unwrap();
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0, "there are no results");
        rendered.iter_mut().filter(|table| table.key == "bella-1").for_each(|table| table.matched = 1);
        tables(&out, &rendered).unwrap();
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 3);
        let latex = std::fs::read_to_string(out.join("bella-1.tex")).unwrap();
        assert!(latex.contains("\\label{tab:bella-1}") && latex.ends_with("\\end{table}\n"));
        assert!(std::fs::read_to_string(out.join("bella-1.md")).unwrap().contains("| CIFAR10 | paper | 97.57 |"));
    }
    #[test]
    fn drawn_figures_are_written_as_svg_and_png_and_others_not() {
        let folder = tempfile::tempdir().unwrap();
        let canvas = Canvas::new(4, 3);
        let figure = |key, picture: Option<&Canvas>| Figure {
            key: String::from(key),
            topic: crate::report::figures::Topic::Training,
            title: String::new(),
            paper: "",
            caption: String::new(),
            picture: picture.cloned(),
            command: "",
            problems: vec![],
        };
        figures(folder.path(), &[figure("a", Some(&canvas)), figure("b", None)]).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a.svg")).unwrap(), canvas.svg());
        let png = std::fs::read(folder.path().join("a.png")).unwrap();
        // The width and height in the header, at 2 pixels per unit.
        assert_eq!((&png[1..4], &png[16..24]), (&b"PNG"[..], &[0, 0, 0, 8, 0, 0, 0, 6][..]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
