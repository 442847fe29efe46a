//! The predictions of a trained run for new images, texts, and questions about images, and what to label next.

pub mod acquire;
mod extremes;
mod images;
mod numbers;
mod texts;
mod written;

pub use extremes::{Extremes, Offered};
pub use images::{Predicted, Wanted, predict as predict_images, predict_set};
pub use numbers::{Estimates, predict_images as predict_numbers, predict_set as predict_numbers_of_set};
pub use texts::{Asked, predict_questions, predict_texts};
