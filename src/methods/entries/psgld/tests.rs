use super::*;
use crate::methods::chain::tests::{Law, check_law};

/// Where G hardly varies, G = √(N / a), and the variance is that of Langevin dynamics with the step η G. G does vary, as the
/// running squares do, and the term Γ is left out: that widens by 3 % and 1 % here (the same recursion in numpy, 8000 chains).
#[test]
fn the_stationary_variance_is_that_of_the_recursion() {
    let dynamics = Preconditioner { decay: 0.99, eps: 1e-5 };
    check_law(&dynamics, &Law { lr: 0.02, tolerance: 0.06 }, |a| {
        1.0 / (50.0 * a) / (1.0 - 0.02 * (50.0 / a).sqrt() * a / 2.0)
    });
}

/// ```python
/// import numpy as np
/// th = np.array([1.0, -2.0]); V = np.zeros(2)
/// for t, (g, x) in enumerate([([2.0, 1.0], [.5, 1.0]), ([-1.0, 3.0], [1.0, -2.0]), ([.5, -.5], [.2, .1])], 1):
///     g = np.array(g); V = .9 * V + .1 * g * g
///     G = 1 / (1e-2 + np.sqrt(V / (1 - .9 ** t)))
///     th = th - .1 * G * (g + .5 * th) + np.sqrt(G) * np.array(x)
/// print(th.tolist())
/// ```
#[test]
fn three_steps_are_those_of_the_formula() {
    let row = |values: [f64; 2]| Tensor::from_slice(&values).view([1, 2]);
    let mut theta = row([1.0, -2.0]);
    let mut dynamics = Preconditioner { decay: 0.9, eps: 1e-2 }.build(&theta);
    for (gradients, noise) in [([2.0, 1.0], [0.5, 1.0]), ([-1.0, 3.0], [1.0, -2.0]), ([0.5, -0.5], [0.2, 0.1])] {
        let gradients = row(gradients);
        let step = Move { gradients: &gradients, noise: Some(row(noise)), rate: 0.1, weight_decay: 0.5 };
        dynamics.advance(&mut theta, step);
    }
    let expected = row([2.109669264345072, -2.2683108837120005]);
    assert!((theta - expected).abs().max().double_value(&[]) < 1e-12);
}
