//! The names of checkpoints: `hf://org/name[@revision]` for a repository of the Hub, `openai://ViT-B-32` for an archive of
//! CLIP.
//!
//! OpenAI's archives of CLIP have addresses that contain their SHA-256; `clip` and `open_clip` keep them in the same folder.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::base::small::SCHEMES;
use crate::schema::hint;

/// The branch that a name without a revision means.
const MAIN: &str = "main";

/// The longest part of a name and the longest revision, in characters.
const LONGEST: usize = 96;

/// A checkpoint by its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Name {
    Hub(HubName),
    OpenAi(&'static Archive),
}

/// The kind of content that a repository of the Hub holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Model,
    Dataset,
}

impl Kind {
    /// Returns the word in the addresses of the Hub's lists and in the names of the cache's folders.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Model => "models",
            Kind::Dataset => "datasets",
        }
    }

    /// Returns the start of the addresses of files and pages, and of names.
    pub fn start(self) -> &'static str {
        match self {
            Kind::Model => "",
            Kind::Dataset => "datasets/",
        }
    }
}

/// A repository of the Hub at a revision.
#[derive(Clone, Debug, PartialEq)]
pub struct HubName {
    pub kind: Kind,
    /// `org/name`, or the name alone of a repository without an owner.
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
}

impl Name {
    /// Returns the name that a path is; `None` for the path of a file or a folder.
    ///
    /// # Errors
    /// Fails if it begins as a name and is none.
    pub fn of(path: &Path) -> Result<Option<Name>> {
        let text = path.to_string_lossy();
        if let Some(rest) = text.strip_prefix(SCHEMES[0]) {
            return HubName::of(rest, Kind::Model).map(|name| Some(Name::Hub(name)));
        }
        let Some(rest) = text.strip_prefix(SCHEMES[1]) else { return Ok(None) };
        let known = ARCHIVES.iter().find(|archive| archive.name == rest);
        match known {
            Some(archive) => Ok(Some(Name::OpenAi(archive))),
            None => {
                let names: Vec<&str> = ARCHIVES.iter().map(|archive| archive.name).collect();
                bail!("{text}: unknown; known: {}{}", names.join(", "), hint(rest, names.iter().copied()))
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Name::Hub(name) => name.fmt(f),
            Name::OpenAi(archive) => archive.fmt(f),
        }
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}{}", SCHEMES[0], self.kind.start(), self.repository)?;
        if self.revision == MAIN { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

impl HubName {
    /// Returns the repository of a data set that a root means, `hf://datasets/org/name` or `hf://org/name`; `None` for a folder.
    ///
    /// # Errors
    /// Fails if it begins as a name and is none.
    pub fn of_data(root: &Path) -> Result<Option<HubName>> {
        let text = root.to_string_lossy();
        let Some(rest) = text.strip_prefix(SCHEMES[0]) else { return Ok(None) };
        HubName::of(rest.strip_prefix(Kind::Dataset.start()).unwrap_or(rest), Kind::Dataset).map(Some)
    }

    fn of(text: &str, kind: Kind) -> Result<HubName> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let start = format!("{}{}", SCHEMES[0], kind.start());
        let shown = || format!("{start}{text}");
        let parts: Vec<&str> = repository.split('/').collect();
        let others = ["datasets", "spaces", "buckets", "kernels"];
        ensure!(!others.contains(&parts[0]), "{}: is no repository of a model: a checkpoint is hf://ORG/NAME", shown());
        ensure!(
            parts.len() <= 2 && parts.iter().all(|part| is_part(part)),
            "{}: must be {start}ORG/NAME or {start}ORG/NAME@REVISION, of letters, digits, `-`, `_` and `.`",
            shown()
        );
        ensure!(
            revision.len() <= LONGEST && revision.split('/').all(is_safe),
            "{}: the revision behind @ must be a branch, a tag or a commit",
            shown()
        );
        Ok(HubName { kind, repository: repository.to_string(), revision: revision.to_string() })
    }

    /// Returns this name at a commit.
    pub fn at(&self, commit: &str) -> HubName {
        HubName { revision: commit.to_string(), ..self.clone() }
    }

    /// Returns the commit, if the revision is one.
    pub fn commit(&self) -> Option<&str> {
        is_commit(&self.revision).then_some(self.revision.as_str())
    }

    /// Returns the last part of the repository's name, by which results know the checkpoint.
    pub fn last(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or(&self.repository)
    }
}

/// Returns whether a text is the whole hash of a commit.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns whether a text may be a part of a repository's name; `--` separates parts in the cache.
fn is_part(text: &str) -> bool {
    text.len() <= LONGEST && is_safe(text) && !text.contains("--") && !text.ends_with(['.', '-'])
}

/// Returns whether a text is the path of a file in a repository that leads nowhere else.
pub fn is_safe_path(text: &str) -> bool {
    text.len() <= 512 && text.split('/').all(is_safe)
}

/// Returns whether a text is a plain name of a file, of letters, digits and a few marks, that leads nowhere else.
pub fn is_safe(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    !text.is_empty() && text.chars().all(allowed) && !text.starts_with(['.', '-']) && !text.contains("..")
}

/// The start of the addresses.
const ADDRESS: &str = "https://openaipublic.azureedge.net/clip/models";

/// A published archive.
#[derive(Debug, PartialEq)]
pub struct Archive {
    /// The name behind `openai://`, which is that of the file without `.pt`.
    pub name: &'static str,
    pub sha256: &'static str,
}

impl Archive {
    pub fn file(&self) -> String {
        format!("{}.pt", self.name)
    }

    /// Returns the address, which contains the hash.
    pub fn url(&self) -> String {
        format!("{ADDRESS}/{}/{}", self.sha256, self.file())
    }
}

impl fmt::Display for Archive {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", SCHEMES[1], self.name)
    }
}

const fn archive(name: &'static str, sha256: &'static str) -> Archive {
    Archive { name, sha256 }
}

/// All of them, from `_MODELS` of `clip/clip.py` at github.com/openai/CLIP, compared with `pretrained.py` of open_clip 3.
pub const ARCHIVES: [Archive; 9] = [
    archive("RN50", "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762"),
    archive("RN101", "8fa8567bab74a42d41c5915025a8e4538c3bdbe8804a470a72f30b0d94fab599"),
    archive("RN50x4", "7e526bd135e493cef0776de27d5f42653e6b4c8bf9e0f653bb11773263205fdd"),
    archive("RN50x16", "52378b407f34354e150460fe41077663dd5b39c54cd0bfd2b27167a4a06ec9aa"),
    archive("RN50x64", "be1cfb55d75a9666199fb2206c106743da0f6468c9d327f3e0d0a543a9919d9c"),
    archive("ViT-B-32", "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af"),
    archive("ViT-B-16", "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f"),
    archive("ViT-L-14", "b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836"),
    archive("ViT-L-14-336px", "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02"),
];
