//! The lines that `bella inspect` prints about a language network.

use anyhow::Result;

use super::kind::kind_name;
use crate::model::language::rope::Scaling;
use crate::model::language::{Geometry, Opened, open};
use crate::model::network::Network;
use std::path::Path;

/// Prints the network at `path`, with the number of trainable parameters at a rank, and opens it for what else is printed.
pub fn print(path: &Path, rank: i64) -> Result<Opened> {
    let opened = open(path, None)?;
    let Geometry { width, mlp, blocks, heads, key_heads, channels, vocabulary, context, eps, rope, tied, .. } =
        opened.language.geometry;
    println!("file          {}", path.display());
    println!("network       {} ({}), a language network", opened.family.model_type, opened.family.about);
    println!("transformer   width {width}, {blocks} blocks, gated MLP {mlp}");
    println!("heads         {heads} of width {channels}, {key_heads} of keys and values");
    println!("norm          by the root mean square, eps {eps:e}");
    let scaling = match rope.scaling {
        Scaling::None => "not scaled".to_string(),
        Scaling::Linear { factor } => format!("scaled by {factor}"),
        Scaling::Llama3 { factor, low, high, original } => {
            format!("scaled as Llama 3.1's by {factor} (from {original} tokens, factors {low} and {high})")
        }
    };
    println!("positions     rotary, base {}, {scaling}", rope.theta);
    println!("texts         at most {context} tokens of a vocabulary of {vocabulary}");
    println!("output matrix {}", if tied { "the embeddings" } else { "its own" });
    println!("parameters    {}, stored as {}", opened.base.count(), kind_name(opened.stored));
    println!("check         every tensor has its place, every place has its tensor, and all shapes agree");
    let per_rank: i64 = opened
        .language
        .slots()
        .iter()
        .filter(|slot| ["attn.q", "attn.v"].contains(&slot.target.as_str()))
        .map(|slot| slot.inputs + slot.outputs)
        .sum();
    let counts: Vec<String> = [1, 3, 5, 20].iter().map(|n| format!("n = {n}: {}", n * rank * per_rank)).collect();
    println!("low rank {:<4} queries and values of every block, {}", rank, counts.join(", "));
    Ok(opened)
}
