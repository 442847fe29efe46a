//! `[checkpoint]`: the pretrained network, and settings that its file does not contain.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::base::hash::{file_sha256, text_sha256};
use crate::data::{Interpolation, Medium, Resize};
use crate::hub::{ADDED_TOKENS, NO_NETWORK, Place, Settings, TOKENIZER, last_part};
use crate::machine::quantised::Scheme;
use crate::model::backbone::{Opened, Opening};
use crate::model::chat::Chat;
use crate::model::encoder::Stated;
use crate::model::families::encoders::Features;
use crate::model::folder::{Preprocessing, content, home, stranger};
use crate::model::kind::{Foreign, KindEntry, TokenizerAt};
use crate::model::module::tokens;
use crate::model::native::{self, IMAGE_SIDES};
use crate::model::preparation::Normalize;
use crate::model::recognition::identify::Fixed;
use crate::model::{encoder, language, module, sighted};
use crate::schema::{Choice, Reader, hint, settings, words};

/// The endings of files of weights, and of the index of several.
const ENDINGS: [&str; 5] = ["pt", "pth", "safetensors", "bin", "json"];

/// Returns the name of a checkpoint in results: that of the file without its ending, or of the folder or repository, which may
/// have a dot in its name (`llava-1.5-7b-hf`).
pub fn checkpoint_name(path: &Path) -> String {
    let last = last_part(path);
    let path = Path::new(&last);
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
        /// bella's own, for text encoders.
        Encoder = "encoder",
        /// bella's own, for language networks.
        Language = "language",
        /// bella's own, for language networks that see images.
        VisionLanguage = "vision-language",
    }
}

impl Kind {
    /// Returns whether the checkpoint computes by its own code rather than by a pass of bella.
    pub fn runs_own_code(self) -> bool {
        self == Kind::Module
    }

    /// Returns the entry, in which the file of each kind states all that depends on the kind.
    pub fn entry(self) -> &'static KindEntry {
        match self {
            Kind::Native => &native::KIND,
            Kind::Module => &module::KIND,
            Kind::Encoder => &encoder::KIND,
            Kind::Language => &language::KIND,
            Kind::VisionLanguage => &sighted::KIND,
        }
    }

    /// Returns whether the network is a vision transformer.
    pub fn is_image_tower(self) -> bool {
        self == Kind::Native
    }

    /// Returns the forward pass of a checkpoint that does not name one.
    fn of(path: &Path) -> Kind {
        let mut all = Kind::CHOICES.iter().map(|(_, kind)| *kind);
        all.find(|kind| (kind.entry().lies_at)(path)).unwrap_or(Kind::Native)
    }
}

