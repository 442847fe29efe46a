//! The sensitivity of a run to its training images.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::{Sensitivity, sensitivities};
use crate::data::batches::SampleSet;
use crate::data::order::replaced_labels;
use crate::data::{Split, SplitName};
use crate::results::store::{self, Table};
use crate::session::Opened;

/// The sensitivity to each training image of a run.
pub struct Sensitivities {
    /// The training split.
    pub split: Split,
    /// The images that were trained on, the most sensitive first.
    pub found: Vec<Sensitivity>,
    /// The images whose label was replaced by `label_noise`.
    pub replaced: BTreeSet<u32>,
    /// The mean loss of these images.
    pub loss: f64,
    /// The mean leave-one-out estimate of their loss.
    pub loo_loss: f64,
}

impl Sensitivities {
    /// Computes the sensitivities to the first `samples` training images of a run, or to all, and writes them into its
    /// folder.
    ///
    /// # Errors
    /// Fails if the run has no Gaussian posterior, if memory runs out, if a sensitivity is not finite, or if the file
    /// cannot be written.
    pub fn of_run(opened: &Opened, samples: Option<u32>) -> Result<Sensitivities> {
        let (experiment, session) = (&opened.experiment, &opened.session);
        let split = session.load(experiment, SplitName::Train)?;
        let replaced = replaced_labels(experiment.seed, split.len(), experiment.data.label_noise);
        let replaced: BTreeSet<u32> = replaced.into_iter().collect();
        let mut trained_on = experiment.data.validation.holdout(experiment.seed, &split.labels).train;
        trained_on.truncate(samples.map_or(usize::MAX, |count| count as usize));
        let set = SampleSet::new(split.clone(), session.device, session.settings.workers)?;
        let bar = crate::base::logging::bar(trained_on.len() as u64, "images");
        let posterior = &opened.stored()?.posterior;
        let mut found = sensitivities(&session.model, session.subspace()?, posterior, (&set, &trained_on), &bar)?;
        bar.finish_and_clear();
        ensure!(
            found.iter().all(|one| one.sensitivity.is_finite()),
            "a sensitivity is not finite: try --precision f32"
        );
        let mean = |of: fn(&Sensitivity) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
        let (loss, loo_loss) = (mean(|one| one.loss), mean(|one| one.loo_loss));
        found.sort_by(|a, b| b.sensitivity.total_cmp(&a.sensitivity));
        let all = Sensitivities { split, found, replaced, loss, loo_loss };
        all.write(opened)?;
        Ok(all)
    }

    /// Returns how many of the most sensitive images have a replaced label, and of how many; `None` if no label was
    /// replaced. As many are looked at as the share `label_noise` says.
    pub fn caught(&self, label_noise: f64) -> Option<(usize, usize)> {
        let top = (self.found.len() as f64 * label_noise).round() as usize;
        let caught = || self.found[..top].iter().filter(|one| self.replaced.contains(&one.index)).count();
        (!self.replaced.is_empty()).then(|| (caught(), top))
    }

    fn write(&self, opened: &Opened) -> Result<()> {
        let path = opened.run.path().join("sensitivity.csv");
        let columns =
            ["index", "label", "class", "sensitivity", "variance", "error", "loss", "loo_loss", "label_replaced"];
        let mut table = Table::new(columns);
        for one in &self.found {
            let class = opened.session.classes[one.label as usize].clone();
            let numbers = [one.sensitivity, one.variance, one.error, one.loss, one.loo_loss].map(|x| x.to_string());
            let mut cells = vec![one.index.to_string(), one.label.to_string(), class];
            cells.extend(numbers);
            cells.push(self.replaced.contains(&one.index).to_string());
            table.rows.push(cells);
        }
        store::write(&path, &table)?;
        tracing::info!("numbers: {}", path.display());
        Ok(())
    }
}
