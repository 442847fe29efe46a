use std::path::PathBuf;

use super::*;
use crate::base::hash::hex;
use crate::data::table::Column;
use crate::data::testing::{REQUEST, fixture, mistakes, prompts, set};
use crate::data::{Dataset, Fingerprint, entry};
use parquet::data_type::ByteArrayType;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use sha2::{Digest, Sha256};

/// A request that keeps all images in memory.
const WHOLE: Request = Request { image_size: 8, memory_bytes: 1 << 24, ..REQUEST };

fn hub(name: &str) -> PathBuf {
    fixture("parquet/hub").join(name)
}

fn open(key: &str, root: &Path, extra: &str) -> Box<dyn Dataset> {
    set(entry(key).unwrap(), root, extra)
}

fn expected() -> Value {
    crate::base::files::read_json(&fixture("parquet/expected.json")).unwrap()
}

fn pixels(split: &Split) -> String {
    let all: Vec<u32> = (0..split.len() as u32).collect();
    hex(Sha256::digest(split.inputs.gather(&all).unwrap()))
}

/// Copies a folder, whose files may then be damaged.
fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in std::fs::read_dir(from).unwrap().map(|one| one.unwrap().path()) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copied(&path, &target) } else { std::fs::copy(&path, &target).map(drop).unwrap() }
    }
}

/// The labels and pixels are those that the package `datasets` reads; scripts/make_parquet_fixtures.py wrote them.
#[test]
fn named_sets_have_the_images_and_labels_that_datasets_reads() {
    let all = expected();
    let wnids = |count: usize| (0..count).map(|i| format!("\"w{i}\"")).collect::<Vec<_>>().join(", ");
    for (key, of) in all.as_object().unwrap().iter().filter(|(key, _)| *key != "forms") {
        let own_size = ["cifar10", "cifar100", "svhn"].contains(&key.as_str());
        let mut extra = if own_size { String::new() } else { "resize = \"none\"".to_string() };
        if key == "imagenet" {
            extra += &format!("\nclasses = [{}]", wnids(1000));
        }
        let set = open(key, &hub(key), &extra);
        for (split, facts) in of.as_object().unwrap() {
            let found =
                set.load(split.parse().unwrap(), &WHOLE).unwrap_or_else(|error| panic!("{key}/{split}: {error:#}"));
            let labels: Vec<u32> =
                facts["labels"].as_array().unwrap().iter().map(|one| one.as_u64().unwrap() as u32).collect();
            assert_eq!(found.labels, labels, "{key}/{split}");
            assert_eq!(pixels(&found), facts["pixels"], "{key}/{split}");
        }
    }
}

#[test]
fn cifar_in_parquet_has_the_fingerprint_of_its_original_files() {
    let set = open("cifar10", &hub("cifar10"), "");
    let split = set.load(SplitName::Test, &WHOLE).unwrap();
    let root = tempfile::tempdir().unwrap();
    let record = |at: usize| (vec![split.labels[at] as u8], split.inputs.image(at).unwrap());
    crate::data::read::cifar::write(&root.path().join("test_batch.bin"), (0..split.len()).map(record)).unwrap();
    let original = open("cifar10", root.path(), "").load(SplitName::Test, &WHOLE).unwrap();
    assert_eq!(Fingerprint::of(&split).unwrap(), Fingerprint::of(&original).unwrap());
    assert_eq!(split.fingerprint(), original.fingerprint());
}

