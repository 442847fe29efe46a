use super::*;
use crate::base::golden::{self, Golden};
use crate::base::keeper::Keeper;
use crate::base::tensor_file::State;
use crate::methods::{Answer, Request};
use crate::optimizers::Optimizer;
use crate::subspace::geometry::WeightSpace;
use crate::subspace::{Layout, Shape};

/// Gradient descent with weight decay and its own state, as AdamW and SGD have.
struct Decaying;

impl Optimizer for Decaying {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        let decayed = &*theta * 1e-3;
        let _ = theta.g_sub_(&((gradient * 0.2 + decayed) * factor));
    }

    fn keep(&mut self, _: &mut Keeper) -> Result<()> {
        Ok(())
    }
}

const COLUMNS: i64 = 40;

/// L = Σ a (θ − b)² / 2 with curvature in columns 3 and 17 only.
struct Quadratic {
    curvature: Tensor,
}

impl Quadratic {
    fn new() -> Quadratic {
        let curvature = Tensor::zeros([1, COLUMNS], tch::kind::DOUBLE_CPU);
        [3, 17].iter().for_each(|column| drop(curvature.narrow(1, *column, 1).fill_(1.0)));
        Quadratic { curvature }
    }
}

impl Objective for Quadratic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let away = request.plain()? - 2.0;
        let losses = (&self.curvature * away.square()).sum_dim_intlist([1i64].as_slice(), false, Kind::Double) / 2.0;
        Ok(Evaluation { losses, gradients: away * &self.curvature }.into())
    }
}

fn start() -> Tensor {
    Tensor::full([2, COLUMNS], 0.5, tch::kind::DOUBLE_CPU)
}

fn method() -> BayesTune {
    let spec = Spec {
        particles: 2,
        search_steps: 60,
        burn_in: 30,
        lr: 0.05,
        ess: 1e4,
        temperature: 1.0,
        scale_lr: 0.01,
        scale_init: 1e-3,
        alpha: 0.01,
        beta: 100.0,
        share: 0.05,
    };
    from(spec, start())
}

fn from(spec: Spec, theta: Tensor) -> BayesTune {
    let mut layout = Layout::default();
    layout.push("weight", &[theta.size()[1]]);
    layout.close_block("weight", 0, Shape::Dense);
    let geometry = WeightSpace::new(&layout);
    let parts = Parts { theta, seed: 1, optimizer: Box::new(Decaying), geometry, clip_norm: None };
    BayesTune::new(spec, parts)
}

/// The gradient of −log p(θ, λ) − log λ with respect to log λ, by autograd of the two densities.
#[test]
fn slopes_are_those_of_the_joint_density() {
    tch::manual_seed(2);
    let (alpha, beta) = (0.3, 5.0);
    let deviations = Tensor::randn([7], tch::kind::DOUBLE_CPU);
    let log_scales = Tensor::randn([7], tch::kind::DOUBLE_CPU).set_requires_grad(true);
    let scales = log_scales.exp();
    let laplace = -(deviations.abs() / &scales) - (&scales * 2.0).log();
    let gamma = scales.log() * (alpha - 1.0) - &scales * beta;
    let potential = -(laplace + gamma + &log_scales).sum(Kind::Double);
    let expected = Tensor::run_backward(&[potential], &[&log_scales], false, false).swap_remove(0);
    let found = slopes(&deviations, &log_scales.detach(), alpha, beta);
    assert!((found - expected).abs().max().double_value(&[]) < 1e-12);
}

/// One step of the search, column by column, by its formula.
#[test]
fn a_step_of_the_search() {
    let (mut tune, mut theta, mut objective) = (method(), start(), Quadratic::new());
    tune.step(&mut theta, &mut objective, 0.5).unwrap();
    let noise = |part| Noise::new(1, Purpose::Noise).draw(At { step: 0, sample: 0, part }, &theta);
    let (of_theta, of_scales) = (noise(0), noise(1));
    for row in 0..2 {
        for column in 0..COLUMNS {
            let (rate, scale) = (0.025f64, 1e-3f64);
            let gradient = if column == 3 || column == 17 { 0.5 - 2.0 } else { 0.0 };
            let moved = -rate * gradient;
            let soft = moved.signum() * (moved.abs() - rate / (1e4 * scale)).max(0.0);
            let deviation = soft + (2.0 * rate / 1e4).sqrt() * of_theta.double_value(&[row, column]);
            let drift = (0.01 * (-deviation.abs() / scale + 0.99 + 100.0 * scale)).clamp(-1.0, 1.0);
            let log_scale = scale.ln() - drift + 0.02f64.sqrt() * of_scales.double_value(&[row, column]);
            assert!((theta.double_value(&[row, column]) - 0.5 - deviation).abs() < 1e-12);
            assert!((tune.log_scales.double_value(&[row, column]) - log_scale).abs() < 1e-12);
        }
    }
}

/// The two parameters that the loss depends on are found and tuned; no bit of another changes, whatever the optimizer does.
#[test]
fn the_parameters_that_matter_are_tuned() {
    let (mut tune, mut theta, mut objective) = (method(), start(), Quadratic::new());
    for step in 0..160 {
        assert_eq!(tune.has_posterior(), step > 60);
        tune.step(&mut theta, &mut objective, 1.0).unwrap();
    }
    for row in 0..2 {
        for column in 0..COLUMNS {
            let value = theta.double_value(&[row, column]);
            match column {
                3 | 17 => assert!((value - 2.0).abs() < 0.02, "{value}"),
                _ => assert_eq!(value, 0.5),
            }
        }
    }
    assert!(tune.remarks().unwrap()[0].contains("2 of 40"));
    let error = tune.spec.check_steps(60).unwrap_err().to_string();
    assert!(error.contains("search_steps = 60"), "{error}");
    tune.spec.check_steps(61).unwrap();
}

