//! A small set of questions about images.

use anyhow::Result;
use image::ImageFormat;

use super::{Annotation, AnnotationFile, Answer, KINDS, Question, QuestionFile, Vqa};
use crate::data::SplitName;
use crate::data::small::{Pictures, Sizes, SmallSet, put, text};

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
