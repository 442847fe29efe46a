//! `[checkpoint]`: the pretrained network, and settings that its file does not contain.

use std::cell::OnceCell;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::folder::{Preprocessing, TOKENIZER, content, home};
use super::module::tokens;
use super::preprocess::Normalize;
use crate::base::hash::{file_sha256, text_sha256};
use crate::data::{Interpolation, Medium, Resize};
use crate::model::language::is_language;
use crate::model::llava::is_llava;
use crate::model::vit::identify::Fixed;
use crate::schema::{Bounds, Reader, hint, words};

/// The possible numbers of pixels per side of the images that a network takes.
pub const IMAGE_SIDES: RangeInclusive<i64> = 1..=4096;

/// The endings of files of weights, and of the index of several.
const ENDINGS: [&str; 5] = ["pt", "pth", "safetensors", "bin", "json"];

/// Returns the name of a checkpoint in results: that of the file without its ending, or of the folder, which may have a dot in
/// its name (`llava-1.5-7b-hf`).
pub fn checkpoint_name(path: &Path) -> String {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let is_file = ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()));
    let name = if is_file { path.file_stem() } else { path.file_name() };
    name.map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

words! {
    /// The forward pass that runs a checkpoint.
    pub enum Kind {
        /// bella's own, for vision transformers.
        Native = "native",
        /// The forward of the TorchScript module itself, on images or on texts.
        Module = "module",
        /// bella's own, for language networks.
        Language = "language",
        /// bella's own, for language networks that see images.
        VisionLanguage = "vision-language",
    }
}

impl Kind {
    fn read(reader: &Reader, path: &Path) -> Kind {
        reader
            .choice("kind")
            .about(
                "Forward pass: `native` for vision transformers, `language` for language networks and `vision-language` for those \
                 that see images (the defaults where the folder is one's), `module` for the own one of any TorchScript module.",
            )
            .or_else(|| Kind::of(path))
    }

    /// Returns the forward pass of a checkpoint that does not name one.
    fn of(path: &Path) -> Kind {
        match path {
            path if is_language(path) => Kind::Language,
            path if is_llava(path) => Kind::VisionLanguage,
            _ => Kind::Native,
        }
    }
}

/// The table `[checkpoint]`.
#[derive(Serialize)]
pub struct CheckpointSpec {
    pub path: PathBuf,
    #[serde(skip_serializing_if = "is_native")]
    pub kind: Kind,
    /// The number of pixels per side; the checkpoint's own by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<i64>,
    /// The normalisation of pixels; `None` for a language network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<Normalize>,
    /// The filter that resizes images to the network's input.
    #[serde(skip_serializing_if = "is_bicubic")]
    pub interpolation: Interpolation,
    /// The share of the resized shorter side that the centre crop keeps.
    #[serde(skip_serializing_if = "is_all")]
    pub crop_pct: f64,
    /// The folder of the tokenizer of a module that takes texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The most tokens of a text; 512, or what the network reads if that is less, by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    /// Whether a module's texts are cut at `max_tokens`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncate: bool,
    #[serde(flatten)]
    pub fixed: Fixed,
    /// The preparation of images that a folder asks for, used where the config says nothing.
    #[serde(skip)]
    pub usual: Preprocessing,
    /// The SHA-256 of the file, once it has been computed.
    #[serde(skip)]
    sha256: OnceCell<String>,
}

impl CheckpointSpec {
    /// Reads the table.
    pub fn read(reader: Reader) -> CheckpointSpec {
        let path = read_path(&reader);
        let usual = Preprocessing::of(&path);
        // What a file does not say because it is not there is not asked of the user.
        let is_missing = !path.as_os_str().is_empty() && !reader.is_surveyed() && !path.exists();
        let missing = is_missing.then(|| no_such(&path));
        let kind = Kind::read(&reader, &path);
        let tokenizer = read_tokenizer(&reader, kind, &path);
        let medium = medium(kind, tokenizer.is_some());
        check_module(&reader, (kind, medium), &path);
        check_medium(&reader, kind, medium);
        check_preparation(&reader, medium, &usual);
        let spec = CheckpointSpec {
            path,
            kind,
            image_size: reader
                .integer("image_size", IMAGE_SIDES)
                .about("Height and width of the network's input in pixels; the checkpoint's own by default.")
                .optional(),
            normalize: match medium {
                // A module of which nothing says what it takes has been reported.
                Medium::Images | Medium::Questions if missing.is_some() && !reader.has("normalize") => {
                    missing.iter().for_each(|why| reader.problem("path", why.as_str()));
                    None
                }
                Medium::Images if kind == Kind::Module && !reader.has("image_size") && !reader.has("normalize") => None,
                // A normalisation that cannot be computed has been reported, too.
                _ if usual.refused.iter().any(|refused| refused.key == "normalize") && !reader.has("normalize") => None,
                Medium::Images | Medium::Questions => Some(Normalize::read(&reader, usual.normalize)),
                Medium::Texts => None,
            },
            interpolation: read_interpolation(&reader, usual.interpolation),
            crop_pct: read_crop_pct(&reader, usual.crop_pct),
            tokenizer,
            max_tokens: reader
                .integer("max_tokens", 1..=1 << 20)
                .about("Most tokens of a text; 512, or what the network reads if that is less, by default.")
                .optional(),
            truncate: read_truncate(&reader),
            fixed: Fixed::read(&reader),
            usual,
            sha256: OnceCell::new(),
        };
        reader.finish();
        spec
    }

