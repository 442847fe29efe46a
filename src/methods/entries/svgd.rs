//! `[method.svgd]`: Stein variational gradient descent (Liu & Wang 2016, arXiv 1608.04471) in weight space, as Bella uses it
//! (arXiv 2407.20891, equations 2 and 4).
//!
//! | symbol | here |
//! |---|---|
//! | L_j | mean minibatch loss of particle j |
//! | k_ij | RBF kernel of the weight distance of a block ([`crate::methods::kernel`]) |
//! | γ | `gamma` |
//! | φ_i = (1/n) [ drive_i + (γ/n) Σ_j ∇_i k_ij ] | handed to the optimizer as the gradient |
//! | drive = own (eq. 4) | Σ_j k_ij ∇_i L_i |
//! | drive = shared (eq. 2) | Σ_j k_ij ∇_j L_j |
//! | drive = weight (eq. 2, on W_i = W_0 + s B_i A_i) | Φ_i = Σ_j k_ij ∂L_j/∂W_j: s Φ_i A_iᵀ for B_i, s B_iᵀ Φ_i for A_i |
//!
//! For dense columns weight is shared. For low-rank factors shared adds gradients written in other particles' bases; weight
//! adds them where they have a common one, and does not change when (B_i, A_i) becomes (B_i R, Rᵀ A_i), R orthogonal.
//!
//! Differs: equation 4 prints the kernel's gradient with the sign that attracts; here, as in equation 2 with
//! ∇ log p = −∇L, descent moves close particles apart. Textbook SVGD with scores −N ∇L_j and weight 1 is γ = n / N.

use anyhow::Result;
use serde::Serialize;
use tch::{Kind, Tensor};

use crate::base::tensor_file::State;
use crate::methods::kernel::{Bandwidth, Kernel, LogN, Median};
use crate::methods::{
    Circumstances, Entry, Evaluation, MAX_PARTICLES, Method, MethodSpec, Mixed, Objective, Parts, Step,
};
use crate::schema::{Bounds, Reader, words};
use crate::subspace::geometry::Pairs;

pub static ENTRY: Entry = Entry {
    key: "svgd",
    about: "Stein variational gradient descent: particles share gradients or keep their own, and repel",
    paper: "SVGD (base, Bella)",
    names: &[("full", "SVGD"), ("low-rank", "Bella-SVGD")],
    read: |reader, circumstances| Box::new(Spec::read(reader, circumstances)),
};

words! {
    /// Whose gradients move a particle.
    pub enum Drive {
        /// Its own, times Σ_j k_ij (equation 4).
        Own = "own",
        /// Everybody's, weighted by k_ij, column by column (equation 2).
        Shared = "shared",
        /// Everybody's, weighted by k_ij, as gradients by weights (equation 2 in weight space).
        Weight = "weight",
    }
}

words! {
    /// On which columns one kernel is computed.
    pub enum Domain {
        /// A kernel a layer.
        Layer = "layer",
        /// One kernel for all of theta.
        Global = "global",
    }
}

#[derive(Serialize, Clone, Debug)]
pub struct Spec {
    pub particles: i64,
    pub gamma: f64,
    pub drive: Drive,
    pub kernel: Domain,
    /// 2σ² where fixed; the median rule otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<f64>,
    pub median: Median,
    pub log_n: LogN,
}

impl Spec {
    fn read(reader: &Reader, circumstances: &Circumstances) -> Spec {
        // Factors of different particles have no common basis, so gradients are not mixed there (equation 4).
        let drive = if circumstances.subspace == "low-rank" { Drive::Own } else { Drive::Shared };
        let spec = Spec {
            particles: reader.count("particles", 1..=MAX_PARTICLES).about("Number of particles.").required() as i64,
            gamma: reader
                .float("gamma", Bounds::at_least(0.0))
                .about("Strength of the repulsion between particles.")
                .required(),
            drive: reader
                .choice("drive")
                .about("Gradients that move a particle; `own` is the default in `low-rank`, `shared` in `full`.")
                .or(drive),
            kernel: reader
                .choice("kernel")
                .about("One kernel for each layer, or one for all of theta.")
                .or(Domain::Layer),
            bandwidth: reader
                .float("bandwidth", Bounds::above(0.0))
                .about("Fixed 2σ² of the kernel; by default the median rule sets it.")
                .optional(),
            median: reader
                .choice("median")
                .about("Distances whose median is taken: those between different particles, or all.")
                .or(Median::OffDiagonal),
            log_n: reader.choice("log_n").about("The number whose logarithm divides the median.").or(LogN::NPlusOne),
        };
        if spec.bandwidth.is_some() && (spec.median != Median::OffDiagonal || spec.log_n != LogN::NPlusOne) {
            reader.problem("bandwidth", "is fixed, so median and log_n do nothing: leave it out, or leave those out");
        }
        spec
    }

    fn rule(&self) -> Bandwidth {
        self.bandwidth.map_or(Bandwidth::Median(self.median, self.log_n), Bandwidth::Fixed)
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Svgd { spec: self.clone(), parts })
    }

    /// With drive = weight, the mixed gradients besides the particles' own.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        if self.drive == Drive::Weight && self.particles > 1 { 2 } else { 1 }
    }

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

struct Svgd {
    spec: Spec,
    parts: Parts,
}

/// The last is of drive = weight: the cosine of a particle's drive with its own gradient.
const DIAGNOSTICS: &[&str] = &["bandwidth", "mean_kernel", "repulsion_ratio", "mean_distance", "drive_cosine"];

