//! The packages that exported models are for.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::model::families::{self, Class};
use crate::model::recognition::{NAMINGS, Package};
use crate::model::stored::StoredNames;

/// The package that will load an exported model, and the names of parameters there.
#[derive(Debug)]
pub struct Target {
    pub package: Package,
    /// The class that loads it, for a model of transformers.
    pub class: Option<&'static Class>,
}

/// Returns the packages that load checkpoints with names of the family `naming`, the usual one last; none for a module, which has
/// names of its own.
pub fn packages(naming: &str) -> &'static [Package] {
    NAMINGS.iter().find(|known| known.key == naming).map_or(&[], |known| known.packages)
}

impl Target {
    /// Returns the target for a checkpoint with names of the family `naming`; `asked` chooses the package.
    ///
    /// # Errors
    /// Fails if the package has no such models, or if `naming` is that of no package.
    pub fn new(asked: Option<Package>, checkpoint: &Path, naming: &str, names: &StoredNames) -> Result<Target> {
        let shown = checkpoint.display();
        let known = packages(naming);
        let package = asked.or(known.last().copied());
        let package = package.with_context(|| format!("{shown}: no package loads a {naming} by its names"))?;
        let words: Vec<String> = known.iter().map(|package| format!("--for {package}")).collect();
        ensure!(
            known.contains(&package),
            "--for {package}: {shown} has {naming} names, which fit {}",
            words.join(" or ")
        );
        let class = match package {
            Package::Transformers4 | Package::Transformers5 => {
                let config = super::config::read(checkpoint)?;
                Some(families::class(&config, names).with_context(|| shown.to_string())?)
            }
            _ => None,
        };
        Ok(Target { package, class })
    }

    /// Checks that adapters fit the package's models.
    ///
    /// # Errors
    /// Fails if no package wraps their layers under names of their own, or if the package's forward goes past the wraps.
    pub fn expect_adapters(&self, names: &StoredNames) -> Result<()> {
        let apart = (self.package == Package::Timm).then(|| names.name_of_stored_end(".attn.q_bias")).flatten();
        ensure!(
            apart.is_none(),
            "{}: timm multiplies by the fused weight of such layers itself (BEiT, EVA), past what PEFT wraps, so an adapter \
             would change nothing there: --to weights exports the whole model, and fine-tuned models can be imported",
            apart.unwrap_or_default()
        );
        ensure!(
            self.package != Package::Torchvision,
            "adapters do not fit the layers of torchvision's models: --to weights, torchscript and onnx export whole models, and \
             fine-tuned models can be imported"
        );
        Ok(())
    }

    /// Returns the class if it writes texts; its logits are those of tokens.
    pub fn writer(&self) -> Option<&'static Class> {
        self.class.filter(|class| class.writes)
    }

    /// Returns 0 for transformers 4 and 1 for later versions.
    pub fn generation(&self) -> usize {
        usize::from(self.package != Package::Transformers4)
    }

    /// Returns the classifier of the package's model that is a trained head; `None` where the head stays beside it.
    pub fn classifier(&self) -> Option<&'static str> {
        match self.package {
            Package::Timm => Some("head"),
            Package::Torchvision => Some("heads.head"),
            Package::OpenClip => None,
            Package::Transformers4 | Package::Transformers5 => self.class.and_then(|class| class.classifier),
        }
    }
}
