//! Multiple-choice questions of the commonsense sets, with the prompts by which BLoB, TFB and IBDR are compared
//! (bayesian-peft), as they are published or as they were meant, and with those of BayesAdapt (SRI-CSL/BayesAdapt, commit 3843000,
//! `bayesadapt/datasets`), with which the tests compare them (`scripts/make_bayesadapt_prompt_goldens.py`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::json_lines::{self, Portion, Sample};
use super::splits::Wanted;
use super::tables::Tables;
use crate::data::lines::{Line, set_lines, write_lines};
use crate::data::small::{Sizes, text};
use crate::data::{Published, Split, SplitName, Subset};
use crate::schema::{Reader, words};

words! {
    /// The wording of prompts.
    pub enum Wording {
        /// The wording of the published results, with its slips.
        Published = "published",
        /// The published wording without its slips.
        Corrected = "corrected",
        /// The wording is that of BayesAdapt, which `checkpoint.chat` puts into a chat.
        Instruct = "bayesadapt-instruct",
        /// The wording is that of BayesAdapt, with `Answer:` behind it.
        Base = "bayesadapt-base",
    }
}

impl Wording {
    pub fn read(reader: &Reader) -> Wording {
        reader
            .choice("prompts")
            .about(
                "Wording of the prompts: as in the published results of BLoB with their slips, or corrected; or that of BayesAdapt, \
                 to be put into a chat (`checkpoint.chat`), or with `Answer:` behind it.",
            )
            .or(Wording::Published)
    }

    /// Returns whether the end-of-text token follows the prompts of sets without letters, as their tokenizer has it in the published program.
    pub fn ends_prompts(self) -> bool {
        self == Wording::Published
    }

    /// Returns what ends a prompt of BayesAdapt; `None` for another wording.
    pub fn ending(self) -> Option<&'static str> {
        match self {
            Wording::Published | Wording::Corrected => None,
            Wording::Instruct => Some(""),
            Wording::Base => Some("\nAnswer:"),
        }
    }
}

/// The letters that label choices.
pub const LETTERS: [&str; 5] = ["A", "B", "C", "D", "E"];

/// A question with its choices.
pub struct Question {
    pub stem: String,
    /// The label and the text of each choice.
    pub choices: Vec<(String, String)>,
}

impl Question {
    /// Reads a line of ARC or OpenBookQA, in their own form (`question.stem`, `question.choices`) or in that of the packages
    /// of data sets (`question` or `question_stem`, `choices.text`, `choices.label`).
    ///
    /// # Errors
    /// Fails if a key is missing, if a choice is malformed, or if there are more than five.
    pub fn read(line: &Line) -> Result<Question> {
        let stem = ["question.stem", "question_stem", "question"].into_iter().find(|key| line.find(key).is_some());
        let stem = line.text(stem.unwrap_or("question"))?;
        let choices = match (line.find("question.choices"), line.find("choices.label"), line.find("choices.text")) {
            (Some(Value::Array(choices)), ..) => choices
                .iter()
                .map(|choice| {
                    Some((choice.get("label")?.as_str()?.to_string(), choice.get("text")?.as_str()?.to_string()))
                })
                .collect(),
            (None, Some(Value::Array(labels)), Some(Value::Array(texts))) if labels.len() == texts.len() => labels
                .iter()
                .zip(texts)
                .map(|(label, text)| Some((label.as_str()?.to_string(), text.as_str()?.to_string())))
                .collect(),
            _ => None,
        };
        let choices: Vec<(String, String)> =
            choices.with_context(|| format!("{line}: its choices are no list of labels and texts"))?;
        let count = choices.len();
        ensure!(count <= LETTERS.len(), "{line}: has {count} choices: must be at most {}", LETTERS.len());
        Ok(Question { stem, choices })
    }

    /// Returns the prompt; `heading` stands over the choices of all wordings but BayesAdapt's.
    pub fn prompt(&self, wording: Wording, heading: &str) -> String {
        let choice = |((label, text), letter): (&(String, String), &'static str)| match wording {
            // The published program swaps label and text, and keeps numbers as labels.
            Wording::Published => format!("{text}) {label}"),
            Wording::Corrected => format!("{letter}) {text}"),
            // Numbers become letters, and letters stay as they are.
            Wording::Instruct | Wording::Base => {
                format!("{}) {text}", LETTERS.into_iter().find(|known| known == label).unwrap_or(letter))
            }
        };
        let choices: Vec<String> = self.choices.iter().zip(LETTERS).map(choice).collect();
        let choices = choices.join("\n");
        let Some(ending) = wording.ending() else { return prompt(&self.stem, heading, &choices) };
        let asked = "Answer the multiple choice question below. Output the letter of your choice only.";
        let whole = format!("{asked}\n{}\nChoices:\n{choices}", self.stem);
        format!("{}{ending}", whole.trim_end())
    }

    /// Returns the prompt, and the number of the right choice of `line` from 0 on.
    ///
    /// # Errors
    /// Fails if the line has no `answerKey` that is the label of a choice, or if that is neither a letter nor a number.
    fn sample(&self, wording: Wording, heading: &str, line: &Line) -> Result<Sample> {
        let answer = line.text("answerKey")?;
        let place = self.choices.iter().position(|(label, _)| *label == answer);
        let place = place.with_context(|| format!("{line}: answerKey = \"{answer}\" is none of its choices"))?;
        let class = class_of(&answer).with_context(|| {
            format!("{line}: answerKey = \"{answer}\" must be a letter from A to E or a number from 1 to 5")
        })?;
        let label = if wording == Wording::Corrected { place } else { class };
        Ok(Sample { text: self.prompt(wording, heading), label: label as u32 })
    }
}

