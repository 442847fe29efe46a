//! The operations of a forward pass. A network writes its pass once, over [`Ops`], and an interpreter says what an operation does:
//! [`Eager`] computes it with libtorch, [`Writer`] adds it to a graph that other programs run, [`Counter`] counts what it
//! costs and what a backward pass keeps of it, and [`Tangents`] computes it with its derivatives along moves of the weights.
//!
//! A value has the axes `[p, B, …]`: particles, with p = 1 until they differ, then samples. Each operation lets values of one
//! particle meet those of n. Activations are `[p, B, T, d]`, the heads of attention `[p, B, heads, T, D]`. B alone may be unknown;
//! [`Ops::length`] tells every other length.
//!
//! | kind | operations |
//! |---|---|
//! | weights by name | [`linear`](Ops::linear), [`layer`](Ops::layer), [`norm`](Ops::norm), [`rms_norm`](Ops::rms_norm), [`embedding`](Ops::embedding), [`param`](Ops::param), [`picked`](Ops::picked) |
//! | values that follow from a shape | [`constant`](Ops::constant) |
//! | elements | [`add`](Ops::add), [`mul`](Ops::mul), [`activation`](Ops::activation), [`cast`](Ops::cast), [`normalised`](Ops::normalised) |
//! | places | [`slice`](Ops::slice), [`concat`](Ops::concat), [`reshape`](Ops::reshape), [`permute`](Ops::permute), [`mean`](Ops::mean) |
//! | attention | [`heads`](Ops::heads), [`rotated`](Ops::rotated), [`attend`](Ops::attend), [`attention`](Ops::attention), [`relative`](Ops::relative) |
//! | texts | [`aligned`](Ops::aligned), [`numbered`](Ops::numbered), [`column`](Ops::column), [`latest`](Ops::latest), [`last`](Ops::last), [`at`](Ops::at), [`rows_at`](Ops::rows_at), [`filled`](Ops::filled) |
//!
//! Operations consume what a pass does not read again, so that its memory is free for the next one.

pub mod counter;
pub mod dual;
mod eager;
mod forward;
pub mod graph;
mod operations;
mod writer;

pub use counter::{Adaptation, Count, Counted, Counter, Work};
pub use dual::{Dual, Tangents};
pub use eager::Eager;
pub use forward::{Forward, Kept, Reads, Written};
pub use operations::{Activation, Constant, Layer, Mask, Ops, Pairs, RmsNormed, Scoring};
pub use writer::{Writer, origin};
