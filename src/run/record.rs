//! The file `run.json` with the versions, the device and the cost of a run.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::RunFolder;
use crate::base::files::{read_text, write_atomic};
use crate::base::hash::{check_json, seal_json};
use crate::base::tensor_file::RUN;

/// The context of a run and its cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The id of the run, which [`write`](Self::write) sets.
    pub run: String,
    pub bella_version: String,
    /// The commit of the source tree that bella was built from, if that was a git checkout.
    pub commit: String,
    pub libtorch_version: String,
    /// The commit of the checkpoint, if it is a repository's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_commit: Option<String>,
    pub device: String,
    /// The number of processes that trained together.
    pub processes: usize,
    /// The number of libtorch threads of each process.
    pub threads: i32,
    pub precision: String,
    pub particles: i64,
    pub parameters_per_particle: i64,
    pub trainable_parameters: i64,
    pub train_samples: usize,
    pub validation_samples: usize,
    pub epochs: usize,
    pub steps: usize,
    /// The seconds of training, over all interruptions.
    pub wall_seconds: f64,
    /// The number of training images per second, counted once for each particle.
    pub images_per_second: f64,
    pub peak_memory_bytes: Option<u64>,
    /// The largest amount of memory that was planned, for comparison with the peak.
    pub planned_memory_bytes: Option<u64>,
    /// The number of the epoch whose particles became the posterior, from 1.
    pub selected_epoch: usize,
    /// The relative difference of the native forward pass from the archive's own, if that ran.
    pub self_check_difference: Option<f64>,
}

impl Record {
    pub fn write(&self, run: &RunFolder) -> Result<()> {
        let text = seal_json(
            &serde_json::to_string_pretty(&Record { run: run.id(), ..self.clone() })
                .context("cannot write run.json")?,
        );
        write_atomic(&run.record(), |file| {
            use std::io::Write;
            Ok(file.write_all(text.as_bytes())?)
        })
    }

    /// Reads run.json.
    ///
    /// # Errors
    /// Fails if the file is missing, is damaged, or belongs to another run.
    pub fn read(run: &RunFolder) -> Result<Record> {
        serde_json::from_value(Record::read_entries(run)?)
            .with_context(|| format!("{}: damaged", run.record().display()))
    }

    /// Reads the entries of run.json.
    ///
    /// # Errors
    /// Fails if the file is missing, is damaged, or belongs to another run.
    pub fn read_entries(run: &RunFolder) -> Result<serde_json::Value> {
        let path = run.record();
        let text = read_text(&path).with_context(|| format!("{}: cannot read", path.display()))?;
        check_json(&text).with_context(|| path.display().to_string())?;
        let record: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{}: damaged", path.display()))?;
        run.check_owner(&path, record.get(RUN).and_then(serde_json::Value::as_str))?;
        Ok(record)
    }
}
