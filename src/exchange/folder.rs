//! A folder that is written whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::expected::FILE as EXPECTED;

/// Writes the folder `target` by `write`, which gets an empty folder beside it. That takes the place of `target` when it is
/// complete; on failure nothing is left of it.
///
/// # Errors
/// Fails if `target` exists and is not to be replaced, if it cannot be written, or if `write` fails.
pub fn write(target: &Path, replace: bool, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    check(target, replace)?;
    let shown = target.display();
    let staging = Staging::beside(target)?;
    write(&staging.0).with_context(|| format!("cannot write {shown}"))?;
    if target.exists() {
        fs::remove_dir_all(target).with_context(|| format!("cannot replace {shown}"))?;
    }
    fs::rename(&staging.0, target).with_context(|| format!("cannot write {shown}"))
}

/// Checks before any work that `target` can be written.
///
/// # Errors
/// Fails if it exists and is not to be replaced, if it is no earlier export, or if its parent is no folder that can be
/// written to.
pub fn check(target: &Path, replace: bool) -> Result<()> {
    let shown = target.display();
    ensure!(replace || !target.exists(), "{shown}: exists already: give another --output, or --force to replace it");
    ensure!(
        !target.exists() || is_export(target),
        "{shown}: is no folder that `bella export` has written, so --force does not replace it: give another --output"
    );
    Staging::beside(target).map(drop)
}

/// Returns whether a folder is empty or an earlier export, or holds some.
fn is_export(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let marks = |path: &PathBuf| path.ends_with(EXPECTED) || path.join(EXPECTED).is_file();
    all.is_empty() || all.iter().any(marks)
}

/// An empty folder, which is removed on drop unless it has been renamed.
struct Staging(PathBuf);

impl Staging {
    fn beside(target: &Path) -> Result<Staging> {
        let rule =
            || format!("cannot write {}: must be a new folder in a folder that can be written to", target.display());
        let name = target.file_name().with_context(rule)?.to_string_lossy().into_owned();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let staging = Staging(parent.join(format!(".{name}.{}.tmp", std::process::id())));
        fs::create_dir(&staging.0).with_context(rule)?;
        Ok(staging)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_written_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("out");
        let file = |at: &Path, text: &str| {
            fs::write(at.join(EXPECTED), "")?;
            Ok(fs::write(at.join("a"), text)?)
        };
        write(&target, false, |at| file(at, "old")).unwrap();
        let error = write(&target, false, |at| file(at, "new")).unwrap_err().to_string();
        assert!(error.ends_with("exists already: give another --output, or --force to replace it"), "{error}");
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
        let nowhere = check(&place.path().join("none/out"), true).unwrap_err().to_string();
        assert!(nowhere.contains("none/out: must be a new folder"), "{nowhere}");
    }
}
