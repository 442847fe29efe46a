//! The operations of a language network, perhaps one that sees images.

use super::images;
use super::walk::{Layer, Walk};
use crate::model::language::{EMBEDDING, Geometry, OUTPUT};
use crate::model::llava::{PROJECTOR, TOWER};
use crate::model::vit;

/// Prompts that go through a language network.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    pub geometry: &'a Geometry,
    /// The image in each prompt, if there is one.
    pub seen: Option<Seen<'a>>,
    /// The number of tokens of a prompt, those of its image and of an answer that is learnt among them.
    pub tokens: i64,
    pub reads: Reads,
}

/// The image in a prompt.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    pub tower: &'a vit::Geometry,
    /// The number of the tower's blocks that are run.
    pub blocks: usize,
    /// The number of patches that the prompt gets.
    pub patches: i64,
}

/// The part of a network's output that is read for a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The logits of classes at its last token.
    Classes,
    /// The logits of all tokens at the places of an answer of so many tokens.
    Answer(i64),
    /// The logits of all tokens at its last token, and then at so many tokens less one that are written after it.
    Writes(i64),
}

impl Texts<'_> {
    /// Counts a pass from prompts, or from a cached stage.
    pub fn count(&self, walk: &mut Walk) {
        let sight = usize::from(self.seen.is_some());
        if let (Some(seen), None) = (self.seen, walk.pass.from_stage) {
            self.sight(walk, &seen);
        }
        if walk.pass.from_stage.is_none() {
            walk.passed(EMBEDDING);
        }
        let blocks = self.geometry.blocks;
        let causal = self.tokens * (self.tokens + 1) / 2;
        let trimmed = !matches!(self.reads, Reads::Answer(_));
        for index in walk.pass.from_stage.unwrap_or(0).saturating_sub(sight)..blocks {
            let is_trimmed = trimmed && index + 1 == blocks;
            let (queries, pairs) = if is_trimmed { (1, self.tokens) } else { (self.tokens, causal) };
            self.block(walk, index, (queries, self.tokens), pairs);
        }
        self.read(walk);
    }

    /// Counts the image tower and the projector.
    fn sight(&self, walk: &mut Walk, Seen { tower, blocks, patches }: &Seen) {
        images::tower(walk, TOWER, tower, *blocks);
        for (layer, inputs) in PROJECTOR.into_iter().zip([tower.width, self.geometry.width]) {
            walk.linear(layer, inputs, &[(*patches, self.geometry.width)]);
        }
    }

    /// Counts a block on `tokens` new tokens, of which `queries` are read on, with so many pairs of queries and keys.
    fn block(&self, walk: &mut Walk, index: usize, (queries, tokens): (i64, i64), pairs: i64) {
        let Geometry { width, mlp, heads, key_heads, channels, .. } = *self.geometry;
        let (all, keys) = (heads * channels, key_heads * channels);
        let layer = |name: &str| format!("blocks.{index}.{name}");
        let flows = ["attn.q", "attn.k", "attn.v"].map(|name| walk.flows(&layer(name)));
        walk.side_by_side(&[
            Layer { name: &layer("attn.q"), inputs: width, uses: &[(queries, all)] },
            Layer { name: &layer("attn.k"), inputs: width, uses: &[(tokens, keys)] },
            Layer { name: &layer("attn.v"), inputs: width, uses: &[(tokens, keys)] },
        ]);
        walk.attention((pairs, all), flows);
        walk.linear(&layer("attn.proj"), all, &[(queries, width)]);
        walk.side_by_side(&[
            Layer { name: &layer("mlp.gate"), inputs: width, uses: &[(queries, mlp)] },
            Layer { name: &layer("mlp.fc"), inputs: width, uses: &[(queries, mlp)] },
        ]);
        walk.linear(&layer("mlp.proj"), mlp, &[(queries, width)]);
    }

    /// Counts the logits, and the tokens that are written.
    fn read(&self, walk: &mut Walk) {
        let Geometry { width, vocabulary, tied, .. } = *self.geometry;
        let output = if tied && walk.shape(EMBEDDING).is_some() { EMBEDDING } else { OUTPUT };
        match self.reads {
            Reads::Classes => {
                let own = if walk.shape(output).is_some() { output } else { "head" };
                walk.linear(own, width, &[(1, walk.pass.classes)]);
            }
            Reads::Answer(tokens) => walk.linear(output, width, &[(tokens, vocabulary)]),
            Reads::Writes(tokens) => {
                walk.linear(output, width, &[(1, vocabulary)]);
                for before in 1..tokens {
                    (0..self.geometry.blocks).for_each(|index| self.block(walk, index, (1, 1), self.tokens + before));
                    walk.linear(output, width, &[(1, vocabulary)]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
