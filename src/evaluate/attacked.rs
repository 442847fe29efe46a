//! Predictions under attack. The same fixed members give the gradient and the prediction, unless an attack is made on another run.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use tch::{Device, Tensor};

use super::condition::Attacked;
use super::transfer::Source;
use super::{Condition, Evaluation};
use crate::base::tensor::host_f32;
use crate::base::tensor_file::State;
use crate::data::batches::{Batch, TestImages, in_order};
use crate::evaluate::attacks::victim::all_see;
use crate::evaluate::attacks::{Attack, Clean, Entry, Resolution, Settings, Target, Victim, Work, check_classes};
use crate::predict::in_parts;
use crate::results::store::Row;

/// An attack and the budgets it runs at.
pub struct AttackPlan {
    pub entry: &'static Entry,
    pub settings: Settings,
    /// The L∞ budgets, for pixels in [0, 1].
    pub epsilons: Vec<f64>,
    pub target: Target,
    pub resolution: Resolution,
    /// The run whose members the attack sees, if it is not the one that is evaluated.
    pub source: Option<Source>,
}

/// The members that an attack sees, and the logits `[m, B, C]` of those that are evaluated.
struct Sides<'s, 'p, 'a> {
    victim: &'s Victim<'p, 'a>,
    judge: &'s dyn Fn(&Tensor) -> Result<Tensor>,
}

/// The attacked pixels of all images at one budget.
pub struct Adversarial {
    /// The file name, which is also that of the predictions on these images.
    pub file: std::ffi::OsString,
    pub images: Tensor,
    /// The true labels, `[N]`.
    pub labels: Tensor,
}

impl Adversarial {
    /// Writes the file into `folder`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(&self.file);
        let mut state = State::default();
        state.put("images", &self.images);
        state.put("labels", &self.labels);
        state.write(&path)?;
        tracing::info!("attacked images: {}", path.display());
        Ok(())
    }
}

impl AttackPlan {
    /// Checks that the attack fits what is evaluated, before anything is predicted.
    ///
    /// # Errors
    /// Fails if there are too few classes for its loss, if the member that it aims at does not exist, or if the run that it is made on
    /// sees other images.
    pub(super) fn check(&self, of: &Evaluation) -> Result<()> {
        check_classes(self.entry, &self.settings, of.predictor.classes())?;
        let Some(source) = &self.source else { return self.target.check(of.predictor.members()) };
        source.check(of)?;
        self.target.check(source.prepare()?.members().count())
    }

    fn condition(&self, attack: &dyn Attack, epsilon: f64) -> Condition {
        let (target, resolution) = (self.target, self.resolution);
        let (settings, variant) = (attack.settings(epsilon), attack.variant());
        let source = self.source.as_ref().map(Source::run);
        Condition::Attacked(Attacked { attack: self.entry.key, epsilon, settings, variant, target, resolution, source })
    }
}

/// The results of an attack.
pub struct UnderAttack {
    /// A row for each epsilon.
    pub rows: Vec<Row>,
    /// The attacked images of each epsilon, if they are kept.
    pub images: Vec<Adversarial>,
}

/// The batches of images under attack at one epsilon.
#[derive(Default)]
struct Moved {
    /// The logits `[m, B, C]` of each batch.
    logits: Vec<Tensor>,
    /// The attacked pixels of each batch; empty unless they are kept.
    pixels: Vec<Tensor>,
}

