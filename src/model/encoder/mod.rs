//! Text encoders (Devlin et al. 2019, arXiv 1810.04805), batched over particles. One implementation of
//! [`Network`](crate::model::network::Network) serves them all; what distinguishes them is in their
//! [family](crate::model::families::encoders).
//!
//! A sample is a text or a pair, `[2, T]` or `[3, T]`: token ids, 1 where there is a token and, where the network has several kinds of
//! tokens, 1 in the second text of a pair. The features are the outputs of a layer on the first token where the folder has one (such as
//! `tanh` of a linear layer), else the hidden state of the first token, or the mean of all tokens. ModernBERT may read the mean by its layer, too.

mod config;
mod distances;
mod folder;
mod forward;
mod outline;
mod stated;

pub use config::Geometry;
pub use folder::{Asked, Opened, is_encoder, open, parameters, settings, sizes};
pub use forward::Encoder;
pub use outline::KIND;
pub use stated::Stated;