#[test]
fn coarse_labels_and_groups_are_columns_of_their_own() {
    let coarse = open("cifar100", &hub("cifar100"), "labels = \"coarse\"").load(SplitName::Train, &WHOLE).unwrap();
    assert_eq!(coarse.labels, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let set = |extra: &str| open("camelyon17", &hub("camelyon17"), &format!("{extra}\nresize = \"none\""));
    let train = set("").load(SplitName::Train, &WHOLE).unwrap();
    let groups = train.groups.unwrap();
    assert_eq!(groups.names, ["slide 0", "slide 1", "slide 31", "slide 40"]);
    assert_eq!(groups.of, [0, 2, 3, 1]);
    let inside = set("val = \"id_val\"\ngroup_by = \"center\"").load(SplitName::Val, &WHOLE).unwrap();
    assert_eq!(inside.groups.unwrap().names, ["center 0", "center 3"]);
    assert_eq!(set("").splits().unwrap(), SplitName::ALL);
    let domains = open("domainnet", &hub("domainnet"), "test = [\"sketch\", \"real\"]\nresize = \"none\"");
    assert_eq!(domains.load(SplitName::Test, &WHOLE).unwrap().labels, [2, 1, 1]);
    assert_eq!(domains.classes().unwrap(), ["barn", "bat", "bee"]);
}

#[test]
fn texts_are_those_of_the_rows() {
    let texts = |key: &str, extra: &str, split| {
        let split =
            open(key, &hub(key), extra).load(split, &REQUEST).unwrap_or_else(|error| panic!("{key}: {error:#}"));
        (prompts(&split).0.iter().map(|text| text.to_string()).collect::<Vec<_>>(), split.labels.clone())
    };
    let (sst2, labels) = texts("glue", "task = \"sst2\"", SplitName::Test);
    assert_eq!((sst2[1].as_str(), labels), ("validation \"1\"\té", vec![0, 1, 0]));
    assert_eq!(
        texts("glue", "task = \"mnli\"\ntest = [\"mismatched\"]", SplitName::Test).0[0],
        "validation_mismatched 0"
    );
    assert_eq!(texts("glue", "task = \"mnli\"", SplitName::Train).1, [2, 0, 1]);
    assert_eq!(texts("glue", "task = \"mrpc\"", SplitName::Train).1, [0, 1, 0, 1, 0]);
    let (boolq, labels) = texts("boolq", "prompts = \"corrected\"", SplitName::Test);
    assert!(boolq[0].contains("Passage: p\nQuestion: is it 0"));
    assert_eq!(labels, [0, 1, 0]);
    assert_eq!(texts("winogrande", "", SplitName::Train).1, [0, 1, 0, 1, 0]);
    let (arc, labels) = texts("arc", "prompts = \"corrected\"\ntest_on = \"test\"", SplitName::Test);
    assert!(arc[1].contains("test 1") && arc[1].ends_with("A) w\nB) x\nC) y\nAnswer:"), "{}", arc[1]);
    assert_eq!(labels, [0, 2, 1, 0]);
    assert!(texts("openbookqa", "", SplitName::Test).0[2].contains("validation 2"));
}

/// Truth values are the classes that are called so, wherever the config names them.
#[test]
fn truth_values_are_called_by_their_names() {
    let labels = |classes: &str| {
        let extra = format!("text = \"question\"\nlabel = \"answer\"\nclasses = [{classes}]\ntest = \"validation\"");
        open("parquet", &hub("boolq"), &extra).load(SplitName::Test, &WHOLE).map(|split| split.labels)
    };
    assert_eq!(labels("\"no\", \"yes\"").unwrap(), [1, 0, 1]);
    assert_eq!(labels("\"true\", \"false\"").unwrap(), [0, 1, 0]);
    let error = format!("{:#}", labels("\"true\", \"no\"").unwrap_err());
    assert!(error.contains("`answer` is false, which is none of the 2 classes"), "{error}");
}

/// Every compression, both encodings and versions of pages, and row groups of five rows: the images are those of pyarrow.
#[test]
fn every_form_of_a_table_is_read() {
    let forms = fixture("parquet/forms");
    let names = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"];
    for name in names.iter().flat_map(|name| [format!("{name}-dictionary"), format!("{name}-plain")]) {
        let set = open(
            "parquet",
            &forms.join(&name),
            "image = \"image\"\ngroup = \"group\"\ntest = \"train\"\nresize = \"none\"",
        );
        let split = set.load(SplitName::Train, &WHOLE).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(split.labels, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2], "{name}");
        assert_eq!(pixels(&split), expected()["forms"], "{name}");
        assert_eq!(split.groups.as_ref().unwrap().names, ["g0", "g1"]);
        // Images that are read one by one, in any order, are the same.
        let few = set.load(SplitName::Train, &REQUEST).unwrap();
        assert!(matches!(few.inputs, Inputs::Files(_)));
        for at in [11, 0, 7, 6, 5, 4] {
            assert_eq!(few.inputs.image(at).unwrap(), split.inputs.image(at).unwrap(), "{name}");
        }
        assert_eq!(Fingerprint::of(&few).unwrap(), Fingerprint::of(&split).unwrap());
    }
}

#[test]
fn rows_pass_through_the_cache_of_decoded_images() {
    let cache = tempfile::tempdir().unwrap();
    let set = open("parquet", &fixture("parquet/forms/zstd-plain"), "image = \"image\"\nresize = \"none\"");
    let split = set.load(SplitName::Train, &Request { cache: Some(cache.path()), ..REQUEST }).unwrap();
    assert_eq!(pixels(&split), expected()["forms"]);
    assert_eq!(
        std::fs::read_dir(cache.path())
            .unwrap()
            .filter(|one| one.as_ref().unwrap().path().extension().is_some_and(|e| e == "pixels"))
            .count(),
        1
    );
}

