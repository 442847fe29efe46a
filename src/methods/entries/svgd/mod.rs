//! `[method.svgd]`: Stein variational gradient descent (Liu & Wang 2016, arXiv 1608.04471) in weight space, as Bella uses it
//! (arXiv 2407.20891, equations 2 and 4).
//!
//! | symbol | here |
//! |---|---|
//! | L_j | mean minibatch loss of particle j |
//! | k_ij | RBF kernel of the weight distance of a block (`kernel.rs`) |
//! | γ | `gamma` |
//! | φ_i = (1/n) [ drive_i + (γ/n) Σ_j ∇_i k_ij ] | handed to the optimizer as the gradient |
//! | drive = own (eq. 4) | Σ_j k_ij ∇_i L_i |
//! | drive = shared (eq. 2) | Σ_j k_ij ∇_j L_j |
//! | drive = weight (eq. 2, on W_i = W_0 + s B_i A_i) | Φ_i = Σ_j k_ij ∂L_j/∂W_j: s Φ_i A_iᵀ for B_i, s B_iᵀ Φ_i for A_i |
//!
//! For dense columns, weight equals shared. For low-rank factors, shared adds gradients that are written in the bases
//! of other particles. weight adds them in a common basis, and does not change when (B_i, A_i) becomes (B_i R, Rᵀ A_i)
//! with R orthogonal.
//!
//! With `flow = "wasserstein"` the particles follow the kernelised Wasserstein gradient flow of repulsive ensembles (D'Angelo and
//! Fortuin 2021, arXiv 2106.11642): φ_i = ∇_i L_i + γ Σ_j ∇_i k_ij / Σ_j k_ij. With `space` other than weights they repel by what
//! they compute, in `outputs.rs`, or by how it changes with the images, in `input_gradients.rs`.
//!
//! One difference from the paper: equation 4 prints the gradient of the kernel with the sign that attracts. Here, as in
//! equation 2 with ∇ log p = −∇L, descent moves close particles apart. Textbook SVGD with scores −N ∇L_j and weight 1
//! is γ = n / N, and the textbook Wasserstein flow is γ = 1 / N.
//!
//! The factor 1/n on all of φ is that of equation 2. An optimizer that divides by the gradient's size, such as AdamW, does not feel
//! it; with `sgd`, the gradient of a particle that has no neighbours is its own over n.

mod input_gradients;
mod kernel;
mod outputs;
mod settings;

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::methods::sharpness;
use crate::methods::{
    Entry, Evaluation, Extended, Extra, Method, MethodSpec, Objective, Particles, Parts, Request, RowsAre, Step,
    Update, Variant, advised,
};
use crate::subspace::geometry::Pairs;
use kernel::{DIAGNOSTICS, Kernel, diagnose};
use settings::{Domain, Drive, Space, Spec};

pub static ENTRY: Entry = Entry {
    key: "svgd",
    about: "Stein variational gradient descent: particles share gradients or keep their own, and repel",
    paper: "SVGD (base, Bella)",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[
        Variant { key: "svgd", sets: &["gamma=0.01"], asks_for_mixing: false },
        Variant { key: "svgd-own", sets: &["gamma=0.01", "drive=own"], asks_for_mixing: false },
        Variant { key: "svgd-shared", sets: &["gamma=0.01", "drive=shared"], asks_for_mixing: false },
        Variant { key: "svgd-weight", sets: &["gamma=0.01", "drive=weight"], asks_for_mixing: true },
    ],
    names: &[("full", "SVGD"), ("low-rank", "Bella-SVGD")],
    names_of_many: &[],
    read: |reader, context| Box::new(Spec::read(reader, context)),
};

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        sharpness::around(self.sharpness, parts, |parts| Svgd { spec: self.clone(), parts })
    }

    fn needs_classes(&self) -> bool {
        self.space != Space::Weights
    }

    fn has_own_loss(&self) -> bool {
        matches!(self.space, Space::Logits | Space::Probabilities)
    }

    fn needs_shared_batches(&self) -> bool {
        self.space != Space::Weights
    }

    /// With drive = weight, gradients are mixed in the backward pass of all particles.
    fn passes_together(&self) -> bool {
        (self.drive == Drive::Weight || self.space == Space::InputGradients) && self.particles > 1
    }

    fn differentiates_pixels(&self) -> bool {
        self.space == Space::InputGradients && self.particles > 1
    }

    /// The gradients by pixels, and in f64 the leaf, the unit vectors, the two copies that `cdist` makes of them, their gradient and two
    /// on its way to the leaf's.
    fn copies_of_images(&self) -> u64 {
        if self.differentiates_pixels() { 1 + 2 * 7 } else { 0 }
    }

    /// The mixed gradients with drive = weight, or those of the repulsion of features or input gradients, besides the particles' own.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        let pulled = matches!(self.space, Space::Features | Space::InputGradients);
        let mixed = u64::from((self.drive == Drive::Weight || pulled) && self.particles > 1);
        1 + mixed + sharpness::matrices(self.sharpness)
    }

    /// A pass that is pulled back from features comes after the one of the losses; gradients by pixels take a pass, and what is pulled
    /// back from them twice as much again.
    fn gradients_of_a_step(&self) -> u64 {
        let more = match self.space {
            Space::Features => 1,
            Space::InputGradients => 3,
            Space::Weights | Space::Logits | Space::Probabilities => 0,
        };
        sharpness::gradients(self.sharpness) + more
    }

    fn asks_at_theta(&self) -> bool {
        self.space == Space::Weights && self.sharpness.is_none() && !self.passes_together()
    }

    fn compares_particles(&self) -> bool {
        self.space == Space::Weights
    }
}

