//! The layers of a network that a subspace adapts, as its settings `targets` and `blocks` choose them.

use anyhow::{Context, Result, bail, ensure};

use crate::model::network::{Network, Slot, SlotKind};
use crate::schema::{Choice, Reader, words};

words! {
    /// A linear layer of each block, or all layers of a kind in a module.
    pub enum Target {
        Qkv = "attn.qkv",
        Query = "attn.q",
        Key = "attn.k",
        Value = "attn.v",
        AttentionProj = "attn.proj",
        Gate = "mlp.gate",
        Fc = "mlp.fc",
        GateAndFc = "mlp.gate_fc",
        Proj = "mlp.proj",
        Output = "lm_head",
        Pooler = "pooler",
        EmbeddingProj = "embed_proj",
        Projector = "projector.linear",
        FirstProjector = "projector.linear_1",
        SecondProjector = "projector.linear_2",
        VisionQkv = "vision.attn.qkv",
        VisionAttentionProj = "vision.attn.proj",
        VisionFc = "vision.mlp.fc",
        VisionProj = "vision.mlp.proj",
        Linear = "linear",
        Pointwise = "pointwise",
    }
}

/// The choice of layers of `[subspace.<subspace>]`.
pub struct Chosen<'a> {
    /// The key of the subspace, for messages.
    pub subspace: &'static str,
    /// The setting that names the layers.
    pub key: &'static str,
    pub targets: &'a [Target],
    /// The blocks whose layers are adapted, such as `"6-11"`; all without it.
    pub blocks: Option<&'a str>,
}

impl Chosen<'_> {
    /// Adds a problem to the reader's for each setting that can choose no layer of any network.
    pub fn check(&self, reader: &Reader) {
        if self.targets.is_empty() {
            reader.problem(self.key, "must name at least one layer");
        }
        if let Some(Err(error)) = self.blocks.map(|text| parse_blocks(text, usize::MAX)) {
            reader.problem("blocks", format!("{error}"));
        }
    }

    /// Returns the chosen layers, in the order of the forward pass.
    ///
    /// # Errors
    /// Fails if the network lacks a target or a block.
    pub fn slots(&self, network: &dyn Network) -> Result<Vec<Slot>> {
        let (blocks, slots) = (self.numbers(network.blocks())?, network.slots());
        for target in self.targets {
            let known = slots.iter().any(|slot| slot.target == target.word() && slot.kind != SlotKind::Other);
            ensure!(
                known,
                "subspace.{}.{}: the checkpoint has no linear layer `{target}`{}",
                self.subspace,
                self.key,
                others(&slots)
            );
        }
        let wanted = |slot: &Slot| {
            // A layer outside of the blocks belongs to none of them.
            let chosen = network.block_of(slot).is_none_or(|block| blocks.contains(&block));
            chosen && self.targets.iter().any(|target| target.word() == slot.target)
        };
        Ok(slots.into_iter().filter(wanted).collect())
    }

    fn numbers(&self, available: usize) -> Result<Vec<usize>> {
        match self.blocks {
            None => Ok((0..available).collect()),
            Some(text) => {
                parse_blocks(text, available).with_context(|| format!("subspace.{}.blocks = \"{text}\"", self.subspace))
            }
        }
    }
}

/// Returns the targets that slots have, for messages.
fn others(slots: &[Slot]) -> String {
    let mut known: Vec<&str> = slots.iter().filter(|s| s.kind != SlotKind::Other).map(|s| s.target.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    if known.is_empty() { String::new() } else { format!(": it has {}", known.join(", ")) }
}

/// Returns the numbers in a list such as "0-5,11"; each must be below `available`.
pub fn parse_blocks(text: &str, available: usize) -> Result<Vec<usize>> {
    let mut blocks = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) else {
            bail!("`{part}` is no block number or range: write for example \"6-11\" or \"0,3,5-7\"");
        };
        ensure!(first <= last, "the range {part} runs backwards");
        ensure!(last < available, "block {last} does not exist: the checkpoint has blocks 0 to {}", available - 1);
        ensure!(last < 10_000, "block {last} does not exist");
        blocks.extend(first..=last);
    }
    blocks.sort_unstable();
    blocks.dedup();
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_lists() {
        assert_eq!(parse_blocks("6-8, 0,7", 12).unwrap(), vec![0, 6, 7, 8]);
        for (text, rule) in [
            ("6-", "no block number"),
            ("8-6", "runs backwards"),
            ("12", "block 12 does not exist: the checkpoint has blocks 0 to 11"),
        ] {
            let error = parse_blocks(text, 12).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
    }
}
