//! The defaults that the folder of a text encoder gives the keys of a config, where it is one of sentence-transformers.

use std::path::Path;

use super::outline::described;
use crate::model::families::encoders::Features;
use crate::model::folder::sentences::{Encoded, Sentences};
use crate::model::folder::{home, values_of};
use crate::schema::Reader;

/// The defaults that one folder states. They are empty where the folder is not one of sentence-transformers.
#[derive(Default)]
pub struct Stated {
    sentences: Option<Sentences>,
    /// The reason why one of its files cannot be read. The folder states nothing then.
    damage: Option<String>,
}

/// The keys whose defaults a folder states.
const KEYS: [&str; 3] = ["features", "unit_features", "max_tokens"];

impl Stated {
    /// Reads what the folder of the text encoder at a path states.
    pub fn of(path: &Path) -> Stated {
        let mut sentences = match Sentences::of(&home(path)) {
            Ok(sentences) => sentences,
            Err(why) => return Stated { sentences: None, damage: Some(format!("{why:#}")) },
        };
        // The network may read less than the package would cut texts to.
        let network = values_of(path).and_then(|values| described(&values, None));
        if let (Some(said), Ok(network)) = (&mut sentences, network) {
            said.tokens = said.tokens.map(|tokens| tokens.min(network.geometry.context()));
        }
        Stated { sentences, damage: None }
    }

    fn encoded(&self) -> Option<Encoded> {
        self.sentences.as_ref()?.encoded.as_ref().ok().copied()
    }

    pub fn features(&self) -> Option<Features> {
        self.encoded().map(|said| said.features)
    }

    /// Returns whether such features are divided by their L2 norm. Where a file is damaged, a config has to say it, and the value that it leaves
    /// out otherwise is no default.
    pub fn is_unit(&self, features: &Option<Features>) -> bool {
        self.damage.is_some() || self.encoded().is_some_and(|said| said.is_unit && *features == Some(said.features))
    }

    /// Returns the most tokens of a text, no more than the network reads.
    pub fn tokens(&self) -> Option<i64> {
        self.sentences.as_ref()?.tokens
    }

    /// Returns why the features that the folder asks for are not computed, or what is wrong with it; `None` where neither is so.
    pub fn refused(&self) -> Option<&str> {
        self.damage.as_deref().or_else(|| self.sentences.as_ref()?.encoded.as_ref().err().map(String::as_str))
    }

    /// Reports what a folder asks for and bella does not do, and a damaged file, where the config does not say what takes their place.
    pub fn check(&self, reader: &Reader) {
        if let Some(damage) = self.damage.as_ref().filter(|_| KEYS.iter().any(|key| !reader.has(key))) {
            let way =
                "repair or remove the file, or set features, unit_features and max_tokens, whose defaults it tells";
            reader.problem("path", format!("{damage}: {way}"));
        } else if let Some(why) = self.refused().filter(|_| self.damage.is_none() && !reader.has("features")) {
            reader.problem("features", why);
        }
    }
}
