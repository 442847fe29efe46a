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
use crate::data::read::shards::{self, Label, Sample};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::stored::{Member, Members};
use crate::data::{Dataset, Entry, Request, Resize, Split, SplitName};
use crate::hub::data_folder;
use crate::hub::originals::Originals;
use crate::schema::{Choice, Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "webdataset",
    about: "images in tar archives (WebDataset): .jpg, .png or .webp with .cls or .json",
    fetch: "your own archives, or a folder of clip-benchmark/wds_*: ROOT/train/0.tar, …, ROOT/test/0.tar, …, ROOT/classnames.txt; \
            others by patterns below ROOT, such as train = \"train-{0000..0009}.tar\"",
    originals: Originals::ByHand("these are your own files, or those of a repository of the Hub"),
    hub: None,
    read: |reader| Box::new(WebDataset::read(reader)),
    sample: Some(|reader| Box::new(WebDataset::read(reader))),
};

settings! {
    struct WebDataset {
        root: PathBuf, because "the folder that holds the archives";
        /// Training archives below `root`: a name, or a pattern such as `train-{0000..0009}.tar`. By default those of the folder
        /// `train`.
        train: Option<String>;
        /// Archives for validation below `root`; by default those of the folder `val`, `valid` or `validation`.
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
        for (key, pattern) in [("train", &self.train), ("val", &self.val), ("test", &self.test)] {
            if let Some(Err(why)) = pattern.as_ref().map(|pattern| shards::expanded(pattern)) {
                reader.problem(key, why);
            }
        }
        let dotted = |ending: &String| ending.is_empty() || ending.starts_with('.');
        if self.images.iter().any(dotted) {
            reader.problem("images", "must be endings without the dot, such as [\"jpg\", \"png\"]");
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

    /// Returns the folder of a split in the layout without patterns, if there is one.
    fn folder(&self, split: SplitName) -> Result<Option<PathBuf>> {
        let names: &[&str] = if split == SplitName::Val { &["val", "valid", "validation"] } else { &[split.word()] };
        let is_in =
            |file: &str| names.iter().any(|name| file.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')));
        let root = self.root(is_in)?;
        Ok(names.iter().map(|name| root.join(name)).find(|folder| folder.is_dir()))
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
    fn label_of(&self, sample: &Sample, classes: &[String]) -> Result<u32> {
        let at = sample.path.with_extension(&self.label);
        let rule = || format!("must be a number from 0 to {}, or the name of a class", classes.len().saturating_sub(1));
        let text = match &sample.label {
            Label::Text(text) => text.clone(),
            Label::Missing => bail!(
                "{}: has no member .{}: give it one, or set data.webdataset.label to the ending of labels",
                sample.path.display(),
                self.label
            ),
            Label::Null => bail!("{}: `{}` is null: it {}", at.display(), self.label_key, rule()),
        };
        let number = || text.parse().ok().filter(|number: &usize| *number < classes.len());
        let label = classes.iter().position(|class| *class == text).or_else(number);
        label
            .map(|label| label as u32)
            .with_context(|| format!("{}: the label is `{text}`: it {}", at.display(), rule()))
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
    ensure!(!archives.is_empty(), "{}: no archive (.tar) in it", folder.display());
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
        let names: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect();
        ensure!(!names.is_empty(), "{}: names no class", file.display());
        if let Some(twice) = class_folders::repeated(&names) {
            bail!("{}: names the class `{twice}` twice", file.display());
        }
        let Some(classes) = &self.classes else { return Ok(names) };
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
            if self.pattern(split).is_some() || self.folder(split)?.is_some() {
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
        let (mut listing, mut of) = (Listing::default(), Vec::new());
        for (archive, samples) in (0u32..).zip(read) {
            for sample in samples {
                listing.labels.push(self.label_of(&sample, &classes)?);
                of.push(Member { archive, at: sample.at, size: sample.size });
                listing.paths.push(sample.path);
            }
        }
        listing.members = Some(Members { archives: archives.into(), rows: None, of });
        self.files.turned(self.exif_orientation).load(listing, (split, split.word()), request)
    }
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
mod tests {
    use super::*;
    use crate::base::tar::packed;
    use crate::data::testing::{REQUEST, error, fixture, grays, load, mistakes, set};

    /// The keys, labels and grays of a split, as WebDataset's own reader has them (scripts/make_webdataset_fixtures.py).
    fn expected(name: &str) -> Vec<(String, u32, u8)> {
        let text = std::fs::read_to_string(fixture("webdataset/expected.json")).unwrap();
        let all: std::collections::BTreeMap<String, Vec<(String, u32, u8)>> = serde_json::from_str(&text).unwrap();
        all[name].clone()
    }

    fn compare(split: &Split, name: &str) {
        let key = |i| split.sample_name(i).with_extension("").to_string_lossy().into_owned();
        let expected = expected(name);
        assert_eq!(split.len(), expected.len());
        for (i, ((wanted, label, gray), found)) in expected.iter().zip(grays(split)).enumerate() {
            assert!(key(i).ends_with(&format!(".tar/{wanted}")), "{} is {wanted}", key(i));
            assert_eq!((split.labels[i], found), (*label, *gray), "{wanted}");
        }
    }

    #[test]
    fn the_layout_of_clip_benchmark_is_read_as_webdataset_reads_it() {
        let root = fixture("webdataset/benchmark");
        let set = set(&ENTRY, &root, "");
        assert_eq!(set.classes().unwrap(), ["cat", "dog", "tench, Tinca tinca"]);
        assert_eq!(set.splits().unwrap(), [SplitName::Train, SplitName::Test]);
        for split in [SplitName::Train, SplitName::Test] {
            compare(&load(&*set, split).unwrap(), &format!("benchmark/{split}"));
        }
    }

    #[test]
    fn shards_by_braces_with_labels_in_json_are_read_from_memory_and_from_the_cache_alike() {
        let root = fixture("webdataset/shards");
        let keys = "train = \"train-{000000..000001}.tar\"\nlabel = \"json\"\nclasses = [\"cat\", \"dog\", \"tench, Tinca tinca\"]";
        let set = set(&ENTRY, &root, keys);
        let plain = load(&*set, SplitName::Train).unwrap();
        compare(&plain, "shards/train");
        let folder = tempfile::tempdir().unwrap();
        for memory_bytes in [0, 1 << 20] {
            let request = Request { cache: Some(folder.path()), memory_bytes, ..REQUEST };
            let split = set.load(SplitName::Train, &request).unwrap();
            compare(&split, "shards/train");
            assert_eq!(split.inputs.image(4).unwrap(), plain.inputs.image(4).unwrap());
        }
        assert_eq!(
            std::fs::read_dir(folder.path())
                .unwrap()
                .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "pixels"))
                .count(),
            1
        );
        let some = plain.select(&[4, 1]);
        assert_eq!(grays(&some), [grays(&plain)[4], grays(&plain)[1]]);
        assert_ne!(some.fingerprint(), plain.select(&[1, 4]).fingerprint());
    }

    fn png(gray: u8) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_pixel(4, 4, image::Rgb([gray; 3])).write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    /// The mistake of a test archive with these members.
    fn mistake(keys: &str, members: &[(&str, &[u8])]) -> String {
        let place = tempfile::tempdir().unwrap();
        put(&place.path().join("test/0.tar"), packed(members.iter().copied())).unwrap();
        error(&*set(&ENTRY, place.path(), &format!("classes = [\"a\", \"b\"]\n{keys}")), SplitName::Test)
    }

    #[test]
    fn samples_that_are_not_whole_are_named() {
        let png = &png(9)[..];
        let json = "label = \"json\"";
        for (keys, members, rule) in [
            ("", &[("x.png", png)][..], "0.tar/x.png: has no member .cls"),
            ("", &[("x.png", png), ("y.cls", b"0")], "0.tar: the sample `y` has a label and no image"),
            ("", &[("x.png", png), ("x.jpg", png), ("x.cls", b"0")], "`x` has two images, x.png and x.jpg"),
            ("", &[("x.png", png), ("x.png", png), ("x.cls", b"0")], "`x` has two images"),
            ("", &[("x.png", png), ("x.cls", b"0"), ("x.cls", b"1")], "`x` has two labels"),
            ("", &[("x.png", png), ("x.cls", b"2")], "0.tar/x.cls: the label is `2`: it must be a number from 0 to 1"),
            ("", &[("x.png", png), ("x.cls", b"-1")], "the label is `-1`"),
            ("", &[("x.png", png), ("x.cls", b"")], "the label is ``"),
            ("", &[("x.png", png), ("x.cls", b"\xff")], "x.cls: is no text"),
            ("", &[("x.png", b""), ("x.cls", b"0")], "0.tar/x.png is empty"),
            (json, &[("x.png", png), ("x.json", b"{\"label\": null}")], "0.tar/x.json: `label` is null"),
            (
                json,
                &[("x.png", png), ("x.json", b"{\"class\": 1}")],
                "has no key `label` (data.webdataset.label_key); its keys: class",
            ),
            (json, &[("x.png", png), ("x.json", b"{\"label\": [1]}")], "`label` must be a number or the name"),
            (json, &[("x.png", png), ("x.json", b"{")], "x.json: is no JSON"),
            ("", &[("readme", b"x")], "webdataset/test: has no images"),
        ] {
            let found = mistake(keys, members);
            assert!(found.contains(rule) && !found.contains('\n'), "{rule}: {found}");
        }
    }

    #[test]
    fn archives_that_are_missing_or_cut_are_named() {
        let place = tempfile::tempdir().unwrap();
        let whole = packed([("x.png", &png(9)[..]), ("x.cls", b"0"), ("y.png", &png(8)[..]), ("y.cls", b"1")]);
        let classes = "classes = [\"a\", \"b\"]";
        put(&place.path().join("test/0.tar"), &whole).unwrap();
        put(&place.path().join("test/nshards.txt"), "3\n").unwrap();
        let folders = set(&ENTRY, place.path(), classes);
        assert!(
            error(&*folders, SplitName::Test).contains("test/1.tar: no such archive (2 of the 3 of test are missing)")
        );
        assert!(
            error(&*folders, SplitName::Train)
                .contains("no folder `train`; name its archives with data.webdataset.train")
        );
        for count in ["", "x", "0", "99999999999"] {
            put(&place.path().join("test/nshards.txt"), count).unwrap();
            assert!(
                error(&*folders, SplitName::Test).contains("nshards.txt: must hold the number of archives"),
                "{count}"
            );
        }
        let by_name = set(&ENTRY, place.path(), &format!("{classes}\ntest = \"test/{{0..2}}.tar\""));
        assert!(error(&*by_name, SplitName::Test).contains("test/1.tar: no such archive"));
        std::fs::remove_file(place.path().join("test/nshards.txt")).unwrap();
        assert_eq!(grays(&load(&*folders, SplitName::Test).unwrap()), [9, 8]);
        for cut in (0..whole.len() - 1024).step_by(100) {
            put(&place.path().join("test/0.tar"), &whole[..cut]).unwrap();
            let found = error(&*folders, SplitName::Test);
            assert!(found.contains("test/0.tar: the tar archive is cut off"), "{cut}: {found}");
        }
    }

    #[test]
    fn keys_are_checked() {
        for (keys, rule) in [
            ("train = \"{0..\"", "has a `{` without its pair"),
            ("train = \"0}\"", "has a `}` without its pair"),
            ("train = \"{9..3}.tar\"", "must rise"),
            ("train = \"{a..b}.tar\"", "needs two numbers"),
            ("train = \"{0..999999}{0..9}.tar\"", "more than 1000000 archives"),
            ("images = []", "must not be empty"),
            ("images = [\".jpg\"]", "must be endings without the dot"),
            ("label = \"jpg\"", "that no image has"),
        ] {
            let found = mistakes(&ENTRY, keys);
            assert!(found.contains(rule), "{keys}: {found}");
        }
        let names = |pattern| shards::expanded(pattern).unwrap();
        assert_eq!(names("{08..11}.tar"), ["08.tar", "09.tar", "10.tar", "11.tar"]);
        assert_eq!(names("{a,b}-{0..1}"), ["a-0", "a-1", "b-0", "b-1"]);
        let place = tempfile::tempdir().unwrap();
        put(&place.path().join("classnames.txt"), "a\nb\n").unwrap();
        assert_eq!(set(&ENTRY, place.path(), "classes = [\"x\", \"y\"]").classes().unwrap(), ["x", "y"]);
        let other = format!("{:#}", set(&ENTRY, place.path(), "classes = [\"a\"]").classes().unwrap_err());
        assert!(other.contains("classnames.txt: names 2 classes, and data.webdataset.classes 1"), "{other}");
        put(&place.path().join("classnames.txt"), "a\nb\na\n").unwrap();
        let twice = format!("{:#}", set(&ENTRY, place.path(), "").classes().unwrap_err());
        assert!(twice.contains("names the class `a` twice"), "{twice}");
    }
}
