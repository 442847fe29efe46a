//! The operations of a vision transformer, which reads the class token alone after its last block.

use super::walk::Walk;
use crate::model::vit::Geometry;

/// Counts a pass from images, or from a cached stage, to the logits of classes.
pub fn count(walk: &mut Walk, geometry: &Geometry) {
    let Geometry { width, blocks, output, .. } = *geometry;
    let (from_stage, classes) = (walk.pass.from_stage, walk.pass.classes);
    if from_stage.is_none() {
        patches(walk, "", geometry);
    }
    for index in from_stage.unwrap_or(0)..blocks {
        let queries = if index + 1 == blocks { 1 } else { tokens(geometry) };
        block(walk, &format!("blocks.{index}."), geometry, queries);
    }
    if output != width || walk.shape("proj").is_some() {
        walk.linear("proj", width, &[(1, output)]);
    }
    walk.linear("head", output, &[(1, classes)]);
}

/// Returns the number of tokens, one of them that of the class.
fn tokens(geometry: &Geometry) -> i64 {
    1 + geometry.grid * geometry.grid
}

/// Counts the embedding of patches, whose layer has the name `patch` behind a prefix.
fn patches(walk: &mut Walk, prefix: &str, geometry: &Geometry) {
    let Geometry { width, patch, grid, .. } = *geometry;
    walk.linear(&format!("{prefix}patch"), 3 * patch * patch, &[(grid * grid, width)]);
}

/// Counts a block whose layers have names behind a prefix, for so many queries.
fn block(walk: &mut Walk, prefix: &str, geometry: &Geometry, queries: i64) {
    let (width, mlp, tokens) = (geometry.width, geometry.mlp, tokens(geometry));
    let layer = |name: &str| format!("{prefix}{name}");
    let flows = walk.flows(&layer("attn.qkv"));
    walk.linear(&layer("attn.qkv"), width, &[(queries, width), (tokens, 2 * width)]);
    walk.attention((queries * tokens, width), [flows; 3]);
    walk.linear(&layer("attn.proj"), width, &[(queries, width)]);
    walk.linear(&layer("mlp.fc"), width, &[(queries, mlp)]);
    walk.linear(&layer("mlp.proj"), mlp, &[(queries, width)]);
}

/// Counts the first `blocks` blocks of a tower, all of whose tokens are read, with names behind a prefix.
pub fn tower(walk: &mut Walk, prefix: &str, geometry: &Geometry, blocks: usize) {
    patches(walk, prefix, geometry);
    (0..blocks).for_each(|index| block(walk, &format!("{prefix}blocks.{index}."), geometry, tokens(geometry)));
}
