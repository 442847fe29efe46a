//! The original files of data sets: downloaded from the servers of their publishers, compared with published hashes, and
//! unpacked where the readers of the sets look for them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use flate2::read::MultiGzDecoder;

use super::Settings;
use super::cache::with_lock_of;
use super::client::Client;
use super::download::{Download, Hash, check_space, megabytes};
use super::fault::{Subject, Ways};
use super::settings::{DATA_MIRROR, NO_NETWORK};
use crate::base::files::{OF_MACOS, Staging, create_folder, put};
use crate::base::hash::file_sha256;
use crate::base::logging::bar_of_bytes;
use crate::base::tar::{Kind, Source as Bytes, Tar, cut_off};

/// Where the files of a data set come from.
#[derive(Clone, Copy, Debug)]
pub enum Originals {
    /// Files that anybody may download, and what their publishers ask for.
    Files { files: &'static [Original], terms: &'static str },
    /// The reason for which bella does not download them.
    ByHand(&'static str),
}

/// A published file. An archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`) is unpacked.
#[derive(Debug)]
pub struct Original {
    pub url: &'static str,
    pub size: u64,
    pub sha256: &'static str,
    /// The number of folders at the start of the names in an archive that are left out.
    pub strip: usize,
    /// A key of the set's table and the value with which this file belongs to it; it always does without one.
    pub of: Option<(&'static str, &'static str)>,
}

impl Original {
    /// A file of the whole set, whose archive is laid out as readers expect it.
    pub const fn new(url: &'static str, size: u64, sha256: &'static str) -> Original {
        Original { url, size, sha256, strip: 0, of: None }
    }

    /// The same archive without the folder around everything in it.
    pub const fn stripped(self) -> Original {
        Original { strip: 1, ..self }
    }

    /// The same file as one of the part of the set that the table names so.
    pub const fn of(self, key: &'static str, value: &'static str) -> Original {
        Original { of: Some((key, value)), ..self }
    }

    fn name(&self) -> &'static str {
        self.url.rsplit('/').next().unwrap_or(self.url)
    }

    fn packing(&self) -> Option<Packing> {
        let ends = |endings: &[&str]| endings.iter().any(|ending| self.url.ends_with(ending));
        match () {
            () if ends(&[".tar.gz", ".tgz"]) => Some(Packing::TarGz),
            () if ends(&[".tar"]) => Some(Packing::Tar),
            () if ends(&[".zip"]) => Some(Packing::Zip),
            () => None,
        }
    }

    /// Returns whether the file belongs to the set with this table.
    pub fn belongs(&self, table: &toml::Table) -> bool {
        self.of.is_none_or(|(key, value)| table.get(key).and_then(toml::Value::as_str) == Some(value))
    }
}

#[derive(Clone, Copy)]
enum Packing {
    Tar,
    TarGz,
    Zip,
}

/// The ways out of data sets.
static WAYS: Ways = Ways { mirror: DATA_MIRROR, folder: "name a folder by --root", takes_token: false };

/// Brings the files of the data set `key` to `root`. What is there already is not downloaded again, nor is an archive that a call which
/// failed later has unpacked.
///
/// # Errors
/// Fails if a file cannot be had, if it is not the published one, if it cannot be unpacked, or if the network may not be used.
pub fn fetch(key: &str, files: &[&Original], root: &Path, settings: &Settings) -> Result<()> {
    create_folder(root).map_err(|error| anyhow!("{error:#}: name another folder by --root"))?;
    let lock = root.join(".fetch.lock");
    with_lock_of(&lock, key, || {
        let done = bring(key, files, root, settings);
        // Processes that wait see that the file has gone, and make it again.
        let _ = fs::remove_file(&lock);
        done
    })
}

/// Downloads and unpacks what is missing. The caller holds the lock of the root.
fn bring(key: &str, files: &[&Original], root: &Path, settings: &Settings) -> Result<()> {
    let mut unpacked = Unpacked::read(root);
    let files: Vec<&Original> = files.iter().copied().filter(|file| !unpacked.has(file)).collect();
    let plans: Vec<Download> = files.iter().map(|file| plan(file, root, settings)).collect();
    let mut coming = Vec::new();
    for (file, plan) in files.iter().zip(&plans) {
        if !is_whole(file, &plan.target)? {
            coming.push(plan.clone());
        }
    }
    // An archive lies beside what is unpacked of it, which is about as large.
    let beside = files.iter().filter(|file| file.packing().is_some()).map(|file| file.size).max();
    ensure!(coming.is_empty() || !settings.offline, "{key}: is to be downloaded, and {NO_NETWORK}");
    check_space(root, &coming, beside.unwrap_or(0), key)?;
    let total = coming.iter().map(|plan| plan.size).sum();
    if total > 0 {
        tracing::info!("{key}: downloading {} to {}", megabytes(total), root.display());
    }
    let bar = bar_of_bytes(total, "download");
    for (file, plan) in files.iter().zip(&plans) {
        if coming.iter().any(|one| one.target == plan.target) {
            bar.set_message(file.name());
            bar.inc(plan.started().min(plan.size));
            plan.run(&client(key, file, settings)?, &bar)?;
        }
        if let Some(packing) = file.packing() {
            let shown = || format!("{}: cannot be unpacked", plan.target.display());
            unpack(&plan.target, packing, file.strip, root).with_context(shown)?;
            unpacked.add(file)?;
            fs::remove_file(&plan.target).with_context(|| format!("{}: cannot remove", plan.target.display()))?;
        }
    }
    bar.finish_and_clear();
    unpacked.forget();
    Ok(())
}

