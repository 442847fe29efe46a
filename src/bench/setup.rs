//! A case that is ready to run: its network, what is trained of it, and random images.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use super::case::CLASSES;
use super::flops::{Counting, Pass, Reads, Sample, Work};
use super::measured::Plan;
use crate::data::batches::Batch;
use crate::data::fields::{Fields, PIXELS};
use crate::experiment::{Batches, Training};
use crate::model::Model;
use crate::subspace::Subspace;

/// A case that is ready to run.
pub struct Setup<'a> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub training: &'a Training,
    pub plan: Plan,
    pub particles: i64,
}

impl Setup<'_> {
    /// Returns the first block that is trained.
    pub fn first_block(&self) -> usize {
        self.model.network.first_stage(self.subspace.layout())
    }

    /// Returns the number of data orders: one per particle, or one for all of them.
    pub fn orders(&self) -> i64 {
        match self.training.train.batches {
            Batches::Independent => self.particles,
            Batches::Shared => 1,
        }
    }

    /// Returns the operations of a pass and of its gradients.
    pub fn work(&self, images: i64, own_images: bool, from_stage: Option<usize>) -> Work {
        let (layout, particles) = (self.subspace.layout(), self.particles);
        let pass = Pass { layout, classes: CLASSES, particles, images, own_images, from_stage };
        let (network, base) = (&*self.model.network, &self.model.base);
        let sample = Sample::Image { side: self.model.image_side() };
        Counting { network, base, sample, reads: Reads::Classes, pass }.work()
    }
}

/// Returns random pixels as images, with random labels.
pub fn random_batch(model: &Model, images: i64) -> Result<Batch> {
    let (size, cpu) = (model.images()?.size(), Device::Cpu);
    let samples = Tensor::randint(256, [images, 3, size, size], (Kind::Uint8, cpu)).to_device(model.device);
    let labels = Tensor::randint(CLASSES, [images], (Kind::Int64, cpu)).to_device(model.device);
    Ok(Batch { samples: Fields::of(PIXELS, samples), labels })
}
