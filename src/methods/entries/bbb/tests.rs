use super::*;
use crate::methods::{Answer, Request};

/// L = Σ a (θ − b)⁴.
struct Quartic;

fn row(values: [f64; 3]) -> Tensor {
    Tensor::from_slice(&values).view([1, 3])
}

impl Objective for Quartic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let (a, apart) = (row([1.0, 3.0, 0.5]), request.plain()? - row([0.3, 0.1, -0.2]));
        let losses = (&a * apart.square().square()).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        Ok(Evaluation { losses, gradients: &a * apart.square() * &apart * 4.0 }.into())
    }
}

fn spec() -> Spec {
    Spec {
        particles: 1,
        lr: 0.1,
        ess: 50.0,
        weight_decay: 0.02,
        temperature: 0.7,
        // softplus(−1.5)
        std_init: 0.2014132779827524,
        mc_samples: 1,
        samples: 8,
    }
}

/// ```python
/// import torch
/// from torch.distributions import Normal, kl_divergence
/// torch.set_default_dtype(torch.float64)
/// N, delta, T = 50.0, 0.02, 0.7
/// mu = torch.tensor([1.0, -2.0, 0.3], requires_grad=True)
/// rho = torch.full((3,), -1.5, requires_grad=True)
/// a = torch.tensor([1.0, 3.0, 0.5]); b = torch.tensor([0.3, 0.1, -0.2])
/// eps = [torch.tensor([0.5, -1.0, 0.25]), torch.tensor([-0.75, 0.1, 1.5])]
/// prior = Normal(0.0, 1 / (N * delta) ** 0.5)
/// print(kl_divergence(Normal(mu, torch.nn.functional.softplus(rho)), prior).sum().item())
/// o = torch.optim.Adam([mu, rho], lr=0.1)
/// for e in eps:
///     o.zero_grad()
///     sigma = torch.nn.functional.softplus(rho)
///     w = mu + sigma * e
///     ((a * (w - b) ** 4).sum() + T / N * kl_divergence(Normal(mu, sigma), prior).sum()).backward()
///     o.step()
/// print(mu.tolist(), rho.tolist())
/// ```
#[test]
fn equals_autograd_and_adam_in_torch() {
    let mut theta = row([1.0, -2.0, 0.3]);
    let noise = Noise::Given(vec![row([0.5, -1.0, 0.25]), row([-0.75, 0.1, 1.5])]);
    let mut bbb = Bbb::new(spec(), &theta, noise);
    let kl = divergence(&theta, &bbb.deviations(), 1.0).double_value(&[0]);
    assert!((kl - 5.913040080189635).abs() < 1e-9, "{kl}");
    for _ in 0..2 {
        bbb.step(&mut theta, &mut Quartic, 1.0).unwrap();
    }
    let near = |found: &Tensor, expected: [f64; 3]| {
        let difference = (found - row(expected)).abs().max().double_value(&[]);
        assert!(difference < 1e-9, "{difference:e}");
    };
    near(&theta, [0.8198703406721584, -1.803473607688516, 0.10261214093602034]);
    near(&bbb.rho, [-1.6382816966222815, -1.662483169590073, -1.6758174092462315]);
}

#[test]
fn the_divergence_of_the_prior_from_itself_is_0() {
    let kl = divergence(&row([0.0; 3]), &row([0.3; 3]), 0.3);
    assert!(kl.abs().double_value(&[0]) < 1e-12);
}
