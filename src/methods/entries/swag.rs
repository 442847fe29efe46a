//! `[method.swag]`: SWAG (Maddox et al. 2019, arXiv 1902.02476; on low-rank updates: Onal et al. 2024, arXiv 2405.03425).
//! Particles are trained independently by the optimizer; from step `start` on, every `every` steps a snapshot is taken. Each
//! particle's posterior is the Gaussian of its snapshots; n > 1 is MultiSWAG.
//!
//! | symbol | here |
//! |---|---|
//! | θ̄, the mean of the snapshots | `mean` |
//! | Σ_diag, their variance, column by column | `squares` / number of snapshots |
//! | D, deviations of the last K snapshots from the running mean | `deviations` |
//! | Σ = (Σ_diag + D Dᵀ / (K − 1)) / 2 | [`Posterior::LowRankGaussians`] |
//!
//! Differs from the paper's code: the variance is updated by Welford's rule, since the difference of the second moment and the
//! squared mean cancels in f32.

use anyhow::{Result, ensure};
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::methods::sharpness::{self, Sharpness};
use crate::methods::snapshots::{Last, Schedule};
use crate::methods::{Entry, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant, spec};
use crate::posterior::{Posterior, Predictive};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "swag",
    about: "a Gaussian of low rank from snapshots along the training of each particle (SWAG, MultiSWAG)",
    paper: "SWAG, MultiSWAG, SWAG-LoRA",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[Variant { key: "swag", sets: &["start=0", "every=1"], asks_for_mixing: false }],
    names: &[("full", "SWAG"), ("low-rank", "SWAG-LoRA")],
    names_of_many: &[("full", "MultiSWAG"), ("low-rank", "MultiSWAG-LoRA")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        pub particles: i64, by spec::particles;
        pub schedule: Schedule, part Schedule::read;
        /// Number of the last snapshots whose deviations span the low-rank part of the covariance.
        pub columns: usize = 20, in 2..=10_000;
        pub samples: usize, by |reader| spec::samples(reader, 30);
        pub sharpness: Option<Sharpness>, part Sharpness::option;
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        sharpness::around(self.sharpness, parts, |parts| Swag::new(self.clone(), parts))
    }

    fn check_steps(&self, steps: usize) -> Result<()> {
        let Schedule { start, every } = self.schedule;
        let snapshots = self.schedule.snapshots(steps as i64);
        ensure!(
            snapshots >= 2,
            "method.swag: {steps} training steps give {snapshots} snapshots, and a Gaussian needs two: lower start = {start} or \
             every = {every}"
        );
        let columns = self.columns;
        ensure!(
            columns as i64 <= snapshots,
            "method.swag.columns = {columns}: {steps} training steps give {snapshots} snapshots, and there cannot be more \
             columns: lower columns, start = {start} or every = {every}"
        );
        Ok(())
    }

    fn shortened(&self, steps: usize) -> Vec<(&'static str, toml::Value)> {
        vec![("start", 0.into()), ("every", 1.into()), ("columns", (self.columns.min(steps) as i64).into())]
    }

    fn gathers_posterior(&self) -> bool {
        true
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn matrices_of_a_step(&self, _: usize) -> u64 {
        1 + sharpness::matrices(self.sharpness)
    }

    fn gradients_of_a_step(&self) -> u64 {
        sharpness::gradients(self.sharpness)
    }

    /// The mean, the squares and the deviations.
    fn kept_matrices(&self) -> u64 {
        2 + self.columns as u64
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2 + self.columns as u64
    }
}

struct Swag {
    spec: Spec,
    parts: Parts,
    steps: i64,
    /// θ̄, `[n, P]`.
    mean: Tensor,
    /// The sum of squared deviations from the mean, `[n, P]`.
    squares: Tensor,
    deviations: Last,
}

impl Swag {
    fn new(spec: Spec, parts: Parts) -> Swag {
        let (mean, squares) = (parts.theta.zeros_like(), parts.theta.zeros_like());
        let deviations = Last::new(spec.columns, &parts.theta);
        Swag { spec, parts, steps: 0, mean, squares, deviations }
    }

