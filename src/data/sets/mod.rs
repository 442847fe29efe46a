//! The data sets, one file each. A new data set is one file and its line in [`DATASETS`]. The list of data sets, the
//! config parser and the message for an unknown name all use that slice.

mod arc;
mod boolq;
mod camelyon17;
pub(super) mod cifar10;
pub(super) mod cifar100;
pub(super) mod cifar100_c;
pub(super) mod cifar10_c;
mod digits;
mod domainnet;
mod flowers102;
mod glue;
pub mod image_folder;
mod image_folder_c;
mod imagenet;
mod imagenet_a;
mod imagenet_r;
mod imagenet_sketch;
mod imagenet_v2;
mod iwildcam;
mod jsonl;
mod list;
mod medmnist;
mod ok_vqa;
mod openbookqa;
pub(crate) mod parquet;
mod stl10;
mod svhn;
mod tiny_imagenet;
mod uci;
mod vqa_v2;
mod vtab;
mod webdataset;
mod winogrande;

use anyhow::{Error, Result};

use crate::data::Entry;
use crate::schema::find;

/// All data sets of `[data.*]` in the order in which they are listed.
pub static DATASETS: &[&Entry] = &[
    &cifar10::ENTRY,
    &cifar100::ENTRY,
    &stl10::ENTRY,
    &svhn::ENTRY,
    &flowers102::ENTRY,
    &camelyon17::ENTRY,
    &iwildcam::ENTRY,
    &domainnet::ENTRY,
    &imagenet::ENTRY,
    &imagenet_a::ENTRY,
    &imagenet_r::ENTRY,
    &imagenet_sketch::ENTRY,
    &imagenet_v2::ENTRY,
    &tiny_imagenet::ENTRY,
    &vtab::ENTRY,
    &medmnist::ENTRY,
    &list::ENTRY,
    &image_folder::ENTRY,
    &webdataset::ENTRY,
    &parquet::ENTRY,
    &digits::ENTRY,
    &cifar10_c::ENTRY,
    &cifar100_c::ENTRY,
    &image_folder_c::ENTRY,
    &jsonl::ENTRY,
    &winogrande::ENTRY,
    &arc::ENTRY,
    &openbookqa::ENTRY,
    &boolq::ENTRY,
    &glue::ENTRY,
    &vqa_v2::ENTRY,
    &ok_vqa::ENTRY,
    &uci::ENTRY,
];

