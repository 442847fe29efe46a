//! The report as a Jupyter notebook: its cells read the CSV files and the saved predictions of a results folder, and draw
//! the page's main tables and figures again, to be changed.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A cell with the heading above it.
struct Cell {
    heading: &'static str,
    code: &'static str,
}

const CELLS: [Cell; 9] = [
    Cell { heading: "## Results", code: include_str!("1_read.py") },
    Cell { heading: "Means over seeds on the clean test sets.", code: include_str!("2_compare.py") },
    Cell { heading: "## Comparison", code: include_str!("3_bars.py") },
    Cell { heading: "## Training", code: include_str!("4_training.py") },
    Cell {
        heading: "## Saved predictions\n\nEverything below is computed from `runs/*/*/predictions/*.safetensors`: logits \
                  `[m, N, C]` of m members for N images.",
        code: include_str!("5_predictions.py"),
    },
    Cell {
        heading: "`difference` is the largest distance from the CSV file's accuracy, NLL and ECE.",
        code: include_str!("6_check.py"),
    },
    Cell { heading: "## Calibration", code: include_str!("7_calibration.py") },
    Cell { heading: "## Uncertainty", code: include_str!("8_uncertainty.py") },
    Cell { heading: "## Robustness", code: include_str!("9_robustness.py") },
];

/// Returns a notebook (nbformat 4.5) on a results folder; `file` is where it will lie, since its cells name the folder as
/// seen from there.
///
/// # Errors
/// Fails if the results folder does not exist.
pub fn notebook(results: &Path, file: &Path) -> Result<String> {
    let results = results.canonicalize().with_context(|| format!("{}: no such folder", results.display()))?;
    let beside = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_path_buf));
    let beside = beside.unwrap_or_default();
    let seen = seen_from(&results, &beside.canonicalize().unwrap_or(beside));
    let quoted = serde_json::to_string(&seen.to_string_lossy())?;
    let title = "# Report of a results folder\n\nNeeds pandas, matplotlib and safetensors. Written by `bella report \
                 --notebook`; bella does not read it again.";
    let mut cells = vec![markdown("title", title)];
    for (number, cell) in CELLS.iter().enumerate() {
        cells.push(markdown(&format!("text-{number}"), cell.heading));
        cells.push(code(&format!("code-{number}"), &cell.code.replace("{results}", &quoted)));
    }
    let kernel = json!({ "display_name": "Python 3", "language": "python", "name": "python3" });
    let all = json!({
        "cells": cells,
        "metadata": { "kernelspec": kernel, "language_info": { "name": "python" } },
        "nbformat": 4,
        "nbformat_minor": 5,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// Returns a path as seen from a folder; both are absolute.
fn seen_from(path: &Path, folder: &Path) -> PathBuf {
    let (to, from): (Vec<Component>, Vec<Component>) = (path.components().collect(), folder.components().collect());
    let shared = to.iter().zip(&from).take_while(|(a, b)| a == b).count();
    let up = from[shared..].iter().map(|_| Component::ParentDir);
    let seen: PathBuf = up.chain(to[shared..].iter().copied()).collect();
    if seen.as_os_str().is_empty() { PathBuf::from(".") } else { seen }
}

fn markdown(id: &str, text: &str) -> Value {
    json!({ "cell_type": "markdown", "id": id, "metadata": {}, "source": lines(text) })
}

fn code(id: &str, text: &str) -> Value {
    let source = lines(text.trim_end());
    json!({ "cell_type": "code", "execution_count": null, "id": id, "metadata": {}, "outputs": [], "source": source })
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_are_seen_from_the_notebook() {
        let seen = |path: &str, folder: &str| seen_from(Path::new(path), Path::new(folder)).display().to_string();
        assert_eq!(seen("/a/results", "/a"), "results");
        assert_eq!(seen("/a/results", "/a/results"), ".");
        assert_eq!(seen("/a/results", "/a/b/c"), "../../results");
    }

    #[test]
    fn the_notebook_is_of_nbformat_4() {
        let folder = tempfile::tempdir().unwrap();
        let text = notebook(folder.path(), &folder.path().join("report.ipynb")).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["nbformat"], &read["nbformat_minor"]), (&json!(4), &json!(5)));
        let cells = read["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2 * CELLS.len() + 1);
        let mut ids: Vec<&str> = cells.iter().map(|cell| cell["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), cells.len(), "each cell has an id of its own");
        let source = |at: usize| cells[at]["source"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        assert!(source(2).any(|line| line == "RESULTS = Path(\".\")\n"));
        for cell in cells {
            let is_code = cell["cell_type"] == "code";
            assert_eq!(cell.get("outputs").is_some(), is_code);
            assert_eq!(cell.get("execution_count").is_some(), is_code);
        }
    }
}
