//! The names of checkpoints: `hf://org/name[@revision]` for a repository of the Hub, `openai://ViT-B-32` for an archive of
//! CLIP.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use super::openai::{ARCHIVES, Archive};
use crate::base::paths::SCHEMES;
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

/// A repository of the Hub at a revision.
#[derive(Clone, Debug, PartialEq)]
pub struct HubName {
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
            return HubName::of(rest).map(|name| Some(Name::Hub(name)));
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
        write!(f, "{}{}", SCHEMES[0], self.repository)?;
        if self.revision == MAIN { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

impl HubName {
    fn of(text: &str) -> Result<HubName> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let shown = || format!("{}{text}", SCHEMES[0]);
        let parts: Vec<&str> = repository.split('/').collect();
        let others = ["datasets", "spaces", "buckets", "kernels"];
        ensure!(!others.contains(&parts[0]), "{}: is no repository of a model: a checkpoint is hf://ORG/NAME", shown());
        ensure!(
            parts.len() <= 2 && parts.iter().all(|part| is_part(part)),
            "{}: must be hf://ORG/NAME or hf://ORG/NAME@REVISION, of letters, digits, `-`, `_` and `.`",
            shown()
        );
        ensure!(
            revision.len() <= LONGEST && revision.split('/').all(is_safe),
            "{}: the revision behind @ must be a branch, a tag or a commit",
            shown()
        );
        Ok(HubName { repository: repository.to_string(), revision: revision.to_string() })
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

/// Returns whether a text is a plain name of a file, of letters, digits and a few marks, that leads nowhere else.
pub fn is_safe(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    !text.is_empty() && text.chars().all(allowed) && !text.starts_with(['.', '-']) && !text.contains("..")
}
