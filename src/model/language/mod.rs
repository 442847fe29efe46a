//! Language networks of the Llama family (Touvron et al. 2023, arXiv 2302.13971), batched over particles: Llama 2 and 3,
//! Vicuna, Mistral and Qwen 2.5. One implementation of [`Network`](crate::model::network::Network) serves them all.
//!
//! A sample is a prompt, `[T]`: its token ids, and a mask that is 1 where there is a token. Prompts may be padded on either side; the
//! network moves the padding behind the text, where causal attention never looks. The features are the hidden state
//! after the last norm at the last token of the prompt, `[p, B, d]`; the output matrix `lm_head` turns them into the
//! logits of tokens.

mod block;
pub mod config;
mod folder;
mod footprint;
pub mod forward;
mod names;
pub mod rope;
pub mod tokens;
mod writing;

pub use block::{Rows, Texts};
pub use config::{FAMILIES, Family, Geometry, family};
pub use folder::{Opened, TOKENS, described, is_language, open, parameters, placed, sizes};
pub use forward::Language;
pub use names::{published, stored_names};
pub use tokens::Tokenizer;

/// The name of the output matrix, `[vocabulary, d]`, which turns features into the logits of tokens.
pub const OUTPUT: &str = "lm_head";

/// The name of the matrix of embeddings, which is also the output matrix of a tied network.
pub const EMBEDDING: &str = "embed";
