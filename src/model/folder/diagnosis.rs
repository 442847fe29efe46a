//! What weights without a config look like, for the message that refuses them.

use anyhow::Result;
use tch::Tensor;

use crate::model::families::{IMAGE_SIZE, decoders};
use crate::model::folder::weights::Place;
use crate::model::recognition::{Expected, Named, recognise};
use crate::model::vit::architecture::{EXPORT, of_sizes};
use crate::model::vit::arguments::Arguments;
use crate::model::vit::parts::Rope;

/// The most architectures that a message names.
const NAMED: usize = 4;

/// Networks that are no vision transformers, by parts of names that only their weights have.
const OTHERS: [(&str, &[&str]); 5] = [
    ("a Swin transformer", &["layers.0.blocks.0.", "features.1.0.attn.relative"]),
    ("a ConvNeXt", &["dwconv.weight", "conv_dw.weight", "block.0.weight"]),
    ("a ResNet", &["layer1.0.conv1.weight", "layers.0.layer.0.convolution.weight"]),
    ("a convolutional network", &["running_mean"]),
    ("a language model", &["embed_tokens.weight", "wte.weight", "word_embeddings.weight"]),
];

/// Says what the weights look like and what to do.
///
/// # Errors
/// Fails if the weights cannot be read.
pub fn advice(place: &Place) -> Result<String> {
    let tensors = place.read()?;
    let has = |part: &str| tensors.iter().any(|(name, _)| name.contains(part));
    if has("lora_A") {
        return Ok(
            "its tensors look like a PEFT adapter, which belongs on another network: `bella import` reads it".into()
        );
    }
    Ok(match recognise(&tensors, Expected { image_size: Some(IMAGE_SIZE), ..Expected::default() }) {
        Ok(named) => transformer(&named),
        Err(why) => other(&tensors, &why),
    })
}

fn transformer(named: &Named) -> String {
    let naming = named.naming.key;
    let [width, blocks, patch] = [named.geometry.width, named.geometry.blocks as i64, named.geometry.patch];
    let looks = format!(
        "its tensors look like a vision transformer's of width {width}, {blocks} blocks and patch {patch} under the names of \
         {naming}, but nothing beside them tells its heads, activation and epsilon"
    );
    let known: Vec<&str> = of_sizes(width, blocks, patch)
        .filter(|known| positions_fit(Arguments::of(known).rope().ok().flatten(), named))
        .map(|known| known.name)
        .collect();
    let first = known[..known.len().min(NAMED)].join(", ");
    let more = if known.len() > NAMED { ", …" } else { "" };
    let those = if known.is_empty() { String::new() } else { format!(" (of these sizes are {first}{more})") };
    let config = named.naming.config;
    format!(
        "{looks}: put the publisher's {config} there, or set checkpoint.architecture to timm's name of the network{those}, \
         or all of checkpoint.heads, checkpoint.activation and checkpoint.eps"
    )
}

/// Returns whether the weights may have these rotary positions: DINOv3's are without learnt ones, and EVA-02's are those of
/// gated blocks without scales.
fn positions_fit(rope: Option<Rope>, named: &Named) -> bool {
    let (learnt, parts) = (named.base.get("position").is_some(), named.parts.block);
    match rope {
        Some(Rope::Centred { .. }) => !learnt,
        Some(Rope::Indexed { .. }) => learnt && parts.gated && !parts.layer_scale,
        None => (learnt || named.parts.relative) && (!parts.gated || parts.layer_scale),
    }
}

fn other(tensors: &[(String, Tensor)], why: &anyhow::Error) -> String {
    let has = |part: &&str| tensors.iter().any(|(name, _)| name.contains(part));
    match OTHERS.iter().find(|(_, parts)| parts.iter().any(has)) {
        Some((kind @ "a language model", _)) => {
            format!(
                "its tensors look like {kind}'s: bella reads those of model_type {} from a folder with the publisher's \
                 config.json; {EXPORT} huggingface NAME writes others, which train with checkpoint.kind = \"module\"",
                decoders::model_types().join(", ")
            )
        }
        Some((kind, _)) => format!(
            "its tensors look like {kind}'s, which trains by its own forward: write it with {EXPORT} timm NAME --weights \
             FILE (or torchvision, huggingface), and set checkpoint.kind = \"module\""
        ),
        None => format!(
            "{why:#}: {EXPORT} timm NAME --weights FILE (or torchvision, huggingface, open_clip) writes other networks, \
             which train with checkpoint.kind = \"module\""
        ),
    }
}
