//! A first config for a user's own checkpoint and images: both are looked at, the settings of a method are fitted to the
//! number of images, and everything is written down with comments.

mod checkpoint;
mod images;
mod methods;
mod text;

pub use checkpoint::Checkpoint;
pub use images::Images;
pub use methods::{METHODS, Recipe};
pub use text::{SEED, write};
