//! OpenBookQA (Mihaylov et al. 2018, arXiv 1809.02789): questions of four choices about elementary science.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::data::lines::Line;
use crate::data::read::questions::{LETTERS, Question, TestOn, Wording, Words, read_split};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Medium, Published, Request, Split, SplitName, Subset};
use crate::schema::Reader;

pub static ENTRY: Entry = Entry {
    key: "openbookqa",
    about: "OpenBookQA: questions of four choices; 4,957 to train on, 500 to test on",
    fetch: "OpenBookQA-V1-Sep2018.zip of the Allen Institute for AI: ROOT/Data/Main/train.jsonl, dev.jsonl and test.jsonl",
    read: |reader| Box::new(read(reader)),
    sample: Some(|reader| Box::new(read(reader))),
};

#[derive(Serialize)]
struct OpenBookQa {
    root: PathBuf,
    prompts: Wording,
    test_on: TestOn,
    #[serde(skip_serializing_if = "Option::is_none")]
    subset: Option<Subset>,
}

fn read(reader: &mut Reader) -> OpenBookQa {
    let root = reader.path("root").required_because("the folder that holds Data/Main");
    let (prompts, test_on) = (Wording::read(reader), TestOn::read(reader));
    OpenBookQa { root, prompts, test_on, subset: Subset::read(reader) }
}

impl OpenBookQa {
    /// Returns the file of a published part: Train, Dev or Test.
    fn file(&self, part: &str) -> PathBuf {
        self.root.join("Data/Main").join(format!("{}.jsonl", part.to_lowercase()))
    }

    /// Returns what stands over the choices.
    fn heading(&self) -> &'static str {
        match self.prompts {
            Wording::Published => "Chioces",
            Wording::Corrected => "Choices",
        }
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
        let file = self.file(self.test_on.part(ENTRY.key, split)?);
        read_split((ENTRY.key, split), &file, (self.prompts, self.heading()), self.subset)
    }

    fn resolved(&self) -> toml::Table {
        crate::schema::table(self)
    }
}

impl SmallSet for OpenBookQa {
    fn side(&self) -> u32 {
        0
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        self.test_on.write(sizes, &Words { question: 11, choice: 3 }, |part| self.file(part))
    }
}

#[cfg(test)]
mod tests;