    /// Returns the number of snapshots so far.
    fn taken(&self) -> i64 {
        self.spec.schedule.snapshots(self.steps)
    }

    /// Takes theta `[n, P]` as the snapshot of the latest step.
    fn take(&mut self, theta: &Tensor) {
        let before = theta - &self.mean;
        self.mean += &before / self.taken() as f64;
        let after = theta - &self.mean;
        self.squares += &before * &after;
        self.deviations.push(after);
    }
}

impl Method for Swag {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let evaluation = objective.losses(theta)?;
        self.parts.apply(theta, &evaluation.gradients, objective, factor)?;
        self.steps += 1;
        if self.spec.schedule.is_due(self.steps) {
            self.take(theta);
        }
        Ok(Step { losses: evaluation.losses, diagnostics: None })
    }

    fn has_posterior(&self) -> bool {
        self.taken() >= 2
    }

    /// Before the first two snapshots, points: there is no Gaussian yet.
    fn posterior(&self, theta: &Tensor) -> Posterior {
        if !self.has_posterior() {
            return Posterior::Points { theta: theta.shallow_clone() };
        }
        let std = (&self.squares / self.taken() as f64).clamp_min(0.0).sqrt();
        Posterior::LowRankGaussians { mean: self.mean.copy(), std, deviations: self.deviations.stacked() }
    }

    fn remarks(&self) -> Result<Vec<String>> {
        let columns = self.deviations.count();
        Ok(vec![format!("swag: {} snapshots, the last {columns} of which span the low-rank part", self.taken())])
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        keeper.count("swag.steps", &mut self.steps)?;
        keeper.tensor("swag.mean", &mut self.mean)?;
        keeper.tensor("swag.squares", &mut self.squares)?;
        let taken = self.taken();
        self.deviations.keep("swag.deviation", taken, keeper)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::base::tensor_file::State;
    use crate::methods::doubles::parts;
    use crate::methods::{Answer, Evaluation, Request};

    /// Gradients that differ from step to step, each a function of the number of the step.
    struct Wander {
        step: i64,
    }

    impl Objective for Wander {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let theta = request.plain()?;
            self.step += 1;
            let places = Tensor::arange(theta.numel() as i64, (Kind::Double, Device::Cpu)).view_as(theta);
            let gradients = (places * 0.7 + self.step as f64 * 1.3).sin();
            Ok(Evaluation { losses: Tensor::zeros([theta.size()[0]], (Kind::Double, Device::Cpu)), gradients }.into())
        }
    }

    fn spec(start: i64, every: i64, columns: usize) -> Spec {
        Spec { particles: 2, schedule: Schedule { start, every }, columns, samples: 4, sharpness: None }
    }

    /// The rows of theta at the steps that are snapshots, and the method after all steps.
    fn run(spec: Spec, steps: i64) -> (Vec<Tensor>, Swag, Tensor) {
        let mut theta = Tensor::zeros([2, 3], (Kind::Double, Device::Cpu));
        let Schedule { start, every } = spec.schedule;
        let mut swag = Swag::new(spec, parts(&theta));
        let (mut objective, mut snapshots) = (Wander { step: 0 }, Vec::new());
        for step in 1..=steps {
            swag.step(&mut theta, &mut objective, 1.0).unwrap();
            if step > start && (step - start) % every == 0 {
                snapshots.push(theta.copy());
            }
        }
        (snapshots, swag, theta)
    }

    /// Mean, variance and deviations from the running mean, by their definitions.
    #[test]
    fn moments_are_those_of_the_snapshots() {
        let (snapshots, swag, theta) = run(spec(4, 3, 5), 40);
        assert_eq!(snapshots.len(), 12);
        let all = Tensor::stack(&snapshots, 0);
        let Posterior::LowRankGaussians { mean, std, deviations } = swag.posterior(&theta) else {
            panic!("no Gaussian")
        };
        let near = |a: &Tensor, b: &Tensor| near(a, b, 1e-12);
        let first = [0i64];
        near(&mean, &all.mean_dim(first.as_slice(), false, Kind::Double));
        let centred = &all - &mean;
        near(&std.square(), &centred.square().mean_dim(first.as_slice(), false, Kind::Double));
        assert_eq!(deviations.size(), [2, 5, 3]);
        for (column, last) in (7..12).enumerate() {
            let running = all.narrow(0, 0, last + 1).mean_dim(first.as_slice(), false, Kind::Double);
            near(&deviations.select(1, column as i64), &(all.get(last) - running));
        }
    }

    #[test]
    fn a_resumed_run_has_the_same_posterior() {
        let (_, whole, theta) = run(spec(2, 2, 3), 20);
        let mut state = State::default();
        let (_, mut half, mut resumed_theta) = run(spec(2, 2, 3), 11);
        state.store(|keeper| half.keep(keeper)).unwrap();
        let mut resumed = Swag::new(spec(2, 2, 3), parts(&resumed_theta));
        state.restore(|keeper| resumed.keep(keeper)).unwrap();
        let mut objective = Wander { step: 11 };
        for _ in 11..20 {
            resumed.step(&mut resumed_theta, &mut objective, 1.0).unwrap();
        }
        let tensors = |posterior: Posterior| match posterior {
            Posterior::LowRankGaussians { mean, std, deviations } => [mean, std, deviations],
            _ => panic!("no Gaussian"),
        };
        let (a, b) = (tensors(whole.posterior(&theta)), tensors(resumed.posterior(&resumed_theta)));
        a.iter().zip(&b).for_each(|(a, b)| assert!(a.equal(b)));
    }

    #[test]
    fn too_few_snapshots_are_an_error_with_the_way_out() {
        let (_, swag, theta) = run(spec(9, 1, 5), 10);
        assert!(matches!(swag.posterior(&theta), Posterior::Points { .. }));
        let error = spec(9, 1, 5).check_steps(10).unwrap_err().to_string();
        assert!(error.contains("10 training steps give 1 snapshots") && error.contains("lower start = 9"), "{error}");
        let error = spec(8, 1, 5).check_steps(10).unwrap_err().to_string();
        assert!(error.contains("method.swag.columns = 5: 10 training steps give 2 snapshots"), "{error}");
        spec(8, 1, 2).check_steps(10).unwrap();
    }

    /// `SWAG` of the authors after twelve collected models (tests/fixtures/authors/swag.json).
    #[test]
    fn moments_and_a_draw_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("swag");
        let gradients = golden.tensor("gradients").view([12, 1, 6]);
        let mut theta = golden.tensor("start").view([1, 6]);
        let spec = Spec { particles: 1, ..spec(0, 1, golden.number("columns") as usize) };
        let mut swag = Swag::new(spec, parts(&theta));
        let mut objective = Given { gradients, step: 0 };
        (0..12).for_each(|_| drop(swag.step(&mut theta, &mut objective, 1.0).unwrap()));
        let Posterior::LowRankGaussians { mean, std, deviations } = swag.posterior(&theta) else {
            panic!("no Gaussian")
        };
        near(&mean, &golden.tensor("mean").view([1, 6]), 1e-14);
        near(&std.square(), &golden.tensor("variance").view([1, 6]), 1e-14);
        near(&deviations, &golden.tensor("deviations").unsqueeze(0), 1e-14);
        // θ̄ + Σ_diag^½ ε / √2 + D ε' / √(2 (K − 1)), as in the draws of this posterior.
        let along = deviations.get(0).tr().mv(&golden.tensor("along")) / 8f64.sqrt();
        let draw = mean + std * golden.tensor("epsilon") / 2f64.sqrt() + along;
        near(&draw, &golden.tensor("draw").view([1, 6]), 1e-14);
    }

    /// Gradients `[steps, 1, P]` that do not depend on theta.
    struct Given {
        gradients: Tensor,
        step: i64,
    }

    impl Objective for Given {
        fn evaluate(&mut self, _: &Request) -> Result<Answer> {
            self.step += 1;
            let losses = Tensor::zeros([1], (Kind::Double, Device::Cpu));
            Ok(Evaluation { losses, gradients: self.gradients.get(self.step - 1) }.into())
        }
    }
}
