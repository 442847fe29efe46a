//! The names of number types.

use tch::Kind;

/// Returns the name of a number type, for people.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Float => "f32",
        Kind::Half => "f16",
        Kind::BFloat16 => "bf16",
        Kind::Double => "f64",
        _ => "another type",
    }
}
