use super::*;
use crate::base::tensor::host_f64;
use crate::base::tensor_file::State;
use crate::methods::doubles::given;
use crate::methods::{Answer, Request};

/// A quadratic with the gradient a ∘ (θ − b).
struct Quadratic;

fn row(values: [f64; 4]) -> Tensor {
    Tensor::from_slice(&values).view([1, 4])
}

impl Objective for Quadratic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let gradients = (request.plain()? - row([1.0, -2.0, 0.5, 0.0])) * row([1.0, 4.0, 0.5, 2.0]);
        Ok(Evaluation { losses: Tensor::zeros([1], (Kind::Double, request.theta.device())), gradients }.into())
    }
}

fn spec() -> Spec {
    Spec {
        particles: 1,
        lr: vec![0.1],
        ess: 100.0,
        hess_init: 1.0,
        beta1: 0.9,
        beta2: 0.999,
        weight_decay: 1e-4,
        clip_radius: None,
        rescale_lr: true,
        tune_hess_init: false,
        debias: true,
        estimator: Estimator::Price,
        mc_samples: 1,
        samples: 8,
    }
}

/// Returns the mean, the Hessian and the momentum after some steps.
fn run(spec: Spec, steps: usize) -> [Tensor; 3] {
    let noise = given(vec![row([0.5, -1.0, 0.25, 2.0]), row([-0.75, 0.1, 1.5, -0.3]), row([1.2, 0.4, -0.6, 0.9])]);
    let mut theta = row([0.1, 0.2, -0.3, 0.4]);
    let mut ivon = Ivon::new(spec, &theta, noise);
    for _ in 0..steps {
        ivon.step(&mut theta, &mut Quadratic, 1.0).unwrap();
    }
    [theta, ivon.hessian, ivon.momentum]
}

#[track_caller]
fn near(found: &Tensor, expected: [f64; 4]) {
    let difference = (found - row(expected)).abs().max().double_value(&[]);
    assert!(difference < 1e-9, "{difference:e}");
}

// The traces are those of ivon-opt 0.1.3 on the quadratic and the noise above (scripts/make_ivon_goldens.py).
#[test]
fn trace_a_defaults() {
    let [mean, hessian, _] = run(spec(), 1);
    near(&mean, [0.185446641792, -0.714423186746, -0.261170573013, 0.282726137679]);
    near(&hessian, [0.994763556059, 0.918608112859, 0.998033137894, 1.02326529193]);
    let [mean, hessian, momentum] = run(spec(), 3);
    near(&mean, [0.350478286936, -1.99111225527, -0.190001487054, 0.128660451981]);
    near(&hessian, [0.992182387176, 0.931008025645, 0.993831998293, 1.02497161946]);
    near(&momentum, [-0.209680804388, 1.38707457094, -0.0982187081969, 0.200754030008]);
}

#[test]
fn trace_b_clipped_without_rescaling_or_weight_decay() {
    let spec = Spec {
        lr: vec![0.03],
        ess: 1e6,
        hess_init: 3e-4,
        beta2: 0.99999,
        weight_decay: 0.0,
        clip_radius: Some(1e-3),
        rescale_lr: false,
        ..spec()
    };
    let [mean, hessian, _] = run(spec, 3);
    near(&mean, [0.10009, 0.19991, -0.29991, 0.39991]);
    near(&hessian, [0.000225903906784, 0.00551199934002, 0.000247504650525, 0.00105387786271]);
}

#[test]
fn trace_c_two_samples_a_step() {
    let spec = Spec { hess_init: 0.5, beta2: 0.99, weight_decay: 2e-4, mc_samples: 2, ..spec() };
    let [mean, hessian, _] = run(spec, 3);
    near(&mean, [0.357074098177, -2.49980116888, -0.189519133157, 0.18088830291]);
    near(&hessian, [0.460626853596, 0.375177820132, 0.467331276198, 0.713031452642]);
}

#[test]
fn trace_d_squared_gradients() {
    let [mean, hessian, _] = run(Spec { estimator: Estimator::Gradsq, ..spec() }, 3);
    near(&mean, [0.320343196558, 0.13641363121, -0.193070319887, 0.16128365206]);
    near(&hessian, [1.19503890053, 49.438137452, 1.03710335174, 1.21814135525]);
}

