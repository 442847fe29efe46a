//! A repository of the Hub: what is in the cache is used, what is missing is downloaded into it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;

use super::cache::Folder;
use super::client::{Ask, Client, is_silent};
use super::download::{Download, Hash, check_space, megabytes};
use super::fault::{OF_HUB, Subject};
use super::files::{BESIDE, INDEX, are_complete, lead_of_any, listed, module_configs, needed, no_weights, shards};
use super::name::{HubName, is_commit, is_safe_path};
use super::settings::{NO_NETWORK, Settings};
use crate::base::logging::bar_of_bytes;

/// The largest file beside weights, in bytes.
const LARGEST_BESIDE: u64 = 256 << 20;

/// The files of a commit.
pub(super) struct List {
    pub commit: String,
    pub files: Vec<String>,
}

/// The lists of files that the Hub has given to this process, by address, so that a branch means one commit in it.
static LISTS: LazyLock<Mutex<HashMap<String, Arc<List>>>> = LazyLock::new(Default::default);

/// A repository at a revision.
pub struct Repository<'a> {
    pub(super) settings: &'a Settings,
    pub(super) name: &'a HubName,
    pub(super) folder: Folder,
}

impl Repository<'_> {
    pub fn new<'a>(settings: &'a Settings, name: &'a HubName) -> Repository<'a> {
        Repository { settings, name, folder: Folder::of(&settings.cache, name) }
    }

    /// Returns the commit that the name means, whose config is in the cache afterwards; `None` if the cache does not know it
    /// and the network may not be used.
    ///
    /// # Errors
    /// Fails if the Hub does not know the name, or cannot be asked.
    pub fn prepare(&self) -> Result<Option<String>> {
        let known = self.folder.commit(self.name);
        if let Some(commit) = &known {
            let needed = needed(&self.folder.snapshot(commit));
            if needed.is_some_and(|files| files.iter().all(|file| self.folder.is_settled(commit, file))) {
                return Ok(known);
            }
        }
        if self.settings.offline {
            return Ok(known.filter(|commit| self.folder.snapshot(commit).is_dir()));
        }
        match known {
            Some(commit) if are_complete(&self.folder.snapshot(&commit)) => Ok(Some(self.completed(commit))),
            known => self.fetch_beside(known.as_deref()).map(Some),
        }
    }

    /// Completes a commit whose weights are in the cache, and returns the one that is there then. What Python has left is enough without the
    /// Hub, which is asked once.
    fn completed(&self, commit: String) -> String {
        if is_silent(&self.settings.endpoint) {
            return commit;
        }
        let once = Settings { tries: 1, ..self.settings.clone() };
        Repository::new(&once, self.name).fetch_beside(Some(&commit)).unwrap_or_else(|error| {
            tracing::info!("{error:#}: what the cache has of {} is used", self.name);
            commit
        })
    }

    /// Returns the folder with the weights of a commit, and everything beside them.
    ///
    /// # Errors
    /// Fails if there are none, or if they cannot be had.
    pub fn fetch(&self, commit: Option<&str>) -> Result<PathBuf> {
        if let Some(folder) = commit.map(|commit| self.folder.snapshot(commit)).filter(|folder| are_complete(folder)) {
            return Ok(folder);
        }
        if self.settings.offline {
            bail!(self.missing());
        }
        let list = self.list(commit)?;
        let commit = &list.commit;
        let lead = lead_of_any(|name| list.files.iter().any(|file| file == name));
        let lead = lead.with_context(|| no_weights(&self.name.to_string(), &list.files))?;
        self.download(commit, &[lead.to_string()])?;
        let folder = self.folder.snapshot(commit);
        if lead.ends_with(INDEX) {
            let names = shards(&folder.join(lead))?;
            let absent = names.iter().find(|name| !list.files.contains(name));
            let shown = self.name;
            ensure!(
                absent.is_none(),
                "{shown}: {lead} names {}, which the repository does not have: use another revision",
                absent.map_or("", String::as_str)
            );
            self.download(commit, &names)?;
        }
        Ok(folder)
    }

    /// Says that the cache has nothing of this name.
    pub fn missing(&self) -> String {
        format!(
            "{}: is not in {}, and {NO_NETWORK}, or set HF_HOME to the cache that has it",
            self.name,
            self.settings.cache.display()
        )
    }

    /// Downloads what stands beside the weights, and returns the commit.
    fn fetch_beside(&self, known: Option<&str>) -> Result<String> {
        let list = self.list(known)?;
        // Weights that do not fit are not asked for only to find that out later.
        lead_of_any(|name| list.files.iter().any(|file| file == name))
            .with_context(|| no_weights(&self.name.to_string(), &list.files))?;
        self.settle(&list, BESIDE.map(str::to_string).to_vec())?;
        self.settle(&list, module_configs(&self.folder.snapshot(&list.commit)))?;
        self.folder.set_commit(self.name, &list.commit)?;
        Ok(list.commit.clone())
    }

    /// Downloads those of the files that a commit has, and notes which it does not have.
    fn settle(&self, list: &List, files: Vec<String>) -> Result<()> {
        let (here, absent): (Vec<String>, Vec<String>) = files.into_iter().partition(|file| list.files.contains(file));
        self.download(&list.commit, &here)?;
        absent.iter().for_each(|file| self.folder.note_absence(&list.commit, file));
        Ok(())
    }

    /// Returns the files of a commit, or of the one that the name means.
    pub(super) fn list(&self, commit: Option<&str>) -> Result<Arc<List>> {
        let HubName { kind, repository, revision } = self.name;
        let at = |revision: &str| {
            let revision = revision.replace('/', "%2F");
            format!("{}/api/{}/{repository}/revision/{revision}", self.settings.endpoint, kind.word())
        };
        let url = at(commit.unwrap_or(revision));
        let lists = || LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = lists().get(&url) {
            return Ok(list.clone());
        }
        let json = self.client()?.json(&url)?;
        let shown = self.name;
        let found = json.get("sha").and_then(|sha| sha.as_str()).filter(|sha| is_commit(sha));
        let found = found
            .with_context(|| format!("{shown}: the Hub names no commit (`sha`): is HF_ENDPOINT one of the Hub?"))?;
        let asked = commit.or(self.name.commit());
        ensure!(
            asked.is_none_or(|asked| asked == found),
            "{shown}: the Hub answers with another commit ({found}): use another mirror as HF_ENDPOINT"
        );
        let list = Arc::new(List { commit: found.to_string(), files: listed(&json, &shown.to_string())? });
        lists().extend([(at(found), list.clone()), (url, list.clone())]);
        Ok(list)
    }

    fn client(&self) -> Result<Client<'_>> {
        let (endpoint, repository) = (&self.settings.endpoint, &self.name.repository);
        let subject = Subject {
            name: self.name.to_string(),
            page: format!("{endpoint}/{}{repository}", self.name.kind.start()),
            ways: &OF_HUB,
        };
        Client::new(self.settings, endpoint, subject)
    }

    /// Downloads the files of a commit that are not in the cache.
    pub(super) fn download(&self, commit: &str, files: &[String]) -> Result<()> {
        let snapshot = self.folder.snapshot(commit);
        let missing: Vec<&String> = files.iter().filter(|file| !snapshot.join(file).is_file()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let client = self.client()?;
        let plans: Vec<Download> =
            missing.iter().map(|file| self.plan(&client, commit, file)).collect::<Result<_>>()?;
        let coming: Vec<Download> = plans.iter().filter(|plan| !plan.target.is_file()).cloned().collect();
        check_space(&self.settings.cache, &coming, 0, &self.name.to_string())?;
        let total = coming.iter().map(|plan| plan.size).sum();
        if total > 1 << 20 {
            tracing::info!("{}: downloading {} to {}", self.name.at(commit), megabytes(total), snapshot.display());
        }
        let bar = bar_of_bytes(total, "download");
        for (file, plan) in missing.into_iter().zip(&plans) {
            bar.set_message(file.clone());
            self.obtain(&client, commit, file, plan, &bar)?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Asks what a file is: its size and its hash, by which the cache names it.
    fn plan(&self, client: &Client, commit: &str, file: &str) -> Result<Download> {
        let shown = self.name;
        ensure!(is_safe_path(file), "{shown}: {file:?} is no plain name of a file: refused");
        let url = format!(
            "{}/{}{}/resolve/{commit}/{file}",
            self.settings.endpoint,
            self.name.kind.start(),
            self.name.repository
        );
        let answer = client.persist(&url, || 0, || client.ask(&url, Ask::Headers))?;
        let hash = answer.header("x-linked-etag").or_else(|| answer.header("etag")).and_then(Hash::of_etag);
        let hash = hash.with_context(|| {
            format!(
                "{shown}: {file}: the server tells no hash (ETag) to compare it with: is HF_ENDPOINT one of the Hub?"
            )
        })?;
        let length = || answer.header("content-length").filter(|_| answer.status == 200);
        let size = answer.header("x-linked-size").or_else(length).and_then(|text| text.parse::<u64>().ok());
        let size =
            size.with_context(|| format!("{shown}: {file}: the server tells no size: is HF_ENDPOINT one of the Hub?"))?;
        ensure!(
            !(BESIDE.contains(&file) || file.ends_with("/config.json")) || size <= LARGEST_BESIDE,
            "{shown}: {file} has {}, which is too much for such a file: refused; use another repository",
            megabytes(size)
        );
        let (part, target) = (self.folder.part(hash.digits()), self.folder.blob(hash.digits()));
        Ok(Download { url, size, hash, part, target, ways: &OF_HUB })
    }

    fn obtain(&self, client: &Client, commit: &str, file: &str, plan: &Download, bar: &ProgressBar) -> Result<()> {
        let hash = plan.hash.digits();
        self.folder.locked(hash, &format!("{}: {file}", self.name), || {
            if !plan.target.is_file() {
                bar.inc(plan.started().min(plan.size));
                plan.run(client, bar)?;
            }
            self.folder.link(commit, file, hash)
        })
    }
}
