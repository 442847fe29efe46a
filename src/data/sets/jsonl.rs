//! Any texts in files of JSON lines, classified by a language network or a text encoder: a template makes a prompt of each
//! line, another one the second text of a pair, and the label words are the classes. With `target`, a number is learnt in place of a
//! class.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::base::files::is_there;
use crate::data::lines::{Line, set_lines, write_lines};
use crate::data::read::class_folders::repeated;
use crate::data::read::json_lines::{Label, Pairs, Portion};
use crate::data::read::known::Known;
use crate::data::small::{Sizes, SmallSet, text};
use crate::data::{Dataset, Entry, Medium, Request, Split, SplitName, Subset};
use crate::hub::originals::Originals;
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "jsonl",
    about: "any texts in files of JSON lines, with a prompt template, perhaps for pairs, and label words or a number",
    fetch: "your own files: ROOT/train.jsonl and ROOT/test.jsonl (ROOT/val.jsonl if you like), with one JSON table a line",
    marks: &[],
    originals: Originals::ByHand("these are your own files"),
    hub: None,
    read: |reader| Box::new(Jsonl::read(reader)),
    sample: Some(|reader| Box::new(Jsonl::read(reader))),
};

settings! {
    struct Jsonl {
        root: PathBuf, because "the folder that holds the files";
        /// Template of the prompt, in which `{key}` stands for a line's value at that key, and `{{` for a brace.
        prompt: String, because "the template of the prompt, such as \"Text: {text}\\nLabel:\"";
        /// Template of the second text, if text encoders shall read pairs.
        second: Option<String>;
        /// Key of the label in each line.
        label_key: String = "label".into();
        /// Label words, which are the classes. A line's label is one of them, or its number from 0 on. Required without `target`.
        labels: Option<Vec<String>>;
        /// Key of a number that is learnt in place of a class.
        target: Option<String>;
        /// File with the training texts, below `root`.
        train: String = "train.jsonl".into();
        /// File with texts for validation, if there is one.
        val: String = "val.jsonl".into();
        /// File with the test texts, below `root`.
        test: String = "test.jsonl".into();
        subset: Option<Subset>, by Subset::read;
    } then check
}

impl Jsonl {
    fn check(&self, reader: &Reader) {
        for (key, template) in [("prompt", Some(&self.prompt)), ("second", self.second.as_ref())] {
            if let Some(Err(why)) = template.map(|template| Template::parse(template)) {
                reader.problem(key, why);
            }
        }
        if self.target.is_some() && reader.sets("label_key") {
            reader.problem(
                "label_key",
                "means nothing beside target, which is the key that is learnt: leave one of them out",
            );
        }
        match (&self.labels, &self.target) {
            (Some(_), Some(_)) => {
                reader.problem("labels", "means nothing beside target, which is a number: leave one of them out");
            }
            (None, None) => reader.problem(
                "labels",
                "is required: the label words, such as [\"no\", \"yes\"], or in their place target, the key of a number",
            ),
            (Some(labels), None) if labels.len() < 2 => reader.problem("labels", "must be two words or more"),
            (Some(labels), None) if repeated(labels).is_some() => reader.problem("labels", "must be different words"),
            _ => {}
        }
    }

    fn path(&self, split: SplitName) -> PathBuf {
        self.root.join(match split {
            SplitName::Train => &self.train,
            SplitName::Val => &self.val,
            SplitName::Test => &self.test,
        })
    }

    fn template(&self) -> Result<Template> {
        Template::parse(&self.prompt).map_err(|why| anyhow::anyhow!("data.jsonl.prompt: {why}"))
    }

    fn second_template(&self) -> Result<Option<Template>> {
        let parsed = self.second.as_ref().map(|second| Template::parse(second)).transpose();
        parsed.map_err(|why| anyhow::anyhow!("data.jsonl.second: {why}"))
    }

    fn words(&self) -> &[String] {
        self.labels.as_deref().unwrap_or_default()
    }

