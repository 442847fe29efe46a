//! The plan of a case's measurements, and their results.

use serde::{Deserialize, Serialize};

use super::clock::Samples;
use crate::schema::words;

/// The number of repetitions of each measurement and their input.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of timed training steps; 0 for none.
    pub steps: usize,
    /// The number of timed predictions; 0 for none.
    pub predictions: usize,
    /// The number of untimed repetitions before each measurement.
    pub warmup: usize,
    /// The number of images per prediction.
    pub prediction_images: i64,
    pub feed: Feed,
}

words! {
    /// The input of a training step.
    pub enum Feed {
        /// Bytes of images.
        Images = "images",
        /// Cached output of the blocks below the first trained one.
        Prefix = "prefix",
        /// Given gradients, to time only the method and the optimizer.
        Gradients = "gradients",
    }
}

/// The results of one case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub precision: String,
    pub device: String,
    pub threads: i32,
    pub particle_chunk: usize,
    pub particles: i64,
    pub parameters_per_particle: i64,
    pub base_bytes: u64,
    pub posterior_bytes: u64,
    pub train_peak_bytes: Option<u64>,
    pub predict_peak_bytes: Option<u64>,
    pub train_images: i64,
    pub step: Samples,
    /// The parts of the training step, measured on the CPU only: preparing the images, the forward and backward pass,
    /// the method's own work, and the optimizer.
    pub input: Samples,
    pub gradient: Samples,
    pub method: Samples,
    pub optimizer: Samples,
    pub step_flop: f64,
    pub prediction_images: i64,
    pub prediction: Samples,
    pub prediction_flop: f64,
    pub matmul_rates: Vec<f64>,
}

impl Measured {
    /// Appends another round of the same case.
    pub fn extend(&mut self, other: Measured) {
        self.train_peak_bytes = self.train_peak_bytes.max(other.train_peak_bytes);
        self.predict_peak_bytes = self.predict_peak_bytes.max(other.predict_peak_bytes);
        self.step.extend(other.step);
        self.input.extend(other.input);
        self.gradient.extend(other.gradient);
        self.method.extend(other.method);
        self.optimizer.extend(other.optimizer);
        self.prediction.extend(other.prediction);
        self.matmul_rates.extend(other.matmul_rates);
    }
}
