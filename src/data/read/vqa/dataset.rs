//! A set of questions about images as a data set.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use image::ImageFormat;

use super::{
    Annotation, AnnotationFile, Answer, Asking, KINDS, Listed, Question, QuestionFile, Vqa, annotated, asked, distinct,
    files,
};
use crate::base::files::put;
use crate::data::lines::Line;
use crate::data::read::image_files::ImageFiles;
use crate::data::small::{Pictures, Sizes, SmallSet, text};
use crate::data::{Answers, Dataset, Learnt, Medium, Published, Request, Resize, Split, SplitName};

impl Dataset for Vqa {
    fn key(&self) -> &'static str {
        self.of.key
    }

    /// Returns the answers that are to be told apart, or the types of free answers.
    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.labels.clone().unwrap_or_else(|| KINDS.map(String::from).into()))
    }

    fn medium(&self) -> Medium {
        Medium::Questions
    }

    /// Returns the published sizes of the wanted types, unless classes leave questions out.
    fn published(&self) -> Published {
        if !self.has_free_answers() {
            return Published::default();
        }
        let wanted = |kind: &str| self.answer_types.iter().any(|wanted| wanted == kind);
        let count =
            |of: [usize; 3]| KINDS.iter().zip(of).filter(|(kind, _)| wanted(kind)).map(|(_, count)| count).sum();
        let (train, test) = (count(self.of.train), count(self.of.test));
        Published::new(KINDS.len(), &[(SplitName::Train, train), (SplitName::Test, test)])
    }

    fn has_free_answers(&self) -> bool {
        self.labels.is_none()
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.resize)
    }

    /// Reads a split: the questions of the wanted types, in the order of their file.
    ///
    /// # Errors
    /// Fails if a file is missing or malformed, if a question has no annotation, if an image is missing, or if the subset
    /// asks for more questions than there are.
    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let part = self.part(split)?;
        if let Some(tables) = self.tables(split)? {
            return self.of_tables(tables, split, request);
        }
        let (questions, annotations) = (self.questions(part), self.annotations(part));
        let mut of = annotated(&annotations, part)?;
        let mut all = Listed::default();
        for question in asked(&questions, part)? {
            let annotation = of.remove(&question.question_id).with_context(|| {
                let id = question.question_id;
                format!("{}: has no answers to question {id} of {}", annotations.display(), questions.display())
            })?;
            if let Some(label) = self.label(&annotation, &annotations.display())? {
                all.push(question, annotation, label);
            }
        }
        ensure!(
            of.is_empty(),
            "{}: answers {} questions that {} does not have",
            annotations.display(),
            of.len(),
            questions.display()
        );
        let listed =
            |numbers: Vec<u64>| Ok(files(numbers.into_iter().map(|number| self.image(part, number)).collect()));
        self.split(all, split, listed, request)
    }

    /// Returns the questions of lines with the keys `image` and `question`.
    fn asked(&self, lines: &[Line], request: &Request) -> Result<Split> {
        let text = |line: &Line| Ok(self.prompt(&line.text("question")?));
        let paths: Vec<PathBuf> = lines.iter().map(|line| line.file("image")).collect::<Result<_>>()?;
        let (paths, image_of) = distinct(&paths);
        let asking = Asking {
            prompts: lines.iter().map(text).collect::<Result<_>>()?,
            images: files(paths),
            image_of,
            answers: vec![Answers::default(); lines.len()],
            labels: vec![0; lines.len()],
            // There is no answer to learn, so the network gets the prompts alone.
            learnt: Learnt::Class,
        };
        // These are a user's own photos.
        let photos = ImageFiles::whole(self.of.key, self.resize).turned(true);
        self.with_images(asking, photos, SplitName::Test, format!("{} of the files", self.of.key), request)
    }
}

/// The answer that all people give to questions of each type.
const ANSWERS: [&str; 3] = ["yes", "2", "cat"];
/// The number of people who answer a question.
const PEOPLE: usize = 10;

impl SmallSet for Vqa {
    fn side(&self) -> u32 {
        640
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        for split in [SplitName::Train, SplitName::Test] {
            let (part, count) = (self.part(split)?, sizes.of(split));
            for i in 0..count {
                put(&self.image(part, i as u64), pictures.file(i)?)?;
            }
            let data_subtype = Some(part.to_string());
            let questions =
                QuestionFile { data_subtype: data_subtype.clone(), questions: (0..count).map(question).collect() };
            put(&self.questions(part), serde_json::to_vec(&questions)?)?;
            let annotations = (0..count).map(|i| self.annotation(i, sizes.label(i))).collect();
            put(&self.annotations(part), serde_json::to_vec(&AnnotationFile { data_subtype, annotations })?)?;
        }
        Ok(())
    }
}

fn question(i: usize) -> Question {
    Question { image_id: i as u64, question: format!("what is {}?", text(4, i)), question_id: 10 * i as u64 }
}

impl Vqa {
    /// Returns the answers to a question: of one of the types that the settings ask for, and one of the classes where answers
    /// are classes.
    fn annotation(&self, i: usize, label: usize) -> Annotation {
        let kind = self.answer_types.get(label % self.answer_types.len().max(1)).cloned().unwrap_or_default();
        let usual = KINDS.iter().position(|known| *known == kind).map_or(ANSWERS[0], |place| ANSWERS[place]);
        let class = self.labels.as_ref().and_then(|labels| labels.get(label).cloned());
        let answer = class.unwrap_or_else(|| usual.to_string());
        Annotation {
            question_id: 10 * i as u64,
            answer_type: kind,
            multiple_choice_answer: Some(answer.clone()),
            answers: (0..PEOPLE).map(|_| Answer { answer: answer.clone() }).collect(),
        }
    }
}
