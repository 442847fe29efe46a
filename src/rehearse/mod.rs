//! Rehearsals, which run everything that an experiment needs at its true sizes, except for few steps and images, with
//! stand-ins for whatever would have to be downloaded. Faults show up here, and the time, disk and memory of the real
//! experiment are known before anyone waits for it.
//!
//! A [`plan`] says which stand-ins are made ([`models`], [`language`], [`sizes`]) and which settings of the config are
//! overridden. Data sets write their stand-ins themselves ([`crate::data::SmallSet`]).
//! [`stages`] runs bella itself, one process per stage ([`child`]). [`estimate`] computes the cost of the real
//! experiment from the measured times.

pub mod checkpoint;
pub mod child;
pub mod clip;
pub mod estimate;
pub mod evaluations;
pub mod folder;
pub mod language;
pub mod models;
pub mod plan;
pub mod prepare;
pub mod report;
pub mod sizes;
pub mod stages;

use std::path::PathBuf;

use crate::machine::Wait;
use crate::machine::device::DeviceChoice;

/// The options of a rehearsal.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the rehearsal; its folder has the same name.
    pub name: String,
    /// The results folder, which contains the folder of the rehearsal.
    pub out: PathBuf,
    /// The number of training steps.
    pub steps: usize,
    /// The number of images of each test set; by default two batches of the config's size.
    pub images: Option<usize>,
    pub scale: Scale,
    /// The shape of a stand-in, if the checkpoint's name does not tell it.
    pub shape: Option<models::Shape>,
    pub weights: WeightsFrom,
    /// The commands on the trained run, split into words, such as `eval --attack fgsm`.
    pub then: Vec<Vec<String>>,
    pub device: DeviceChoice,
    /// The number of libtorch threads in each process.
    pub threads: Option<i32>,
    /// The way in which the threads of each process wait for each other.
    pub wait: Wait,
    /// The number of threads that decode images.
    pub workers: Option<u16>,
    /// The memory that each process may hold, in GiB.
    pub memory: Option<f64>,
}

/// The size of stand-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Published shapes and image sizes, and the config's batch size.
    True,
    /// A model and images that take only milliseconds.
    Tiny,
}

/// The source of a rehearsal's checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// A checkpoint made with random weights.
    StandIn,
    /// The config's own checkpoint if it exists, otherwise a stand-in.
    RealWherePresent,
}
