//! Any images or texts in Parquet, as a repository of the Hub or any other folder has them: a column with images or with texts,
//! one with labels or numbers, perhaps one with groups.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use image::ImageFormat;

use super::list;
use crate::data::lines::Line;
use crate::data::read::class_folders::{self, Draw, TestPart, draw, read_classes};
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::read::json_lines::{Label, Pairs, Portion};
use crate::data::read::known::implied;
use crate::data::read::splits::{Wanted, splits};
use crate::data::read::tables::{Numbers, Tables};
use crate::data::small::{Pictures, Sizes, SmallSet, text};
use crate::data::subset::kept;
use crate::data::table::{Column, write};
use crate::data::{Dataset, Entry, Groups, Medium, Request, Resize, Split, SplitName};
use crate::hub::DataRoot;
use crate::hub::originals::Originals;
use crate::schema::{Choice, Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "parquet",
    about: "any images or texts in Parquet, as repositories of the Hub have them: columns for image or text, label or number, group",
    fetch: "a repository of the Hub, or your own tables: ROOT/data/train-00000-of-00001.parquet, ROOT/<config>/<split>/0000.parquet \
            or ROOT/train.parquet",
    marks: &[],
    originals: Originals::ByHand("it may be any repository"),
    hub: None,
    read: |reader| Box::new(Parquet::read(reader)),
    sample: Some(|reader| Box::new(Parquet::read(reader))),
};

const ABOUT_TEST: &str = "Name of the split to test on (`test` by default), or the share of each class that is drawn for it from the \
                          training split.";

/// The name of the split to validate on where the table names none.
pub const VAL: &str = "validation";

settings! {
    struct Parquet {
        root: DataRoot, because "the folder of the repository or of the tables";
        /// Configuration of the repository, as its card or its folders name it; by default the only one.
        config: Option<String>;
        /// Column with the images: files of their own formats, or structs with the field `bytes`.
        image: Option<String>;
        /// Column with the texts, in place of images.
        text: Option<String>;
        /// Column with the second texts, if text encoders shall read pairs.
        second: Option<String>;
        /// Column with the labels: names, or numbers that the footer or `classes` names.
        label: String = "label".into();
        /// Column with a number that is learnt in place of a class.
        target: Option<String>;
        /// Column with the groups.
        group: Option<String>;
        /// Name of the training split.
        train: String = "train".into();
        /// Name of the split to validate on, if there is one.
        val: String = VAL.into();
        test: Option<TestPart>, by |reader| TestPart::read(reader, ABOUT_TEST);
        /// Seed by which test samples are drawn where `test` is a share; every `seed` has the same ones.
        split_seed: i64 = 0, in 0..=i64::MAX, omit 0;
        /// Whether images are turned by their EXIF orientation, as photos of phones need. ICC profiles and transparency are
        /// ignored, as in torchvision.
        exif_orientation: bool = true;
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
        classes: Option<Vec<String>>, by read_classes;
    } then check
}

impl Parquet {
    fn check(&self, reader: &Reader) {
        match (&self.image, &self.text) {
            (Some(_), Some(_)) => reader.problem("text", "stands in place of image: leave one of them out"),
            (None, None) => {
                reader.problem("image", "must name the column with the images, or text the one with the texts")
            }
            _ => {}
        }
        if self.classes.is_some() && self.has_numbers() {
            reader.problem("classes", "means nothing beside target, which is a number: leave one of them out");
        }
        if self.has_numbers() && reader.sets("label") {
            reader.problem(
                "label",
                "means nothing beside target, which is the column that is learnt: leave one of them out",
            );
        }
        let of_images = ["resize", "skip_corrupt", "exif_orientation"].into_iter();
        for key in of_images.filter(|key| self.text.is_some() && reader.sets(key)) {
            reader.problem(key, "is a setting of images, and text names a column of texts: leave it out");
        }
        if self.second.is_some() && self.text.is_none() {
            reader.problem("second", "is the second text of a pair, so text must name the first one");
        }
        if self.split_seed != 0 && !matches!(self.test, Some(TestPart::Share(_))) {
            reader.problem("split_seed", "has no meaning unless test is a share, such as test = 0.2");
        }
    }

