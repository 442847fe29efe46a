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
//! in `full` on those of the layers in the blocks (queries, keys and values; attention output; MLP), in `rank-one` on those of the layers
//! with factors, s ∘ W_0 (r ∘ z ∘ x) / (1 − p), and in all of them on the features that a trained head sees. Patches, norms, positions and biases are left alone. With `dora` a row is divided by its length in the
//! mask, where PEFT divides by that without one, and drops the inputs of W_0 in what DoRA adds to W_0 x.
//!
//! Differs from dropout layers in other programs: a mask is the same for all images and tokens of a part of a batch
//! (`train.accumulate`), and for all test images of a member. So a member is a set of weights, which evaluation, attacks and
//! saved predictions make again bit for bit. The gradient is unbiased for the same objective, with more noise from step to step.

use anyhow::{Result, ensure};
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::base::random::{At, Purpose};
use crate::methods::{
    Entry, Evaluation, MAX_PARTICLES, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant,
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

    fn drops_around_theta(&self) -> bool {
        true
    }

    fn noise_left_out(&self) -> Option<&'static str> {
        (self.rate == 0.0).then_some("method.mc-dropout.rate above 0")
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
        let Evaluation { mut losses, gradients: mut direction } = Evaluation::zero(theta);
        for part in 0..objective.parts() {
            let factors = self.factors(theta, part);
            let found = objective.losses_of_part(&self.masks.on(theta, &factors), part)?;
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

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        keeper.count("mc-dropout.steps", &mut self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::doubles::Plain;
    use crate::methods::{Answer, Request};
    use crate::posterior::Draws;
    use crate::subspace::Layout;
    use crate::subspace::geometry::WeightSpace;
    use tch::{Device, Kind};

    /// A linear layer with two outputs and three inputs, and its bias.
    fn parts(rows: i64) -> Parts {
        let mut layout = Layout::default();
        layout.push_linear("layer.weight", [2, 3]);
        layout.push("layer.bias", &[2]);
        layout.close_block("layer", 0, crate::subspace::Shape::Dense);
        let theta = Tensor::arange(rows * 8, (Kind::Double, Device::Cpu)).view([rows, 8]) + 1.0;
        Parts { theta, seed: 5, optimizer: Box::new(Plain(0.1)), geometry: WeightSpace::new(&layout), clip_norm: None }
    }

    /// L = Σ θ² / 2 on two parts of equal size; it notes where it was evaluated.
    struct Square {
        seen: Vec<Tensor>,
    }

    impl Objective for Square {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let theta = request.plain()?;
            self.seen.push(theta.copy());
            let losses = theta.square().sum_dim_intlist([1i64].as_slice(), false, Kind::Double) * 0.5;
            Ok(Evaluation { losses: losses * 0.5, gradients: theta * 0.5 }.into())
        }

        fn parts(&self) -> usize {
            2
        }
    }

    #[test]
    fn gradients_are_those_of_the_masked_layers() {
        let parts = parts(2);
        let start = parts.theta.copy();
        let mut method = Spec { particles: 2, rate: 0.5, samples: 3 }.build(parts);
        let (mut theta, mut square) = (start.copy(), Square { seen: Vec::new() });
        let step = method.step(&mut theta, &mut square, 1.0).unwrap();
        assert_eq!(square.seen.len(), 2);
        let masks: Vec<Tensor> = square.seen.iter().map(|seen| seen / &start).collect();
        assert!(!masks[0].equal(&masks[1]), "each part has a mask of its own");
        for mask in &masks {
            let weights = mask.narrow(1, 0, 6).view([2, 2, 3]);
            assert!(weights.select(1, 0).equal(&weights.select(1, 1)), "an input is dropped for all outputs");
            assert!((mask.narrow(1, 6, 2) - 1.0).abs().max().double_value(&[]) == 0.0, "biases stay");
            assert!((weights.square() - &weights * 2.0).abs().max().double_value(&[]) < 1e-12, "0 or 2");
        }
        // dL/dθ of L(θ m) is m² θ.
        let expected = &start - (masks[0].square() + masks[1].square()) * &start * 0.05;
        assert!((theta - expected).abs().max().double_value(&[]) < 1e-12);
        assert!(step.losses.size() == [2]);
    }

    #[test]
    fn members_are_masks_and_the_mean_is_without_dropout() {
        let parts = parts(2);
        let theta = parts.theta.to_kind(Kind::Float);
        let method = Spec { particles: 2, rate: 0.5, samples: 3 }.build(parts);
        let posterior = method.posterior(&theta);
        assert!(posterior.is_random() && posterior.theta().equal(&theta));
        assert_eq!(posterior.predictives(Predictive::Draws(3)), [Predictive::Draws(3), Predictive::Mean]);
        let draws = |count: usize| {
            let draws = Draws::new(&posterior, count, 1).unwrap();
            draws.rows(0..draws.count()).unwrap()
        };
        let (three, four) = (draws(3), draws(4));
        assert_eq!(three.size(), [6, 8]);
        assert!(three.get(4).equal(&four.get(5)), "fewer draws are the first of more");
        let factors = three.view([2, 3, 8]) / theta.unsqueeze(1);
        assert!((factors.square() - &factors * 2.0).narrow(2, 0, 6).abs().max().double_value(&[]) < 1e-5, "0 or 2");
    }
}
