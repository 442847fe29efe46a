//! ARC, the AI2 reasoning challenge (Clark et al. 2018, arXiv 1803.05457): science questions of three to five choices.

use std::path::PathBuf;

use anyhow::Result;

use crate::data::lines::Line;
use crate::data::read::questions::{self, LETTERS, Question, TestOn, Wording, Words};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Medium, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::{Choice, settings, words};

pub static ENTRY: Entry = Entry {
    key: "arc",
    about: "ARC: science questions of up to five choices; easy (2,251 to train on) or challenge (1,119)",
    fetch: "ARC-V1-Feb2018.zip of the Allen Institute for AI: ROOT/ARC-Easy/ARC-Easy-Train.jsonl, ARC-Easy-Dev.jsonl, \
            ARC-Easy-Test.jsonl, and the same for ARC-Challenge",
    marks: &[],
    originals: Originals::Files {
        files: &[Original::new(
            "https://ai2-datasets.s3-us-west-2.amazonaws.com/arc/ARC-V1-Feb2018.zip",
            680_841_265,
            "6d2d5ab50b2ceec6ba5f79c921be77cf2de712ea25a2b3f4fff3acc101cecfa0",
        )
        .stripped()],
        terms: "Creative Commons Attribution-ShareAlike 4.0",
    },
    hub: Some(Hub { repository: "allenai/ai2_arc", config: "", splits: &[], image: "", label: "answerKey" }),
    read: |reader| Box::new(Arc::read(reader)),
    sample: Some(|reader| Box::new(Arc::read(reader))),
};

words! {
    /// The parts of the set.
    enum Part { Easy = "easy", Challenge = "challenge" }
}

settings! {
    struct Arc {
        root: DataRoot, because "the folder that holds ARC-Easy and ARC-Challenge";
        /// Part of the set.
        part: Part = Part::Easy;
        prompts: Wording, by Wording::read;
        test_on: TestOn, by TestOn::read;
        subset: Option<Subset>, by Subset::read;
    }
}

impl Arc {
    /// Returns the name of the part in files, which is that of its configuration on the Hub, too.
    fn name(&self) -> &'static str {
        match self.part {
            Part::Easy => "ARC-Easy",
            Part::Challenge => "ARC-Challenge",
        }
    }

    /// Returns the file of a published part: Train, Dev or Test.
    fn file(&self, part: &str) -> PathBuf {
        let name = self.name();
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
        let name = self.test_on.part(ENTRY.key, split)?;
        let part = questions::Part {
            key: ENTRY.key,
            split,
            name,
            root: &self.root,
            config: self.name(),
            file: &self.file(name),
            wording: self.prompts,
            heading: "Choices",
            subset: self.subset,
        };
        part.read()
    }
}

impl SmallSet for Arc {
    fn write(&self, sizes: &Sizes) -> Result<()> {
        self.test_on.write(sizes, &Words { question: 20, choice: 4 }, |part| self.file(part))
    }
}

#[cfg(test)]
mod tests {
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
}
