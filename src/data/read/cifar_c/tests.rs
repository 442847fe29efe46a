use super::*;
use crate::data::testing::REQUEST;
use crate::schema::{Resolved, Tree};

/// The set [`crate::data::sets::cifar10_c`] with the checksum of [`pixels`].
static TINY: Published = Published {
    key: "cifar10-c",
    folder: "CIFAR-10-C",
    clean: "cifar10",
    classes: &crate::data::sets::cifar10::CLASSES,
    sums: &[("gaussian_noise", "abd2f21982fd69c87400a45b84609c57"), ("fog", "0000")],
};

/// The number of images of each severity in the files of these tests.
const FEW: u64 = 4;

/// Returns the bytes that `numpy.save` writes. `descr` is the type with its quotes.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    [npy::header(descr, shape).as_slice(), data].concat()
}

// import hashlib, io, numpy as np
// a = (np.arange(20 * 3072) * 7 % 251).astype(np.uint8).reshape(20, 32, 32, 3)
// b = io.BytesIO(); np.save(b, a); hashlib.md5(b.getvalue()).hexdigest()  # abd2f219…
fn pixels() -> Vec<u8> {
    let data: Vec<u8> = (0..20 * 3072).map(|i| (i * 7 % 251) as u8).collect();
    npy("'|u1'", "(20, 32, 32, 3)", &data)
}

fn labels(of: [u8; 4]) -> Vec<u8> {
    npy("'|u1'", "(20,)", &of.repeat(5))
}

fn folder(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("CIFAR-10-C")).unwrap();
    for (name, bytes) in files {
        std::fs::write(root.path().join("CIFAR-10-C").join(name), bytes).unwrap();
    }
    root
}

fn set(root: &Path, extra: &str) -> CifarC {
    let tree = Tree::parse("test.toml", &format!("root = {root:?}\n{extra}")).unwrap();
    let reader = Reader::root(&tree);
    let set = CifarC::read(&reader, &TINY, FEW);
    reader.close(set).unwrap()
}

fn load(set: &CifarC, version: &str) -> Result<Split> {
    let (corruption, severity) = version.split_once(':').unwrap();
    let version = Version { corruption: corruption.into(), severity: severity.parse().unwrap() };
    set.load_version(&version, &Request { image_size: 224, workers: 1, ..REQUEST })
}

/// Returns the error of reading severity 1 if `gaussian_noise.npy` holds `images` and `labels.npy` holds `labels`.
fn error(images: Vec<u8>, labels: Vec<u8>) -> String {
    let root = folder(&[("gaussian_noise.npy", images), ("labels.npy", labels)]);
    format!("{:#}", load(&set(root.path(), "verify = false"), "gaussian_noise:1").unwrap_err())
}

#[test]
fn a_severity_is_its_rows_with_channels_first() {
    // t = a.transpose(0, 3, 1, 2)[4:8]; t[0, 0, 0, 0], t[1, 2, 3, 4], t[3, 1, 31, 30], t.astype(int).sum()
    let root = folder(&[("gaussian_noise.npy", pixels()), ("labels.npy", labels([3, 8, 8, 0]))]);
    let split = load(&set(root.path(), ""), "gaussian_noise:2").unwrap();
    assert_eq!((split.name.as_str(), split.labels.as_slice()), ("cifar10-c/gaussian_noise:2", [3, 8, 8, 0].as_slice()));
    assert_eq!((split.inputs.size(), split.len()), ((32, 32), 4));
    let t = split.inputs.gather(&[0, 1, 2, 3]).unwrap();
    let at = |[n, c, h, w]: [usize; 4]| t[((n * 3 + c) * 32 + h) * 32 + w];
    assert_eq!([at([0, 0, 0, 0]), at([1, 2, 3, 4]), at([3, 1, 31, 30])], [174, 198, 62]);
    assert_eq!(t.iter().map(|&x| u64::from(x)).sum::<u64>(), 1_535_923);
}

#[test]
fn versions_are_those_configured() {
    let root = folder(&[("gaussian_noise.npy", pixels()), ("labels.npy", labels([0; 4]))]);
    let set = set(root.path(), "corruptions = [\"gaussian_noise\"]\nseverities = [5, 1]\nsubset = 2");
    let versions: Vec<String> = set.versions().unwrap().iter().map(Version::to_string).collect();
    assert_eq!(versions, ["gaussian_noise:5", "gaussian_noise:1"]);
    assert_eq!(load(&set, "gaussian_noise:5").unwrap().len(), 2);
    assert!(load(&set, "rain:1").unwrap_err().to_string().contains("there is no version `rain:1`"));
    let all = self::set(root.path(), "").versions().unwrap_err().to_string();
    assert!(all.contains("18 of 20 files are missing: shot_noise.npy, impulse_noise.npy,"), "{all}");
    assert!(all.ends_with("name the corruptions that are there in data.cifar10-c.corruptions"), "{all}");
    let resolved = self::set(root.path(), "").resolved();
    assert_eq!(resolved["corruptions"].as_array().unwrap().len(), 19);
    assert_eq!(resolved.keys().collect::<Vec<_>>(), ["corruptions", "root", "severities", "verify"]);
}

