//! The lines that `bella inspect` prints about a language network that sees images.

use std::path::Path;

use anyhow::Result;

use super::kind::kind_name;
use crate::model::Normalize;
use crate::model::folder::Preprocessing;
use crate::model::language::Geometry;
use crate::model::llava::{Opened, PROJECTOR, open};
use crate::model::network::Network;

/// Prints the network at `path`, with the number of trainable parameters at a rank, and opens it for what else is printed.
///
/// # Errors
/// Fails if the network cannot be opened.
pub fn print(path: &Path, rank: i64) -> Result<Opened> {
    let asked = Preprocessing::of(path);
    let opened = open(path, None, asked.normalize.unwrap_or(Normalize::CLIP))?;
    let Opened { llava, family, base, stored, .. } = &opened;
    let (sight, tower) = (&llava.sight, &llava.sight.tower.geometry);
    let Geometry { width, mlp, blocks, heads, key_heads, channels, vocabulary, context, .. } = llava.language.geometry;
    let [size, patches] = [sight.eyes.image_size, sight.patches()];
    println!("file          {}", path.display());
    println!("network       llava on {} ({}), a language network that sees images", family.model_type, family.about);
    println!("image         {size} x {size} px, patch {}, {patches} tokens of the prompt", tower.patch);
    print!("{}", asked.report());
    println!("image tower   width {}, {} of its blocks, MLP {}", tower.width, sight.eyes.blocks, tower.mlp);
    println!("projector     {} to {width}, {}", tower.width, PROJECTOR.join(", "));
    println!("transformer   width {width}, {blocks} blocks, gated MLP {mlp}");
    println!("heads         {heads} of width {channels}, {key_heads} of keys and values");
    println!("texts         at most {context} tokens, those of the image among them, of a vocabulary of {vocabulary}");
    println!("parameters    {}, stored as {}", base.count(), kind_name(*stored));
    println!("check         every tensor has its place, every place has its tensor, and all shapes agree");
    let slots = llava.slots();
    let queries = slots.iter().filter(|slot| ["attn.q", "attn.v"].contains(&slot.target.as_str()));
    let per_rank: i64 = queries.map(|slot| slot.inputs + slot.outputs).sum();
    let counts: Vec<String> = [1, 2, 5].iter().map(|n| format!("n = {n}: {}", n * rank * per_rank)).collect();
    println!("low rank {:<4} queries and values of every block of the language network, {}", rank, counts.join(", "));
    Ok(opened)
}