/// The published parts and their names on the Hub.
const PARTS: [(&str, &str); 3] = [("Train", "train"), ("Dev", "validation"), ("Test", "test")];

/// A published part of the questions of a set.
pub struct Part<'a> {
    /// The key of the set, and the split as which the part serves.
    pub key: &'static str,
    pub split: SplitName,
    /// The published name of the part.
    pub name: &'a str,
    /// The root, the configuration of the Hub's tables in it, and the file of a root without tables.
    pub root: &'a Path,
    pub config: &'a str,
    pub file: &'a Path,
    /// The wording of prompts, and what stands over the choices.
    pub wording: Wording,
    pub heading: &'a str,
    pub subset: Option<Subset>,
}

impl Part<'_> {
    /// Reads the questions from the Hub's tables, if the root has them, or from the file.
    ///
    /// # Errors
    /// Fails if the file or a question in it is malformed, or if the subset asks for more questions than there are.
    pub fn read(&self) -> Result<Split> {
        let name = PARTS.iter().find(|(known, _)| *known == self.name).map_or(self.name, |(_, name)| name);
        let lines = match Tables::open(self.root, Wanted::Part(self.config), name)? {
            Some(tables) => tables.all_lines()?,
            None => set_lines(self.file)?,
        };
        let sample = |line| Question::read(line)?.sample(self.wording, self.heading, line);
        let samples = lines.iter().map(sample).collect::<Result<_>>()?;
        let portion = Portion { set: self.key, split: self.split, subset: self.subset };
        json_lines::split(portion, samples, false)
    }
}

/// Returns the number, from 0 on, that a letter or a number from 1 on stands for.
fn class_of(label: &str) -> Option<usize> {
    let letter = LETTERS.iter().position(|letter| *letter == label);
    letter.or(label.parse().ok().filter(|number| (1..=LETTERS.len()).contains(number)).map(|number: usize| number - 1))
}

/// Returns the prompt for a question; `heading` stands over the choices.
pub fn prompt(question: &str, heading: &str, choices: &str) -> String {
    format!(
        "Return the label of the correct answer for the question below.\n\nQuestion: {question}\n{heading}:\n{choices}\nAnswer:"
    )
}

words! {
    /// The published split that results are reported on.
    pub enum TestOn { Validation = "validation", Test = "test" }
}

impl TestOn {
    pub fn read(reader: &Reader) -> TestOn {
        reader
            .choice("test_on")
            .about("Published split to test on: the validation set, as the published results do, or the test set.")
            .or(TestOn::Validation)
    }

    /// Returns the splits that there are.
    pub fn splits(self) -> Vec<SplitName> {
        SplitName::ALL.into_iter().filter(|split| self.part_of(*split).is_some()).collect()
    }

    /// Returns the published part that serves as a split of the data set `key`.
    ///
    /// # Errors
    /// Fails for the validation split of a set that is tested on it.
    pub fn part(self, key: &str, split: SplitName) -> Result<&'static str> {
        self.part_of(split).with_context(|| {
            format!(
                "{key} is tested on its validation set: set data.{key}.validation to a share, or data.{key}.test_on to \
                 \"test\""
            )
        })
    }

    fn part_of(self, split: SplitName) -> Option<&'static str> {
        match (split, self) {
            (SplitName::Train, _) => Some("Train"),
            (SplitName::Val, TestOn::Validation) => None,
            (SplitName::Val, TestOn::Test) | (SplitName::Test, TestOn::Validation) => Some("Dev"),
            (SplitName::Test, TestOn::Test) => Some("Test"),
        }
    }

    /// Returns the published sizes, from those of the training, validation and test sets.
    pub fn published(self, classes: usize, [train, dev, test]: [usize; 3]) -> Published {
        let size = |split| match self.part_of(split) {
            Some("Dev") => dev,
            Some("Test") => test,
            _ => train,
        };
        let sizes: Vec<(SplitName, usize)> = self.splits().into_iter().map(|split| (split, size(split))).collect();
        Published::new(classes, &sizes)
    }
}

/// The number of words of a made-up question, and of each of its four choices.
pub struct Words {
    pub question: usize,
    pub choice: usize,
}

impl TestOn {
    /// Writes made-up questions into the files of the published parts that serve as splits.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(self, sizes: &Sizes, words: &Words, file: impl Fn(&str) -> PathBuf) -> Result<()> {
        let line = |i: usize| {
            let choice = |letter: &&str| json!({ "text": text(words.choice, i), "label": letter });
            let choices: Vec<Value> = LETTERS[..4].iter().map(choice).collect();
            let stem = format!("{} {i}", text(words.question, i));
            let answer = LETTERS[sizes.label(i).min(3)];
            json!({ "question": { "stem": stem, "choices": choices }, "answerKey": answer })
        };
        let parts = self.splits().into_iter().filter_map(|split| Some((split, self.part_of(split)?)));
        parts.into_iter().try_for_each(|(split, part)| write_lines(&file(part), (0..sizes.of(split)).map(line)))
    }
}
