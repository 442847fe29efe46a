//! The names of parameters in one package.

use crate::model::Normalize;
use crate::model::stored::Form;
use crate::model::vit::required::Required;
use crate::schema::words;

words! {
    /// The package that loads exported models. transformers has renamed the layers of its models in version 5; those of
    /// torchvision leave whole only.
    pub enum Package {
        Timm = "timm",
        OpenClip = "open-clip",
        Torchvision = "torchvision",
        Transformers4 = "transformers-4",
        Transformers5 = "transformers-5",
    }
}

/// The parameter names of checkpoints in one package.
#[derive(Debug)]
pub struct Naming {
    pub key: &'static str,
    /// Returns the networks that have these names.
    pub about: fn() -> String,
    /// Returns the parameters by which the naming is recognised, relative to the prefix; one of them is enough.
    pub landmarks: fn() -> Vec<&'static str>,
    /// Returns the prefixes that the names of the image tower may have, in the order in which they are tried.
    pub prefixes: fn() -> Vec<&'static str>,
    /// Returns the canonical name and layout of a parameter; `None` for one that the image path never uses.
    pub canonical: fn(&str) -> Option<(String, Form)>,
    /// Returns the same for a parameter outside the prefix.
    pub beside: fn(&str) -> Option<(String, Form)>,
    /// The parameters of a network with these names where no config decides them.
    pub required: Option<Required>,
    /// The packages that load such checkpoints; the last one is the usual one.
    pub packages: &'static [Package],
    /// The file in which its publishers describe a network.
    pub config: &'static str,
    /// The normalisation that most of its checkpoints were trained with.
    pub normalize: Supposed,
}

/// A normalisation that no file tells.
#[derive(Clone, Copy, Debug)]
pub struct Supposed {
    pub value: Normalize,
    /// The reason to suppose it, as the comment of a config has it.
    pub why: &'static str,
}

impl Supposed {
    /// The normalisation of most of timm's networks.
    pub const OF_TIMM: Supposed = Supposed {
        value: Normalize::HALVES,
        why: "as most of timm's ViTs; the file does not tell, so compare with its model card (\"imagenet\" or \"clip\")",
    };
}

/// Ignores a parameter, for namings whose archives may hold anything beside the image tower.
pub fn anything_beside(_: &str) -> Option<(String, Form)> {
    Some((String::new(), Form::Ignored))
}