    /// Returns what the network takes.
    pub fn medium(&self) -> Medium {
        medium(self.kind, self.tokenizer.is_some())
    }

    /// Returns whether the config says what the network takes; where it does not, that is a mistake of its own.
    pub fn is_decided(&self) -> bool {
        self.kind != Kind::Module || self.tokenizer.is_some() || self.image_size.is_some()
    }

    /// Says in what the preparation of images differs from what the folder asks for. `resize` is that of the data set.
    pub fn deviations(&self, resize: Option<Resize>) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |key: &str, own: String, asked: Option<String>| {
            if let Some(asked) = asked.filter(|asked| *asked != own) {
                found
                    .push(format!("{key} is {own}, but the checkpoint's folder asks for {asked}: the config's counts"));
            }
        };
        if let Some(own) = self.normalize {
            note("checkpoint.normalize", own.to_string(), self.usual.normalize.map(|asked| asked.to_string()));
        }
        let asked = self.usual.interpolation.map(|asked| asked.to_string());
        note("checkpoint.interpolation", self.interpolation.to_string(), asked);
        note("checkpoint.crop_pct", self.crop_pct.to_string(), self.usual.crop_pct.map(|asked| asked.to_string()));
        // Networks that answer questions see padded images, whatever a folder of transformers says.
        if let Some(resize) = resize.filter(|_| self.medium() == Medium::Images) {
            note("the data set's resize", resize.to_string(), self.usual.resize.map(|asked| asked.to_string()));
        }
        found
    }

    /// Returns the normalisation of pixels.
    ///
    /// # Errors
    /// Fails for a language network.
    pub fn normalization(&self) -> Result<Normalize> {
        self.normalize.context("this network takes no images, which this command needs")
    }

    /// Returns the SHA-256 of the file, which is read once.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn sha256(&self) -> Result<&str> {
        if let Some(known) = self.sha256.get() {
            return Ok(known);
        }
        let files = content(&self.path)?.into_iter().map(|file| file_sha256(&file, "checkpoint.path"));
        let beside = self.tokenizer.iter().flat_map(|path| TOKENIZER.map(|name| tokens::folder(path).join(name)));
        let beside = beside.filter(|file| file.is_file()).map(|file| file_sha256(&file, "checkpoint.tokenizer"));
        let hashes = files.chain(beside).collect::<Result<Vec<String>>>()?;
        // Several files, those of a folder, are known by the hash of their hashes.
        let hash = if let [one] = &hashes[..] { one.clone() } else { text_sha256(&hashes.concat()) };
        Ok(self.sha256.get_or_init(|| hash))
    }
}

/// Returns the sentence about a path that does not exist, with the name beside it that was probably meant.
fn no_such(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let own = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    format!("{}: no such file or folder{}", path.display(), hint(&own, names.iter().map(String::as_str)))
}

fn read_path(reader: &Reader) -> PathBuf {
    reader
        .path("path")
        .about(
            "Network to start from: a publisher's folder with config.json and weights, a file of weights (.safetensors, \
             .pth, .bin) or their index, or a TorchScript archive.",
        )
        .required_because("the folder, the file of weights or the TorchScript archive (.pt) to start from")
}

fn read_truncate(reader: &Reader) -> bool {
    reader
        .boolean("truncate")
        .about(
            "Whether texts of a text encoder that are longer than `max_tokens` are cut, of a pair the longer text first, \
             instead of being refused.",
        )
        .or(false)
}

fn read_interpolation(reader: &Reader, usual: Option<Interpolation>) -> Interpolation {
    let field = reader.choice("interpolation");
    field
        .about("Filter by which images get the size of the network's input.")
        .or(usual.unwrap_or(Interpolation::Bicubic))
}

