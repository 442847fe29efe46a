//! CAMELYON17-WILDS v1.0 (Bándi et al. 2018; Koh et al. 2021): 96x96 patches of lymph nodes from five hospitals, listed
//! in `metadata.csv`. Centers 0, 3 and 4 are for training, center 1 (or held-out patches of the training centers,
//! `id_val`) for validation, and center 2 for testing. See <https://wilds.stanford.edu/datasets/#camelyon17>.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::data::dataset::check_validation;
use crate::data::read::cifar;
use crate::data::read::class_folders::read_classes;
use crate::data::read::columns::{Columns, Place};
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::read::splits::{Wanted, splits};
use crate::data::read::tables::Numbers;
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Groups, Hub, Published, Request, Resize, Split, SplitName};
use crate::hub::DataRoot;
use crate::hub::originals::Originals;
use crate::schema::{Choice, Reader, settings, words};

pub static ENTRY: Entry = Entry {
    key: "camelyon17",
    about: "CAMELYON17-WILDS: tumour in 96x96 patches; train centers 0, 3, 4, val center 1, test center 2",
    fetch: "camelyon17_v1.0.tar.gz of WILDS from https://wilds.stanford.edu/datasets/, unpacked: \
            ROOT/camelyon17_v1.0/metadata.csv and ROOT/camelyon17_v1.0/patches/patient_…_node_…/…png",
    marks: &["camelyon17_v1.0"],
    originals: Originals::ByHand(
        "its server has been slow or down for long, and no hash of its archive is published: get it with the package wilds, or from a copy",
    ),
    hub: Some(Hub {
        repository: "wltjr1007/Camelyon17-WILDS",
        config: "default",
        splits: &PARTS,
        image: "image",
        label: "label",
    }),
    read: |reader| Box::new(Camelyon17::read(reader)),
    sample: Some(|reader| Box::new(Camelyon17::read(reader))),
};

/// The folder in the published archive.
const FOLDER: &str = "camelyon17_v1.0";
/// The splits and their names on the Hub.
const PARTS: [(SplitName, &str); 3] =
    [(SplitName::Train, "train"), (SplitName::Val, "validation"), (SplitName::Test, "test")];
/// The columns of the table of patches.
const COLUMNS: [&str; 8] = ["patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"];

words! {
    /// The published part that serves as the validation split.
    enum Validation {
        /// Center 1: out of distribution, WILDS's own choice.
        Val = "val",
        /// Patches of the training centers.
        IdVal = "id_val",
    }
}

words! {
    /// The property by which images are grouped.
    enum GroupBy { Slide = "slide", Center = "center" }
}

settings! {
    struct Camelyon17 {
        root: DataRoot, because "the folder that holds camelyon17_v1.0";
        /// Metadata file below `camelyon17_v1.0`.
        metadata: String = "metadata.csv".into();
        classes: Vec<String>, by |reader| read_classes(reader).unwrap_or_else(|| vec!["normal".into(), "tumor".into()]);
        /// Published split that serves as validation: other hospitals, or the hospitals of training.
        val: Validation = Validation::Val;
        /// The groups of the test images: slides or hospitals.
        group_by: GroupBy = GroupBy::Slide;
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
    } then check
}

impl Camelyon17 {
    fn check(&self, reader: &Reader) {
        if self.classes.len() != 2 {
            reader.problem("classes", "must be two names: without tumour, with tumour");
        }
        check_validation(reader, self.val != Validation::Val);
    }
}

