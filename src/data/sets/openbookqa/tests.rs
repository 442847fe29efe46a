use super::*;
use crate::data::testing::{error, load, prompts, set, write};

/// The prompt is that of bayesian-peft's dataset/utils/dsets.py, with its heading.
#[test]
fn prompts_are_the_published_ones() {
    let place = tempfile::tempdir().unwrap();
    let line = "{\"question_stem\": \"Why\", \"choices\": {\"text\": [\"a\", \"b\", \"c\", \"d\"], \"label\": [\"A\", \"B\", \"C\", \"D\"]}, \"answerKey\": \"D\"}\n";
    write(place.path(), "Data/Main/train.jsonl", line);
    let head = "Return the label of the correct answer for the question below.\n\nQuestion: Why\n";
    let published = format!("{head}Chioces:\na) A\nb) B\nc) C\nd) D\nAnswer:");
    let split = load(&*set(&ENTRY, place.path(), ""), SplitName::Train).unwrap();
    assert_eq!((prompts(&split), &split.labels[..]), ((vec![published.as_str()], false), &[3][..]));
    let corrected = format!("{head}Choices:\nA) a\nB) b\nC) c\nD) d\nAnswer:");
    let split = load(&*set(&ENTRY, place.path(), "prompts = \"corrected\""), SplitName::Train).unwrap();
    assert_eq!(prompts(&split).0, [corrected]);
    assert!(error(&*set(&ENTRY, place.path(), ""), SplitName::Val).contains("test_on"));
}
