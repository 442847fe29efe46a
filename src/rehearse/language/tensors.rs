//! The names and shapes of stored tensors. Those of LLaVA are the ones of its published folder, which transformers 4 wrote;
//! transformers 5 reads them, too.

use crate::model::described::Text;
use crate::model::language::{self, Geometry};
use crate::model::llava::{Llava, PROJECTOR};
use crate::model::{llava, vit};

/// The start of the names of LLaVA's image tower.
const EYES: &str = "vision_tower.vision_model.";

/// Returns the names and shapes of all tensors of a network.
pub fn of(network: &Text) -> Vec<(String, Vec<i64>)> {
    match network {
        Text::Language(found) => spoken(&found.geometry, "model."),
        Text::Llava(found) => {
            let mut all = seen(&found.sight.tower.geometry);
            all.extend(projector(found));
            all.extend(spoken(&found.language.geometry, "language_model.model."));
            all
        }
    }
}

/// Returns the tensors of a language network whose names begin with `prefix`.
fn spoken(geometry: &Geometry, prefix: &str) -> Vec<(String, Vec<i64>)> {
    let like = [format!("{prefix}embed_tokens.weight")];
    let names = geometry.family.names;
    language::sizes(geometry).into_iter().map(|(name, shape)| (names.published(&name, &like), shape)).collect()
}

/// Returns the tensors of the projector, from patches to embeddings.
fn projector(network: &Llava) -> Vec<(String, Vec<i64>)> {
    let own = |name: &str| PROJECTOR.iter().any(|layer| name.starts_with(layer));
    let all = llava::sizes(network).into_iter().filter(|(name, _)| own(name));
    all.map(|(name, shape)| (format!("multi_modal_{name}"), shape)).collect()
}

/// Returns the tensors of CLIP's whole image tower, also of the block that is not run and of the norm after it, but not its
/// projection.
fn seen(geometry: &vit::Geometry) -> Vec<(String, Vec<i64>)> {
    let vit::Geometry { width, blocks, patch, grid, mlp, .. } = *geometry;
    let mut all = vec![
        ("embeddings.class_embedding".to_string(), vec![width]),
        ("embeddings.patch_embedding.weight".to_string(), vec![width, 3, patch, patch]),
        ("embeddings.position_embedding.weight".to_string(), vec![1 + grid * grid, width]),
    ];
    let mut layer = |name: String, shape: &[i64]| {
        all.push((format!("{name}.weight"), shape.to_vec()));
        all.push((format!("{name}.bias"), vec![shape[0]]));
    };
    layer("pre_layrnorm".into(), &[width]);
    for block in 0..blocks {
        let name = |layer: &str| format!("encoder.layers.{block}.{layer}");
        layer(name("layer_norm1"), &[width]);
        for attended in ["q_proj", "k_proj", "v_proj", "out_proj"] {
            layer(name(&format!("self_attn.{attended}")), &[width, width]);
        }
        layer(name("layer_norm2"), &[width]);
        layer(name("mlp.fc1"), &[mlp, width]);
        layer(name("mlp.fc2"), &[width, mlp]);
    }
    layer("post_layernorm".into(), &[width]);
    all.into_iter().map(|(name, shape)| (format!("{EYES}{name}"), shape)).collect()
}
