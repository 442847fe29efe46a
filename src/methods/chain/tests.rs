use super::*;
use crate::base::keeper::Keeper;
use crate::base::tensor::host_f64;
use crate::base::tensor_file::State;
use tch::{Device, Kind};

use crate::base::golden::{Golden, near};
use crate::methods::snapshots::Schedule;
use crate::methods::{Answer, Request, doubles};
use crate::schema::settings;

/// L = Σ a θ² / 2.
struct Quadratic {
    curvature: Tensor,
}

impl Objective for Quadratic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        let losses = Tensor::zeros([theta.size()[0]], (Kind::Double, Device::Cpu));
        Ok(Evaluation { losses, gradients: theta * &self.curvature }.into())
    }
}

/// Returns the parts of a method that moves theta itself.
fn parts(theta: &Tensor) -> Parts {
    Parts { seed: 3, ..doubles::parts(theta) }
}

fn settings(lr: f64, (start, every): (i64, i64), samples: usize) -> Settings {
    Settings {
        particles: 1,
        lr,
        ess: 50.0,
        temperature: 1.0,
        weight_decay: 0.0,
        schedule: Schedule { start, every },
        cycles: None,
        samples,
        weights: Weights::Equal,
        sharpness: None,
    }
}

/// The conditions of [`check_law`].
pub struct Law {
    pub lr: f64,
    /// The largest relative error of the variance.
    pub tolerance: f64,
}

/// The curvatures at which the stationary variance is checked.
const CURVATURES: [f64; 2] = [1.0, 4.0];

/// Compares the variance of the states that a chain keeps, on quadratics with a known curvature a and N = 50, with
/// `expected(a)`.
#[track_caller]
pub fn check_law(dynamics: &dyn DynamicsSpec, law: &Law, expected: impl Fn(f64) -> f64) {
    let columns = 400;
    let curvature = Tensor::from_slice(&CURVATURES).repeat([columns]).view([1, 2 * columns]);
    // Not 0, where gradients vanish and a preconditioner has no scale.
    let mut theta = Tensor::full([1, 2 * columns], 0.2, (Kind::Double, Device::Cpu));
    let settings = settings(law.lr, (300, 10), 100);
    let mut chain = Chain::new("chain", settings, dynamics.build(&theta), &parts(&theta));
    let mut objective = Quadratic { curvature };
    for _ in 0..1300 {
        chain.step(&mut theta, &mut objective, 1.0).unwrap();
    }
    let Posterior::Bank { draws, .. } = chain.posterior(&theta) else { panic!("no bank") };
    assert_eq!(draws.size(), [100, 2 * columns]);
    let squares = draws.to_kind(Kind::Double).square().view([100, columns, 2]);
    let found = squares.mean_dim([0i64, 1].as_slice(), false, Kind::Double);
    for (place, a) in CURVATURES.into_iter().enumerate() {
        let ratio = found.double_value(&[place as i64]) / expected(a);
        assert!((ratio - 1.0).abs() < law.tolerance, "curvature {a}: {ratio}");
    }
}

settings! {
    /// Langevin dynamics without settings, for the tests of what all chains share.
    struct Plain;
}

impl DynamicsSpec for Plain {
    fn build(&self, _: &Tensor) -> Box<dyn Dynamics> {
        Box::new(Plain)
    }
}

impl Dynamics for Plain {
    fn advance(&mut self, theta: &mut Tensor, step: Move) {
        *theta -= step.gradients * step.rate;
        if let Some(noise) = step.noise {
            *theta += noise;
        }
    }

    fn keep(&mut self, _: &mut Keeper) -> Result<()> {
        Ok(())
    }
}

fn run(chain: &mut Chain, theta: &mut Tensor, steps: usize) {
    let mut objective = Quadratic { curvature: Tensor::from_slice(&[1.0f64]).view([1, 1]) };
    (0..steps).for_each(|_| drop(chain.step(theta, &mut objective, 1.0).unwrap()));
}

fn start() -> Tensor {
    Tensor::ones([2, 1], (Kind::Double, Device::Cpu))
}

fn chain(settings: Settings) -> Chain {
    Chain::new("chain", settings, Box::new(Plain), &parts(&start()))
}

