//! The entry of a registered method, which has the facts that the rest of the program knows, and its settings.

use anyhow::Result;
use tch::{Kind, Tensor};

use super::method::{Independent, Method, Parts};
use super::post_hoc::{Origin, PostHoc};
use crate::base::random::{self, At, uniform_of_normal};
use crate::model::head::Noise;
use crate::posterior::Predictive;
use crate::schema::{Reader, Resolved, limits};
use crate::subspace::geometry::Inputs;

/// The largest number of particles in a config.
pub(super) const MAX_PARTICLES: i64 = 100_000;

/// Facts that decide whether a method can work, known before any weight is read.
pub struct MethodContext<'a> {
    /// The key of the subspace; empty if the config has none that can be read, which is a problem of its own.
    pub subspace: &'a str,
    /// The setting of the subspace by which its weights are no sums of updates.
    pub scaled_by: Option<&'static str>,
}

impl MethodContext<'_> {
    /// Returns whether the subspace is known to be another one than that with a key.
    pub fn is_not(&self, key: &str) -> bool {
        ![key, ""].contains(&self.subspace)
    }
}

/// Numbers of a particle that are in no matrix `[n, P]`.
#[derive(Clone, Copy, Default)]
pub struct HeadNumbers {
    /// The numbers that are kept from step to step.
    pub kept: u64,
    /// The numbers that a step creates and drops.
    pub step: u64,
    /// The numbers in the posterior.
    pub posterior: u64,
}

/// The settings of a method, as read from `[method.*]`.
pub trait MethodSpec: Resolved {
    /// Returns the number of particles n.
    fn particles(&self) -> i64;

