//! WinoGrande (Sakaguchi et al. 2020, arXiv 1907.10641): which of two words fills the gap. Results are published on the
//! validation set, since the test set has no labels.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::data::lines::Line;
use crate::data::read::json_lines::{Sample, TestedOnValidation, write_splits};
use crate::data::read::questions::{LETTERS, Wording, prompt};
use crate::data::small::{Sizes, SmallSet, text};
use crate::data::{Dataset, Entry, Hub, Medium, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::{Choice, settings, words};

pub static ENTRY: Entry = Entry {
    key: "winogrande",
    about: "WinoGrande: which of two words fills the gap; 160 to 40,398 sentences to train on, 1,267 to test on",
    fetch: "winogrande_1.1.zip of the Allen Institute for AI: ROOT/train_s.jsonl (train_m.jsonl, …) and ROOT/dev.jsonl",
    marks: &[],
    originals: Originals::Files {
        files: &[Original::new(
            "https://storage.googleapis.com/ai2-mosaic/public/winogrande/winogrande_1.1.zip",
            2_797_793,
            "d5699402a41de2b4e6b3c6e2a1e6b4faab2130543a12019a8c5d4f35ec502d47",
        )
        .stripped()],
        terms: "Creative Commons Attribution",
    },
    hub: Some(Hub {
        repository: "allenai/winogrande",
        config: "",
        splits: &[(SplitName::Test, "validation")],
        image: "",
        label: "answer",
    }),
    read: |reader| Box::new(Winogrande::read(reader)),
    sample: Some(|reader| Box::new(Winogrande::read(reader))),
};

words! {
    /// The published sizes of the training set.
    enum Size { Xs = "xs", S = "s", M = "m", L = "l", Xl = "xl" }
}

settings! {
    struct Winogrande {
        root: DataRoot, because "the folder that holds train_s.jsonl and dev.jsonl";
        /// Size of the training set.
        size: Size = Size::S;
        prompts: Wording, by Wording::read;
        subset: Option<Subset>, by Subset::read;
    }
}

impl Winogrande {
    /// Returns the file of a split; the validation set is the test split.
    fn file(&self, split: SplitName) -> PathBuf {
        self.root.join(match split {
            SplitName::Train => format!("train_{}.jsonl", self.size.word()),
            SplitName::Val | SplitName::Test => "dev.jsonl".to_string(),
        })
    }

    fn sample(&self, line: &Line) -> Result<Sample> {
        let answer = line.text("answer")?;
        ensure!(["1", "2"].contains(&answer.as_str()), "{line}: answer = \"{answer}\": must be 1 or 2");
        Ok(Sample { text: self.prompt(line)?, label: u32::from(answer == "2") })
    }
}

impl Dataset for Winogrande {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(LETTERS[..2].iter().map(|letter| letter.to_string()).collect())
    }

    fn label(&self) -> String {
        format!("{}-{}", ENTRY.key, self.size)
    }

    fn medium(&self) -> Medium {
        Medium::Texts
    }

    fn published(&self) -> Published {
        let train = match self.size {
            Size::Xs => 160,
            Size::S => 640,
            Size::M => 2558,
            Size::L => 10_234,
            Size::Xl => 40_398,
        };
        Published::new(2, &[(SplitName::Train, train), (SplitName::Test, 1267)])
    }

    fn prompt(&self, line: &Line) -> Result<String> {
        let choices = format!("A) {}\nB) {}", line.text("option1")?, line.text("option2")?);
        let sentence = line.text("sentence")?;
        let Some(ending) = self.prompts.ending() else { return Ok(prompt(&sentence, "Choices", &choices)) };
        Ok(format!(
            "For the sentence given below, select the answer that best fills in the blank (_) from the given choices.\n{sentence}\n\
             Choices:\n{choices}{ending}"
        ))
    }

    fn ends_prompts(&self) -> bool {
        self.prompts.ends_prompts()
    }

    fn load(&self, split: SplitName, _: &Request) -> Result<Split> {
        let set = TestedOnValidation {
            key: ENTRY.key,
            root: &self.root,
            config: &format!("winogrande_{}", self.size),
            columns: &["sentence", "option1", "option2", "answer"],
            ended: self.ends_prompts(),
            subset: self.subset,
        };
        set.load(split, &self.file(split), |line| self.sample(line))
    }
}

impl SmallSet for Winogrande {
    fn write(&self, sizes: &Sizes) -> Result<()> {
        let line = |i: usize| {
            let sentence = format!("The {i} {} _ {} .", text(10, i), text(6, i));
            let answer = (sizes.label(i) + 1).to_string();
            json!({ "sentence": sentence, "option1": "one", "option2": "some", "answer": answer })
        };
        write_splits(sizes, |split| self.file(split), line)
    }
}

#[cfg(test)]
mod tests {
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
}