settings! {
    /// The table `[checkpoint]`.
    pub struct CheckpointSpec {
        /// Network to start from: a publisher's folder with config.json and weights, a file of weights (.safetensors, .pth,
        /// .bin) or their index, a TorchScript archive, or a name that is downloaded (`hf://ORG/NAME@REVISION`,
        /// `openai://ViT-B-32`).
        pub path: Place, because "the folder, the file of weights or the TorchScript archive (.pt) to start from";
        // The preparation of images that a folder asks for, used where the config says nothing.
        pub usual: Preprocessing, given Preprocessing::of(&path);
        /// Forward pass: `native` for vision transformers, `encoder` for text encoders, `language` for language networks and
        /// `vision-language` for those that see images (the defaults where the folder is one's), `module` for the own one of
        /// any TorchScript module.
        pub kind: Kind = Kind::of(&path), omit Kind::Native;
        /// Numbers of a row that a module takes; for a module of rows of numbers, such as those of `[data.uci]`.
        pub inputs: Option<i64>, in 1..=1 << 20;
        pub tokenizer: Option<PathBuf>, by |reader| read_tokenizer(reader, kind, &path);
        /// Height and width of the network's input in pixels; the checkpoint's own by default.
        pub image_size: Option<i64>, in IMAGE_SIDES;
        // `None` for a network that takes no images.
        pub normalize: Option<Normalize>,
            by |reader| read_normalize(reader, &path, kind, medium_of(kind, inputs, tokenizer.is_some()), &usual);
        /// Filter by which images get the size of the network's input.
        pub interpolation: Interpolation = usual.default_interpolation(), omit Interpolation::Bicubic;
        /// Share of the side of a resized image that the centre crop keeps, as in timm; for images from files.
        pub crop_pct: f64 = usual.default_crop_pct(), in between(0.1, 1.0), omit 1.0;
        // What the folder of a text encoder states for sentence-transformers.
        stated: Stated, given if kind == Kind::Encoder { Stated::of(&path) } else { Stated::default() };
        /// Most tokens of a text; by default what a folder of sentence-transformers says, or else 512, or what the network reads if that is
        /// less.
        pub max_tokens: Option<i64>, unset stated.tokens(), in 1..=1 << 20;
        /// Whether texts of a text encoder that are longer than `max_tokens` are cut, of a pair the longer text first,
        /// instead of being refused.
        pub truncate: bool = false, omit false;
        /// Features of a text encoder: the outputs of the layer that its class for classification has in front of the classifier (`pooled`),
        /// the hidden state of the first token (`first`), or the mean of all tokens (`mean`); by default what a folder of sentence-transformers
        /// says, or else `pooled` where the weights have that layer, and `first` where they have not. A layer that they do not have is new, and
        /// must be trained.
        pub features: Option<Features>, unset stated.features();
        /// Whether the features of a text encoder are divided by their L2 norm; by default as a folder of sentence-transformers says, where
        /// `features` are those that it says.
        pub unit_features: bool = stated.is_unit(&features), omit false;
        /// Text around every prompt of a language network, as its chat template writes it, with `{prompt}` where the prompt
        /// belongs; special tokens are spelled out in it, and none is added at the edges.
        pub chat: Option<Chat>;
        /// Bits in which the frozen weights of the blocks' linear layers are kept: `int8` with a scale for each output, `nf4` in 4
        /// bits with a scale for each 64 weights, as QLoRA has them; as they are computed with by default.
        pub quantize: Option<Scheme>;
        pub fixed: Fixed, part Fixed::read;
        // The SHA-256 of the file, once it has been computed.
        sha256: OnceCell<String>, given OnceCell::new();
    } then check
}

impl CheckpointSpec {
    fn check(&self, reader: &Reader) {
        let medium = self.medium();
        check_module(reader, self.kind, medium, &self.path);
        check_medium(reader, self.kind, medium);
        check_preparation(reader, medium, &self.usual);
        self.stated.check(reader);
    }

    /// Returns the kind of samples that the network takes.
    pub fn medium(&self) -> Medium {
        medium_of(self.kind, self.inputs, self.tokenizer.is_some())
    }

    /// Returns whether the config tells the kind of samples that the network takes; a config that does not has a mistake of its own.
    pub fn is_decided(&self) -> bool {
        !self.kind.runs_own_code() || self.tokenizer.is_some() || self.image_size.is_some() || self.inputs.is_some()
    }

    /// Returns why the network is not read, where the config in its folder names one that bella does not know.
    pub fn stranger(&self) -> Option<String> {
        self.kind.is_image_tower().then(|| stranger(&self.path)).flatten()
    }

    /// Says in what the preparation of images differs from what the folder asks for. `resize` is that of the data set.
    pub fn deviations(&self, resize: Option<Resize>) -> Vec<String> {
        self.deviations_from(&self.usual, "the checkpoint's folder", resize)
    }

    /// Says the same beside what a folder `name` asks for.
    pub fn deviations_from(&self, usual: &Preprocessing, name: &str, resize: Option<Resize>) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |key: &str, own: String, asked: Option<String>| {
            if let Some(asked) = asked.filter(|asked| *asked != own) {
                found.push(format!("{key} is {own}, but {name} asks for {asked}: the config's counts"));
            }
        };
        if let Some(own) = self.normalize {
            note("checkpoint.normalize", own.to_string(), usual.normalize.map(|asked| asked.to_string()));
        }
        let asked = usual.interpolation.map(|asked| asked.to_string());
        note("checkpoint.interpolation", self.interpolation.to_string(), asked);
        note("checkpoint.crop_pct", self.crop_pct.to_string(), usual.crop_pct.map(|asked| asked.to_string()));
        // LLaVA answers questions about padded images, although its folder asks for a crop.
        let counts = self.medium() == Medium::Images || usual.resize == Some(Resize::Stretch);
        if let Some(resize) = resize.filter(|_| counts) {
            note("the data set's resize", resize.to_string(), usual.resize.map(|asked| asked.to_string()));
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

    /// Returns the path at which the network lies. A name is downloaded where that has not been done.
    ///
    /// # Errors
    /// Fails if a name cannot be had, or if there is nothing at a path.
    pub fn local(&self) -> Result<&Path> {
        let path = self.path.fetch(&Settings::of_environment()).context("checkpoint.path")?;
        ensure!(path.exists(), "checkpoint.path: {}", no_such(&self.path));
        Ok(path)
    }

    /// Opens the checkpoint by the entry of its kind.
    ///
    /// # Errors
    /// Fails if it cannot be read or does not fit the config.
    pub fn open(&self) -> Result<Opened<'_>> {
        let &CheckpointSpec { image_size, normalize, inputs, max_tokens, truncate, quantize, features, .. } = self;
        let opening = Opening {
            path: self.local()?,
            fixed: &self.fixed,
            usual: &self.usual,
            image_size,
            normalize,
            inputs,
            tokenizer: self.tokenizer.as_deref(),
            max_tokens,
            truncate,
            chat: self.chat.as_ref(),
            quantize,
            features,
        };
        (self.kind.entry().open)(&opening)
    }

