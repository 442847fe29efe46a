//! Images in tar archives as WebDataset has them: members with one name up to the first dot are one sample, say `0001.jpg` and
//! `0001.cls`. The archives (shards) are those of a pattern with braces, or those of the layout of `clip-benchmark/wds_*`:
//! `test/0.tar`, …, their number in `test/nshards.txt`, and the names of the classes in `classnames.txt`. Images are read from
//! their place in an archive, which is not unpacked.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use image::ImageFormat;
use rayon::prelude::*;

use crate::base::files::put;
use crate::base::files::{is_there, read_text};
use crate::data::read::class_folders::{self, read_classes};
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::read::known::Known;
use crate::data::read::shards::{self, Label, Sample};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::stored::{Member, Members};
use crate::data::{Dataset, Entry, Request, Resize, Split, SplitName};
use crate::hub::originals::Originals;
use crate::hub::{DataRoot, data_files, data_folder};
use crate::schema::{Choice, Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "webdataset",
    about: "images in tar archives (WebDataset): .jpg, .png or .webp with .cls or .json",
    fetch: "your own archives, or a folder of clip-benchmark/wds_*: ROOT/train/0.tar, …, ROOT/test/0.tar, …, ROOT/classnames.txt; \
            others by patterns below ROOT, such as train = \"train-{0000..0009}.tar\"",
    marks: &[],
    originals: Originals::ByHand("these are your own files, or those of a repository of the Hub"),
    hub: None,
    read: |reader| Box::new(WebDataset::read(reader)),
    sample: Some(|reader| Box::new(WebDataset::read(reader))),
};

settings! {
    struct WebDataset {
        root: DataRoot, because "the folder that holds the archives";
        /// Training archives below `root`: a name, or a pattern such as `train-{0000..0009}.tar`. By default those of the folder
        /// `train`.
        train: Option<String>;
        /// Archives for validation below `root`; by default those of the folder `val`, `validation`, `valid` or `dev`.
        val: Option<String>;
        /// Test archives below `root`; by default those of the folder `test`.
        test: Option<String>;
        /// Endings of images, without the dot.
        images: Vec<String> = ["jpg", "jpeg", "png", "webp"].map(String::from).to_vec();
        /// Ending of the member with the label: a number from 0 or the name of a class; with `json`, a table of JSON.
        label: String = "cls".into();
        /// Key of the label in a table of JSON.
        label_key: String = "label".into();
        /// Whether images are turned by their EXIF orientation, as photos of phones need. ICC profiles and transparency are
        /// ignored, as in torchvision.
        exif_orientation: bool = true;
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
        classes: Option<Vec<String>>, by read_classes;
    } then check
}

/// The file with the names of the classes, one a line.
const CLASSES: &str = "classnames.txt";

/// The file with the number of archives of a split.
const COUNT: &str = "nshards.txt";

impl WebDataset {
    fn check(&self, reader: &Reader) {
        for split in SplitName::ALL {
            if let Some(Err(why)) = self.pattern(split).map(shards::expanded) {
                reader.problem(split.word(), why);
            }
        }
        let dotted = |ending: &String| ending.is_empty() || ending.starts_with('.');
        if self.images.iter().any(dotted) {
            reader.problem("images", "must be endings without the dot, such as [\"jpg\", \"png\"]");
        }
        if shards::kind(&self.label) != shards::JSON && reader.sets("label_key") {
            reader.problem(
                "label_key",
                "is a key of JSON, and label names members that hold none: leave it out, or set label = \"json\"",
            );
        }
        if dotted(&self.label) || self.images.contains(&self.label) {
            reader.problem("label", "must be an ending without the dot that no image has, such as \"cls\" or \"json\"");
        }
    }

    fn pattern(&self, split: SplitName) -> Option<&str> {
        match split {
            SplitName::Train => self.train.as_deref(),
            SplitName::Val => self.val.as_deref(),
            SplitName::Test => self.test.as_deref(),
        }
    }

