//! Checkpoints and adapters by name: a name is looked for in the caches that other programs share, and what is missing is
//! downloaded into them. Everything else receives the path of a file or a folder.

mod cache;
mod client;
mod data;
mod download;
mod fault;
mod files;
mod name;
pub mod originals;
mod repository;
mod settings;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use serde::{Serialize, Serializer};

use crate::base::hash::file_sha256;
use crate::base::logging::bar_of_bytes;
use crate::schema::{Field, Reader, Setting};
use cache::{create_beside, with_lock_of};
use client::{Ask, Client};
use download::{Download, Hash, check_space, megabytes};
use fault::{Subject, Ways};
use name::Archive;
use name::{HubName, Name};
use repository::Repository;

pub use data::{DataRoot, data_files, data_folder, repository_of};
pub use files::{
    ADAPTER, ADDED_TOKENS, CONFIG, HEAD_FILE, INDEX, MODULES, OPEN_CLIP, PREPARATION, PROCESSOR, PROMPTS, SENTENCES,
    TOKENIZER, WRITING, lead,
};
use settings::DATA_MIRROR;
pub use settings::{NO_NETWORK, Settings, go_offline};

/// The place of a checkpoint or an adapter: a path, or a name with the path at which its files lie. It is used as that path.
#[derive(Clone, Debug, Default)]
pub struct Place {
    path: PathBuf,
    named: Option<Name>,
    is_refused: bool,
}

impl Deref for Place {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Place {
    /// Returns the place that a path is or a name means. The configs of a name are in the cache afterwards, its weights may not
    /// be. Where the network may not be used and the cache does not have it, its path does not exist.
    ///
    /// # Errors
    /// Fails if a name is none, or if the Hub does not have it or cannot be asked.
    pub fn of(path: &Path, settings: &Settings) -> Result<Place> {
        let at = |path: PathBuf, named| Place { path, named, is_refused: false };
        match Name::of(path)? {
            None => Ok(at(path.to_path_buf(), None)),
            Some(Name::OpenAi(archive)) => Ok(at(settings.archives.join(archive.file()), Some(Name::OpenAi(archive)))),
            Some(Name::Hub(name)) => match Repository::new(settings, &name).prepare()? {
                Some(commit) => {
                    let folder = cache::Folder::of(&settings.cache, &name).snapshot(&commit);
                    Ok(at(folder, Some(Name::Hub(name.at(&commit)))))
                }
                None => {
                    Ok(at(cache::Folder::of(&settings.cache, &name).snapshot(&name.revision), Some(Name::Hub(name))))
                }
            },
        }
    }

    /// Returns the path, at which everything lies afterwards.
    ///
    /// # Errors
    /// Fails if a name's weights cannot be had.
    pub fn fetch(&self, settings: &Settings) -> Result<&Path> {
        match &self.named {
            None => {}
            Some(Name::Hub(name)) => drop(Repository::new(settings, name).fetch(name.commit())?),
            Some(Name::OpenAi(archive)) => fetch_archive(archive, &self.path, settings)?,
        }
        Ok(&self.path)
    }

    /// Returns the commit of a repository.
    pub fn commit(&self) -> Option<&str> {
        self.repository().and_then(HubName::commit)
    }

    /// Returns the repository of the Hub that it means; `None` for a path or an archive of OpenAI's.
    pub fn repository(&self) -> Option<&HubName> {
        if let Some(Name::Hub(name)) = &self.named { Some(name) } else { None }
    }

    /// Returns the path by whose last part people know it: `hf://org/name` without a revision, `ViT-B-32.pt`, or the path.
    pub fn known_as(&self) -> PathBuf {
        match &self.named {
            Some(Name::Hub(name)) => PathBuf::from(name.last()),
            Some(Name::OpenAi(archive)) => PathBuf::from(archive.file()),
            None => self.path.clone(),
        }
    }

    /// Returns whether nothing is there, and nothing can be downloaded either.
    pub fn is_missing(&self) -> bool {
        !self.path.exists() && (self.named.is_none() || Settings::of_environment().offline)
    }

