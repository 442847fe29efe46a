//! Files of VQA: questions and annotations as JSON, and images by their numbers. The classes are the types of answers.

use anyhow::Result;
use image::ImageFormat;
use serde_json::{Value, json};

use crate::data::read::vqa::KINDS;
use crate::rehearse::standins::contract::{StandIn, Wanted, none, put};
use crate::rehearse::standins::paint::Pictures;
use crate::rehearse::standins::words::text;

pub static VQA_V2: StandIn =
    StandIn { key: "vqa-v2", side: 640, write: |wanted| write(wanted, "v2_"), overrides: none };
pub static OK_VQA: StandIn = StandIn { key: "ok-vqa", side: 640, write: |wanted| write(wanted, ""), overrides: none };

/// The answer that all people give to questions of each type.
const ANSWERS: [&str; 3] = ["yes", "2", "cat"];

fn write(wanted: &Wanted, version: &str) -> Result<()> {
    let mut pictures = Pictures::new(wanted.side, ImageFormat::Jpeg);
    for (part, count) in [("train2014", wanted.train), ("val2014", wanted.test)] {
        let (mut questions, mut annotations) = (Vec::new(), Vec::new());
        for i in 0..count {
            questions
                .push(json!({ "image_id": i, "question_id": 10 * i, "question": format!("what is {}?", text(4, i)) }));
            annotations.push(annotation(10 * i, &answer(wanted, i)));
            put(&wanted.root.join(part).join(format!("COCO_{part}_{i:012}.jpg")), pictures.file(i)?)?;
        }
        let file = |name: String, table: Value| put(&wanted.root.join(name), table.to_string().as_bytes());
        let all = json!({ "data_subtype": part, "questions": questions });
        file(format!("{version}OpenEnded_mscoco_{part}_questions.json"), all)?;
        let all = json!({ "data_subtype": part, "annotations": annotations });
        file(format!("{version}mscoco_{part}_annotations.json"), all)?;
    }
    Ok(())
}

/// Returns the type of the answer to a question, which is one of those that the settings ask for, and the answer.
fn answer(wanted: &Wanted, i: usize) -> (String, String) {
    let kinds = wanted.texts("answer_types").unwrap_or_else(|| KINDS.map(String::from).into());
    let kind = kinds.get(wanted.label(i) % kinds.len().max(1)).cloned().unwrap_or_default();
    let usual =
        || KINDS.iter().zip(ANSWERS).find(|(known, _)| **known == kind).map_or(ANSWERS[0], |(_, answer)| answer);
    // Answers that are classes are the only ones that count.
    let class = wanted.texts("labels").and_then(|labels| labels.get(wanted.label(i)).cloned());
    let answer = class.unwrap_or_else(|| usual().to_string());
    (kind, answer)
}

fn annotation(question: usize, (kind, answer): &(String, String)) -> Value {
    let answers: Vec<Value> = (1..=10).map(|id| json!({ "answer": answer, "answer_id": id })).collect();
    json!({ "question_id": question, "answer_type": kind, "multiple_choice_answer": answer, "answers": answers })
}