#[test]
fn the_last_states_are_kept_thinned_and_survive_a_resumption() {
    let settings = settings(0.2, (3, 2), 4);
    let (mut whole, mut theta) = (chain(settings.clone()), start());
    run(&mut whole, &mut theta, 20);
    assert_eq!(whole.kept.count(), 4, "of eight states");
    let (mut first, mut resumed_theta) = (chain(settings.clone()), start());
    run(&mut first, &mut resumed_theta, 9);
    let mut state = State::default();
    state.store(|keeper| first.keep(keeper)).unwrap();
    let mut resumed = chain(settings);
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    run(&mut resumed, &mut resumed_theta, 11);
    assert!(theta.equal(&resumed_theta));
    assert!(whole.kept.stacked().equal(&resumed.kept.stacked()));
}

#[test]
fn a_thinning_that_keeps_nothing_is_an_error_with_the_way_out() {
    let spec = Spec { key: "sgld", settings: settings(0.2, (30, 2), 4), dynamics: Plain };
    let error = spec.check_steps(31).unwrap_err().to_string();
    assert_eq!(error, "method.sgld: no state would be kept in 31 training steps: lower start = 30 or every = 2");
    spec.check_steps(32).unwrap();
}

/// Equation 1 of Zhang et al. 2020: η_k = η/2 (cos(π mod(k − 1, C) / C) + 1), for k = 1, 2, and so on.
#[test]
fn cycles_explore_without_noise_then_sample_and_keep() {
    let cycles = Some(Cycles { cycle: 8, exploration: 0.5 });
    let settings = Settings { cycles, ..settings(0.2, (0, 2), 100) };
    for (done, share) in [(0, 1.0), (4, 0.5), (8, 1.0), (12, 0.5)] {
        assert!((settings.cycle_factor(done) - share).abs() < 1e-12, "{done}");
    }
    assert!((settings.cycle_factor(7) - 0.5 * (1.0 + (std::f64::consts::PI * 7.0 / 8.0).cos())).abs() < 1e-12);
    let noisy: Vec<i64> = (0..16).filter(|done| settings.samples_at(*done)).collect();
    assert_eq!(noisy, [4, 5, 6, 7, 12, 13, 14, 15]);
    let due: Vec<i64> = (1..=16).filter(|step| settings.is_due(*step)).collect();
    assert_eq!(due, [6, 8, 14, 16]);
    let late = Settings { schedule: Schedule { start: 9, every: 2 }, ..settings.clone() };
    assert_eq!((1..=16).filter(|step| late.is_due(*step)).collect::<Vec<i64>>(), [14, 16]);
    // Exploration is plain gradient descent: with equal starts, rows stay equal until the noise begins.
    let (mut chain, mut theta) = (chain(settings), start());
    run(&mut chain, &mut theta, 4);
    assert!(theta.get(0).equal(&theta.get(1)));
    run(&mut chain, &mut theta, 1);
    assert!(!theta.get(0).equal(&theta.get(1)));
}

/// 0.55 · 100 is a little more than 55 in f64, and 0.29 · 100 a little less than 29; a share of 5.01 steps begins a sixth.
#[test]
fn a_share_of_a_cycle_is_a_number_of_whole_steps() {
    for (cycle, exploration, explored) in [(100, 0.55, 55), (100, 0.29, 29), (10, 0.501, 6), (10, 0.0, 0)] {
        let settings = Settings { cycles: Some(Cycles { cycle, exploration }), ..settings(0.2, (0, 1), 1) };
        assert_eq!((0..cycle).filter(|done| !settings.samples_at(*done)).count(), explored, "{exploration}");
    }
}

/// At temperature 0 a chain is gradient descent.
#[test]
fn a_cold_chain_has_no_noise() {
    let (mut chain, mut theta) = (chain(Settings { temperature: 0.0, ..settings(0.2, (0, 1), 3) }), start());
    run(&mut chain, &mut theta, 3);
    assert!((theta - 0.8f64.powi(3)).abs().max().double_value(&[]) < 1e-12);
}

