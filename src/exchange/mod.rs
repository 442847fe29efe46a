//! Models that leave bella for other programs, and adapters that come in from them.

mod config;
pub mod expected;
mod folder;
mod graph;
mod head;
pub mod incoming;
mod lora;
pub mod module;
mod modules;
mod onnx;
pub mod outgoing;
pub mod peft;
mod python;
mod rows;
mod samples;
mod script;
mod settings;
pub mod target;
mod tensors;
mod texts;
pub mod tuned;
pub mod weights;
pub mod whole;

pub use folder::{Written, check, write as write_folder};
pub use outgoing::Loaded;
pub use python::{lines as python_lines, whole_lines};
pub use rows::{expect_head, full_row, low_rank_config, low_rank_rows};
