//! The small data sets that take the place of real ones in a rehearsal, and the numbers of images in both. A stand-in has as many
//! training images as the requested steps of one epoch need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::Scale;
use crate::data::{Dataset, Request, Sizes, SmallSet, SplitName, entry};
use crate::experiment::{Experiment, Validation};
use crate::machine::cores;
use crate::schema::Choice;

/// The number of classes if nothing tells that of a set.
const UNKNOWN_CLASSES: usize = 10;

/// The size of a stand-in's training part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingPart {
    /// The number of images, including those held out.
    pub images: usize,
    /// The number of classes that have images: few enough that a share of each can be held out.
    pub present: usize,
    /// The number of steps of one epoch.
    pub steps: usize,
    /// The number of these images that are held out.
    pub held_out: usize,
}

/// Returns a training part for about `steps` steps of `batch_size` images. If a tiny share is to be held out, it has
/// more images, so that at least one is held out.
pub fn training_part(
    seed: u64,
    validation: Validation,
    classes: usize,
    steps: usize,
    batch_size: usize,
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

/// Returns the number of classes of a data set, as configured or published, or as its files have them if they are there, or else a
/// small number.
pub fn classes_of(dataset: &dyn Dataset) -> usize {
    let settings = dataset.resolved();
    let configured = ["classes", "labels"].iter().find_map(|key| settings.get(*key)?.as_array().map(Vec::len));
    let known = configured.or_else(|| dataset.published().classes).or_else(|| found_classes(dataset));
    known.unwrap_or(UNKNOWN_CLASSES)
}

/// Counts the classes of a set of classes whose files are there, once. If they cannot be read, the number is not known, with a warning.
fn found_classes(dataset: &dyn Dataset) -> Option<usize> {
    static KNOWN: Mutex<BTreeMap<String, Option<usize>>> = Mutex::new(BTreeMap::new());
    if !is_there(dataset) || dataset.has_numbers() {
        return None;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = || match dataset.classes() {
        Ok(classes) => Some(classes.len()).filter(|count| *count > 1),
        Err(error) => {
            let key = dataset.key();
            tracing::warn!("data.{key}: its classes are not counted: {error:#}; {UNKNOWN_CLASSES} are taken");
            None
        }
    };
    *known.entry(identity(dataset)).or_insert_with(count)
}

/// Returns the number of images in a split of the real set: of those that lie below `root` if it is there, else as given by the
/// config's `subset` or as published.
pub fn official(dataset: &dyn Dataset, split: SplitName) -> Option<usize> {
    if is_there(dataset) { counted(dataset, split) } else { published(dataset, split) }
}

/// Returns whether the images of a set are there to be counted.
pub fn is_there(dataset: &dyn Dataset) -> bool {
    let settings = dataset.resolved();
    settings.get("root").and_then(toml::Value::as_str).is_some_and(|root| Path::new(root).exists())
}

/// Returns a text that tells sets apart by all of their settings.
fn identity(dataset: &dyn Dataset) -> String {
    format!("{} {:?}", dataset.key(), dataset.resolved())
}

/// Counts the images of a split once. If they cannot be read, the published number is taken, with a warning.
fn counted(dataset: &dyn Dataset, split: SplitName) -> Option<usize> {
    static KNOWN: Mutex<BTreeMap<(String, SplitName), Option<usize>>> = Mutex::new(BTreeMap::new());
    let key = (identity(dataset), split);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = || match dataset.load(split, &Request::listing(cores(), &|_, _| ())) {
        Ok(split) => Some(split.len()),
        Err(error) => {
            let published = published(dataset, split);
            let instead = published.map_or(String::new(), |count| format!("; the published number is taken, {count}"));
            tracing::warn!("data.{}: {split}: not counted: {error:#}{instead}", dataset.key());
            published
        }
    };
    *known.entry(key).or_insert_with(count)
}

fn published(dataset: &dyn Dataset, split: SplitName) -> Option<usize> {
    let settings = dataset.resolved();
    let subset = settings.get("subset").and_then(|subset| match subset {
        toml::Value::Integer(each) => Some(*each),
        toml::Value::Table(per_split) => per_split.get(split.word())?.as_integer(),
        _ => None,
    });
    subset.map(|count| count as usize).or_else(|| dataset.published().images_of(split))
}

/// The size of the real experiment's training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Real {
    /// The number of images of the training split, including those held out.
    pub train: usize,
    /// The number of images that are predicted after each epoch, held out or from the published split.
    pub validation: usize,
    pub steps: usize,
    pub epochs: usize,
}

impl Real {
    /// Returns the size of an experiment; `None` if it trains nothing or if its data set publishes no numbers.
    pub fn of(experiment: &Experiment) -> Option<Real> {
        Real::counted(experiment, &|split| official(&*experiment.data.dataset, split))
    }

    /// Returns the size of an experiment whose splits have as many images as `count` says; `None` if it trains nothing, or if a
    /// number is not known.
    pub fn counted(experiment: &Experiment, count: &dyn Fn(SplitName) -> Option<usize>) -> Option<Real> {
        let train = count(SplitName::Train)?;
        let spec = &experiment.training.as_ref()?.train;
        let validation = match experiment.data.validation {
            Validation::HeldOut(share) => (train as f64 * share).round() as usize,
            Validation::Published => count(SplitName::Val)?,
        };
        let trained = if experiment.data.validation == Validation::Published { train } else { train - validation };
        Some(Real { train, validation, steps: spec.epochs * trained.div_ceil(spec.batch_size), epochs: spec.epochs })
    }
}

/// The number of corruptions in a small set with corrupted versions.
pub const CORRUPTIONS: usize = 1;
/// The largest number of pixels per side of an image in a tiny rehearsal.
const TINY_SIDE: u32 = 20;

/// A small set with the settings of the real one.
pub struct MadeSet {
    pub key: String,
    /// The folder with its files. A set that needs none has no `root` among its settings.
    pub root: PathBuf,
    /// The number of pixels per side of the published images, roughly if they differ; 0 for texts.
    pub side: u32,
    pub sizes: Sizes,
    /// The settings by which it is read, those of [`MadeSet::overrides`] among them.
    pub settings: toml::Table,
    /// The settings that differ from those of the real set, besides `root`.
    pub overrides: toml::Table,
    small: Box<dyn SmallSet>,
}

impl MadeSet {
    /// Plans a small set in the place of `real`, whose key is `key`, below `root`. The scale sets the size of its images,
    /// for which `sizes` are asked.
    ///
    /// # Errors
    /// Fails if nothing writes a small set in this layout.
    pub fn new(
        key: &str,
        real: &dyn Dataset,
        root: PathBuf,
        sizes: impl FnOnce(u32) -> Sizes,
        scale: Scale,
    ) -> Result<MadeSet> {
        let entry = entry(key)?;
        let mut settings = real.resolved();
        if let Some(value) = settings.get_mut("root") {
            *value = root.to_string_lossy().into_owned().into();
        }
        let small = entry.small(&settings)?;
        let side = small.side();
        let sizes = sizes(if scale == Scale::Tiny { side.min(TINY_SIDE) } else { side });
        let overrides = small.overrides(&sizes);
        settings.extend(overrides.clone());
        let small = entry.small(&settings)?;
        Ok(MadeSet { key: key.to_string(), root, side, sizes, settings, overrides, small })
    }

    /// Writes its files.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(&self) -> Result<()> {
        self.small.write(&self.sizes).with_context(|| format!("the stand-in of {}", self.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::DataSpec;
    use crate::schema::Tree;

    #[test]
    fn an_epoch_has_the_steps_asked_for() {
        for (share, classes, batch) in [(0.2, 10, 128), (0.2, 345, 128), (0.02, 1000, 128), (0.0, 102, 24), (0.2, 2, 8)]
        {
            let part = training_part(1, Validation::HeldOut(share), classes, 3, batch);
            assert_eq!(part.steps, 3, "{share} {classes} {batch}: {part:?}");
            assert_eq!(part.held_out > 0, share > 0.0, "{part:?}");
            assert!(part.present <= classes && part.images >= 2 * batch, "{part:?}");
        }
        let part = training_part(1, Validation::Published, 2, 4, 16);
        assert_eq!((part.images, part.steps, part.held_out), (64, 4, 0));
    }

    /// The classes of image files are their folders; where there are none, a stand-in has some.
    #[test]
    fn classes_are_those_of_the_files_that_are_there() {
        let place = tempfile::tempdir().unwrap();
        let root = toml::Value::from(place.path().join("own").to_string_lossy().into_owned());
        let tree = Tree::parse("x.toml", &format!("[data.image-folder]\nroot = {root}\n")).unwrap();
        let dataset = DataSpec::alone(tree).unwrap().dataset;
        assert_eq!(classes_of(&*dataset), UNKNOWN_CLASSES);
        for class in ["ant", "bee", "fly"] {
            for split in ["train", "test"] {
                let folder = place.path().join("own").join(split).join(class);
                crate::base::files::put(&folder.join("a.png"), b"").unwrap();
            }
        }
        assert_eq!(classes_of(&*dataset), 3);
    }

    #[test]
    fn a_tiny_share_still_holds_an_image_out() {
        let part = training_part(1, Validation::HeldOut(0.01), 1000, 2, 4);
        assert!(part.held_out > 0 && part.steps >= 2, "{part:?}");
    }
}
