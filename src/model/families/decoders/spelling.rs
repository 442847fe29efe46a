//! The keys by which a config states sizes.

/// The keys of the sizes of a network.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    pub width: &'static str,
    pub mlp: &'static str,
    pub blocks: &'static str,
    pub heads: &'static str,
    /// `None` where each head has keys and values of its own.
    pub key_heads: Option<&'static str>,
    /// `None` where the width is divided by the heads.
    pub channels: Option<&'static str>,
    pub context: &'static str,
    pub eps: &'static str,
}

/// Those of Llama.
pub(super) const LLAMA: Spelling = Spelling {
    width: "hidden_size",
    mlp: "intermediate_size",
    blocks: "num_hidden_layers",
    heads: "num_attention_heads",
    key_heads: Some("num_key_value_heads"),
    channels: Some("head_dim"),
    context: "max_position_embeddings",
    eps: "rms_norm_eps",
};

impl Spelling {
    /// Returns all keys.
    pub fn keys(&self) -> Vec<&'static str> {
        let Spelling { width, mlp, blocks, heads, key_heads, channels, context, eps } = *self;
        [width, mlp, blocks, heads, context, eps].into_iter().chain(key_heads).chain(channels).collect()
    }
}
