use super::*;
use crate::data::testing::{error, load, prompts, set, write};

/// The prompt is that of bayesian-peft's dataset/utils/dsets.py.
#[test]
fn prompts_are_the_published_ones() {
    let place = tempfile::tempdir().unwrap();
    let line = "{\"qID\": \"1\", \"sentence\": \"The cat saw _ .\", \"option1\": \"it\", \"option2\": \"me\", \"answer\": \"2\"}\n";
    write(place.path(), "train_m.jsonl", line);
    write(place.path(), "dev.jsonl", &line.replace("\"2\"", "\"1\""));
    let own = set(&ENTRY, place.path(), "size = \"m\"");
    let split = load(&*own, SplitName::Train).unwrap();
    let text = "Return the label of the correct answer for the question below.\n\nQuestion: The cat saw _ .\nChoices:\nA) it\n\
                B) me\nAnswer:";
    assert_eq!((prompts(&split), &split.labels[..]), ((vec![text], true), &[1][..]));
    assert_eq!(load(&*own, SplitName::Test).unwrap().labels, [0]);
    assert_eq!((own.label().as_str(), own.published().images_of(SplitName::Train)), ("winogrande-m", Some(2558)));
    let corrected = set(&ENTRY, place.path(), "size = \"m\"\nprompts = \"corrected\"");
    assert_eq!(prompts(&load(&*corrected, SplitName::Train).unwrap()), (vec![text], false));
    assert!(error(&*own, SplitName::Val).contains("no split `val`"));
    write(place.path(), "dev.jsonl", &line.replace("\"2\"", "\"\""));
    assert!(error(&*own, SplitName::Test).contains("dev.jsonl:1: answer = \"\": must be 1 or 2"));
}
