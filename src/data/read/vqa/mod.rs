//! The files of visual question answering (Antol et al. 2015, arXiv 1505.00468): questions and annotations as JSON, and the
//! images of COCO 2014 by their numbers; or the Hub's tables, which have a question with its answers and its image in each row.

mod dataset;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tables::Tables;
use crate::base::files::read_file;
use crate::data::lines::Line;
use crate::data::read::class_folders::repeated;
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::subset::chosen;
use crate::data::{Answers, Hub, Images, Inputs, Learnt, Questions, Request, Resize, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::schema::{Reader, settings};

/// The types of answers, which are the classes of a set.
pub const KINDS: [&str; 3] = ["yes/no", "number", "other"];

/// The placeholder of the image in a prompt.
pub const IMAGE: &str = "<image>";

/// The place of the question in a prompt.
const QUESTION: &str = "{question}";

/// The prompt of LLaVA's evaluation for short answers: conversation `vicuna_v1` with its instruction.
const PROMPT: &str = "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, \
                      detailed, and polite answers to the user's questions. USER: <image>\n{question}\nAnswer the question \
                      using a single word or phrase. ASSISTANT:";

settings! {
    /// The settings of a set.
    pub struct Vqa(of: &'static Source) {
        root: DataRoot, because "the folder that holds questions, annotations and images";
        /// Template of the prompt, in which `<image>` stands for the image and `{question}` for the question.
        prompt: String = PROMPT.into();
        /// Types of answers whose questions are used.
        answer_types: Vec<String> = KINDS.map(String::from).into();
        /// Answers that are the classes, such as `["yes", "no"]`; other questions are left out. Free answers by default.
        labels: Option<Vec<String>>;
        /// The way in which images get the size of the network's input.
        resize: Resize = Resize::Pad;
        subset: Option<Subset>, by Subset::read;
        of: &'static Source, given of;
    } then check
}

/// A published set of questions in this form.
pub struct Source {
    pub key: &'static str,
    /// The start of the names of its files.
    pub version: &'static str,
    /// The numbers of training questions of each type of answers, in the order of [`KINDS`].
    pub train: [usize; 3],
    /// The same of validation questions.
    pub test: [usize; 3],
    /// The form in which the Hub has it, if bella reads that.
    pub hub: Option<Hub>,
}

#[derive(Deserialize, Serialize)]
struct QuestionFile {
    #[serde(default)]
    data_subtype: Option<String>,
    questions: Vec<Question>,
}

#[derive(Deserialize, Serialize)]
struct Question {
    image_id: u64,
    question: String,
    question_id: u64,
}

#[derive(Deserialize, Serialize)]
struct AnnotationFile {
    #[serde(default)]
    data_subtype: Option<String>,
    annotations: Vec<Annotation>,
}

#[derive(Deserialize, Serialize)]
struct Annotation {
    question_id: u64,
    answer_type: String,
    #[serde(default)]
    multiple_choice_answer: Option<String>,
    answers: Vec<Answer>,
}

#[derive(Deserialize, Serialize)]
struct Answer {
    answer: String,
}

impl Vqa {
    fn check(&self, reader: &Reader, _: &'static Source) {
        for part in [IMAGE, QUESTION].into_iter().filter(|part| self.prompt.matches(part).count() != 1) {
            reader.problem("prompt", format!("must have `{part}` once"));
        }
        for kind in self.answer_types.iter().filter(|kind| !KINDS.contains(&kind.as_str())) {
            reader.problem("answer_types", format!("`{kind}` is no type of answers; known: {}", KINDS.join(", ")));
        }
        if self.labels.as_ref().is_some_and(|labels| labels.len() < 2) {
            reader.problem("labels", "must be two answers or more");
        }
        if self.labels.as_ref().is_some_and(|labels| repeated(labels).is_some()) {
            reader.problem("labels", "must be different answers");
        }
        if self.resize == Resize::None {
            reader.problem("resize", "the images of COCO differ in size: choose another word");
        }
    }

    fn questions(&self, part: &str) -> PathBuf {
        self.root.join(format!("{}OpenEnded_mscoco_{part}_questions.json", self.of.version))
    }

    fn annotations(&self, part: &str) -> PathBuf {
        self.root.join(format!("{}mscoco_{part}_annotations.json", self.of.version))
    }

    fn image(&self, part: &str, number: u64) -> PathBuf {
        self.root.join(part).join(format!("COCO_{part}_{number:012}.jpg"))
    }

    fn part(&self, split: SplitName) -> Result<&'static str> {
        match split {
            SplitName::Train => Ok("train2014"),
            SplitName::Test => Ok("val2014"),
            SplitName::Val => bail!("{0} has no split `val`; set data.{0}.validation, say to 0.01", self.of.key),
        }
    }

    /// Returns the number of the annotation's type among all types, or of its answer among the classes; `None` if the type is
    /// not wanted or the answer is no class. `at` is the place of the annotation in messages.
    fn label(&self, annotation: &Annotation, at: &dyn Display) -> Result<Option<u32>> {
        let kind = KINDS.iter().position(|kind| *kind == annotation.answer_type).with_context(|| {
            format!(
                "{at}: question {}: answer_type = \"{}\" is none of {}",
                annotation.question_id,
                annotation.answer_type,
                KINDS.join(", ")
            )
        })?;
        ensure!(!annotation.answers.is_empty(), "{at}: question {}: no answer", annotation.question_id);
        let wanted = self.answer_types.iter().any(|wanted| wanted == KINDS[kind]);
        let class = match &self.labels {
            None => Some(kind),
            Some(labels) => labels.iter().position(|label| *label == annotation.target()),
        };
        Ok(class.filter(|_| wanted).map(|class| class as u32))
    }

    /// Returns those of the listed questions that the subset takes; `listed` returns the images with these numbers.
    fn split(
        &self,
        mut all: Listed,
        split: SplitName,
        listed: impl FnOnce(Vec<u64>) -> Result<Listing>,
        request: &Request,
    ) -> Result<Split> {
        let keep = chosen(self.subset, split, &all.labels).with_context(|| format!("data.{}", self.of.key))?;
        all.select(keep.as_deref());
        let name = format!("{}/{split}", self.of.key);
        ensure!(!all.labels.is_empty(), "{name}: has no question of the types {}", self.answer_types.join(", "));
        let (numbers, image_of) = distinct(&all.images);
        let asking = Asking {
            prompts: all.questions.iter().map(|question| self.prompt(question)).collect(),
            images: listed(numbers)?,
            image_of,
            answers: all.answers,
            labels: all.labels,
            learnt: if self.labels.is_none() { Learnt::Answer } else { Learnt::Class },
        };
        self.with_images(asking, ImageFiles::whole(self.of.key, self.resize), split, name, request)
    }

    /// Returns the prompt of a question.
    fn prompt(&self, question: &str) -> String {
        self.prompt.replace(QUESTION, question)
    }

    /// Returns questions with their images, each of which is read once.
    fn with_images(
        &self,
        asking: Asking,
        files_as: ImageFiles,
        split: SplitName,
        name: String,
        request: &Request,
    ) -> Result<Split> {
        let Asking { prompts, images, image_of, answers, labels, learnt } = asking;
        let loaded = files_as.load(images, split, request)?;
        let images = match loaded.inputs {
            Inputs::Packed(packed) => Images::Packed(packed),
            Inputs::Files(files) => Images::Files(files),
            _ => bail!("{name}: its images are none"),
        };
        Ok(Split {
            name,
            inputs: Inputs::Questions(Questions { prompts, answers, learnt, image_of, images, tokens: None }),
            labels,
            numbers: None,
            groups: None,
            corrupt: None,
            decoded_from: loaded.decoded_from,
        })
    }
}

