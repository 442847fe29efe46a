//! Corrupted image files in the layout of ImageNet-C: `root/<corruption>/<severity>/<class>/…`, with severities 1 to 5.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;

use crate::data::read::cifar_c;
use crate::data::read::class_folders::{self, ClassFolders, repeated};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::versions::CORRUPTIONS;
use crate::data::{Dataset, Entry, Request, Resize, Split, SplitName, Version};
use crate::hub::originals::Originals;
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "image-folder-c",
    about: "corrupted image files as in ImageNet-C: one folder a corruption, severity and class",
    fetch: "ImageNet-C's archives from https://zenodo.org/records/2235448 in one folder, or images laid out so: \
            ROOT/<corruption>/<severity>/<class>/<images>",
    originals: Originals::ByHand("these are your own files, or ImageNet-C's, whose images are under ImageNet's terms"),
    read: |reader| Box::new(ImageFolderC::read(reader)),
    sample: Some(|reader| Box::new(ImageFolderC::read(reader))),
};

settings! {
    struct ImageFolderC {
        root: PathBuf, because "the folder that holds <corruption>/<severity>/<class>";
        /// Corruptions to read; all folders below `root` by default.
        corruptions: Option<Vec<String>>;
        severities: Vec<i64>, by cifar_c::read_severities;
        folders: ClassFolders, part |reader| ClassFolders::read(reader, ENTRY.key);
    } then check
}

impl ImageFolderC {
    fn check(&self, reader: &Reader) {
        if let Some(twice) = self.corruptions.as_ref().and_then(|names| repeated(names)) {
            reader.problem("corruptions", format!("each corruption may be named once: `{twice}` comes twice"));
        }
    }
}

impl Dataset for ImageFolderC {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        class_folders::label(ENTRY.key, &self.root, "")
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.folders.resize())
    }

    /// Returns the classes of the first version, unless the config names them.
    fn classes(&self) -> Result<Vec<String>> {
        if let Some(given) = &self.folders.classes {
            return Ok(given.clone());
        }
        let versions = self.versions()?;
        let first = versions.first().with_context(|| format!("{}: no versions in it", self.root.display()))?;
        class_folders::folders(&self.folder(first), "<class>/<images>")
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(Vec::new())
    }

    /// Always fails. A mixture of corruptions would be a test set that nobody reports on, so there is no plain split.
    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        match split {
            SplitName::Test => bail!(
                "image-folder-c has no plain test split, only corrupted versions <corruption>:<severity>, evaluated one \
                 by one (bella eval --data image-folder-c=ROOT); for one of them as a test set of its own use \
                 [data.image-folder]"
            ),
            _ => bail!("image-folder-c has corrupted test images only, no split `{split}`; use [data.image-folder]"),
        }
    }

    fn versions(&self) -> Result<Vec<Version>> {
        let root = self.root.display();
        ensure!(self.root.is_dir(), "{root}: no such folder; set data.image-folder-c.root");
        let corruptions = match &self.corruptions {
            Some(given) => given.clone(),
            None => class_folders::folders(&self.root, "<corruption>/<severity>/<class>/<images>")?,
        };
        let versions = self.of(&corruptions);
        let missing: Vec<String> = versions
            .iter()
            .filter(|version| !self.folder(version).is_dir())
            .map(|version| format!("{}/{}", version.corruption, version.severity))
            .collect();
        ensure!(
            missing.is_empty(),
            "{root}: {} of {} folders <corruption>/<severity> are missing: {}; add them, or name what is there in \
             data.image-folder-c.corruptions and severities",
            missing.len(),
            versions.len(),
            missing.join(", ")
        );
        Ok(versions)
    }

    fn load_version(&self, version: &Version, request: &Request) -> Result<Split> {
        let folder = self.folder(version);
        ensure!(folder.is_dir(), "{}: no such folder, so there is no version `{version}`", folder.display());
        self.folders.load(&folder, &self.classes()?, (SplitName::Test, version.to_string()), request)
    }
}

impl ImageFolderC {
    /// Returns the versions of these corruptions at all severities that are read.
    fn of(&self, corruptions: &[String]) -> Vec<Version> {
        let of = |corruption: &String| {
            let corruption = corruption.clone();
            // The range was checked when the config was read.
            self.severities.iter().map(move |&s| Version { corruption: corruption.clone(), severity: s as u8 })
        };
        corruptions.iter().flat_map(of).collect()
    }

    fn folder(&self, version: &Version) -> PathBuf {
        self.root.join(&version.corruption).join(version.severity.to_string())
    }
}

impl SmallSet for ImageFolderC {
    fn side(&self) -> u32 {
        224
    }

    /// Names the classes and the first corruptions.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let all = self.corruptions.clone().unwrap_or_else(|| CORRUPTIONS.map(String::from).to_vec());
        let corruptions: Vec<String> = all.into_iter().take(sizes.corruptions).collect();
        toml::Table::from_iter([
            ("corruptions".to_string(), corruptions.into()),
            ("classes".to_string(), self.folders.names(sizes).into()),
        ])
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let names = self.folders.names(sizes);
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        for version in self.of(self.corruptions.as_deref().unwrap_or_default()) {
            let seed = usize::from(version.severity);
            class_folders::write(&self.folder(&version), &names, (sizes.test, seed, sizes), &mut pictures)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
