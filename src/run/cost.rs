//! The cost of training: that of one run, or of several whose models became one.

use super::Record;

/// The cost of training in the units of the columns of results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    pub trainable_parameters: i64,
    /// Seconds of the clock.
    pub wall_seconds: f64,
    /// The seconds of all threads of the first process; absent where a record has none.
    pub processor_seconds: Option<f64>,
    /// The number of training images per second, counted once for each particle.
    pub images_per_second: f64,
    /// The largest memory of the process, on a GPU of its tensors; absent where a record has none.
    pub peak_memory_bytes: Option<u64>,
    /// The epoch whose particles became the posterior; absent where those of several runs differ.
    pub selected_epoch: Option<usize>,
}

impl Cost {
    /// Returns the cost in a run's record.
    pub fn of(record: &Record) -> Cost {
        Cost {
            trainable_parameters: record.trainable_parameters,
            wall_seconds: record.wall_seconds,
            processor_seconds: record.processor_seconds,
            images_per_second: record.images_per_second,
            peak_memory_bytes: record.peak_memory_bytes,
            selected_epoch: Some(record.selected_epoch),
        }
    }

    /// Returns the cost of two trainings, one after the other: parameters and seconds add up, and the peak is the larger one.
    pub fn and(self, next: Cost) -> Cost {
        let images = self.images_per_second * self.wall_seconds + next.images_per_second * next.wall_seconds;
        let wall_seconds = self.wall_seconds + next.wall_seconds;
        Cost {
            trainable_parameters: self.trainable_parameters + next.trainable_parameters,
            wall_seconds,
            processor_seconds: self.processor_seconds.zip(next.processor_seconds).map(|(own, other)| own + other),
            images_per_second: if wall_seconds > 0.0 { images / wall_seconds } else { 0.0 },
            peak_memory_bytes: self.peak_memory_bytes.zip(next.peak_memory_bytes).map(|(own, other)| own.max(other)),
            selected_epoch: self.selected_epoch.filter(|epoch| next.selected_epoch == Some(*epoch)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_add_up() {
        let one = Cost {
            trainable_parameters: 10,
            wall_seconds: 2.0,
            processor_seconds: Some(3.0),
            images_per_second: 50.0,
            peak_memory_bytes: Some(7),
            selected_epoch: Some(2),
        };
        let other = Cost { wall_seconds: 6.0, images_per_second: 10.0, peak_memory_bytes: Some(9), ..one };
        // 2 s at 50 and 6 s at 10 images a second are 160 images in 8 s.
        let both = Cost {
            trainable_parameters: 20,
            wall_seconds: 8.0,
            processor_seconds: Some(6.0),
            images_per_second: 20.0,
            peak_memory_bytes: Some(9),
            selected_epoch: Some(2),
        };
        assert_eq!(one.and(other), both);
        let unlike = one.and(Cost { processor_seconds: None, selected_epoch: Some(3), ..other });
        assert_eq!(unlike, Cost { processor_seconds: None, selected_epoch: None, ..both });
        // Imported particles took no time here.
        let imported = Cost { wall_seconds: 0.0, images_per_second: 0.0, ..one };
        assert_eq!(imported.and(imported).images_per_second, 0.0);
    }
}