/// N questions whose images have not been read.
struct Asking {
    prompts: Vec<String>,
    /// The images, each once.
    images: Listing,
    /// The image of each question, `[N]`.
    image_of: Vec<u32>,
    answers: Vec<Answers>,
    labels: Vec<u32>,
    learnt: Learnt,
}

/// Questions with their answers, as they are listed.
#[derive(Default)]
struct Listed {
    questions: Vec<String>,
    images: Vec<u64>,
    answers: Vec<Answers>,
    labels: Vec<u32>,
}

impl Listed {
    fn push(&mut self, question: Question, annotation: Annotation, label: u32) {
        let target = annotation.target();
        let people: Vec<String> = annotation.answers.into_iter().map(|one| one.answer).collect();
        self.questions.push(question.question);
        self.images.push(question.image_id);
        self.answers.push(Answers { question: question.question_id, target, people });
        self.labels.push(label);
    }

    fn select(&mut self, keep: Option<&[u32]>) {
        let Some(keep) = keep else { return };
        let at = |i: &u32| *i as usize;
        self.questions = keep.iter().map(|i| std::mem::take(&mut self.questions[at(i)])).collect();
        self.answers = keep.iter().map(|i| std::mem::take(&mut self.answers[at(i)])).collect();
        self.images = keep.iter().map(|i| self.images[at(i)]).collect();
        self.labels = keep.iter().map(|i| self.labels[at(i)]).collect();
    }
}

/// Returns the distinct values, sorted, and the place of each value among them.
fn distinct<T: Ord + Clone>(values: &[T]) -> (Vec<T>, Vec<u32>) {
    let mut all = values.to_vec();
    all.sort_unstable();
    all.dedup();
    let place = |value| all.binary_search(value).map_or(0, |at| at as u32);
    let of = values.iter().map(place).collect();
    (all, of)
}

