//! Sharpness-aware steps (Foret et al. 2021, arXiv 2010.01412; adaptive: Kwon et al. 2021, arXiv 2102.11600; in Bayesian
//! methods: Nguyen et al. 2023, arXiv 2302.02713).
//!
//! | symbol | here |
//! |---|---|
//! | ρ, the radius | `rho` of `[method.sam]`, `sharpness` of the methods that take the step if it is given |
//! | e = ρ g / ‖g‖ | the perturbation; with `adaptive` or `adaptive_sharpness`, e = ρ θ² g / ‖θ g‖, column by column |
//! | ∇L(θ + e) | the gradient that the method gets as that at θ |
//! | ‖·‖ | the norm over all columns of a particle; with `sharpness_norm = "tensor"` over those of each parameter by itself |
//!
//! The step is an [`Objective`] around another one, so that any method takes it without knowing. No norm goes over several
//! particles: they do not see each other's sharpness. A step costs two gradients.
//!
//! Norms of single parameters are those of FHBI's code (Truong et al. 2025, arXiv 2410.04196; tranquyenbk173/FHVI), which takes SVGD's step
//! with these gradients and the kernel at θ.

use std::ops::Range;

use anyhow::Result;
use serde::Serialize;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::methods::{Answer, Evaluation, Extended, Extra, Method, Objective, Parts, Request, Step, Target};
use crate::posterior::Posterior;
use crate::schema::{Reader, Resolved, limits, words};

/// The key of the radius in the table of a method that takes sharpness-aware steps if it is given.
pub const KEY: &str = "sharpness";
const ADAPTIVE: &str = "adaptive_sharpness";
const NORM: &str = "sharpness_norm";

/// The number that keeps the perturbation finite where the gradient is 0.
const TINY: f64 = 1e-12;

words! {
    /// The columns whose gradients share a norm.
    pub enum Norm {
        /// All of a particle.
        Particle = "particle",
        /// The columns of one parameter; the factors of a low-rank update are two parameters.
        Tensor = "tensor",
    }
}

impl Norm {
    /// Returns whether it is the norm of configs that do not name one, whose runs have ids without it.
    fn is_usual(&self) -> bool {
        *self == Norm::Particle
    }
}

/// The settings of the step.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Sharpness {
    #[serde(rename = "sharpness")]
    pub rho: f64,
    #[serde(rename = "adaptive_sharpness")]
    pub adaptive: bool,
    #[serde(rename = "sharpness_norm", skip_serializing_if = "Norm::is_usual")]
    pub norm: Norm,
}

impl Resolved for Sharpness {
    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

impl Sharpness {
    /// Reads the settings of a method that takes the step if its radius is given.
    pub fn option(reader: &Reader) -> Option<Sharpness> {
        let rho = reader
            .float(KEY, limits::above(0.0))
            .about("Radius of sharpness-aware steps, for example 0.05; without it there are none.")
            .optional();
        let adaptive = reader
            .boolean(ADAPTIVE)
            .about("Whether sharpness-aware steps are scaled by each parameter's size.")
            .or(false);
        let norm = reader
            .choice(NORM)
            .about(
                "Parameters that share the norm of a sharpness-aware step: all of a particle, or those of each tensor.",
            )
            .or(Norm::Particle);
        for key in [ADAPTIVE, NORM].into_iter().filter(|key| rho.is_none() && reader.sets(key)) {
            reader.problem(key, "belongs to sharpness-aware steps, and there are none: set sharpness, or leave it out");
        }
        rho.map(|rho| Sharpness { rho, adaptive, norm })
    }