    /// Returns the class or the number of a line.
    fn learnt(&self, line: &Line, known: &Known) -> Result<Label> {
        if let Some(key) = &self.target {
            return line.number(key).map(Label::Number);
        }
        let label = line.text(&self.label_key)?;
        let class = match line.get(&self.label_key)? {
            Value::Bool(truth) => known.truth(*truth),
            _ => known.of(&label),
        };
        let class = class.with_context(|| {
            format!("{line}: `{}` is `{label}`, which is no word of data.jsonl.labels{}", self.label_key, known.nor())
        })?;
        Ok(Label::Class(class))
    }

    /// Reads the texts of a split.
    fn read_pairs(&self, split: SplitName) -> Result<Pairs> {
        let (template, second) = (self.template()?, self.second_template()?);
        let (mut samples, known) = (Pairs::default(), Known::new(self.words()));
        for line in set_lines(&self.path(split))? {
            let label = self.learnt(&line, &known)?;
            let second = second.as_ref().map(|template| template.fill(&line)).transpose()?;
            samples.push(&template.fill(&line)?, second.as_deref(), label);
        }
        Ok(samples)
    }
}

impl Dataset for Jsonl {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.target.as_ref().map_or_else(|| self.words().to_vec(), |target| vec![target.clone()]))
    }

    fn has_numbers(&self) -> bool {
        self.target.is_some()
    }

    fn medium(&self) -> Medium {
        Medium::Texts
    }

    fn prompt(&self, line: &Line) -> Result<String> {
        self.template()?.fill(line)
    }

    fn second(&self, line: &Line) -> Result<Option<String>> {
        self.second_template()?.map(|template| template.fill(line)).transpose()
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        let there: Vec<SplitName> = SplitName::ALL.into_iter().filter(|split| is_there(&self.path(*split))).collect();
        ensure!(!there.is_empty(), "{}: has neither {} nor {}", self.root.display(), self.train, self.test);
        Ok(there)
    }

    fn load(&self, split: SplitName, _: &Request) -> Result<Split> {
        self.read_pairs(split)?.split(Portion { set: ENTRY.key, split, subset: self.subset })
    }
}

/// A prompt in parts.
struct Template(Vec<Part>);

#[derive(Debug, PartialEq)]
enum Part {
    Text(String),
    Key(String),
}

impl Template {
    fn parse(text: &str) -> Result<Template, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain += &rest[..at];
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                plain += brace;
                rest = after;
                continue;
            }
            let end = if brace == "{" { after.find('}') } else { None };
            let Some((key, end)) = end.map(|end| (&after[..end], end)).filter(|(key, _)| !key.is_empty()) else {
                return Err(format!("has a `{brace}` without its pair: write {{key}}, or {brace}{brace} for a brace"));
            };
            parts.extend([Part::Text(std::mem::take(&mut plain)), Part::Key(key.to_string())]);
            rest = &after[end + 1..];
        }
        parts.push(Part::Text(plain + rest));
        if !parts.iter().any(|part| matches!(part, Part::Key(_))) {
            return Err("names no key, so every prompt would be the same: write {key} where its value belongs".into());
        }
        Ok(Template(parts))
    }

    fn fill(&self, line: &Line) -> Result<String> {
        let part = |part: &Part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Key(key) => line.text(key),
        };
        self.0.iter().map(part).collect()
    }
}

