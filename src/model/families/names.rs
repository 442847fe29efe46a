//! The names of the tensors of networks of texts: those of transformers, and bella's.

use crate::model::stored::{Form, StoredNames};

/// The name of the output matrix, `[vocabulary, d]`, which turns features into the logits of tokens.
pub const OUTPUT: &str = "lm_head";

/// The name of a classifier in a checkpoint.
pub const HEAD: &str = "head";

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
    /// The layers of a block, by their names here, whose matrices are stored as `[in, out]`.
    pub turned: &'static [&'static str],
    /// The ends of names of tensors that are not read, since they follow from the config.
    pub unread: &'static [&'static str],
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
        let read = stored.filter(|name| self.is_read(name));
        StoredNames::of_plain(read.filter_map(|name| {
            let canonical = self.canonical(name)?;
            let form = if self.is_turned(&canonical) { Form::Transposed } else { Form::AsIs };
            Some((name.to_string(), canonical, form))
        }))
    }

    /// Returns whether a stored tensor has values of its own.
    pub fn is_read(&self, stored: &str) -> bool {
        !self.unread.iter().any(|end| stored.ends_with(end))
    }

    /// Returns whether a parameter is a matrix that is stored transposed, by its name here.
    pub fn is_turned(&self, name: &str) -> bool {
        let layer = name.strip_suffix(".weight").and_then(|layer| layer.splitn(3, '.').nth(2));
        layer.is_some_and(|layer| self.turned.contains(&layer))
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
        let prefix = stored.iter().find_map(before).unwrap_or_default();
        let (layer, end) = name.rsplit_once('.').unwrap_or((name, "weight"));
        match layer {
            OUTPUT if prefix == WITHIN => format!("language_model.{OUTPUT}.{end}"),
            OUTPUT => format!("{OUTPUT}.{end}"),
            HEAD => format!("{}.{end}", self.path(HEAD).unwrap_or_default()),
            _ => format!("{prefix}{}.{end}", self.path(layer).unwrap_or_else(|| layer.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::families::decoders;

    #[test]
    fn names_go_there_and_back() {
        let of_llama = |family: &&&decoders::Decoder| family.names.prefixes.contains(&"language_model.model.");
        assert_eq!(decoders::DECODERS.iter().filter(|family| !of_llama(family)).count(), 1);
        for (embedding, output) in [
            ("model.embed_tokens.weight", "lm_head.weight"),
            ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
            ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ] {
            let stored = [embedding.to_string()];
            let prefix = embedding.trim_end_matches("embed_tokens.weight");
            for family in decoders::DECODERS.iter().filter(of_llama) {
                let names = family.names;
                assert_eq!(names.canonical(output).as_deref(), Some("lm_head.weight"));
                assert_eq!(names.published("lm_head.weight", &stored), output);
                let of_block = names.layers.iter().map(|(layer, _)| format!("layers.3.{layer}.weight"));
                for name in of_block.chain(["embed_tokens.weight".into(), "norm.weight".into()]) {
                    let name = format!("{prefix}{name}");
                    assert_eq!(names.published(&names.canonical(&name).unwrap(), &stored), name);
                }
                assert_eq!(names.canonical("model.layers.0.self_attn.rotary.weight"), None);
            }
        }
    }

    #[test]
    fn names_of_gpt_2_go_there_and_back() {
        let names = decoders::decoder("gpt2").unwrap().names;
        for prefix in ["transformer.", ""] {
            let all = [format!("{prefix}wte.weight")];
            for (stored, ours) in [
                ("h.11.attn.c_attn.weight", "blocks.11.attn.qkv.weight"),
                ("wpe.weight", "position.weight"),
                ("h.0.mlp.c_fc.bias", "blocks.0.mlp.fc.bias"),
            ] {
                let stored = format!("{prefix}{stored}");
                assert_eq!(names.canonical(&stored).as_deref(), Some(ours));
                assert_eq!(names.published(ours, &all), stored);
            }
        }
        assert!(names.is_turned("blocks.11.attn.qkv.weight") && !names.is_turned("blocks.11.attn.qkv.bias"));
        assert!(!names.is_read("h.0.attn.bias") && names.is_read("h.0.attn.c_attn.bias"));
    }
}