    /// Returns the root, with those files of a repository of the Hub in it that are `wanted`.
    fn root(&self, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
        data_folder(&self.root, &|files| files.iter().filter(|file| wanted(file)).cloned().collect())
    }

    /// Returns the name of the folder of a split in the layout without patterns, if there is one. Of a repository, nothing is fetched.
    fn folder_name(&self, split: SplitName) -> Result<Option<&'static str>> {
        let files = data_files(&self.root)?;
        let is_there = |name: &str| match &files {
            Some(files) => files.names.iter().any(|file| is_in(file, name)),
            None => self.root.join(name).is_dir(),
        };
        Ok(split.names().iter().copied().find(|name| is_there(name)))
    }

    /// Returns the folder of a split in the layout without patterns, if there is one.
    fn folder(&self, split: SplitName) -> Result<Option<PathBuf>> {
        let Some(name) = self.folder_name(split)? else { return Ok(None) };
        Ok(Some(self.root(|file| is_in(file, name))?.join(name)))
    }

    /// Returns the archives of a split, all of which are there.
    fn archives(&self, split: SplitName) -> Result<Vec<PathBuf>> {
        let root = self.root.display();
        let folder = if self.pattern(split).is_none() { self.folder(split)? } else { None };
        let archives = match (self.pattern(split), folder) {
            (Some(pattern), _) => {
                let names = shards::expanded(pattern)
                    .map_err(|why| anyhow!("data.webdataset.{split} = \"{pattern}\": {why}"))?;
                let root = self.root(|file| names.iter().any(|name| name == file))?;
                names.iter().map(|name| root.join(name)).collect()
            }
            (None, Some(folder)) => archives_in(&folder)?,
            (None, None) => bail!(
                "{root}: no folder `{split}`; name its archives with data.webdataset.{split}, say \"{split}-{{0000..0009}}.tar\""
            ),
        };
        let missing: Vec<&PathBuf> = archives.iter().filter(|path| !path.is_file()).collect();
        if let Some(first) = missing.first() {
            let (count, all) = (missing.len(), archives.len());
            bail!(
                "{}: no such archive ({count} of the {all} of {split} are missing): get it, or mend data.webdataset.{split}",
                first.display()
            );
        }
        Ok(archives)
    }

    /// Returns the label of a sample.
    fn label_of(&self, sample: &Sample, known: &Known) -> Result<u32> {
        let at = sample.path.with_extension(&self.label);
        let rule = || format!("must be a number from 0 to {}, or the name of a class", known.count().saturating_sub(1));
        let (text, label) = match &sample.label {
            Label::Place(text) => (text.clone(), known.placed(text)),
            Label::Truth(truth) => (truth.to_string(), known.truth(*truth)),
            Label::Text(text) => (text.clone(), known.of(text)),
            Label::Missing => bail!(
                "{}: has no member .{}: give it one, or set data.webdataset.label to the ending of labels",
                sample.path.display(),
                self.label
            ),
            Label::Null => bail!("{}: `{}` is null: it {}", at.display(), self.label_key, rule()),
        };
        label.with_context(|| format!("{}: the label is `{text}`: it {}", at.display(), rule()))
    }
}

/// Returns the archives of a folder: `0.tar` to one less than the number in its file, or else all, sorted by name.
fn archives_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let file = folder.join(COUNT);
    if is_there(&file) {
        let text = read_text(&file).with_context(|| format!("{}: cannot read", file.display()))?;
        let count: usize =
            text.trim().parse().ok().filter(|count| (1..=1_000_000).contains(count)).with_context(|| {
                format!("{}: must hold the number of archives, not {:?}", file.display(), text.trim())
            })?;
        return Ok((0..count).map(|number| folder.join(format!("{number}.tar"))).collect());
    }
    let mut archives = class_folders::entries(folder)?;
    archives.retain(|path| path.extension().is_some_and(|ending| ending == "tar"));
    archives.sort();
    ensure!(
        !archives.is_empty(),
        "{}: no archive (.tar) in it; those that are packed (.tar.gz) have to be unpacked",
        folder.display()
    );
    Ok(archives)
}

