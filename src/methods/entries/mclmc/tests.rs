use super::smile::{OUTER, turn};
use super::tuning::Tuning;
use super::*;
use crate::base::golden::{Golden, near};
use crate::base::tensor_file::State;
use crate::methods::doubles::{given, parts};
use crate::methods::{Answer, Request};

/// E(θ) = Σ w² θ⁴ / 4 + θ² / 2, the second term as the prior of one image.
struct Quartic(Tensor);

impl Objective for Quartic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        let gradients = self.0.square() * theta.pow_tensor_scalar(3);
        let losses = (&gradients * theta).sum_dim_intlist([1i64].as_slice(), false, Kind::Double) / 4.0;
        Ok(Evaluation { losses, gradients }.into())
    }
}

fn spec() -> Spec {
    Spec {
        particles: 1,
        dynamics: Dynamics::Langevin,
        guard: 0.99,
        tails: 0.05,
        adaption: 0.02,
        smoothing: 0.01,
        ess: 1.0,
        temperature: 1.0,
        weight_decay: 1.0,
        fit_steps: 0,
        tune_steps: 0,
        step_size: 0.3,
        length: Some(1.7),
        energy_variance: 5e-4,
        schedule: Schedule { start: 0, every: 1 },
        samples: 3,
    }
}

#[test]
fn steps_are_those_of_blackjax() {
    let golden = Golden::of_authors("mclmc");
    let row = |name: &str| golden.tensor(&format!("dynamics/{name}")).unsqueeze(0);
    let mut theta = row("theta");
    assert_eq!((golden.number("dynamics/step_size"), golden.number("dynamics/length")), (0.3, 1.7));
    let mut method = Mclmc::new(spec(), parts(&theta));
    method.direction = row("direction");
    let draws = row("draws").squeeze_dim(0);
    let noise = given((0..6).map(|draw| draws.narrow(0, draw, 1)).collect());
    method.chains = Chains::Langevin(Langevin::new(&spec().wanted(), noise, &theta));
    let mut objective = Quartic(row("weights"));
    for step in 0..3 {
        let of = |name: &str| golden.value(&format!("dynamics/steps/{step}/{name}")).clone();
        let expected = |name: &str| golden.tensor(&format!("dynamics/steps/{step}/{name}")).unsqueeze(0);
        let Moved { error, .. } = method.advance(&mut theta, &mut objective).unwrap();
        method.steps += 1;
        near(&theta, &expected("theta"), 1e-12);
        near(&method.direction, &expected("direction"), 1e-12);
        near(&error, &Tensor::from_slice(&[of("error").as_f64().unwrap()]).view([1, 1]), 1e-12);
    }
}

#[test]
fn sizes_and_lengths_are_tuned_as_by_blackjax() {
    let golden = Golden::of_authors("mclmc");
    let (errors, sizes) = (golden.tensor("tuning/errors"), golden.tensor("tuning/sizes"));
    let positions = golden.tensor("tuning/positions");
    let start = golden.number("tuning/start");
    let spec = Spec {
        tune_steps: 8,
        step_size: start,
        length: None,
        energy_variance: golden.number("tuning/wanted"),
        ..spec()
    };
    let mut tuning = Tuning::new(&spec.wanted(), &Tensor::zeros([1, 5], tch::kind::DOUBLE_CPU));
    near(tuning.length(), &Tensor::from_slice(&[5f64.sqrt()]).view([1, 1]), 1e-15);
    for step in 0..8 {
        let position = positions.narrow(0, (step - 4).max(0), 1);
        tuning.learn(step, &position, &errors.get(step).view([1, 1]));
        near(tuning.step_size(), &sizes.get(step).view([1, 1]), 1e-12);
    }
    near(tuning.length(), &Tensor::from_slice(&[golden.number("tuning/length")]).view([1, 1]), 1e-12);
    tuning.learn(8, &positions.narrow(0, 0, 1), &errors.get(0).view([1, 1]));
    near(tuning.step_size(), &sizes.get(7).view([1, 1]), 1e-15);
    // An error of nothing asks for a step 21 times as large, and gets twice.
    let mut tuning = Tuning::new(&spec.wanted(), &Tensor::zeros([1, 5], tch::kind::DOUBLE_CPU));
    tuning.learn(0, &positions.narrow(0, 0, 1), &Tensor::zeros([1, 1], tch::kind::DOUBLE_CPU));
    near(tuning.step_size(), &Tensor::from_slice(&[2.0 * start]).view([1, 1]), 1e-15);
}

