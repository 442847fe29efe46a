//! MedMNIST v2 and MedMNIST+ (Yang et al. 2023): medical images at 28, 64, 128 and 224 pixels with official splits, one `.npz` file for
//! each data set and size. Here are the eleven of flat images with one label each. See <https://medmnist.com>.
//!
//! Gray images become three equal channels, as `as_rgb` of the package `medmnist` has it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::data::read::npz::{self, Npz, Written};
use crate::data::small::{Sizes, SmallSet, value};
use crate::data::subset::chosen;
use crate::data::{Dataset, Entry, Inputs, Packed, Published, Request, Split, SplitName, Subset};
use crate::hub::originals::Originals;
use crate::machine::memory;
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "medmnist",
    about: "MedMNIST: eleven sets of medical images (pathmnist, bloodmnist, ...), 28 to 224 pixels, official splits",
    fetch: "pathmnist.npz (28 pixels), pathmnist_224.npz, …, to which https://medmnist.com links (Zenodo record 10519652): \
            ROOT/pathmnist.npz",
    marks: &[],
    originals: Originals::ByHand("only MD5 sums of its files are published, and the package medmnist fetches them"),
    hub: None,
    read: |reader| Box::new(MedMnist::read(reader)),
    sample: Some(|reader| Box::new(MedMnist::read(reader))),
};

/// The sizes of the published images.
const SIDES: [i64; 4] = [28, 64, 128, 224];

settings! {
    struct MedMnist {
        root: PathBuf, because "the folder that holds pathmnist.npz and the like";
        /// Name of the data set, such as `pathmnist`.
        task: String, because "one of the eleven data sets, say \"pathmnist\"";
        /// Number of pixels per side of the images: 28, 64, 128 or 224.
        size: i64 = 28, in 28..=224;
        subset: Option<Subset>, by Subset::read;
    } then check
}

impl MedMnist {
    fn check(&self, reader: &Reader) {
        if !self.task.is_empty() && task(&self.task).is_none() {
            let other = match self.task.as_str() {
                "chestmnist" => "chestmnist has several labels an image",
                name if name.ends_with("3d") => "volumes are not read",
                _ => "unknown data set",
            };
            reader.problem("task", format!("{other}; known: {}", known()));
        }
        if !SIDES.contains(&self.size) {
            reader.problem("size", "must be 28, 64, 128 or 224");
        }
    }

    fn task(&self) -> Result<&'static Task> {
        task(&self.task).with_context(|| format!("data.medmnist.task = {}: known: {}", self.task, known()))
    }

    /// Returns the name of the file without its ending.
    fn stem(&self) -> String {
        if self.size == SIDES[0] { self.task.clone() } else { format!("{}_{}", self.task, self.size) }
    }

    fn file(&self) -> PathBuf {
        self.root.join(format!("{}.npz", self.stem()))
    }
}

impl Dataset for MedMnist {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        self.stem()
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.task()?.classes.iter().map(|name| name.to_string()).collect())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(SplitName::ALL.to_vec())
    }

    fn published(&self) -> Published {
        let Some(task) = task(&self.task) else { return Published::default() };
        let counts: Vec<(SplitName, usize)> = SplitName::ALL.into_iter().zip(task.counts).collect();
        Published::new(task.classes.len(), &counts)
    }

    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        let mut npz = Npz::open(&self.file()).context("`bella data check medmnist=ROOT` says what to fetch")?;
        let labels = self.labels(&mut npz, split)?;
        let kept = chosen(self.subset, split, &labels).context("data.medmnist")?;
        let pixels = self.pixels(&mut npz, split, labels.len(), kept.as_deref())?;
        let side = self.size as usize;
        Ok(Split::new(
            format!("{}/{split}", self.stem()),
            Inputs::Packed(Packed { pixels, height: side, width: side }),
            kept.map_or_else(|| labels.clone(), |kept| kept.iter().map(|at| labels[*at as usize]).collect()),
        ))
    }
}

impl MedMnist {
    /// Returns the labels of a split, `[N]`.
    fn labels(&self, npz: &mut Npz, split: SplitName) -> Result<Vec<u32>> {
        let (at, classes) = (self.file(), self.task()?.classes.len());
        let at = at.display();
        let array = npz.array(&format!("{split}_labels"))?;
        let shape = array.shape().to_vec();
        ensure!(
            matches!(shape[..], [_, 1] | [_]) && shape[0] > 0,
            "{at}: {split}_labels has the shape {shape:?}, but one label an image is [N, 1]: fetch it again"
        );
        let checked = |(image, label): (usize, i64)| {
            let within = u32::try_from(label).ok().filter(|label| (*label as usize) < classes);
            within.with_context(|| {
                format!("{at}: {split} image {image} has label {label}, but labels are 0 to {}", classes - 1)
            })
        };
        array.integers()?.into_iter().enumerate().map(checked).collect()
    }

