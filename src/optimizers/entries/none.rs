//! `[optimizer.none]`: a placeholder for methods that have their own update, or train nothing.

use anyhow::Result;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::optimizers::{Entry, Optimizer, OptimizerSpec};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "none",
    about: "no optimizer: the method has its own update, or trains nothing",
    read: |_| Box::new(Spec),
};

settings! {
    struct Spec;
}

impl OptimizerSpec for Spec {
    fn rates(&self) -> &[f64] {
        &[]
    }

    fn kept_matrices(&self) -> u64 {
        0
    }

    fn build(&self, _: &Tensor, _: Option<&Tensor>) -> Box<dyn Optimizer> {
        Box::new(Still)
    }
}

/// An optimizer that leaves theta unchanged.
struct Still;

impl Optimizer for Still {
    fn step(&mut self, _: &mut Tensor, _: &Tensor, _: f64) {}

    fn keep(&mut self, _: &mut Keeper) -> Result<()> {
        Ok(())
    }
}
