//! Compares the files on disk with the published properties of a data set: classes, splits, images per class, groups,
//! and files that cannot be decoded. Every fault is found, not only the first.

use std::collections::BTreeMap;

use super::dataset::Dataset;
use super::inputs::Medium;
use super::labels::check_forms;
use super::read::class_folders::repeated;
use super::request::Request;
use super::split::{Split, SplitName};

/// The parts to check, and how strictly.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The only split to check. `None` checks all.
    pub split: Option<SplitName>,
    pub decoding: Decoding,
    pub extent: Extent,
}

/// The decoding of image files in a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// Files are looked up but not opened.
    Skip,
    All,
}

/// The comparison of counts with the published ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// A user's own part of the set, or a part cut by `subset`.
    Part,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The number of classes. `None` if they could not be read.
    pub classes: Option<usize>,
    pub published_classes: Option<usize>,
    pub parts: Vec<Part>,
    /// The faults, one line each.
    pub faults: Vec<String>,
}

/// The counts of a split or of a published corrupted version.
#[derive(Clone, Debug)]
pub struct Part {
    /// The name, such as `train` or `gaussian_noise:3`.
    pub name: String,
    pub images: usize,
    pub medium: Medium,
    /// The published number of images, if it is known.
    pub published: Option<usize>,
    /// The number of classes with at least one image.
    pub classes: usize,
    /// The number of images of the rarest and of the most frequent of these classes.
    pub per_class: (usize, usize),
    /// The least and the largest number, where numbers are learnt in place of classes.
    pub range: Option<[f64; 2]>,
    /// The number of groups. `None` if the set has no groups.
    pub groups: Option<usize>,
}

/// Checks a data set. `request` bounds the memory and threads.
pub fn check(set: &dyn Dataset, scope: &Scope, request: &Request) -> Findings {
    // Empty files are found where all are decoded, and with them the damaged ones.
    let request = &Request { keeps_corrupt: scope.decoding == Decoding::All, ..*request };
    let mut findings = Findings { published_classes: set.published().classes, ..Findings::default() };
    match set.classes() {
        Ok(classes) => findings.classes(&classes, scope),
        Err(error) => findings.faults.push(format!("classes: {error:#}")),
    }
    match set.splits() {
        Ok(splits) => findings.splits(set, &splits, scope, request),
        Err(error) => findings.faults.push(format!("splits: {error:#}")),
    }
    if scope.split.is_none_or(|only| only == SplitName::Test) {
        match set.versions() {
            Ok(versions) => versions.iter().for_each(|version| {
                findings.part(set.load_version(version, request), version.to_string(), None, scope, request);
            }),
            Err(error) => findings.faults.push(format!("versions: {error:#}")),
        }
    }
    if findings.parts.is_empty() && findings.faults.is_empty() {
        findings.faults.push("there is nothing to count: no such split".into());
    }
    findings
}

impl Findings {
    fn classes(&mut self, classes: &[String], scope: &Scope) {
        self.classes = Some(classes.len());
        if let Some(twice) = repeated(classes) {
            self.faults.push(format!("two classes are called `{twice}`: tell them apart"));
        }
        self.faults.extend(check_forms(classes).err().map(|error| error.to_string()));
        if let Some(wanted) = self.published_classes.filter(|&count| count != classes.len())
            && scope.extent == Extent::Whole
        {
            self.faults.push(format!("{} classes, but {wanted} are published", classes.len()));
        }
    }

    fn splits(&mut self, set: &dyn Dataset, found: &[SplitName], scope: &Scope, request: &Request) {
        let published = set.published();
        let wanted = |split: &SplitName| scope.split.is_none_or(|only| only == *split);
        for split in found.iter().copied().filter(wanted) {
            let count = published.images_of(split);
            self.part(set.load(split, request), split.to_string(), count, scope, request);
        }
        for (split, count) in published.images.iter().filter(|(split, _)| wanted(split) && !found.contains(split)) {
            if scope.extent == Extent::Whole {
                self.faults.push(format!("{split}: no image, but {count} are published"));
            }
        }
    }

    fn part(
        &mut self,
        loaded: anyhow::Result<Split>,
        name: String,
        published: Option<usize>,
        scope: &Scope,
        request: &Request,
    ) {
        let split = match loaded {
            Ok(split) => split,
            Err(error) => return self.faults.push(format!("{name}: {error:#}")),
        };
        let part = Part::of(&split, name, published);
        if let Some(wanted) = published.filter(|&count| count != part.images)
            && scope.extent == Extent::Whole
        {
            self.faults.push(format!("{}: {} {}, but {wanted} are published", part.name, part.images, part.medium));
        }
        if let Some(corrupt) = &split.corrupt {
            self.faults.push(format!("{}: {} files cannot be decoded", part.name, corrupt.count));
        }
        if scope.decoding == Decoding::All
            && let Some(files) = split.inputs.files()
        {
            match files.decode_all(request.workers, request.progress, |_, _| ()) {
                Ok(failures) => self.faults.extend(failures.into_iter().map(|(_, e)| format!("{}: {e:#}", part.name))),
                Err(error) => self.faults.push(format!("{}: {error:#}", part.name)),
            }
        }
        self.parts.push(part);
    }
}

