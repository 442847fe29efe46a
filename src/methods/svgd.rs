//! `[method.svgd]`: Stein variational gradient descent (Liu & Wang 2016, arXiv 1608.04471) in weight space, as Bella uses it
//! (arXiv 2407.20891, equations 2 and 4).
//!
//! | symbol | here |
//! |---|---|
//! | L_j | mean minibatch loss of particle j |
//! | k_ij | RBF kernel of the weight distance of a block ([`super::kernel`]) |
//! | γ | `gamma` |
//! | φ_i = (1/n) [ drive_i + (γ/n) Σ_j ∇_i k_ij ] | handed to the optimizer as the gradient |
//! | drive = own (eq. 4) | Σ_j k_ij ∇_i L_i |
//! | drive = shared (eq. 2) | Σ_j k_ij ∇_j L_j |
//!
//! Differs: equation 4 prints the kernel's gradient with the sign that attracts; here, as in equation 2 with
//! ∇ log p = −∇L, descent moves close particles apart. Textbook SVGD with scores −N ∇L_j and weight 1 is γ = n / N.

use anyhow::Result;
use serde::Serialize;
use tch::{Kind, Tensor};

use super::kernel::{Bandwidth, Kernel, LogN, Median};
use super::{Circumstances, Entry, Evaluation, MAX_PARTICLES, Method, MethodSpec, Objective, Parts, Step};
use crate::config::{Bounds, Choice, Reader};
use crate::state::State;

pub static ENTRY: Entry = Entry {
    key: "svgd",
    about: "Stein variational gradient descent: particles share gradients or keep their own, and repel",
    paper: "SVGD (base, Bella)",
    read: |reader, circumstances| Box::new(Spec::read(reader, circumstances)),
};

/// Whose gradients move a particle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drive {
    /// Its own, times Σ_j k_ij (equation 4).
    Own,
    /// Everybody's, weighted by k_ij (equation 2).
    Shared,
}

impl Choice for Drive {
    const CHOICES: &'static [(&'static str, Self)] = &[("own", Self::Own), ("shared", Self::Shared)];
}

/// On which columns one kernel is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// A kernel a layer.
    Layer,
    /// One kernel for all of theta.
    Global,
}

impl Choice for Domain {
    const CHOICES: &'static [(&'static str, Self)] = &[("layer", Self::Layer), ("global", Self::Global)];
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
        Spec {
            particles: reader.count("particles", 1..=MAX_PARTICLES).required() as i64,
            gamma: reader.float("gamma", Bounds::at_least(0.0)).required(),
            drive: reader.choice("drive").or(drive),
            kernel: reader.choice("kernel").or(Domain::Layer),
            bandwidth: reader.float("bandwidth", Bounds::above(0.0)).optional(),
            median: reader.choice("median").or(Median::OffDiagonal),
            log_n: reader.choice("log_n").or(LogN::NPlusOne),
        }
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

    fn resolved(&self) -> toml::Table {
        crate::config::table(self)
    }
}

struct Svgd {
    spec: Spec,
    parts: Parts,
}

const DIAGNOSTICS: &[&str] = &["bandwidth", "mean_kernel", "repulsion_ratio", "mean_distance"];

impl Method for Svgd {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let Evaluation { losses, gradients } = objective.evaluate(theta)?;
        if self.spec.particles == 1 {
            self.parts.apply(theta, &gradients, factor);
            return Ok(Step { losses, diagnostics: None });
        }
        let distances = self.distances(theta);
        let kernel = Kernel::new(&distances, self.spec.rule());
        let mut drive = self.drive(&kernel.values, gradients);
        let repulsion = self.repulsion(theta, &kernel.slopes);
        let diagnostics = diagnose(&distances, &kernel, &drive, &repulsion);
        let _ = drive.g_add_(&repulsion);
        let _ = drive.g_div_scalar_(self.spec.particles as f64);
        self.parts.apply(theta, &drive, factor);
        Ok(Step { losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        if self.spec.particles == 1 { &[] } else { DIAGNOSTICS }
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
    fn distances(&self, theta: &Tensor) -> Tensor {
        let distances = self.parts.geometry.distances(theta);
        match self.spec.kernel {
            Domain::Layer => distances,
            Domain::Global => distances.sum_dim_intlist([0i64].as_slice(), true, Kind::Double),
        }
    }

    /// Σ_j k_ij ∇_i L_i or Σ_j k_ij ∇_j L_j, `[n, P]`, written over the gradients.
    fn drive(&self, kernel: &Tensor, gradients: Tensor) -> Tensor {
        let kernel = kernel.to_kind(gradients.kind());
        let sums = kernel.sum_dim_intlist([2i64].as_slice(), false, kernel.kind());
        for (block, (start, length)) in self.parts.geometry.block_columns().into_iter().enumerate() {
            let block = if self.spec.kernel == Domain::Global { 0 } else { block as i64 };
            let mut columns = gradients.narrow(1, start, length);
            match self.spec.drive {
                Drive::Own => drop(columns.g_mul_(&sums.get(block).unsqueeze(1))),
                Drive::Shared => {
                    let mixed = kernel.get(block).matmul(&columns);
                    columns.copy_(&mixed);
                }
            }
        }
        gradients
    }

    /// (γ/n) Σ_j ∇_i k_ij, `[n, P]`.
    fn repulsion(&self, theta: &Tensor, slopes: &Tensor) -> Tensor {
        let Spec { gamma, particles, .. } = self.spec;
        let geometry = &self.parts.geometry;
        let coefficients = (slopes * (gamma / particles as f64)).expand([geometry.blocks(), -1, -1], false);
        geometry.weighted_gradients(theta, &coefficients)
    }
}

/// Means over blocks of bandwidth, off-diagonal k, ‖repulsion‖ / ‖drive‖ and off-diagonal distance, `[4]`.
fn diagnose(distances: &Tensor, kernel: &Kernel, drive: &Tensor, repulsion: &Tensor) -> Tensor {
    let particles = distances.size()[1] as f64;
    let blocks = distances.size()[0] as f64;
    let pairs = particles * (particles - 1.0) * blocks;
    let mean_kernel = (kernel.values.sum(Kind::Double) - particles * blocks) / pairs;
    let ratio =
        repulsion.norm().to_kind(Kind::Double) / drive.norm().to_kind(Kind::Double).clamp_min(f64::MIN_POSITIVE);
    let mean_distance = distances.sqrt().sum(Kind::Double) / pairs;
    Tensor::stack(&[kernel.bandwidth.mean(Kind::Double), mean_kernel, ratio, mean_distance], 0)
}

#[cfg(test)]
mod tests;
