//! How many images a stand-in has, and how many the real set: training images so that one epoch is the steps asked for.

use crate::data::{Dataset, SplitName};
use crate::experiment::{Experiment, Validation};
use crate::schema::Choice;

/// Classes of a set that does not say how many it has.
const UNKNOWN_CLASSES: usize = 10;

/// Images of a stand-in's training part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingPart {
    /// All, those held out included.
    pub images: usize,
    /// Classes of which there are images: enough of each that a share of them can be held out.
    pub present: usize,
    /// Steps of one epoch.
    pub steps: usize,
    /// Images that are held out of them.
    pub held_out: usize,
}

/// Images for about `steps` steps of `batch_size`. Where a tiny share is to be held out, there are more: at least one image
/// is held out.
pub fn training_part(
    seed: u64,
    validation: Validation,
    classes: usize,
    (steps, batch_size): (usize, usize),
) -> TrainingPart {
    let target = steps * batch_size;
    let share = match validation {
        Validation::HeldOut(share) => share,
        Validation::Published => 0.0,
    };
    let roughly = (target as f64 / (1.0 - share)) as usize;
    let present = match share > 0.0 {
        true => ((roughly as f64 * share) as usize).clamp(2.min(classes), classes),
        false => classes.min(target).max(1),
    };
    let part = |images: usize| {
        let labels: Vec<u32> = (0..images).map(|i| (i % present) as u32).collect();
        let holdout = validation.holdout(seed, &labels);
        let steps = holdout.train.len().div_ceil(batch_size);
        (holdout.train.len(), TrainingPart { images, present, steps, held_out: holdout.validation.len() })
    };
    if share == 0.0 {
        return part(target).1;
    }
    let is_held_out = |part: &TrainingPart| part.held_out > 0;
    let fitting = (target.max(roughly.saturating_sub(present))..=roughly + present + 1)
        .map(part)
        .filter(|(train, _)| *train <= target);
    let fitting = fitting.map(|(_, part)| part).rfind(is_held_out);
    // Rounding always holds out the only image of a class from a share of one half on, of 1 / (2 share) images below.
    fitting.unwrap_or_else(|| part(present * (0.5_f64 / share).ceil() as usize + present).1)
}

/// Classes of a data set: published, configured, or else a few.
pub fn classes_of(dataset: &dyn Dataset) -> usize {
    let configured = || dataset.resolved().get("classes")?.as_array().map(Vec::len);
    configured().or_else(|| dataset.published().classes).unwrap_or(UNKNOWN_CLASSES)
}

/// Images of the real set's split, where they are published or the config's `subset` says.
pub fn official(dataset: &dyn Dataset, split: SplitName) -> Option<usize> {
    let settings = dataset.resolved();
    let subset = settings.get("subset").and_then(|subset| match subset {
        toml::Value::Integer(each) => Some(*each),
        toml::Value::Table(per_split) => per_split.get(split.word())?.as_integer(),
        _ => None,
    });
    subset.map(|count| count as usize).or_else(|| dataset.published().images_of(split))
}

/// What the real experiment goes through in its training, where all of it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Real {
    /// Images of the training split, those held out included.
    pub train: usize,
    /// Images that each epoch ends with, held out or of the published split.
    pub validation: usize,
    pub steps: usize,
    pub epochs: usize,
}

impl Real {
    /// Of an experiment that trains; `None` where its data set publishes no numbers.
    pub fn of(experiment: &Experiment) -> Option<Real> {
        let train = official(&*experiment.data.dataset, SplitName::Train)?;
        let spec = &experiment.training.as_ref()?.train;
        let validation = match experiment.data.validation {
            Validation::HeldOut(share) => (train as f64 * share).round() as usize,
            Validation::Published => official(&*experiment.data.dataset, SplitName::Val)?,
        };
        let trained = if experiment.data.validation == Validation::Published { train } else { train - validation };
        Some(Real { train, validation, steps: spec.epochs * trained.div_ceil(spec.batch_size), epochs: spec.epochs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_the_steps_asked_for() {
        for (share, classes, batch) in [(0.2, 10, 128), (0.2, 345, 128), (0.02, 1000, 128), (0.0, 102, 24), (0.2, 2, 8)]
        {
            let part = training_part(1, Validation::HeldOut(share), classes, (3, batch));
            assert_eq!(part.steps, 3, "{share} {classes} {batch}: {part:?}");
            assert_eq!(part.held_out > 0, share > 0.0, "{part:?}");
            assert!(part.present <= classes && part.images >= 2 * batch, "{part:?}");
        }
        let part = training_part(1, Validation::Published, 2, (4, 16));
        assert_eq!((part.images, part.steps, part.held_out), (64, 4, 0));
    }

    #[test]
    fn a_tiny_share_still_holds_an_image_out() {
        let part = training_part(1, Validation::HeldOut(0.01), 1000, (2, 4));
        assert!(part.held_out > 0 && part.steps >= 2, "{part:?}");
    }
}
