//! ARC, the AI2 reasoning challenge (Clark et al. 2018, arXiv 1803.05457): science questions of three to five choices.

use std::path::PathBuf;

use anyhow::Result;

use crate::data::lines::Line;
use crate::data::read::questions::{LETTERS, Question, TestOn, Wording, Words, read_split};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Medium, Published, Request, Split, SplitName, Subset};
use crate::hub::originals::{Original, Originals};
use crate::schema::{Choice, settings, words};

pub static ENTRY: Entry = Entry {
    key: "arc",
    about: "ARC: science questions of up to five choices; easy (2,251 to train on) or challenge (1,119)",
    fetch: "ARC-V1-Feb2018.zip of the Allen Institute for AI: ROOT/ARC-Easy/ARC-Easy-Train.jsonl, ARC-Easy-Dev.jsonl, \
            ARC-Easy-Test.jsonl, and the same for ARC-Challenge",
    originals: Originals::Files {
        files: &[Original::new(
            "https://ai2-datasets.s3-us-west-2.amazonaws.com/arc/ARC-V1-Feb2018.zip",
            680_841_265,
            "6d2d5ab50b2ceec6ba5f79c921be77cf2de712ea25a2b3f4fff3acc101cecfa0",
        )
        .stripped()],
        terms: "Creative Commons Attribution-ShareAlike 4.0",
    },
    read: |reader| Box::new(Arc::read(reader)),
    sample: Some(|reader| Box::new(Arc::read(reader))),
};

words! {
    /// The parts of the set.
    enum Part { Easy = "easy", Challenge = "challenge" }
}

settings! {
    struct Arc {
        root: PathBuf, because "the folder that holds ARC-Easy and ARC-Challenge";
        /// Part of the set.
        part: Part = Part::Easy;
        prompts: Wording, by Wording::read;
        test_on: TestOn, by TestOn::read;
        subset: Option<Subset>, by Subset::read;
    }
}

impl Arc {
    /// Returns the file of a published part: Train, Dev or Test.
    fn file(&self, part: &str) -> PathBuf {
        let name = match self.part {
            Part::Easy => "ARC-Easy",
            Part::Challenge => "ARC-Challenge",
        };
        self.root.join(name).join(format!("{name}-{part}.jsonl"))
    }
}

impl Dataset for Arc {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(LETTERS.iter().map(|letter| letter.to_string()).collect())
    }

    fn label(&self) -> String {
        format!("{}-{}", ENTRY.key, self.part.word())
    }

    fn medium(&self) -> Medium {
        Medium::Texts
    }

    fn prompt(&self, line: &Line) -> Result<String> {
        Ok(Question::read(line)?.prompt(self.prompts, "Choices"))
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(self.test_on.splits())
    }

    fn published(&self) -> Published {
        match self.part {
            Part::Easy => self.test_on.published(5, [2251, 570, 2376]),
            Part::Challenge => self.test_on.published(5, [1119, 299, 1172]),
        }
    }

    fn load(&self, split: SplitName, _: &Request) -> Result<Split> {
        let part = self.test_on.part(ENTRY.key, split)?;
        read_split((ENTRY.key, split), &self.file(part), (self.prompts, "Choices"), self.subset)
    }
}

impl SmallSet for Arc {
    fn side(&self) -> u32 {
        0
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        self.test_on.write(sizes, &Words { question: 20, choice: 4 }, |part| self.file(part))
    }
}

#[cfg(test)]
mod tests;
