//! Free answers, from the config to the scores: training, answering and scoring again on the smallest LLaVA and PaliGemma and a made-up
//! VQA set.

use std::path::Path;

use crate::common::{Bella, Place, assert_has, error_line, fixture, messages, printed, questions, with};
use bella::results::store::read;

/// A place with a VQA set and `tiny.toml` for it.
fn place(folder: &str) -> Place {
    let place = Place::new();
    let config = questions(&place, folder);
    place.write("tiny.toml", config.as_bytes());
    place
}

fn losses(place: &Place) -> Vec<f64> {
    let table = read(&place.run().join("train.csv")).unwrap();
    (0..table.rows.len()).map(|row| table.get(row, "train_loss").unwrap().parse().unwrap()).collect()
}

/// The answers that a run has saved, as JSON lines.
fn saved(place: &Place) -> String {
    std::fs::read_to_string(place.run().join("predictions/vqa-v2@clean.jsonl")).unwrap()
}

#[test]
fn particles_learn_and_answer_together_and_their_answers_are_scored_again() {
    let place = place("llava/transformers-4");
    assert_has(&printed(&place.train(&[]).output().unwrap()), &["VQA accuracy", "EvalAI accuracy"]);
    let losses = losses(&place);
    assert!(losses[3] < 0.8 * losses[0], "{losses:?}");
    let (row, file) =
        (read(&place.path("results/tiny.csv")).unwrap(), place.run().join("predictions/vqa-v2@clean.jsonl"));
    let number = |column: &str| row.get(0, column).unwrap_or_else(|| panic!("{column}")).parse::<f64>().unwrap();
    assert_eq!((number("members"), number("samples"), number("questions_number")), (2.0, 7.0, 2.0));
    let again = crate::common::bella(&["score", file.to_str().unwrap(), "--csv"]).output().unwrap();
    let scored = place.write("scored.csv", printed(&again).as_bytes());
    let scored = read(&scored).unwrap();
    for column in ["vqa_accuracy", "evalai_accuracy", "exact_match", "vqa_accuracy_yes_no", "entropy_right", "mi_wrong"]
    {
        assert_eq!(scored.get(0, column), row.get(0, column), "{column}");
    }
    let levels = printed(&crate::common::bella(&["score", file.to_str().unwrap(), "--levels"]).output().unwrap());
    assert_eq!(levels.lines().count(), 1 + 10 + 2 * 8);
    // The same command finds the row and its answers, and evaluates nothing again.
    let before = saved(&place);
    assert_has(&printed(&place.train(&[]).output().unwrap()), &["VQA accuracy"]);
    assert_eq!(saved(&place), before);
    // Answers have no classes, of which there could be too few.
    let attack = ["--attack", "apgd-t", "--epsilon", "0.01", "--attack-targets", "3"];
    assert_has(
        &error_line(with(place.command("eval", &[]), &attack), 2),
        &["--attack and --ood are for images with classes"],
    );
}

/// The loss of every epoch is the same with and without kept activations and cached patches, and one particle after the other.
#[test]
fn the_same_training_in_pieces() {
    for folder in ["llava/transformers-5", "paligemma/gemma"] {
        let whole = place(folder);
        whole.train(&["train.prefix_cache=\"off\""]).output().unwrap();
        let expected = losses(&whole);
        for sets in [
            &["train.prefix_cache=\"off\"", "train.recompute=true"][..],
            &["train.prefix_cache=\"memory\"", "train.accumulate=3", "train.particle_chunk=1"],
        ] {
            let place = place(folder);
            let output = place.train(sets).output().unwrap();
            assert!(output.status.success(), "{}", messages(&output));
            for (found, expected) in losses(&place).iter().zip(&expected) {
                assert!((found / expected - 1.0).abs() < 1e-4, "{folder}, {sets:?}: {found} {expected}");
            }
        }
    }
}

