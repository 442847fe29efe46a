use super::*;
use tch::Kind;

/// L = Σ a (θ − c)⁴ for each particle.
struct Quartic {
    evaluations: usize,
}

fn rows(values: &[f64]) -> Tensor {
    Tensor::from_slice(values).view([-1, 3])
}

impl Objective for Quartic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        self.evaluations += 1;
        let (a, apart) = (rows(&[1.0, 3.0, 0.5]), theta - rows(&[0.3, 0.1, -0.2]));
        let losses = (&a * apart.square().square()).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        Ok(Evaluation { losses, gradients: &a * apart.square() * &apart * 4.0 }.into())
    }
}

/// ```python
/// import torch
/// torch.set_default_dtype(torch.float64)
/// w = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.0, -1.0]])
/// a = torch.tensor([1.0, 3.0, 0.5]); c = torch.tensor([0.3, 0.1, -0.2])
/// def grad(w):
///     w = w.clone().requires_grad_(True)
///     ((w - c) ** 4 * a).sum().backward()
///     return w.grad
/// g = grad(w)
/// for adaptive in (False, True):
///     s = w.abs() if adaptive else torch.ones_like(w)
///     e = (w ** 2 if adaptive else 1) * g * 0.05 / ((s * g).norm(dim=1, keepdim=True) + 1e-12)
///     print((w + e).flatten().tolist(), grad(w + e).flatten().tolist())
/// ```
const TORCH: [(bool, [f64; 6], [f64; 6]); 2] = [
    (
        false,
        [1.0006172251566299, -2.0499952376870287, 0.5003086125783149, 0.3, -0.0005858972710076156, -1.0499965671259832],
        [1.3756324849834622, -119.25970750525387, 0.68690772105427, 0.0, -0.012212161223257505, -1.2282351185512388],
    ),
    (
        true,
        [1.0003086357277446, -2.099997975789248, 0.5000385794659681, 0.3, 0.0, -1.0499999999999512],
        [1.3738155783472403, -127.77564730184315, 0.6861134298812367, 0.0, -0.012, -1.2282499999997887],
    ),
];

#[test]
fn gradients_are_those_at_the_perturbed_particles() {
    let theta = rows(&[1.0, -2.0, 0.5, 0.3, 0.0, -1.0]);
    for (adaptive, moved, gradients) in TORCH {
        let sharpness = Sharpness { rho: 0.05, adaptive };
        let mut quartic = Quartic { evaluations: 0 };
        let at = quartic.losses(&theta).unwrap();
        let found = &theta + sharpness.perturbation(&theta, &at.gradients);
        assert!((found - rows(&moved)).abs().max().double_value(&[]) < 1e-12, "adaptive = {adaptive}");
        let sharp = Perturbed { sharpness, inner: &mut quartic }.losses(&theta).unwrap();
        assert!((sharp.gradients - rows(&gradients)).abs().max().double_value(&[]) < 1e-9, "adaptive = {adaptive}");
        assert!(sharp.losses.equal(&at.losses), "the losses are those at theta");
        assert_eq!(quartic.evaluations, 3, "of which two are the step's");
    }
}

#[test]
fn a_gradient_of_zero_moves_nothing() {
    let theta = rows(&[1.0, 2.0, 3.0]);
    for adaptive in [false, true] {
        let found = Sharpness { rho: 0.05, adaptive }.perturbation(&theta, &theta.zeros_like());
        assert_eq!(found.abs().max().double_value(&[]), 0.0);
    }
}
