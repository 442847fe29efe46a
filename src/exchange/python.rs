//! The Python that loads an export and computes its logits.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tch::Kind;

use crate::exchange::expected::head_lines as through_head;
use crate::exchange::modules::{HeadPlace, Target};
use crate::exchange::outgoing::{ARCHIVE, Outgoing};
use crate::model::archive::Archive;
use crate::model::families::encoders::Features;
use crate::model::families::{Class, LastToken};
use crate::model::recognition::Package;

/// The places that lines of Python name.
pub struct Places {
    /// The folder of the export.
    pub folder: PathBuf,
    /// The checkpoint of the run.
    pub checkpoint: Source,
}

impl Places {
    /// Returns the places on this machine of an export to a folder.
    pub fn here(outgoing: &Outgoing, folder: &Path) -> Places {
        let checkpoint = Source::Path(outgoing.source().display().to_string());
        Places { folder: folder.to_path_buf(), checkpoint }
    }

    /// Returns the places for whoever reads a model card, and has the folder of the export before them and the checkpoint by its name.
    pub fn of_readers(outgoing: &Outgoing) -> Places {
        let checkpoint = match Source::of(outgoing) {
            Source::Path(path) => {
                let name = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
                Source::Path(name.unwrap_or(path))
            }
            repository @ Source::Hub { .. } => repository,
        };
        Places { folder: ".".into(), checkpoint }
    }
}

/// The checkpoint or the export that a package loads.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A folder or a file.
    Path(String),
    /// A repository of the Hub.
    Hub { repository: String, commit: Option<String> },
}

impl Source {
    /// Returns the checkpoint of a run, by its repository where the run has it from the Hub.
    pub fn of(outgoing: &Outgoing) -> Source {
        match outgoing.experiment.checkpoint.path.repository() {
            Some(name) => {
                Source::Hub { repository: name.repository.clone(), commit: name.commit().map(str::to_string) }
            }
            None => Source::Path(outgoing.source().display().to_string()),
        }
    }

    /// Returns the path, or the name of the repository.
    pub fn name(&self) -> &str {
        match self {
            Source::Path(path) => path,
            Source::Hub { repository, .. } => repository,
        }
    }

    /// Returns the commit of a repository.
    pub fn commit(&self) -> Option<&str> {
        if let Source::Hub { commit, .. } = self { commit.as_deref() } else { None }
    }

    /// Returns the name that timm takes.
    fn for_timm(&self) -> String {
        let at = self.commit().map_or(String::new(), |commit| format!("@{commit}"));
        format!("{:?}", self.with_scheme() + &at)
    }

    /// Returns the name that open_clip takes, which knows no commits.
    fn for_open_clip(&self) -> String {
        format!("{:?}", self.with_scheme())
    }

    fn with_scheme(&self) -> String {
        let scheme = if let Source::Path(_) = self { "local-dir" } else { "hf-hub" };
        format!("{scheme}:{}", self.name())
    }

    /// Returns the first arguments of a `from_pretrained` of transformers.
    fn for_transformers(&self) -> String {
        let revision = self.commit().map_or(String::new(), |commit| format!(", revision={commit:?}"));
        format!("{:?}{revision}", self.name())
    }
}

/// The way in which the first model of an export is loaded.
pub struct Loading {
    pub head: HeadPlace,
    /// The folder of the model.
    pub at: String,
    pub from: Source,
    /// Whether what the package loads is the model itself, with its head, rather than the checkpoint.
    pub is_whole: bool,
    /// A line before all others.
    pub import: &'static str,
    /// The line that makes the model of what the package has loaded; nothing if that is the model.
    pub wrap: String,
}

/// Returns the lines that load a model and compute its logits.
///
/// # Errors
/// Fails if the checkpoint cannot be read.
pub fn lines(outgoing: &Outgoing, target: &Target, loading: &Loading) -> Result<String> {
    if let Some(decoder) = target.decoder() {
        let (class, last_token) = decoder;
        return Ok(after_prompts(outgoing, class, last_token, loading));
    }
    let Loading { head, at, is_whole, import, wrap, .. } = loading;
    let classes = outgoing.session.model.head.classes();
    let is_archive = outgoing.is_archive()? && *is_whole;
    let package = if is_archive { "" } else { package(target.package) };
    let created = create(outgoing, target, loading, classes)?;
    let mut text =
        format!("{import}import torch{package}\nfrom safetensors.torch import load_file\nmodel = {created}\n");
    if !is_whole && target.package == Package::Timm && matches!(head, HeadPlace::Saved(..)) {
        text += &format!("model.reset_classifier({classes})\n");
    }
    text += &format!("{wrap}model.eval()\nexpected = load_file(\"{at}/expected.safetensors\")\n");
    let encoded = encoded(outgoing);
    text += "with torch.no_grad():\n";
    text += if encoded.is_none() { "    pixels = expected[\"pixels\"]\n" } else { "" };
    let beside = matches!(head, HeadPlace::Beside { .. });
    let call = match encoded {
        Some(call) if outgoing.experiment.checkpoint.features == Some(Features::Mean) => mean(&call),
        Some(call) => format!("{call}.{}", target.class.map_or("logits", |class| class.features)),
        None if is_archive => archive_call(outgoing)?,
        None => call(outgoing, target, beside),
    };
    text += &format!("    output = {call}\n");
    if let HeadPlace::Beside { normalised } = head {
        text += &through_head(at, *normalised);
    }
    Ok(text + COMPARED)
}

