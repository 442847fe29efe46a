//! Result rows: one CSV file per experiment, which several processes may extend, and the tables rendered from it.

pub mod conformal;
pub mod images;
pub mod listing;
pub mod ood;
pub mod rebuild;
pub mod runs;
pub mod series;
pub mod store;
pub mod table;
pub mod verify;

use std::path::{Path, PathBuf};

/// Returns the path of the file that collects all runs of an experiment.
pub fn experiment_csv(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.csv"))
}

/// Returns the path of the file that collects the out-of-distribution detection of all runs of an experiment.
pub fn ood_csv(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}-ood.csv"))
}

/// Returns the path of the file that collects the conformal sets of all runs of an experiment.
pub fn conformal_csv(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}-conformal.csv"))
}
