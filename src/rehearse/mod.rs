//! Rehearsals: everything that an experiment needs, at its true sizes but for a few steps and images, with stand-ins for
//! what would have to be downloaded. What breaks, breaks here, and the real thing's time, disk and memory are known before
//! anyone waits for it.
//!
//! A [`plan`] says which stand-ins are made ([`models`], [`standins`]) and what of the config is overridden; [`stages`] runs
//! bella itself, a process a stage ([`child`]); [`estimate`] computes from their times what the real thing takes.

pub mod child;
pub mod clip;
pub mod estimate;
pub mod evaluations;
pub mod folder;
pub mod made_set;
pub mod models;
pub mod plan;
pub mod prepare;
pub mod report;
pub mod sizes;
pub mod stages;
pub mod standins;

use std::path::PathBuf;

use crate::machine::device::DeviceChoice;

/// What a rehearsal is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of the rehearsal, which names its folder.
    pub name: String,
    /// The results folder; the rehearsal has a folder of its own in it.
    pub out: PathBuf,
    /// Training steps.
    pub steps: usize,
    /// Images of each test set; two batches of the config's where absent.
    pub images: Option<usize>,
    pub scale: Scale,
    /// The shape of a stand-in, where the checkpoint's file name does not tell it.
    pub model: Option<&'static models::Model>,
    pub weights: WeightsFrom,
    /// Commands on the trained run, in words: `eval --attack fgsm`.
    pub then: Vec<Vec<String>>,
    pub device: DeviceChoice,
    /// Threads of libtorch in each process.
    pub threads: Option<i32>,
    /// Threads that decode images.
    pub workers: Option<u16>,
    /// What each process may hold, in GiB.
    pub memory: Option<f64>,
}

/// The size of stand-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Published shapes and image sizes, the config's batch size.
    True,
    /// A model and images that take milliseconds.
    Tiny,
}

/// Which checkpoint a rehearsal uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// Made on the spot with random weights.
    StandIn,
    /// The config's own where its file is there, else a stand-in.
    RealWherePresent,
}
