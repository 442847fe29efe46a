//! Image files in one folder per class, as used by `image-folder` and `image-folder-c`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::base::files::{OF_MACOS, put};
use crate::data::read::image_files::{ImageFiles, Listing, images_among};
use crate::data::small::{Pictures, Sizes};
use crate::data::{Request, Resize, Split, SplitName};
use crate::hub::last_part;
use crate::schema::{Reader, limits, settings};

settings! {
    /// The settings by which class folders become a split of the data set `key`.
    pub struct ClassFolders(key: &'static str) {
        pub classes: Option<Vec<String>>, by read_classes;
        files: ImageFiles, part |reader| ImageFiles::read(reader, key, Resize::ShorterSideCrop);
        // The registry key, for messages.
        key: &'static str, given key;
    }
}

impl ClassFolders {
    /// Returns the settings for images that are turned by their EXIF orientation, or are not.
    pub fn turned(&self, turns: bool) -> ClassFolders {
        ClassFolders { files: self.files.turned(turns), classes: self.classes.clone(), key: self.key }
    }

    pub fn resize(&self) -> Resize {
        self.files.resize()
    }

    fn others(&self) -> String {
        format!("remove it, or add it to data.{}.classes", self.key)
    }

    /// Returns the configured names of classes, or made-up ones.
    pub fn names(&self, sizes: &Sizes) -> Vec<String> {
        let made_up = || (0..sizes.classes).map(|label| format!("class_{label:03}")).collect();
        self.classes.clone().unwrap_or_else(made_up)
    }

    /// Reads all images of the class folders in `folder`. The label of a class is its position in `classes`; `part` is
    /// the name of the split or version that the folder holds.
    ///
    /// # Errors
    /// Fails if a class folder is empty or not one of `classes`, or if an image cannot be decoded and such images are
    /// not skipped.
    pub fn load(
        &self,
        folder: &Path,
        classes: &[String],
        split: SplitName,
        part: &str,
        request: &Request,
    ) -> Result<Split> {
        self.files.load_part(scan(folder, classes, &self.others())?, split, part, request)
    }

    /// Reads the images of the class folders in `folder` that belong to a split, as [`draw`] divides them into
    /// test images and training images.
    ///
    /// # Errors
    /// Fails like [`Self::load`].
    pub fn load_drawn(
        &self,
        folder: &Path,
        classes: &[String],
        by: Draw,
        split: SplitName,
        request: &Request,
    ) -> Result<Split> {
        let mut listing = scan(folder, classes, &self.others())?;
        listing.select(&draw(&listing, folder, by).of(split));
        self.files.load(listing, split, request)
    }
}

/// The samples to report on.
#[derive(Serialize)]
#[serde(untagged)]
pub enum TestPart {
    /// All samples of the split with this name.
    Named(String),
    /// A share of each class, which is not trained on.
    Share(f64),
}

impl TestPart {
    /// Reads `test`, a name or a share; `about` is its meaning.
    pub fn read(reader: &Reader, about: &'static str) -> Option<TestPart> {
        if reader.is_text("test") {
            return reader.string("test").about(about).optional().map(TestPart::Named);
        }
        reader.float("test", limits::between(0.01, 0.9)).about(about).optional().map(TestPart::Share)
    }
}

/// Reads `classes`: the names in the order of their labels, each once.
pub fn read_classes(reader: &Reader) -> Option<Vec<String>> {
    let classes = reader
        .strings("classes")
        .about("Names of the classes to use, in the order of their labels; by default all, sorted.")
        .optional();
    expect_once(reader, "classes", "class", classes.as_deref().unwrap_or_default());
    classes
}

