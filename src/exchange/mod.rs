//! Models that leave bella for other programs, and adapters that come in from them.

mod config;
mod destination;
pub mod expected;
mod folder;
mod graph;
mod head;
mod import;
pub mod incoming;
mod lora;
pub mod module;
mod modules;
mod onnx;
pub mod outgoing;
pub mod peft;
mod python;
mod rows;
mod script;
mod settings;
mod texts;
pub mod tuned;
pub mod weights;
pub mod whole;

use folder::{Written, check, write as write_folder};

pub use destination::{Destination, Format, Leaving, Models, Selection};
pub use import::Import;
pub use outgoing::Loaded;
