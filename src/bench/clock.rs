//! Seconds on the wall and on the processor. On a machine that others use, a single-threaded step costs what the processor
//! spent on it.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tch::{Cuda, Device};

/// Seconds of repeated work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    pub wall: Vec<f64>,
    /// Of all threads of this process; empty where the system does not tell.
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

/// The median, the mean of the middle two of an even number; `None` of nothing.
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
    /// Starts once the device is idle.
    pub fn start(device: Device) -> Clock {
        settle(device);
        Clock { device, processor: processor_seconds(), started: Instant::now() }
    }

    /// Until the device is idle again.
    pub fn stop(self) -> Elapsed {
        settle(self.device);
        let wall = self.started.elapsed().as_secs_f64();
        let processor = processor_seconds().zip(self.processor).map(|(now, then)| now - then);
        Elapsed { wall, processor }
    }
}

/// A GPU works on after a call has returned.
fn settle(device: Device) {
    if let Device::Cuda(index) = device {
        Cuda::synchronize(index as i64);
    }
}

/// Seconds that all threads of this process have run, where the system tells (Linux).
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
