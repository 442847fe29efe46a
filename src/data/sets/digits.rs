//! The UCI handwritten digits included in scikit-learn (the test part of Alpaydin and Kaynak 1998), embedded in the
//! binary: 1,797 gray images of 8x8. The split is fixed: the first 1,000 images are for training and the last 797 for
//! testing.

use anyhow::{Result, ensure};

use crate::data::small::{Sizes, SmallSet};
use crate::data::subset::kept;
use crate::data::{Dataset, Entry, Inputs, Packed, Published, Request, Split, SplitName, Subset};
use crate::hub::originals::Originals;
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "digits",
    about: "UCI handwritten digits, embedded: 10 classes, 8x8, 1000 train and 797 test",
    fetch: "nothing: the images are in the binary",
    marks: &[],
    originals: Originals::ByHand("its images are in the binary, and it needs no files"),
    hub: None,
    read: |reader| Box::new(Digits::read(reader)),
    sample: Some(|reader| Box::new(Digits::read(reader))),
};

/// Records of one label byte and 64 gray bytes, in scikit-learn's order.
static RECORDS: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits.bin"));
const SIDE: usize = 8;
const RECORD: usize = 1 + SIDE * SIDE;
const COUNT: usize = 1797;
const TRAIN: usize = 1000;

settings! {
    struct Digits {
        /// Whether the digit is learnt as a number, from 0 to 9, in place of a class.
        numbers: bool = false, omit false;
        subset: Option<Subset>, by Subset::read;
    }
}

impl Dataset for Digits {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(if self.numbers { vec!["digit".into()] } else { (0..10).map(|digit| digit.to_string()).collect() })
    }

    fn has_numbers(&self) -> bool {
        self.numbers
    }

    fn published(&self) -> Published {
        Published::new(
            if self.numbers { 1 } else { 10 },
            &[(SplitName::Train, TRAIN), (SplitName::Test, COUNT - TRAIN)],
        )
    }

    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        self.load_split(split)
    }
}

impl Digits {
    fn load_split(&self, split: SplitName) -> Result<Split> {
        ensure!(RECORDS.len() == COUNT * RECORD, "the embedded digits are damaged: build bella again");
        let (train, test) = RECORDS.split_at(TRAIN * RECORD);
        let records = match split {
            SplitName::Train => train,
            SplitName::Test => test,
            SplitName::Val => anyhow::bail!("digits has no split `val`; set data.digits.validation, say to 0.2"),
        };
        let labels = records.chunks_exact(RECORD).map(|record| u32::from(record[0])).collect();
        let pixels = records.chunks_exact(RECORD).flat_map(|record| record[1..].repeat(3)).collect();
        let images = Inputs::Packed(Packed { pixels, height: SIDE, width: SIDE });
        let all = Split::new(format!("digits/{split}"), images, labels);
        // The digits take turns in a subset, also where they are numbers.
        let split = kept(all, self.subset, split)?;
        if !self.numbers {
            return Ok(split);
        }
        let numbers = split.labels.iter().map(|digit| f64::from(*digit)).collect();
        Ok(Split { labels: vec![0; split.len()], ..split }.with_numbers(numbers))
    }
}

impl SmallSet for Digits {
    fn side(&self) -> u32 {
        SIDE as u32
    }

    /// Writes nothing, since the images are in the binary.
    fn write(&self, _sizes: &Sizes) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::REQUEST;

    fn load(split: SplitName, subset: Option<Subset>) -> Split {
        let request = Request { image_size: 8, workers: 1, ..REQUEST };
        Digits { numbers: false, subset }.load(split, &request).unwrap()
    }

    fn class_counts(split: &Split) -> Vec<usize> {
        (0..10).map(|class| split.labels.iter().filter(|&&label| label == class).count()).collect()
    }

    #[test]
    fn splits_are_those_of_scikit_learn() {
        // t = sklearn.datasets.load_digits().target; numpy.bincount(t[:1000]); numpy.bincount(t[1000:])
        assert_eq!(class_counts(&load(SplitName::Train, None)), [99, 102, 100, 104, 98, 100, 101, 99, 98, 99]);
        assert_eq!(class_counts(&load(SplitName::Test, None)), [79, 80, 77, 79, 83, 82, 80, 80, 76, 81]);
    }

    #[test]
    fn gray_is_in_all_channels() {
        let Inputs::Packed(packed) = load(SplitName::Train, None).inputs else { panic!("digits are in memory") };
        let (first, plane) = (packed.image(0), SIDE * SIDE);
        // numpy.round(sklearn.datasets.load_digits().images[0, 0] * 255 / 16)
        assert_eq!(first[..8], [0, 0, 80, 207, 143, 16, 0, 0]);
        assert!(
            packed.pixels.chunks(3 * plane).all(|i| i[..plane] == i[plane..2 * plane] && i[..plane] == i[2 * plane..])
        );
    }

    #[test]
    fn digits_are_numbers_if_asked() {
        let numbers = Digits { numbers: true, subset: Some(Subset::Each(20)) };
        let split = numbers.load_split(SplitName::Train).unwrap();
        assert_eq!((split.labels, numbers.classes().unwrap()), (vec![0; 20], vec!["digit".to_string()]));
        assert_eq!(split.numbers.as_ref().unwrap().iter().sum::<f64>(), 90.0);
    }

    #[test]
    fn subset_takes_classes_in_turn() {
        assert_eq!(class_counts(&load(SplitName::Train, Some(Subset::Each(50)))), [5; 10]);
    }
}
