// svhn.mat was written with NumPy and SciPy 1.17:
//   r, c, k, n = np.indices((32, 32, 3, 2))
//   x = (r * 7 + c * 3 + k * 11 + n * 50) % 256
//   io.savemat("svhn.mat", {"X": x.astype("uint8"), "y": np.array([[10], [3]], "uint8")}, do_compression=True)
use super::*;
use crate::data::testing::{error, fixture, load, set};

#[test]
fn images_are_turned_row_major_and_ten_is_the_digit_0() {
    let root = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("svhn.mat"), root.path().join("test_32x32.mat")).unwrap();
    let set = set(&ENTRY, root.path(), "");
    let split = load(&*set, SplitName::Test).unwrap();
    assert_eq!((&split.labels[..], split.inputs.size()), (&[0, 3][..], (32, 32)));
    let pixels = split.inputs.gather(&[0, 1]).unwrap();
    for (image, channel, row, column) in [(0, 0, 0, 0), (0, 2, 31, 5), (1, 1, 9, 30), (1, 0, 0, 1)] {
        let expected = (row * 7 + column * 3 + channel * 11 + image * 50) % 256;
        assert_eq!(usize::from(pixels[image * PIXELS + channel * 1024 + row * 32 + column]), expected);
    }
    assert!(error(&*set, SplitName::Train).contains("train_32x32.mat: cannot read"));
    assert!(error(&*set, SplitName::Val).contains("no split `val`"));
}

#[test]
fn files_of_other_sets_are_refused() {
    let root = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("imagelabels.mat"), root.path().join("train_32x32.mat")).unwrap();
    let text = error(&*set(&ENTRY, root.path(), ""), SplitName::Train);
    assert!(text.contains("train_32x32.mat: no variable `y`, only labels"), "{text}");
}
