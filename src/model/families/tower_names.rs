//! The names of the parameters of a family of image towers in transformers, with the canonical ones.

use super::class::Style;
use crate::model::stored::Form;

/// The names of a family's parameters in transformers, without the prefix of the network. A name that ends with a dot is that of
/// a layer, whose parameters keep the ends of their names. A parameter whose canonical name is empty changes no features.
#[derive(Clone, Copy, Debug)]
pub struct TowerNames {
    /// The weight of the patches, by which the family is known.
    pub patches: &'static str,
    /// The linear layers of the blocks in versions 4 and 5.
    pub styles: &'static [Style; 2],
    /// The other parts of a block.
    pub block: &'static [(&'static str, &'static str)],
    /// The parameters around the blocks.
    pub around: &'static [(&'static str, &'static str, Form)],
    /// The parameters that may stand beside the network's prefix: classifiers, projections, and other networks.
    pub beside: &'static [(&'static str, &'static str)],
}

/// Returns the canonical name of a parameter by a row of a table.
fn renamed(name: &str, (theirs, ours): (&str, &str)) -> Option<String> {
    let rest = name.strip_prefix(theirs)?;
    match (rest.is_empty(), theirs.ends_with('.')) {
        (true, _) => Some(ours.to_string()),
        (false, true) if ours.is_empty() => Some(String::new()),
        (false, true) => Some(format!("{ours}{rest}")),
        (false, false) => None,
    }
}

impl Style {
    /// Returns the linear layers of a block with their canonical names.
    fn layers(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let [queries, keys, values] = self.queries;
        let always = [
            (queries, "attn.q"),
            (keys, "attn.k"),
            (values, "attn.v"),
            (self.attention_proj, "attn.proj"),
            (self.fc, "mlp.fc"),
            (self.gate, "mlp.gate"),
            (self.proj, "mlp.proj"),
            (self.gated_proj, "mlp.proj"),
        ];
        always.into_iter().chain(self.packed.map(|packed| (packed, "mlp.packed")))
    }
}

impl TowerNames {
    /// Returns the canonical name of a parameter of a block, within the block.
    pub fn in_block(&self, name: &str) -> Option<String> {
        let linear = self.styles.iter().flat_map(Style::layers).find_map(|(theirs, ours)| {
            let part = name.strip_prefix(theirs)?.strip_prefix('.')?;
            Some(format!("{ours}.{part}"))
        });
        linear.or_else(|| self.block.iter().find_map(|row| renamed(name, *row)))
    }

    /// Returns the canonical name and the layout of a parameter around the blocks.
    pub fn around_blocks(&self, name: &str) -> Option<(String, Form)> {
        if let Some(part) = self.patches.strip_suffix("weight").and_then(|layer| name.strip_prefix(layer)) {
            let form = if part == "weight" { Form::Flattened } else { Form::AsIs };
            return ["weight", "bias"].contains(&part).then(|| (format!("patch.{part}"), form));
        }
        self.around.iter().find_map(|(theirs, ours, form)| Some((renamed(name, (theirs, ours))?, *form)))
    }

    /// Returns the name of a parameter by its canonical one, in which queries, keys and values are layers of their own; `None` for one
    /// that the family does not have.
    pub fn stored(&self, canonical: &str) -> Option<String> {
        if let Some(part) = canonical.strip_prefix("patch.") {
            return Some(format!("{}{part}", self.patches.strip_suffix("weight")?));
        }
        let turned = |(theirs, ours): (&str, &str)| renamed(canonical, (ours, theirs));
        let Some((block, name)) = canonical.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) else {
            return self.around.iter().find_map(|(theirs, ours, _)| turned((theirs, ours)));
        };
        let newest = &self.styles[1];
        let linear = newest.layers().find_map(|(theirs, ours)| {
            let part = name.strip_prefix(ours)?.strip_prefix('.')?;
            Some(format!("{theirs}.{part}"))
        });
        let own = || self.block.iter().find_map(|(theirs, ours)| renamed(name, (ours, theirs)));
        Some(format!("{}{block}.{}", newest.blocks, linear.or_else(own)?))
    }

    /// Returns the canonical name and the layout of a parameter beside the network.
    pub fn beside_tower(&self, name: &str) -> Option<(String, Form)> {
        let found = self.beside.iter().find_map(|row| renamed(name, *row))?;
        let form = if found.is_empty() { Form::Ignored } else { Form::AsIs };
        Some((found, form))
    }
}

/// The towers of CLIP and SigLIP.
pub(super) const TOWER: TowerNames = TowerNames {
    patches: "embeddings.patch_embedding.weight",
    styles: super::class::TOWER,
    block: &[("layer_norm1.", "ln_1."), ("layer_norm2.", "ln_2.")],
    around: &[],
    beside: &[],
};

#[cfg(test)]
mod tests {
    use crate::model::families::{FAMILIES, TowerNames};

    #[test]
    fn names_of_towers_go_there_and_back() {
        for model_type in ["clip_vision_model", "siglip_vision_model"] {
            let names: &TowerNames = &FAMILIES.iter().find(|family| family.model_type == model_type).unwrap().names;
            for (canonical, stored) in [
                ("patch.weight", "embeddings.patch_embedding.weight"),
                ("position", "embeddings.position_embedding.weight"),
                ("ln_post.bias", "post_layernorm.bias"),
            ] {
                assert_eq!(names.stored(canonical).as_deref(), Some(stored));
                assert_eq!(names.around_blocks(stored).unwrap().0, canonical);
            }
            for (canonical, stored) in [
                ("blocks.11.attn.v.weight", "self_attn.v_proj.weight"),
                ("blocks.11.ln_2.bias", "layer_norm2.bias"),
                ("blocks.11.mlp.proj.weight", "mlp.fc2.weight"),
            ] {
                assert_eq!(names.stored(canonical), Some(format!("encoder.layers.11.{stored}")));
                assert_eq!(names.in_block(stored).as_deref(), canonical.strip_prefix("blocks.11."));
            }
            assert_eq!(names.stored("registers"), None);
        }
    }
}