impl Method for Svgd {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        if self.spec.particles == 1 {
            let Evaluation { losses, gradients } = objective.evaluate(theta)?;
            self.parts.apply(theta, &gradients, factor);
            return Ok(Step { losses, diagnostics: None });
        }
        let pairs = self.parts.geometry.pairs(theta);
        let distances = self.reach(&pairs);
        let kernel = Kernel::new(&distances, self.spec.rule());
        let Driven { losses, drive, cosine } = self.drive(theta, &kernel.values, objective)?;
        let drive_norm = drive.norm();
        let repulsion_norm = self.repel(theta, &kernel.slopes, &pairs, &drive);
        let mut diagnostics = diagnose(&distances, &kernel, &drive_norm, &repulsion_norm);
        if let Some(cosine) = cosine {
            diagnostics = Tensor::cat(&[diagnostics, cosine.view([1])], 0);
        }
        self.parts.apply(theta, &drive, factor);
        Ok(Step { losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        match self.spec.drive {
            _ if self.spec.particles == 1 => &[],
            Drive::Weight => DIAGNOSTICS,
            Drive::Own | Drive::Shared => &DIAGNOSTICS[..DIAGNOSTICS.len() - 1],
        }
    }

    fn save(&self, state: &mut State) {
        self.parts.optimizer.save(state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.parts.optimizer.load(state)
    }
}

impl Svgd {
    /// D, `[L, n, n]`, or `[1, n, n]` for the global kernel.
    fn reach(&self, pairs: &Pairs) -> Tensor {
        match self.spec.kernel {
            Domain::Layer => pairs.distances.shallow_clone(),
            Domain::Global => pairs.distances.sum_dim_intlist([0i64].as_slice(), true, Kind::Double),
        }
    }

    /// The first term of φ, from the kernel `[L, n, n]` or `[1, n, n]`.
    fn drive(&self, theta: &Tensor, kernel: &Tensor, objective: &mut dyn Objective) -> Result<Driven> {
        let kernel = kernel / self.spec.particles as f64;
        let weigh = match self.spec.drive {
            Drive::Own => own,
            Drive::Shared => shared,
            Drive::Weight => {
                let matrices = kernel.expand([self.parts.geometry.blocks(), -1, -1], false);
                let Mixed { own, gradients } = objective.evaluate_mixed(theta, &matrices)?;
                let cosine = mean_cosine(&gradients, &own.gradients);
                return Ok(Driven { losses: own.losses, drive: gradients, cosine: Some(cosine) });
            }
        };
        let Evaluation { losses, gradients } = objective.evaluate(theta)?;
        let kernel = kernel.to_kind(gradients.kind());
        for (block, (start, length)) in self.parts.geometry.block_columns().into_iter().enumerate() {
            let block = if self.spec.kernel == Domain::Global { 0 } else { block as i64 };
            weigh(&kernel.get(block), gradients.narrow(1, start, length));
        }
        Ok(Driven { losses, drive: gradients, cosine: None })
    }

    /// Adds (γ/n²) Σ_j ∇_i k_ij, the second term of φ, to `sum: [n, P]`; its norm.
    fn repel(&self, theta: &Tensor, slopes: &Tensor, pairs: &Pairs, sum: &Tensor) -> Tensor {
        let Spec { gamma, particles, .. } = self.spec;
        let geometry = &self.parts.geometry;
        let coefficients = slopes * (gamma / (particles * particles) as f64);
        let coefficients = coefficients.expand([geometry.blocks(), -1, -1], false);
        geometry.add_weighted_gradients(theta, &coefficients, pairs, sum)
    }
}

/// Losses `[n]`, the first term of φ `[n, P]`, and with drive = weight its cosine with the own gradient.
struct Driven {
    losses: Tensor,
    drive: Tensor,
    cosine: Option<Tensor>,
}

/// Σ_j k_ij ∇_i L_i, written over a block's gradients.
fn own(kernel: &Tensor, mut gradients: Tensor) {
    let _ = gradients.g_mul_(&kernel.sum_dim_intlist([1i64].as_slice(), true, kernel.kind()));
}

/// Σ_j k_ij ∇_j L_j, written over a block's gradients.
fn shared(kernel: &Tensor, mut gradients: Tensor) {
    let mixed = kernel.matmul(&gradients);
    gradients.copy_(&mixed);
}

/// Mean over particles of the cosine of two `[n, P]`.
fn mean_cosine(a: &Tensor, b: &Tensor) -> Tensor {
    let sum = |t: Tensor| t.sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
    let lengths = (sum(a.square()) * sum(b.square())).sqrt().clamp_min(f64::MIN_POSITIVE);
    (sum(a * b) / lengths).mean(Kind::Double)
}

/// Means over blocks of bandwidth, off-diagonal k, ‖repulsion‖ / ‖drive‖ and off-diagonal distance, `[4]`.
fn diagnose(distances: &Tensor, kernel: &Kernel, drive_norm: &Tensor, repulsion_norm: &Tensor) -> Tensor {
    let particles = distances.size()[1] as f64;
    let blocks = distances.size()[0] as f64;
    let pairs = particles * (particles - 1.0) * blocks;
    let mean_kernel = (kernel.values.sum(Kind::Double) - particles * blocks) / pairs;
    let ratio = repulsion_norm / drive_norm.to_kind(Kind::Double).clamp_min(f64::MIN_POSITIVE);
    let mean_distance = distances.sqrt().sum(Kind::Double) / pairs;
    Tensor::stack(&[kernel.bandwidth.mean(Kind::Double), mean_kernel, ratio, mean_distance], 0)
}

#[cfg(test)]
mod tests;