    /// Returns whether the name is known to stand for nothing, which has been said.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns the name as configs have it, with its commit; `None` for a path.
    pub fn name(&self) -> Option<String> {
        self.named.as_ref().map(Name::to_string)
    }
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Place {
        Place { path, ..Place::default() }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.name() {
            Some(name) => name.serialize(serializer),
            None => self.path.serialize(serializer),
        }
    }
}

impl Setting for Place {
    type Range = ();

    fn field(reader: &Reader, key: &str, (): ()) -> Field<Place> {
        reader.path(key).map(|path| {
            Place::of(&path, &Settings::of_environment()).unwrap_or_else(|error| {
                reader.problem(key, format!("{error:#}"));
                Place { path, named: None, is_refused: true }
            })
        })
    }

    fn stand_in() -> Place {
        Place::default()
    }
}

/// Returns the path of a file or folder that a path or a name means, with its weights.
///
/// # Errors
/// Fails if a name's files cannot be had.
pub fn local(path: &Path) -> Result<PathBuf> {
    let settings = Settings::of_environment();
    Place::of(path, &settings)?.fetch(&settings).map(Path::to_path_buf)
}

/// Returns the last part of a path, or of the repository that a name means.
pub fn last_part(path: &Path) -> OsString {
    match HubName::of_data(path) {
        Ok(Some(name)) => name.last().into(),
        _ => path.file_name().unwrap_or_default().to_os_string(),
    }
}

/// Returns the commit that the name of a checkpoint or of a data set in a resolved config states.
pub fn commit_in(path: &str) -> Option<String> {
    HubName::of_data(Path::new(path)).ok()??.commit().map(str::to_string)
}

/// The ways out of OpenAI's archives.
static OF_OPENAI: Ways =
    Ways { mirror: DATA_MIRROR, folder: "make ~/.cache/clip a link to a folder", takes_token: false };

/// Downloads an archive of OpenAI's unless it is there. One with another content, half of one perhaps, is replaced.
fn fetch_archive(archive: &Archive, target: &Path, settings: &Settings) -> Result<()> {
    let shown = target.display();
    let is_whole = || Ok::<bool, anyhow::Error>(file_sha256(target, "checkpoint.path")? == archive.sha256);
    if target.is_file() {
        if is_whole()? {
            return Ok(());
        }
        ensure!(
            !settings.offline,
            "{shown}: is not OpenAI's archive: its SHA-256 is not {}: leave --offline out once, and it is downloaded again",
            archive.sha256
        );
    }
    if settings.offline {
        bail!("{archive}: is not at {shown}, and {NO_NETWORK}, or put it there");
    }
    create_beside(target)?;
    let subject =
        Subject { name: archive.to_string(), page: "https://github.com/openai/CLIP".into(), ways: &OF_OPENAI };
    let client = Client::new(settings, &settings.published(&archive.url()).endpoint, subject)?;
    let plan = of_openai(&client, archive, target)?;
    let folder = target.parent().unwrap_or(Path::new("."));
    with_lock_of(&folder.join(format!("{}.lock", archive.name)), &archive.to_string(), || {
        if target.is_file() && is_whole()? {
            return Ok(());
        }
        check_space(folder, std::slice::from_ref(&plan), 0, &archive.to_string())?;
        tracing::info!("{archive}: downloading {} to {shown}", megabytes(plan.size));
        let bar = bar_of_bytes(plan.size, "download");
        bar.inc(plan.started().min(plan.size));
        plan.run(&client, &bar)?;
        bar.finish_and_clear();
        Ok(())
    })
}

/// Returns the download of an archive, whose size the server tells.
fn of_openai(client: &Client, archive: &Archive, target: &Path) -> Result<Download> {
    let url = client.settings.published(&archive.url()).url;
    let answer = client.persist(&url, || 0, || client.ask(&url, Ask::Headers))?;
    let size = answer.header("content-length").and_then(|text| text.parse().ok());
    let size = size.ok_or_else(|| anyhow::anyhow!("{archive}: the server tells no size: try again later"))?;
    let part = target.with_extension("pt.incomplete");
    let hash = Hash::Sha256(archive.sha256.into());
    Ok(Download { url, size, hash, part, target: target.to_path_buf(), ways: &OF_OPENAI })
}
