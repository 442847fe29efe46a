//! CAMELYON17-WILDS v1.0 (Bándi et al. 2018; Koh et al. 2021): 96x96 patches of lymph nodes from five hospitals, listed
//! in `metadata.csv`. Centers 0, 3 and 4 are for training, center 1 (or held-out patches of the training centers,
//! `id_val`) for validation, and center 2 for testing. See <https://wilds.stanford.edu/datasets/#camelyon17>.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::data::read::cifar;
use crate::data::read::class_folders::read_classes;
use crate::data::read::columns::{Columns, Place};
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::{Dataset, Entry, Groups, Published, Request, Resize, Split, SplitName};
use crate::schema::{Choice, Reader, limits, settings, words};

pub static ENTRY: Entry = Entry {
    key: "camelyon17",
    about: "CAMELYON17-WILDS: tumour in 96x96 patches; train centers 0, 3, 4, val center 1, test center 2",
    fetch: "camelyon17_v1.0.tar.gz of WILDS from https://wilds.stanford.edu/datasets/, unpacked: \
            ROOT/camelyon17_v1.0/metadata.csv and ROOT/camelyon17_v1.0/patches/patient_…_node_…/…png",
    read: |reader| Box::new(Camelyon17::read(reader)),
};

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
        root: PathBuf, because "the folder that holds camelyon17_v1.0";
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
        let share = !reader.is_text("validation") && reader.float("validation", limits::at_least(0.0)).or(0.0) > 0.0;
        if self.val != Validation::Val && share {
            reader.problem("val", "is for validation = \"val\"; leave it out, or set that");
        }
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
        let mut patches = self.patches()?;
        patches.retain(|patch| patch.split == Some(split));
        if patches.is_empty() {
            let other = "; data.camelyon17.val = \"id_val\" validates on the training centers";
            let other = if split == SplitName::Val && self.val == Validation::Val { other } else { "" };
            bail!("{}: no patch of the split `{split}`{other}", self.folder().join(&self.metadata).display());
        }
        let groups: BTreeSet<u32> = patches.iter().map(|patch| patch.group).collect();
        let place: BTreeMap<u32, u32> = groups.iter().copied().zip(0..).collect();
        let by = self.group_by.word();
        let groups = Groups {
            names: groups.iter().map(|group| format!("{by} {group}")).collect(),
            of: patches.iter().map(|patch| place[&patch.group]).collect(),
        };
        let labels = patches.iter().map(|patch| patch.label).collect();
        let paths = patches.into_iter().map(|patch| patch.path).collect();
        self.files.load(Listing { paths, labels, groups: Some(groups) }, (split, split.word()), request)
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
        cifar::folder(&self.root, "camelyon17_v1.0")
    }

    fn patches(&self) -> Result<Vec<Patch>> {
        let folder = self.folder();
        let table = Columns::read(&folder.join(&self.metadata))?;
        let columns = ["patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"];
        let columns: Vec<usize> = columns.iter().map(|name| table.place(name)).collect::<Result<_>>()?;
        let patch = |(at, row): (Place, &csv::StringRecord)| {
            let [patient, node, x, y, tumor, slide, center, part] =
                <[usize; 8]>::try_from(columns.as_slice())?.map(|column| &row[column]);
            let (label, slide, center) =
                (number(at, "tumor", tumor)?, number(at, "slide", slide)?, number(at, "center", center)?);
            ensure!(label < 2, "{at}: tumor = {label}, but it is 0 or 1");
            // A program that has read the patient as a number drops the leading zeros.
            let stem = format!("patient_{patient:0>3}_node_{node}");
            Ok(Patch {
                path: folder.join(format!("patches/{stem}/patch_{stem}_x_{x}_y_{y}.png")),
                label,
                group: if self.group_by == GroupBy::Slide { slide } else { center },
                split: self.split(at, center, part)?,
            })
        };
        table.rows().map(patch).collect()
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

fn number(at: Place, column: &str, cell: &str) -> Result<u32> {
    cell.parse().ok().with_context(|| format!("{at}: {column} = `{cell}`, but it is a whole number"))
}

#[cfg(test)]
mod tests;
