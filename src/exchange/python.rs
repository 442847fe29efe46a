//! The Python that loads an export and computes its logits.

use std::path::Path;

use anyhow::Result;
use tch::Kind;

use crate::exchange::head::lines as through_head;
use crate::exchange::modules::Target;
use crate::exchange::outgoing::{Loaded, Outgoing};
use crate::exchange::peft::{HeadPlace, head_place};
use crate::exchange::texts;
use crate::exchange::weights::{ARCHIVE, place};
use crate::model::archive::Archive;
use crate::model::recognition::Package;

/// Returns the lines that load the first model of the export in `folder` and compute its logits.
///
/// # Errors
/// Fails if the head has no place.
pub fn lines(outgoing: &Outgoing, target: &Target, folder: &Path, loaded: Loaded) -> Result<String> {
    let head = match loaded {
        Loaded::Adapter => head_place(outgoing, target, 0)?,
        Loaded::Weights => place(outgoing, target, 0)?,
    };
    if let Some(class) = target.writer() {
        return Ok(texts::lines(outgoing, class, (folder, &head), loaded));
    }
    let classes = outgoing.session.model.head.classes();
    let at = outgoing.folder(folder, 0);
    let at = at.display();
    let is_archive = outgoing.is_archive()? && loaded == Loaded::Weights;
    let package = if is_archive { "" } else { package(target.package) };
    let mut text = format!("import torch{package}\nfrom safetensors.torch import load_file\n");
    let create = create(outgoing, target, &head, loaded, &at.to_string(), classes)?;
    text += &format!("model = {create}\n");
    if loaded == Loaded::Adapter && target.package == Package::Timm && matches!(head, HeadPlace::Saved(..)) {
        text += &format!("model.reset_classifier({classes})\n");
    }
    if loaded == Loaded::Adapter {
        text = format!(
            "from peft import PeftModel\n{text}model = PeftModel.from_pretrained(model, {:?})\n",
            at.to_string()
        );
    }
    text += &format!("model.eval()\nexpected = load_file(\"{at}/expected.safetensors\")\n");
    let encoded = texts::encoded(outgoing);
    text += "with torch.no_grad():\n";
    text += if encoded.is_none() { "    pixels = expected[\"pixels\"]\n" } else { "" };
    let beside = matches!(head, HeadPlace::Beside { .. });
    let call = match encoded {
        Some(call) => format!("{call}.{}", target.class.map_or("logits", |class| class.features)),
        None if is_archive => archive_call(outgoing)?,
        None => call(outgoing, target, beside),
    };
    text += &format!("    output = {call}\n");
    if let HeadPlace::Beside { normalised } = head {
        text += &through_head(&at.to_string(), normalised);
    }
    text += "    print((output - expected[\"logits\"]).abs().max() / expected[\"logits\"].abs().max())\n";
    Ok(text)
}

/// Returns what follows `import torch`.
fn package(package: Package) -> &'static str {
    match package {
        Package::Timm => ", timm",
        Package::OpenClip => ", open_clip",
        Package::Torchvision => ", torchvision",
        Package::Transformers4 | Package::Transformers5 => ", transformers",
    }
}

/// Returns the expression that makes the package's model.
fn create(
    outgoing: &Outgoing,
    target: &Target,
    head: &HeadPlace,
    loaded: Loaded,
    at: &str,
    classes: i64,
) -> Result<String> {
    let from = if loaded == Loaded::Weights { at.to_string() } else { outgoing.source().display().to_string() };
    if outgoing.is_archive()? && loaded == Loaded::Weights {
        return Ok(format!("torch.jit.load(\"{at}/{ARCHIVE}\")"));
    }
    if !outgoing.source().is_dir() && loaded == Loaded::Adapter {
        return Ok(format!("...  # the model of {} with the weights of {from}", target.package));
    }
    let new_head = matches!(head, HeadPlace::Saved(..)) && loaded == Loaded::Adapter;
    let resized = outgoing.is_resized() && loaded == Loaded::Adapter;
    Ok(match (target.package, target.class) {
        (Package::Timm, _) => {
            let size = if resized { format!(", img_size={}", outgoing.image_size()?) } else { String::new() };
            format!("timm.create_model(\"local-dir:{from}\", pretrained=True{size})")
        }
        (Package::OpenClip, _) => {
            let size = if resized { format!(", force_image_size={}", outgoing.image_size()?) } else { String::new() };
            format!("open_clip.create_model(\"local-dir:{from}\"{size})")
        }
        (_, class) => {
            let config = outgoing.config()?.unwrap_or_default();
            // The checkpoint's own class has its classifier.
            let keeps_head = loaded == Loaded::Weights && outgoing.session.names.name_of("head.weight").is_some();
            let own = config["architectures"][0].as_str().filter(|_| keeps_head);
            let name = own.or(class.map(|class| class.name)).unwrap_or("AutoModel");
            let count = format!(", num_labels={classes}, ignore_mismatched_sizes=True");
            let count = if new_head { count } else { String::new() };
            // The logits of texts were computed in f32, whatever the type of the weights.
            let kind = if texts::encoded(outgoing).is_some() { ", dtype=torch.float32" } else { "" };
            format!("transformers.{name}.from_pretrained(\"{from}\"{count}{kind})")
        }
    })
}

/// Returns the expression for what an archive itself computes, in the type of its weights.
fn archive_call(outgoing: &Outgoing) -> Result<String> {
    let archive = Archive::open(outgoing.checkpoint())?;
    let method = match archive.image_method() {
        "forward" => "model".to_string(),
        method => format!("model.{method}"),
    };
    Ok(match archive.kind() {
        Kind::Half => format!("{method}(pixels.half()).float()"),
        Kind::BFloat16 => format!("{method}(pixels.bfloat16()).float()"),
        _ => format!("{method}(pixels)"),
    })
}

/// Returns the expression for logits, or for features where the head is beside the model.
fn call(outgoing: &Outgoing, target: &Target, beside: bool) -> String {
    match (target.package, target.class) {
        (Package::Timm, _) if beside => "model.forward_head(model.forward_features(pixels), pre_logits=True)".into(),
        (Package::Timm, _) => "model(pixels)".into(),
        (Package::OpenClip, _) => "model.encode_image(pixels)".into(),
        (_, class) => {
            let feature = class.map_or("logits", |class| class.features);
            let asks = class.is_none_or(|class| class.asks_to_resize);
            let size = if outgoing.is_resized() && asks { ", interpolate_pos_encoding=True" } else { "" };
            format!("model(pixel_values=pixels{size}).{feature}")
        }
    }
}