#[test]
fn trace_e_without_debiasing() {
    let [mean, hessian, momentum] = run(Spec { debias: false, ..spec() }, 3);
    near(&mean, [0.149177110728, -0.298372352794, -0.278980223369, 0.34595061038]);
    near(&hessian, [0.991013290084, 0.955823286787, 0.99375979488, 1.027435270954]);
    near(&momentum, [-0.231271222678, 2.234005805387, -0.102935049559, 0.253699341385]);
}

#[test]
fn trace_f_squared_gradients_of_two_samples() {
    let [mean, hessian, _] = run(Spec { estimator: Estimator::Gradsq, mc_samples: 2, ..spec() }, 3);
    near(&mean, [0.323305387012, 0.140068102843, -0.194721853821, 0.175310450486]);
    near(&hessian, [1.194481001827, 52.406480104355, 1.037211058984, 1.208696285372]);
}

/// The same quadratic in two parts, a quarter and three quarters of the batch.
struct Halves;

impl Objective for Halves {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let whole = Quadratic.evaluate(request)?.evaluation()?;
        let share = request.part.map_or(1.0, |part| self.share(part));
        Ok(Evaluation { losses: whole.losses * share, gradients: whole.gradients * share }.into())
    }

    fn parts(&self) -> usize {
        2
    }

    fn share(&self, part: usize) -> f64 {
        [0.25, 0.75][part]
    }
}

#[test]
fn every_part_of_a_batch_has_noise_of_its_own() {
    let theta = row([0.1, 0.2, -0.3, 0.4]);
    let ivon = Ivon::new(spec(), &theta, Noise::new(7, Purpose::Noise));
    let deviations = ivon.deviations();
    let averages = ivon.sample(&theta, &deviations, &mut Halves).unwrap();
    let noises = [0, 1].map(|part| ivon.noise.draw(At { step: 0, sample: 0, part }, &theta) * &deviations);
    assert!(!noises[0].equal(&noises[1]));
    let gradient = |noise: &Tensor| Quadratic.losses(&(&theta + noise)).unwrap().gradients;
    let gradients = noises.each_ref().map(gradient);
    let mean = &gradients[0] * 0.25 + &gradients[1] * 0.75;
    let product = &gradients[0] * &noises[0] * 0.25 + &gradients[1] * &noises[1] * 0.75;
    assert!((averages.gradient - mean).abs().max().double_value(&[]) < 1e-12);
    assert!((averages.product - product).abs().max().double_value(&[]) < 1e-12);
}

#[test]
fn a_failing_objective_leaves_the_mean_untouched() {
    struct Failing;
    impl Objective for Failing {
        fn evaluate(&mut self, _: &Request) -> Result<Answer> {
            anyhow::bail!("no gradient today")
        }
    }
    let mut theta = row([0.1, 0.2, -0.3, 0.4]);
    let mut ivon = Ivon::new(spec(), &theta, Noise::new(7, Purpose::Noise));
    assert!(ivon.step(&mut theta, &mut Failing, 1.0).is_err());
    assert!(theta.equal(&row([0.1, 0.2, -0.3, 0.4])));
}

#[test]
fn state_survives_and_training_goes_on_the_same() {
    let start = row([0.1, 0.2, -0.3, 0.4]);
    let fresh = || Ivon::new(spec(), &start, Noise::new(7, Purpose::Noise));
    let (mut whole, mut theta) = (fresh(), start.copy());
    (0..5).for_each(|_| drop(whole.step(&mut theta, &mut Quadratic, 1.0).unwrap()));
    let (mut first, mut resumed) = (fresh(), start.copy());
    (0..3).for_each(|_| drop(first.step(&mut resumed, &mut Quadratic, 1.0).unwrap()));
    let mut state = State::default();
    state.store(|keeper| first.keep(keeper)).unwrap();
    let mut second = fresh();
    state.restore(|keeper| second.keep(keeper)).unwrap();
    (0..2).for_each(|_| drop(second.step(&mut resumed, &mut Quadratic, 1.0).unwrap()));
    assert!(theta.equal(&resumed));
}

