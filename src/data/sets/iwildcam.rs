//! iWildCam2020-WILDS v2.0 (Beery et al. 2020; Koh et al. 2021): photos of camera traps, listed in `metadata.csv` with the species
//! (`y`), the trap (`location_remapped`) and the split. Traps of the test and validation images are not among those of training; the
//! parts `id_val` and `id_test` are of the traps of training. See <https://wilds.stanford.edu/datasets/#iwildcam>.
//!
//! WILDS reports the accuracy and the macro F1 over the species that the test images show (column `f1_macro_shown`).

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::data::dataset::check_validation;
use crate::data::read::cifar;
use crate::data::read::class_folders::read_classes;
use crate::data::read::columns::Columns;
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Groups, Published, Request, Resize, Split, SplitName};
use crate::hub::originals::Originals;
use crate::schema::{Choice, Reader, settings, words};

pub static ENTRY: Entry = Entry {
    key: "iwildcam",
    about: "iWildCam2020-WILDS v2.0: 182 species in photos of camera traps; test traps are not those of training",
    fetch: "iwildcam_v2.0.tar.gz of WILDS from https://wilds.stanford.edu/datasets/, unpacked: \
            ROOT/iwildcam_v2.0/metadata.csv and ROOT/iwildcam_v2.0/train/<images>",
    marks: &["iwildcam_v2.0"],
    originals: Originals::ByHand("no hash of its archive is published: get it with the package wilds, or from a copy"),
    hub: None,
    read: |reader| Box::new(IWildCam::read(reader)),
    sample: Some(|reader| Box::new(IWildCam::read(reader))),
};

/// The folder in the published archive, and places in it.
const FOLDER: &str = "iwildcam_v2.0";
const METADATA: &str = "metadata.csv";
/// The folder with the images of every split.
const IMAGES: &str = "train";
/// The columns that are read.
const COLUMNS: [&str; 4] = ["split", "filename", "y", "location_remapped"];
/// The names of all parts.
const PARTS: [&str; 5] = ["train", "val", "test", "id_val", "id_test"];
/// The number of species.
const SPECIES: usize = 182;

words! {
    /// The published part that serves as the validation split.
    enum Validation {
        /// Other traps: WILDS's own choice.
        Val = "val",
        /// The traps of training on other days.
        IdVal = "id_val",
    }
}

words! {
    /// The published part that serves as the test split.
    enum Test {
        /// Other traps: WILDS's own choice.
        Test = "test",
        /// The traps of training on other days.
        IdTest = "id_test",
    }
}

settings! {
    struct IWildCam {
        root: PathBuf, because "the folder that holds iwildcam_v2.0";
        classes: Vec<String>, by |reader| {
            read_classes(reader).unwrap_or_else(|| (0..SPECIES).map(|y| y.to_string()).collect())
        };
        /// Published part that serves as validation: other traps, or those of training.
        val: Validation = Validation::Val;
        /// Published part to test on: other traps, or those of training.
        test: Test = Test::Test;
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
    } then check
}

impl IWildCam {
    fn check(&self, reader: &Reader) {
        if self.classes.len() != SPECIES {
            reader.problem("classes", format!("must be {SPECIES} names, in the order of the numbers in the column y"));
        }
        check_validation(reader, self.val != Validation::Val);
    }

    fn folder(&self) -> PathBuf {
        cifar::folder(&self.root, FOLDER)
    }

    /// Returns the name of the published part of a split.
    fn part(&self, split: SplitName) -> &'static str {
        match split {
            SplitName::Train => "train",
            SplitName::Val => self.val.word(),
            SplitName::Test => self.test.word(),
        }
    }

    /// Returns the photos of a split, in the order of the table.
    fn listing(&self, split: SplitName) -> Result<Listing> {
        let (folder, part) = (self.folder(), self.part(split));
        let table = Columns::read(&folder.join(METADATA))?;
        let columns: Vec<usize> = COLUMNS.iter().map(|name| table.place(name)).collect::<Result<_>>()?;
        let (mut listing, mut traps) = (Listing::default(), Vec::new());
        for (at, row) in table.rows() {
            let [of, file, y, trap] = <[usize; 4]>::try_from(columns.as_slice())?.map(|column| &row[column]);
            ensure!(PARTS.contains(&of), "{at}: split = {of}, but it is one of {}", PARTS.join(", "));
            if of != part {
                continue;
            }
            let label = at.number("y", y)?;
            ensure!((label as usize) < SPECIES, "{at}: y = {label}, but it is below {SPECIES}");
            listing.paths.push(folder.join(IMAGES).join(file));
            listing.labels.push(label);
            traps.push(at.number("location_remapped", trap)?);
        }
        if listing.paths.is_empty() {
            bail!("{}: no photo of the part `{part}`", folder.join(METADATA).display());
        }
        listing.groups = Some(Groups::of(&traps).called("location"));
        Ok(listing)
    }
}

