//! Predictions under attack: the same fixed members give the gradient and the prediction.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use tch::{Device, Tensor};

use super::condition::Attacked;
use super::{Condition, Evaluation};
use crate::attacks::{Attack, Clean, Entry, Resolution, Settings, Target, Victim};
use crate::images::{Batch, ImageSet, in_order};
use crate::predict::in_parts;
use crate::results::store::Row;
use crate::state::State;
use crate::tensor::host_f32;

/// An attack at several budgets.
pub struct AttackPlan {
    pub entry: &'static Entry,
    pub settings: Settings,
    /// L∞, in units of pixels in [0, 1].
    pub epsilons: Vec<f64>,
    pub target: Target,
    pub resolution: Resolution,
}

/// Attacked pixels of all images at one budget: `[N, 3, h, w]` on the CPU.
pub struct Adversarial {
    /// Its file, named as the predictions on it are.
    pub file: PathBuf,
    pub images: Tensor,
    /// `[N]`.
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
    fn condition(&self, attack: &dyn Attack, epsilon: f64) -> Condition {
        let (target, resolution) = (self.target, self.resolution);
        let (settings, variant) = (attack.settings(epsilon), attack.variant());
        Condition::Attacked(Attacked { attack: self.entry.key, epsilon, settings, variant, target, resolution })
    }
}

impl Evaluation<'_> {
    /// A row an epsilon; `images` are attacked batch by batch. With `keep`, the attacked pixels come back as well.
    pub fn attacked(&self, images: &ImageSet, plan: &AttackPlan, keep: bool) -> Result<(Vec<Row>, Vec<Adversarial>)> {
        let started = Instant::now();
        let attack = (plan.entry.build)(plan.settings);
        let sizes = (plan.epsilons.len(), self.batch_size.min(images.samples()), images.samples());
        let victim = Victim::new(&self.predictor, (plan.target, plan.resolution), sizes)?;
        let mut logits: Vec<Vec<Tensor>> = plan.epsilons.iter().map(|_| Vec::new()).collect();
        let mut pixels: Vec<Vec<Tensor>> = plan.epsilons.iter().map(|_| Vec::new()).collect();
        let bar = crate::logging::bar(images.samples() as u64, plan.entry.key);
        let all: Vec<u32> = (0..images.samples() as u32).collect();
        let batches = in_order(&all, self.batch_size);
        for (indices, batch) in batches.iter().zip(images.batches(batches.clone())) {
            let batch = batch?;
            // Each image is moved on its own, so a batch may be attacked in parts.
            let moved = victim.cutter().run(|cut| {
                let parts = in_parts(0..indices.len(), cut.images);
                parts
                    .map(|part| attack_part(&*attack, &victim, plan, (indices, &batch), part))
                    .collect::<Result<Vec<_>>>()
            })?;
            for at in 0..plan.epsilons.len() {
                let parts: Vec<&Tensor> = moved.iter().map(|part| &part[at]).collect();
                let x = Tensor::cat(&parts, 0);
                logits[at].push(victim.logits(&x)?.to_device(Device::Cpu));
                if keep {
                    pixels[at].push(x.to_device(Device::Cpu));
                }
            }
            bar.inc(indices.len() as u64);
        }
        bar.finish_and_clear();
        let seconds = started.elapsed().as_secs_f64() / plan.epsilons.len() as f64;
        let rows = plan.epsilons.iter().zip(&logits).map(|(epsilon, parts)| {
            let condition = plan.condition(&*attack, *epsilon);
            self.keep(host_f32(&Tensor::cat(parts, 1))?, images, &condition, seconds).map(|(row, _)| row)
        });
        let labels: Vec<i64> = images.split.labels.iter().map(|label| i64::from(*label)).collect();
        let labels = Tensor::from_slice(&labels);
        let kept = plan.epsilons.iter().zip(&pixels).filter(|(_, parts)| !parts.is_empty());
        let kept = kept.map(|(epsilon, parts)| Adversarial {
            file: PathBuf::from(
                self.predictions_path(&plan.condition(&*attack, *epsilon)).file_name().unwrap_or_default(),
            ),
            images: Tensor::cat(parts, 0),
            labels: labels.shallow_clone(),
        });
        Ok((rows.collect::<Result<_>>()?, kept.collect()))
    }
}

/// Moved pixels of some images of a batch, one tensor an epsilon.
fn attack_part(
    attack: &dyn Attack,
    victim: &Victim,
    plan: &AttackPlan,
    (indices, batch): (&[u32], &Batch),
    part: Range<usize>,
) -> Result<Vec<Tensor>> {
    let of = |t: &Tensor| t.narrow(0, part.start as i64, part.len() as i64);
    let (pixels, labels) = (victim.pixels(&of(&batch.bytes)), of(&batch.labels));
    let gradient = |x: &Tensor| victim.gradient(x, &labels);
    let moved = attack.run(&Clean { pixels: &pixels, indices: &indices[part] }, &plan.epsilons, &gradient)?;
    ensure!(moved.len() == plan.epsilons.len(), "{}: an attack must give one result an epsilon", plan.entry.key);
    Ok(moved)
}
