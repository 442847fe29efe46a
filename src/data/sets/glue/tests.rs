use super::*;
use crate::data::Inputs;
use crate::data::testing::{error, load, mistakes, prompts, set, write};

fn seconds(split: &Split) -> Vec<&str> {
    let Inputs::Texts(texts) = &split.inputs else { panic!("texts") };
    texts.prompts.seconds.iter().flatten().map(String::as_str).collect()
}

/// CoLA has no header, quotes are characters, and lines may end in the way of Windows.
#[test]
fn single_sentences() {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "CoLA/train.tsv", "gj04\t1\t\tHe said \"no.\nbc01\t0\t*\tThem is \"here\".\r\n");
    let cola = set(&ENTRY, place.path(), "task = \"cola\"");
    let split = load(&*cola, SplitName::Train).unwrap();
    assert_eq!(prompts(&split).0, ["He said \"no.", "Them is \"here\"."]);
    assert_eq!((split.labels.as_slice(), seconds(&split).len()), (&[1, 0][..], 0));
    assert_eq!(cola.classes().unwrap(), ["unacceptable", "acceptable"]);
    write(place.path(), "SST-2/dev.tsv", "sentence\tlabel\nit works \t1\n\nit does not \t0\n");
    let split = load(&*set(&ENTRY, place.path(), "task = \"sst2\""), SplitName::Test).unwrap();
    assert_eq!((prompts(&split).0, &split.labels[..]), (vec!["it works ", "it does not "], &[1, 0][..]));
}

/// MRPC begins with a byte order mark; columns are found by their names.
#[test]
fn pairs() {
    let place = tempfile::tempdir().unwrap();
    let mrpc =
        "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t70\t71\tHe \"said\" so\tso he said\n0\t1\t2\ta\tb\n";
    for (file, task, text, first, second, label) in [
        ("MRPC/train.tsv", "mrpc", mrpc, "He \"said\" so", "so he said", 1),
        ("RTE/train.tsv", "rte", "index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tnot_entailment\n", "a b", "c", 1),
        ("QNLI/train.tsv", "qnli", "index\tquestion\tsentence\tlabel\n0\twho?\thim\tentailment\n", "who?", "him", 0),
        ("WNLI/train.tsv", "wnli", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n", "a", "b", 1),
    ] {
        write(place.path(), file, text);
        let set = set(&ENTRY, place.path(), &format!("task = \"{task}\""));
        let split = load(&*set, SplitName::Train).unwrap();
        assert_eq!((prompts(&split).0[0], seconds(&split)[0], split.labels[0]), (first, second, label), "{task}");
        assert_eq!(split.name, format!("glue-{task}/train"));
    }
    let mrpc = set(&ENTRY, place.path(), "task = \"mrpc\"\nsubset = 1");
    let split = load(&*mrpc, SplitName::Train).unwrap();
    assert_eq!((seconds(&split), split.labels.clone()), (vec!["b"], vec![0]));
    let other = set(&ENTRY, place.path(), "task = \"mrpc\"");
    assert_ne!(load(&*other, SplitName::Train).unwrap().fingerprint(), split.fingerprint());
}

#[test]
fn both_test_sets_of_mnli_are_tested_on() {
    let place = tempfile::tempdir().unwrap();
    let text = |label: &str| format!("index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tx\t{label}\n");
    write(place.path(), "MNLI/dev_matched.tsv", &text("neutral"));
    write(place.path(), "MNLI/dev_mismatched.tsv", &text("contradiction"));
    let mnli = set(&ENTRY, place.path(), "task = \"mnli\"");
    assert_eq!(mnli.published().images, [(SplitName::Train, 392_702), (SplitName::Test, 9_815 + 9_832)]);
    assert_eq!(load(&*mnli, SplitName::Test).unwrap().labels, [1, 2]);
    let sets = mnli.test_sets();
    let names: Vec<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["matched", "mismatched"]);
    assert_eq!(load(&*sets[1].1, SplitName::Test).unwrap().labels, [2]);
    let one = set(&ENTRY, place.path(), "task = \"mnli\"\ntest = [\"mismatched\"]");
    assert_eq!((one.label().as_str(), one.published().images[1].1), ("glue-mnli-mismatched", 9_832));
    assert!(one.test_sets().is_empty() && load(&*one, SplitName::Test).unwrap().labels == [2]);
}

/// The labels of STS-B are numbers.
#[test]
fn similarities_are_numbers() {
    let place = tempfile::tempdir().unwrap();
    let stsb = set(&ENTRY, place.path(), "task = \"stsb\"");
    let header = "index\tgenre\tsentence1\tsentence2\tscore\n";
    write(place.path(), "STS-B/train.tsv", &format!("{header}0\tx\ta \"b\tc\t3.750\n1\tx\td\te\t0.0\n"));
    let split = load(&*stsb, SplitName::Train).unwrap();
    assert_eq!((prompts(&split).0[0], seconds(&split)[1]), ("a \"b", "e"));
    assert_eq!((split.numbers, split.labels), (Some(vec![3.75, 0.0]), vec![0, 0]));
    assert_eq!(stsb.classes().unwrap(), ["similarity"]);
    for (text, rule) in [
        (format!("{header}0\tx\ta\tb\thigh\n"), "train.tsv:2: `score` is `high`, which is no number"),
        (format!("{header}0\tx\ta\tb\tnan\n"), "train.tsv:2: `score` is NaN: a number must be finite"),
        (
            format!("{header}0\tx\ta\tb\n"),
            "train.tsv:2: has 4 cells, and its score is missing: must have more than 4, and be a number",
        ),
    ] {
        write(place.path(), "STS-B/train.tsv", &text);
        let error = error(&*stsb, SplitName::Train);
        assert!(error.contains(rule), "{error}");
    }
}

/// Older archives of QQP have lines that lack cells; in other tasks such a line is a mistake.
#[test]
fn broken_lines_are_left_out_of_qqp_alone() {
    let place = tempfile::tempdir().unwrap();
    let qqp = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\twho?\twhom?\t1\n4\t5\t6\tbroken\n7\t8\t9\ta\tb\t0\n";
    write(place.path(), "QQP/train.tsv", qqp);
    let split = load(&*set(&ENTRY, place.path(), "task = \"qqp\""), SplitName::Train).unwrap();
    assert_eq!((seconds(&split), split.labels.clone()), (vec!["whom?", "b"], vec![1, 0]));
    let rte = set(&ENTRY, place.path(), "task = \"rte\"");
    for (text, rule) in [
        (
            "index\tsentence1\tsentence2\tlabel\n0\ta\tentailment\n",
            "train.tsv:2: has 3 cells, and its label is missing",
        ),
        ("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n", "its label is `maybe`"),
        (
            "index\tsentence1\tlabel\n0\ta\tentailment\n",
            "has no column `sentence2`; its columns: index, sentence1, label",
        ),
        ("index\tsentence1\tsentence2\tlabel\n", "has no line of values"),
        ("", "has no line"),
    ] {
        write(place.path(), "RTE/train.tsv", text);
        let error = error(&*rte, SplitName::Train);
        assert!(error.contains(rule), "{error}");
    }
    assert!(error(&*rte, SplitName::Test).contains("dev.tsv: cannot open"));
    assert!(error(&*rte, SplitName::Val).contains("no split `val`"));
}

#[test]
fn settings_are_checked() {
    assert!(mistakes(&ENTRY, "").contains("task is required"));
    assert!(mistakes(&ENTRY, "task = \"sts\"").contains("cola"));
    assert!(mistakes(&ENTRY, "task = \"rte\"\ntest = [\"matched\"]").contains("is for mnli alone"));
}
