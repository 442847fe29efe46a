//! The predictions of a trained run for new images, texts, and questions about images.

mod extremes;
mod images;
mod questions;
mod texts;
mod written;

pub use images::{Predicted, Wanted, predict as predict_images};
pub use questions::run as predict_questions;
pub use texts::{Asked, run as predict_texts};