fn read_crop_pct(reader: &Reader, usual: Option<f64>) -> f64 {
    reader
        .float("crop_pct", Bounds::between(0.1, 1.0))
        .about("Share of the side of a resized image that the centre crop keeps, as in timm; for images from files.")
        .or(usual.unwrap_or(1.0))
}

/// Reads where the tokenizer of a module lies: beside its archive unless the config says otherwise.
fn read_tokenizer(reader: &Reader, kind: Kind, path: &Path) -> Option<PathBuf> {
    let given = reader.path("tokenizer").about(
        "Folder of the tokenizer (`tokenizer.json`, `tokenizer_config.json`) of a module that takes texts; that of the \
         archive by default, where one lies there and `image_size` is absent.",
    );
    let beside = || (home(path).join(TOKENIZER[0]).is_file() && !reader.has("image_size")).then(|| home(path));
    given.optional().or_else(|| if kind == Kind::Module { beside() } else { None })
}

/// Returns what a network takes.
fn medium(kind: Kind, has_tokenizer: bool) -> Medium {
    match kind {
        Kind::Language => Medium::Texts,
        Kind::VisionLanguage => Medium::Questions,
        Kind::Module if has_tokenizer => Medium::Texts,
        Kind::Native | Kind::Module => Medium::Images,
    }
}

/// Reports keys that a module needs, and those that mean nothing to it.
fn check_module(reader: &Reader, (kind, medium): (Kind, Medium), path: &Path) {
    if kind != Kind::Module {
        return;
    }
    if path.is_dir() {
        reader.problem("kind", "a module is a TorchScript archive (.pt), and path is a folder: leave kind out");
    }
    if medium == Medium::Images && !reader.has("image_size") {
        reader.problem(
            "image_size",
            "must be set with kind = \"module\", since a module does not tell it; for a module of texts, set tokenizer instead",
        );
    }
    for key in ["architecture", "heads", "activation", "eps"].into_iter().filter(|key| reader.has(key)) {
        reader.problem(key, "means nothing with kind = \"module\", which runs the module's own forward: leave it out");
    }
}

/// Reports keys that mean nothing to what the network takes.
fn check_medium(reader: &Reader, kind: Kind, medium: Medium) {
    let (keys, why): (&[&str], &str) = match (medium, kind) {
        (Medium::Images, _) => (
            &["max_tokens", "truncate"],
            "is for networks of texts: leave it out, or set kind = \"language\", or tokenizer with kind = \"module\"",
        ),
        (Medium::Questions, _) => (
            &["image_size", "architecture", "heads", "activation", "eps"],
            "means nothing to a network of images and texts, whose config.json says it: leave it out",
        ),
        (Medium::Texts, Kind::Module) => (
            &["image_size", "normalize", "interpolation", "crop_pct"],
            "means nothing to a module of texts: leave it out",
        ),
        (Medium::Texts, _) => (
            &["image_size", "normalize", "interpolation", "architecture", "heads", "activation", "eps"],
            "means nothing to a language network, whose config.json says everything: leave it out",
        ),
    };
    keys.iter().filter(|key| reader.has(key)).for_each(|key| reader.problem(key, why));
    if kind != Kind::Module && reader.has("tokenizer") {
        reader
            .problem("tokenizer", "is for kind = \"module\"; other networks have theirs in their folder: leave it out");
    }
}

/// Reports what a folder asks for and bella does not do, where the config does not say what takes its place.
fn check_preparation(reader: &Reader, medium: Medium, usual: &Preprocessing) {
    // Networks that answer questions see whole images with a border, whatever a folder says of crops.
    let counts = |key: &str| match medium {
        Medium::Images => true,
        Medium::Questions => ["interpolation", "normalize"].contains(&key),
        Medium::Texts => false,
    };
    for refused in usual.refused.iter().filter(|refused| counts(refused.key) && !reader.has(refused.key)) {
        reader.problem(refused.key, &refused.why);
    }
}

fn is_native(kind: &Kind) -> bool {
    *kind == Kind::Native
}

/// Tells serde to omit the default, so that runs keep their identity.
fn is_all(crop_pct: &f64) -> bool {
    *crop_pct == 1.0
}

fn is_bicubic(interpolation: &Interpolation) -> bool {
    *interpolation == Interpolation::Bicubic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_keep_the_dots_of_their_names() {
        for (path, name) in [
            ("a/ViT-B-32.pt", "ViT-B-32"),
            ("model.safetensors", "model"),
            ("a/model.safetensors.index.json", "model.safetensors.index"),
            ("models/llava-1.5-7b-hf", "llava-1.5-7b-hf"),
            ("Qwen2.5-7B/", "Qwen2.5-7B"),
        ] {
            assert_eq!(checkpoint_name(Path::new(path)), name);
        }
    }
}
