//! Networks that write texts: what they read of a prompt, what they keep of it, and the next token.

use tch::{Kind, Tensor};

use super::ops::{Count, Counter};
use super::weights::Weights;
use crate::data::Fields;

/// A network that reads a text token by token and says which token comes next.
pub trait Autoregressive {
    /// Returns the most tokens of a text.
    fn context(&self) -> i64;

    /// Returns the most tokens of a prompt.
    fn longest_prompt(&self) -> i64;

    /// Reads prepared prompts `[p, B, …]`, and keeps room for `more` tokens.
    fn read(&self, weights: &Weights, prompts: &Fields, more: i64) -> Prompted;

    /// Reads one more token of each text, `[p, B]`, and returns the features there, `[p', B, d]`.
    fn append(&self, weights: &Weights, memory: &mut Memory, tokens: &Tensor) -> Tensor;

    /// Counts one more token of a text that then has so many, up to its features.
    fn count_append(&self, counter: &Counter, tokens: i64) -> Count;

    /// Returns the logits of all tokens, `[p', B, V]`, from features `[p, B, d]`.
    fn token_logits(&self, weights: &Weights, features: &Tensor) -> Tensor;

    /// Returns the bytes that are kept for one text of `tokens` tokens, for one member.
    fn kept_bytes(&self, tokens: i64, kind: Kind) -> u64;
}

/// Prompts that a network has read.
pub struct Prompted {
    /// The features at their last tokens, `[p', B, d]`.
    pub features: Tensor,
    pub memory: Memory,
}

/// The keys and values that a network keeps of the texts that it has read.
pub struct Memory {
    /// The keys and the values of each block, `[p', B, heads, T + more, D]`.
    pub blocks: Vec<[Tensor; 2]>,
    /// 1 where there is a token, `[p, B, T + more]`.
    pub mask: Tensor,
    /// The number of tokens of each text, `[p, B]`.
    pub lengths: Tensor,
    /// The number of places that are taken.
    pub taken: i64,
}