    /// Returns the perturbation e `[n, P]` at `theta: [n, P]` with the gradients `[n, P]`. `tensors` are the columns of each parameter.
    pub fn perturbation(self, theta: &Tensor, gradients: &Tensor, tensors: &[Range<i64>]) -> Tensor {
        let (measured, moved) = match self.adaptive {
            false => (gradients.shallow_clone(), gradients.copy()),
            true => {
                let scaled = theta * gradients;
                let moved = &scaled * theta;
                (scaled, moved)
            }
        };
        let scale = |columns: &Range<i64>| {
            let of = |matrix: &Tensor| matrix.narrow(1, columns.start, columns.end - columns.start);
            let norm = of(&measured).norm_scalaropt_dim(2.0, [1], true);
            let _ = of(&moved).g_mul_(&(self.rho / (norm + TINY)));
        };
        match self.norm {
            Norm::Particle => scale(&(0..theta.size()[1])),
            Norm::Tensor => tensors.iter().for_each(scale),
        }
        moved
    }
}

/// Returns the number of matrices `[n, P]` that sharpness-aware steps take besides a method's own.
pub fn matrices(sharpness: Option<Sharpness>) -> u64 {
    // The first gradients and the perturbed particles.
    if sharpness.is_some() { 2 } else { 0 }
}

/// Returns the number of gradients that a step takes.
pub fn gradients(sharpness: Option<Sharpness>) -> u64 {
    if sharpness.is_some() { 2 } else { 1 }
}

/// Builds a method from its parts, with sharpness-aware steps if any are asked for.
pub fn around<M: Method + 'static>(
    sharpness: Option<Sharpness>,
    parts: Parts,
    build: impl FnOnce(Parts) -> M,
) -> Box<dyn Method> {
    match sharpness {
        Some(sharpness) => {
            let tensors = parts.geometry.tensors().to_vec();
            Box::new(Aware { sharpness, tensors, inner: Box::new(build(parts)) })
        }
        None => Box::new(build(parts)),
    }
}

/// A method whose gradients are those at perturbed particles.
struct Aware {
    sharpness: Sharpness,
    /// The columns of each parameter.
    tensors: Vec<Range<i64>>,
    inner: Box<dyn Method>,
}

impl Method for Aware {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let mut perturbed = Perturbed { sharpness: self.sharpness, tensors: &self.tensors, inner: objective };
        self.inner.step(theta, &mut perturbed, factor)
    }

    /// The method prepares itself by the losses at theta.
    fn prepare(&mut self, theta: &Tensor, objective: &mut dyn Objective) -> Result<()> {
        self.inner.prepare(theta, objective)
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        self.inner.diagnostics()
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        self.inner.posterior(theta)
    }

    fn has_posterior(&self) -> bool {
        self.inner.has_posterior()
    }

    fn warnings(&self, epochs: &[&[(String, f64)]]) -> Vec<String> {
        self.inner.warnings(epochs)
    }

    fn remarks(&self) -> Result<Vec<String>> {
        self.inner.remarks()
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.inner.keep(keeper)
    }
}

/// An objective whose losses are those at theta, and whose gradients are those at theta + e. Each part of a batch has its own
/// e, from its own gradients.
struct Perturbed<'a> {
    sharpness: Sharpness,
    tensors: &'a [Range<i64>],
    inner: &'a mut dyn Objective,
}

/// The losses at theta, and the perturbed particles.
struct Climbed {
    losses: Tensor,
    theta: Tensor,
}

impl Perturbed<'_> {
    /// Perturbs the particles of a request.
    fn climb(&mut self, request: &Request) -> Result<Climbed> {
        let Request { theta, .. } = *request;
        let at = self.inner.evaluate(&Request { extra: Extra::None, ..*request })?.evaluation()?;
        Ok(Climbed {
            losses: at.losses,
            theta: theta + self.sharpness.perturbation(theta, &at.gradients, self.tensors),
        })
    }
}

