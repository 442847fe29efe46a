//! Stand-ins for sets of texts: files of JSON lines under their official names. Questions and passages have about as many words
//! as the published ones.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::words::text;

pub static JSONL: StandIn = StandIn { key: "jsonl", side: 0, write: jsonl, overrides };
pub static WINOGRANDE: StandIn = StandIn { key: "winogrande", side: 0, write: winogrande, overrides: none };
pub static ARC: StandIn = StandIn { key: "arc", side: 0, write: arc, overrides: none };
pub static OPENBOOKQA: StandIn = StandIn { key: "openbookqa", side: 0, write: openbookqa, overrides: none };
pub static BOOLQ: StandIn = StandIn { key: "boolq", side: 0, write: boolq, overrides: none };
pub static GLUE: StandIn = StandIn { key: "glue", side: 0, write: glue, overrides: none };

/// Returns the keys by which the made lines of `jsonl` are read.
fn overrides(wanted: &Wanted) -> toml::Table {
    let names = ["train", "val", "test"].map(|split| (split.to_string(), format!("{split}.jsonl").into()));
    let own = [("prompt".to_string(), "{text}".into()), ("label_key".to_string(), "label".into())];
    let labels = wanted.texts("labels").unwrap_or_default();
    names.into_iter().chain(own).chain([("labels".to_string(), labels.into())]).collect()
}

/// Writes `count` lines that `line` makes of a number and its label.
fn write(path: &Path, wanted: &Wanted, count: usize, line: impl Fn(usize, usize) -> Value) -> Result<()> {
    let text: String = (0..count).map(|i| line(i, wanted.label(i)).to_string() + "\n").collect();
    put(path, text.as_bytes())
}

fn jsonl(wanted: &Wanted) -> Result<()> {
    for (split, count) in [("train", wanted.train), ("val", wanted.val), ("test", wanted.test)] {
        let line = |i, label| json!({ "text": format!("text {i} of {label} {}", text(12, i)), "label": label });
        write(&wanted.root.join(format!("{split}.jsonl")), wanted, count, line)?;
    }
    Ok(())
}

fn winogrande(wanted: &Wanted) -> Result<()> {
    let line = |i, label: usize| {
        let answer = (label + 1).to_string();
        let sentence = format!("The {i} {} _ {} .", text(10, i), text(6, i));
        json!({ "sentence": sentence, "option1": "one", "option2": "some", "answer": answer })
    };
    let train = format!("train_{}.jsonl", wanted.text("size").unwrap_or("s"));
    write(&wanted.root.join(train), wanted, wanted.train, line)?;
    write(&wanted.root.join("dev.jsonl"), wanted, wanted.test, line)
}

fn boolq(wanted: &Wanted) -> Result<()> {
    let line = |i, label| {
        let (question, passage) = (format!("is it {i} {}", text(6, i)), text(100, i));
        json!({ "question": question, "passage": passage, "answer": label == 1 })
    };
    write(&wanted.root.join("train.jsonl"), wanted, wanted.train, line)?;
    write(&wanted.root.join("dev.jsonl"), wanted, wanted.test, line)
}

/// Writes the columns of a task under its official names.
fn glue(wanted: &Wanted) -> Result<()> {
    let three = ["entailment", "neutral", "contradiction"];
    let (folder, columns, labels): (&str, &[&str], &[&str]) = match wanted.text("task") {
        Some("sst2") => ("SST-2", &["sentence", "label"], &["0", "1"]),
        Some("mrpc") => ("MRPC", &["#1 String", "#2 String", "Quality"], &["0", "1"]),
        Some("qqp") => ("QQP", &["question1", "question2", "is_duplicate"], &["0", "1"]),
        Some("mnli") => ("MNLI", &["sentence1", "sentence2", "gold_label"], &three),
        Some("qnli") => ("QNLI", &["question", "sentence", "label"], &["entailment", "not_entailment"]),
        Some("rte") => ("RTE", &["sentence1", "sentence2", "label"], &["entailment", "not_entailment"]),
        Some("wnli") => ("WNLI", &["sentence1", "sentence2", "label"], &["0", "1"]),
        _ => ("CoLA", &[], &["0", "1"]),
    };
    let row = |i: usize| {
        let label = labels[wanted.label(i).min(labels.len() - 1)];
        let texts = (1..columns.len()).map(|text| format!("text {text} of {i}\t")).collect::<String>();
        if columns.is_empty() { format!("made\t{label}\t\ttext {i}\n") } else { format!("{texts}{label}\n") }
    };
    let head = if columns.is_empty() { String::new() } else { columns.join("\t") + "\n" };
    let file = |name: &str, count: usize| {
        let text = head.clone() + &(0..count).map(row).collect::<String>();
        put(&wanted.root.join(folder).join(name), text.as_bytes())
    };
    file("train.tsv", wanted.train)?;
    if folder == "MNLI" {
        file("dev_mismatched.tsv", wanted.test)?;
        return file("dev_matched.tsv", wanted.test);
    }
    file("dev.tsv", wanted.test)
}

fn arc(wanted: &Wanted) -> Result<()> {
    let part = if wanted.text("part") == Some("challenge") { "ARC-Challenge" } else { "ARC-Easy" };
    questions(wanted, (20, 4), |split| wanted.root.join(part).join(format!("{part}-{split}.jsonl")))
}

fn openbookqa(wanted: &Wanted) -> Result<()> {
    questions(wanted, (11, 3), |split| wanted.root.join("Data/Main").join(format!("{}.jsonl", split.to_lowercase())))
}

/// Writes the questions of the published parts that the settings use, which have so many words, and so have their choices.
fn questions(
    wanted: &Wanted,
    (asked, chosen): (usize, usize),
    path: impl Fn(&str) -> std::path::PathBuf,
) -> Result<()> {
    let line = |i, label: usize| {
        let choice = |letter: &str| json!({ "text": text(chosen, i), "label": letter });
        let choices: Vec<Value> = ["A", "B", "C", "D"].map(choice).into();
        let answer = ["A", "B", "C", "D"][label.min(3)];
        json!({ "question": { "stem": format!("{} {i}", text(asked, i)), "choices": choices }, "answerKey": answer })
    };
    write(&path("Train"), wanted, wanted.train, line)?;
    if wanted.text("test_on") == Some("test") {
        write(&path("Dev"), wanted, wanted.val, line)?;
        return write(&path("Test"), wanted, wanted.test, line);
    }
    write(&path("Dev"), wanted, wanted.test, line)
}