#[test]
fn a_hessian_that_never_moved_is_remarked() {
    let theta = row([0.1, 0.2, -0.3, 0.4]);
    let remarks = Ivon::new(spec(), &theta, Noise::new(7, Purpose::Noise)).remarks().unwrap();
    assert!(remarks.iter().any(|remark| remark.contains("says little: lower method.ivon.hess_init")), "{remarks:?}");
}

/// L = ½ Σ a θ² with a different scale for each particle: noise with σ² = 1 / (λ (h + δ)) raises it by ½ σ² Σ a on average.
struct Bowl {
    curvature: Tensor,
}

impl Objective for Bowl {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        let gradients = theta * &self.curvature;
        let losses = (&gradients * theta).sum_dim_intlist([1i64].as_slice(), false, Kind::Double) * 0.5 + 1.0;
        Ok(Evaluation { losses, gradients }.into())
    }
}

#[test]
fn a_tuned_start_is_the_smallest_at_which_draws_hardly_change_the_loss() {
    let options = (Kind::Double, tch::Device::Cpu);
    let curvature = Tensor::from_slice(&[0.7, 70.0]).view([2, 1]);
    let theta = Tensor::zeros([2, 4000], options);
    let mut bowl = Bowl { curvature };
    let spec = Spec { tune_hess_init: true, particles: 2, ..spec() };
    let fresh = || Ivon::new(spec.clone(), &theta, Noise::new(3, Purpose::Noise));
    let mut ivon = fresh();
    ivon.prepare(&theta, &mut bowl).unwrap();
    // ½ · 4000 a / (100 h) ≤ 0.02 asks for h ≥ 1000 a, and of powers of two 1024 and 131072.
    let start = host_f64(&ivon.start).unwrap();
    assert!((start[0] / 1024.0 - 1.0).abs() < 1e-12 && (start[1] / 131_072.0 - 1.0).abs() < 1e-12, "{start:?}");
    assert_eq!(ivon.hessian.get(1).get(7).double_value(&[]), start[1]);
    // `hess_init`, which is refused beside `tune_hess_init`, is no advice.
    assert!(ivon.remarks().unwrap().iter().any(|remark| remark.contains("says little: raise method.ivon.lr")));
    assert!((ivon.rates.get(0).double_value(&[0]) - 0.1 * 1024.0001).abs() < 1e-9);
    let mut state = State::default();
    state.store(|keeper| ivon.keep(keeper)).unwrap();
    let mut resumed = fresh();
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    assert!(resumed.start.equal(&ivon.start) && resumed.rates.equal(&ivon.rates));
    let steep = Bowl { curvature: Tensor::from_slice(&[1.0, 1e12]).view([2, 1]) };
    let error = fresh().prepare(&theta, &mut { steep }).unwrap_err().to_string();
    assert!(error.contains("method.ivon.tune_hess_init") && error.contains("raise method.ivon.ess = 100"), "{error}");
}

/// L = 2 + 3 exp(−Σ θ²): noise around 0 lowers it, to 2 at worst.
struct Peak;

impl Objective for Peak {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        let losses = (-theta.square().sum_dim_intlist([1i64].as_slice(), false, Kind::Double)).exp() * 3.0 + 2.0;
        Ok(Evaluation { losses, gradients: theta.zeros_like() }.into())
    }
}

#[test]
fn noise_that_lowers_the_loss_of_a_network_that_is_surely_wrong_is_noise() {
    let theta = Tensor::zeros([1, 4000], (Kind::Double, tch::Device::Cpu));
    let mut ivon = Ivon::new(Spec { tune_hess_init: true, ..spec() }, &theta, Noise::new(3, Purpose::Noise));
    ivon.prepare(&theta, &mut Peak).unwrap();
    // 3 (1 − exp(−4000 / (100 h))) ≤ 0.1 asks for h ≥ 1180, and of powers of two 2048.
    assert!((ivon.start.double_value(&[0, 0]) / 2048.0 - 1.0).abs() < 1e-12, "{}", ivon.start);
}
