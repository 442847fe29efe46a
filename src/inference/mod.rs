//! The predictions of a trained run for new images, texts, and questions about images.

mod extremes;
mod images;
mod questions;
mod sets;
mod texts;
mod written;

pub use extremes::Extremes;
pub use images::{Predicted, Wanted, predict as predict_images};
pub use questions::run as predict_questions;
pub use sets::run as predict_set;
pub use texts::{Asked, run as predict_texts};
