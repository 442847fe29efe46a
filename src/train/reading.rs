//! The numbers beside the progress bar of training: loss, validation, speed, memory, and the time that is left.

use std::time::{Duration, Instant};

use crate::machine::memory::gib;

/// The time between two questions to the system for the memory that is held.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The state of a running training at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    pub loss: f64,
    /// The NLL and the accuracy on the held-out images after the last epoch.
    pub validation: Option<(f64, f64)>,
    pub images_per_second: Option<f64>,
    /// The seconds left in this epoch and in the whole training.
    pub left: Option<[f64; 2]>,
    /// The memory in bytes that training holds on the computing device.
    pub held: Option<u64>,
    pub is_gpu: bool,
}

impl Reading {
    /// Returns the reading as a line of at most `width` characters. The least important part is left out first.
    pub fn line(&self, width: usize) -> String {
        let mut parts = vec![Part { rank: 0, text: format!("loss {:.4}", self.loss) }];
        if let Some((nll, accuracy)) = self.validation {
            parts.push(Part { rank: 2, text: format!("validation {nll:.4}, {:.2} %", 100.0 * accuracy) });
        }
        if let Some(rate) = self.images_per_second {
            parts.push(Part { rank: 3, text: format!("{rate:.0} images/s") });
        }
        if let Some(bytes) = self.held {
            let of = if self.is_gpu { "GPU " } else { "" };
            parts.push(Part { rank: 5, text: format!("{of}{:.1} GiB", gib(bytes)) });
        }
        if let Some([epoch, all]) = self.left {
            parts.push(Part { rank: 4, text: format!("epoch {}", clock(epoch)) });
            parts.push(Part { rank: 1, text: format!("left {}", clock(all)) });
        }
        while Part::width(&parts) > width && parts.len() > 1 {
            let least = (0..parts.len()).max_by_key(|at| parts[*at].rank).unwrap_or(0);
            parts.remove(least);
        }
        let texts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
        texts.join("  ").chars().take(width).collect()
    }
}

/// A part of the line; those of the highest rank are left out first.
struct Part {
    rank: u8,
    text: String,
}

impl Part {
    fn width(parts: &[Part]) -> usize {
        parts.iter().map(|part| part.text.chars().count() + 2).sum::<usize>().saturating_sub(2)
    }
}

/// Returns seconds as `m:ss`, or `h:mm:ss` from an hour on.
fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// The work that is left, in steps and epochs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// The steps of this epoch.
    pub steps: usize,
    /// The epochs after this one, with the steps of each.
    pub epochs: usize,
    pub steps_per_epoch: usize,
}

/// Measures how long steps and the ends of epochs take, and how many bytes the process holds.
#[derive(Default)]
pub(super) struct Timing {
    seconds_per_step: Option<f64>,
    /// The seconds of the last validation and of saving.
    seconds_between: f64,
    asked: Option<Instant>,
    held: Option<u64>,
}

impl Timing {
    /// Notes that this many steps of the current epoch took so many seconds.
    pub fn steps(&mut self, steps: usize, seconds: f64) {
        if steps > 0 {
            self.seconds_per_step = Some(seconds / steps as f64);
        }
    }

    /// Notes how long the end of an epoch took.
    pub fn between_epochs(&mut self, elapsed: Duration) {
        self.seconds_between = elapsed.as_secs_f64();
    }

    /// Returns the seconds that are left in this epoch and in the whole training, once a step has been timed.
    pub fn left(&self, work: Left) -> Option<[f64; 2]> {
        let step = self.seconds_per_step?;
        let epoch = work.steps as f64 * step + self.seconds_between;
        Some([epoch, epoch + work.epochs as f64 * (work.steps_per_epoch as f64 * step + self.seconds_between)])
    }

    /// Returns what `held` tells, which is asked at most once a second.
    pub fn held(&mut self, held: impl FnOnce() -> Option<u64>) -> Option<u64> {
        if self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
            (self.held, self.asked) = (held(), Some(Instant::now()));
        }
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_least_is_left_out_first() {
        let reading = Reading {
            loss: 0.12345,
            validation: Some((0.2, 0.9512)),
            images_per_second: Some(850.4),
            left: Some([12.0, 3_700.0]),
            held: Some(3 << 30),
            is_gpu: true,
        };
        let whole = "loss 0.1235  validation 0.2000, 95.12 %  850 images/s  GPU 3.0 GiB  epoch 0:12  left 1:01:40";
        assert_eq!(reading.line(120), whole);
        assert_eq!(reading.line(80), "loss 0.1235  validation 0.2000, 95.12 %  850 images/s  epoch 0:12  left 1:01:40");
        assert_eq!(reading.line(60), "loss 0.1235  validation 0.2000, 95.12 %  left 1:01:40");
        assert_eq!(reading.line(5), "loss ");
        assert_eq!(Reading { loss: 1.0, ..Reading::default() }.line(80), "loss 1.0000");
    }

    #[test]
    fn time_left_counts_steps_and_ends_of_epochs() {
        let mut timing = Timing::default();
        let work = Left { steps: 10, epochs: 2, steps_per_epoch: 40 };
        assert_eq!(timing.left(work), None);
        timing.steps(5, 1.0);
        assert_eq!(timing.left(work), Some([2.0, 18.0]));
        timing.between_epochs(Duration::from_secs(3));
        assert_eq!(timing.left(work), Some([5.0, 27.0]));
        assert_eq!(timing.held(|| Some(7)), Some(7));
        assert_eq!(timing.held(|| Some(8)), Some(7), "asked a moment ago");
    }
}