/// Whole numbers that are no places, such as the stars of reviews or codes, are the names of classes.
#[test]
fn numbers_that_are_names_are_no_places() {
    let labels = |numbers: &[i64], extra: &str| {
        let root = tempfile::tempdir().unwrap();
        let texts = Column::Texts(vec!["a".into(); numbers.len()]);
        let columns = [("text", texts), ("label", Column::Numbers(numbers.to_vec()))];
        crate::data::table::write(&root.path().join("train.parquet"), &columns).unwrap();
        let set = open("parquet", root.path(), &format!("text = \"text\"\n{extra}"));
        (set.classes().unwrap(), set.load(SplitName::Train, &WHOLE).map(|split| split.labels))
    };
    let (classes, codes) = labels(&[1020, 1010, 1020], "");
    assert_eq!((classes, codes.unwrap()), (vec!["1010".to_string(), "1020".into()], vec![1, 0, 1]));
    let stars = "classes = [\"1\", \"2\", \"3\"]";
    assert_eq!(labels(&[1, 3, 2], stars).1.unwrap(), [0, 2, 1]);
    let error = labels(&[1, 0], stars).1.unwrap_err().to_string();
    assert!(
        error.contains("train.parquet:2: `label` is 0, which is none of the 3 classes, whose names are numbers"),
        "{error}"
    );
    assert_eq!(labels(&[1, 0], "classes = [\"no\", \"yes\"]").1.unwrap(), [1, 0]);
}

