//! Language networks that see an image, such as LLaVA and PaliGemma, batched over particles. An image tower turns the image into
//! patches, a projector turns these into embeddings, and the language network reads them at the place of the image among those of the
//! prompt. What distinguishes them is in their [family](crate::model::families::sighted).
//!
//! A sample is a prompt of T tokens, its ids and its mask, and the pixels of a square image, from 0 to 255. Each patch has a token of
//! its own in the prompt, so T counts the patches. Where the tokens of a prompt read each other in both directions, a sample also has
//! the kinds of its tokens: 0 in the prompt, and 1 in the answer behind it.

mod config;
mod folder;
mod forward;
mod outline;
mod prompts;

pub use config::VisionConfig;
pub use folder::{Opened, described, is_sighted, open, parameters, settings, sizes};
pub use forward::Sighted;
pub use outline::KIND;
pub use prompts::QuestionTokenizer;

/// The start of the names of the image tower's parameters.
pub const TOWER: &str = "vision.";

/// The parameters of a tower that are meant.
struct Part {
    blocks: usize,
    /// Whether the norm behind the last block is among them.
    norm: bool,
    /// Whether queries, keys and values are layers of their own.
    splits: bool,
}

/// Returns the names and shapes of the parameters that are computed with, in the order of the forward pass.
fn tower_sizes(eyes: &VisionConfig) -> Vec<(String, Vec<i64>)> {
    let part = Part { blocks: eyes.sight.blocks, norm: eyes.sight.norm, splits: false };
    tower_parameters(eyes, &part).into_iter().map(|(name, shape)| (format!("{TOWER}{name}"), shape)).collect()
}

/// Returns the names that these parameters have in a folder, without the prefix of the tower.
fn tower_wanted(eyes: &VisionConfig) -> impl Iterator<Item = String> {
    let part = Part { blocks: eyes.sight.blocks, norm: eyes.sight.norm, splits: true };
    let names = &eyes.tower.names;
    tower_parameters(eyes, &part).into_iter().filter_map(move |(name, _)| names.stored(&name))
}

/// Returns the tensors of the whole tower in a folder, also of blocks that are not run and of the norm behind them, without the
/// prefix of the tower.
fn published_tower(eyes: &VisionConfig) -> Vec<(String, Vec<i64>)> {
    let part = Part { blocks: eyes.blocks, norm: true, splits: true };
    let (names, patch) = (&eyes.tower.names, eyes.patch);
    let stored = |(name, shape): (String, Vec<i64>)| {
        let shape = if name == "patch.weight" { vec![shape[0], 3, patch, patch] } else { shape };
        Some((names.stored(&name)?, shape))
    };
    tower_parameters(eyes, &part).into_iter().filter_map(stored).collect()
}

/// Returns the canonical names and shapes of parameters.
fn tower_parameters(eyes: &VisionConfig, part: &Part) -> Vec<(String, Vec<i64>)> {
    let VisionConfig { width, mlp, patch, required, .. } = *eyes;
    let grid = eyes.image_size / patch;
    let mut all = vec![("patch.weight".to_string(), vec![width, 3 * patch * patch])];
    all.extend(required.patch_bias.then(|| ("patch.bias".to_string(), vec![width])));
    all.extend(required.class_token.then(|| ("class_token".to_string(), vec![width])));
    all.push(("position".to_string(), vec![i64::from(required.class_token) + grid * grid, width]));
    let mut layer = |name: String, shape: &[i64]| {
        all.push((format!("{name}.weight"), shape.to_vec()));
        all.push((format!("{name}.bias"), vec![shape[0]]));
    };
    if required.pre_norm {
        layer("ln_pre".into(), &[width]);
    }
    for block in 0..part.blocks {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        layer(name("ln_1"), &[width]);
        match part.splits {
            true => ["attn.q", "attn.k", "attn.v"].iter().for_each(|own| layer(name(own), &[width, width])),
            false => layer(name("attn.qkv"), &[3 * width, width]),
        }
        layer(name("attn.proj"), &[width, width]);
        layer(name("ln_2"), &[width]);
        layer(name("mlp.fc"), &[mlp, width]);
        layer(name("mlp.proj"), &[width, mlp]);
    }
    if part.norm {
        layer("ln_post".into(), &[width]);
    }
    all
}