    /// Returns the SHA-256 of the file, which is read once.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn sha256(&self) -> Result<&str> {
        if let Some(known) = self.sha256.get() {
            return Ok(known);
        }
        let files = content(self.local()?)?.into_iter().map(|file| file_sha256(&file, "checkpoint.path"));
        let beside = self
            .tokenizer
            .iter()
            .flat_map(|path| TOKENIZER.into_iter().chain(ADDED_TOKENS).map(|name| tokens::folder(path).join(name)));
        let beside = beside.filter(|file| file.is_file()).map(|file| file_sha256(&file, "checkpoint.tokenizer"));
        let hashes = files.chain(beside).collect::<Result<Vec<String>>>()?;
        // Several files, those of a folder, are known by the hash of their hashes.
        let hash = if let [one] = &hashes[..] { one.clone() } else { text_sha256(&hashes.concat()) };
        Ok(self.sha256.get_or_init(|| hash))
    }
}

/// Returns the sentence about a path that does not exist, with the name beside it that was probably meant, or with the way to
/// write the name of a network of the Hub.
fn no_such(path: &Place) -> String {
    if let Some(name) = path.name() {
        return format!("{name}: is not at {}, and {NO_NETWORK}, or set normalize", path.display());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let own = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let meant = match hint(&own, names.iter().map(String::as_str)) {
        none if none.is_empty() && path.extension().is_none() => {
            "; a network of the Hub is named hf://ORG/NAME".to_string()
        }
        meant => meant,
    };
    format!("{}: no such file or folder{meant}", path.display())
}

/// Reads the normalisation of pixels; `None` for a network that takes no images.
fn read_normalize(
    reader: &Reader,
    path: &Place,
    kind: Kind,
    medium: Medium,
    usual: &Preprocessing,
) -> Option<Normalize> {
    // A file that is not there leaves settings open, for which the user is not asked.
    let is_missing = !path.as_os_str().is_empty() && !reader.is_surveyed() && path.is_missing();
    match medium {
        Medium::Images | Medium::Questions if path.is_refused() && !reader.has("normalize") => None,
        // A module of which nothing says what it takes has been reported.
        Medium::Images | Medium::Questions if is_missing && !reader.has("normalize") => {
            reader.problem("path", no_such(path));
            None
        }
        Medium::Images if kind.runs_own_code() && !reader.has("image_size") && !reader.has("normalize") => None,
        // A normalisation that cannot be computed has been reported, too.
        _ if usual.refused.iter().any(|refused| refused.key == "normalize") && !reader.has("normalize") => None,
        Medium::Images | Medium::Questions => Some(Normalize::read(reader, usual.normalize)),
        Medium::Texts | Medium::Rows => None,
    }
}

/// Returns the kind of samples that a network takes.
fn medium_of(kind: Kind, inputs: Option<i64>, has_tokenizer: bool) -> Medium {
    if kind.runs_own_code() && inputs.is_some() { Medium::Rows } else { (kind.entry().medium)(has_tokenizer) }
}

/// Reads where the tokenizer of a text encoder lies: beside its weights or its archive unless the config says otherwise.
fn read_tokenizer(reader: &Reader, kind: Kind, path: &Path) -> Option<PathBuf> {
    let given = reader.path("tokenizer").about(
        "Folder of the tokenizer (`tokenizer.json`, `tokenizer_config.json`) of a text encoder; by default that of its \
         weights, or of a module's archive where one lies there and `image_size` is absent.",
    );
    let beside = || {
        (home(path).join(TOKENIZER[0]).is_file() && !reader.has("image_size") && !reader.has("inputs"))
            .then(|| home(path))
    };
    given.optional().or_else(|| match kind.entry().tokenizer {
        TokenizerAt::BesideOrNamed => beside(),
        TokenizerAt::FolderOrNamed => Some(home(path)),
        TokenizerAt::Folder => None,
    })
}

/// Reports keys that a module needs, and those that mean nothing to it.
fn check_module(reader: &Reader, kind: Kind, medium: Medium, path: &Path) {
    if !kind.runs_own_code() {
        if reader.has("inputs") {
            reader.problem("inputs", "is for a module of rows of numbers (kind = \"module\"): leave it out");
        }
        return;
    }
    if path.is_dir() {
        reader.problem("kind", "a module is a TorchScript archive (.pt), and path is a folder: leave kind out");
    }
    if medium == Medium::Images && !reader.has("image_size") {
        reader.problem(
            "image_size",
            "must be set with kind = \"module\", since a module does not tell it; for a module of texts, set tokenizer \
             instead, and for one of rows of numbers, inputs",
        );
    }
    if reader.has("quantize") {
        reader.problem("quantize", "a module computes by its own code with its own weights: leave it out");
    }
    for key in ["architecture", "heads", "activation", "eps"].into_iter().filter(|key| reader.has(key)) {
        reader.problem(key, "means nothing with kind = \"module\", which runs the module's own forward: leave it out");
    }
}

/// Reports keys that mean nothing to samples of the kind that the network takes.
fn check_medium(reader: &Reader, kind: Kind, medium: Medium) {
    let Foreign { keys, why } = (kind.entry().foreign)(medium);
    keys.iter().filter(|key| reader.sets(key)).for_each(|key| reader.problem(key, why));
    if kind != Kind::Language && reader.has("chat") {
        reader.problem("chat", "is for language networks; others read no chats by it: leave it out");
    }
    for key in ["features", "unit_features"].into_iter().filter(|key| kind != Kind::Encoder && reader.sets(key)) {
        reader.problem(key, "is for text encoders, of whose tokens a head may read one or the mean: leave it out");
    }
    if matches!(kind, Kind::Language | Kind::VisionLanguage) && reader.sets("truncate") {
        reader.problem(
            "truncate",
            "cuts the texts of encoders; a prompt ends with what is asked, and is not cut: leave it out, and raise max_tokens or \
             leave long prompts out",
        );
    }
    if kind.entry().tokenizer == TokenizerAt::Folder && reader.has("tokenizer") {
        reader.problem("tokenizer", "is for text encoders; other networks have theirs in their folder: leave it out");
    }
}

/// Reports what a folder asks for and bella does not do, where the config does not say what takes its place.
fn check_preparation(reader: &Reader, medium: Medium, usual: &Preprocessing) {
    // Networks that answer questions see whole images with a border, whatever a folder says of crops.
    let counts = |key: &str| match medium {
        Medium::Images => true,
        Medium::Questions => ["interpolation", "normalize"].contains(&key),
        Medium::Texts | Medium::Rows => false,
    };
    for refused in usual.refused.iter().filter(|refused| counts(refused.key) && !reader.has(refused.key)) {
        reader.problem(refused.key, &refused.why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_words_of_their_kinds() {
        assert!(Kind::CHOICES.iter().all(|(word, kind)| kind.entry().word == *word));
    }

    #[test]
    fn folders_keep_the_dots_of_their_names() {
        for (path, name) in [
            ("a/ViT-B-32.pt", "ViT-B-32"),
            ("model.safetensors", "model"),
            ("a/model.safetensors.index.json", "model.safetensors.index"),
            ("models/llava-1.5-7b-hf", "llava-1.5-7b-hf"),
            ("Qwen2.5-7B/", "Qwen2.5-7B"),
            ("hf://timm/vit_small_patch14_dinov2.lvd142m@v1", "vit_small_patch14_dinov2.lvd142m"),
            ("openai://ViT-B-32", "ViT-B-32"),
        ] {
            assert_eq!(checkpoint_name(Path::new(path)), name);
        }
    }
}
