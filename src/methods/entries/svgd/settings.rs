//! The settings of `[method.svgd]`.

use tch::{Kind, Tensor};

use super::kernel::{Bandwidth, Kernel, LogN, Median};
use crate::methods::sharpness::{self, Sharpness};
use crate::methods::{MAX_PARTICLES, MethodContext};
use crate::schema::{Choice, Reader, settings, words};

words! {
    /// The gradients that move a particle.
    pub enum Drive {
        /// The particle's own gradient, times Σ_j k_ij (equation 4).
        Own = "own",
        /// The gradients of all particles, weighted by k_ij, column by column (equation 2).
        Shared = "shared",
        /// The gradients of all particles with respect to weights, weighted by k_ij (equation 2 in weight space).
        Weight = "weight",
    }
}

words! {
    /// The flow that particles follow.
    pub enum Flow {
        /// Stein variational gradient descent: (1/n) [ drive_i + (γ/n) Σ_j ∇_i k_ij ].
        Stein = "stein",
        /// The kernelised Wasserstein gradient flow: ∇_i L_i + γ Σ_j ∇_i k_ij / Σ_j k_ij.
        Wasserstein = "wasserstein",
    }
}

words! {
    /// The space whose distances the kernel takes, and in which particles repel.
    pub enum Space {
        /// The trained weights.
        Weights = "weights",
        /// The logits of the batch's images.
        Logits = "logits",
        /// The probabilities of the batch's images.
        Probabilities = "probabilities",
        /// What enters the head, for the batch's images.
        Features = "features",
        /// The gradients of label logits by the pixels of the batch's images, image by image.
        InputGradients = "input-gradients",
    }
}

impl Flow {
    /// Input gradients repel by the rule of FoRDE, which is a Wasserstein flow.
    fn usual(space: &Space) -> Flow {
        if *space == Space::InputGradients { Flow::Wasserstein } else { Flow::Stein }
    }
}

impl Drive {
    /// The factors of different particles have no common basis, so their gradients are not mixed (equation 4); logits of
    /// different particles have one. The Wasserstein flow mixes none.
    fn usual(space: Space, flow: Flow, context: &MethodContext) -> Drive {
        match (flow, space) {
            (Flow::Wasserstein, _) | (_, Space::Features | Space::InputGradients) => Drive::Own,
            (_, Space::Logits | Space::Probabilities) => Drive::Shared,
            (_, Space::Weights) if context.subspace == "low-rank" => Drive::Own,
            (_, Space::Weights) => Drive::Shared,
        }
    }
}

words! {
    /// The columns that share one kernel.
    pub enum Domain {
        /// One kernel per layer.
        Layer = "layer",
        /// One kernel for all of theta.
        Global = "global",
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec(context: &MethodContext) {
        /// Number of particles.
        pub particles: i64, in 1..=MAX_PARTICLES;
        /// Strength of the repulsion between particles.
        pub gamma: f64, in at_least(0.0);
        /// Space in which particles repel; other ones than `weights` compare what they compute for the images of a batch.
        pub space: Space = Space::Weights, omit Space::Weights;
        /// Flow that the particles follow: Stein's, or the Wasserstein gradient flow of repulsive ensembles, which is that of input gradients.
        pub flow: Flow = Flow::usual(&space), omit Flow::Stein;
        /// Gradients that move a particle; by default `own` in `low-rank`, `shared` in `full` and where logits or probabilities repel.
        pub drive: Drive = Drive::usual(space, flow, context);
        /// One kernel for each layer, or one for all of theta; there is one wherever outputs repel.
        pub kernel: Domain = if space == Space::Weights { Domain::Layer } else { Domain::Global };
        /// Fixed 2σ² of the kernel; by default the median rule sets it.
        pub bandwidth: Option<f64>, in above(0.0);
        /// Distances whose median is taken: those between different particles, or all.
        pub median: Median = Median::OffDiagonal;
        /// The number whose logarithm divides the median.
        pub log_n: LogN = LogN::NPlusOne;
        pub sharpness: Option<Sharpness>, part Sharpness::option;
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader, _: &MethodContext) {
        if self.bandwidth.is_some() && (self.median != Median::OffDiagonal || self.log_n != LogN::NPlusOne) {
            reader.problem("bandwidth", "is fixed, so median and log_n do nothing: leave it out, or leave those out");
        }
        if self.flow == Flow::Wasserstein && self.drive != Drive::Own {
            reader.problem("drive", "is \"own\" with flow = \"wasserstein\": leave it out, or set flow = \"stein\"");
        }
        if self.space == Space::InputGradients {
            self.check_input_gradients(reader);
        }
        if self.space == Space::Weights {
            return;
        }
        let space = self.space.word();
        if self.kernel == Domain::Layer {
            reader.problem("kernel", format!("is one for all outputs with space = \"{space}\": leave it out"));
        }
        let own_alone = matches!(self.space, Space::Features | Space::InputGradients);
        if self.drive == Drive::Weight || own_alone && self.drive != Drive::Own {
            let allowed = if own_alone { "\"own\"" } else { "\"own\" or \"shared\"" };
            reader.problem("drive", format!("must be {allowed} with space = \"{space}\""));
        }
        if self.sharpness.is_some() {
            let why = format!(
                "needs space = \"weights\": with \"{space}\" a step asks for outputs and not only for gradients"
            );
            reader.problem(sharpness::KEY, why);
        }
    }

    /// Input gradients repel image by image, by the rule of FoRDE.
    fn check_input_gradients(&self, reader: &Reader) {
        if self.flow != Flow::Wasserstein {
            reader.problem("flow", "is \"wasserstein\" with space = \"input-gradients\": leave it out");
        }
        if self.median != Median::OffDiagonal || self.log_n != LogN::NPlusOne {
            let why = "bandwidths with space = \"input-gradients\" are the medians over all particles, divided by ln n: leave median and log_n out";
            reader.problem("median", why);
        }
    }

    /// Turns the particles' own gradients `[n, K]` into the first term of φ, in place, by the kernel `[n, n]` of their block. With
    /// `drive = "weight"` the gradients of particles have a common basis, as with `"shared"`.
    pub fn weigh(&self, kernel: &Tensor, mut gradients: Tensor) {
        let kernel = (kernel / self.particles as f64).to_kind(gradients.kind());
        match (self.flow, self.drive) {
            (Flow::Wasserstein, _) => {}
            (Flow::Stein, Drive::Own) => {
                let _ = gradients.g_mul_(&kernel.sum_dim_intlist([1i64].as_slice(), true, kernel.kind()));
            }
            (Flow::Stein, Drive::Shared | Drive::Weight) => {
                let mixed = kernel.matmul(&gradients);
                gradients.copy_(&mixed);
            }
        }
    }

    /// Returns the coefficients c with Σ_j c_ij ∇_i D_ij = the second term of φ, `[L, n, n]`.
    pub fn repulsion(&self, kernel: &Kernel) -> Tensor {
        match self.flow {
            Flow::Stein => &kernel.slopes * (self.gamma / (self.particles * self.particles) as f64),
            Flow::Wasserstein => {
                let density = kernel.values.sum_dim_intlist([-1i64].as_slice(), true, Kind::Double);
                &kernel.slopes * self.gamma / density
            }
        }
    }

    pub fn rule(&self) -> Bandwidth {
        self.bandwidth.map_or(Bandwidth::Median(self.median, self.log_n), Bandwidth::Fixed)
    }
}