/// Lists all image files below `folder`, sorted by class and path, with their labels. `classes` are the names of the folders in the
/// order of the labels, and `others` says what to do about a folder of another name.
///
/// # Errors
/// Fails if a class folder is empty or not one of `classes`.
pub fn scan(folder: &Path, classes: &[String], others: &str) -> Result<Listing> {
    let label_of: BTreeMap<&str, u32> = classes.iter().zip(0..).map(|(name, label)| (name.as_str(), label)).collect();
    let mut found = Vec::new();
    for name in folders(folder, "<class>/<images>")? {
        let class = folder.join(&name);
        let label = label_of.get(name.as_str()).with_context(|| {
            let known = classes.len();
            format!("{}: not one of the {known} classes; {others}", class.display())
        })?;
        found.push((*label, class));
    }
    found.sort();
    let missing = classes.len() - found.len();
    if missing > 0 {
        tracing::warn!("{}: {missing} of {} classes have no folder", folder.display(), classes.len());
    }
    let (mut paths, mut labels, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (label, class) in found {
        let before = paths.len();
        collect(&class, &mut paths, &mut others)?;
        if paths.len() == before {
            let unread = images_among(&others, &class);
            bail!(
                unread.unwrap_or(format!("{}: no image in this class folder; add some or remove it", class.display()))
            );
        }
        paths[before..].sort();
        labels.resize(paths.len(), label);
    }
    images_among(&others, folder).into_iter().for_each(|unread| tracing::warn!("{unread}; left out"));
    Ok(Listing { paths, labels, ..Listing::default() })
}

/// Made-up pictures of a folder.
pub struct Made<'a> {
    /// Their number, and that of the first among all that differ.
    pub count: usize,
    pub seed: usize,
    pub sizes: &'a Sizes,
}

/// Writes class folders of `count` made-up images, the first of which is picture `seed`.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write(
    folder: &Path,
    names: &[String],
    Made { count, seed, sizes }: Made,
    pictures: &mut Pictures,
) -> Result<()> {
    let file = |i: usize| folder.join(&names[sizes.label(i)]).join(format!("{i:06}.jpg"));
    (0..count).try_for_each(|i| put(&file(i), pictures.file(i + seed)?))
}

/// Refuses names of `kind`, such as classes, of which one comes twice in the list of a key.
pub fn expect_once(reader: &Reader, key: &str, kind: &str, names: &[String]) {
    if let Some(twice) = repeated(names) {
        reader.problem(key, format!("each {kind} may be named once: `{twice}` comes twice"));
    }
}

/// Returns the first name that is repeated, if any.
pub fn repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| name)
}

/// Returns the name of the root followed by the folders inside it, so that results of two folders have different names.
pub fn label(key: &str, root: &Path, inside: &str) -> String {
    let root = match last_part(root) {
        name if name.is_empty() => key.to_string(),
        name => name.to_string_lossy().into_owned(),
    };
    let inside = Path::new(inside).components().filter(|part| matches!(part, Component::Normal(_)));
    inside.fold(root, |label, part| format!("{label}/{}", part.as_os_str().to_string_lossy()))
}

/// Returns the names of the folders in `folder`, sorted by code point, without hidden ones and [`OF_MACOS`]. `expected` describes the
/// layout in messages.
pub fn folders(folder: &Path, expected: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in entries(folder)? {
        let name = entry.file_name();
        let name = name.and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{}: the name is not UTF-8; rename it", entry.display()))?;
        if entry.is_dir() && !name.starts_with('.') && name != OF_MACOS {
            names.push(name.to_owned());
        }
    }
    ensure!(!names.is_empty(), "{}: no class folders in it; expected {expected}", folder.display());
    names.sort();
    Ok(names)
}

/// Adds the image files below `folder`, recognised by their extension, in the order of their names in each folder, and to
/// `others` the other files. Hidden entries are left out, and so are links to folders, which may lead back to `folder` or to another
/// class, with a warning.
pub fn collect(folder: &Path, paths: &mut Vec<PathBuf>, others: &mut Vec<PathBuf>) -> Result<()> {
    let mut inside = entries(folder)?;
    inside.sort();
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    for entry in inside.into_iter().filter(|path| !hidden(path)) {
        if entry.is_dir() {
            if entry.is_symlink() {
                tracing::warn!("{}: a link to a folder; left out", entry.display());
            } else {
                collect(&entry, paths, others)?;
            }
        } else if is_image(&entry) {
            paths.push(entry);
        } else {
            others.push(entry);
        }
    }
    Ok(())
}

/// Further endings of JPEG (of which MPO of cameras with two lenses is a kind) and BMP, in small letters.
const FURTHER_ENDINGS: [&str; 5] = ["jpe", "jfi", "jif", "mpo", "dib"];

