//! The classes of a test set, matched with those of the model.

use anyhow::Result;

use crate::data::Split;
use crate::data::batches::SampleSet;
use crate::data::labels::{Mapping, map_classes};
use crate::predict::Predictor;
use crate::session::Opened;

/// The classes of the opened run's data, as the model knows them.
pub struct Matched {
    mapping: Mapping,
    /// Whether predictions are taken among these classes alone.
    narrows: bool,
}

impl Matched {
    /// Matches the classes of the opened run's data with those of its model, and says how. What answers in words has no classes
    /// to match.
    ///
    /// # Errors
    /// Fails if the set has classes that the model does not know.
    pub fn of(opened: &Opened) -> Result<Matched> {
        let Opened { experiment, session, .. } = opened;
        if experiment.task.only_clean().is_some() {
            return Ok(Matched { mapping: Mapping::Same, narrows: false });
        }
        let set = &experiment.data.dataset;
        let classes = opened.located(set.classes())?;
        let matched = Matched { mapping: map_classes(&session.classes, &classes)?, narrows: set.narrows() };
        match (&matched.mapping, matched.among()) {
            (Mapping::Same, _) => {}
            (mapping, Some(among)) => tracing::info!(
                "{mapping}; predictions are taken among these {}: the logits of the other {} are left out before the softmax",
                among.len(),
                session.classes.len() - among.len()
            ),
            (mapping @ (Mapping::Renamed { .. } | Mapping::Numbered { .. }), _) => tracing::warn!("{mapping}"),
            (mapping @ Mapping::Mapped { .. }, _) => tracing::info!("{mapping}"),
        }
        Ok(matched)
    }

    /// Returns the classes among which predictions are taken, by their numbers in the model; `None` if these are all.
    pub fn among(&self) -> Option<&[u32]> {
        match &self.mapping {
            Mapping::Mapped { to, trained } | Mapping::Numbered { to, trained } if to.len() < *trained => {
                self.narrows.then_some(to)
            }
            _ => None,
        }
    }

    /// Returns a predictor of the classes among which predictions are taken.
    pub fn predictor<'a>(&self, predictor: Predictor<'a>) -> Predictor<'a> {
        match self.among() {
            Some(among) => predictor.among(among.to_vec()),
            None => predictor,
        }
    }

    /// Returns the names of the classes among which predictions are taken.
    pub fn names(&self, opened: &Opened) -> Vec<String> {
        chosen_names(&opened.session.classes, self.among())
    }

    /// Returns the samples of a split of the opened run's data, with labels in the numbering of [`Self::predictor`].
    ///
    /// # Errors
    /// Fails if a label is beyond the classes of the set, or if the device is out of memory.
    pub fn samples(&self, opened: &Opened, mut split: Split) -> Result<SampleSet> {
        if self.among().is_none() {
            self.mapping.relabel(&mut split.labels)?;
        }
        SampleSet::new(split, opened.session.device, opened.session.settings.workers)
    }
}

/// Returns the names of some classes of a model; `None`: of all.
pub fn chosen_names(classes: &[String], chosen: Option<&[u32]>) -> Vec<String> {
    match chosen {
        Some(chosen) => chosen.iter().map(|class| classes[*class as usize].clone()).collect(),
        None => classes.to_vec(),
    }
}
