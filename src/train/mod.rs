//! Training: batches, schedule, validation, resume files. [`run()`] shows all of it; it knows no method, network or data set by
//! name.

mod batches;
pub mod chunks;
mod context;
mod flipout;
mod gradient;
mod history;
mod likelihood;
mod material;
mod meter;
mod mixing;
mod observers;
mod opening;
mod particles;
mod passes;
mod per_image;
mod prefix;
mod reading;
mod recompute;
mod record;
mod run;
mod saver;
mod schedule;
mod selection;
mod shared;
mod validation;

pub use gradient::Passes;
pub use likelihood::{Learner, Likelihood};
pub use material::Material;
pub use opening::{Opening, open};
pub use record::Finished;
pub use run::{Outcome, Run, Watch, run};
pub use saver::{read_resume_file, stored_threads};
pub use shared::Shared;