/// Returns whether the extension belongs to a format that can be decoded.
pub fn is_image(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    FURTHER_ENDINGS.iter().any(|known| ending == *known)
        || ImageFormat::from_path(path).is_ok_and(|format| format.reading_enabled())
}

/// Returns the entries of `folder`, in no particular order.
///
/// # Errors
/// Fails if the folder cannot be listed.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    ensure!(folder.exists(), "{}: no such folder: the data set's `root` must name an existing one", folder.display());
    let failed = || format!("{}: cannot list the folder", folder.display());
    let listed: std::io::Result<Vec<PathBuf>> =
        std::fs::read_dir(folder).with_context(failed)?.map(|entry| entry.map(|entry| entry.path())).collect();
    listed.with_context(failed)
}

/// The share of each class that is drawn for testing, and the seed of the draw.
#[derive(Clone, Copy)]
pub struct Draw {
    pub share: f64,
    pub seed: u64,
}

/// The samples that are drawn for testing, and the others; both lists are sorted.
pub struct Drawn {
    pub test: Vec<u32>,
    pub train: Vec<u32>,
}

impl Drawn {
    /// Returns the samples of a split.
    pub fn of(self, split: SplitName) -> Vec<u32> {
        if split == SplitName::Test { self.test } else { self.train }
    }
}

/// Draws test images. Of each class the share nearest to the one asked for is drawn, but at least one image, and one is left.
///
/// The draw depends on the seed and on the path of each file below `root`, with the folder of its class. So it is the same
/// on every machine and in any order of files, and a file that is added changes the place of few others.
pub fn draw(listing: &Listing, root: &Path, Draw { share, seed }: Draw) -> Drawn {
    let mut classes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    listing.labels.iter().enumerate().for_each(|(at, class)| classes.entry(*class).or_default().push(at));
    let mut is_test = vec![false; listing.paths.len()];
    for mut own in classes.into_values() {
        own.sort_by_cached_key(|at| draw_key(&listing.paths[*at], root, seed));
        let wanted = (share * own.len() as f64).round() as usize;
        let count = wanted.max(1).min(own.len().saturating_sub(1));
        own[..count].iter().for_each(|at| is_test[*at] = true);
    }
    let (test, train) = (0..is_test.len() as u32).partition(|at| is_test[*at as usize]);
    Drawn { test, train }
}

/// Returns the SHA-256 of the seed and of the parts of a file's path below `root`.
fn draw_key(path: &Path, root: &Path, seed: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    for part in path.strip_prefix(root).unwrap_or(path) {
        hash.update([0]);
        hash.update(part.as_encoded_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(root: &str, counts: &[usize]) -> Listing {
        let files = counts.iter().enumerate().flat_map(|(class, count)| (0..*count).map(move |file| (class, file)));
        let (paths, labels) =
            files.map(|(class, file)| (format!("{root}/c{class}/{file}.png").into(), class as u32)).unzip();
        Listing { paths, labels, ..Listing::default() }
    }

    #[test]
    fn every_class_gives_its_share() {
        let files = listing("a", &[10, 3, 2, 1]);
        let Drawn { test, train } = draw(&files, Path::new("a"), Draw { share: 0.2, seed: 0 });
        let count = |of: &[u32], class: u32| of.iter().filter(|at| files.labels[**at as usize] == class).count();
        assert_eq!([0, 1, 2, 3].map(|class| count(&test, class)), [2, 1, 1, 0], "a single image stays in training");
        assert_eq!([0, 1, 2, 3].map(|class| count(&train, class)), [8, 2, 1, 1]);
    }

    /// ```python
    /// import hashlib
    /// key = lambda f: hashlib.sha256((7).to_bytes(8, "little") + b"\0c0\0" + f"{f}.png".encode()).digest()
    /// print(sorted(sorted(range(10), key=key)[:3]))
    /// ```
    #[test]
    fn the_draw_is_that_of_the_formula_whatever_the_root() {
        let drawn = |root: &str| draw(&listing(root, &[10]), Path::new(root), Draw { share: 0.3, seed: 7 }).test;
        assert_eq!(drawn("a"), [3, 5, 6]);
        assert_eq!(drawn("/somewhere/else"), drawn("a"));
    }
}