/// Writes a table of one row whose columns of bytes are not said to be texts, as old programs write them.
fn write_bytes(path: &Path, columns: &[(&str, &str)]) {
    let declared: String = columns.iter().map(|(name, _)| format!("required binary {name}; ")).collect();
    let schema = parse_message_type(&format!("message schema {{ {declared} }}")).unwrap();
    let mut writer =
        SerializedFileWriter::new(std::fs::File::create(path).unwrap(), Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, text) in columns {
        let mut leaf = group.next_column().unwrap().unwrap();
        leaf.typed::<ByteArrayType>().write_batch(&[(*text).into()], None, None).unwrap();
        leaf.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn bytes_that_are_texts_are_read_as_texts() {
    let root = tempfile::tempdir().unwrap();
    write_bytes(&root.path().join("test.parquet"), &[("sentence", "süß"), ("label", "positive")]);
    let set = open("parquet", root.path(), "text = \"sentence\"");
    assert_eq!(set.classes().unwrap(), ["positive"]);
    assert_eq!(prompts(&set.load(SplitName::Test, &WHOLE).unwrap()).0, ["süß"]);
}

#[test]
fn a_column_that_comes_twice_is_refused() {
    let root = tempfile::tempdir().unwrap();
    write_bytes(&root.path().join("test.parquet"), &[("sentence", "a"), ("label", "b"), ("label", "c")]);
    let error = open("parquet", root.path(), "text = \"sentence\"").classes().unwrap_err().to_string();
    assert!(error.contains("test.parquet: has several columns `label`: rename all but one"), "{error}");
}

/// A table may have images in several columns, whose rows are then the same.
#[test]
fn each_column_has_a_cache_of_its_own() {
    let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let images = |gray: u8| {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_pixel(8, 8, image::Rgb([gray; 3])).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        Column::Images(vec![bytes.into_inner(); 2])
    };
    let columns = [("photo", images(10)), ("scan", images(200)), ("label", Column::Numbers(vec![0, 1]))];
    crate::data::table::write(&root.path().join("train.parquet"), &columns).unwrap();
    let first = |column: &str| {
        let set = open("parquet", root.path(), &format!("image = \"{column}\""));
        let split = set.load(SplitName::Train, &Request { cache: Some(cache.path()), ..REQUEST }).unwrap();
        split.inputs.image(0).unwrap()[0]
    };
    assert_eq!(["photo", "scan", "photo"].map(first), [10, 200, 10]);
}

#[test]
fn a_share_is_drawn_the_same_way_every_time() {
    let load = |split| {
        let set =
            open("parquet", &fixture("parquet/forms/none-plain"), "image = \"image\"\ntest = 0.25\nresize = \"none\"");
        let split = set.load(split, &WHOLE).unwrap();
        (split.labels.clone(), pixels(&split))
    };
    assert_eq!((load(SplitName::Test).0.len(), load(SplitName::Train).0.len()), (3, 9));
    assert_eq!(load(SplitName::Test), load(SplitName::Test));
}

#[test]
fn what_is_missing_or_other_is_named() {
    let error = |key: &str, root: &Path, extra: &str, split| {
        format!("{:#}", open(key, root, extra).load(split, &WHOLE).err().unwrap())
    };
    let forms = fixture("parquet/forms");
    let of_form = |extra: &str| error("parquet", &forms.join("nulls"), extra, SplitName::Train);
    let image = "image = \"image\"\nresize = \"none\"\n";
    let no_column = of_form("image = \"img\"");
    assert!(no_column.ends_with("train.parquet: has no column `img`; its columns: image, label, hole"), "{no_column}");
    assert!(of_form("image = \"label\"").contains("the column `label` has no images: must be the bytes of a file"));
    let null = of_form(&format!("{image}label = \"hole\""));
    assert!(null.contains("train.parquet:8: ") && null.contains("`hole`"), "{null}");
    assert!(of_form(image).contains("train.parquet:5: has no image: its bytes are null"), "{}", of_form(image));
    let few = of_form(&format!("{image}classes = [\"a\", \"b\"]"));
    assert!(few.contains("train.parquet:3: `label` is 2, which is none of the 2 classes"), "{few}");
    let split = of_form(&format!("{image}train = \"fold\""));
    assert!(split.ends_with("nulls: has no table of the split `fold`; its splits: train"), "{split}");
    let other = error("cifar10", &hub("svhn"), "", SplitName::Test);
    assert!(other.contains("test_batch.bin: cannot read"), "{other}");
    let batches = error("cifar10", &hub("cifar10"), "batches = [1]", SplitName::Train);
    assert!(batches.starts_with("data.cifar10.batches: ") && batches.ends_with("leave it out"), "{batches}");
    // A folder of another set under the name of this one.
    let root = tempfile::tempdir().unwrap();
    copied(&hub("svhn/cropped_digits"), &root.path().join("plain_text"));
    assert!(error("cifar10", root.path(), "", SplitName::Test).contains("names other classes in `label`"));
    let parquet = entry("parquet").unwrap();
    assert!(mistakes(parquet, "").contains("must name the column with the images, or text"));
    assert!(mistakes(parquet, "text = \"a\"\nimage = \"b\"").contains("leave one of them out"));
    assert!(mistakes(parquet, "image = \"b\"\nsecond = \"c\"").contains("so text must name the first one"));
    assert!(mistakes(parquet, "image = \"b\"\ntarget = \"c\"\nlabel = \"d\"").contains("means nothing beside target"));
    for key in ["resize = \"none\"", "skip_corrupt = true", "exif_orientation = false"] {
        assert!(mistakes(parquet, &format!("text = \"b\"\n{key}")).contains("is a setting of images"), "{key}");
    }
}

#[test]
fn a_footer_that_names_other_classes_is_refused_and_another_order_is_followed() {
    let classes = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<String>>();
    let tables = || Tables::open(&hub("camelyon17"), Wanted::Only, "train").unwrap().unwrap();
    let swapped = tables().labels("label", Numbers::Named(&classes(&["tumor", "normal"]))).unwrap();
    assert_eq!(swapped, [1, 0, 1, 0]);
    let error = tables().labels("label", Numbers::Named(&classes(&["a", "b"]))).unwrap_err().to_string();
    assert!(error.contains("names other classes in `label` (normal; tumor) than the set has (a; b)"), "{error}");
}

#[test]
fn a_damaged_table_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("train.parquet");
    let whole = std::fs::read(fixture("parquet/forms/zstd-dictionary/train.parquet")).unwrap();
    let load = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        open("parquet", root.path(), "image = \"image\"\nresize = \"none\"").load(SplitName::Train, &WHOLE)
    };
    assert_eq!(load(&whole).unwrap().len(), 12);
    let text = |bytes: &[u8]| format!("{:#}", load(bytes).err().unwrap());
    assert!(text(&whole[..whole.len() - 1]).contains("train.parquet: is damaged or no Parquet: fetch it again"));
    assert!(text(b"PAR1").contains("is damaged or no Parquet"));
    let mut no_footer = whole.clone();
    no_footer.iter_mut().rev().skip(8).take(400).for_each(|byte| *byte = 0xff);
    assert!(text(&no_footer).contains("is damaged or no Parquet"));
    // The footer's own count of rows: a field of 64 bits (0x16) whose zigzag number 24 stands for 12; the first one is the file's.
    let size = u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap()) as usize;
    let at = (whole.len() - 8 - size..whole.len()).find(|at| whole[*at..].starts_with(&[0x16, 24])).unwrap() + 1;
    let mut counts = whole.clone();
    counts[at] = 26;
    assert!(text(&counts).contains("its footer states 13 rows, and its row groups have 12"), "{}", text(&counts));
    // A missing one of several tables.
    let folder = root.path().join("data");
    std::fs::remove_file(&file).unwrap();
    copied(&hub("cifar10/plain_text"), &folder);
    std::fs::remove_file(folder.join("train-00000-of-00002.parquet")).unwrap();
    let missing = format!("{:#}", open("cifar10", root.path(), "").load(SplitName::Train, &WHOLE).err().unwrap());
    assert!(missing.contains("table 0 of the 2 tables of `train` is missing"), "{missing}");
}