impl Part {
    fn of(split: &Split, name: String, published: Option<usize>) -> Part {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        split.labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
        let extreme = |of: Option<&usize>| of.copied().unwrap_or(0);
        Part {
            name,
            images: split.len(),
            medium: split.inputs.medium(),
            published,
            classes: counts.len(),
            per_class: (extreme(counts.values().min()), extreme(counts.values().max())),
            range: split.numbers.as_ref().map(|numbers| {
                let bound = |of: fn(f64, f64) -> f64| numbers.iter().copied().reduce(of).unwrap_or_default();
                [bound(f64::min), bound(f64::max)]
            }),
            groups: split.groups.as_ref().map(|groups| groups.names.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{REQUEST, put, set, write};
    use crate::data::{DATASETS, Entry};

    fn entry(key: &str) -> &'static Entry {
        DATASETS.iter().find(|entry| entry.key == key).unwrap()
    }

    fn scope(decoding: Decoding, extent: Extent) -> Scope {
        Scope { split: None, decoding, extent }
    }

    fn two_splits() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, gray) in
            [("train/ant/a.png", 1), ("train/ant/b.png", 2), ("train/bee/c.png", 3), ("test/ant/d.png", 4)]
        {
            put(root.path(), file, gray);
        }
        root
    }

    #[test]
    fn counts_of_a_good_set() {
        let root = two_splits();
        let set = set(entry("image-folder"), root.path(), "");
        let found = check(&*set, &scope(Decoding::All, Extent::Whole), &REQUEST);
        assert!(found.faults.is_empty(), "{:?}", found.faults);
        assert_eq!((found.classes, found.published_classes, found.parts.len()), (Some(2), None, 2));
        let train = &found.parts[0];
        assert_eq!((train.name.as_str(), train.images, train.classes, train.per_class), ("train", 3, 2, (1, 2)));
        let only = Scope { split: Some(SplitName::Test), ..scope(Decoding::Skip, Extent::Whole) };
        assert_eq!(check(&*set, &only, &REQUEST).parts.len(), 1);
        let only = Scope { split: Some(SplitName::Val), ..only };
        assert_eq!(check(&*set, &only, &REQUEST).faults, ["there is nothing to count: no such split"]);
    }

    #[test]
    fn every_bad_file_is_named_once_decoded() {
        let root = two_splits();
        write(root.path(), "train/ant/a.png", "no image");
        write(root.path(), "train/bee/c.png", "nor this");
        let set = set(entry("image-folder"), root.path(), "");
        assert!(check(&*set, &scope(Decoding::Skip, Extent::Whole), &REQUEST).faults.is_empty());
        let faults = check(&*set, &scope(Decoding::All, Extent::Whole), &REQUEST).faults;
        assert_eq!(faults.len(), 2);
        assert!(
            faults[0].starts_with("train: ") && faults[0].contains("a.png") && faults[1].contains("c.png"),
            "{faults:?}"
        );
        write(root.path(), "test/ant/d.png", "");
        let faults = check(&*set, &scope(Decoding::Skip, Extent::Whole), &REQUEST).faults;
        assert!(faults.len() == 1 && faults[0].contains("d.png is empty"), "{faults:?}");
        write(root.path(), "train/ant/a.png", "");
        let faults = check(&*set, &scope(Decoding::All, Extent::Whole), &REQUEST).faults;
        let found = ["a.png", "c.png", "d.png"].map(|name| faults.iter().filter(|fault| fault.contains(name)).count());
        assert_eq!((found, faults.len()), ([1, 1, 1], 3), "{faults:?}");
    }

    #[test]
    fn published_numbers_bind_a_whole_set_only() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("test_batch.bin"), vec![1u8; 3073 * 4]).unwrap();
        let set = set(entry("cifar10"), root.path(), "");
        let whole = check(&*set, &scope(Decoding::Skip, Extent::Whole), &REQUEST);
        assert_eq!(whole.faults.len(), 2, "{:?}", whole.faults);
        assert!(whole.faults[0].contains("data_batch_1.bin: cannot read"));
        assert_eq!(whole.faults[1], "test: 4 images, but 10000 are published");
        let part = Scope { split: Some(SplitName::Test), ..scope(Decoding::Skip, Extent::Part) };
        let part = check(&*set, &part, &REQUEST);
        assert!(part.faults.is_empty() && part.parts[0].published == Some(10_000), "{part:?}");
    }

    #[test]
    fn a_published_split_without_images_is_a_fault() {
        let root = tempfile::tempdir().unwrap();
        let stem = "patient_004_node_4";
        put(root.path(), &format!("patches/{stem}/patch_{stem}_x_1_y_2.png"), 1);
        write(
            root.path(),
            "metadata.csv",
            "patient,node,x_coord,y_coord,tumor,slide,center,split\n004,4,1,2,1,10,0,0\n",
        );
        let set = set(entry("camelyon17"), root.path(), "");
        let faults = check(&*set, &scope(Decoding::All, Extent::Whole), &REQUEST).faults;
        let expected = [
            "train: 1 images, but 302436 are published",
            "val: no image, but 34904 are published",
            "test: no image, but 85054 are published",
        ];
        assert_eq!(faults, expected);
        let part = check(&*set, &scope(Decoding::All, Extent::Part), &REQUEST);
        assert!(part.faults.is_empty() && part.parts[0].groups == Some(1));
    }
}
