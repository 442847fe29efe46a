use super::*;
use crate::data::testing::{error, load, prompts, set, write};

/// The prompt and the numbering are those of bayesian-peft's dataset/utils/dsets.py.
#[test]
fn a_true_answer_is_class_one_as_published() {
    let place = tempfile::tempdir().unwrap();
    let line = |answer: &str| {
        let passage = "\u{e4}".repeat(1030);
        format!("{{\"question\": \"is it\", \"title\": \"T\", \"answer\": {answer}, \"passage\": \"{passage}\"}}\n")
    };
    write(place.path(), "train.jsonl", &[line("true"), line("false")].concat());
    let own = set(&ENTRY, place.path(), "");
    let split = load(&*own, SplitName::Train).unwrap();
    let text = format!(
        "Read the passage below and answer the question with the words 'true' or 'false'.\n\nPassage: {}\nQuestion: is it\n\
         Answer (true or false):",
        "\u{e4}".repeat(1024)
    );
    assert_eq!((prompts(&split), &split.labels[..]), ((vec![text.as_str(); 2], true), &[1, 0][..]));
    assert_eq!(own.classes().unwrap(), ["True", "False"]);
    let corrected = set(&ENTRY, place.path(), "prompts = \"corrected\"");
    let split = load(&*corrected, SplitName::Train).unwrap();
    assert_eq!((prompts(&split).1, &split.labels[..]), (false, &[0, 1][..]));
    write(place.path(), "dev.jsonl", &line("\"no\""));
    assert!(error(&*own, SplitName::Test).contains("dev.jsonl:1: answer = \"no\": must be true or false"));
}
