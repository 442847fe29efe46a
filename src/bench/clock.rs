//! Wall time and processor time in seconds. On a machine that others use, the processor time of a single-threaded
//! training step is its true cost.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tch::{Cuda, Device};

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

/// Returns the processor seconds of all threads of this process, where the system reports them (Linux).
fn processor_seconds() -> Option<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        total += text.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9;
    }
    Some(total)
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
