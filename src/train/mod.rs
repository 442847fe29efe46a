//! Training: batches, schedule, validation, resume files. [`run()`] shows all of it; it knows no method, network or data set by
//! name.

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
mod prefix;
mod progress;
mod reading;
mod run;
mod saver;
mod scaling;
mod shared;
mod spread;
mod validation;

pub use chunks::{Opening, open};
pub use context::{Material, rate_factors};
pub use gradient::Passes;
pub use likelihood::{Learner, Likelihood};
pub use packed::{PackedRun, run_packed};
pub use prefix::has_room;
pub use progress::HAS_POSTERIOR;
pub use run::{Outcome, Run, Watch, run};
pub use saver::{Finished, read_resume_file, stored_threads};
pub use shared::Shared;