/// The archives of a set that have been unpacked and removed, while others are still to come.
struct Unpacked {
    path: PathBuf,
    /// Their hashes, one a line.
    hashes: String,
}

impl Unpacked {
    /// Reads what an earlier call has left in the folder of the set.
    fn read(root: &Path) -> Unpacked {
        let path = root.join(".fetch.unpacked");
        let hashes = fs::read_to_string(&path).unwrap_or_default();
        Unpacked { path, hashes }
    }

    fn has(&self, file: &Original) -> bool {
        self.hashes.lines().any(|hash| hash == file.sha256)
    }

    fn add(&mut self, file: &Original) -> Result<()> {
        self.hashes += &format!("{}\n", file.sha256);
        put(&self.path, &self.hashes)
    }

    /// Removes the list, once all files of the set are there.
    fn forget(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn plan(file: &Original, root: &Path, settings: &Settings) -> Download {
    let target = root.join(file.name());
    let mut part = OsString::from(file.name());
    part.push(".incomplete");
    Download {
        url: settings.published(file.url).url,
        size: file.size,
        hash: Hash::Sha256(file.sha256.into()),
        part: root.join(part),
        target,
        ways: &WAYS,
    }
}

/// Returns whether the published file is at a place.
fn is_whole(file: &Original, at: &Path) -> Result<bool> {
    let has_size = at.metadata().is_ok_and(|about| about.is_file() && about.len() == file.size);
    Ok(has_size && file_sha256(at, "--root")? == file.sha256)
}

/// Returns the client for the server of a file.
fn client<'a>(key: &str, file: &Original, settings: &'a Settings) -> Result<Client<'a>> {
    let page = format!("`bella data check {key}=ROOT`");
    Client::new(settings, &settings.published(file.url).endpoint, Subject { name: key.to_string(), page, ways: &WAYS })
}

/// Unpacks an archive beside `root`, and moves every file to its place when all of them are whole.
fn unpack(archive: &Path, packing: Packing, strip: usize, root: &Path) -> Result<()> {
    let staging = Staging::beside(&root.join("unpacked"))?;
    let open = || File::open(archive).map(BufReader::new);
    let mut files = Vec::new();
    match packing {
        Packing::Tar => untar(Tar::new(open()?), strip, staging.path(), &mut files)?,
        Packing::TarGz => untar(Tar::new(MultiGzDecoder::new(open()?)), strip, staging.path(), &mut files)?,
        Packing::Zip => {
            let mut zip = zip::ZipArchive::new(open()?)?;
            for at in 0..zip.len() {
                let mut member = zip.by_index(at)?;
                let kind = match (member.is_dir(), member.is_symlink()) {
                    (true, _) => Kind::Folder,
                    (false, true) => Kind::Other,
                    (false, false) => Kind::File,
                };
                let name = member.name()?.into_owned();
                if let Some(place) = place(&name, kind, strip)? {
                    let size = member.size();
                    write(&mut member, size, &staging.path().join(&place))?;
                    files.push(place);
                }
            }
        }
    }
    ensure!(!files.is_empty(), "there is no file in it");
    files.iter().try_for_each(|file| place_below(root, staging.path(), file))
}

fn untar<S: Bytes>(mut tar: Tar<S>, strip: usize, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    while let Some(member) = tar.member()? {
        if let Some(place) = place(&member.name, member.kind, strip)? {
            write(&mut tar.content(&member), member.size, &folder.join(&place))?;
            files.push(place);
        }
    }
    Ok(())
}

/// Returns the place of a member below the root; `None` for folders, links, and what other systems add.
fn place(name: &str, kind: Kind, strip: usize) -> Result<Option<PathBuf>> {
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                bail!("{name:?} in it leads out of the folder: refused")
            }
        }
    }
    let is_foreign = parts.first().is_some_and(|first| *first == OF_MACOS);
    let is_kept = kind == Kind::File && !is_foreign && parts.len() > strip;
    Ok(is_kept.then(|| parts[strip..].iter().collect()))
}

fn write(content: &mut impl Read, size: u64, path: &Path) -> Result<()> {
    let failed = || format!("{}: cannot write: make room, or name a folder on a larger disk by --root", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let mut file = File::create(path).with_context(failed)?;
    let mut buffer = vec![0; 1 << 16];
    let mut missing = size;
    loop {
        let count = content.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        file.write_all(&buffer[..count]).with_context(failed)?;
        missing = missing.saturating_sub(count as u64);
    }
    ensure!(missing == 0, cut_off(io::ErrorKind::UnexpectedEof.into()));
    Ok(())
}

/// Moves a file from the folder where it was unpacked to its place below the root.
fn place_below(root: &Path, staging: &Path, file: &Path) -> Result<()> {
    let target = root.join(file);
    let folder = target.parent().unwrap_or(root);
    let failed = || format!("{}: cannot be put there", target.display());
    fs::create_dir_all(folder).with_context(failed)?;
    // A link that somebody has put there could lead out.
    let is_inside = folder.canonicalize().and_then(|folder| Ok(folder.starts_with(root.canonicalize()?)));
    ensure!(is_inside.with_context(failed)?, "{}: leads out of {}: refused", folder.display(), root.display());
    fs::rename(staging.join(file), &target).with_context(failed)
}

#[cfg(test)]
mod tests;
