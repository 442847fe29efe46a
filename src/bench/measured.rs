//! The plan of a case's measurements, and their results.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tch::{Cuda, Device};

use crate::machine::processor_seconds;
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
    /// The operations of a step; 0 where they are not known.
    pub step_flop: f64,
    pub prediction_images: i64,
    pub prediction: Samples,
    /// The operations of a prediction; 0 where they are not known.
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

/// The seconds that each repetition of some work took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    pub wall: Vec<f64>,
    /// The processor seconds of all threads of this process; empty where the system does not report them.
    pub processor: Vec<f64>,
}

impl Samples {
    pub fn push(&mut self, elapsed: Elapsed) {
        self.wall.push(elapsed.wall);
        self.processor.extend(elapsed.processor);
    }

    pub fn extend(&mut self, other: Samples) {
        self.wall.extend(other.wall);
        self.processor.extend(other.processor);
    }
}

/// Returns the median, which is the mean of the middle two for an even number of values; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    (count > 0).then(|| (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0)
}

/// A span of time.
#[derive(Clone, Copy, Debug)]
pub struct Elapsed {
    pub wall: f64,
    pub processor: Option<f64>,
}

impl Elapsed {
    pub const NONE: Elapsed = Elapsed { wall: 0.0, processor: Some(0.0) };

    pub fn plus(self, other: Elapsed) -> Elapsed {
        self.with(other, 1.0)
    }

    pub fn minus(self, other: Elapsed) -> Elapsed {
        self.with(other, -1.0)
    }

    fn with(self, other: Elapsed, sign: f64) -> Elapsed {
        let processor = self.processor.zip(other.processor).map(|(a, b)| a + sign * b);
        Elapsed { wall: self.wall + sign * other.wall, processor }
    }
}

/// A running clock.
pub struct Clock {
    device: Device,
    processor: Option<f64>,
    started: Instant,
}

impl Clock {
    /// Waits until the device is idle, then starts the clock.
    pub fn start(device: Device) -> Clock {
        settle(device);
        Clock { device, processor: processor_seconds(), started: Instant::now() }
    }

    /// Waits until the device is idle, then returns the elapsed time.
    pub fn stop(self) -> Elapsed {
        settle(self.device);
        let wall = self.started.elapsed().as_secs_f64();
        let processor = processor_seconds().zip(self.processor).map(|(now, then)| now - then);
        Elapsed { wall, processor }
    }
}

/// Waits for the device. A GPU still computes after a call has returned.
fn settle(device: Device) {
    if let Device::Cuda(index) = device {
        Cuda::synchronize(index as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_sleeping_process_costs_wall_time_only() {
        let clock = Clock::start(Device::Cpu);
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(clock.stop().wall >= 0.03);
    }
}