    /// Returns the pixels `[N, 3, side, side]` of the `kept` of so many images, or of all.
    fn pixels(&self, npz: &mut Npz, split: SplitName, count: usize, kept: Option<&[u32]>) -> Result<Vec<u8>> {
        let (at, side) = (self.file(), self.size as u64);
        let (at, plane) = (at.display(), (side * side) as usize);
        let array = npz.array(&format!("{split}_images"))?;
        let (gray, color) = (vec![count as u64, side, side], vec![count as u64, side, side, 3]);
        let is_gray = array.shape() == gray;
        ensure!(
            is_gray || array.shape() == color,
            "{at}: {split}_images has the shape {:?}, but {count} labels and data.medmnist.size = {side} need {gray:?} or \
             {color:?}",
            array.shape()
        );
        let bytes = 3 * plane * kept.map_or(count, <[u32]>::len);
        if let Some(room) = memory::room(tch::Device::Cpu).filter(|room| bytes as u64 > *room) {
            anyhow::bail!(
                "{at}: the images of {split} take {} MB, and {} MB of memory are free: set data.medmnist.subset, or a smaller \
                 data.medmnist.size",
                bytes / 1_000_000,
                room / 1_000_000
            );
        }
        let (mut pixels, mut next) = (Vec::with_capacity(bytes), kept.map(|kept| kept.iter().peekable()));
        array.byte_rows(|image, row| {
            let wanted = next.as_mut().is_none_or(|next| next.next_if(|at| **at as usize == image).is_some());
            match (wanted, is_gray) {
                (false, _) => {}
                (true, true) => (0..3).for_each(|_| pixels.extend_from_slice(row)),
                (true, false) => (0..3).for_each(|channel| pixels.extend(row.iter().skip(channel).step_by(3))),
            }
            Ok(())
        })?;
        Ok(pixels)
    }
}

impl SmallSet for MedMnist {
    fn side(&self) -> u32 {
        self.size as u32
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let side = self.size as usize;
        let mut arrays = Vec::new();
        for split in SplitName::ALL {
            let count = sizes.of(split);
            let pixel = |at: usize| value(at / (3 * side * side), at % 3, at / 3 / side % side, at / 3 % side);
            let pixels = (0..count * 3 * side * side).map(pixel).collect();
            arrays.push(Written { name: format!("{split}_images"), shape: vec![count, side, side, 3], bytes: pixels });
            let labels = (0..count).map(|i| sizes.label(i) as u8).collect();
            arrays.push(Written { name: format!("{split}_labels"), shape: vec![count, 1], bytes: labels });
        }
        npz::write(&self.file(), &arrays)
    }
}

/// A data set of MedMNIST, as the package `medmnist` 3.0.2 states it (`info.py`).
struct Task {
    pub key: &'static str,
    /// The numbers of images of train, val and test.
    pub counts: [usize; 3],
    pub classes: &'static [&'static str],
}

/// Returns a data set; `None` if there is none of that name.
fn task(key: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.key == key)
}

/// Returns the names of all data sets.
fn known() -> String {
    TASKS.iter().map(|task| task.key).collect::<Vec<_>>().join(", ")
}

/// The organs of the three sets of slices.
const ORGANS: &[&str] = &[
    "bladder",
    "femur-left",
    "femur-right",
    "heart",
    "kidney-left",
    "kidney-right",
    "liver",
    "lung-left",
    "lung-right",
    "pancreas",
    "spleen",
];

static TASKS: [Task; 11] = [
    Task {
        key: "pathmnist",
        counts: [89_996, 10_004, 7_180],
        classes: &[
            "adipose",
            "background",
            "debris",
            "lymphocytes",
            "mucus",
            "smooth muscle",
            "normal colon mucosa",
            "cancer-associated stroma",
            "colorectal adenocarcinoma epithelium",
        ],
    },
    Task {
        key: "dermamnist",
        counts: [7_007, 1_003, 2_005],
        classes: &[
            "actinic keratoses and intraepithelial carcinoma",
            "basal cell carcinoma",
            "benign keratosis-like lesions",
            "dermatofibroma",
            "melanoma",
            "melanocytic nevi",
            "vascular lesions",
        ],
    },
    Task {
        key: "octmnist",
        counts: [97_477, 10_832, 1_000],
        classes: &["choroidal neovascularization", "diabetic macular edema", "drusen", "normal"],
    },
    Task { key: "pneumoniamnist", counts: [4_708, 524, 624], classes: &["normal", "pneumonia"] },
    Task { key: "retinamnist", counts: [1_080, 120, 400], classes: &["0", "1", "2", "3", "4"] },
    Task { key: "breastmnist", counts: [546, 78, 156], classes: &["malignant", "normal, benign"] },
    Task {
        key: "bloodmnist",
        counts: [11_959, 1_712, 3_421],
        classes: &[
            "basophil",
            "eosinophil",
            "erythroblast",
            "immature granulocytes(myelocytes, metamyelocytes and promyelocytes)",
            "lymphocyte",
            "monocyte",
            "neutrophil",
            "platelet",
        ],
    },
    Task {
        key: "tissuemnist",
        counts: [165_466, 23_640, 47_280],
        classes: &[
            "Collecting Duct, Connecting Tubule",
            "Distal Convoluted Tubule",
            "Glomerular endothelial cells",
            "Interstitial endothelial cells",
            "Leukocytes",
            "Podocytes",
            "Proximal Tubule Segments",
            "Thick Ascending Limb",
        ],
    },
    Task { key: "organamnist", counts: [34_561, 6_491, 17_778], classes: ORGANS },
    Task { key: "organcmnist", counts: [12_975, 2_392, 8_216], classes: ORGANS },
    Task { key: "organsmnist", counts: [13_932, 2_452, 8_827], classes: ORGANS },
];

#[cfg(test)]
mod tests;
