use super::*;
use crate::data::testing::{error, load, prompts, set, write};

const OWN: &str = "{\"question\": {\"stem\": \"Why?\", \"choices\": [{\"text\": \"so\", \"label\": \"1\"}, {\"text\": \"no\", \"label\": \"2\"}]}, \"answerKey\": \"2\"}\n";
const PACKAGED: &str = "{\"question\": \"Why?\", \"choices\": {\"text\": [\"so\", \"no\"], \"label\": [\"1\", \"2\"]}, \"answerKey\": \"2\"}\n";

/// The prompts are those of bayesian-peft's dataset/utils/dsets.py, where text and label are swapped.
#[test]
fn both_forms_give_the_published_prompts() {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "ARC-Easy/ARC-Easy-Train.jsonl", &[OWN, PACKAGED].concat());
    write(place.path(), "ARC-Easy/ARC-Easy-Dev.jsonl", OWN);
    write(place.path(), "ARC-Easy/ARC-Easy-Test.jsonl", &OWN.repeat(3));
    let head = "Return the label of the correct answer for the question below.\n\nQuestion: Why?\nChoices:\n";
    let published = format!("{head}so) 1\nno) 2\nAnswer:");
    let own = set(&ENTRY, place.path(), "");
    let split = load(&*own, SplitName::Train).unwrap();
    assert_eq!((prompts(&split), &split.labels[..]), ((vec![published.as_str(); 2], false), &[1, 1][..]));
    let corrected = set(&ENTRY, place.path(), "prompts = \"corrected\"");
    let split = load(&*corrected, SplitName::Train).unwrap();
    let text = format!("{head}A) so\nB) no\nAnswer:");
    assert_eq!((prompts(&split), &split.labels[..]), ((vec![text.as_str(); 2], false), &[1, 1][..]));
}

#[test]
fn results_are_on_the_validation_set_unless_asked_otherwise() {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "ARC-Challenge/ARC-Challenge-Dev.jsonl", OWN);
    write(place.path(), "ARC-Challenge/ARC-Challenge-Test.jsonl", &OWN.repeat(3));
    let usual = set(&ENTRY, place.path(), "part = \"challenge\"");
    assert_eq!(load(&*usual, SplitName::Test).unwrap().len(), 1);
    assert_eq!(usual.published().images, [(SplitName::Train, 1119), (SplitName::Test, 299)]);
    assert!(error(&*usual, SplitName::Val).contains("arc is tested on its validation set"));
    let test = set(&ENTRY, place.path(), "part = \"challenge\"\ntest_on = \"test\"");
    assert_eq!(load(&*test, SplitName::Test).unwrap().len(), 3);
    assert_eq!(load(&*test, SplitName::Val).unwrap().len(), 1);
    assert_eq!(test.published().images_of(SplitName::Test), Some(1172));
}

#[test]
fn malformed_questions_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let own = set(&ENTRY, place.path(), "");
    for (line, rule) in [
        (OWN.replace("Key\": \"2\"", "Key\": \"3\""), "answerKey = \"3\" is none of its choices"),
        (OWN.replace("choices", "options"), "its choices are no list"),
        (OWN.replace("\"2\"", "\"z\""), "must be a letter from A to E"),
        (OWN.replace("stem", "text"), "`question` must be a text"),
    ] {
        write(place.path(), "ARC-Easy/ARC-Easy-Dev.jsonl", &line);
        let found = error(&*own, SplitName::Test);
        assert!(found.contains(rule) && found.contains("ARC-Easy-Dev.jsonl:1"), "{found}");
    }
}
