//! OpenBookQA (Mihaylov et al. 2018, arXiv 1809.02789): questions of four choices about elementary science.

use std::path::PathBuf;

use anyhow::Result;

use crate::data::lines::Line;
use crate::data::read::questions::{self, LETTERS, Question, TestOn, Wording, Words};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Medium, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "openbookqa",
    about: "OpenBookQA: questions of four choices; 4,957 to train on, 500 to test on",
    fetch: "OpenBookQA-V1-Sep2018.zip of the Allen Institute for AI: ROOT/Data/Main/train.jsonl, dev.jsonl and test.jsonl",
    marks: &[],
    originals: Originals::Files {
        files: &[Original::new(
            "https://s3-us-west-2.amazonaws.com/ai2-website/data/OpenBookQA-V1-Sep2018.zip",
            1_446_098,
            "82368cf05df2e3b309c17d162e10b888b4d768fad6e171e0a041954c8553be46",
        )
        .stripped()],
        terms: "no licence is stated; its authors ask to cite Mihaylov et al. 2018",
    },
    hub: Some(Hub { repository: "allenai/openbookqa", config: "main", splits: &[], image: "", label: "answerKey" }),
    read: |reader| Box::new(OpenBookQa::read(reader)),
    sample: Some(|reader| Box::new(OpenBookQa::read(reader))),
};

settings! {
    struct OpenBookQa {
        root: DataRoot, because "the folder that holds Data/Main";
        prompts: Wording, by Wording::read;
        test_on: TestOn, by TestOn::read;
        subset: Option<Subset>, by Subset::read;
    }
}

impl OpenBookQa {
    /// Returns the file of a published part: Train, Dev or Test.
    fn file(&self, part: &str) -> PathBuf {
        self.root.join("Data/Main").join(format!("{}.jsonl", part.to_lowercase()))
    }

    /// Returns what stands over the choices.
    fn heading(&self) -> &'static str {
        if self.prompts == Wording::Published { "Chioces" } else { "Choices" }
    }
}

impl Dataset for OpenBookQa {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(LETTERS[..4].iter().map(|letter| letter.to_string()).collect())
    }

    fn medium(&self) -> Medium {
        Medium::Texts
    }

    fn prompt(&self, line: &Line) -> Result<String> {
        Ok(Question::read(line)?.prompt(self.prompts, self.heading()))
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(self.test_on.splits())
    }

    fn published(&self) -> Published {
        self.test_on.published(4, [4957, 500, 500])
    }

    fn load(&self, split: SplitName, _: &Request) -> Result<Split> {
        let name = self.test_on.part(ENTRY.key, split)?;
        let part = questions::Part {
            key: ENTRY.key,
            split,
            name,
            root: &self.root,
            config: ENTRY.hub()?.config,
            file: &self.file(name),
            wording: self.prompts,
            heading: self.heading(),
            subset: self.subset,
        };
        part.read()
    }
}

impl SmallSet for OpenBookQa {
    fn write(&self, sizes: &Sizes) -> Result<()> {
        self.test_on.write(sizes, &Words { question: 11, choice: 3 }, |part| self.file(part))
    }
}

#[cfg(test)]
mod tests {
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
}
