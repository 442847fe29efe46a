//! The rules of what to label next, one file each. A new rule needs its file and a line in [`RULES`].

mod batchbald;
mod core_set;
mod entropy;
mod margin;
mod mi;
mod random;

use super::Entry;

/// Every known rule.
pub static RULES: &[&Entry] =
    &[&mi::ENTRY, &entropy::ENTRY, &margin::ENTRY, &batchbald::ENTRY, &core_set::ENTRY, &random::ENTRY];
