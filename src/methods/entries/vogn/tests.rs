use super::*;
use tch::Device;

/// L_i = Σ a (θ − x_i)⁴ / 4 for two images.
struct Images;

fn row(values: [f64; 3]) -> Tensor {
    Tensor::from_slice(&values).view([1, 3])
}

impl Objective for Images {
    fn evaluate(&mut self, _: &Tensor) -> Result<Evaluation> {
        unreachable!("squares are asked for")
    }

    fn evaluate_squared(&mut self, theta: &Tensor, _: usize) -> Result<Squared> {
        let cube = |x: [f64; 3]| (theta - row(x)).pow_tensor_scalar(3.0) * row([1.0, 0.5, 2.0]);
        let (first, second) = (cube([1.0, -2.0, 0.5]), cube([0.3, 0.4, -0.2]));
        let losses = Tensor::zeros([1], (Kind::Double, Device::Cpu));
        let own = Evaluation { losses, gradients: (&first + &second) / 2.0 };
        Ok(Squared { own, squares: (first.square() + second.square()) / 2.0 })
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
    let near = |found: &Tensor, expected: [f64; 3]| {
        let difference = (found - row(expected)).abs().max().double_value(&[]);
        assert!(difference < 1e-12, "{difference:e}");
    };
    near(&theta, MEAN);
    near(&vogn.hessian, HESSIAN);
}

const MEAN: [f64; 3] = [0.2603660027813958, -0.2684900019047242, -0.11486738321098555];
const HESSIAN: [f64; 3] = [0.4552354758957183, 1.5375264206722021, 0.46756669657266203];
