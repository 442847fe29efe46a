//! The run folders of a results folder.

use std::collections::HashMap;
use std::ops::Deref;

use super::run_files::RunFiles;

/// All runs in the order of their folders, found by name without a search.
#[derive(Debug, Default)]
pub struct Runs {
    all: Vec<RunFiles>,
    /// The positions of the runs of each name, which several experiments may use.
    places: HashMap<String, Vec<usize>>,
}

impl Runs {
    pub fn add(&mut self, files: RunFiles) {
        self.places.entry(files.run.clone()).or_default().push(self.all.len());
        self.all.push(files);
    }

    /// Returns the runs of this name.
    pub fn named(&self, run: &str) -> impl Iterator<Item = &RunFiles> {
        self.places.get(run).into_iter().flatten().map(|place| &self.all[*place])
    }

    /// Returns the run of this name of an experiment.
    pub fn find(&self, experiment: &str, run: &str) -> Option<&RunFiles> {
        self.named(run).find(|files| files.experiment == experiment)
    }
}

impl Deref for Runs {
    type Target = [RunFiles];

    fn deref(&self) -> &[RunFiles] {
        &self.all
    }
}

impl<'a> IntoIterator for &'a Runs {
    type Item = &'a RunFiles;
    type IntoIter = std::slice::Iter<'a, RunFiles>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}