impl Dataset for Camelyon17 {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.classes.clone())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        if let Some(found) = splits(&self.root, Wanted::Published(ENTRY.hub()?.config))? {
            let there = |(_, name): &(SplitName, &str)| found.contains_key(*name);
            return Ok(PARTS.into_iter().filter(there).map(|(split, _)| split).collect());
        }
        let found: BTreeSet<SplitName> = self.patches()?.into_iter().filter_map(|patch| patch.split).collect();
        Ok(found.into_iter().collect())
    }

    fn published(&self) -> Published {
        let val = if self.val == Validation::Val { 34_904 } else { 33_560 };
        Published::new(2, &[(SplitName::Train, 302_436), (SplitName::Val, val), (SplitName::Test, 85_054)])
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        if let Some(listing) = self.of_hub(split)? {
            return self.files.load(listing, split, request);
        }
        let mut patches = self.patches()?;
        patches.retain(|patch| patch.split == Some(split));
        if patches.is_empty() {
            let other = "; data.camelyon17.val = \"id_val\" validates on the training centers";
            let other = if split == SplitName::Val && self.val == Validation::Val { other } else { "" };
            bail!("{}: no patch of the split `{split}`{other}", self.folder().join(&self.metadata).display());
        }
        let groups = Groups::of(&patches.iter().map(|patch| patch.group).collect::<Vec<_>>());
        let groups = groups.called(self.group_by.word());
        let labels = patches.iter().map(|patch| patch.label).collect();
        let paths = patches.into_iter().map(|patch| patch.path).collect();
        self.files.load(Listing { paths, labels, groups: Some(groups), ..Listing::default() }, split, request)
    }
}

/// One row of the table.
struct Patch {
    path: PathBuf,
    label: u32,
    group: u32,
    /// The split of the patch. `None` if it belongs to the published part that is not used.
    split: Option<SplitName>,
}

impl Camelyon17 {
    fn folder(&self) -> PathBuf {
        cifar::folder(&self.root, FOLDER)
    }

    /// Returns the patches of a split from the Hub's tables, whose `validation` has both published parts; `None` if there are no
    /// tables.
    fn of_hub(&self, split: SplitName) -> Result<Option<Listing>> {
        let hub = ENTRY.hub()?;
        let Some(tables) = hub.open(&self.root, split)? else { return Ok(None) };
        let labels = tables.labels(hub.label, Numbers::Ordered(&self.classes))?;
        let by = self.group_by.word();
        let (centers, of) = (tables.words("center")?, tables.words(by)?);
        let mut listing = tables.listing(hub.image, labels)?;
        let is_wanted = |center: &str| match (split, self.val) {
            (SplitName::Train, _) | (SplitName::Val, Validation::IdVal) => ["0", "3", "4"].contains(&center),
            (SplitName::Val, Validation::Val) => center == "1",
            (SplitName::Test, _) => center == "2",
        };
        let kept: Vec<u32> = (0..).zip(&centers).filter(|(_, center)| is_wanted(center)).map(|(at, _)| at).collect();
        ensure!(!kept.is_empty(), "{}: no patch of the split `{split}`", self.root.display());
        let mut numbers: Vec<u32> = Vec::new();
        for slide in &of {
            let number = slide.parse().ok();
            numbers.push(number.with_context(|| format!("{}: {by} = {slide} is no number", self.root.display()))?);
        }
        listing.select(&kept);
        let of: Vec<u32> = kept.iter().map(|at| numbers[*at as usize]).collect();
        listing.groups = Some(Groups::of(&of).called(by));
        Ok(Some(listing))
    }

    fn patches(&self) -> Result<Vec<Patch>> {
        let folder = self.folder();
        let table = Columns::read(&folder.join(&self.metadata))?;
        let columns: Vec<usize> = COLUMNS.iter().map(|name| table.place(name)).collect::<Result<_>>()?;
        let row = |(at, row): (Place, &csv::StringRecord)| {
            let [patient, node, x, y, tumor, slide, center, part] =
                <[usize; 8]>::try_from(columns.as_slice())?.map(|column| &row[column]);
            let (label, slide, center) =
                (at.number("tumor", tumor)?, at.number("slide", slide)?, at.number("center", center)?);
            ensure!(label < 2, "{at}: tumor = {label}, but it is 0 or 1");
            Ok(Patch {
                path: Cells { patient, node, x, y }.file(&folder),
                label,
                group: if self.group_by == GroupBy::Slide { slide } else { center },
                split: self.split(at, center, part)?,
            })
        };
        table.rows().map(row).collect()
    }

