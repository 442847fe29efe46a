//! Training: batches, schedule, validation, resume files. [`run()`] shows all of it; it knows no method, network or data set by
//! name.

mod average;
mod batches;
pub mod chunks;
mod context;
mod directions;
mod flipout;
mod gradient;
mod input_gradients;
mod likelihood;
mod meter;
mod mixing;
mod observers;
mod packed;
mod particles;
mod passes;
mod pieces;
mod prefix;
mod progress;
mod reading;
mod record;
mod run;
mod saver;
mod scaling;
mod schedule;
mod shared;
mod spread;
mod training;
mod validation;

pub use context::Material;
pub use gradient::Passes;
pub use likelihood::{Learner, Likelihood};
pub use packed::{PackedRun, run_packed};
pub use record::Finished;
pub use run::{Opening, open};
pub use run::{Outcome, Run, Watch, run};
pub use saver::{read_resume_file, stored_threads};
pub use schedule::rate_factors;
pub use shared::Shared;
