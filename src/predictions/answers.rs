//! The answers that the members of a posterior have written together, with what people answered. They are kept as JSON lines:
//! first a table with the hash of the file, what the answers are of and how many there are, then a table for each question.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::base::files::{read_text, write_atomic};
use crate::base::hash::{check_lines, seal_lines};

/// The ending of a file of answers.
pub const ENDING: &str = "jsonl";

/// What the first line says a file is.
const FORMAT: &str = "bella/answers/1";

/// The answers to N questions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    pub members: usize,
    pub metadata: BTreeMap<String, String>,
    pub replies: Vec<Reply>,
}

/// An answer, with what people answered to the same question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub question_id: u64,
    pub answer: String,
    pub answer_type: String,
    /// The answers of people.
    pub people: Vec<String>,
    /// The tokens of the answer without its end.
    pub tokens: Vec<Token>,
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Token {
    pub token: String,
    pub id: u32,
    /// Its probability, averaged over the members.
    pub probability: f64,
    /// The entropy of the averaged distribution, in nats.
    pub entropy: f64,
    /// The mutual information between token and member, in nats.
    pub mutual_information: f64,
    /// The most probable tokens with their averaged probabilities, the most probable first.
    pub top: Vec<(u32, f64)>,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    members: usize,
    answers: usize,
    metadata: BTreeMap<String, String>,
}

impl Answers {
    /// Writes the answers to `path` atomically. Equal answers give equal bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let (format, metadata) = (FORMAT.to_string(), self.metadata.clone());
        let header = Header { format, members: self.members, answers: self.replies.len(), metadata };
        let mut text = serde_json::to_string(&header)? + "\n";
        for reply in &self.replies {
            text += &(serde_json::to_string(reply)? + "\n");
        }
        write_atomic(path, |file| Ok(file.write_all(seal_lines(&text).as_bytes())?))
    }

    /// Reads a saved file.
    ///
    /// # Errors
    /// Fails if it is no file of answers, if answers are missing or malformed, or if it has changed since it was written.
    pub fn open(path: &Path) -> Result<Answers> {
        let shown = path.display();
        let text = read_text(path).with_context(|| format!("answers file {shown}: cannot read"))?;
        check_lines(&text).with_context(|| format!("answers file {shown}"))?;
        let mut lines = text.lines().enumerate();
        let header = lines.next().and_then(|(_, line)| serde_json::from_str::<Header>(line).ok());
        let header = header.filter(|header| header.format == FORMAT);
        let header =
            header.with_context(|| format!("answers file {shown}: its first line is not that of `{FORMAT}`"))?;
        let reply = |(at, line): (usize, &str)| {
            serde_json::from_str(line).with_context(|| format!("answers file {shown}:{}: no answer", at + 1))
        };
        let replies: Vec<Reply> = lines.map(reply).collect::<Result<_>>()?;
        ensure!(
            replies.len() == header.answers,
            "answers file {shown}: has {} answers of {}: evaluate again to write it anew",
            replies.len(),
            header.answers
        );
        Ok(Answers { members: header.members, metadata: header.metadata, replies })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Answers {
        let token = |id| Token {
            token: "cat".into(),
            id,
            probability: 0.7,
            entropy: 0.3,
            mutual_information: 0.1,
            top: vec![(id, 0.7), (3, 0.2)],
        };
        let reply = |question_id| Reply {
            question_id,
            answer: "cat".into(),
            answer_type: "other".into(),
            people: vec!["cat".into(), "dog \"x\"\n".into()],
            tokens: vec![token(8)],
        };
        let metadata = [("run".to_string(), "r1".to_string())].into();
        Answers { members: 2, metadata, replies: vec![reply(4), reply(7)] }
    }

    #[test]
    fn answers_survive_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        answers().save(&path).unwrap();
        assert_eq!(Answers::open(&path).unwrap(), answers());
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        answers().save(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("0.7", "0.8", 1)).unwrap();
        let error = format!("{:#}", Answers::open(&path).unwrap_err());
        assert!(error.contains("a.jsonl: changed since it was written"), "{error}");
        std::fs::write(&path, text.replacen("content_hash", "content_hasj", 1)).unwrap();
        assert!(format!("{:#}", Answers::open(&path).unwrap_err()).contains("damaged"));
        let (_, rest) = text.split_once(',').unwrap();
        let text = format!("{{{rest}");
        std::fs::write(&path, &text).unwrap();
        assert!(format!("{:#}", Answers::open(&path).unwrap_err()).contains("does not begin with the hash"));
        let refused = |text: &str| {
            std::fs::write(&path, seal_lines(text)).unwrap();
            format!("{:#}", Answers::open(&path).unwrap_err())
        };
        assert!(refused(&text[..text.trim_end().rfind('\n').unwrap()]).contains("has 1 answers of 2"));
        assert!(refused(&text[..text.len() - 9]).contains("a.jsonl:3: no answer"));
        assert!(refused("[1]\n").contains("its first line is not that of"));
        assert!(refused("").contains("its first line is not that of"));
    }
}