impl SmallSet for Jsonl {
    /// Sets the names of the files and the keys of their lines.
    fn overrides(&self, _sizes: &Sizes) -> toml::Table {
        let files = SplitName::ALL.map(|split| (split.to_string(), format!("{split}.jsonl").into()));
        let mut keys: toml::Table = files.into_iter().collect();
        keys.insert("prompt".into(), "{text}".into());
        keys.insert("label_key".into(), "label".into());
        if self.second.is_some() {
            keys.insert("second".into(), "{text}".into());
        }
        if self.has_numbers() {
            keys.insert("target".into(), "label".into());
        }
        keys
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        for split in SplitName::ALL {
            let line = |i: usize| {
                let label = sizes.label(i);
                let learnt = self.words().get(label).map_or_else(|| json!(label), |word| json!(word));
                json!({ "text": format!("text {i} of {label} {}", text(12, i)), "label": learnt })
            };
            write_lines(&self.path(split), (0..sizes.of(split)).map(line))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{error, load, mistakes, prompts, set, write};

    const LABELS: &str = "labels = [\"no\", \"yes\"]";

    #[test]
    fn a_template_makes_a_prompt_of_each_line() {
        let place = tempfile::tempdir().unwrap();
        write(
            place.path(),
            "train.jsonl",
            "{\"text\": \"is it?\", \"label\": \"yes\", \"more\": {\"n\": 3}}\n\n{\"text\": \"{b}\", \"label\": 0, \"more\": {\"n\": true}}\n",
        );
        let set = set(&ENTRY, place.path(), &format!("{LABELS}\nprompt = \"{{{{{{more.n}}}}}}: {{text}}\\nA:\""));
        let split = load(&*set, SplitName::Train).unwrap();
        assert_eq!(prompts(&split), (vec!["{3}: is it?\nA:", "{true}: {b}\nA:"], false));
        assert_eq!(split.labels, [1, 0]);
        assert_eq!(set.splits().unwrap(), [SplitName::Train]);
        assert_eq!(split.select(&[1]).fingerprint(), split.select(&[1]).fingerprint());
        assert_ne!(split.select(&[1]).fingerprint(), split.select(&[0]).fingerprint());
    }

    #[test]
    fn truth_values_are_places_or_the_words_that_are_called_so() {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), "train.jsonl", "{\"text\": \"a\", \"label\": true}\n{\"text\": \"b\", \"label\": false}\n");
        for (labels, expected) in [(LABELS, [1, 0]), ("labels = [\"True\", \"False\"]", [0, 1])] {
            let set = set(&ENTRY, place.path(), &format!("{labels}\nprompt = \"{{text}}\""));
            assert_eq!(load(&*set, SplitName::Train).unwrap().labels, expected, "{labels}");
        }
    }