/// Chains begin by the optimizer's steps, are tuned, and a resumed run goes on alike within each phase.
#[test]
fn phases_follow_each_other_and_survive_a_file() {
    tch::manual_seed(2);
    let start = Tensor::randn([2, 6], tch::kind::DOUBLE_CPU);
    let spec = Spec {
        particles: 2,
        fit_steps: 3,
        tune_steps: 6,
        length: None,
        schedule: Schedule { start: 9, every: 2 },
        ..spec()
    };
    let mut objective = Quartic(start.narrow(0, 0, 1).copy());
    let fresh = || Mclmc::new(spec.clone(), parts(&start));
    let mut run = |method: &mut Mclmc, theta: &mut Tensor, steps: usize| {
        (0..steps).for_each(|_| drop(method.step(theta, &mut objective, 1.0).unwrap()));
    };
    let (mut whole, mut theta) = (fresh(), start.copy());
    run(&mut whole, &mut theta, 14);
    assert_eq!(whole.kept.count(), 2);
    for first in [2, 7, 11] {
        let (mut early, mut again) = (fresh(), start.copy());
        run(&mut early, &mut again, first);
        let mut state = State::default();
        state.store(|keeper| early.keep(keeper)).unwrap();
        let mut resumed = fresh();
        state.restore(|keeper| resumed.keep(keeper)).unwrap();
        run(&mut resumed, &mut again, 14 - first);
        assert!(again.equal(&theta), "after {first} steps");
        assert!(resumed.posterior(&again).theta().equal(whole.posterior(&theta).theta()));
    }
    let mut plain = start.copy();
    let mut fitted = fresh();
    run(&mut fitted, &mut plain, 1);
    let gradients = start.narrow(0, 0, 1).square() * start.pow_tensor_scalar(3);
    near(&plain, &(&start - gradients * 0.1), 1e-12);
}

/// SMILET and NOISYSMILE: the authors' steps on batches that differ, with one that is undone.
#[test]
fn steps_of_smile_are_those_of_its_authors() {
    let golden = Golden::of_authors("smile");
    let batches = golden.tensor("batches");
    for (key, dynamics) in [("smile", Dynamics::Smile), ("psmile", Dynamics::Preconditioned)] {
        let mut theta = golden.tensor("start").unsqueeze(0);
        let spec = Spec { dynamics, length: None, step_size: golden.number("step_size"), ..spec() };
        let mut method = Mclmc::new(spec, parts(&theta));
        let mut undone = 0.0;
        for step in 0..20 {
            let mut objective = Quartic(batches.narrow(0, step, 1));
            let taken = method.step(&mut theta, &mut objective, 1.0).unwrap();
            let row = |name: &str| golden.tensor(&format!("{key}/{step}/{name}")).unsqueeze(0);
            near(&theta, &row("theta"), 1e-12);
            near(&method.direction, &row("direction"), 1e-12);
            let size = golden.number(&format!("{key}/{step}/step_size"));
            let diagnostics = taken.diagnostics.unwrap();
            near(&diagnostics.get(1), &Tensor::from(size), 1e-14);
            undone += diagnostics.double_value(&[2]);
        }
        assert!(undone >= 1.0 && method.remarks().unwrap()[0].contains(&format!("{undone} of 20 steps were undone")));
    }
}

/// A resumed run of SMILE goes on alike.
#[test]
fn smile_survives_a_file() {
    tch::manual_seed(4);
    let start = Tensor::randn([2, 6], tch::kind::DOUBLE_CPU);
    let spec =
        Spec { particles: 2, dynamics: Dynamics::Preconditioned, fit_steps: 2, length: None, step_size: 0.1, ..spec() };
    let mut objective = Quartic(start.narrow(0, 0, 1).copy());
    let mut run = |method: &mut Mclmc, theta: &mut Tensor, steps: usize| {
        (0..steps).for_each(|_| drop(method.step(theta, &mut objective, 1.0).unwrap()));
    };
    let (mut whole, mut theta) = (Mclmc::new(spec.clone(), parts(&start)), start.copy());
    run(&mut whole, &mut theta, 16);
    let (mut early, mut again) = (Mclmc::new(spec.clone(), parts(&start)), start.copy());
    run(&mut early, &mut again, 13);
    let mut state = State::default();
    state.store(|keeper| early.keep(keeper)).unwrap();
    let mut resumed = Mclmc::new(spec, parts(&start));
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    run(&mut resumed, &mut again, 3);
    assert!(again.equal(&theta));
}

/// Where nothing pulls, a chain goes straight on.
#[test]
fn a_gradient_of_nothing_turns_nothing() {
    let theta = Tensor::ones([1, 4], (Kind::Float, tch::Device::Cpu));
    let mut method = Mclmc::new(spec(), parts(&theta));
    let before = method.direction.copy();
    let size = Tensor::full([1, 1], 0.3, tch::kind::DOUBLE_CPU);
    let grown = turn(&mut method.direction, &theta.zeros_like(), &size, OUTER);
    near(&method.direction, &before, 1e-6);
    near(&grown, &grown.zeros_like(), 1e-6);
}

/// The memory plan counts the matrices of the file, and the states that are kept: there are no moments where a length is given.
#[test]
fn what_is_kept_is_what_is_counted() {
    let theta = Tensor::ones([2, 7], (Kind::Float, tch::Device::Cpu));
    for (dynamics, length, tune_steps, own) in [
        (Dynamics::Langevin, None, 8, 2),
        (Dynamics::Langevin, Some(1.0), 8, 0),
        (Dynamics::Langevin, Some(1.0), 0, 0),
        (Dynamics::Smile, None, 8, 1),
        (Dynamics::Preconditioned, None, 8, 3),
    ] {
        let spec = Spec { particles: 2, dynamics, length, tune_steps, ..spec() };
        assert_eq!(spec.kept_matrices(), spec.samples as u64 + 1 + own);
        let mut state = State::default();
        state.store(|keeper| Mclmc::new(spec, parts(&theta)).keep(keeper)).unwrap();
        let matrices = state.names().iter().filter(|name| state.get(name).unwrap().size() == [2, 7]).count();
        assert_eq!(matrices as u64, 1 + own);
    }
}