struct Svgd {
    spec: Spec,
    parts: Parts,
}

/// The way out where gradients cannot be mixed.
const UNMIXED: &str = "set method.svgd.drive = \"own\" or \"shared\", or use [subspace.full]";

impl Method for Svgd {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        if self.spec.particles == 1 {
            let Evaluation { losses, gradients } = objective.losses(theta)?;
            self.parts.apply(theta, &gradients, objective, factor)?;
            return Ok(Step { losses, diagnostics: None });
        }
        if self.spec.space != Space::Weights {
            let outputs::Step { losses, direction, diagnostics } = match self.spec.space {
                Space::InputGradients => input_gradients::step(&self.spec, theta, objective)?,
                _ => outputs::step(&self.spec, theta, objective)?,
            };
            self.parts.apply(theta, &direction, objective, factor)?;
            return Ok(Step { losses, diagnostics: Some(diagnostics) });
        }
        let pairs = self.parts.geometry.pairs(theta);
        let distances = self.reach(&pairs);
        let kernel = Kernel::new(&distances, self.spec.rule());
        let Driven { losses, drive, cosine } = self.drive(theta, &kernel.values, objective)?;
        let drive_norm = drive.norm();
        let repulsion_norm = self.repel(theta, &self.spec.repulsion(&kernel), &pairs, &drive);
        let mut diagnostics = diagnose(&distances, &kernel, &drive_norm, &repulsion_norm);
        if let Some(cosine) = cosine {
            diagnostics = Tensor::cat(&[diagnostics, cosine.view([1])], 0);
        }
        self.parts.apply(theta, &drive, objective, factor)?;
        Ok(Step { losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        match self.spec.drive {
            _ if self.spec.particles == 1 => &[],
            Drive::Weight => DIAGNOSTICS,
            Drive::Own | Drive::Shared => &DIAGNOSTICS[..DIAGNOSTICS.len() - 1],
        }
    }

    fn warnings(&self, epochs: &[&[(String, f64)]]) -> Vec<String> {
        kernel::warnings(epochs)
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)
    }
}

impl Svgd {
    /// Returns D, `[L, n, n]`, or `[1, n, n]` for the global kernel.
    fn reach(&self, pairs: &Pairs) -> Tensor {
        match self.spec.kernel {
            Domain::Layer => pairs.distances.shallow_clone(),
            Domain::Global => pairs.distances.sum_dim_intlist([0i64].as_slice(), true, Kind::Double),
        }
    }

    /// Returns the first term of φ, from the kernel `[L, n, n]` or `[1, n, n]`.
    fn drive(&self, theta: &Tensor, kernel: &Tensor, objective: &mut dyn Objective) -> Result<Driven> {
        if self.spec.drive == Drive::Weight {
            let matrices = (kernel / self.spec.particles as f64).expand([self.parts.geometry.blocks(), -1, -1], false);
            let request = Request::losses(theta).with(Extra::Mixing(&matrices));
            let answer = objective.evaluate(&request).map_err(|error| advised(error, UNMIXED))?;
            let Extended { own, extra: drive } = answer.extended()?;
            let cosine = mean_cosine(&drive, &own.gradients);
            return Ok(Driven { losses: own.losses, drive, cosine: Some(cosine) });
        }
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        for (block, (start, length)) in self.parts.geometry.block_columns().into_iter().enumerate() {
            let block = if self.spec.kernel == Domain::Global { 0 } else { block as i64 };
            self.spec.weigh(&kernel.get(block), gradients.narrow(1, start, length));
        }
        Ok(Driven { losses, drive: gradients, cosine: None })
    }

    /// Adds the second term of φ, which has these coefficients of ∇_i D_ij, to `sum: [n, P]` and returns its norm.
    fn repel(&self, theta: &Tensor, coefficients: &Tensor, pairs: &Pairs, sum: &Tensor) -> Tensor {
        let geometry = &self.parts.geometry;
        let coefficients = coefficients.expand([geometry.blocks(), -1, -1], false);
        geometry.add_weighted_gradients(theta, &coefficients, pairs, sum)
    }
}

/// The losses `[n]`, the first term of φ `[n, P]`, and, with drive = weight, its mean cosine with the particles' own
/// gradients.
struct Driven {
    losses: Tensor,
    drive: Tensor,
    cosine: Option<Tensor>,
}

/// Returns the mean over particles of the cosine between the rows of two matrices `[n, P]`.
fn mean_cosine(a: &Tensor, b: &Tensor) -> Tensor {
    let sum = |t: Tensor| t.sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
    let lengths = (sum(a.square()) * sum(b.square())).sqrt().clamp_min(f64::MIN_POSITIVE);
    (sum(a * b) / lengths).mean(Kind::Double)
}

#[cfg(test)]
mod tests;
