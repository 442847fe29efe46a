//! Dense decoders such as Llama (Touvron et al. 2023, arXiv 2302.13971), batched over particles. One implementation of
//! [`Network`](crate::model::network::Network) serves them all; what distinguishes them is in their
//! [family](crate::model::families::decoders).
//!
//! A sample is a prompt, `[T]`: its token ids, and a mask that is 1 where there is a token. Prompts may be padded on either side; the
//! network moves the padding behind the text, where causal attention never looks. The features are the hidden state
//! after the last norm at the last token of the prompt, `[p, B, d]`; the output matrix `lm_head` turns them into the
//! logits of tokens.

mod block;
pub mod config;
mod folder;
pub mod forward;
mod outline;
mod positions;
pub mod rope;
pub mod tokens;

pub use crate::model::families::{EMBEDDING, OUTPUT};
pub use crate::model::network::Rows;
pub use block::{Pass, Places, Texts};
pub use config::{Geometry, OutputMatrix};
pub use folder::{
    Opened, Sorted, Stored, TOKENS, check_shape, described, is_language, largest_kind, open, parameters, placed,
    settings, sizes, sorted,
};
pub use forward::Language;
pub use outline::{KIND, published_sizes, write_made};
pub use tokens::Tokenizer;
