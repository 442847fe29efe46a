//! Inference methods move the rows of `theta` `[n, P]`. Each has one file and is registered in [`METHODS`].
//!
//! A method sees the matrix, an [`Objective`] and the distances between particles, never a model; what is fitted afterwards
//! ([`PostHoc`]) sees the model and the images.

pub mod chain;
pub mod diversity;
#[cfg(test)]
mod doubles;
mod entries;
mod method;
mod objective;
pub mod post_hoc;
pub mod sharpness;
mod snapshots;
mod spec;

pub use entries::{METHODS, ivon, register, registered, svgd};
pub use method::{Method, Parts, Step};
use objective::advised;
pub use objective::{Answer, Evaluation, Extended, Extra, FactorNoise, Objective, Output, Outputs, Request, Target};
pub use post_hoc::{Origin, Passes, PostHoc};
use spec::MAX_PARTICLES;
pub use spec::{Entry, HeadNumbers, MethodContext, MethodSpec, Particles, RowsAre, Update, Variant};
