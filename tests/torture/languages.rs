//! The formats of language networks: sets of texts and questions, folders, adapters, and files of answers.

use std::path::{Path, PathBuf};

use bella::base::hash::seal_lines;
use bella::model::Loaded;
use bella::predictions::{Answers, Reply, Token};
use tch::Device;

use crate::common::{Place, fixture};
use crate::reference::files;
use crate::targets::{Target, copied, experiment, gray, set, target};

pub fn all(place: &Place) -> Vec<Target> {
    let mut all = texts(place);
    all.push(questions(place));
    all.extend([
        folder(place, "language", "language/llama-3"),
        folder(place, "vision-language", "llava/transformers-5"),
    ]);
    all.push(answers(place));
    all
}

/// Sets of texts, as JSON lines and as tables with tabs.
fn texts(place: &Place) -> Vec<Target> {
    let choices = "\"choices\": [{\"text\": \"one\", \"label\": \"A\"}, {\"text\": \"two\", \"label\": \"B\"}, \
                   {\"text\": \"three\", \"label\": \"C\"}, {\"text\": \"four\", \"label\": \"D\"}]";
    let asked: String = ["A", "B", "D"]
        .map(|key| format!("{{\"question\": {{\"stem\": \"Why?\", {choices}}}, \"answerKey\": \"{key}\"}}\n"))
        .concat();
    let lines: String =
        (0..4).map(|i| format!("{{\"text\": \"it is {i}\", \"label\": \"{}\"}}\n", ["no", "yes"][i % 2])).collect();
    let blanks: String = ["1", "2", "1"]
        .map(|key| {
            format!("{{\"sentence\": \"The _ ran.\", \"option1\": \"a\", \"option2\": \"b\", \"answer\": \"{key}\"}}\n")
        })
        .concat();
    let facts: String = ["true", "false"]
        .map(|key| format!("{{\"question\": \"is it\", \"passage\": \"It may be.\", \"answer\": {key}}}\n"))
        .concat();
    let pairs = "index\tsentence1\tsentence2\tgold_label\n0\ta b\tc\tneutral\n1\td\te\tentailment\n";
    let written = |names: [&str; 2], text: &str, at: &dyn Fn(&str) -> String| -> Vec<PathBuf> {
        names.map(|name| place.write(&at(name), text.as_bytes())).into()
    };
    let lines_of = "prompt = \"is {text} big ?\"\nlabels = [\"no\", \"yes\"]";
    vec![
        set(place, "jsonl", lines_of, &|at| written(["train.jsonl", "test.jsonl"], &lines, at)),
        set(place, "winogrande", "size = \"s\"", &|at| written(["train_s.jsonl", "dev.jsonl"], &blanks, at)),
        set(place, "boolq", "", &|at| written(["train.jsonl", "dev.jsonl"], &facts, at)),
        set(place, "openbookqa", "", &|at| written(["Data/Main/train.jsonl", "Data/Main/dev.jsonl"], &asked, at)),
        set(place, "arc", "part = \"easy\"", &|at| {
            written(["ARC-Easy/ARC-Easy-Train.jsonl", "ARC-Easy/ARC-Easy-Dev.jsonl"], &asked, at)
        }),
        set(place, "glue", "task = \"mnli\"", &|at| {
            place.write(&at("MNLI/dev_mismatched.tsv"), pairs.as_bytes());
            written(["MNLI/train.tsv", "MNLI/dev_matched.tsv"], pairs, at)
        }),
    ]
}

fn questions(place: &Place) -> Target {
    set(place, "vqa-v2", "", &|at| {
        let mut written = Vec::new();
        for part in ["train2014", "val2014"] {
            gray(place, &at(&format!("{part}/COCO_{part}_000000000007.jpg")), 7);
            let question = "{\"image_id\": 7, \"question\": \"How many?\", \"question_id\": 70}";
            let text = format!("{{\"data_subtype\": \"{part}\", \"questions\": [{question}]}}");
            written.push(place.write(&at(&format!("v2_OpenEnded_mscoco_{part}_questions.json")), text.as_bytes()));
            let people = "{\"answer\": \"3\", \"answer_id\": 1}, {\"answer\": \"two\", \"answer_id\": 2}";
            let annotation = format!("{{\"question_id\": 70, \"answer_type\": \"number\", \"answers\": [{people}]}}");
            let text = format!("{{\"data_subtype\": \"{part}\", \"annotations\": [{annotation}]}}");
            written.push(place.write(&at(&format!("v2_mscoco_{part}_annotations.json")), text.as_bytes()));
        }
        written
    })
}

/// A folder of a network with its tokenizer.
fn folder(place: &Place, kind: &'static str, name: &str) -> Target {
    let mut parts = Vec::new();
    for file in files(&fixture("").join(name)) {
        let file_name = file.file_name().unwrap().to_str().unwrap();
        if !["reference.safetensors", "prompts.json"].contains(&file_name) {
            parts.push(copied(place, &file, &format!("{kind}/{file_name}")));
        }
    }
    let name = if kind == "language" { "language folder" } else { "vision-language folder" };
    target(name, parts, move |path| opened(path.parent().unwrap(), kind))
}

/// Opens a network's folder, and has its tokenizer read a prompt.
fn opened(folder: &Path, kind: &str) -> Result<(), String> {
    let (head, data) = match kind {
        "language" => {
            ("[head.label-words]", "[data.jsonl]\nroot = \".\"\nprompt = \"{text}\"\nlabels = [\"no\", \"yes\"]")
        }
        _ => ("[head.answers]", "[data.vqa-v2]\nroot = \".\""),
    };
    let experiment = experiment(folder, &format!("kind = \"{kind}\""), head, data)?;
    let classes = ["no".to_string(), "yes".to_string()];
    let loaded = Loaded::open(&experiment.checkpoint, &*experiment.head.spec, &classes, Device::Cpu);
    loaded.map(drop).map_err(|error| format!("{error:#}"))
}

/// Files of answers, one of which gets its hash after the damage, which so reaches what lies behind it.
fn answers(place: &Place) -> Target {
    let token = Token {
        token: "cat".into(),
        id: 8,
        probability: 0.7,
        entropy: 0.3,
        mutual_information: 0.1,
        top: vec![(8, 0.7), (3, 0.2)],
    };
    let reply = |question_id| Reply {
        question_id,
        answer: "cat".into(),
        answer_type: "other".into(),
        people: vec!["cat".into(), "dog".into()],
        tokens: vec![token.clone()],
    };
    let metadata = [("run".to_string(), "r1".to_string())].into();
    let checksummed = place.write("answers/a.jsonl", b"");
    Answers { members: 2, metadata, replies: vec![reply(4), reply(7)] }.save(&checksummed).unwrap();
    let text = std::fs::read_to_string(&checksummed).unwrap();
    let (_, rest) = text.split_once(',').unwrap();
    let bare = place.write("answers/bare.jsonl", format!("{{{rest}").as_bytes());
    target("answers", vec![checksummed, bare], |path| {
        let is_bare = path.file_name().is_some_and(|name| name == "bare.jsonl");
        if let Some(text) = std::fs::read_to_string(path).ok().filter(|_| is_bare) {
            std::fs::write(path, seal_lines(&text)).unwrap();
        }
        Answers::open(path).map(drop).map_err(|error| format!("{error:#}"))
    })
}
