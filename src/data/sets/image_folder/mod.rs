//! Image files in folders named after their classes: `root/<class>/…` or `root/{train,val,test}/<class>/…`. A share of
//! them may be drawn as the test split.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use image::ImageFormat;

use crate::data::read::class_folders::{self, ClassFolders, Draw, TestPart, entries, folders, is_image};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Request, Resize, Split, SplitName};
use crate::hub::originals::Originals;
use crate::schema::{Choice, Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "image-folder",
    about: "image files in one folder per class, with or without train/val/test",
    fetch: "your own images: ROOT/<class>/<images>, or ROOT/train/<class>/…, ROOT/val/…, ROOT/test/…",
    marks: &[],
    originals: Originals::ByHand("these are your own files"),
    hub: None,
    read: |reader| Box::new(ImageFolder::read(reader)),
    sample: Some(|reader| Box::new(ImageFolder::read(reader))),
};

settings! {
    struct ImageFolder {
        root: PathBuf, because "the folder that holds the class folders, or train and test";
        /// Folder of this split below `root`.
        train: Option<String>;
        /// Folder of this split below `root`.
        val: Option<String>;
        test: Option<TestPart>, by |reader| TestPart::read(reader, ABOUT_TEST);
        /// Seed by which test images are drawn where `test` is a share; every `seed` has the same ones.
        split_seed: i64 = 0, in 0..=i64::MAX, omit 0;
        /// Whether images are turned by their EXIF orientation, as photos of phones need. ICC profiles and transparency are
        /// ignored, as in torchvision.
        exif_orientation: bool = true;
        folders: ClassFolders, part |reader| ClassFolders::read(reader, ENTRY.key);
    } then check
}

const ABOUT_TEST: &str = "Folder of this split below `root`, or the share of each class that is drawn for it from class \
                          folders without a split.";

impl ImageFolder {
    fn check(&self, reader: &Reader) {
        if self.split_seed != 0 && !matches!(self.test, Some(TestPart::Share(_))) {
            reader.problem("split_seed", "has no meaning unless test is a share, such as test = 0.2");
        }
    }
}

impl Dataset for ImageFolder {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        class_folders::label(ENTRY.key, &self.root, self.configured(SplitName::Test).unwrap_or_default())
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.folders.resize())
    }

    fn turns(&self) -> bool {
        self.exif_orientation
    }

    fn classes(&self) -> Result<Vec<String>> {
        if let Some(given) = &self.folders.classes {
            return Ok(given.clone());
        }
        if let Some((folder, _)) = self.drawn()? {
            return folders(&folder, "<class>/<images>");
        }
        let first = SplitName::ALL.into_iter().find_map(|split| self.folder(split).ok());
        folders(&first.map_or_else(|| self.whole(), Ok)?, "<class>/<images>")
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        if self.drawn()?.is_some() {
            return Ok(SplitName::ALL.into_iter().filter(|split| self.is_there(*split)).collect());
        }
        let found: Vec<SplitName> = SplitName::ALL.into_iter().filter(|split| self.folder(*split).is_ok()).collect();
        if found.is_empty() { self.folder(SplitName::Test).map(|_| found) } else { Ok(found) }
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let folders = self.folders.turned(self.exif_orientation);
        if let Some((folder, share)) = self.drawn()?.filter(|_| split != SplitName::Val) {
            let (classes, drawn) = (self.classes()?, Draw { share, seed: self.split_seed as u64 });
            return folders.load_drawn(&folder, &classes, drawn, split, request);
        }
        folders.load(&self.folder(split)?, &self.classes()?, split, split.word(), request)
    }
}

impl ImageFolder {
    fn configured(&self, split: SplitName) -> Option<&str> {
        match split {
            SplitName::Train => self.train.as_deref(),
            SplitName::Val => self.val.as_deref(),
            SplitName::Test => match &self.test {
                Some(TestPart::Named(name)) => Some(name),
                Some(TestPart::Share(_)) | None => None,
            },
        }
    }

    /// Returns the folder of the class folders from which the test split is drawn, with its share; `None` if it is not
    /// drawn.
    ///
    /// # Errors
    /// Fails if there is no root, or if it has a test split of its own.
    fn drawn(&self) -> Result<Option<(PathBuf, f64)>> {
        let Some(TestPart::Share(share)) = self.test else { return Ok(None) };
        let own = self.root.join(SplitName::Test.word());
        let train = self.root.join(self.train.as_deref().unwrap_or(SplitName::Train.word()));
        let has_train = self.train.is_some() || train.is_dir();
        // Beside a folder of training images, images without class folders are no test split; beside classes, their folder would be one.
        let has_test = if has_train { folders(&own, "<class>/<images>").is_ok() } else { own.is_dir() };
        ensure!(!has_test, "{}: is a test split already; leave data.image-folder.test = {share} out", own.display());
        if has_train {
            return Ok(Some((self.folder(SplitName::Train)?, share)));
        }
        ensure!(self.root.is_dir(), "{}: no such folder; set data.image-folder.root", self.root.display());
        Ok(Some((self.whole()?, share)))
    }