/// Returns the entry of a key.
///
/// # Errors
/// Fails if there is none.
pub fn entry(key: &str) -> Result<&'static Entry> {
    find(DATASETS, key).map_err(Error::msg)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::testing::{REQUEST, load, prompts, set, write};
    use crate::data::{Request, Sizes, SplitName};

    #[test]
    fn keys_are_unique_and_described() {
        for (i, entry) in DATASETS.iter().enumerate() {
            assert!(DATASETS[..i].iter().all(|other| other.key != entry.key));
            assert!(!entry.about.is_empty() && entry.about.is_ascii());
        }
    }

    /// Returns a table for a small set of an entry.
    fn table(key: &str, root: &Path) -> toml::Table {
        let more = match key {
            "vtab" => "task = \"dtd\"\ntrain = \"train800\"",
            "glue" => "task = \"mnli\"",
            "uci" => "name = \"yacht\"",
            "medmnist" => "task = \"bloodmnist\"",
            "domainnet" => "test = [\"real\", \"sketch\"]",
            "parquet" => "image = \"image\"",
            "jsonl" => "prompt = \"{text}\"\nlabels = [\"a\", \"b\", \"c\", \"d\"]",
            _ => "",
        };
        let root = if key == "digits" { String::new() } else { format!("root = {root:?}") };
        toml::from_str(&format!("{root}\n{more}")).unwrap()
    }

    /// Returns a small set of two classes, written and opened.
    fn small(key: &str, mut table: toml::Table) -> (Box<dyn crate::data::Dataset>, Sizes) {
        let entry = entry(key).unwrap();
        let classes = entry.read_by(entry.read, &table).unwrap().published().classes.unwrap_or(4);
        let sizes = Sizes { classes, present: 2, train: 11, val: 4, test: 6, side: 20, corruptions: 2 };
        table.extend(entry.small(&table).unwrap().overrides(&sizes));
        entry.small(&table).unwrap().write(&sizes).unwrap();
        (entry.read_by(entry.read, &table).unwrap(), sizes)
    }

    /// Prompts, classes and labels in both forms are those that BayesAdapt's code makes (scripts/make_bayesadapt_prompt_goldens.py).
    #[test]
    fn prompts_of_bayesadapt_are_those_of_its_code() {
        let golden = include_str!("../../../tests/fixtures/authors/bayesadapt_prompts.json");
        let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
        for (key, file) in [
            ("winogrande", "train_m.jsonl"),
            ("arc", "ARC-Easy/ARC-Easy-Train.jsonl"),
            ("openbookqa", "Data/Main/train.jsonl"),
            ("boolq", "train.jsonl"),
        ] {
            let (root, golden) = (tempfile::tempdir().unwrap(), &golden[key]);
            let texts = |of: &str| -> Vec<String> { serde_json::from_value(golden[of].clone()).unwrap() };
            let lines: Vec<String> =
                golden["samples"].as_array().unwrap().iter().map(|line| format!("{line}\n")).collect();
            write(root.path(), file, &lines.concat());
            for form in ["instruct", "base"] {
                let more = format!("{}\nprompts = \"bayesadapt-{form}\"", golden["table"].as_str().unwrap());
                let set = set(entry(key).unwrap(), root.path(), &more);
                let split = load(&*set, SplitName::Train).unwrap();
                let (prompts, ended) = prompts(&split);
                assert_eq!(
                    (prompts, ended),
                    (texts(form).iter().map(String::as_str).collect(), false),
                    "{key}, {form}"
                );
                assert_eq!(set.classes().unwrap(), texts("classes"), "{key}");
                assert_eq!(serde_json::json!(split.labels), golden["labels"], "{key}");
            }
        }
    }

    const ROOM: Request = Request { image_size: 16, workers: 1, memory_bytes: 1 << 20, ..REQUEST };

    /// Each reader reads what the writer beside it wrote, with the right counts, labels and classes.
    #[test]
    fn small_sets_are_read() {
        for entry in DATASETS.iter().filter(|entry| entry.key != "digits") {
            let (root, key) = (tempfile::tempdir().unwrap(), entry.key);
            let (set, sizes) = small(key, table(key, root.path()));
            if set.published().classes.is_some() {
                assert_eq!(set.classes().unwrap().len(), sizes.classes, "{key}");
            }
            let versions = set.versions().unwrap();
            if !versions.is_empty() {
                assert_eq!(versions.len(), 10, "{key}");
                let split = set.load_version(&versions[7], &ROOM).unwrap();
                assert!(split.labels.starts_with(&[0, 1]) || split.labels.starts_with(&[0, 0, 0, 1]), "{key}");
                continue;
            }
            for name in SplitName::ALL {
                let Ok(split) = set.load(name, &ROOM) else {
                    let lacks = name == SplitName::Val || !set.splits().unwrap().contains(&name);
                    assert!(lacks, "{key}/{name}: {:#}", set.load(name, &ROOM).unwrap_err());
                    continue;
                };
                let sets = if name == SplitName::Test { set.test_sets().len().max(1) } else { 1 };
                assert_eq!(split.len(), sets * sizes.of(name), "{key}/{name}");
                assert_eq!(highest(&split), 1, "{key}/{name}");
            }
        }
    }

    /// Returns the highest label or number.
    fn highest(split: &crate::data::Split) -> u32 {
        match &split.numbers {
            Some(numbers) => numbers.iter().fold(0.0f64, |a, b| a.max(*b)) as u32,
            None => split.labels.iter().copied().max().unwrap(),
        }
    }

    /// Settings that change the layout change what is written, too.
    #[test]
    fn small_sets_follow_the_settings() {
        for (key, more) in [
            ("image-folder", "test = 0.3\nsplit_seed = 4"),
            ("image-folder", "train = \"a\"\ntest = \"b\""),
            ("imagenet", "ground_truth = \"labels.txt\"\nwords = \"words.txt\""),
            ("list", "list = \"mine.csv\"\ncolumns = { path = \"file\", split = \"fold\" }"),
            ("cifar10", "batches = [4, 2]"),
            ("arc", "part = \"challenge\"\ntest_on = \"test\""),
            ("glue", "task = \"cola\""),
            ("glue", "task = \"stsb\""),
            ("jsonl", "prompt = \"{a}\"\ntarget = \"score\""),
            ("parquet", "text = \"text\"\ntarget = \"score\""),
            ("list", "columns = { target = \"age\" }"),
            ("uci", "name = \"yacht\"\nsplit = 4"),
            ("jsonl", "prompt = \"{a}\"\nsecond = \"{b}\"\nlabels = [\"no\", \"yes\"]\ntrain = \"mine\""),
            ("parquet", "text = \"text\"\nsecond = \"text\""),
            ("parquet", "image = \"image\"\nlabel = \"y\"\ntest = 0.3\nsplit_seed = 4"),
            ("parquet", "image = \"image\"\nconfig = \"mine\"\ntrain = \"a\"\ntest = \"b\""),
            ("vqa-v2", "labels = [\"yes\", \"cat\"]"),
            ("stl10", "classes = [\"truck\", \"cat\"]"),
            ("imagenet-a", "narrow = false"),
            ("medmnist", "task = \"organamnist\"\nsize = 64"),
            ("iwildcam", "val = \"id_val\"\ntest = \"id_test\""),
            ("imagenet-v2", "test = [\"top-images\"]"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let text = format!("root = {:?}\n{more}", root.path());
            let (set, sizes) = small(key, toml::from_str(&text).unwrap());
            for name in set.splits().unwrap() {
                let split = set.load(name, &ROOM).unwrap_or_else(|error| panic!("{key} {more}: {error:#}"));
                assert_eq!((split.len(), highest(&split)), (sizes.of(name), 1), "{key} {more}");
                assert_eq!(set.has_numbers(), split.numbers.is_some(), "{key} {more}");
            }
        }
    }

    #[test]
    fn a_set_without_a_writer_says_so() {
        let silent = Entry { key: "mine", sample: None, ..*entry("digits").unwrap() };
        let error = silent.small(&toml::Table::new()).err().unwrap().to_string();
        assert_eq!(
            error,
            "data.mine: mine has no writer of a small set, so it cannot be rehearsed: rehearse on another set"
        );
    }
}
