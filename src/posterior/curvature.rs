//! Gaussians fitted around trained particles (Laplace approximations): the curvature H of the loss around one particle, stored by its
//! eigenvectors, and draws from the Gaussian with precision H + τ. [`crate::laplace`] computes it from images.

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::tensor_file::State;

/// The eigenvectors of a positive semidefinite matrix. Directions that are left out have the eigenvalue 0.
#[derive(Debug)]
pub struct Factor {
    /// The orthonormal eigenvectors, `[d, k]` in f64.
    pub vectors: Tensor,
    /// The eigenvalues, `[k]`, at least 0, in f64.
    pub values: Tensor,
}

impl Factor {
    /// Returns whether no direction is left out.
    pub fn is_complete(&self) -> bool {
        self.vectors.size()[0] == self.vectors.size()[1]
    }

    pub fn size(&self) -> i64 {
        self.vectors.size()[0]
    }

    /// Returns the eigenvectors in another type.
    pub fn basis(&self, kind: Kind) -> Tensor {
        self.vectors.to_kind(kind)
    }
}

/// The Kronecker factors X and G of one map.
#[derive(Debug)]
pub struct Pair {
    pub input: Factor,
    pub gradient: Factor,
}

impl Pair {
    /// Returns the eigenvalues g_i x_j, `[kg, kx]`.
    pub fn values(&self) -> Tensor {
        self.gradient.values.outer(&self.input.values)
    }
}

/// The curvature of one particle.
#[derive(Debug)]
pub enum Curvature {
    /// Kronecker factors, one pair per map.
    Kron(Vec<Pair>),
    /// The diagonal, `[P]` in f64.
    Diag(Tensor),
    Full(Factor),
}

impl Curvature {
    /// Returns all eigenvalues except those that are 0 by construction, `[≤ P]` in f64.
    pub fn eigenvalues(&self) -> Tensor {
        match self {
            Curvature::Kron(pairs) => {
                let all: Vec<Tensor> = pairs.iter().map(|pair| pair.values().reshape([-1])).collect();
                Tensor::cat(&all, 0)
            }
            Curvature::Diag(diagonal) => diagonal.shallow_clone(),
            Curvature::Full(factor) => factor.values.shallow_clone(),
        }
    }

    /// Returns (H + τ)^(-½) ε for `epsilon: [P]`, in f64: a draw relative to the mode.
    pub fn deviation(&self, precision: f64, epsilon: &Tensor) -> Tensor {
        let epsilon = epsilon.to_kind(Kind::Double);
        let scale = |values: &Tensor| (values + precision).rsqrt();
        match self {
            Curvature::Diag(diagonal) => epsilon * scale(diagonal),
            Curvature::Full(Factor { vectors, values }) => vectors.mv(&(scale(values) * vectors.tr().mv(&epsilon))),
            Curvature::Kron(pairs) => {
                let mut start = 0;
                let part = |pair: &Pair| {
                    let (outputs, inputs) = (pair.gradient.size(), pair.input.size());
                    let own = epsilon.narrow(0, start, outputs * inputs).view([outputs, inputs]);
                    start += outputs * inputs;
                    let (g, x) = (&pair.gradient.vectors, &pair.input.vectors);
                    // A draw from the prior, corrected in the directions that have curvature.
                    let correction = scale(&pair.values()) - precision.powf(-0.5);
                    let corrected = g.matmul(&(correction * g.tr().matmul(&own).matmul(x))).matmul(&x.tr());
                    (own * precision.powf(-0.5) + corrected).reshape([-1])
                };
                Tensor::cat(&pairs.iter().map(part).collect::<Vec<_>>(), 0)
            }
        }
    }

    /// Returns `theta: [P]` with its `columns` drawn from the Gaussian around them with precision H + τ; `epsilon: [P]`
    /// is standard normal.
    pub fn draw(&self, precision: f64, columns: &Range<i64>, theta: &Tensor, epsilon: &Tensor) -> Tensor {
        let (start, length) = (columns.start, columns.end - columns.start);
        let deviation = self.deviation(precision, &epsilon.narrow(0, start, length));
        let drawn = theta.copy();
        let mut random = drawn.narrow(0, start, length);
        random += deviation.to_kind(theta.kind());
        drawn
    }

