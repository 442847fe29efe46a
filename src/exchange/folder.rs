//! A folder that is written whole or not at all.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::expected::{FILE as EXPECTED, FILES, names};
use crate::base::files::{Staging, behind_links, open_file};
use crate::base::tensor_file::described;

/// The name of a model card beside a model, under which hubs show it.
pub const CARD: &str = "README.md";

/// The bytes of two files that are compared at a time.
const PIECE: u64 = 1 << 20;

/// What became of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    New,
    /// The folder was there, with the same content.
    Already,
}

/// Writes the folder `target` by `write`, which gets an empty folder beside it; folders around them are created. The new folder takes the
/// place of `target` when it is complete; on failure `target` stays as it was. A folder that already holds the same files stays as it is, and so does a link
/// to a folder.
///
/// # Errors
/// Fails if `target` holds something else and is not to be replaced, if it cannot be written, or if `write` fails.
pub fn write(target: &Path, replace: bool, write: impl FnOnce(&Path) -> Result<()>) -> Result<Written> {
    check(target, replace)?;
    let shown = target.display();
    let target = &behind_links(target).with_context(|| rule(target))?;
    target.parent().map_or(Ok(()), fs::create_dir_all).with_context(|| rule(target))?;
    let staging = Staging::beside(target).with_context(|| rule(target))?;
    write(staging.path()).with_context(|| format!("cannot write {shown}"))?;
    if target.exists() {
        let differing = difference(staging.path(), target).with_context(|| format!("cannot compare {shown}"))?;
        match differing {
            None => return Ok(Written::Already),
            Some(file) if !replace && file != Path::new("") => bail!(
                "{shown}: holds another export ({} differs): give another --output, or --force to replace it",
                file.display()
            ),
            _ => staging.replace(target).with_context(|| format!("cannot replace {shown}"))?,
        }
        return Ok(Written::New);
    }
    staging.put(target).with_context(|| format!("cannot write {shown}"))?;
    Ok(Written::New)
}

/// Checks before any work that `target` can be written. What it holds is compared once it is known what is to be written.
///
/// # Errors
/// Fails if it exists and is no earlier export, or if what is there of the folders around it cannot be written to.
pub fn check(target: &Path, replace: bool) -> Result<()> {
    let shown = target.display();
    let why = if replace { ", so --force does not replace it" } else { "" };
    ensure!(!target.exists() || target.is_dir(), "{shown}: is no folder{why}: give another --output");
    if let Some(other) = foreign(target) {
        bail!("{shown}: holds {other}, which `bella export` has not written{why}: give another --output");
    }
    let target = behind_links(target).with_context(|| rule(target))?;
    Staging::beside(first_new(&target)).with_context(|| rule(&target)).map(drop)
}

/// Returns the outermost folder of a path that would have to be created; the path itself if all around it are there.
fn first_new(target: &Path) -> &Path {
    let is_new = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    target.ancestors().skip(1).take_while(is_new).last().unwrap_or(target)
}

fn rule(target: &Path) -> String {
    format!("cannot write {}: must be a new folder in a folder that can be written to", target.display())
}

/// Returns the first file, below either folder, that the other lacks or has with another content; the empty path if `old` is
/// empty.
fn difference(new: &Path, old: &Path) -> Result<Option<PathBuf>> {
    let (found, known) = (files(new)?, files(old)?);
    if known.is_empty() {
        return Ok(Some(PathBuf::new()));
    }
    if let Some(one) = found.symmetric_difference(&known).next() {
        return Ok(Some(one.clone()));
    }
    for file in found {
        if !same(&new.join(&file), &old.join(&file))? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Returns the files below a folder.
fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let (path, name) = entry.map(|entry| (entry.path(), PathBuf::from(entry.file_name())))?;
        match path.is_dir() {
            true => found.extend(files(&path)?.into_iter().map(|inner| name.join(inner))),
            false => drop(found.insert(name)),
        }
    }
    Ok(found)
}

fn same(a: &Path, b: &Path) -> Result<bool> {
    let (mut a, mut b) = (open_file(a)?, open_file(b)?);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        (&mut a).take(PIECE).read_to_end(&mut left)?;
        (&mut b).take(PIECE).read_to_end(&mut right)?;
        if left != right || left.is_empty() {
            return Ok(left == right);
        }
    }
}

/// Returns the first name in a folder of what no export has written; `None` if there is none, as in an empty folder. An export is one model, or
/// a folder a model with the card.
fn foreign(folder: &Path) -> Option<String> {
    let found = names(folder).unwrap_or_default();
    let is_model = |name: &String| {
        let inner = folder.join(name);
        inner.join(EXPECTED).is_file() && foreign(&inner).is_none()
    };
    let own = match fs::read(folder.join(EXPECTED)) {
        Ok(bytes) => own_files(&bytes).unwrap_or_else(|| found.clone()),
        Err(_) => found.iter().filter(|name| is_model(name)).cloned().collect(),
    };
    let first = found.into_iter().find(|name| !own.contains(name) && (name != CARD || own.is_empty()))?;
    let inner = folder.join(&first);
    let below = if inner.join(EXPECTED).is_file() { foreign(&inner) } else { None };
    Some(below.map_or(first.clone(), |name| format!("{first}/{name}")))
}