#[test]
fn every_part_can_be_adapted() {
    for (folder, projector) in [
        ("llava/transformers-4", "\"projector.linear_1\", \"projector.linear_2\""),
        ("paligemma/gemma2", "\"projector.linear\""),
    ] {
        let place = place(folder);
        let targets =
            format!("subspace.low-rank.targets=[\"vision.attn.qkv\", \"vision.mlp.fc\", {projector}, \"mlp.fc\"]");
        let output = place.train(&[&targets, "train.recompute=true"]).output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        let losses = losses(&place);
        assert!(losses[3] < losses[0], "{folder}: {losses:?}");
    }
}

/// PaliGemma learns and answers as LLaVA does, also whole and with a base in fewer bits; classes need the logits of one token.
#[test]
fn paligemma_learns_answers_and_classes() {
    for (folder, sets) in [
        ("paligemma/gemma", &[][..]),
        ("paligemma/gemma2", &[]),
        ("paligemma/gemma", &["checkpoint.quantize=\"nf4\""]),
        ("paligemma/gemma2", &["checkpoint.quantize=\"int8\""]),
        ("paligemma/gemma", &["subspace={full={}}", "optimizer.adamw.lr=1e-3"]),
    ] {
        let place = place(folder);
        let output = place.train(sets).output().unwrap();
        assert!(output.status.success(), "{folder} {sets:?}: {}", messages(&output));
        assert_has(&printed(&output), &["VQA accuracy"]);
        let losses = losses(&place);
        assert!(losses[3] < losses[0], "{folder} {sets:?}: {losses:?}");
        assert_eq!(saved(&place).lines().count(), 8);
    }
    let place = place("paligemma/gemma");
    let closed = ["head={label-words={}}", "data.vqa-v2.labels=[\"yes\",\"2\"]", "data.vqa-v2.validation=0.2"];
    let output = place.train(&[&closed[..], &["method={laplace={}}"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    assert_has(&printed(&output), &["NLL", "ECE"]);
}

/// A set that pads images, as LLaVA wants them, is named where the folder of the network stretches them.
#[test]
fn another_preparation_than_the_folders_is_said() {
    let place = place("paligemma/gemma");
    let output = place.train(&["data.vqa-v2.resize=\"pad\"", "train.epochs=1"]).output().unwrap();
    assert_has(&messages(&output), &["the data set's resize is pad, but the checkpoint's folder asks for stretch"]);
    let output = crate::common::bella(&["inspect", fixture("paligemma/gemma2").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &[
            "paligemma on gemma2 (Gemma 2), a language network that sees images",
            "12 x 12 px, patch 4, 9 tokens of the prompt",
            "projector.linear",
            "tokens of a prompt in both directions, those of an answer back",
            "at most 100 tokens",
        ],
    );
}

#[test]
fn methods_that_need_losses_alone_learn_answers() {
    for method in [
        &["method={map={}}"][..],
        &["method={ensemble={particles=2}}"],
        &["method={sam={rho=0.05}}"],
        &["method={ivon={ess=16.0,hess_init=1.0,lr=0.01}}", "optimizer={none={}}"],
    ] {
        let place = place("llava/transformers-4");
        let output = place.train(&[method, &["train.epochs=1"]].concat()).output().unwrap();
        assert!(output.status.success(), "{method:?}: {}", messages(&output));
        assert!(saved(&place).lines().count() == 8);
    }
}

/// The NLL of held-out answers falls, and chooses the epoch; members one by one give the same.
#[test]
fn held_out_answers_choose_the_epoch() {
    let mut found = Vec::new();
    for chunk in ["train.particle_chunk=1", "train.particle_chunk=2"] {
        let place = place("llava/transformers-4");
        let output = place.train(&["data.vqa-v2.validation=0.25", chunk]).output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        let table = read(&place.run().join("train.csv")).unwrap();
        let nll = |row: usize| table.get(row, "validation_nll_lm").unwrap().parse::<f64>().unwrap();
        let all: Vec<f64> = (0..4).map(nll).collect();
        assert!(all[3] < all[0] && all.iter().all(|nll| nll.is_finite()), "{all:?}");
        assert_eq!(table.get(0, "validation_accuracy_lm"), Some(""));
        assert_has(&messages(&output), &["its validation NLL", "is the lowest"]);
        found.push(all);
    }
    assert!(found[0].iter().zip(&found[1]).all(|(one, other)| (one / other - 1.0).abs() < 1e-4), "{found:?}");
}

/// Yes/no questions as classes: every metric of classes, and the methods that need logits.
#[test]
fn answers_of_one_word_can_be_classes() {
    let closed = ["head={label-words={}}", "data.vqa-v2.labels=[\"yes\",\"2\"]", "data.vqa-v2.validation=0.2"];
    for method in [&["method={svgd={particles=2,gamma=0.01}}"][..], &["method={ibdr={particles=1,std=0.1}}"]] {
        let place = place("llava/transformers-4");
        let output = place.train(&[&closed[..], method].concat()).output().unwrap();
        assert!(output.status.success(), "{method:?}: {}", messages(&output));
        assert_has(&printed(&output), &["NLL", "ECE"]);
        let row = read(&place.path("results/tiny.csv")).unwrap();
        assert_eq!((row.get(0, "samples"), row.get(0, "classes")), (Some("5"), Some("2")));
    }
    let place = place("llava/transformers-4");
    let line = refusal(place.train(&["data.vqa-v2.labels=[\"yes\",\"2\"]"]));
    assert!(line.contains("answers: vqa-v2 has no free answers"), "{line}");
}

/// `bella predict` of the only run on a file of questions.
fn predict(place: &Place, asked: &Path, more: &[&str]) -> Bella {
    let mut command = crate::common::bella(&["predict", place.run().to_str().unwrap(), asked.to_str().unwrap()]);
    command.args(["--device", "cpu", "--threads", "1"]).args(more);
    command
}

/// New questions are answered as those of the test set are, with or without people who answered them.
#[test]
fn new_questions_are_answered() {
    let place = place("llava/transformers-4");
    let output = place.train(&["train.epochs=1"]).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let table = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let official = place.path("vqa/v2_OpenEnded_mscoco_val2014_questions.json");
    let official = table(&std::fs::read_to_string(official).unwrap());
    let line = |question: &serde_json::Value| {
        let image = format!("val2014/COCO_val2014_{:012}.jpg", question["image_id"].as_u64().unwrap());
        serde_json::json!({ "image": image, "question": question["question"] }).to_string() + "\n"
    };
    let lines: String = official["questions"].as_array().unwrap().iter().map(line).collect();
    let asked = place.write("vqa/new.jsonl", lines.as_bytes());
    let predict = |more: &[&str]| predict(&place, &asked, more);
    let found = printed(&predict(&["--format", "jsonl"]).output().unwrap());
    let of_new: Vec<serde_json::Value> = found.lines().map(table).collect();
    let of_set: Vec<serde_json::Value> = saved(&place).lines().skip(1).map(table).collect();
    assert_eq!((of_new.len(), of_set.len()), (7, 7));
    for (new, old) in of_new.iter().zip(&of_set) {
        assert_eq!(new["text"].as_str().unwrap().trim(), old["answer"].as_str().unwrap());
        for (new, old) in new["tokens"].as_array().unwrap().iter().zip(old["tokens"].as_array().unwrap()) {
            let number = |of: &serde_json::Value| of["probability"].as_f64().unwrap();
            assert!(new["id"] == old["id"] && (number(new) - number(old)).abs() < 1e-5, "{new} {old}");
        }
    }
    let longer = printed(&predict(&["--generate", "1", "--batch-size", "2"]).output().unwrap());
    assert!(
        longer.starts_with("path,text,tokens,mean_entropy,mean_mutual_information\n") && longer.lines().count() == 8
    );
    for (text, rule) in [
        ("{\"image\": \"none.jpg\", \"question\": \"Why?\"}", "none.jpg"),
        ("{\"question\": \"Why?\"}", "has no key `image`; its keys: question"),
    ] {
        std::fs::write(&asked, text).unwrap();
        let line = refusal(predict(&[]));
        assert!(line.contains(rule), "{line}");
    }
}

#[test]
fn new_questions_have_classes() {
    let place = place("llava/transformers-4");
    let closed = ["head={label-words={}}", "data.vqa-v2.labels=[\"yes\",\"2\"]", "train.epochs=1"];
    let output = place.train(&closed).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let line = b"{\"image\": \"val2014/COCO_val2014_000000000001.jpg\", \"question\": \"What is it?\"}\n";
    let asked = place.write("vqa/new.jsonl", line);
    let found = printed(&predict(&place, &asked, &[]).output().unwrap());
    let cells: Vec<&str> = found.lines().nth(1).unwrap().split(',').collect();
    assert!(["yes", "2"].contains(&cells[1]) && cells[2].parse::<f64>().unwrap() >= 0.5, "{found}");
}

/// The only line with which a command refuses.
fn refusal(mut command: Bella) -> String {
    let output = command.output().unwrap();
    let shown = messages(&output);
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(!output.status.success() && lines.len() == 1, "{shown}");
    lines[0].to_string()
}

#[test]
fn what_does_not_fit_is_one_line() {
    let place = place("llava/transformers-4");
    let refused = |sets: &[&str]| refusal(place.train(sets));
    for (sets, rule) in [
        (&["head={linear={}}"][..], "vqa-v2 has questions with free answers: write [head.answers]"),
        (&["method={ibdr={particles=2,std=0.1}}"], "needs the logits of classes"),
        (&["subspace={last-layer={}}"], "last-layer trains a head of classes"),
        (&["checkpoint.max_tokens=5"], "must be from 9, the tokens of an image, to 128"),
        (&["checkpoint.max_tokens=200"], "must be from 9, the tokens of an image, to 128"),
        (&["checkpoint.max_tokens=40"], "tokens with 9 of the image and its answer"),
        (&["data.vqa-v2.prompt=\"{question}\""], "must have `<image>` once"),
        (&["head.answers.tokens=100"], "exceed the network's context of 128 tokens"),
        (&["subspace.low-rank.targets=[\"attn.qkv\"]"], "the checkpoint has no linear layer `attn.qkv`"),
    ] {
        let line = refused(sets);
        assert!(line.contains(rule), "{sets:?}: {line}");
    }
    let text = place.write("texts.toml", b"[data.boolq]\nroot = \"x\"\n[head.answers]\n");
    let mut command = place.train(&[]);
    command.arg("--config").arg(&text);
    let line = refusal(command);
    assert!(line.contains("boolq has texts, but the network of checkpoint.path takes questions"), "{line}");
    std::fs::remove_file(place.path("vqa/val2014/COCO_val2014_000000000003.jpg")).unwrap();
    assert!(refused(&[]).contains("1 of 7 listed files cannot be used"));
}

/// Copies a folder and changes its config.
fn changed(place: &Place, from: &str, to: &str) -> String {
    let (source, target) = (fixture("llava/transformers-4"), place.path("changed"));
    std::fs::create_dir_all(&target).unwrap();
    for entry in std::fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
    }
    change(&target.join("config.json"), from, to);
    target.display().to_string()
}

fn change(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn folders_that_are_not_computed_are_refused() {
    let place = place("llava/transformers-4");
    for (from, to, rule) in [
        (
            "\"model_type\": \"llava\"",
            "\"model_type\": \"llava\", \"quantization_config\": {\"bits\": 4}",
            "unquantised folder",
        ),
        (
            "\"num_hidden_layers\": 3",
            "\"num_hidden_layers\": 5",
            "the weights lack `vision_tower.vision_model.encoder.layers.3.layer_norm1.weight`",
        ),
        ("\"hidden_size\": 16", "\"hidden_size\": 32", "they are not of one model"),
        ("\"vision_feature_layer\": -2", "\"vision_feature_layer\": -9", "must be the number of one of 3 blocks"),
    ] {
        let path = format!("checkpoint.path={:?}", changed(&place, from, to));
        let line = refusal(place.train(&[&path]));
        assert!(line.contains(rule), "{line}");
    }
}
