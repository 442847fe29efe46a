use super::*;
use tch::Device;

/// L = Σ a θ² / 2.
struct Quadratic {
    curvature: Tensor,
}

impl Objective for Quadratic {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        let losses = Tensor::zeros([theta.size()[0]], (Kind::Double, Device::Cpu));
        Ok(Evaluation { losses, gradients: theta * &self.curvature })
    }
}

fn spec(start: i64, every: i64, samples: usize) -> Spec {
    Spec {
        particles: 1,
        lr: 0.2,
        ess: 50.0,
        temperature: 1.0,
        weight_decay: 0.0,
        schedule: Schedule { start, every },
        samples,
    }
}

/// θ ← (1 − η a) θ + √(2 η T / N) ξ has variance T / (N a (1 − η a / 2)): the posterior's T / (N a), widened by the step.
#[test]
fn the_stationary_variance_is_that_of_the_recursion() {
    let columns = 400;
    let curvature = Tensor::from_slice(&[1.0f64, 4.0]).repeat([columns]).view([1, 2 * columns]);
    let mut theta = Tensor::zeros([1, 2 * columns], (Kind::Double, Device::Cpu));
    let mut sgld = Sgld::new(spec(60, 8, 60), 3, &theta);
    let mut objective = Quadratic { curvature };
    for _ in 0..540 {
        sgld.step(&mut theta, &mut objective, 1.0).unwrap();
    }
    let Posterior::Bank { draws } = sgld.posterior(&theta) else { panic!("no bank") };
    assert_eq!(draws.size(), [60, 2 * columns]);
    let squares = draws.to_kind(Kind::Double).square().view([60, columns, 2]);
    let found = squares.mean_dim([0i64, 1].as_slice(), false, Kind::Double);
    for (place, a) in [1.0, 4.0].into_iter().enumerate() {
        let expected = 1.0 / (50.0 * a * (1.0 - 0.2 * a / 2.0));
        let ratio = found.double_value(&[place as i64]) / expected;
        assert!((ratio - 1.0).abs() < 0.03, "curvature {a}: {ratio}");
    }
}

#[test]
fn the_last_states_are_kept_thinned_and_survive_a_resumption() {
    let steps = |sgld: &mut Sgld, theta: &mut Tensor, count: usize| {
        let mut objective = Quadratic { curvature: Tensor::from_slice(&[1.0f64]).view([1, 1]) };
        (0..count).for_each(|_| drop(sgld.step(theta, &mut objective, 1.0).unwrap()));
    };
    let start = || Tensor::ones([2, 1], (Kind::Double, Device::Cpu));
    let chain = || Sgld::new(spec(3, 2, 4), 3, &start());
    let (mut whole, mut theta) = (chain(), start());
    steps(&mut whole, &mut theta, 20);
    assert_eq!(whole.kept.count(), 4, "of eight states");
    let (mut first, mut resumed_theta) = (chain(), start());
    steps(&mut first, &mut resumed_theta, 9);
    let mut state = State::default();
    first.save(&mut state);
    let mut resumed = chain();
    resumed.load(&state).unwrap();
    steps(&mut resumed, &mut resumed_theta, 11);
    assert!(theta.equal(&resumed_theta));
    assert!(whole.kept.stacked().equal(&resumed.kept.stacked()));
}

#[test]
fn a_thinning_that_keeps_nothing_is_an_error_with_the_way_out() {
    let error = spec(30, 2, 4).check_steps(31).unwrap_err().to_string();
    assert!(error.contains("no state would be kept in 31 training steps: lower start = 30"), "{error}");
    spec(30, 2, 4).check_steps(32).unwrap();
}
