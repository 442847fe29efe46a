//! LLaVA-1.5 (Liu et al. 2023, arXiv 2310.03744), batched over particles: a language network that sees an image. CLIP's
//! tower turns the image into patches, a projector of two layers turns these into embeddings, and the language network reads
//! them at the place of the image among those of the prompt.
//!
//! A sample is a prompt of T tokens, its ids and its mask, and the pixels of a square image, from 0 to 255. Each patch has a token of its own in the prompt, so T counts the patches.

mod config;
mod folder;
mod forward;
mod outline;
mod prompts;

pub use config::VisionConfig;
pub use folder::{Opened, described, is_llava, open, parameters, sizes};
pub use forward::Llava;
pub use outline::KIND;
pub use prompts::QuestionTokenizer;

/// The start of the names of the image tower's parameters.
pub const TOWER: &str = "vision.";

/// The layers of the projector.
pub const PROJECTOR: [&str; 2] = ["projector.linear_1", "projector.linear_2"];