    /// Returns the name of the table's split that serves as a split, and the share of it that is drawn for testing.
    fn part(&self, split: SplitName) -> (&str, Option<f64>) {
        match (split, &self.test) {
            (SplitName::Val, _) => (&self.val, None),
            (_, Some(TestPart::Share(share))) => (&self.train, Some(*share)),
            (SplitName::Train, _) => (&self.train, None),
            (SplitName::Test, Some(TestPart::Named(name))) => (name, None),
            (SplitName::Test, None) => (SplitName::Test.word(), None),
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        self.config.as_deref().map_or(Wanted::Only, Wanted::Named)
    }

    fn open(&self, name: &str) -> Result<Tables> {
        let tables = Tables::open(&self.root, self.wanted(), name)?;
        tables.with_context(|| {
            format!("{}: has no table (.parquet): what bella reads: {}", self.root.display(), ENTRY.fetch)
        })
    }

    /// Returns the numbers of the rows that belong to a split, of which the others are drawn for another one. A row is known by the
    /// name of its table and its number, wherever the tables lie.
    fn drawn(&self, tables: &Tables, labels: &[u32], split: SplitName) -> Option<Vec<u32>> {
        let share = self.part(split).1?;
        let rows = Listing { paths: tables.row_names(), labels: labels.to_vec(), ..Listing::default() };
        let by = Draw { share, seed: self.split_seed as u64 };
        Some(draw(&rows, Path::new(""), by).of(split))
    }

    fn texts(&self, tables: &Tables, column: &str, labels: &[u32], split: SplitName) -> Result<Split> {
        let columns: Vec<&str> = [column].into_iter().chain(self.second.as_deref()).collect();
        let mut pairs = Pairs::default();
        for (line, label) in tables.lines(&columns)?.iter().zip(labels) {
            let second = self.second.as_ref().map(|second| line.text(second)).transpose()?;
            pairs.push(&line.text(column)?, second.as_deref(), Label::Class(*label));
        }
        pairs.split(Portion { set: ENTRY.key, split, subset: None })
    }

    /// Returns the class of each row, which is 0 where numbers are learnt, and the numbers if they are.
    fn learnt(&self, tables: &Tables) -> Result<(Vec<u32>, Option<Vec<f64>>)> {
        let Some(target) = &self.target else {
            return Ok((tables.labels(&self.label, Numbers::Named(&self.classes()?))?, None));
        };
        let numbers =
            tables.lines(&[target.as_str()])?.iter().map(|line| line.number(target)).collect::<Result<Vec<_>>>()?;
        Ok((vec![0; numbers.len()], Some(numbers)))
    }
}

impl Dataset for Parquet {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        class_folders::label(ENTRY.key, &self.root, self.config.as_deref().unwrap_or_default())
    }

    fn medium(&self) -> Medium {
        if self.text.is_some() { Medium::Texts } else { Medium::Images }
    }

    fn resize(&self) -> Option<Resize> {
        self.image.is_some().then(|| self.files.resize())
    }

    fn turns(&self) -> bool {
        self.exif_orientation
    }

    /// Returns the classes of the config, of the footer, or of the labels in the first split that is there.
    fn classes(&self) -> Result<Vec<String>> {
        if let Some(target) = &self.target {
            return Ok(vec![target.clone()]);
        }
        if let Some(given) = &self.classes {
            return Ok(given.clone());
        }
        let first = self.splits()?.into_iter().next().unwrap_or(SplitName::Test);
        let tables = self.open(self.part(first).0)?;
        match tables.names(&self.label)? {
            Some(names) => Ok(names),
            None => Ok(implied(&tables.words(&self.label)?)),
        }
    }

