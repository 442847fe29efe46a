use super::*;
use crate::base::golden::{Golden, near};
use crate::methods::doubles::parts;
use crate::methods::{Answer, Evaluation, Request};
use tch::{Device, Kind};

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
    let Posterior::LowRankGaussians { mean, std, deviations } = swag.posterior(&theta) else { panic!("no Gaussian") };
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
    let (_, half, mut resumed_theta) = run(spec(2, 2, 3), 11);
    half.save(&mut state);
    let mut resumed = Swag::new(spec(2, 2, 3), parts(&resumed_theta));
    resumed.load(&state).unwrap();
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
    let Posterior::LowRankGaussians { mean, std, deviations } = swag.posterior(&theta) else { panic!("no Gaussian") };
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