impl Dataset for WebDataset {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        class_folders::label(ENTRY.key, &self.root, "")
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn turns(&self) -> bool {
        self.exif_orientation
    }

    fn classes(&self) -> Result<Vec<String>> {
        let file = self.root(|file| file == CLASSES)?.join(CLASSES);
        if let Some(classes) = self.classes.as_ref().filter(|_| !is_there(&file)) {
            return Ok(classes.clone());
        }
        let text = read_text(&file).with_context(|| {
            format!("{}: cannot read; name the classes with data.webdataset.classes", file.display())
        })?;
        // An empty line is a class without a name, as one of `wds_vtab-clevr_closest_object_distance`: labels count it.
        let names: Vec<String> = text.trim_end().lines().map(|line| line.trim().to_string()).collect();
        ensure!(!text.trim().is_empty(), "{}: names no class", file.display());
        let Some(classes) = &self.classes else {
            if let Some(line) = names.iter().position(String::is_empty) {
                bail!(
                    "{}:{}: the class has no name: name all {} with data.webdataset.classes",
                    file.display(),
                    line + 1,
                    names.len()
                );
            }
            if let Some(twice) = class_folders::repeated(&names) {
                bail!(
                    "{}: names the class `{twice}` twice: name all {} with data.webdataset.classes",
                    file.display(),
                    names.len()
                );
            }
            return Ok(names);
        };
        ensure!(
            classes.len() == names.len(),
            "{}: names {} classes, and data.webdataset.classes {}: labels are numbers of the same classes, so name as many, or none",
            file.display(),
            names.len(),
            classes.len()
        );
        Ok(classes.clone())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        let mut found = Vec::new();
        for split in SplitName::ALL {
            if self.pattern(split).is_some() || self.folder_name(split)?.is_some() {
                found.push(split);
            }
        }
        if found.is_empty() { self.archives(SplitName::Test).map(|_| found) } else { Ok(found) }
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let (archives, classes) = (self.archives(split)?, self.classes()?);
        let endings = shards::Endings { images: &self.images, label: &self.label, label_key: &self.label_key };
        let read: Vec<Vec<Sample>> =
            archives.par_iter().map(|archive| shards::samples(archive, &endings)).collect::<Result<_>>()?;
        let (mut listing, mut of, known) = (Listing::default(), Vec::new(), Known::new(&classes));
        for (archive, samples) in (0u32..).zip(read) {
            for sample in samples {
                listing.labels.push(self.label_of(&sample, &known)?);
                of.push(Member { archive, at: sample.at, size: sample.size });
                listing.paths.push(sample.path);
            }
        }
        listing.members = Some(Members { archives: archives.into(), rows: None, of });
        self.files.turned(self.exif_orientation).load(listing, split, request)
    }
}

/// Returns whether a file of a repository is in the folder of this name.
fn is_in(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

impl SmallSet for WebDataset {
    fn side(&self) -> u32 {
        256
    }

    /// Names the archives and the classes, and the ending of the images.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let names = |split: SplitName| (split.to_string(), toml::Value::from(format!("{split}-{{0..1}}.tar")));
        let mut keys: toml::Table = SplitName::ALL.map(names).into_iter().collect();
        let made_up: Vec<String> = (0..sizes.classes).map(|label| format!("class_{label:03}")).collect();
        keys.insert("classes".into(), self.classes.clone().unwrap_or(made_up).into());
        keys.insert("images".into(), vec!["jpg".to_string()].into());
        keys.insert("label".into(), "cls".into());
        keys
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        for split in SplitName::ALL {
            let count = sizes.of(split);
            for archive in 0..2 {
                let mut files = Vec::new();
                for i in count * archive / 2..count * (archive + 1) / 2 {
                    files.push((format!("{i:06}.jpg"), pictures.file(i)?.to_vec()));
                    files.push((format!("{i:06}.cls"), sizes.label(i).to_string().into_bytes()));
                }
                let files = files.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
                put(&self.root.join(format!("{split}-{archive}.tar")), crate::base::tar::packed(files))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
