//! A module (`checkpoint.kind = "module"`) again, with its own code, merged weights and the trained classifier.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::Tensor;

use super::expected::{self, Expected};
use super::outgoing::{ARCHIVE, HeadOf, Outgoing};
use crate::base::tensor::is_zero;
use crate::hub::{ADDED_TOKENS, TOKENIZER};
use crate::model::archive::Archive;
use crate::model::folder::home;
use crate::model::module::trained_as;

/// The module's last layer, if that is a classifier of its own.
struct Classifier {
    weight: String,
    /// The bias, which it may lack.
    bias: Option<String>,
}

impl Classifier {
    /// Returns the layer that bella has taken off the module.
    fn of(outgoing: &Outgoing, archive: &Archive) -> Option<Classifier> {
        let (base, width) = (&outgoing.session.model.base, outgoing.session.model.network.feature_width());
        let listed = archive.listed();
        let taken = |name: &str| base.get(&trained_as(name)).is_none();
        let weight = listed.iter().rev().find(|parameter| {
            taken(&parameter.name) && parameter.name.ends_with("weight") && parameter.shape.get(1) == Some(&width)
        })?;
        let bias = format!("{}bias", weight.name.trim_end_matches("weight"));
        let bias = listed.iter().any(|parameter| parameter.name == bias).then_some(bias);
        Some(Classifier { weight: weight.name.clone(), bias })
    }
}

/// Writes a module with the weights of one model into an existing folder. If its code computes features, the head is beside it.
///
/// # Errors
/// Fails if the head has no place in it, or if a file cannot be written.
pub fn write(outgoing: &Outgoing, model: usize, folder: &Path) -> Result<()> {
    let archive = Archive::open(outgoing.checkpoint())?;
    let head = outgoing.head(model);
    let classifier = Classifier::of(outgoing, &archive);
    if let Some(classifier) = &classifier {
        expect_place(outgoing, &archive, classifier, &head)?;
    }
    let change = |name: &str, old: &Tensor| {
        if let Some(classifier) = classifier.as_ref().filter(|_| head.trained) {
            if name == classifier.weight {
                return Some(head.weight.view_as(old));
            }
            if classifier.bias.as_deref() == Some(name) {
                return Some(head.bias.shallow_clone());
            }
        }
        outgoing.value(model, &trained_as(name))
    };
    archive.save_changed(&folder.join(ARCHIVE), &change)?;
    copy_tokenizer(outgoing, folder)?;
    if classifier.is_none() { outgoing.write_head(model, folder) } else { Ok(()) }
}

/// Copies the tokenizer of a text encoder, if the module is one.
fn copy_tokenizer(outgoing: &Outgoing, folder: &Path) -> Result<()> {
    let Some(tokenizer) = &outgoing.experiment.checkpoint.tokenizer else { return Ok(()) };
    let files = TOKENIZER.iter().chain(&ADDED_TOKENS).map(|name| (home(tokenizer).join(name), folder.join(name)));
    for (from, to) in files.filter(|(from, _)| from.is_file()) {
        std::fs::copy(&from, &to).with_context(|| format!("{}: cannot copy", from.display()))?;
    }
    Ok(())
}

/// Checks that the head can take the place of the module's own classifier.
fn expect_place(outgoing: &Outgoing, archive: &Archive, classifier: &Classifier, head: &HeadOf) -> Result<()> {
    let shown = outgoing.checkpoint().display();
    let own = archive.listed().iter().find(|parameter| parameter.name == classifier.weight);
    let rows = own.and_then(|own| own.shape.first().copied()).unwrap_or_default();
    let (key, classes) = (&outgoing.experiment.head.key, head.weight.size()[0]);
    ensure!(
        head.trained || key == "checkpoint",
        "[head.{key}] reads features, but the code of {shown} ends in a classifier of its own: it has no place for this head"
    );
    ensure!(
        rows == classes && !head.normalised,
        "{shown}: its code ends in a classifier of {rows} classes, which has no place for the head of {classes}"
    );
    let biased = !is_zero(&head.bias);
    ensure!(
        classifier.bias.is_some() || !biased,
        "{shown}: its classifier has no bias, so it has no place for that of the head"
    );
    Ok(())
}

/// Returns the lines that load the first module below `folder` and compute its logits.
///
/// # Errors
/// Fails if the checkpoint cannot be read.
pub fn lines(outgoing: &Outgoing, expected: &Expected, folder: &Path) -> Result<String> {
    let at = outgoing.folder(folder, 0);
    let at = at.display();
    let inside = Classifier::of(outgoing, &Archive::open(outgoing.checkpoint())?).is_some();
    let arguments: Vec<String> = expected.names().map(|name| format!("expected[\"{name}\"]")).collect();
    let mut text = format!(
        "import torch\nfrom safetensors.torch import load_file\nmodel = torch.jit.load(\"{at}/{ARCHIVE}\").eval()\n\
         expected = load_file(\"{at}/expected.safetensors\")\nwith torch.no_grad():\n    \
         output = model({}).flatten(1)\n",
        arguments.join(", ")
    );
    if !inside {
        text += &expected::head_lines(&at.to_string(), outgoing.session.model.head.normalised);
    }
    text += "    print((output - expected[\"logits\"]).abs().max() / expected[\"logits\"].abs().max())\n";
    Ok(text)
}
