//! Models that leave bella for other programs, and adapters that come in from them.

mod beside;
mod classifying;
mod compressed;
mod config;
mod destination;
pub mod expected;
mod folder;
mod folder_config;
pub mod format;
pub mod formats;
mod found;
pub mod graph;
mod import;
pub mod incoming;
mod lora;
pub mod module;
mod modules;
pub mod outgoing;
mod python;
pub mod rows;
mod settings;
mod shards;
mod texts;
pub mod whole;

use folder::{Written, check, write as write_folder};

pub use destination::{Destination, Models, Selection};
pub use import::Import;
