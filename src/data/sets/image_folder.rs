//! Image files in folders named after their classes: `root/<class>/…` or `root/{train,val,test}/<class>/…`.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::data::read::class_folders::{self, ClassFolders};
use crate::data::{Dataset, Entry, Request, Resize, Split, SplitName};
use crate::schema::{Choice, Reader};

pub static ENTRY: Entry = Entry {
    key: "image-folder",
    about: "image files in one folder per class, with or without train/val/test",
    fetch: "your own images: ROOT/<class>/<images>, or ROOT/train/<class>/…, ROOT/val/…, ROOT/test/…",
    read,
};

#[derive(Serialize)]
struct ImageFolder {
    root: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    train: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<String>,
    #[serde(flatten)]
    folders: ClassFolders,
}

fn read(reader: &mut Reader) -> Box<dyn Dataset> {
    let root = reader.path("root").required_because("the folder that holds the class folders, or train and test");
    let [train, val, test] =
        SplitName::ALL.map(|split| reader.string(split.word()).about("Folder of this split below `root`.").optional());
    Box::new(ImageFolder { root, train, val, test, folders: ClassFolders::read(ENTRY.key, reader) })
}

impl Dataset for ImageFolder {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        class_folders::label(ENTRY.key, &self.root, self.test.as_deref().unwrap_or_default())
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.folders.resize())
    }

    fn classes(&self) -> Result<Vec<String>> {
        if let Some(given) = &self.folders.classes {
            return Ok(given.clone());
        }
        let first = SplitName::ALL.into_iter().find_map(|split| self.folder(split).ok());
        class_folders::folders(first.as_ref().unwrap_or(&self.root), "<class>/<images>")
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        let found: Vec<SplitName> = SplitName::ALL.into_iter().filter(|split| self.folder(*split).is_ok()).collect();
        if found.is_empty() { self.folder(SplitName::Test).map(|_| found) } else { Ok(found) }
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        self.folders.load(&self.folder(split)?, &self.classes()?, (split, split.to_string()), request)
    }

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

impl ImageFolder {
    fn configured(&self, split: SplitName) -> Option<&str> {
        match split {
            SplitName::Train => self.train.as_deref(),
            SplitName::Val => self.val.as_deref(),
            SplitName::Test => self.test.as_deref(),
        }
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
            (true, SplitName::Test) => Ok(self.root.clone()),
            (true, _) => bail!(
                "{root}: no folder `{split}`, so the class folders in it are one test set; make {root}/{split}, or name \
                 a folder with data.image-folder.{split}"
            ),
            (false, _) => bail!(
                "{root}: no folder `{split}`, only {}; name a folder with data.image-folder.{split}",
                others.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests;
