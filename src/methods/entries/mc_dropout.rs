//! `[method.mc-dropout]`: Monte Carlo dropout (Gal and Ghahramani 2016, arXiv 1506.02142; on low-rank updates as in
//! BayesAdapt, arXiv 2506.21408). Particles are trained with dropout, and predict with it: a member is a mask.
//!
//! | symbol | here |
//! |---|---|
//! | p, the probability that an input is dropped | `rate` |
//! | z_j ~ Bernoulli(1 − p), an input j of a layer | [`Masks`] |
//! | W diag(z) / (1 − p) | the layer in one mask |
//!
//! Dropout acts on the inputs of the trained linear layers: in `low-rank` on those of the update, W_0 x + s B A (z ∘ x) / (1 − p),
//! in `full` on those of the layers in the blocks (queries, keys and values; attention output; MLP), and in both on the
//! features that a trained head sees. Patches, norms, positions and biases are left alone.
//!
//! Differs from dropout layers in other programs: a mask is the same for all images and tokens of a part of a batch
//! (`train.accumulate`), and for all test images of a member. So a member is a set of weights, which evaluation, attacks and
//! saved predictions make again bit for bit. The gradient is unbiased for the same objective, with more noise from step to step.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::noise::At;
use crate::base::random::Purpose;
use crate::base::tensor_file::State;
use crate::methods::{
    Entry, MAX_PARTICLES, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant,
};
use crate::posterior::{Masks, Place, Posterior, Predictive};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "mc-dropout",
    about: "training with dropout on the inputs of trained layers; each mask is a member that predicts",
    paper: "MC-dropout",
    update: Update::Optimizer,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant { key: "mc-dropout", sets: &[], asks_for_mixing: false }],
    names: &[("full", "MC-dropout"), ("low-rank", "Low-rank MC-dropout")],
    names_of_many: &[("full", "Multi-MC-dropout"), ("low-rank", "Low-rank Multi-MC-dropout")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    #[derive(Clone, Debug)]
    struct Spec {
        /// Number of particles.
        particles: i64 = 1, in 1..=MAX_PARTICLES;
        /// Probability that an input of a trained layer is dropped.
        rate: f64 = 0.1, in from_below(0.0, 1.0);
        /// Masks per particle that predict after training.
        samples: usize = 10, in 1..=100_000;
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        let masks = Masks { layers: parts.geometry.inputs().to_vec(), rate: self.rate };
        Box::new(Dropout { masks, parts, steps: 0 })
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    /// The masks, the particles without the dropped inputs, the gradients and their sum.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        4
    }
}

struct Dropout {
    masks: Masks,
    parts: Parts,
    steps: i64,
}

impl Dropout {
    /// Returns the factors of theta on a part of the batch of the next step, `[n, P]`.
    fn factors(&self, theta: &Tensor, part: usize) -> Tensor {
        let at = At { step: self.steps, sample: 0, part: part as i64 };
        let of = |particle| {
            let place = Place { seed: self.parts.seed, purpose: Purpose::Noise, at, particle };
            self.masks.factors(place, theta)
        };
        Tensor::stack(&(0..theta.size()[0]).map(of).collect::<Vec<_>>(), 0)
    }
}

impl Method for Dropout {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        ensure!(!self.masks.layers.is_empty(), "method.mc-dropout: no trained layer has inputs that could be dropped");
        let mut direction = theta.zeros_like();
        let mut losses = direction.select(1, 0).to_kind(Kind::Float);
        for part in 0..objective.parts() {
            let factors = self.factors(theta, part);
            let found = objective.losses_of_part(&(&*theta * &factors), part)?;
            direction += found.gradients * factors;
            losses += found.losses;
        }
        self.parts.apply(theta, &direction, objective, factor)?;
        self.steps += 1;
        Ok(Step { losses, diagnostics: None })
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        Posterior::Dropout { theta: theta.shallow_clone(), masks: self.masks.clone() }
    }

    fn save(&self, state: &mut State) {
        self.parts.optimizer.save(state);
        state.put_count("mc-dropout.steps", self.steps);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.parts.optimizer.load(state)?;
        self.steps = state.count("mc-dropout.steps")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
