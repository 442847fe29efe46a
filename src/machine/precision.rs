//! The type of numbers in which a network computes.

use crate::schema::words;

words! {
    /// The type in which forward and backward passes run. Master weights, kernels and the optimizer's state are f32.
    pub enum Precision {
        F32 = "f32",
        /// Double precision, to check formulas; slow.
        F64 = "f64",
        Bf16 = "bf16",
        /// bf16 where this machine computes it natively.
        Auto = "auto",
    }
}