impl Dataset for IWildCam {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    /// Returns another name for the traps of training, whose numbers are others.
    fn label(&self) -> String {
        match self.test {
            Test::Test => ENTRY.key.to_string(),
            Test::IdTest => format!("{}-id", ENTRY.key),
        }
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.classes.clone())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(SplitName::ALL.to_vec())
    }

    fn published(&self) -> Published {
        let val = if self.val == Validation::Val { 14_961 } else { 7_314 };
        let test = if self.test == Test::Test { 42_791 } else { 8_154 };
        Published::new(SPECIES, &[(SplitName::Train, 129_809), (SplitName::Val, val), (SplitName::Test, test)])
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        self.files.load(self.listing(split)?, split, request)
    }
}

impl SmallSet for IWildCam {
    fn side(&self) -> u32 {
        448
    }

    /// Writes the parts that are used, from a trap each.
    fn write(&self, sizes: &Sizes) -> Result<()> {
        let (folder, mut pictures) = (self.root.join(FOLDER), Pictures::new(sizes.side, ImageFormat::Jpeg));
        let mut table = format!("{},datetime\n", COLUMNS.join(","));
        for (trap, split) in SplitName::ALL.into_iter().enumerate() {
            for i in 0..sizes.of(split) {
                let (part, file) = (self.part(split), format!("{trap}-{i}.jpg"));
                put(&folder.join(IMAGES).join(&file), pictures.file(i)?)?;
                table += &format!("{part},{file},{},{trap},2013-06-05 05:44:19.000\n", sizes.label(i));
            }
        }
        put(&folder.join(METADATA), table)
    }
}

#[cfg(test)]
mod tests {
    // tests/fixtures/data/iwildcam was written by scripts/make_wilds_fixtures.py: a table as WILDS ships it, and what the package
    // `wilds` itself reads of it.
    use super::*;
    use crate::data::testing::{error, fixture, load, mistakes, put, set, write};

    /// Writes the table of the fixture with an image for each row, whose gray is the row's number.
    fn fixed() -> (tempfile::TempDir, serde_json::Value) {
        let root = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(fixture("iwildcam/metadata.csv")).unwrap();
        let files = text.lines().skip(1).map(|line| line.split(',').find(|cell| cell.ends_with(".jpg")).unwrap());
        files.zip(0..).for_each(|(file, gray)| put(root.path(), &format!("{FOLDER}/{IMAGES}/{file}"), gray));
        write(root.path(), &format!("{FOLDER}/{METADATA}"), &text);
        let expected = std::fs::read_to_string(fixture("iwildcam/expected.json")).unwrap();
        (root, serde_json::from_str(&expected).unwrap())
    }

    #[test]
    fn splits_labels_and_groups_are_those_of_the_package() {
        let (root, expected) = fixed();
        for (extra, split, part) in [
            ("", SplitName::Train, "train"),
            ("", SplitName::Val, "val"),
            ("", SplitName::Test, "test"),
            ("val = \"id_val\"", SplitName::Val, "id_val"),
            ("test = \"id_test\"", SplitName::Test, "id_test"),
        ] {
            let found = load(&*set(&ENTRY, root.path(), extra), split).unwrap();
            let known = &expected["parts"][part];
            let of = |key: &str| -> Vec<u32> { serde_json::from_value(known[key].clone()).unwrap() };
            assert_eq!(found.labels, of("y"), "{part}");
            let files: Vec<_> = (0..found.len())
                .map(|at| found.sample_name(at).file_name().unwrap().to_str().unwrap().to_string())
                .collect();
            assert_eq!(serde_json::to_value(files).unwrap(), known["files"], "{part}");
            let groups = found.groups.unwrap();
            let traps: Vec<String> = of("location").iter().map(|trap| format!("location {trap}")).collect();
            let named: Vec<&String> = groups.of.iter().map(|of| &groups.names[*of as usize]).collect();
            assert_eq!(named, traps.iter().collect::<Vec<_>>(), "{part}");
        }
        assert_eq!(expected["classes"], SPECIES);
    }

    #[test]
    fn wrong_tables_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let refused = |text: &str| {
            write(root.path(), "metadata.csv", text);
            error(&*set(&ENTRY, root.path(), ""), SplitName::Test)
        };
        let text = refused("split,filename,y\ntest,a.jpg,1\n");
        assert!(
            text.ends_with("metadata.csv: no column `location_remapped`; its columns: split, filename, y"),
            "{text}"
        );
        let head = "split,filename,y,location_remapped\n";
        let row = |row: &str| refused(&format!("{head}{row}\n"));
        assert!(
            row("dev,a.jpg,1,2").contains("metadata.csv:2: split = dev, but it is one of train, val, test, id_val")
        );
        assert!(row("test,a.jpg,182,2").contains("metadata.csv:2: y = 182, but it is below 182"));
        assert!(row("test,a.jpg,wolf,2").contains("y = `wolf`, but it is a whole number"));
        assert!(row("train,a.jpg,1,2").contains("no photo of the part `test`"));
        assert!(row("test,a.jpg,1,2").contains("a.jpg: No such file"));
        assert!(mistakes(&ENTRY, "classes = [\"a\", \"b\"]").contains("must be 182 names"));
        assert!(mistakes(&ENTRY, "val = \"id_val\"\nvalidation = 0.2").contains("is for validation = \"val\""));
        assert!(
            error(&*set(&ENTRY, &root.path().join("x"), ""), SplitName::Test).contains("metadata.csv: cannot open")
        );
    }
}