    /// Returns the method at work; by default every particle follows its own gradient.
    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Independent { parts })
    }

    /// Checks the settings against the number of steps of a training, before its first.
    ///
    /// # Errors
    /// Fails if so few steps leave the method without a posterior.
    fn check_steps(&self, _steps: usize) -> Result<()> {
        Ok(())
    }

    /// Returns the keys of the method's table that a training of `steps` steps needs, with their values, for a rehearsal of so
    /// few steps that [`check_steps`](Self::check_steps) fails.
    fn shortened(&self, _steps: usize) -> Vec<(&'static str, toml::Value)> {
        Vec::new()
    }

    /// Returns whether the method changes the learning rate along the training by a schedule of its own, which wants
    /// `train.schedule = "constant"`.
    fn schedules_rate(&self) -> bool {
        false
    }

    /// Returns whether the first steps are the optimizer's, in a method whose other steps are its own ([`Update::OwnAfter`]).
    fn starts_by_optimizer(&self) -> bool {
        false
    }

    /// Checks the settings against the number of classes, before the first step.
    ///
    /// # Errors
    /// Fails if the method is not defined for so few classes.
    fn check_classes(&self, _classes: i64) -> Result<()> {
        Ok(())
    }

    /// Returns whether the posterior is gathered along the training, as by snapshots or by the states of a chain, so that the
    /// one after the last step is what the method means. An earlier one would be made of fewer of them.
    fn gathers_posterior(&self) -> bool {
        false
    }

    /// Returns the number of rows of the posterior after `steps` steps, each of which predicts by itself or has members drawn around it.
    fn rows_after(&self, _steps: usize) -> i64 {
        self.particles()
    }

    /// Returns whether the posterior is theta under dropout, so that an average of theta over the steps has one as well.
    fn drops_around_theta(&self) -> bool {
        false
    }

    /// Returns whether every posterior of the method, from the first step on, is one Gaussian per particle whose columns are independent
    /// ([`Posterior::Gaussians`](crate::posterior::Posterior::Gaussians)), as leave-one-out losses need it.
    fn has_independent_columns(&self) -> bool {
        false
    }

    /// Returns whether the method needs the logits of classes, or what enters a head of classes, besides losses and their
    /// gradients. Such a method does not learn free answers.
    fn needs_classes(&self) -> bool {
        false
    }

    /// Returns whether the particles are trained by a loss of the method's own, of the plain labels, in place of the one that `[train]` asks for.
    fn has_own_loss(&self) -> bool {
        false
    }

    /// Returns whether what is fitted after training is fitted to the likelihood of the labels.
    fn fits_likelihood(&self) -> bool {
        self.post_hoc().is_some()
    }

    /// Returns whether the method takes the logits for linear in what enters the head, which those that a network bounds are not.
    fn needs_linear_logits(&self) -> bool {
        false
    }

    /// Returns why the method does not learn numbers with such a noise, in words that follow its key; `None` if it does.
    fn refuses_numbers(&self, _noise: Noise) -> Option<String> {
        self.needs_classes().then(|| "needs the logits of classes, and numbers have none".to_string())
    }

    /// Returns whether all particles must see the same images in each step, since the loss compares their predictions.
    fn needs_shared_batches(&self) -> bool {
        false
    }

    /// Returns the setting that would draw noise, where the settings of a method whose rows are no points leave it out: particles that start
    /// equal and see the same images then stay equal. `None` where noise is drawn.
    fn noise_left_out(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether the effective sample size is meant to be far above the number of training images.
    fn wants_more_samples_than_images(&self) -> bool {
        false
    }

    /// Returns how the posterior predicts unless the command line says otherwise.
    fn predictive(&self) -> Predictive {
        Predictive::Particles
    }

    /// Returns the settings that make the Gaussians narrower from which training starts, as advice; empty if there are none.
    fn narrowed_by(&self) -> &'static str {
        ""
    }

    /// Returns where particles come from.
    fn origin(&self) -> Origin<'_> {
        Origin::Training
    }

    /// Returns the post-hoc method that is fitted around the particles, if there is one.
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
    fn matrices_of_a_step(&self, _parts: usize) -> u64 {
        1
    }

    /// Returns the numbers that the method takes for a trained head of this size, in a step on `images` images, besides these matrices.
    fn head_numbers(&self, _head: Inputs, _images: usize) -> HeadNumbers {
        HeadNumbers::default()
    }

    /// Returns the copies in f32 that a step makes at once, for every particle, of the prepared images of its whole batch: of gradients by
    /// their pixels, however few of them go through the network at once.
    fn copies_of_images(&self) -> u64 {
        0
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

    /// Returns whether a step differentiates gradients by the pixels of its images, which takes a graph of gradients down to them.
    fn differentiates_pixels(&self) -> bool {
        false
    }

    /// Returns why a step keeps all activations, in words that follow the method's key, so that `train.recompute` cannot be followed; `None`
    /// where it can.
    fn keeps_activations(&self) -> Option<&'static str> {
        if self.differentiates_pixels() {
            Some("takes gradients by pixels, which need the graph")
        } else if self.squares_images() {
            Some("takes squared gradients of single images, which need the graph")
        } else {
            None
        }
    }

    /// Returns whether a step asks for more than losses and their gradients of passes, so that they are not divided among threads.
    fn passes_together(&self) -> bool {
        self.squares_images()
    }

    /// Returns whether a step asks for more of a batch than losses and their gradients (an [`Extra`](super::Extra)), which losses that are
    /// scaled for f16 do not give.
    fn asks_for_extras(&self) -> bool {
        self.passes_together()
    }

    /// Returns whether a step may be skipped where one of its gradients is not finite, as f16 has it: nothing has moved by then, and all
    /// that it asks for are losses and their gradients.
    fn skips_steps(&self) -> bool {
        self.gradients_of_a_step() == 1 && !self.asks_for_extras()
    }

    /// Returns whether every step asks once for the losses and gradients of the whole batch, at theta itself, and for nothing else, so that
    /// trainings can share their passes.
    fn asks_at_theta(&self) -> bool {
        false
    }

    /// Returns the number of matrices `[n, P]` in a posterior of this method.
    fn matrices_of_the_posterior(&self) -> u64 {
        1
    }
}

/// The rule that turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The optimizer of the config.
    Optimizer,
    /// The method's own rule; the config then has `[optimizer.none]`.
    Own,
    /// The method's own rule, after as many steps of the optimizer as this key says; where it says 0, the config has `[optimizer.none]`.
    OwnAfter(&'static str),
}

/// The meaning of a row of theta during training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsAre {
    /// A point that follows gradients. Equal points that see the same images stay equal.
    Points,
    /// The mean of a Gaussian; gradients are taken at draws from it.
    Gaussians,
    /// A state or a point that moves with noise of its own.
    Samples,
}

/// The number of rows that a method moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Particles {
    One,
    /// The number in the setting `particles`.
    Any,
}

/// A method with some settings, as `bella bench` measures it.
#[derive(Debug, PartialEq, Eq)]
pub struct Variant {
    /// The word for it on the command line.
    pub key: &'static str,
    /// The overrides of a config below the method's own table; `particles` comes from the command line.
    pub sets: &'static [&'static str],
    /// Whether the step asks the objective for mixed gradients or for logits, so that it cannot be timed with given
    /// gradients.
    pub asks_for_mixing: bool,
}

/// A registered method, with everything the rest of the program knows about it.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub paper: &'static str,
    pub update: Update,
    pub rows: RowsAre,
    pub particles: Particles,
    pub bench: &'static [Variant],
    /// Pairs (subspace, name of the method there in legends); in other subspaces the name is `<subspace> × <key>`.
    pub names: &'static [(&'static str, &'static str)],
    /// The same for n > 1 particles, in subspaces where the method has another name then, such as MultiSWAG.
    pub names_of_many: &'static [(&'static str, &'static str)],
    pub read: fn(&Reader, &MethodContext) -> Box<dyn MethodSpec>,
}

