//! BoolQ (Clark et al. 2019, arXiv 1905.10044): yes/no questions about a passage. Results are published on the validation
//! set, since the test set has no labels.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::data::lines::Line;
use crate::data::read::json_lines::{Sample, TestedOnValidation, write_splits};
use crate::data::read::questions::Wording;
use crate::data::small::{Sizes, SmallSet, text};
use crate::data::{Dataset, Entry, Hub, Medium, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "boolq",
    about: "BoolQ: yes/no questions about a passage; 9,427 to train on, 3,270 to test on",
    fetch: "the files of google-research-datasets/boolean-questions: ROOT/train.jsonl and ROOT/dev.jsonl",
    marks: &[],
    originals: Originals::Files {
        files: &[
            Original::new(
                "https://storage.googleapis.com/boolq/train.jsonl",
                6_525_813,
                "cc7a79d44479867e8323a7b0c5c1d82edf516ca34912201f9384c3a3d098d8db",
            ),
            Original::new(
                "https://storage.googleapis.com/boolq/dev.jsonl",
                2_238_726,
                "ebc29ea3808c5c611672384b3de56e83349fe38fc1fe876fd29b674d81d0a80a",
            ),
        ],
        terms: "Creative Commons Attribution-ShareAlike 3.0",
    },
    hub: Some(Hub {
        repository: "google/boolq",
        config: "default",
        splits: &[(SplitName::Test, "validation")],
        image: "",
        label: "answer",
    }),
    read: |reader| Box::new(BoolQ::read(reader)),
    sample: Some(|reader| Box::new(BoolQ::read(reader))),
};

/// The first characters of a passage that enter the prompt, in all wordings but BayesAdapt's.
const PASSAGE: usize = 1024;

settings! {
    struct BoolQ {
        root: DataRoot, because "the folder that holds train.jsonl and dev.jsonl";
        prompts: Wording, by Wording::read;
        subset: Option<Subset>, by Subset::read;
    }
}

impl BoolQ {
    /// Returns the file of a split; the validation set is the test split.
    fn file(&self, split: SplitName) -> PathBuf {
        self.root.join(if split == SplitName::Train { "train.jsonl" } else { "dev.jsonl" })
    }

    fn sample(&self, line: &Line) -> Result<Sample> {
        let answer = line.get("answer")?;
        let answer = answer.as_bool().or(answer.as_u64().filter(|bit| *bit < 2).map(|bit| bit == 1));
        let answer = answer.with_context(|| format!("{line}: answer = {}: must be true or false", shown(line)))?;
        // Where the classes are True and False, the published program numbers a true answer 1, which is False.
        let label = u32::from(if self.prompts == Wording::Corrected { !answer } else { answer });
        Ok(Sample { text: self.prompt(line)?, label })
    }
}

fn shown(line: &Line) -> String {
    line.find("answer").map_or(String::new(), Value::to_string)
}

impl Dataset for BoolQ {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        let words = if self.prompts.ending().is_some() { ["false", "true"] } else { ["True", "False"] };
        Ok(words.map(String::from).into())
    }

    fn medium(&self) -> Medium {
        Medium::Texts
    }

    fn published(&self) -> Published {
        Published::new(2, &[(SplitName::Train, 9427), (SplitName::Test, 3270)])
    }

    fn prompt(&self, line: &Line) -> Result<String> {
        let (passage, question) = (line.text("passage")?, line.text("question")?);
        let asked = "Read the passage below and answer the question with the words 'true' or 'false'.";
        if let Some(ending) = self.prompts.ending() {
            return Ok(format!("{asked}\nPassage: {passage}\nQuestion: {question}?{ending}"));
        }
        let passage: String = passage.chars().take(PASSAGE).collect();
        Ok(format!("{asked}\n\nPassage: {passage}\nQuestion: {question}\nAnswer (true or false):"))
    }

    fn ends_prompts(&self) -> bool {
        self.prompts.ends_prompts()
    }

    fn load(&self, split: SplitName, _: &Request) -> Result<Split> {
        let set = TestedOnValidation {
            key: ENTRY.key,
            root: &self.root,
            config: ENTRY.hub()?.config,
            columns: &["question", "passage", "answer"],
            ended: self.ends_prompts(),
            subset: self.subset,
        };
        set.load(split, &self.file(split), |line| self.sample(line))
    }
}

impl SmallSet for BoolQ {
    fn write(&self, sizes: &Sizes) -> Result<()> {
        let line = |i: usize| {
            let question = format!("is it {i} {}", text(6, i));
            json!({ "question": question, "passage": text(100, i), "answer": sizes.label(i) == 1 })
        };
        write_splits(sizes, |split| self.file(split), line)
    }
}

#[cfg(test)]
mod tests {
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
}
