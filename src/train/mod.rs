//! Training: batches, schedule, validation, resume files. It knows no method, network or data set by name.

mod around;
mod choice;
pub mod chunks;
mod epoch_end;
mod feed;
mod flipout;
mod followers;
mod gauge;
mod gradient;
mod history;
mod likelihood;
mod material;
mod mixing;
mod passes;
mod per_image;
pub mod prefix;
pub mod progress;
mod recompute;
mod resume;
mod run;
mod schedule;
mod shared;
mod slice;
mod tfb;
mod trainer;

pub use likelihood::Likelihood;
pub use material::Material;
pub use resume::{read_resume_file, stored_threads};
pub use run::{Finished, Outcome, Watch, plan, run};
pub use shared::Shared;
pub use slice::Passes;
