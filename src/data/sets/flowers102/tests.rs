// The files were written with NumPy and SciPy 1.17:
//   io.savemat("imagelabels.mat", {"labels": np.array([[102, 1, 1, 7, 7, 2]], "uint8")})
//   io.savemat("setid.mat", {"trnid": np.array([[4, 1]], "uint16"), "valid": np.array([[2]], "uint16"),
//                            "tstid": np.array([[3, 5, 6]], "uint16")}, do_compression=True)
use super::*;
use crate::data::testing::{error, fixture, grays, load, put, set};

fn flowers() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    (1..=6).for_each(|i| put(root.path(), &format!("jpg/image_{i:05}.jpg"), i));
    for file in ["imagelabels.mat", "setid.mat"] {
        std::fs::copy(fixture(file), root.path().join(file)).unwrap();
    }
    root
}

#[test]
fn the_three_splits() {
    let root = flowers();
    let set = set(&ENTRY, root.path(), "");
    let of = |split| load(&*set, split).map(|split| (grays(&split), split.labels)).unwrap();
    assert_eq!(of(SplitName::Train), (vec![4, 1], vec![6, 101]));
    assert_eq!(of(SplitName::Val), (vec![2], vec![0]));
    assert_eq!(of(SplitName::Test), (vec![3, 5, 6], vec![0, 6, 1]));
    let classes = set.classes().unwrap();
    assert_eq!((classes[0].as_str(), classes[101].as_str()), ("pink primrose", "blackberry lily"));
    assert_eq!(classes[5], "tiger lily");
    assert!(classes.iter().all(|name| name.split_whitespace().collect::<Vec<_>>().join(" ") == *name));
}

#[test]
fn missing_files_are_named() {
    let root = flowers();
    let set = set(&ENTRY, root.path(), "");
    std::fs::remove_file(root.path().join("jpg/image_00005.jpg")).unwrap();
    assert!(error(&*set, SplitName::Test).contains("image_00005.jpg"));
    std::fs::copy(fixture("meta.mat"), root.path().join("setid.mat")).unwrap();
    assert!(error(&*set, SplitName::Test).contains("setid.mat: no variable `tstid`, only synsets"));
    std::fs::remove_file(root.path().join("imagelabels.mat")).unwrap();
    assert!(error(&*set, SplitName::Test).contains("imagelabels.mat: cannot read"));
}