#[test]
fn a_run_resumed_in_either_part_goes_on_alike() {
    for stop in [20, 45, 90] {
        let (mut whole, mut theta, mut objective) = (method(), start(), Quadratic::new());
        let (mut state, mut half) = (State::default(), None);
        for step in 0..100 {
            if step == stop {
                state.store(|keeper| whole.keep(keeper)).unwrap();
                half = Some(theta.copy());
            }
            whole.step(&mut theta, &mut objective, 1.0).unwrap();
        }
        let (mut resumed, mut again) = (method(), half.unwrap());
        state.restore(|keeper| resumed.keep(keeper)).unwrap();
        for _ in stop..100 {
            resumed.step(&mut again, &mut objective, 1.0).unwrap();
        }
        assert!(again.equal(&theta), "stopped after {stop} steps");
    }
}

/// Where particles start from images (`init = "eva"`), a resumed run is built at another start; theirs is that of the file.
#[test]
fn a_resumed_run_returns_to_the_start_of_the_first() {
    let (mut first, mut theta, mut objective) = (method(), start(), Quadratic::new());
    (0..20).for_each(|_| drop(first.step(&mut theta, &mut objective, 1.0).unwrap()));
    let mut state = State::default();
    state.store(|keeper| first.keep(keeper)).unwrap();
    let mut resumed = from(first.spec.clone(), start() + 1.0);
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    (20..60).for_each(|_| drop(resumed.step(&mut theta, &mut objective, 1.0).unwrap()));
    assert!(!resumed.is_searching() && theta.equal(&start()));
}

/// The search of the authors' `run_train_step` and `Sampler` with gradient descent for their AdamW, by
/// `scripts/make_bayestune_adahessian_goldens.py`: five steps with their N = 10¹², and with a prior that pulls.
#[test]
fn steps_and_slopes_are_those_of_the_authors_code() {
    let golden = Golden::of_authors("bayestune");
    for case in ["published", "strong_prior"] {
        let spec = of_authors(&golden, case);
        let tensor = |name: &str| golden.tensor(&format!("{case}/{name}"));
        let rows = |name: &str| tensor(name).unbind(0);
        let (start, scales) = (tensor("start"), rows("scales"));
        for (step, after) in rows("after").iter().enumerate() {
            let deviations = &rows("before")[step] - &start;
            let log_scales = scales[step].log();
            // Their noise is part of a gradient, which is subtracted.
            let noise = -&rows("noise")[step];
            let found = spec.drawn(&deviations, &rows("gradients")[step], &log_scales, spec.lr, &noise);
            golden::near(&(found + &start), after, 1e-15);
            // Theirs is the slope by λ, over N; u = ln λ brings the factor λ and the term of its own density.
            let expected = &rows("slopes")[step] * &scales[step] * spec.ess - 1.0;
            let own = slopes(&deviations, &log_scales, spec.alpha, spec.beta);
            golden::near(&(own / &expected), &expected.ones_like(), 1e-12);
        }
    }
}

fn of_authors(golden: &Golden, case: &str) -> Spec {
    let number = |name: &str| golden.number(&format!("{case}/{name}"));
    Spec {
        particles: 1,
        search_steps: 5,
        burn_in: 2,
        lr: number("lr"),
        ess: number("ess"),
        temperature: number("temperature"),
        scale_lr: 0.01,
        scale_init: 1e-4,
        alpha: number("alpha"),
        beta: number("beta"),
        share: number("share"),
    }
}

/// Their choice by the mean scales, and that mean: the sample with which they begin is in it twice.
#[test]
fn the_choice_is_that_of_the_authors_code() {
    let golden = Golden::of_authors("bayestune");
    for case in ["published", "strong_prior"] {
        let tensor = |name: &str| golden.tensor(&format!("{case}/{name}")).unsqueeze(0);
        let mut theta = tensor("start");
        let mut tune = from(of_authors(&golden, case), theta.copy());
        let scales = tensor("scales").squeeze_dim(0);
        let kept = scales.narrow(0, 2, 3);
        tune.sum = kept.sum_dim_intlist([0i64].as_slice(), true, Kind::Double);
        golden::near(&((&tune.sum + kept.narrow(0, 0, 1)) / 4.0), &tensor("mean_scales"), 1e-15);
        tune.choose(&mut theta);
        golden::near(&tune.chosen, &tensor("chosen"), 0.0);
    }
}

/// A parameter that the prior pulls across its start stays there; the authors' subgradient throws it to the other side.
#[test]
fn the_prior_holds_at_the_start() {
    let spec = Spec { temperature: 0.0, ..of_authors(&Golden::of_authors("bayestune"), "strong_prior") };
    let row = |value: f64| Tensor::full([1, 1], value, tch::kind::DOUBLE_CPU);
    let (rate, scale, deviation) = (spec.lr, 1e-3f64, 0.01);
    let found = spec.drawn(&row(deviation), &row(0.0), &row(scale.ln()), rate, &row(1.0)).double_value(&[0, 0]);
    let theirs = deviation - rate * deviation.signum() / (spec.ess * scale);
    assert_eq!(found, 0.0);
    assert!(theirs < -0.03, "{theirs}");
}
