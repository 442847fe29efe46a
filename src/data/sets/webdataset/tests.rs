use super::*;
use crate::base::tar::packed;
use crate::data::testing::{REQUEST, error, fixture, grays, load, mistakes, set};

/// The keys, labels and grays of a split, as WebDataset's own reader has them (scripts/make_webdataset_fixtures.py).
fn expected(name: &str) -> Vec<(String, u32, u8)> {
    let text = std::fs::read_to_string(fixture("webdataset/expected.json")).unwrap();
    let all: std::collections::BTreeMap<String, Vec<(String, u32, u8)>> = serde_json::from_str(&text).unwrap();
    all[name].clone()
}

fn compare(split: &Split, name: &str) {
    let key = |i| split.sample_name(i).with_extension("").to_string_lossy().into_owned();
    let expected = expected(name);
    assert_eq!(split.len(), expected.len());
    for (i, ((wanted, label, gray), found)) in expected.iter().zip(grays(split)).enumerate() {
        assert!(key(i).ends_with(&format!(".tar/{wanted}")), "{} is {wanted}", key(i));
        assert_eq!((split.labels[i], found), (*label, *gray), "{wanted}");
    }
}

#[test]
fn the_layout_of_clip_benchmark_is_read_as_webdataset_reads_it() {
    let root = fixture("webdataset/benchmark");
    let set = set(&ENTRY, &root, "");
    assert_eq!(set.classes().unwrap(), ["cat", "dog", "tench, Tinca tinca"]);
    assert_eq!(set.splits().unwrap(), [SplitName::Train, SplitName::Test]);
    for split in [SplitName::Train, SplitName::Test] {
        compare(&load(&*set, split).unwrap(), &format!("benchmark/{split}"));
    }
}

#[test]
fn shards_by_braces_with_labels_in_json_are_read_from_memory_and_from_the_cache_alike() {
    let root = fixture("webdataset/shards");
    let keys = "train = \"train-{000000..000001}.tar\"\nlabel = \"json\"\nclasses = [\"cat\", \"dog\", \"tench, Tinca tinca\"]";
    let set = set(&ENTRY, &root, keys);
    let plain = load(&*set, SplitName::Train).unwrap();
    compare(&plain, "shards/train");
    let folder = tempfile::tempdir().unwrap();
    for memory_bytes in [0, 1 << 20] {
        let request = Request { cache: Some(folder.path()), memory_bytes, ..REQUEST };
        let split = set.load(SplitName::Train, &request).unwrap();
        compare(&split, "shards/train");
        assert_eq!(split.inputs.image(4).unwrap(), plain.inputs.image(4).unwrap());
    }
    assert_eq!(
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "pixels"))
            .count(),
        1
    );
    let some = plain.select(&[4, 1]);
    assert_eq!(grays(&some), [grays(&plain)[4], grays(&plain)[1]]);
    assert_ne!(some.fingerprint(), plain.select(&[1, 4]).fingerprint());
}

fn png(gray: u8) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(4, 4, image::Rgb([gray; 3])).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// The mistake of a test archive with these members.
fn mistake(keys: &str, members: &[(&str, &[u8])]) -> String {
    let place = tempfile::tempdir().unwrap();
    put(&place.path().join("test/0.tar"), packed(members.iter().copied())).unwrap();
    error(&*set(&ENTRY, place.path(), &format!("classes = [\"a\", \"b\"]\n{keys}")), SplitName::Test)
}

#[test]
fn samples_that_are_not_whole_are_named() {
    let png = &png(9)[..];
    let json = "label = \"json\"";
    for (keys, members, rule) in [
        ("", &[("x.png", png)][..], "0.tar/x.png: has no member .cls"),
        ("", &[("x.png", png), ("y.cls", b"0")], "0.tar: the sample `y` has a label and no image"),
        ("", &[("x.png", png), ("x.jpg", png), ("x.cls", b"0")], "`x` has two images, x.png and x.jpg"),
        ("", &[("x.png", png), ("x.png", png), ("x.cls", b"0")], "`x` has two images"),
        ("", &[("x.png", png), ("x.cls", b"0"), ("x.cls", b"1")], "`x` has two labels"),
        ("", &[("x.png", png), ("x.cls", b"2")], "0.tar/x.cls: the label is `2`: it must be a number from 0 to 1"),
        ("", &[("x.png", png), ("x.cls", b"-1")], "the label is `-1`"),
        ("", &[("x.png", png), ("x.cls", b"")], "the label is ``"),
        ("", &[("x.png", png), ("x.cls", b"\xff")], "x.cls: is no text"),
        ("", &[("x.png", b""), ("x.cls", b"0")], "0.tar/x.png is empty"),
        (json, &[("x.png", png), ("x.json", b"{\"label\": null}")], "0.tar/x.json: `label` is null"),
        (
            json,
            &[("x.png", png), ("x.json", b"{\"class\": 1}")],
            "has no key `label` (data.webdataset.label_key); its keys: class",
        ),
        (
            json,
            &[("x.png", png), ("x.json", b"{\"label\": [1]}")],
            "`label` must be a number, a truth value or the name",
        ),
        (json, &[("x.png", png), ("x.json", b"{")], "x.json: is no JSON"),
        ("", &[("readme", b"x")], "webdataset/test: has no images"),
    ] {
        let found = mistake(keys, members);
        assert!(found.contains(rule) && !found.contains('\n'), "{rule}: {found}");
    }
}

