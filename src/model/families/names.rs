//! The names of the tensors of networks of texts: those of transformers, and bella's.

use crate::model::stored::StoredNames;

/// The name of the output matrix, `[vocabulary, d]`, which turns features into the logits of tokens.
pub const OUTPUT: &str = "lm_head";

/// The name of the matrix of embeddings, which is also the output matrix of a tied network.
pub const EMBEDDING: &str = "embed";

/// A layer: its name in transformers, and here.
pub type Pair = (&'static str, &'static str);

/// The names of a family's layers.
#[derive(Debug)]
pub struct Names {
    /// The starts of names in files.
    pub prefixes: &'static [&'static str],
    /// The path before the number of a block.
    pub blocks: &'static str,
    /// The layers of a block.
    pub layers: &'static [Pair],
    /// The layers outside of the blocks, beginning with the embeddings.
    pub around: &'static [Pair],
}

fn ours(layers: &[Pair], theirs: &str) -> Option<&'static str> {
    layers.iter().find(|(known, _)| *known == theirs).map(|(_, ours)| *ours)
}

fn theirs(layers: &[Pair], ours: &str) -> Option<&'static str> {
    layers.iter().find(|(_, known)| *known == ours).map(|(theirs, _)| *theirs)
}

/// Returns the end of a parameter's name, which early folders of BERT call otherwise.
fn end_of(stored: &str) -> &str {
    match stored {
        "gamma" => "weight",
        "beta" => "bias",
        end => end,
    }
}

impl Names {
    /// Returns the name here of a stored tensor; `None` for one that has no place.
    pub fn canonical(&self, stored: &str) -> Option<String> {
        let name = self.prefixes.iter().find_map(|prefix| stored.strip_prefix(prefix))?;
        if let Some(rest) = name.strip_prefix(self.blocks) {
            let (block, rest) = rest.split_once('.')?;
            let (layer, end) = rest.rsplit_once('.')?;
            return Some(format!("blocks.{block}.{}.{}", ours(self.layers, layer)?, end_of(end)));
        }
        let (layer, end) = name.rsplit_once('.')?;
        Some(format!("{}.{}", ours(self.around, layer)?, end_of(end)))
    }

    /// Returns what stored tensors of these names are here. Those without a place are left out.
    pub fn stored<'a>(&self, stored: impl Iterator<Item = &'a str>) -> StoredNames {
        StoredNames::of_plain(stored.filter_map(|name| Some((name.to_string(), self.canonical(name)?))))
    }

    /// Returns the path of a layer without the prefix of its network; `None` for one that the family does not have.
    pub fn path(&self, layer: &str) -> Option<String> {
        match layer.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
            Some((block, own)) => Some(format!("{}{block}.{}", self.blocks, theirs(self.layers, own)?)),
            None => theirs(self.around, layer).map(str::to_string),
        }
    }

    /// Returns the name that a tensor called `name` here would have among `stored` ones.
    pub fn published(&self, name: &str, stored: &[String]) -> String {
        /// The start of the names of a language network within one that sees images, which its output matrix has in part.
        const WITHIN: &str = "language_model.model.";
        let embedding = self.around.first().map_or("", |(theirs, _)| theirs);
        let before = |stored: &String| {
            let at = stored.find(self.blocks).or_else(|| stored.find(embedding))?;
            Some(stored[..at].to_string())
        };
        let prefix = stored.iter().find_map(before).unwrap_or_else(|| "model.".into());
        let (layer, end) = name.rsplit_once('.').unwrap_or((name, "weight"));
        match layer {
            OUTPUT if prefix == WITHIN => format!("language_model.{OUTPUT}.{end}"),
            OUTPUT => format!("{OUTPUT}.{end}"),
            _ => format!("{prefix}{}.{end}", self.path(layer).unwrap_or_else(|| layer.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::families::decoders;

    #[test]
    fn names_go_there_and_back() {
        for (embedding, output) in [
            ("model.embed_tokens.weight", "lm_head.weight"),
            ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
            ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ] {
            let stored = [embedding.to_string()];
            let prefix = embedding.trim_end_matches("embed_tokens.weight");
            for family in decoders::DECODERS {
                let names = family.names;
                assert_eq!(names.canonical(output).as_deref(), Some("lm_head.weight"));
                assert_eq!(names.published("lm_head.weight", &stored), output);
                let of_block = names.layers.iter().map(|(layer, _)| format!("layers.3.{layer}.weight"));
                for name in of_block.chain(["embed_tokens.weight".into(), "norm.weight".into()]) {
                    let name = format!("{prefix}{name}");
                    assert_eq!(names.published(&names.canonical(&name).unwrap(), &stored), name);
                }
                assert_eq!(names.canonical("model.layers.0.self_attn.rotary.weight"), None);
                let norm = names.published("blocks.1.ln_2.weight", &[]);
                assert_eq!(norm, "model.layers.1.post_attention_layernorm.weight");
            }
        }
    }
}
