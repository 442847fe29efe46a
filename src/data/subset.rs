//! `subset`: a number of images for all splits or for each split. The choice needs no seed: images are taken from the
//! classes in turn, in file order within each class.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::split::{Split, SplitName};
use crate::schema::{Choice, Reader};

const COUNT: std::ops::RangeInclusive<usize> = 1..=u32::MAX as usize;

/// The number of images of each split that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Subset {
    /// The same number for every split.
    Each(usize),
    /// A number for each split named, and all images of the other splits.
    PerSplit {
        /// The number of training images.
        #[serde(skip_serializing_if = "Option::is_none")]
        train: Option<usize>,
        /// The number of validation images.
        #[serde(skip_serializing_if = "Option::is_none")]
        val: Option<usize>,
        /// The number of test images.
        #[serde(skip_serializing_if = "Option::is_none")]
        test: Option<usize>,
    },
}

impl Subset {
    /// Reads `subset = N` or `subset = { train = N, val = N, test = N }`. `None` if it is absent.
    pub fn read(reader: &Reader) -> Option<Subset> {
        if !reader.is_table("subset") {
            return reader
                .count("subset", COUNT)
                .about("Number of images to use of each split, drawn evenly from the classes, or at equal distances where there are none.")
                .optional()
                .map(Subset::Each);
        }
        let of = reader.section("subset");
        let [train, val, test] = SplitName::ALL
            .map(|split| of.count(split.word(), COUNT).about("Number of images to use of this split.").optional());
        of.finish();
        Some(Subset::PerSplit { train, val, test })
    }

    fn count(self, split: SplitName) -> Option<usize> {
        match (self, split) {
            (Subset::Each(count), _) => Some(count),
            (Subset::PerSplit { train, .. }, SplitName::Train) => train,
            (Subset::PerSplit { val, .. }, SplitName::Val) => val,
            (Subset::PerSplit { test, .. }, SplitName::Test) => test,
        }
    }
}

/// Returns the indices of the images of a split that `subset` keeps, ascending, for `labels: [N]`. The first image of
/// every class is taken, then the second of every class, and so on until the number is reached; a class without further
/// images is skipped. Where there are no classes to tell apart (numbers, free answers of one type), samples at equal distances are taken, since the first ones
/// would be one end of a sorted file. `None` means all images.
///
/// # Errors
/// Fails if the split has fewer images than `subset` asks for.
pub fn chosen(subset: Option<Subset>, split: SplitName, labels: &[u32]) -> Result<Option<Vec<u32>>> {
    let Some(count) = subset.and_then(|subset| subset.count(split)) else {
        return Ok(None);
    };
    ensure!(count <= labels.len(), "subset = {count}, but {split} has {} images; ask for fewer", labels.len());
    if labels.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(Some((0..count).map(|place| (place * labels.len() / count) as u32).collect()));
    }
    let mut seen = std::collections::BTreeMap::new();
    let mut turns: Vec<(u32, u32, u32)> = Vec::with_capacity(labels.len());
    for (i, &label) in labels.iter().enumerate() {
        let turn = seen.entry(label).or_insert(0);
        turns.push((*turn, label, i as u32));
        *turn += 1;
    }
    turns.sort_unstable();
    let mut indices: Vec<u32> = turns[..count].iter().map(|&(_, _, i)| i).collect();
    indices.sort_unstable();
    Ok(Some(indices))
}

/// Returns the samples of a split that `subset` keeps.
///
/// # Errors
/// Fails if the split has fewer samples than `subset` asks for.
pub fn kept(all: Split, subset: Option<Subset>, split: SplitName) -> Result<Split> {
    Ok(match chosen(subset, split, &all.labels)? {
        Some(indices) => all.select(&indices),
        None => all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [u32; 8] = [1, 1, 0, 1, 2, 0, 1, 0];

    fn take(count: usize) -> Vec<u32> {
        chosen(Some(Subset::Each(count)), SplitName::Train, &LABELS).unwrap().unwrap()
    }

    #[test]
    fn classes_take_turns_in_file_order() {
        assert_eq!(take(3), [0, 2, 4]);
        assert_eq!(take(5), [0, 1, 2, 4, 5]);
        assert_eq!(take(8), (0..8).collect::<Vec<u32>>());
    }

    #[test]
    fn without_classes_samples_at_equal_distances_are_taken() {
        let of = |count: usize| chosen(Some(Subset::Each(count)), SplitName::Train, &[0; 7]).unwrap().unwrap();
        assert_eq!([of(1), of(2), of(3)], [vec![0], vec![0, 3], vec![0, 2, 4]]);
        assert_eq!(of(7), (0..7).collect::<Vec<u32>>());
    }

    #[test]
    fn splits_not_named_stay_whole() {
        let subset = Subset::PerSplit { train: Some(2), val: None, test: None };
        assert_eq!(chosen(Some(subset), SplitName::Test, &LABELS).unwrap(), None);
        assert_eq!(chosen(Some(subset), SplitName::Train, &LABELS).unwrap().unwrap().len(), 2);
    }

    #[test]
    fn too_many_is_an_error() {
        let error = chosen(Some(Subset::Each(9)), SplitName::Test, &LABELS).unwrap_err().to_string();
        assert_eq!(error, "subset = 9, but test has 8 images; ask for fewer");
    }
}