impl Objective for Perturbed<'_> {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let (Target::Losses, Extra::None | Extra::Squares | Extra::Mixing(_)) = (request.target, request.extra) else {
            return Err(request.refused("sharpness-aware steps take the gradients of losses at theta"));
        };
        let Climbed { losses, theta: moved } = self.climb(request)?;
        Ok(match self.inner.evaluate(&Request { theta: &moved, ..*request })? {
            Answer::Losses(found) => Evaluation { losses, ..found }.into(),
            Answer::Extended(found) => Extended { own: Evaluation { losses, ..found.own }, ..found }.into(),
            other => other,
        })
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }

    fn share(&self, part: usize) -> f64 {
        self.inner.share(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::methods::doubles::{Layers, Plain, Quartic, parts};
    use crate::methods::method::Independent;

    fn rows(values: &[f64]) -> Tensor {
        Tensor::from_slice(values).view([-1, 3])
    }

    fn quartic() -> Quartic {
        Quartic { a: rows(&[1.0, 3.0, 0.5]), c: rows(&[0.3, 0.1, -0.2]), evaluations: 0 }
    }

    #[test]
    fn losses_are_those_at_the_particles_and_gradients_those_nearby() {
        let theta = rows(&[1.0, -2.0, 0.5, 0.3, 0.0, -1.0]);
        for adaptive in [false, true] {
            let sharpness = Sharpness { rho: 0.05, adaptive, norm: Norm::Particle };
            let mut quartic = quartic();
            let at = quartic.losses(&theta).unwrap();
            let moved = &theta + sharpness.perturbation(&theta, &at.gradients, &[]);
            let nearby = quartic.losses(&moved).unwrap().gradients;
            let sharp = Perturbed { sharpness, tensors: &[], inner: &mut quartic }.losses(&theta).unwrap();
            assert!(sharp.gradients.equal(&nearby) && !nearby.equal(&at.gradients), "adaptive = {adaptive}");
            assert!(sharp.losses.equal(&at.losses), "the losses are those at theta");
            assert_eq!(quartic.evaluations, 4, "of which two are the step's");
        }
    }

    /// `SAM` of the authors around plain descent (tests/fixtures/authors/sam.json), for each particle by itself.
    #[test]
    fn steps_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("sam");
        let mut layers = Layers::of(&golden);
        for (case, adaptive) in [("plain", false), ("adaptive", true)] {
            let (mut theta, after) = (golden.tensor("start"), golden.tensor(&format!("{case}/after")));
            let rho = golden.number(&format!("{case}/rho"));
            let sharpness = Sharpness { rho, adaptive, norm: Norm::Particle };
            let parts = Parts { optimizer: Box::new(Plain(golden.number("lr"))), ..parts(&theta) };
            let mut method = around(Some(sharpness), parts, |parts| Independent { parts });
            for step in 0..4 {
                method.step(&mut theta, &mut layers, 1.0).unwrap();
                near(&theta, &after.get(step), 1e-13);
            }
        }
    }

    /// A method that asks for a loss before its first step.
    struct Prepared(bool);

    impl Method for Prepared {
        fn step(&mut self, _: &mut Tensor, _: &mut dyn Objective, _: f64) -> Result<Step> {
            anyhow::bail!("it takes no step")
        }

        fn prepare(&mut self, theta: &Tensor, objective: &mut dyn Objective) -> Result<()> {
            self.0 = objective.losses(theta).is_ok();
            Ok(())
        }

        fn has_posterior(&self) -> bool {
            self.0
        }

        fn keep(&mut self, _: &mut Keeper) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_method_within_is_prepared() {
        let (sharpness, theta) =
            (Some(Sharpness { rho: 0.05, adaptive: false, norm: Norm::Particle }), rows(&[1.0, 2.0, 3.0]));
        let mut method = around(sharpness, parts(&theta), |_| Prepared(false));
        method.prepare(&theta, &mut quartic()).unwrap();
        assert!(method.has_posterior());
    }

    #[test]
    fn a_gradient_of_zero_moves_nothing() {
        let theta = rows(&[1.0, 2.0, 3.0]);
        for adaptive in [false, true] {
            for norm in [Norm::Particle, Norm::Tensor] {
                let sharpness = Sharpness { rho: 0.05, adaptive, norm };
                let found = sharpness.perturbation(&theta, &theta.zeros_like(), &[0..2, 2..3]);
                assert_eq!(found.abs().max().double_value(&[]), 0.0);
            }
        }
    }
}
