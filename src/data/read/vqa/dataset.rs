//! A set of questions about images as a data set.

use anyhow::{Context, Result, ensure};

use super::{Asking, KINDS, Listed, Vqa, annotated, asked};
use crate::data::lines::Line;
use crate::data::read::image_files::ImageFiles;
use crate::data::subset::chosen;
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
        let (questions, annotations) = (self.questions(part), self.annotations(part));
        let mut of = annotated(&annotations, part)?;
        let mut all = Listed::default();
        for question in asked(&questions, part)? {
            let annotation = of.remove(&question.question_id).with_context(|| {
                let id = question.question_id;
                format!("{}: has no answers to question {id} of {}", annotations.display(), questions.display())
            })?;
            if let Some(label) = self.label(&annotation, &annotations)? {
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
        let keep = chosen(self.subset, split, &all.labels).with_context(|| format!("data.{}", self.of.key))?;
        all.select(keep.as_deref());
        self.split(all, (split, part), request)
    }

    /// Returns the questions of lines with the keys `image` and `question`.
    fn asked(&self, lines: &[Line], request: &Request) -> Result<Split> {
        let text = |line: &Line| Ok(self.prompt(&line.text("question")?));
        let asking = Asking {
            prompts: lines.iter().map(text).collect::<Result<_>>()?,
            paths: lines.iter().map(|line| line.file("image")).collect::<Result<_>>()?,
            answers: vec![Answers::default(); lines.len()],
            labels: vec![0; lines.len()],
            // There is no answer to learn, so the network gets the prompts alone.
            learnt: Learnt::Class,
        };
        // These are a user's own photos.
        let photos = ImageFiles::whole(self.of.key, self.resize).turned(true);
        self.with_images(asking, photos, (SplitName::Test, format!("{} of the files", self.of.key)), request)
    }
}