    #[test]
    fn a_second_template_makes_pairs() {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), "train.jsonl", "{\"a\": \"one\", \"b\": \"two\", \"label\": 1}\n");
        let set = set(&ENTRY, place.path(), &format!("{LABELS}\nprompt = \"{{a}}\"\nsecond = \"so {{b}}\""));
        let split = load(&*set, SplitName::Train).unwrap();
        let crate::data::Inputs::Texts(texts) = &split.inputs else { panic!("texts") };
        assert_eq!(texts.prompts.seconds, Some(vec!["so two".to_string()]));
        let found = mistakes(&ENTRY, &format!("{LABELS}\nprompt = \"{{a}}\"\nsecond = \"plain\""));
        assert!(found.contains("data.jsonl.second") || found.contains("second = \"plain\": names no key"), "{found}");
    }

    #[test]
    fn a_number_in_place_of_a_class() {
        let place = tempfile::tempdir().unwrap();
        let lines = "{\"text\": \"a\", \"score\": 1.5}\n{\"text\": \"b\", \"score\": \"-2\"}\n";
        write(place.path(), "train.jsonl", lines);
        let jsonl = set(&ENTRY, place.path(), "prompt = \"{text}\"\ntarget = \"score\"");
        let split = load(&*jsonl, SplitName::Train).unwrap();
        assert_eq!((split.numbers.clone(), split.labels.clone()), (Some(vec![1.5, -2.0]), vec![0, 0]));
        assert_eq!(jsonl.classes().unwrap(), ["score"]);
        assert_ne!(split.select(&[0]).fingerprint(), split.select(&[1]).fingerprint());
        let other = split.clone().with_numbers(vec![1.5, 2.0]);
        assert_ne!(other.fingerprint(), split.fingerprint(), "the numbers are part of a split's identity");
        for (text, rule) in [
            ("{\"text\": \"a\", \"score\": \"good\"}", "train.jsonl:1: `score` is `good`, which is no number"),
            ("{\"text\": \"a\", \"score\": \"NaN\"}", "`score` is NaN: a number must be finite"),
            ("{\"text\": \"a\", \"score\": 1e300}", "must be finite and below 3.4e38"),
            (
                "{\"text\": \"a\", \"score\": null}",
                "train.jsonl:1: `score` is null, which a NaN of a table is, too: give it",
            ),
            ("{\"text\": \"a\"}", "train.jsonl:1: has no key `score`; its keys: text"),
            ("{\"text\": \"a\", \"score\": [1]}", "`score` is [1], which is no number: correct it"),
            ("{\"text\": \"a\", \"score\": NaN}", "train.jsonl:1: no JSON (which has no NaN)"),
        ] {
            write(place.path(), "train.jsonl", text);
            let error = error(&*jsonl, SplitName::Train);
            assert!(error.contains(rule), "{error}");
        }
        let both = mistakes(&ENTRY, &format!("{LABELS}\nprompt = \"{{text}}\"\ntarget = \"score\""));
        assert!(both.contains("means nothing beside target"), "{both}");
        let unread = mistakes(&ENTRY, "prompt = \"{text}\"\ntarget = \"score\"\nlabel_key = \"y\"");
        assert!(unread.contains("label_key = \"y\": means nothing beside target"), "{unread}");
        assert!(mistakes(&ENTRY, "prompt = \"{text}\"").contains("the label words"), "one of them is required");
    }

    /// The stars of reviews; the file begins with a byte order mark, which some programs put there.
    #[test]
    fn words_that_are_numbers_are_no_places() {
        let place = tempfile::tempdir().unwrap();
        let lines = ["1", "\"3\"", "2"].map(|label| format!("{{\"text\": \"a\", \"label\": {label}}}\n"));
        write(place.path(), "train.jsonl", &format!("\u{feff}{}", lines.concat()));
        let stars = set(&ENTRY, place.path(), "prompt = \"{text}\"\nlabels = [\"1\", \"2\", \"3\"]");
        assert_eq!(load(&*stars, SplitName::Train).unwrap().labels, [0, 2, 1]);
        write(place.path(), "test.jsonl", &lines[0].replace(": 1", ": 0"));
        let text = error(&*stars, SplitName::Test);
        assert!(
            text.contains("`label` is `0`, which is no word of data.jsonl.labels, whose names are numbers"),
            "{text}"
        );
    }

    #[test]
    fn mistakes_name_the_line() {
        let place = tempfile::tempdir().unwrap();
        let set = set(&ENTRY, place.path(), &format!("{LABELS}\nprompt = \"{{text}}\""));
        for (text, rule) in [
            (
                "{\"text\": \"a\", \"label\": \"maybe\"}",
                "train.jsonl:1: `label` is `maybe`, which is no word of data.jsonl.labels",
            ),
            ("{\"text\": \"a\", \"label\": 2}", "`label` is `2`"),
            ("{\"label\": 1}", "train.jsonl:1: has no key `text`; its keys: label"),
            ("\n{\"text\": [1], \"label\": 1}", "train.jsonl:2: `text` must be a text"),
            ("[1]", "train.jsonl:1: no table"),
            ("{", "train.jsonl:1: no JSON"),
            ("\n", "train.jsonl: has no line"),
        ] {
            write(place.path(), "train.jsonl", text);
            let error = error(&*set, SplitName::Train);
            assert!(error.contains(rule), "{error}");
        }
        let missing = error(&*set, SplitName::Test);
        assert!(missing.contains("test.jsonl: cannot open"), "{missing}");
    }

    #[test]
    fn templates_and_labels_are_checked() {
        for (extra, rule) in [
            (format!("{LABELS}\nprompt = \"{{text\""), "has a `{` without its pair"),
            (format!("{LABELS}\nprompt = \"a}} {{text}}\""), "has a `}` without its pair"),
            (format!("{LABELS}\nprompt = \"{{}}\""), "has a `{` without its pair"),
            (format!("{LABELS}\nprompt = \"plain\""), "names no key"),
            ("labels = [\"one\"]\nprompt = \"{a}\"".to_string(), "must be two words or more"),
            ("labels = [\"one\", \"one\"]\nprompt = \"{a}\"".to_string(), "must be different words"),
        ] {
            let found = mistakes(&ENTRY, &extra);
            assert!(found.contains(rule), "{extra}: {found}");
        }
    }
}