#[test]
fn there_is_no_plain_split() {
    let set = set(Path::new("none"), "");
    let request = Request { image_size: 32, workers: 1, ..REQUEST };
    let error = |split| set.load(split, &request).unwrap_err().to_string();
    assert!(error(SplitName::Test).contains("the uncorrupted images are [data.cifar10]"));
    assert!(error(SplitName::Train).contains("no split `train`; train on [data.cifar10]"));
}

#[test]
fn checksums_are_compared_where_known() {
    let files = [("gaussian_noise.npy", pixels()), ("fog.npy", pixels()), ("labels.npy", labels([1; 4]))];
    let root = folder(&files);
    let checked = set(root.path(), "");
    load(&checked, "gaussian_noise:1").unwrap();
    let text = load(&checked, "fog:1").unwrap_err().to_string();
    assert!(text.contains("fog.npy: its MD5 is abd2f21982fd69c87400a45b84609c57, the published file's 0000"), "{text}");
    assert!(text.contains("data.cifar10-c.verify = false"), "{text}");
    load(&set(root.path(), "verify = false"), "fog:1").unwrap();
}

#[test]
fn both_sets_have_checksums_of_all_their_files() {
    for published in [&crate::data::sets::cifar10_c::PUBLISHED, &crate::data::sets::cifar100_c::PUBLISHED] {
        let mut names: Vec<&str> = published.sums.iter().map(|(name, _)| *name).collect();
        let mut wanted: Vec<&str> = CORRUPTIONS.iter().copied().chain(["labels"]).collect();
        names.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        let sums: BTreeSet<&str> = published.sums.iter().map(|(_, sum)| *sum).collect();
        assert!(sums.len() == 20 && sums.iter().all(|sum| sum.len() == 32 && u128::from_str_radix(sum, 16).is_ok()));
    }
}

#[test]
fn arrays_of_another_shape_type_or_order_are_refused() {
    let good = || labels([0; 4]);
    let zeros = |count: usize| vec![0; count];
    let shape = error(npy("'|u1'", "(16, 32, 32, 3)", &zeros(16 * 3072)), good());
    assert!(
        shape.contains("gaussian_noise.npy: an array of shape [16, 32, 32, 3], but the shape must be [20, 32, 32, 3]")
    );
    let kind = error(npy("'<f4'", "(20, 32, 32, 3)", &zeros(20 * 3072 * 4)), good());
    assert!(kind.contains("elements of type f4, but images are bytes (u1"), "{kind}");
    let mut fortran = String::from_utf8_lossy(&pixels()[10..128]).replace("False", "True ").into_bytes();
    fortran.splice(0..0, pixels()[..10].to_vec());
    fortran.extend(zeros(20 * 3072));
    assert!(error(fortran, good()).contains("in Fortran order"));
    let cut = error(pixels()[..61567].to_vec(), good());
    assert!(cut.contains("61567 bytes, but its header needs 61568: the file is damaged"), "{cut}");
    assert!(error(b"<html>not found</html>".to_vec(), good()).contains("gaussian_noise.npy: not a .npy file"));
    assert!(error(Vec::new(), good()).contains("not a .npy file"));
}

#[test]
fn labels_may_be_any_integers_below_the_number_of_classes() {
    let wide: Vec<u8> = [3i64, 9, 0, 1].repeat(5).iter().flat_map(|label| label.to_le_bytes()).collect();
    let root = folder(&[("gaussian_noise.npy", pixels()), ("labels.npy", npy("'<i8'", "(20,)", &wide))]);
    assert_eq!(load(&set(root.path(), ""), "gaussian_noise:5").unwrap().labels, [3, 9, 0, 1]);
    let out = error(pixels(), labels([0, 10, 0, 0]));
    assert!(out.contains("labels.npy: image 1 has label 10, but labels are 0 to 9"), "{out}");
    let float: Vec<u8> = [0.0f64; 20].iter().flat_map(|label| label.to_le_bytes()).collect();
    assert!(error(pixels(), npy("'<f8'", "(20,)", &float)).contains("elements of type f8, but labels are integers"));
    assert!(error(pixels(), npy("'|u1'", "(4,)", &[0; 4])).contains("shape [4], but the shape must be [20]"));
}

#[test]
fn config_mistakes_are_reported() {
    let text = "corruptions = [\"gausian_noise\", \"fog\", \"fog\"]\nseverities = [1, 6, 1]\nverify = \"yes\"";
    let tree = Tree::parse("test.toml", text).unwrap();
    let reader = Reader::root(&tree);
    let set = CifarC::read(&reader, &TINY, FEW);
    let problems = reader.close(set).err().unwrap().to_string();
    for part in
        ["root is required", "did you mean `gaussian_noise`?", "`fog` comes twice", "severities[1] = 6", "verify"]
    {
        assert!(problems.contains(part), "{part} not in: {problems}");
    }
}