    /// Returns the root, where its folders are those of classes.
    ///
    /// # Errors
    /// Fails if several of its folders are called as splits are and hold folders alone, which would be taken for classes.
    fn whole(&self) -> Result<PathBuf> {
        let splits: Vec<String> = usual_splits(&self.root).into_iter().map(|folder| folder.name).collect();
        ensure!(
            splits.len() < 2,
            "{}: its folders {} look like splits, and would be classes: name them with data.image-folder.train, val and test",
            self.root.display(),
            splits.join(", ")
        );
        Ok(self.root.clone())
    }

    /// Returns whether a split exists where the test split is drawn.
    fn is_there(&self, split: SplitName) -> bool {
        split != SplitName::Val || self.folder(split).is_ok()
    }

    /// Returns the folder of a split. If there is no folder of any split, the root as a whole is a test set.
    fn folder(&self, split: SplitName) -> Result<PathBuf> {
        let root = self.root.display();
        ensure!(self.root.is_dir(), "{root}: no such folder; set data.image-folder.root");
        if let Some(name) = self.configured(split) {
            let folder = self.root.join(name);
            ensure!(folder.is_dir(), "{}: no such folder; set data.image-folder.{split}", folder.display());
            return Ok(folder);
        }
        let folder = self.root.join(split.word());
        if folder.is_dir() {
            return Ok(folder);
        }
        let is_split = |name: &SplitName| self.configured(*name).is_some() || self.root.join(name.word()).is_dir();
        let others: Vec<&str> = SplitName::ALL.iter().filter(|name| is_split(name)).map(|name| name.word()).collect();
        match (others.is_empty(), split) {
            (true, SplitName::Test) => self.whole(),
            (true, _) => bail!(
                "{root}: no folder `{split}`, so the class folders in it are one test set; set \
                 data.image-folder.test = 0.2 to train on all but a share, or make {root}/{split}, or name a folder with \
                 data.image-folder.{split}"
            ),
            (false, _) => bail!(
                "{root}: no folder `{split}`, only {}; name a folder with data.image-folder.{split}",
                others.join(", ")
            ),
        }
    }
}

impl SmallSet for ImageFolder {
    fn side(&self) -> u32 {
        256
    }

    /// Names the classes, and makes a folder of the test images where they would be drawn, so that their number is known.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let mut keys = toml::Table::from_iter([("classes".to_string(), self.folders.names(sizes).into())]);
        if let Some(TestPart::Share(_)) = self.test {
            keys.insert("test".into(), SplitName::Test.word().into());
            keys.insert("split_seed".into(), 0.into());
        }
        keys
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let names = self.folders.names(sizes);
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        for split in SplitName::ALL {
            let folder = self.root.join(self.configured(split).unwrap_or(split.word()));
            let made = class_folders::Made { count: sizes.of(split), seed: 0, sizes };
            class_folders::write(&folder, &names, made, &mut pictures)?;
        }
        Ok(())
    }
}

/// Further names, in small letters, by which a folder is meant for a split.
const OTHERS: [(SplitName, &[&str]); 2] =
    [(SplitName::Train, &["training"]), (SplitName::Test, &["testing", "eval", "evaluation"])];

/// A folder of class folders that is called as a split usually is.
pub struct SplitFolder {
    pub split: SplitName,
    pub name: String,
}

/// Returns the folders in `root` that are called as splits usually are and hold class folders; of several of one split the one with
/// bella's own name comes first. A root that cannot be listed has none.
pub fn usual_splits(root: &Path) -> Vec<SplitFolder> {
    let split_of = |name: &String| {
        let mut usual = SplitName::ALL.map(|split| (split, split.names())).into_iter().chain(OTHERS);
        let found = usual.find(|(_, words)| words.contains(&name.to_lowercase().as_str()));
        found.map(|(split, _)| split).filter(|_| holds_classes(&root.join(name)))
    };
    let names = folders(root, "<class>/<images>").unwrap_or_default();
    let mut found: Vec<_> =
        names.into_iter().filter_map(|name| Some(SplitFolder { split: split_of(&name)?, name })).collect();
    found.sort_by_key(|folder| folder.name != folder.split.word());
    found
}

/// Returns whether a folder holds folders, and no image beside them.
pub fn holds_classes(folder: &Path) -> bool {
    let inside = entries(folder).unwrap_or_default();
    inside.iter().any(|entry| entry.is_dir()) && !inside.iter().any(|entry| is_image(entry))
}

#[cfg(test)]
mod tests;
