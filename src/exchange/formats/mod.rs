//! The formats of an export, one file each. A new format needs its file, a `mod` line and its line in [`FORMATS`].

mod onnx;
pub mod peft;
pub mod torchscript;
mod weights;

use super::format::{Format, Leaves};

/// All formats, in the order in which they are listed.
pub static FORMATS: &[&Format] = &[&peft::FORMAT, &weights::FORMAT, &torchscript::FORMAT, &onnx::FORMAT];

/// Returns the words of the formats that `fits` holds of.
pub fn keys(fits: impl Fn(&Leaves) -> bool) -> Vec<&'static str> {
    FORMATS.iter().filter(|format| fits(&format.leaves)).map(|format| format.key).collect()
}

/// Returns the format of a word of `--to`.
pub fn format(key: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.key == key)
}
