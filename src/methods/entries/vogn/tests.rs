use super::*;
use crate::base::golden::{Golden, near};
use crate::methods::Answer;
use tch::Device;

/// L_i = Σ a (θ − x_i)⁴ / 4 for two images.
struct Images;

fn row(values: [f64; 3]) -> Tensor {
    Tensor::from_slice(&values).view([1, 3])
}

/// Returns the particles of a request for squared gradients.
fn squared<'a>(request: &Request<'a>) -> Result<&'a Tensor> {
    match request.extra {
        Extra::Squares => Ok(request.theta),
        _ => Err(request.refused("squares are asked for")),
    }
}

impl Objective for Images {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = squared(request)?;
        let cube = |x: [f64; 3]| (theta - row(x)).pow_tensor_scalar(3.0) * row([1.0, 0.5, 2.0]);
        let (first, second) = (cube([1.0, -2.0, 0.5]), cube([0.3, 0.4, -0.2]));
        let losses = Tensor::zeros([1], (Kind::Double, Device::Cpu));
        let own = Evaluation { losses, gradients: (&first + &second) / 2.0 };
        Ok(Extended { own, extra: (first.square() + second.square()) / 2.0 }.into())
    }
}

/// ```python
/// import numpy as np
/// X = np.array([[1.0, -2.0, .5], [.3, .4, -.2]]); a = np.array([1.0, .5, 2.0])
/// m = np.array([.1, .2, -.3]); g = np.zeros(3); s = np.full(3, .5)
/// N, d, gam, b1, b2, lr = 100., .01, .1, .9, .95, .1
/// for t, e in enumerate([[.5, -1.0, .25], [-.75, .1, 1.5], [1.2, .4, -.6]], 1):
///     w = m + np.array(e) / np.sqrt(N * (s + d + gam))
///     gi = a * (w - X) ** 3
///     s = b2 * s + (1 - b2) * (gi ** 2).mean(0)
///     g = b1 * g + (1 - b1) * gi.mean(0)
///     m = m - lr * (g / (1 - b1 ** t) + d * m) / (s + d + gam)
/// print(m.tolist(), s.tolist())
/// ```
#[test]
fn three_steps_are_those_of_the_formula() {
    let spec = Spec {
        particles: 1,
        lr: 0.1,
        ess: 100.0,
        hess_init: 0.5,
        beta1: 0.9,
        beta2: 0.95,
        weight_decay: 0.01,
        damping: 0.1,
        mc_samples: 1,
        samples: 8,
    };
    let noise = Noise::Given(vec![row([0.5, -1.0, 0.25]), row([-0.75, 0.1, 1.5]), row([1.2, 0.4, -0.6])]);
    let mut theta = row([0.1, 0.2, -0.3]);
    let mut vogn = Vogn::new(spec, &theta, noise);
    for _ in 0..3 {
        vogn.step(&mut theta, &mut Images, 1.0).unwrap();
    }
    let near = |found: &Tensor, expected: [f64; 3]| near(found, &row(expected), 1e-12);
    near(&theta, MEAN);
    near(&vogn.hessian, HESSIAN);
}

const MEAN: [f64; 3] = [0.2603660027813958, -0.2684900019047242, -0.11486738321098555];
const HESSIAN: [f64; 3] = [0.4552354758957183, 1.5375264206722021, 0.46756669657266203];

/// Cross-entropy of a linear layer `[4, 3]`, the gradient of each image by hand.
struct Classes {
    x: Tensor,
    labels: Tensor,
}

impl Objective for Classes {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = squared(request)?;
        let truth = self.labels.to_kind(Kind::Int64).one_hot(4).to_kind(Kind::Double);
        let errors = self.x.matmul(&theta.view([4, 3]).tr()).softmax(-1, Kind::Double) - truth;
        let gradients = errors.unsqueeze(2) * self.x.unsqueeze(1);
        let mean = |each: Tensor| each.mean_dim([0i64].as_slice(), false, Kind::Double).view([1, 12]);
        let losses = Tensor::zeros([1], (Kind::Double, Device::Cpu));
        Ok(Extended { extra: mean(gradients.square()), own: Evaluation { losses, gradients: mean(gradients) } }.into())
    }
}

/// Runs the steps of `case` in tests/fixtures/authors/vogn.json and returns theta and the deviations after each.
fn authors(golden: &Golden, case: &str, beta1: f64) -> Vec<(Tensor, Tensor)> {
    let spec = Spec {
        particles: 1,
        lr: golden.number("lr"),
        ess: golden.number("ess"),
        // Their damping and their share of the prior enter the running mean from 0 on, and the precision starts as a whole.
        hess_init: golden.number("precision") - golden.number("weight_decay"),
        beta1,
        beta2: 1.0 - golden.number("decay"),
        weight_decay: golden.number("weight_decay"),
        damping: golden.number("damping"),
        mc_samples: 1,
        samples: 8,
    };
    let tensor = |name: &str| golden.tensor(&format!("{case}/{name}"));
    let noise = tensor("noise");
    let given = (0..noise.size()[0]).map(|step| noise.get(step).view([1, 12])).collect();
    let mut theta = tensor("start").view([1, 12]);
    let mut vogn = Vogn::new(spec, &theta, Noise::Given(given));
    let mut objective = Classes { x: tensor("x"), labels: tensor("labels") };
    let steps = 0..noise.size()[0];
    steps
        .map(|_| {
            vogn.step(&mut theta, &mut objective, 1.0).unwrap();
            (theta.copy(), vogn.deviations())
        })
        .collect()
}

#[test]
fn steps_without_momentum_are_those_of_the_authors_code() {
    let golden = Golden::of_authors("vogn");
    let (means, stds) = (golden.tensor("plain/means").view([5, 1, 12]), golden.tensor("plain/stds").view([5, 1, 12]));
    for (step, (mean, std)) in authors(&golden, "plain", 0.0).into_iter().enumerate() {
        near(&mean, &means.get(step as i64), 1e-13);
        near(&std, &stds.get(step as i64), 1e-13);
    }
}

/// Theirs starts the running mean of gradients, the prior's among them, at 0 without a correction: its first step is a tenth.
#[test]
fn momentum_is_corrected_where_the_authors_code_does_not() {
    let golden = Golden::of_authors("vogn");
    let (start, mean) = (golden.tensor("running_mean/start"), golden.tensor("running_mean/means/0"));
    let decay = golden.number("gradient_decay");
    let (own, _) = authors(&golden, "running_mean", 1.0 - decay).remove(0);
    let start = start.view([1, 12]);
    near(&(own - &start), &((mean.view([1, 12]) - &start) / decay), 1e-13);
}