/// Returns image files, whose labels mean nothing.
fn files(paths: Vec<PathBuf>) -> Listing {
    Listing { labels: vec![0; paths.len()], paths, ..Listing::default() }
}

impl Annotation {
    /// Returns the answer to learn: the one that the file names, or else the one that most people gave, of several the first.
    fn target(&self) -> String {
        let count = |one: &&Answer| self.answers.iter().filter(|other| other.answer == one.answer).count();
        // `max_by_key` returns the last maximum.
        let common = || self.answers.iter().rev().max_by_key(count).map(|one| one.answer.clone());
        self.multiple_choice_answer.clone().or_else(common).unwrap_or_default()
    }
}

fn asked(path: &Path, part: &str) -> Result<Vec<Question>> {
    let QuestionFile { data_subtype, questions } = parsed(path)?;
    check_part(path, data_subtype.as_deref(), part)?;
    Ok(questions)
}

fn annotated(path: &Path, part: &str) -> Result<BTreeMap<u64, Annotation>> {
    let AnnotationFile { data_subtype, annotations } = parsed(path)?;
    check_part(path, data_subtype.as_deref(), part)?;
    let mut of = BTreeMap::new();
    for annotation in annotations {
        let id = annotation.question_id;
        ensure!(of.insert(id, annotation).is_none(), "{}: question {id} comes twice", path.display());
    }
    Ok(of)
}

fn check_part(path: &Path, found: Option<&str>, part: &str) -> Result<()> {
    let found = found.unwrap_or(part);
    let shown = path.display();
    ensure!(found == part, "{shown}: data_subtype = \"{found}\": must be \"{part}\": the file is of another split");
    Ok(())
}

fn parsed<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let shown = path.display();
    let bytes =
        read_file(path).with_context(|| format!("{shown}: cannot open; `bella data check` says what to fetch"))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{shown}: is no file of VQA"))
}

/// The columns that are read beside the image and the answer to learn.
const COLUMNS: [&str; 5] = ["question_id", "image_id", "question", "answer_type", "answers"];

/// Questions in the Hub's tables: a row has a question, its answers as a list of structs, and its image, which other rows have, too.
impl Vqa {
    /// Opens the tables of a split; `None` if the root is not in the form of the Hub, or if bella does not know this form.
    fn tables(&self, split: SplitName) -> Result<Option<Tables>> {
        self.of.hub.map_or(Ok(None), |hub| hub.open(&self.root, split))
    }

    /// Returns the questions of tables. An image is that of the first row that has its number.
    fn of_tables(&self, tables: Tables, split: SplitName, request: &Request) -> Result<Split> {
        let hub = self.of.hub.context("no form of the Hub")?;
        let columns = [&COLUMNS[..], &[hub.label]].concat();
        let (mut all, mut row_of) = (Listed::default(), BTreeMap::new());
        let lines = tables.lines(&columns)?;
        for (row, line) in (0_u32..).zip(&lines) {
            let (question, annotation) = (question(line)?, annotation(line, hub.label)?);
            row_of.entry(question.image_id).or_insert(row);
            if let Some(label) = self.label(&annotation, line)? {
                all.push(question, annotation, label);
            }
        }
        let listed = |numbers: Vec<u64>| {
            let rows: Vec<u32> = numbers.iter().map(|number| row_of[number]).collect();
            let mut listing = tables.listing(hub.image, vec![0; lines.len()])?;
            listing.select(&rows);
            Ok(listing)
        };
        self.split(all, split, listed, request)
    }
}

fn question(line: &Line) -> Result<Question> {
    Ok(Question {
        image_id: number(line, "image_id")?,
        question: line.text("question")?,
        question_id: number(line, "question_id")?,
    })
}

fn annotation(line: &Line, target: &str) -> Result<Annotation> {
    let given = line.get("answers")?.as_array().with_context(|| format!("{line}: `answers` must be a list"))?;
    let answer = |one: &Value| {
        let text = one.get("answer").and_then(Value::as_str);
        let text = text.with_context(|| format!("{line}: `answers` must be structs with a text `answer`"))?;
        Ok(Answer { answer: text.to_string() })
    };
    Ok(Annotation {
        question_id: number(line, "question_id")?,
        answer_type: line.text("answer_type")?,
        multiple_choice_answer: line.find(target).map(|_| line.text(target)).transpose()?,
        answers: given.iter().map(answer).collect::<Result<_>>()?,
    })
}

/// Returns a number, which some tables write as a text.
fn number(line: &Line, column: &str) -> Result<u64> {
    let text = line.text(column)?;
    text.parse().with_context(|| format!("{line}: `{column}` is {text}: must be a whole number"))
}
