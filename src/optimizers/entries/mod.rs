//! The optimizers, one file each. A new optimizer is one file and its line in [`OPTIMIZERS`].

mod adahessian;
mod adamw;
mod none;
mod sgd;

use crate::optimizers::Entry;

pub use adamw::adam;

/// All registered optimizers.
pub static OPTIMIZERS: &[&Entry] = &[&adamw::ENTRY, &sgd::ENTRY, &adahessian::ENTRY, &none::ENTRY];

/// Steps that the tests of several optimizers compare with torch.
#[cfg(test)]
mod testing {
    use tch::Tensor;

    use crate::optimizers::OptimizerSpec;

    /// Returns the values of theta `[rows, 3]` after three steps on the quadratic function of `scripts/make_rate_goldens.py`, with
    /// factors of the rates of its columns.
    pub fn after_three_steps(spec: &dyn OptimizerSpec, rows: i64, factors: Option<[f64; 3]>) -> Vec<f64> {
        let mut theta = Tensor::from_slice(&[1.0f64, -2.0, 0.5]).view([1, 3]).repeat([rows, 1]);
        let factors = factors.map(|factors| Tensor::from_slice(&factors));
        let mut optimizer = spec.build(&theta, factors.as_ref());
        let (target, scale) = (Tensor::from_slice(&[0.3f64, 0.1, -0.2]), Tensor::from_slice(&[2.0f64, 6.0, 1.0]));
        for _ in 0..3 {
            let gradient = (&theta - &target) * &scale;
            optimizer.step(&mut theta, &gradient, 1.0);
        }
        Vec::<f64>::try_from(theta.view(-1)).unwrap()
    }
}