    /// Returns the split of a patch. The center decides first; the table's own `split` then separates train (0) from
    /// id_val (1).
    fn split(&self, at: Place, center: u32, part: &str) -> Result<Option<SplitName>> {
        let is_used = |validation| (self.val == validation).then_some(SplitName::Val);
        Ok(match (center, part) {
            (1, _) => is_used(Validation::Val),
            (2, _) => Some(SplitName::Test),
            (0 | 3 | 4, "0") => Some(SplitName::Train),
            (0 | 3 | 4, "1") => is_used(Validation::IdVal),
            (0 | 3 | 4, _) => bail!("{at}: split = {part}, but it is 0 (train) or 1 (id_val) in center {center}"),
            _ => bail!("{at}: center = {center}, but centers are 0 to 4"),
        })
    }
}

/// The cells of the table that name a patch.
struct Cells<'a> {
    patient: &'a str,
    node: &'a str,
    x: &'a str,
    y: &'a str,
}

impl Cells<'_> {
    /// Returns the file of the patch.
    fn file(&self, folder: &Path) -> PathBuf {
        let Cells { patient, node, x, y } = self;
        // A program that has read the patient as a number drops the leading zeros.
        let stem = format!("patient_{patient:0>3}_node_{node}");
        folder.join(format!("patches/{stem}/patch_{stem}_x_{x}_y_{y}.png"))
    }
}

impl SmallSet for Camelyon17 {
    fn side(&self) -> u32 {
        96
    }

    /// Writes patches of center 0 for training, of center 1 (and more of center 0, `id_val`) for validation, and of center 2
    /// for testing.
    fn write(&self, sizes: &Sizes) -> Result<()> {
        let folder = self.root.join(FOLDER);
        let mut pictures = Pictures::new(self.side(), ImageFormat::Png);
        let mut table = format!(",{}\n", COLUMNS.join(","));
        let mut number = 0;
        for (count, center, split) in [(sizes.train, 0, 0), (sizes.val, 1, 1), (sizes.test, 2, 2), (sizes.val, 0, 1)] {
            for i in 0..count {
                let (label, slide) = (sizes.label(i), 10 * center + i % 2);
                let (patient, x) = (format!("{:03}", 4 + center), (96 * number).to_string());
                table += &format!("{number},{patient},4,{x},96,{label},{slide},{center},{split}\n");
                let patch = Cells { patient: &patient, node: "4", x: &x, y: "96" };
                put(&patch.file(&folder), pictures.file(label + 2 * i)?)?;
                number += 1;
            }
        }
        put(&folder.join(&self.metadata), table)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::testing::{error, grays, load, mistakes, put, set, write};

    const HEADER: &str = ",patient,node,x_coord,y_coord,tumor,slide,center,split\n";

    /// Returns a folder with one patch for each of `(patient, tumor, slide, center, split)`. Its gray is the number of the
    /// row.
    fn hospital(rows: &[(&str, u8, u8, u8, u8)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mut table = HEADER.to_string();
        for (i, (patient, tumor, slide, center, split)) in rows.iter().enumerate() {
            table += &format!("{i},{patient},4,{i},7,{tumor},{slide},{center},{split}\n");
            let stem = format!("patient_{patient:0>3}_node_4");
            put(root.path(), &format!("camelyon17_v1.0/patches/{stem}/patch_{stem}_x_{i}_y_7.png"), i as u8);
        }
        write(root.path(), "camelyon17_v1.0/metadata.csv", &table);
        root
    }

    const ROWS: [(&str, u8, u8, u8, u8); 7] = [
        ("004", 1, 10, 0, 0),
        ("4", 0, 12, 3, 0),
        ("017", 1, 10, 4, 1),
        ("020", 0, 20, 1, 0),
        ("040", 1, 30, 2, 1),
        ("040", 0, 31, 2, 0),
        ("096", 1, 9, 4, 0),
    ];

    fn of(root: &Path, extra: &str) -> Box<dyn Dataset> {
        set(&ENTRY, root, extra)
    }

    #[test]
    fn centers_make_the_splits_and_slides_the_groups() {
        let root = hospital(&ROWS);
        let set = of(root.path(), "");
        assert_eq!(set.splits().unwrap(), SplitName::ALL);
        let train = load(&*set, SplitName::Train).unwrap();
        assert_eq!((grays(&train), &train.labels[..]), (vec![0, 1, 6], &[1, 0, 1][..]));
        let groups = train.groups.unwrap();
        assert_eq!(
            (groups.names, groups.of),
            (["slide 9", "slide 10", "slide 12"].map(str::to_string).to_vec(), vec![1, 2, 0])
        );
        assert_eq!(grays(&load(&*set, SplitName::Val).unwrap()), [3]);
        assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), [4, 5]);
        assert_eq!(set.published().images_of(SplitName::Val), Some(34_904));
    }

