use super::*;
use crate::data::testing::{error, load, mistakes, prompts, set, write};

const LABELS: &str = "labels = [\"no\", \"yes\"]";

#[test]
fn a_template_makes_a_prompt_of_each_line() {
    let place = tempfile::tempdir().unwrap();
    write(
        place.path(),
        "train.jsonl",
        "{\"text\": \"is it?\", \"label\": \"yes\", \"more\": {\"n\": 3}}\n\n{\"text\": \"{b}\", \"label\": 0, \"more\": {\"n\": true}}\n",
    );
    let set = set(&ENTRY, place.path(), &format!("{LABELS}\nprompt = \"{{{{{{more.n}}}}}}: {{text}}\\nA:\""));
    let split = load(&*set, SplitName::Train).unwrap();
    assert_eq!(prompts(&split), (vec!["{3}: is it?\nA:", "{true}: {b}\nA:"], false));
    assert_eq!(split.labels, [1, 0]);
    assert_eq!(set.splits().unwrap(), [SplitName::Train]);
    assert_eq!(split.select(&[1]).fingerprint(), split.select(&[1]).fingerprint());
    assert_ne!(split.select(&[1]).fingerprint(), split.select(&[0]).fingerprint());
}

#[test]
fn a_second_template_makes_pairs() {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "train.jsonl", "{\"a\": \"one\", \"b\": \"two\", \"label\": 1}\n");
    let set = set(&ENTRY, place.path(), &format!("{LABELS}\nprompt = \"{{a}}\"\nsecond = \"so {{b}}\""));
    let split = load(&*set, SplitName::Train).unwrap();
    let crate::data::Inputs::Texts(texts) = &split.inputs else { panic!("texts") };
    assert_eq!(texts.prompts.seconds, Some(vec!["so two".to_string()]));
    let found = mistakes(&ENTRY, &format!("{LABELS}\nprompt = \"{{a}}\"\nsecond = \"plain\""));
    assert!(found.contains("data.jsonl.second") || found.contains("second = \"plain\": names no key"), "{found}");
}

#[test]
fn mistakes_name_the_line() {
    let place = tempfile::tempdir().unwrap();
    let set = set(&ENTRY, place.path(), &format!("{LABELS}\nprompt = \"{{text}}\""));
    for (text, rule) in [
        (
            "{\"text\": \"a\", \"label\": \"maybe\"}",
            "train.jsonl:1: `label` is `maybe`, which is no word of data.jsonl.labels",
        ),
        ("{\"text\": \"a\", \"label\": 2}", "`label` is `2`"),
        ("{\"label\": 1}", "train.jsonl:1: has no key `text`; its keys: label"),
        ("\n{\"text\": [1], \"label\": 1}", "train.jsonl:2: `text` must be a text"),
        ("[1]", "train.jsonl:1: no table"),
        ("{", "train.jsonl:1: no JSON"),
        ("\n", "train.jsonl: has no line"),
    ] {
        write(place.path(), "train.jsonl", text);
        let error = error(&*set, SplitName::Train);
        assert!(error.contains(rule), "{error}");
    }
    let missing = error(&*set, SplitName::Test);
    assert!(missing.contains("test.jsonl: cannot open"), "{missing}");
}

#[test]
fn templates_and_labels_are_checked() {
    for (extra, rule) in [
        (format!("{LABELS}\nprompt = \"{{text\""), "has a `{` without its pair"),
        (format!("{LABELS}\nprompt = \"a}} {{text}}\""), "has a `}` without its pair"),
        (format!("{LABELS}\nprompt = \"{{}}\""), "has a `{` without its pair"),
        (format!("{LABELS}\nprompt = \"plain\""), "names no key"),
        ("labels = [\"one\"]\nprompt = \"{a}\"".to_string(), "must be two words or more"),
    ] {
        let found = mistakes(&ENTRY, &extra);
        assert!(found.contains(rule), "{extra}: {found}");
    }
}