#[test]
fn archives_that_are_missing_or_cut_are_named() {
    let place = tempfile::tempdir().unwrap();
    let whole = packed([("x.png", &png(9)[..]), ("x.cls", b"0"), ("y.png", &png(8)[..]), ("y.cls", b"1")]);
    let classes = "classes = [\"a\", \"b\"]";
    put(&place.path().join("test/0.tar"), &whole).unwrap();
    let packed = tempfile::tempdir().unwrap();
    put(&packed.path().join("test/0.tar"), b"\x1f\x8b\x08").unwrap();
    let text = error(&*set(&ENTRY, packed.path(), classes), SplitName::Test);
    assert!(text.contains("test/0.tar: is packed with gzip"), "{text}");
    put(&place.path().join("test/nshards.txt"), "3\n").unwrap();
    let folders = set(&ENTRY, place.path(), classes);
    assert!(error(&*folders, SplitName::Test).contains("test/1.tar: no such archive (2 of the 3 of test are missing)"));
    assert!(
        error(&*folders, SplitName::Train).contains("no folder `train`; name its archives with data.webdataset.train")
    );
    for count in ["", "x", "0", "99999999999"] {
        put(&place.path().join("test/nshards.txt"), count).unwrap();
        assert!(error(&*folders, SplitName::Test).contains("nshards.txt: must hold the number of archives"), "{count}");
    }
    let by_name = set(&ENTRY, place.path(), &format!("{classes}\ntest = \"test/{{0..2}}.tar\""));
    assert!(error(&*by_name, SplitName::Test).contains("test/1.tar: no such archive"));
    std::fs::remove_file(place.path().join("test/nshards.txt")).unwrap();
    assert_eq!(grays(&load(&*folders, SplitName::Test).unwrap()), [9, 8]);
    for cut in (0..whole.len() - 1024).step_by(100) {
        put(&place.path().join("test/0.tar"), &whole[..cut]).unwrap();
        let found = error(&*folders, SplitName::Test);
        assert!(found.contains("test/0.tar: the tar archive is cut off"), "{cut}: {found}");
    }
}

#[test]
fn keys_are_checked() {
    for (keys, rule) in [
        ("train = \"{0..\"", "has a `{` without its pair"),
        ("train = \"0}\"", "has a `}` without its pair"),
        ("train = \"{9..3}.tar\"", "must rise"),
        ("train = \"{a..b}.tar\"", "needs two numbers"),
        ("train = \"{0..999999}{0..9}.tar\"", "more than 1000000 archives"),
        ("images = []", "must not be empty"),
        ("images = [\".jpg\"]", "must be endings without the dot"),
        ("label = \"jpg\"", "that no image has"),
        ("label_key = \"y\"", "label_key = \"y\": is a key of JSON"),
    ] {
        let found = mistakes(&ENTRY, keys);
        assert!(found.contains(rule), "{keys}: {found}");
    }
    let names = |pattern| shards::expanded(pattern).unwrap();
    assert_eq!(names("{08..11}.tar"), ["08.tar", "09.tar", "10.tar", "11.tar"]);
    assert_eq!(names("{a,b}-{0..1}"), ["a-0", "a-1", "b-0", "b-1"]);
    let place = tempfile::tempdir().unwrap();
    put(&place.path().join("classnames.txt"), "a\nb\n").unwrap();
    assert_eq!(set(&ENTRY, place.path(), "classes = [\"x\", \"y\"]").classes().unwrap(), ["x", "y"]);
    let other = format!("{:#}", set(&ENTRY, place.path(), "classes = [\"a\"]").classes().unwrap_err());
    assert!(other.contains("classnames.txt: names 2 classes, and data.webdataset.classes 1"), "{other}");
    put(&place.path().join("classnames.txt"), "a\nb\na\n").unwrap();
    let twice = format!("{:#}", set(&ENTRY, place.path(), "").classes().unwrap_err());
    assert!(twice.contains("names the class `a` twice"), "{twice}");
    put(&place.path().join("classnames.txt"), "a\n\nc\n\n").unwrap();
    let nameless = format!("{:#}", set(&ENTRY, place.path(), "").classes().unwrap_err());
    assert!(nameless.contains("classnames.txt:2: the class has no name: name all 3 with"), "{nameless}");
    let named = set(&ENTRY, place.path(), "classes = [\"a\", \"b\", \"c\"]");
    assert_eq!(named.classes().unwrap(), ["a", "b", "c"]);
}