/// The states of a cycle weigh as much as the steps that led to them, also after a resumption.
#[test]
fn states_weigh_as_much_as_their_steps() {
    let cycles = Some(Cycles { cycle: 8, exploration: 0.5 });
    let settings = Settings { cycles, weights: Weights::StepSize, ..settings(0.2, (0, 1), 6) };
    let (mut whole, mut theta) = (chain(settings.clone()), start());
    run(&mut whole, &mut theta, 16);
    // The last six states are those after steps 7, 8 and 13 to 16.
    let share = |step: i32| 0.5 * (1.0 + (std::f64::consts::PI * f64::from((step - 1) % 8) / 8.0).cos());
    let shares: Vec<f64> = [7, 8, 13, 14, 15, 16].map(share).repeat(2);
    let total: f64 = shares.iter().sum();
    let Posterior::Bank { draws, weights: Some(weights) } = whole.posterior(&theta) else { panic!("no weights") };
    assert_eq!((draws.size()[0], weights.len()), (12, 12));
    assert!(weights.iter().zip(&shares).all(|(weight, share)| (weight - share / total).abs() < 1e-12), "{weights:?}");
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    let (mut first, mut resumed_theta) = (chain(settings.clone()), start());
    run(&mut first, &mut resumed_theta, 14);
    let mut state = State::default();
    state.store(|keeper| first.keep(keeper)).unwrap();
    let mut resumed = chain(settings.clone());
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    run(&mut resumed, &mut resumed_theta, 2);
    assert_eq!(resumed.posterior(&resumed_theta).weights(), Some(&weights[..]));
    let mut equal = chain(Settings { weights: Weights::Equal, ..settings });
    run(&mut equal, &mut start(), 16);
    assert_eq!(equal.posterior(&theta).weights(), None);
}

/// E[f(θ)] ≈ Σ_t η_t f(θ_t) / Σ_t η_t, worked by hand.
#[test]
fn a_mean_by_step_size_is_the_mean_over_time() {
    let weighted = |rates: &[f64], values: &[f64]| {
        let mut chain = chain(Settings { weights: Weights::StepSize, ..settings(0.2, (0, 1), 8) });
        for (rate, value) in rates.iter().zip(values) {
            chain.collect(&start().full_like(*value), *rate);
        }
        let Posterior::Bank { draws, weights: Some(weights) } = chain.posterior(&start()) else { panic!("no weights") };
        let draws = host_f64(&draws.view([-1])).unwrap();
        draws.iter().zip(&weights).map(|(draw, weight)| draw * weight).sum::<f64>()
    };
    // (0.4 * 1 + 0.1 * 5 + 0.1 * 9) / 0.6 = 3.
    assert!((weighted(&[0.4, 0.1, 0.1], &[1.0, 5.0, 9.0]) - 3.0).abs() < 1e-12);
}

/// L = mean of (x θᵀ − y)² for θ `[2, 3]`.
struct Regression {
    x: Tensor,
    y: Tensor,
}

impl Objective for Regression {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        let errors = self.x.matmul(&theta.view([2, 3]).tr()) - &self.y;
        let gradients = errors.tr().matmul(&self.x) * (2.0 / self.y.numel() as f64);
        Ok(Evaluation { losses: Tensor::zeros([1], (Kind::Double, Device::Cpu)), gradients: gradients.view([1, 6]) }
            .into())
    }
}

/// Compares two cycles of ten steps, the last two of each with noise, with those of the authors' script
/// (tests/fixtures/authors/csgmcmc.json); `sign` is that of its noise.
#[track_caller]
pub fn check_cycles(dynamics: &dyn DynamicsSpec, script: &str, sign: f64) {
    let golden = Golden::of_authors("csgmcmc");
    let tensor = |name: &str| golden.tensor(&format!("{script}/{name}"));
    let settings = Settings {
        ess: golden.number("ess"),
        temperature: golden.number("temperature"),
        weight_decay: golden.number("weight_decay"),
        cycles: Some(Cycles { cycle: 10, exploration: golden.number("exploration") }),
        ..settings(golden.number("lr"), (0, 1), 20)
    };
    let mut theta = tensor("start").view([1, 6]);
    let mut chain = Chain::new("chain", settings, dynamics.build(&theta), &parts(&theta));
    let noise = tensor("noise") * sign;
    chain.noise = doubles::given((0..20).map(|step| noise.get(step).view([1, 6])).collect());
    let (states, rates) = (tensor("states"), tensor("rates"));
    let mut objective = Regression { x: tensor("x"), y: tensor("y") };
    for step in 0..20 {
        let rate = chain.settings.lr * chain.settings.cycle_factor(step);
        assert!((rate - rates.double_value(&[step])).abs() < 1e-15, "step {step}: {rate}");
        chain.step(&mut theta, &mut objective, 1.0).unwrap();
        near(&theta, &states.get(step).view([1, 6]), 1e-13);
    }
    assert_eq!(chain.kept.count(), 4);
}
