//! Where a command puts records that it writes one after the other: a file, or standard output.

use std::io::Write;
use std::path::Path;

use anyhow::Result;

use crate::base::files::NewFile;

/// The place of the records. A file is there once all records are; what fails before leaves the old one.
pub struct Output(Option<NewFile>);

impl Output {
    /// Opens the file, or standard output if none is named.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn open(path: Option<&Path>) -> Result<Output> {
        Ok(Output(path.map(NewFile::create).transpose()?))
    }

    /// Returns what takes the records.
    ///
    /// # Errors
    /// Fails if the process may open no more files.
    pub fn writer(&self) -> Result<Box<dyn Write>> {
        Ok(match &self.0 {
            Some(file) => Box::new(file.writer()?),
            None => Box::new(std::io::stdout()),
        })
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// Fails if the disk does not take it.
    pub fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), NewFile::finish)
    }
}
