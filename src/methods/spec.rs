//! The settings of a method.

use anyhow::Result;

use super::method::{Method, Parts};
use super::post_hoc::{Origin, PostHoc};
use crate::posterior::Predictive;
use crate::schema::Resolved;
use crate::subspace::geometry::Inputs;

/// The largest number of particles in a config.
pub(super) const MAX_PARTICLES: i64 = 100_000;

/// Facts that decide whether a method can work, known before any weight is read.
pub struct MethodContext {
    /// The key of the subspace.
    pub subspace: &'static str,
}

/// Numbers of a particle that are in no matrix `[n, P]`.
#[derive(Clone, Copy, Default)]
pub struct HeadNumbers {
    /// Those kept from step to step.
    pub kept: u64,
    /// Those that a step creates and drops.
    pub step: u64,
    /// Those in the posterior.
    pub posterior: u64,
}

/// The settings of a method, as read from `[method.*]`.
pub trait MethodSpec: Resolved {
    /// Returns the number of particles n.
    fn particles(&self) -> i64;

    fn build(&self, parts: Parts) -> Box<dyn Method>;

    /// Checks the settings against the number of steps of a training, before its first.
    ///
    /// # Errors
    /// Fails if so few steps leave the method without a posterior.
    fn check_steps(&self, steps: usize) -> Result<()> {
        let _ = steps;
        Ok(())
    }

    /// Returns the keys of the method's table that a training of `steps` steps needs, with their values, for a rehearsal of so
    /// few steps that [`check_steps`](Self::check_steps) fails.
    fn shortened(&self, steps: usize) -> Vec<(&'static str, toml::Value)> {
        let _ = steps;
        Vec::new()
    }

    /// Returns whether the method changes the learning rate along the training by a schedule of its own, which wants
    /// `train.schedule = "constant"`.
    fn schedules_rate(&self) -> bool {
        false
    }

    /// Checks the settings against the number of classes, before the first step.
    ///
    /// # Errors
    /// Fails if the method is not defined for so few classes.
    fn check_classes(&self, classes: i64) -> Result<()> {
        let _ = classes;
        Ok(())
    }

    /// Returns whether the posterior is gathered along the training, as by snapshots or by the states of a chain, so that the
    /// one after the last step is what the method means. An earlier one would be made of fewer of them.
    fn gathers_posterior(&self) -> bool {
        false
    }

    /// Returns whether the method needs the logits of classes, or what enters a head of classes, besides losses and their
    /// gradients. Such a method does not learn free answers.
    fn needs_classes(&self) -> bool {
        false
    }

    /// Returns whether all particles must see the same images in each step, since the loss compares their predictions.
    fn needs_shared_batches(&self) -> bool {
        false
    }

    /// Returns how the posterior predicts unless the command line says otherwise.
    fn predictive(&self) -> Predictive {
        Predictive::Particles
    }

    /// Returns where particles come from.
    fn origin(&self) -> Origin<'_> {
        Origin::Training
    }

    /// Returns what is fitted around the particles, if anything is.
    fn post_hoc(&self) -> Option<&dyn PostHoc> {
        None
    }

    /// Returns the number of matrices `[n, P]` that the method keeps from step to step, besides theta and those of the
    /// optimizer.
    fn kept_matrices(&self) -> u64 {
        0
    }

    /// Returns the number of matrices `[n, P]` that a step on a batch of `parts` parts creates and drops: at least the
    /// gradients.
    fn matrices_of_a_step(&self, parts: usize) -> u64 {
        let _ = parts;
        1
    }

    /// Returns what the method takes for a trained head of this size, in a step on `images` images, besides these matrices.
    fn head_numbers(&self, head: Inputs, images: usize) -> HeadNumbers {
        let _ = (head, images);
        HeadNumbers::default()
    }

    /// Returns the number of gradients that a step takes.
    fn gradients_of_a_step(&self) -> u64 {
        1
    }

    /// Returns whether a step compares all pairs of particles by their weights, which takes memory that grows with n².
    fn compares_particles(&self) -> bool {
        false
    }

    /// Returns whether a step asks for squared gradients of single images, which take copies of a particle.
    fn squares_images(&self) -> bool {
        false
    }

    /// Returns the number of matrices `[n, P]` in a posterior of this method.
    fn matrices_of_the_posterior(&self) -> u64 {
        1
    }
}
