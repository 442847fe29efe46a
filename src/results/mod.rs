//! Result rows: one CSV file per experiment, which several processes may extend, and the tables rendered from it.

pub mod images;
pub mod listing;
pub mod names;
pub mod rebuild;
pub mod runs;
pub mod series;
pub mod store;
pub mod table;
pub mod uncertainty;
pub mod verify;

use std::path::{Path, PathBuf};

use crate::run::RunFolder;

/// The `condition` of images that nothing has changed.
pub const CLEAN: &str = "clean";

/// The beginning of the `condition` of images of a set of other classes; the name of that set follows.
pub const FOREIGN_CONDITION: &str = "ood ";

/// The file of a results folder that holds the measurements of `bella bench`.
pub const BENCH: &str = "bench.csv";

/// Returns the path of the file that collects all runs of an experiment.
pub fn experiment_csv(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.csv"))
}

/// Returns the path of the file that collects the out-of-distribution detection of all runs of an experiment; a trial of a
/// sweep has its own.
pub fn ood_csv(run: &RunFolder, out: &Path, name: &str) -> PathBuf {
    own_or_shared(run, run.ood(), out, name)
}

/// Returns the path of the file that collects the conformal sets of all runs of an experiment; a trial of a sweep has its
/// own.
pub fn conformal_csv(run: &RunFolder, out: &Path, name: &str) -> PathBuf {
    own_or_shared(run, run.conformal(), out, name)
}

fn own_or_shared(run: &RunFolder, own: PathBuf, out: &Path, name: &str) -> PathBuf {
    match run.trial() {
        Some(_) => own,
        None => out.join(format!("{name}-{}", own.file_name().unwrap_or_default().display())),
    }
}
