//! Sharpness-aware steps (Foret et al. 2021, arXiv 2010.01412; adaptive: Kwon et al. 2021, arXiv 2102.11600; in Bayesian
//! methods: Nguyen et al. 2023, arXiv 2302.02713).
//!
//! | symbol | here |
//! |---|---|
//! | ρ, the radius | `rho` of `[method.sam]`, `sharpness` of the methods that take the step if it is given |
//! | e = ρ g / ‖g‖ | the perturbation; with `adaptive` or `adaptive_sharpness`, e = ρ θ² g / ‖θ g‖, column by column |
//! | ∇L(θ + e) | what the method is given as the gradient at θ |
//!
//! The step is an [`Objective`] around another one, so that any method takes it without knowing. There is one norm for each
//! particle: particles do not see each other's sharpness. A step costs two gradients.

use anyhow::Result;
use serde::Serialize;
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::methods::{Answer, Evaluation, Extended, Extra, Method, Objective, Request, Step, Target};
use crate::posterior::Posterior;
use crate::schema::{Reader, Resolved, limits};

/// The key of the radius in the table of a method that takes sharpness-aware steps if it is given.
pub const KEY: &str = "sharpness";
const ADAPTIVE: &str = "adaptive_sharpness";

/// The number that keeps the perturbation finite where the gradient is 0.
const TINY: f64 = 1e-12;

/// The settings of the step.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Sharpness {
    #[serde(rename = "sharpness")]
    pub rho: f64,
    #[serde(rename = "adaptive_sharpness")]
    pub adaptive: bool,
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
        if rho.is_none() && reader.sets(ADAPTIVE) {
            reader.problem(
                ADAPTIVE,
                "belongs to sharpness-aware steps, and there are none: set sharpness, or leave it out",
            );
        }
        rho.map(|rho| Sharpness { rho, adaptive })
    }

    /// Returns the perturbation e `[n, P]` at `theta: [n, P]` with the gradients `[n, P]`.
    pub fn perturbation(self, theta: &Tensor, gradients: &Tensor) -> Tensor {
        let scale = |of: &Tensor| self.rho / (of.norm_scalaropt_dim(2.0, [1], true) + TINY);
        match self.adaptive {
            false => gradients * scale(gradients),
            true => {
                let scaled = theta * gradients;
                &scaled * theta * scale(&scaled)
            }
        }
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

/// Returns a method with sharpness-aware steps, if any are asked for.
pub fn around(sharpness: Option<Sharpness>, inner: Box<dyn Method>) -> Box<dyn Method> {
    match sharpness {
        Some(sharpness) => Box::new(Aware { sharpness, inner }),
        None => inner,
    }
}

/// A method whose gradients are those at perturbed particles.
struct Aware {
    sharpness: Sharpness,
    inner: Box<dyn Method>,
}

impl Method for Aware {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let mut perturbed = Perturbed { sharpness: self.sharpness, inner: objective };
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

    fn save(&self, state: &mut State) {
        self.inner.save(state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.inner.load(state)
    }
}

/// An objective whose losses are those at theta, and whose gradients are those at theta + e. Each part of a batch has its own
/// e, from its own gradients.
struct Perturbed<'a> {
    sharpness: Sharpness,
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
        Ok(Climbed { losses: at.losses, theta: theta + self.sharpness.perturbation(theta, &at.gradients) })
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
    use crate::methods::Parts;
    use crate::methods::doubles::{Layers, Plain, parts};
    use crate::methods::method::Independent;
    use tch::Kind;

    /// L = Σ a (θ − c)⁴ for each particle.
    struct Quartic {
        evaluations: usize,
    }

    fn rows(values: &[f64]) -> Tensor {
        Tensor::from_slice(values).view([-1, 3])
    }

    impl Objective for Quartic {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let theta = request.plain()?;
            self.evaluations += 1;
            let (a, apart) = (rows(&[1.0, 3.0, 0.5]), theta - rows(&[0.3, 0.1, -0.2]));
            let losses = (&a * apart.square().square()).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
            Ok(Evaluation { losses, gradients: &a * apart.square() * &apart * 4.0 }.into())
        }
    }

    #[test]
    fn losses_are_those_at_the_particles_and_gradients_those_nearby() {
        let theta = rows(&[1.0, -2.0, 0.5, 0.3, 0.0, -1.0]);
        for adaptive in [false, true] {
            let sharpness = Sharpness { rho: 0.05, adaptive };
            let mut quartic = Quartic { evaluations: 0 };
            let at = quartic.losses(&theta).unwrap();
            let moved = &theta + sharpness.perturbation(&theta, &at.gradients);
            let nearby = quartic.losses(&moved).unwrap().gradients;
            let sharp = Perturbed { sharpness, inner: &mut quartic }.losses(&theta).unwrap();
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
            let sharpness = Sharpness { rho: golden.number(&format!("{case}/rho")), adaptive };
            let parts = Parts { optimizer: Box::new(Plain(golden.number("lr"))), ..parts(&theta) };
            let mut method = around(Some(sharpness), Box::new(Independent { parts }));
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

        fn save(&self, _: &mut State) {}

        fn load(&mut self, _: &State) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_method_within_is_prepared() {
        let sharpness = Some(Sharpness { rho: 0.05, adaptive: false });
        let mut method = around(sharpness, Box::new(Prepared(false)));
        method.prepare(&rows(&[1.0, 2.0, 3.0]), &mut Quartic { evaluations: 0 }).unwrap();
        assert!(method.has_posterior());
    }

    #[test]
    fn a_gradient_of_zero_moves_nothing() {
        let theta = rows(&[1.0, 2.0, 3.0]);
        for adaptive in [false, true] {
            let found = Sharpness { rho: 0.05, adaptive }.perturbation(&theta, &theta.zeros_like());
            assert_eq!(found.abs().max().double_value(&[]), 0.0);
        }
    }
}
