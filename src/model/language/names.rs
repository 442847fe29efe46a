//! The names of a language network's tensors: those of transformers, and bella's.

use super::{EMBEDDING, OUTPUT};
use crate::model::stored::StoredNames;

/// The layers of a block: their names in transformers, and here.
const LAYERS: [(&str, &str); 9] = [
    ("input_layernorm", "ln_1"),
    ("self_attn.q_proj", "attn.q"),
    ("self_attn.k_proj", "attn.k"),
    ("self_attn.v_proj", "attn.v"),
    ("self_attn.o_proj", "attn.proj"),
    ("post_attention_layernorm", "ln_2"),
    ("mlp.gate_proj", "mlp.gate"),
    ("mlp.up_proj", "mlp.fc"),
    ("mlp.down_proj", "mlp.proj"),
];

/// The layers outside the blocks: their names in transformers, and here.
const AROUND: [(&str, &str); 3] = [("embed_tokens", EMBEDDING), ("norm", "ln_post"), ("lm_head", OUTPUT)];

/// The prefixes of names in files: those of LLaVA in transformers 4 and 5, of a language network, and of one that is stored
/// without its output matrix.
const PREFIXES: [&str; 5] = ["language_model.model.", "model.language_model.", "language_model.", "model.", ""];

/// Returns the name here of a stored tensor; `None` for one that has no place.
pub fn canonical(stored: &str) -> Option<String> {
    let name = PREFIXES.iter().find_map(|prefix| stored.strip_prefix(prefix))?;
    if let Some(rest) = name.strip_prefix("layers.") {
        let (block, rest) = rest.split_once('.')?;
        let (layer, end) = rest.rsplit_once('.')?;
        let (_, own) = LAYERS.iter().find(|(theirs, _)| *theirs == layer)?;
        return Some(format!("blocks.{block}.{own}.{end}"));
    }
    let (layer, end) = name.rsplit_once('.')?;
    let (_, own) = AROUND.iter().find(|(theirs, _)| *theirs == layer)?;
    Some(format!("{own}.{end}"))
}

/// Returns what stored tensors of these names are here. Those without a place are left out.
pub fn stored_names<'a>(stored: impl Iterator<Item = &'a str>) -> StoredNames {
    StoredNames::of_plain(stored.filter_map(|name| Some((name.to_string(), canonical(name)?))))
}

/// Returns the name that a tensor called `name` here would have among `stored` ones.
pub fn published(name: &str, stored: &[String]) -> String {
    let before = |stored: &String| {
        let at = stored.find("layers.").or_else(|| stored.find("embed_tokens."))?;
        Some(stored[..at].to_string())
    };
    let prefix = stored.iter().find_map(before).unwrap_or_else(|| "model.".into());
    let theirs = |layers: &[(&str, &str)], own: &str| {
        layers.iter().find(|(_, known)| *known == own).map_or(own, |(theirs, _)| *theirs).to_string()
    };
    let (layer, end) = name.rsplit_once('.').unwrap_or((name, "weight"));
    match layer.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
        Some((block, own)) => format!("{prefix}layers.{block}.{}.{end}", theirs(&LAYERS, own)),
        None if layer == OUTPUT && prefix == PREFIXES[0] => format!("language_model.{OUTPUT}.{end}"),
        None if layer == OUTPUT => format!("{OUTPUT}.{end}"),
        None => format!("{prefix}{}.{end}", theirs(&AROUND, layer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for (embedding, output) in [
            ("model.embed_tokens.weight", "lm_head.weight"),
            ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
            ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ] {
            let stored = [embedding.to_string()];
            assert_eq!(canonical(output).as_deref(), Some("lm_head.weight"));
            assert_eq!(published("lm_head.weight", &stored), output);
            let prefix = embedding.trim_end_matches("embed_tokens.weight");
            for name in
                ["embed_tokens.weight", "norm.weight", "layers.3.self_attn.q_proj.bias", "layers.0.mlp.up_proj.weight"]
            {
                let name = format!("{prefix}{name}");
                assert_eq!(published(&canonical(&name).unwrap(), &stored), name);
            }
        }
        assert_eq!(canonical("model.layers.0.self_attn.rotary.weight"), None);
        assert_eq!(published("blocks.1.ln_2.weight", &[]), "model.layers.1.post_attention_layernorm.weight");
    }
}