impl Evaluation<'_> {
    /// Attacks `images` batch by batch. With `keep`, the attacked pixels are returned, too.
    pub fn attacked(&self, images: &TestImages, plan: &AttackPlan, keep: bool) -> Result<UnderAttack> {
        let work = Work {
            budgets: plan.epsilons.len(),
            images: self.batch_size.min(images.set.samples()),
            samples: images.set.samples(),
            kept: plan.entry.kept,
        };
        let Some(source) = &plan.source else {
            let victim = Victim::new(&self.predictor, plan.target, plan.resolution, work)?;
            return self.attacked_by(images, plan, keep, &Sides { victim: &victim, judge: &|x| victim.logits(x) });
        };
        let prepared = source.prepare()?;
        let predictor = source.predictor(&prepared, self.predictor.chosen_classes());
        let victim = Victim::new(&predictor, plan.target, plan.resolution, work)?;
        let chunker = self.predictor.plan(work.images, work.samples)?;
        let judge = |x: &Tensor| self.predictor.logits(&chunker, &all_see(x));
        self.attacked_by(images, plan, keep, &Sides { victim: &victim, judge: &judge })
    }

    fn attacked_by(&self, images: &TestImages, plan: &AttackPlan, keep: bool, sides: &Sides) -> Result<UnderAttack> {
        let (started, victim) = (Instant::now(), sides.victim);
        let attack = (plan.entry.build)(plan.settings);
        let mut all_moved: Vec<Moved> = plan.epsilons.iter().map(|_| Moved::default()).collect();
        let set = &images.set;
        let bar = crate::base::logging::bar(set.samples() as u64, plan.entry.key);
        let all: Vec<u32> = (0..set.samples() as u32).collect();
        let batches = in_order(&all, self.batch_size);
        for (indices, batch) in batches.iter().zip(set.batches(batches.clone())) {
            let batch = batch?;
            // Each image is attacked independently of the others, so a batch may be attacked in parts.
            let moved = victim.chunker().run(|cut| {
                let parts = in_parts(0..indices.len(), cut.images);
                parts.map(|part| attack_part(&*attack, victim, plan, indices, &batch, part)).collect::<Result<Vec<_>>>()
            })?;
            for (at, so_far) in all_moved.iter_mut().enumerate() {
                let parts: Vec<&Tensor> = moved.iter().map(|part| &part[at]).collect();
                let x = Tensor::cat(&parts, 0);
                so_far.logits.push((sides.judge)(&x)?.to_device(Device::Cpu));
                if keep {
                    so_far.pixels.push(x.to_device(Device::Cpu));
                }
            }
            bar.inc(indices.len() as u64);
        }
        bar.finish_and_clear();
        let seconds = started.elapsed().as_secs_f64() / plan.epsilons.len() as f64;
        self.keep_attacked(images, plan, &all_moved, seconds)
    }

    /// Saves the predictions of each epsilon from the logits of its batches; attacked pixels, where there are any, become sets of images.
    fn keep_attacked(
        &self,
        images: &TestImages,
        plan: &AttackPlan,
        all_moved: &[Moved],
        seconds: f64,
    ) -> Result<UnderAttack> {
        let attack = (plan.entry.build)(plan.settings);
        let labels: Vec<i64> = images.set.split.labels.iter().map(|label| i64::from(*label)).collect();
        let labels = Tensor::from_slice(&labels);
        let (mut rows, mut adversarial) = (Vec::new(), Vec::new());
        for (epsilon, Moved { logits, pixels }) in plan.epsilons.iter().zip(all_moved) {
            let condition = plan.condition(&*attack, *epsilon);
            let predictions = self.predictions(host_f32(&Tensor::cat(logits, 1))?, images, &condition)?;
            let kept = self.keep(&predictions, images.fingerprint, &condition, seconds)?;
            if let (Some(file), false) = (kept.file.as_deref().and_then(Path::file_name), pixels.is_empty()) {
                let (file, images) = (file.to_os_string(), Tensor::cat(pixels, 0));
                adversarial.push(Adversarial { file, images, labels: labels.shallow_clone() });
            }
            rows.push(kept.row);
        }
        Ok(UnderAttack { rows, images: adversarial })
    }
}

/// Returns the attacked pixels of some images of a batch, one tensor per epsilon.
fn attack_part(
    attack: &dyn Attack,
    victim: &Victim,
    plan: &AttackPlan,
    indices: &[u32],
    batch: &Batch,
    part: Range<usize>,
) -> Result<Vec<Tensor>> {
    let of = |t: &Tensor| t.narrow(0, part.start as i64, part.len() as i64);
    let samples = batch.samples.narrow(0, part.start as i64, part.len() as i64);
    let (pixels, labels) = (victim.pixels(&samples)?, of(&batch.labels));
    let clean = Clean { pixels: &pixels, labels: &labels, indices: &indices[part] };
    let moved = attack.run(&clean, &plan.epsilons, victim)?;
    ensure!(moved.len() == plan.epsilons.len(), "{}: an attack must give one result per epsilon", plan.entry.key);
    Ok(moved)
}