    #[test]
    fn validation_inside_the_training_centers_and_groups_by_center() {
        let root = hospital(&ROWS);
        let set = of(root.path(), "val = \"id_val\"\ngroup_by = \"center\"\nclasses = [\"healthy\", \"tumour\"]");
        assert_eq!(grays(&load(&*set, SplitName::Val).unwrap()), [2]);
        let groups = load(&*set, SplitName::Train).unwrap().groups.unwrap();
        assert_eq!(
            (groups.names, groups.of),
            (["center 0", "center 3", "center 4"].map(str::to_string).to_vec(), vec![0, 1, 2])
        );
        assert_eq!(set.classes().unwrap(), ["healthy", "tumour"]);
        assert_eq!(set.published().images_of(SplitName::Val), Some(33_560));
        assert_eq!(set.resolved()["val"].as_str(), Some("id_val"));
        assert!(mistakes(&ENTRY, "classes = [\"one\"]").contains("must be two names"));
    }

    #[test]
    fn an_own_table_takes_a_part() {
        let root = hospital(&ROWS);
        let folder = root.path().join("camelyon17_v1.0");
        let table = std::fs::read_to_string(folder.join("metadata.csv")).unwrap();
        let part: Vec<&str> =
            table.lines().enumerate().filter(|(i, _)| [0, 1, 6].contains(i)).map(|(_, line)| line).collect();
        std::fs::write(folder.join("mine.csv"), part.join("\n")).unwrap();
        let set = of(root.path(), "metadata = \"mine.csv\"");
        assert_eq!(set.splits().unwrap(), [SplitName::Train, SplitName::Test]);
        assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), [5]);
        let text = error(&*set, SplitName::Val);
        assert!(text.contains("mine.csv: no patch of the split `val`; data.camelyon17.val = \"id_val\""), "{text}");
        assert_eq!(grays(&load(&*of(root.path(), "subset = 2"), SplitName::Train).unwrap()), [0, 1]);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused_by_line() {
        let root = hospital(&ROWS[..1]);
        let file = root.path().join("camelyon17_v1.0/metadata.csv");
        let refused = |table: &str| {
            std::fs::write(&file, table).unwrap();
            error(&*of(root.path(), ""), SplitName::Train)
        };
        let text = refused(&HEADER.replace(",center", ",hospital").replace('\n', "\n0,004,4,0,7,1,10,0,0\n"));
        assert!(text.contains("metadata.csv: no column `center`; its columns: , patient, node,"), "{text}");
        let text = refused(&format!("{HEADER}0,004,4,0,7,1,10,5,0\n"));
        assert!(text.contains("metadata.csv:2: center = 5, but centers are 0 to 4"), "{text}");
        assert!(refused(&format!("{HEADER}0,004,4,0,7,1,10,0,2\n")).contains("split = 2, but it is 0 (train) or 1"));
        assert!(
            refused(&format!("{HEADER}0,004,4,0,7,yes,10,0,0\n")).contains("tumor = `yes`, but it is a whole number")
        );
        assert!(refused(&format!("{HEADER}0,004,4,0,7,3,10,0,0\n")).contains("tumor = 3, but it is 0 or 1"));
        assert!(refused(HEADER).contains("no row below the header"));
        assert!(refused(&format!("{HEADER}0,004,4\n")).contains("metadata.csv: cannot read as CSV"));
        let text = refused(&format!("{HEADER}0,004,4,0,7,1,10,0,0\n1,004,4,99,7,1,10,0,0\n"));
        assert!(
            text.contains("camelyon17/train: 1 of 2 listed files cannot be used") && text.contains("x_99_y_7.png"),
            "{text}"
        );
    }
}