/// The line that compares logits with the expected ones.
const COMPARED: &str = "    print((output - expected[\"logits\"]).abs().max() / expected[\"logits\"].abs().max())\n";

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
fn create(outgoing: &Outgoing, target: &Target, loading: &Loading, classes: i64) -> Result<String> {
    let Loading { head, at, from, is_whole, .. } = loading;
    if outgoing.is_archive()? && *is_whole {
        return Ok(format!("torch.jit.load(\"{at}/{ARCHIVE}\")"));
    }
    if !outgoing.source().is_dir() && !is_whole {
        return Ok(format!("...  # the model of {} with the weights of {}", target.package, from.name()));
    }
    let new_head = matches!(head, HeadPlace::Saved(..)) && !is_whole;
    let resized = outgoing.is_resized() && !is_whole;
    Ok(match (target.package, target.class) {
        (Package::Timm, _) => {
            let size = if resized { format!(", img_size={}", outgoing.image_size()?) } else { String::new() };
            format!("timm.create_model({}, pretrained=True{size})", from.for_timm())
        }
        (Package::OpenClip, _) => {
            let size = if resized { format!(", force_image_size={}", outgoing.image_size()?) } else { String::new() };
            format!("open_clip.create_model({}{size})", from.for_open_clip())
        }
        (_, class) => {
            let config = outgoing.config()?.unwrap_or_default();
            // The checkpoint's own class has its classifier.
            let keeps_head = *is_whole && outgoing.session.names.name_of("head.weight").is_some();
            let own = config["architectures"][0].as_str().filter(|_| keeps_head);
            let name = own.or(class.map(|class| class.name)).unwrap_or("AutoModel");
            let count = if new_head { resized_head(classes) } else { String::new() };
            // The logits were computed in f32, whatever the type of the weights.
            format!("transformers.{name}.from_pretrained({}{count}, dtype=torch.float32)", from.for_transformers())
        }
    })
}

/// Returns the options by which a class gets a new classifier of so many classes, whatever number the checkpoint's own one has.
fn resized_head(classes: i64) -> String {
    format!(", num_labels={classes}, ignore_mismatched_sizes=True")
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

/// Returns the lines that load a decoder and compute its logits after each prompt.
fn after_prompts(outgoing: &Outgoing, class: &Class, last_token: LastToken, loading: &Loading) -> String {
    let Loading { head, at, from, is_whole, import, wrap } = loading;
    let texts = outgoing.session.model.preparation.texts();
    let kinds = if texts.is_some_and(|texts| texts.kinds) { ", \"token_type_ids\"" } else { "" };
    let pixels = if texts.is_some_and(|texts| texts.image.is_some()) { ", \"pixel_values\"" } else { "" };
    // Classes that classify refuse batches where the config names no token of padding.
    let classifies = matches!(last_token, LastToken::Classes(_));
    let count = match head {
        HeadPlace::Saved(..) if !is_whole => resized_head(outgoing.session.model.head.classes()),
        _ => String::new(),
    };
    let padding = if classifies { "model.config.pad_token_id = 0\n" } else { "" };
    // The logits were computed in f32, whatever the type of the weights.
    let text = format!(
        "{import}import torch, transformers\nfrom safetensors.torch import load_file\n\
         model = transformers.{}.from_pretrained({}, dtype=torch.float32{}{count})\n{wrap}{padding}\
         model.eval()\nexpected = load_file(\"{at}/expected.safetensors\")\n\
         inputs = {{name: expected[name] for name in (\"input_ids\", \"attention_mask\"{kinds}{pixels})}}\n\
         last = expected[\"attention_mask\"].sum(1) - 1\nwith torch.no_grad():\n",
        class.name,
        from.for_transformers(),
        class.options
    );
    let rows = "[torch.arange(len(last)), last]";
    let features = format!("model(**inputs, output_hidden_states=True).{}{rows}", class.features);
    let output = match (head, last_token) {
        (HeadPlace::Beside { normalised }, _) => format!("    output = {features}\n") + &through_head(at, *normalised),
        // The class itself takes the last token that is no padding token for the last one of a text.
        (_, LastToken::Classes(layer)) => format!("    output = model.{layer}({features})\n"),
        _ => format!("    output = model(**inputs).logits{rows}{}\n", words(outgoing)),
    };
    text + &output + COMPARED
}

/// Returns the call of a text encoder's model with what it takes; `None` for another network.
fn encoded(outgoing: &Outgoing) -> Option<String> {
    let preparation = &outgoing.session.model.preparation;
    let texts = preparation.texts().filter(|_| preparation.wording().is_none())?;
    let inputs = ["\"input_ids\"", "\"attention_mask\"", "\"token_type_ids\""];
    let inputs = inputs[..if texts.kinds { 3 } else { 2 }].join(", ");
    Some(format!("model(**{{name: expected[name] for name in ({inputs})}})"))
}

/// Returns the mean of the hidden states of all tokens that a call returns.
fn mean(call: &str) -> String {
    let mask = "expected[\"attention_mask\"]";
    format!("({call}.last_hidden_state * {mask}[..., None]).sum(1) / {mask}.sum(1, keepdim=True)")
}

/// Returns the choice of the label words among the logits of all tokens; nothing where all are wanted.
fn words(outgoing: &Outgoing) -> String {
    let rows = outgoing.session.model.head.rows.as_ref();
    rows.map_or(String::new(), |rows| {
        let ids: Vec<String> = (0..rows.numel() as i64).map(|row| rows.int64_value(&[row]).to_string()).collect();
        format!("[:, [{}]]", ids.join(", "))
    })
}
