//! The turn of a chain of constant speed: the part of an isokinetic step that changes the momentum, as blackjax computes it.

use tch::{Kind, Tensor};

/// The share of a step that its outer turns take (McLachlan).
pub const OUTER: f64 = 0.1931833275037836;

/// Returns rows over their lengths; a row of nothing stays so.
pub fn unit(rows: &Tensor) -> Tensor {
    rows / rows.norm_scalaropt_dim(2.0, [1], true).clamp_min(f64::from(f32::MIN_POSITIVE))
}

/// Turns a direction by a share of a step of the size `step_size: [n, 1]`, and returns the change of the speed's own energy, `[n, 1]`.
pub fn turn(direction: &mut Tensor, gradient: &Tensor, step_size: &Tensor, share: f64) -> Tensor {
    let more = (gradient.size()[1] - 1).max(1) as f64;
    let kind = direction.kind();
    let length = gradient.norm_scalaropt_dim(2.0, [1], true).to_kind(Kind::Double);
    // A gradient of nothing has no direction; the least length is a number in f32, too.
    let away = -gradient / length.clamp_min(f64::from(f32::MIN_POSITIVE)).to_kind(kind);
    let along = (&*direction * &away).sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
    let delta = step_size * &length * (share / more);
    let zeta = (-&delta).exp();
    let rest: Tensor = 1.0 - &zeta;
    let turned: Tensor = 1.0 + &zeta + &along * &rest;
    let by_gradient = (rest * turned).to_kind(kind);
    // 1 + u·e where u has the length 1, which it has not after a step that was undone.
    let plus = (&*direction + &away).square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double) * 0.5;
    let square = zeta.square();
    let grown = plus * (square.ones_like() - &square) + square * 2.0;
    *direction = unit(&(away * by_gradient + &*direction * (&zeta * 2.0).to_kind(kind)));
    (delta - 2f64.ln() + grown.log()) * more
}