    /// Stores everything under names that start with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        let mut put = |name: &str, factor: &Factor| {
            state.put(&format!("{prefix}.{name}.vectors"), &factor.vectors);
            state.put(&format!("{prefix}.{name}.values"), &factor.values);
        };
        match self {
            Curvature::Full(factor) => put("full", factor),
            Curvature::Kron(pairs) => {
                for (map, pair) in pairs.iter().enumerate() {
                    put(&format!("{map}.input"), &pair.input);
                    put(&format!("{map}.gradient"), &pair.gradient);
                }
            }
            Curvature::Diag(diagonal) => state.put(&format!("{prefix}.diag"), diagonal),
        }
    }

    /// Reads the curvature that [`save`](Self::save) stored.
    pub fn load(prefix: &str, state: &State, device: Device) -> Result<Curvature> {
        let get = |name: &str| Ok::<_, anyhow::Error>(state.get(&format!("{prefix}.{name}"))?.to_device(device));
        let factor = |name: &str| {
            let (vectors, values) = (get(&format!("{name}.vectors"))?, get(&format!("{name}.values"))?);
            ensure!(vectors.dim() == 2 && values.size() == [vectors.size()[1]], "`{prefix}.{name}` is damaged");
            Ok(Factor { vectors, values })
        };
        if state.has(&format!("{prefix}.diag")) {
            return Ok(Curvature::Diag(get("diag")?));
        }
        if state.has(&format!("{prefix}.full.values")) {
            return Ok(Curvature::Full(factor("full")?));
        }
        let mut pairs = Vec::new();
        while state.has(&format!("{prefix}.{}.input.values", pairs.len())) {
            let map = pairs.len();
            pairs.push(Pair { input: factor(&format!("{map}.input"))?, gradient: factor(&format!("{map}.gradient"))? });
        }
        ensure!(!pairs.is_empty(), "the posterior lacks the curvature `{prefix}`");
        Ok(Curvature::Kron(pairs))
    }
}

/// The Gaussian around one particle, with precision H + τ.
#[derive(Debug)]
pub struct Approximation {
    /// The curvature H.
    pub curvature: Curvature,
    /// The prior precision τ.
    pub precision: f64,
}

impl Approximation {
    /// Returns `theta: [P]` with its random `columns` drawn around their mode; `epsilon: [P]` is standard normal.
    pub fn draw(&self, columns: &Range<i64>, theta: &Tensor, epsilon: &Tensor) -> Tensor {
        self.curvature.draw(self.precision, columns, theta, epsilon)
    }
}

/// The Gaussians around all particles.
#[derive(Debug)]
pub struct Fitted {
    /// The columns of theta that are random.
    pub columns: Range<i64>,
    pub particles: Vec<Approximation>,
}

impl Fitted {
    /// Adds everything to the tensors of a file.
    pub fn save(&self, prefix: &str, state: &mut State) {
        let precisions: Vec<f64> = self.particles.iter().map(|particle| particle.precision).collect();
        state.put(&format!("{prefix}laplace.precision"), &Tensor::from_slice(&precisions));
        state.put(&format!("{prefix}laplace.columns"), &Tensor::from_slice(&[self.columns.start, self.columns.end]));
        for (particle, approximation) in self.particles.iter().enumerate() {
            approximation.curvature.save(&format!("{prefix}laplace.{particle}"), state);
        }
    }

    /// Reads the Gaussians that [`save`](Self::save) stored around the modes `theta: [n, P]`; `None` if there is nothing.
    ///
    /// # Errors
    /// Fails if the Gaussians belong to other particles, or if tensors are damaged.
    pub fn load(prefix: &str, state: &State, theta: &Tensor, device: Device) -> Result<Option<Fitted>> {
        if !state.has(&format!("{prefix}laplace.precision")) {
            return Ok(None);
        }
        let columns = state.get(&format!("{prefix}laplace.columns"))?;
        ensure!(columns.size() == [2], "`laplace.columns` is damaged");
        let columns = columns.int64_value(&[0])..columns.int64_value(&[1]);
        let precisions = crate::base::tensor::host_f64(&state.get(&format!("{prefix}laplace.precision"))?)?;
        let (particles, parameters) = theta.size2()?;
        let fits = precisions.len() as i64 == particles && columns.start >= 0 && columns.end <= parameters;
        ensure!(fits, "the Laplace approximation is of other particles than theta");
        let one = |(particle, precision): (usize, f64)| {
            let curvature = Curvature::load(&format!("{prefix}laplace.{particle}"), state, device)?;
            Ok(Approximation { curvature, precision })
        };
        let particles = precisions.into_iter().enumerate().map(one).collect::<Result<_>>()?;
        Ok(Some(Fitted { columns, particles }))
    }
}
