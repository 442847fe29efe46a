//! The picture of an experiment: its runs and test conditions compared in small panels (accuracy, NLL, ECE, mutual
//! information), as one SVG. Marks are means over seeds, whiskers reach from the smallest to the largest seed.

mod comparison;
mod figure;
pub(crate) mod labels;
pub(crate) mod marks;
mod panel;
pub(crate) mod scale;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::comparison::Comparison;
use super::store::Table;
use crate::files::write_atomic;

/// Draws the runs of `table` (rows of a results file) to the SVG file `path`, which is replaced atomically.
///
/// Errors: another file extension than `.svg`, a folder that does not exist, no rows, no column `method` or
/// `condition`, a cell that is no finite number, no metric that could be drawn.
pub fn draw(table: &Table, path: &Path) -> Result<()> {
    let name = || format!("picture {}", path.display());
    ensure!(path.extension() == Some(OsStr::new("svg")), "{}: the file name must end in .svg", name());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        ensure!(folder.is_dir(), "{}: there is no folder {}; create it first", name(), folder.display());
    }
    let comparison = Comparison::of(table).with_context(name)?;
    let svg = figure::render(&comparison).with_context(name)?;
    write_atomic(path, |writer| Ok(writer.write_all(svg.as_bytes())?))
}

#[cfg(test)]
mod tests;