/// Reads the number of Gaussians in a mixture, `particles`.
pub(super) fn particles(reader: &Reader) -> i64 {
    reader.integer("particles", 1..=MAX_PARTICLES).about("Number of Gaussians in the mixture.").or(1)
}

/// Reads the effective sample size, `ess`.
pub(super) fn ess(reader: &Reader) -> f64 {
    reader
        .float("ess", limits::above(0.0))
        .about("Effective sample size: the number of training images.")
        .required_because("the effective sample size: the number of training images")
}

/// Reads the number of draws that predict, `samples`.
pub(super) fn samples(reader: &Reader, default: usize) -> usize {
    reader.count("samples", 1..=100_000).about("Draws per particle that predict after training.").or(default)
}

/// Reads the number of noisy weights in a step, `mc_samples`.
pub(super) fn mc_samples(reader: &Reader) -> i64 {
    reader.integer("mc_samples", 1..=10_000).about("Noisy weights per training step.").or(1)
}

/// Reads the number of particles with a Gaussian around each, `particles`.
pub(super) fn fitted(reader: &Reader) -> i64 {
    reader.integer("particles", 1..=MAX_PARTICLES).about("Number of particles, each with a Gaussian around it.").or(1)
}

/// Reads the run whose particles are taken, `from`.
pub(super) fn from(reader: &Reader) -> Option<String> {
    reader
        .string("from")
        .about("Finished run whose particles are taken: its folder, the start of its id, or settings.")
        .optional()
}

/// Reads the steps over which the weights of a divergence double, `cycle`, which the rate `kl_lr` needs where it is not 0.
pub(super) fn cycle(reader: &Reader, kl_lr: f64) -> Option<i64> {
    let field = reader
        .integer("cycle", 1..=1_000_000_000)
        .about("Steps over which the KL weights double again and again; required unless `kl_lr` is 0.");
    if kl_lr == 0.0 {
        return field.optional();
    }
    Some(field.required_because(
        "the steps over which the KL weights double again and again: the authors take 100 N^(π/8) / batch size for N training images",
    ))
}

/// Returns the rate of the step that follows a divergence after `steps` steps: `kl_lr` times the weight in the cycle, and 0 without a cycle.
pub(super) fn divergence_rate(kl_lr: f64, cycle: Option<i64>, steps: i64) -> f64 {
    cycle.map_or(0.0, |cycle| kl_lr * doubling_weight(steps, cycle))
}

/// Returns the weight π_i = 2^i / (2^(m+1) − 1) of a divergence in a step counted from 0, where i goes from 1 to the length m of a
/// cycle again and again (BLoB; Wang et al. 2024, arXiv 2406.11675).
pub(super) fn doubling_weight(step: i64, cycle: i64) -> f64 {
    let i = step % cycle + 1;
    // Divided by 2^(m+1), so that nothing overflows.
    2f64.powf((i - cycle - 1) as f64) / (1.0 - 2f64.powf(-(cycle + 1) as f64))
}

/// Returns draws from U(ε/√2, ε), as BLoB's roots of standard deviations start, in the shape of `like: [n, K]` for ε = `init`.
pub(super) fn spread_at_start(noise: &random::Noise, like: &Tensor, init: f64) -> Tensor {
    // Steps count from 0.
    let uniform = uniform_of_normal(&noise.draw(At { step: -1, sample: 0, part: 0 }, like));
    let least = std::f64::consts::FRAC_1_SQRT_2;
    (uniform * (1.0 - least) + least) * init
}

/// Refuses keys of a divergence that is followed with the rate `kl_lr`, where this is 0.
pub(super) fn check_divergence(reader: &Reader, kl_lr: f64, keys: &[&str]) {
    for key in keys.iter().filter(|key| kl_lr == 0.0 && reader.sets(key)) {
        reader.problem(
            key,
            "is of the divergence from the prior, which kl_lr = 0 leaves out: leave it out, or raise kl_lr",
        );
    }
}

/// Returns KL(N(m, s²) ‖ N(0, prior²)) of each row, `[n]` in f64, for means and standard deviations `[n, k]`.
pub(super) fn divergence(mean: &Tensor, std: &Tensor, prior: f64) -> Tensor {
    let of = |tensor: &Tensor| tensor.to_kind(Kind::Double) / prior;
    let (mean, ratio) = (of(mean), of(std));
    let each = (mean.square() + ratio.square() - 1.0) * 0.5 - ratio.log();
    each.sum_dim_intlist([1i64].as_slice(), false, Kind::Double)
}
