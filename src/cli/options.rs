//! The options that several commands share.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::base::small::Usage;
use crate::experiment::{Experiment, Overrides, Scope, load_without};
use crate::machine::device::DeviceChoice;
use crate::machine::{Precision, Wait};
use crate::schema::{Problems, Tree};
use crate::session::{Computing, Settings};

/// The config files and overrides.
#[derive(Args, Clone)]
pub struct ConfigArgs {
    /// TOML experiment; several merge left to right.
    #[arg(short, long = "config", value_name = "FILE")]
    pub configs: Vec<PathBuf>,

    /// Override a key, after all files: `--set method.svgd.particles=20`.
    #[arg(short, long = "set", value_name = "KEY=VALUE", add = super::completions::of_keys())]
    pub sets: Vec<String>,

    /// Leave out a key that a file sets: `--unset train.clip_norm`.
    #[arg(long = "unset", value_name = "KEY", add = super::completions::of_unset_keys())]
    pub unsets: Vec<String>,
}

impl ConfigArgs {
    /// Reads the experiment, with further overrides.
    pub fn read(&self, further: impl IntoIterator<Item = String>) -> Result<Experiment, Problems> {
        Experiment::read(&self.tree(further)?)
    }

    /// Returns the merged config, with further overrides.
    pub fn tree(&self, further: impl IntoIterator<Item = String>) -> Result<Tree, Problems> {
        let sets: Vec<String> = self.sets.iter().cloned().chain(further).collect();
        load_without(&self.configs, &sets, &self.unsets)
    }
}

/// The settings that may differ from the run's own config.
#[derive(Args, Clone, Default)]
pub struct OverrideArgs {
    /// Another test set: KEY=ROOT, or a TOML file with a [data.*] table.
    #[arg(long, value_name = "KEY=ROOT|FILE", add = super::completions::of_data_sets())]
    data: Option<String>,

    #[arg(help = format!("Override one of the keys {}", Scope::Tests.keys()))]
    #[arg(short, long = "set", value_name = "KEY=VALUE", add = super::completions::of_keys_in(Scope::Tests))]
    sets: Vec<String>,

    /// Number type to compute in: f32, bf16, f64 or auto [default: as in training; f32 for a checkpoint without
    /// training].
    #[arg(long, value_name = "TYPE")]
    precision: Option<Precision>,
}

impl OverrideArgs {
    pub fn overrides(&self) -> Overrides {
        let OverrideArgs { data, sets, precision } = self.clone();
        Overrides { data, sets, precision, scope: Scope::Tests }
    }
}

/// The places of a run's files, for commands that test nothing.
#[derive(Args, Clone, Default)]
pub struct PlaceArgs {
    #[arg(help = format!("Override one of the keys {}; places are for files that were moved since the training", Scope::Places.keys()))]
    #[arg(id = "places", short = 's', long = "set", value_name = "KEY=VALUE", add = super::completions::of_keys_in(Scope::Places))]
    sets: Vec<String>,
}

impl PlaceArgs {
    pub fn is_given(&self) -> bool {
        !self.sets.is_empty()
    }

    pub fn overrides(&self) -> Overrides {
        Overrides { sets: self.sets.clone(), scope: Scope::Places, ..Overrides::default() }
    }
}

/// The options for where to compute and where to write.
#[derive(Args, Clone)]
pub struct ComputeArgs {
    /// Device: auto, cpu, cuda or cuda:N.
    #[arg(long, help_heading = "Computing", default_value = "auto")]
    pub device: DeviceChoice,

    /// Threads of libtorch [default: all cores].
    #[arg(long, help_heading = "Computing", value_name = "N", value_parser = clap::value_parser!(i32).range(1..=4096))]
    pub threads: Option<i32>,

    /// Threads that decode images [default: all cores].
    #[arg(long, help_heading = "Computing", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Waiting of libtorch's threads for each other: active (fastest alone), passive (beside other processes), or auto:
    /// passive if the machine is busy at the start.
    #[arg(long, help_heading = "Computing", value_name = "HOW", default_value = "auto", hide_possible_values = true)]
    pub wait: Wait,

    /// Most memory to use on the computing device, in GiB [default: all that is free].
    #[arg(long, help_heading = "Computing", value_name = "GIB", value_parser = parse_gib)]
    pub memory: Option<f64>,

    /// Load the checkpoint whatever its code calls; only for archives whose origin you know.
    #[arg(long, help_heading = "Computing")]
    pub trust: bool,

    /// Results folder [default: the one that holds the named run, else `results`].
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// The options for how results are printed.
#[derive(Args, Clone, Debug, Default)]
pub struct TableArgs {
    /// Columns to print, by their names in the results files: `accuracy_lm,ece_pm,train_wall_seconds`.
    #[arg(
        long,
        value_name = "COLUMN",
        value_delimiter = ',',
        conflicts_with = "wide",
        help_heading = "Printed results"
    )]
    pub columns: Vec<String>,

    /// Print more columns, in lines as long as they need.
    #[arg(long, help_heading = "Printed results")]
    pub wide: bool,

    /// Print CSV with all columns and all digits.
    #[arg(long, conflicts_with_all = ["columns", "wide"], help_heading = "Printed results")]
    pub csv: bool,
}

/// Checks that no item of a list that an option takes comes twice.
///
/// # Errors
/// Fails with the first item that does, by its key.
pub fn expect_distinct<T, K: PartialEq + Display>(option: &str, items: &[T], key: impl Fn(&T) -> K) -> Result<()> {
    let keys: Vec<K> = items.iter().map(key).collect();
    match (1..keys.len()).find(|at| keys[..*at].contains(&keys[*at])) {
        Some(at) => Err(Usage(format!("{option} {}: comes twice; leave one out", keys[at])).into()),
        None => Ok(()),
    }
}

fn parse_gib(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().map_err(|_| "is no number".to_string())?;
    let rule = "must be above 0 and at most 1000000, in GiB";
    if value > 0.0 && value <= 1e6 { Ok(value) } else { Err(rule.to_string()) }
}

impl ComputeArgs {
    pub fn settings(&self) -> Settings {
        if let Some(gib) = self.memory {
            crate::machine::memory::allow((gib * f64::from(1 << 30)) as u64);
        }
        if self.trust {
            crate::model::archive::trust();
        }
        Settings {
            device: self.device,
            threads: self.threads,
            workers: self.workers.map_or_else(crate::machine::cores, usize::from),
            precision: None,
            out: self.out().to_path_buf(),
        }
    }

    /// Returns the settings for commands on a run that store results.
    pub fn computing(&self) -> Computing {
        Computing { settings: self.settings(), names_out: self.out.is_some(), stores: true }
    }

    /// Returns the settings for commands that only read a run.
    pub fn reading(&self) -> Computing {
        Computing { stores: false, ..self.computing() }
    }

    /// Returns the results folder for commands that name no run.
    pub fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new("results"))
    }
}
