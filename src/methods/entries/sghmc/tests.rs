use super::*;
use crate::methods::chain::tests::{Law, check_cycles, check_law};
use tch::{Device, Kind};

/// v ← (1 − α) v − η a θ + s ξ, θ ← θ + v is an autoregression of order 2 with coefficients 2 − α − η a and −(1 − α), whose
/// variance for s² = 2 α η T / N is T / (N a) / (1 − η a / (2 (2 − α))).
#[test]
fn the_stationary_variance_is_that_of_the_recursion() {
    check_law(&Friction { friction: 0.3 }, &Law { lr: 0.1, tolerance: 0.03 }, |a| {
        1.0 / (50.0 * a) / (1.0 - 0.1 * a / (2.0 * (2.0 - 0.3)))
    });
}

/// Two steps by hand: α = 0.25, η = 0.1, δ = 0.5.
#[test]
fn two_steps_are_those_of_the_formula() {
    let row = |values: [f64; 2]| Tensor::from_slice(&values).view([1, 2]);
    let mut theta = row([1.0, -2.0]);
    let mut dynamics = Friction { friction: 0.25 }.build(&theta);
    for (gradients, noise) in [([2.0, 1.0], [0.5, 1.0]), ([-1.0, 3.0], [1.0, -2.0])] {
        let gradients = row(gradients);
        dynamics
            .advance(&mut theta, Move { gradients: &gradients, noise: Some(row(noise)), rate: 0.1, weight_decay: 0.5 });
    }
    // v = -0.1 (2 + 0.5) + 0.5 · 0.5 = 0, then 0.75 · 0 - 0.1 (-1 + 0.5) + 0.5 · 1 = 0.55: θ = 1 + 0 + 0.55.
    // v = -0.1 (1 - 1) + 0.5 · 1 = 0.5, then 0.375 - 0.1 (3 - 0.75) - 0.5 · 2 = -0.85: θ = -2 + 0.5 - 0.85.
    let expected = row([1.55, -2.35]);
    assert!((theta - expected).abs().max().double_value(&[]) < 1e-12);
}

#[test]
fn full_friction_is_langevin_dynamics() {
    let mut theta = Tensor::ones([2, 3], (Kind::Double, Device::Cpu));
    let gradients = theta.full_like(0.7);
    let mut dynamics = Friction { friction: 1.0 }.build(&theta);
    for step in 0..3 {
        let before = theta.copy();
        let noise = theta.full_like(0.1 * f64::from(step));
        let expected = &before * (1.0 - 0.2 * 0.3) - &gradients * 0.2 + &noise;
        dynamics.advance(&mut theta, Move { gradients: &gradients, noise: Some(noise), rate: 0.2, weight_decay: 0.3 });
        assert!((&theta - expected).abs().max().double_value(&[]) < 1e-12);
    }
}

#[test]
fn cycles_are_those_of_the_authors_code() {
    check_cycles(&Friction { friction: 0.9 }, "sghmc", 1.0);
}