    fn has_numbers(&self) -> bool {
        self.target.is_some()
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        let Some(found) = splits(&self.root, self.wanted())? else {
            return self.open(&self.train).map(|_| Vec::new());
        };
        // A table of validation samples that are tested on is not validated on, too.
        let is_tested = self.part(SplitName::Val).0 == self.part(SplitName::Test).0;
        let is_there =
            |split: &SplitName| found.contains_key(self.part(*split).0) && !(is_tested && *split == SplitName::Val);
        let there: Vec<SplitName> = SplitName::ALL.into_iter().filter(is_there).collect();
        let known = || found.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        ensure!(
            !there.is_empty(),
            "{}: has neither `{}` nor `{}`; its splits: {}: name them in data.parquet.train and test",
            self.root.display(),
            self.part(SplitName::Train).0,
            self.part(SplitName::Test).0,
            known()
        );
        Ok(there)
    }

    fn prompt(&self, line: &Line) -> Result<String> {
        line.text(self.text.as_deref().with_context(|| format!("{line}: this set holds images"))?)
    }

    fn second(&self, line: &Line) -> Result<Option<String>> {
        self.second.as_ref().map(|column| line.text(column)).transpose()
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let tables = self.open(self.part(split).0)?;
        let (labels, numbers) = self.learnt(&tables)?;
        let is_implied = self.target.is_none() && self.classes.is_none() && split == SplitName::Train;
        if is_implied && tables.names(&self.label)?.is_none() {
            list::warn_of_zero(&self.root, ENTRY.key, &tables.words(&self.label)?);
        }
        let of = self.group.as_ref().map(|column| tables.words(column)).transpose()?;
        let groups = of.map(|of| Groups::of(&of));
        let drawn = self.drawn(&tables, &labels, split);
        let Some(column) = &self.text else {
            let column = self.image.as_deref().unwrap_or_default();
            let mut listing = Listing { groups, numbers, ..tables.listing(column, labels)? };
            if let Some(kept) = drawn {
                listing.select(&kept);
            }
            return self.files.turned(self.exif_orientation).load(listing, split, request);
        };
        let mut all = Split { groups, numbers, ..self.texts(&tables, column, &labels, split)? };
        if let Some(kept) = drawn {
            all = all.select(&kept);
        }
        kept(all, self.files.subset(), split).context("data.parquet")
    }
}

impl SmallSet for Parquet {
    fn side(&self) -> u32 {
        if self.image.is_some() { 256 } else { 0 }
    }

    /// Names the classes, since the footer of a small table does not, and the share that is drawn for testing.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let made_up: Vec<String> = (0..sizes.classes).map(|label| format!("class_{label:03}")).collect();
        let mut keys = toml::Table::new();
        if !self.has_numbers() {
            keys.insert("classes".into(), self.classes.clone().unwrap_or(made_up).into());
        }
        if let Some(TestPart::Share(_)) = self.test {
            let share = sizes.test as f64 / (sizes.train + sizes.test).max(1) as f64;
            keys.insert("test".into(), share.clamp(0.01, 0.9).into());
        }
        keys
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        for split in SplitName::ALL {
            let (name, share) = self.part(split);
            let count = match share {
                Some(_) if split == SplitName::Test => continue,
                Some(_) => sizes.train + sizes.test,
                None => sizes.of(split),
            };
            let labels = (0..count).map(|i| sizes.label(i));
            let learnt = match &self.classes {
                Some(names) => Column::Texts(labels.map(|label| names[label].clone()).collect()),
                None => Column::Numbers(labels.map(|label| label as i64).collect()),
            };
            let mut columns = vec![(self.target.as_ref().unwrap_or(&self.label).as_str(), learnt)];
            if let Some(column) = &self.image {
                let files = (0..count).map(|i| pictures.file(i).map(<[u8]>::to_vec)).collect::<Result<_>>()?;
                columns.push((column, Column::Images(files)));
            }
            let mut texts: Vec<&String> = [&self.text, &self.second].into_iter().flatten().collect();
            texts.dedup();
            for column in texts {
                columns.push((column, Column::Texts((0..count).map(|i| format!("{i} {}", text(12, i))).collect())));
            }
            if let Some(column) = &self.group {
                columns.push((column, Column::Texts((0..count).map(|i| format!("group {}", i % 2)).collect())));
            }
            let folder = self.root.join(self.config.as_deref().unwrap_or("data"));
            write(&folder.join(format!("{name}-00000-of-00001.parquet")), &columns)?;
        }
        Ok(())
    }
}
