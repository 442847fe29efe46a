use super::*;
use crate::data::testing::REQUEST;

fn load(split: SplitName, subset: Option<Subset>) -> Split {
    let request = Request { image_size: 8, workers: 1, ..REQUEST };
    Digits { subset }.load(split, &request).unwrap()
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
    assert!(packed.pixels.chunks(3 * plane).all(|i| i[..plane] == i[plane..2 * plane] && i[..plane] == i[2 * plane..]));
}

#[test]
fn subset_takes_classes_in_turn() {
    assert_eq!(class_counts(&load(SplitName::Train, Some(Subset::Each(50)))), [5; 10]);
}