/// A label in `.txt`, by the name of its class or by its number; a caption is no class.
#[test]
fn labels_may_be_texts() {
    let folder = tempfile::tempdir().unwrap();
    let read = |second: &str| {
        let (one, other) = (png(10), png(20));
        let members: [(&str, &[u8]); 4] =
            [("0.png", &one), ("0.txt", b"dog"), ("1.png", &other), ("1.txt", second.as_bytes())];
        std::fs::write(folder.path().join("a.tar"), packed(members)).unwrap();
        let keys = "test = \"a.tar\"\nlabel = \"txt\"\nclasses = [\"cat\", \"dog\"]";
        set(&ENTRY, folder.path(), keys).load(SplitName::Test, &REQUEST)
    };
    assert_eq!(read("0").unwrap().labels, [1, 0]);
    assert_eq!(read("cat").unwrap().labels, [1, 0]);
    let error = format!("{:#}", read("a photo of a cat").unwrap_err());
    assert!(error.contains("1.txt: the label is `a photo of a cat`: it must be a number from 0 to 1"), "{error}");
}

/// Only names that begin and end with two underlines are none of samples; endings are small letters or capitals, in archives and configs alike.
#[test]
fn names_and_endings_are_those_of_webdataset() {
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (png(10), png(20));
    let members: [(&str, &[u8]); 6] = [
        ("__meta__.json", b"{}"),
        ("__a.png", &one),
        ("__a.cls", b"1"),
        ("b/__b.PNG", &two),
        ("b/__b.CLS", b"0"),
        ("__c__.png", &one),
    ];
    put(&place.path().join("test/0.tar"), packed(members)).unwrap();
    for keys in ["", "images = [\"PNG\"]\nlabel = \"CLS\""] {
        let split =
            load(&*set(&ENTRY, place.path(), &format!("classes = [\"a\", \"b\"]\n{keys}")), SplitName::Test).unwrap();
        assert_eq!((grays(&split), &split.labels[..]), (vec![10, 20], &[1, 0][..]), "{keys}");
    }
}

/// A number in `.cls` is a place, as packages read it, whatever classes are called; a text of JSON is a name.
#[test]
fn numbers_are_places_whatever_classes_are_called() {
    let place = tempfile::tempdir().unwrap();
    let image = png(10);
    let labels = |ending: &str, words: [&str; 2]| {
        let members = words.iter().enumerate().flat_map(|(at, word)| {
            [(format!("{at}.png"), image.clone()), (format!("{at}.{ending}"), word.as_bytes().to_vec())]
        });
        let members: Vec<(String, Vec<u8>)> = members.collect();
        let members = members.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
        put(&place.path().join("test/0.tar"), packed(members)).unwrap();
        let keys = format!("classes = [\"1\", \"2\"]\nlabel = \"{ending}\"");
        set(&ENTRY, place.path(), &keys).load(SplitName::Test, &REQUEST).map(|split| split.labels)
    };
    assert_eq!(labels("cls", ["0", "1"]).unwrap(), [0, 1]);
    assert_eq!(labels("json", ["{\"label\": 1}", "{\"label\": \"1\"}"]).unwrap(), [1, 0]);
    let error = format!("{:#}", labels("cls", ["1", "2"]).unwrap_err());
    assert!(error.contains("1.cls: the label is `2`: it must be a number from 0 to 1"), "{error}");
}

#[test]
fn truth_values_are_places_or_the_classes_that_are_called_so() {
    let place = tempfile::tempdir().unwrap();
    let png = &png(9)[..];
    let members =
        [("x.png", png), ("x.json", &b"{\"label\": true}"[..]), ("y.png", png), ("y.json", b"{\"label\": false}")];
    put(&place.path().join("test/0.tar"), packed(members)).unwrap();
    for (classes, labels) in [("\"no\", \"yes\"", [1, 0]), ("\"True\", \"False\"", [0, 1])] {
        let set = set(&ENTRY, place.path(), &format!("classes = [{classes}]\nlabel = \"json\""));
        assert_eq!(set.load(SplitName::Test, &REQUEST).unwrap().labels, labels, "{classes}");
    }
}
