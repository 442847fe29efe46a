//! Language networks that see an image, such as LLaVA and PaliGemma, batched over particles. An image tower turns the image into
//! patches, a projector turns these into embeddings, and the language network reads them at the place of the image among those of the
//! prompt. What distinguishes them is in their [family](crate::model::families::sighted).
//!
//! A sample is a prompt of T tokens, its ids and its mask, and the pixels of a square image, from 0 to 255. Each patch has a token of
//! its own in the prompt, so T counts the patches. Where the tokens of a prompt read each other in both directions, a sample also has
//! the kinds of its tokens: 0 in the prompt, and 1 in the answer behind it.

mod config;
mod folder;
mod forward;
mod outline;
mod prompts;
mod tower;

pub use config::VisionConfig;
pub use folder::{Opened, described, is_sighted, open, parameters, sizes};
pub use forward::Sighted;
pub use outline::KIND;
pub use prompts::QuestionTokenizer;

/// The start of the names of the image tower's parameters.
pub const TOWER: &str = "vision.";