/// Returns the names of the files of a model from the content of [`EXPECTED`], and that name; `None` where it
/// does not tell them.
fn own_files(expected: &[u8]) -> Option<Vec<String>> {
    let text = described(expected, FILES).ok().flatten()?;
    let files: Vec<String> = serde_json::from_str(&text).ok()?;
    Some(files.into_iter().chain([EXPECTED.to_string()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::tensor_file::State;

    #[test]
    fn a_folder_is_written_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("out");
        let file = |at: &Path, text: &str| {
            fs::write(at.join(EXPECTED), "")?;
            Ok(fs::write(at.join("a"), text)?)
        };
        assert_eq!(write(&target, false, |at| file(at, "old")).unwrap(), Written::New);
        assert_eq!(write(&target, false, |at| file(at, "old")).unwrap(), Written::Already);
        let error = write(&target, false, |at| file(at, "new")).unwrap_err().to_string();
        let rule = "holds another export (a differs): give another --output, or --force to replace it";
        assert!(error.ends_with(rule), "{error}");
        fs::write(target.join("mine"), "").unwrap();
        let more = write(&target, false, |at| file(at, "old")).unwrap_err().to_string();
        assert!(more.contains("(mine differs)"), "{more}");
        fs::remove_file(target.join("mine")).unwrap();
        let failed = write(&target, true, |at| {
            file(at, "half")?;
            anyhow::bail!("no space left")
        });
        assert!(format!("{:#}", failed.unwrap_err()).contains("no space left"));
        assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "old");
        write(&target, true, |at| file(at, "new")).unwrap();
        assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "new");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        check(&own, true).unwrap();
        fs::write(own.join("thesis.tex"), "").unwrap();
        for kept in [own.clone(), own.join("thesis.tex")] {
            let kept = check(&kept, true).unwrap_err().to_string();
            assert!(kept.contains("so --force does not replace it"), "{kept}");
        }
        // A folder of exports is one only if nothing else is in it.
        let two = place.path().join("two");
        for model in ["0", "1"] {
            fs::create_dir_all(two.join(model)).unwrap();
            fs::write(two.join(model).join(EXPECTED), "").unwrap();
        }
        fs::write(two.join(CARD), "").unwrap();
        check(&two, true).unwrap();
        fs::write(two.join("thesis.tex"), "").unwrap();
        assert!(check(&two, true).unwrap_err().to_string().contains("so --force does not replace it"));
        let mut state = State::default();
        state.describe(FILES, "[]".to_string());
        state.put_count("logits", 1);
        fs::remove_file(two.join("thesis.tex")).unwrap();
        state.write(&two.join("1").join(EXPECTED)).unwrap();
        fs::write(two.join("1/notes"), "").unwrap();
        let inner = check(&two, true).unwrap_err().to_string();
        assert!(inner.contains("holds 1/notes, which"), "{inner}");
        fs::write(two.join("thesis.tex"), "").unwrap();
        // Nor is a folder with a page of its own, and one with files beside the model that the export has not written.
        fs::write(own.join(CARD), "").unwrap();
        fs::remove_file(own.join("thesis.tex")).unwrap();
        assert!(check(&own, true).is_err());
        let one = place.path().join("one");
        fs::create_dir(&one).unwrap();
        fs::write(one.join("model.onnx"), "").unwrap();
        let mut state = State::default();
        state.describe(FILES, serde_json::to_string(&names(&one).unwrap()).unwrap());
        state.put_count("logits", 1);
        state.write(&one.join(EXPECTED)).unwrap();
        fs::write(one.join(CARD), "").unwrap();
        check(&one, true).unwrap();
        fs::write(one.join("thesis.tex"), "").unwrap();
        assert!(check(&one, true).unwrap_err().to_string().contains("so --force does not replace it"));
        let nowhere = check(&two.join("thesis.tex/none/out"), true).unwrap_err().to_string();
        assert!(nowhere.contains("none/out: must be a new folder"), "{nowhere}");
        let inner = place.path().join("none/far/out");
        check(&inner, false).unwrap();
        assert!(!place.path().join("none").exists(), "nothing is created before there is something to write");
        assert_eq!(write(&inner, false, |at| file(at, "far")).unwrap(), Written::New);
        assert_eq!(fs::read_to_string(inner.join("a")).unwrap(), "far");
    }
    #[test]
    fn links_to_folders_stay() {
        let place = tempfile::tempdir().unwrap();
        let [link, folder, ring] = ["link", "a/folder", "ring"].map(|name| place.path().join(name));
        fs::create_dir(place.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a/folder", &link).unwrap();
        for text in ["old", "new"] {
            write(&link, true, |at| {
                fs::write(at.join(EXPECTED), "")?;
                Ok(fs::write(at.join("a"), text)?)
            })
            .unwrap();
            assert!(link.is_symlink());
            assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), text);
        }
        std::os::unix::fs::symlink("ring", &ring).unwrap();
        assert!(format!("{:#}", check(&ring, true).unwrap_err()).contains("its links lead in a circle"));
    }
}
