//! `bella rehearse` at tiny shapes: an experiment of each kind goes through all of its stages, a stage that breaks is told,
//! real files are left alone.

use crate::common::{Bella, Place, assert_has, bella, done, error_line, fixture, messages, printed, repository};
use assert_cmd::Command;

/// A tiny rehearsal of `configs/<file>.toml` with `configs/methods/<method>.toml`, on one thread of the CPU.
fn rehearse(place: &Place, files: &[&str], more: &[&str]) -> Bella {
    let mut command = bella(&["rehearse", "--tiny", "--device", "cpu", "--threads", "1", "--workers", "1"]);
    command.arg("--out").arg(place.path("results"));
    command.args(files.iter().map(|file| repository(&format!("configs/{file}.toml")))).args(more);
    command
}

/// The output of a rehearsal that goes through `stages` stages without a fault.
#[track_caller]
fn fine(mut command: Bella, stages: usize) -> String {
    let output = command.output().unwrap();
    let (text, said) = (printed(&output), messages(&output));
    assert_eq!(output.status.code(), Some(0), "{said}\n{text}");
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains("| fine"));
    assert_eq!(rows.count(), stages, "{said}\n{text}");
    assert_has(
        &text,
        &["a stand-in for", "train, save, kill", "the same posterior, bit for bit", "the real thing: ", "overridden:"],
    );
    text
}

#[test]
fn particles_with_corruptions_and_a_shifted_set() {
    let place = Place::new();
    let then =
        ["--then", "eval --data cifar10-c=data/CIFAR-10-C", "--then", "eval --data stl10=data", "--then", "soup"];
    let text = fine(rehearse(&place, &["cifar10"], &then), 9);
    assert_has(&text, &["train.epochs = 1 (was 7)", "train.batch_size = 16 (was 128)", "2191 steps"]);
    let rows = bella::results::store::read(&place.path("results/rehearsal/rehearsal.csv")).unwrap();
    assert_eq!(crate::common::cells(&rows, "outcome"), ["fine"]);
    assert!(crate::common::number(&rows, 0, "peak_memory_bytes") > 1e6);
    // What is not a finding is gone; nothing lies among real results.
    let left = |name: &str| place.path(&format!("results/rehearsal/cifar10-low-rank-svgd/{name}")).exists();
    assert!(left("log.txt") && left("rehearsal.md") && !left("data") && !left("results"));
    assert!(!place.path("results/runs").exists() && !place.path("results/cifar10.csv").exists());
}

/// Methods that keep states, or search, along thousands of steps do so in a few.
#[test]
fn schedules_of_methods_are_as_short_as_the_training() {
    let place = Place::new();
    for (method, changed) in [
        ("sghmc", "method.sghmc.exploration = 0.0 (was 0.8)"),
        ("bayestune", "method.bayestune.search_steps = 1 (was 630)"),
        ("swag", "method.swag.columns = 3 (was 20)"),
    ] {
        let text = fine(rehearse(&place, &["cifar10", &format!("methods/{method}")], &["--then", ""]), 6);
        assert_has(&text, &[changed]);
    }
}

#[test]
fn a_laplace_posterior_with_a_published_validation_split() {
    let place = Place::new();
    fine(rehearse(&place, &["camelyon17", "methods/vbl"], &[]), 7);
}

#[test]
fn full_particles_on_several_test_domains() {
    let place = Place::new();
    fine(rehearse(&place, &["domainnet", "methods/ensemble"], &["--then", ""]), 6);
}

#[test]
fn a_new_head_on_augmented_images() {
    let place = Place::new();
    let then = ["--then", "eval --corrupt contrast:2", "--set", "method.ivon.samples=4"];
    fine(rehearse(&place, &["ivon/imagenet", "methods/ivon-full-imagenet"], &then), 7);
}

#[test]
fn foreign_sets_and_few_images() {
    let place = Place::new();
    let then = ["--then", "eval --ood=svhn=data/svhn --ood flowers102=data/flowers102"];
    fine(rehearse(&place, &["vtab/dtd", "methods/lora"], &then), 7);
}

#[test]
fn a_language_network_that_chooses_words() {
    let place = Place::new();
    let text = fine(rehearse(&place, &["commonsense/winogrande-s"], &[]), 6);
    assert_has(&text, &["a stand-in for Llama 2 7B ", "4960 steps"]);
    // Label words that are not in every tokenizer need one of their own.
    let labels = "data={jsonl={root=\"x\",prompt=\"{text}\",labels=[\"no\",\"zebra\"]}}";
    let text = fine(rehearse(&place, &["commonsense/winogrande-s"], &["--set", labels]), 6);
    assert_has(&text, &["unknown steps"]);
    let made = std::fs::read_dir(place.path("results/rehearsal/checkpoints")).unwrap().flatten();
    let made: Vec<_> = made.filter(|entry| entry.path().join("model.safetensors").is_file()).collect();
    assert_eq!(made.len(), 2, "{made:?}");
}

/// An encoder reads pairs by a tokenizer that lies beside its weights, or elsewhere.
#[test]
fn a_text_encoder_on_pairs() {
    let place = Place::new();
    let encoder =
        ["--set", "checkpoint={path=\"encoders/roberta-base\",kind=\"encoder\",max_tokens=128,truncate=true}"];
    let targets = ["--set", "subspace.low-rank.targets=[\"attn.q\",\"attn.v\"]"];
    let text = fine(rehearse(&place, &["glue/rte"], &[encoder, targets].concat()), 6);
    assert_has(&text, &["a stand-in for RoBERTa base "]);
    let beside = ["--set", "checkpoint.tokenizer=\"words\"", "--shape", "bert-base"];
    let text = fine(rehearse(&place, &["glue/rte"], &[&encoder[..], &targets, &beside].concat()), 6);
    assert_has(&text, &["a stand-in for BERT base, uncased ", "checkpoint.tokenizer = "]);
    let made = place.path("results/rehearsal/checkpoints");
    assert!(["bert-base", "roberta-base"].iter().all(|name| made.join(format!("{name}-tiny/config.json")).is_file()));
}

/// Where the processor has bf16, the output matrix computes in f32 between blocks in bf16.
#[test]
fn a_laplace_posterior_of_a_language_network() {
    let place = Place::new();
    fine(rehearse(&place, &["commonsense/openbookqa", "methods/vbl"], &[]), 6);
}

#[test]
fn a_network_that_sees_and_answers() {
    let place = Place::new();
    let text = fine(rehearse(&place, &["vqa/ok-vqa"], &[]), 6);
    assert_has(&text, &["a stand-in for LLaVA-1.5-7B ", "train.batch_size = 4 (was 16)", "1692 steps"]);
}

#[test]
fn a_network_that_sees_and_chooses_words() {
    let place = Place::new();
    let labels = "data={vqa-v2={root=\"x\",answer_types=[\"other\"],labels=[\"red\",\"blue\"]}}";
    fine(rehearse(&place, &["vqa/ok-vqa"], &["--set", labels, "--set", "head={label-words={}}"]), 6);
}

/// Nothing is written for a network that does not fit.
#[test]
fn a_network_that_is_too_large_is_refused_before_it_is_written() {
    let place = Place::new();
    let mut command = bella(&["rehearse", "--device", "cpu", "--memory", "1", "--set", "train.precision=f32"]);
    command.arg("--out").arg(place.path("results")).arg(repository("configs/commonsense/arc-easy.toml"));
    let text = done(command);
    let refused = "refused: stand-ins: reading the weights of Llama 2 7B needs 25.1 GiB of memory, but ";
    assert_has(&text, &[refused, " GiB is free", "| not reached |", "5067 steps of unknown", "evaluations unknown"]);
    assert!(!place.path("results/rehearsal/checkpoints/llama-7b").exists());
}

/// The step is planned before the weights are there. On a machine without 9 GB, they cannot even be read.
#[test]
fn a_step_that_is_too_large_is_refused_before_the_network_is_written() {
    let place = Place::new();
    let mut command = bella(&["rehearse", "--device", "cpu", "--memory", "12", "--shape", "tinyllama-1.1b"]);
    command.arg("--out").arg(place.path("results")).arg(repository("configs/commonsense/arc-easy.toml"));
    command.args(["--set", "subspace={full={}}", "--set", "method={svgd={particles=20,gamma=0.01}}"]);
    command.args(["--set", "train.precision=f32"]);
    let text = done(command);
    assert_has(&text, &["refused: stand-ins: ", " GiB is free: "]);
    let step = "training step: 1 member and one image at once need 3";
    let reading = "reading the weights of TinyLlama 1.1B needs 8.2 GiB of memory";
    assert!(text.contains(step) || text.contains(reading), "{text}");
    assert!(!place.path("results/rehearsal/checkpoints/tinyllama-1.1b").exists());
}

#[test]
fn the_shape_must_be_of_the_kind_that_the_config_asks_for() {
    let place = Place::new();
    let line = |file: &str, more: &[&str]| error_line(rehearse(&place, &[file], more), 2);
    let of_images = line("commonsense/boolq", &["--shape", "vit-b-32"]);
    assert_has(&of_images, &["checkpoint.kind = \"language\": CLIP ViT-B/32", "is of kind \"native\""]);
    let blind = line("vqa/ok-vqa", &["--shape", "llama-7b"]);
    assert_has(&blind, &["checkpoint.kind = \"vision-language\": Llama 2 7B is of kind \"language\""]);
    assert_has(
        &line("language", &[]),
        &["the shape of `llama` cannot be told", "one of llava-1.5-7b, ", "tinyllama-1.1b"],
    );
    let output = rehearse(&place, &["language"], &["--shape", "gpt"]).output().unwrap();
    assert_has(&messages(&output), &["unknown shape `gpt`; known: vit-b-32, ", ", llama-7b, "]);
}

/// Not tiny: what the real thing takes is estimated. A head of its own needs no text tower.
#[test]
fn the_real_thing_is_estimated() {
    let place = Place::new();
    let mut command =
        bella(&["rehearse", "--device", "cpu", "--threads", "1", "--workers", "1", "--shape", "clip-mini"]);
    command.arg("--out").arg(place.path("results")).arg(repository("configs/ivon/cifar10.toml"));
    command.args(["--steps", "3", "--images", "10", "--set", "train.batch_size=4", "--set", "train.epochs=2"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&printed(&output), &["the real thing on this machine: 25000 steps of ", "| train, save, kill"]);
    let rows = bella::results::store::read(&place.path("results/rehearsal/rehearsal.csv")).unwrap();
    let number = |column: &str| crate::common::number(&rows, 0, column);
    let training = number("real_training_seconds");
    assert!(training >= 25_000.0 * number("step_seconds") && number("real_evaluation_seconds") > 0.0);
    // 2.8 million parameters in f32 and 50,000 images of 3072 bytes.
    assert!(number("real_disk_bytes") > 11e6 && number("real_memory_bytes") > 150e6);
}

#[test]
fn a_stage_that_breaks_is_told() {
    let place = Place::new();
    let mut command = rehearse(&place, &["stl10", "methods/lora"], &["--then", "soup"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", messages(&output));
    assert_has(&printed(&output), &["broken: soup: exit code 1: ", "this run has one particle"]);
    assert_has(&messages(&output), &["error: stl10-low-rank-map: 1 of 7 stages broke, first `soup`"]);
    // What is needed to look into it is kept.
    assert!(place.path("results/rehearsal/stl10-low-rank-map/results/runs").is_dir());
}

/// A finding, not a fault: nothing broke.
#[test]
fn a_machine_that_is_too_small_is_told_the_amount() {
    let place = Place::new();
    let output = rehearse(&place, &["cifar10"], &["--memory", "0.05"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let refused = ["refused: train, save, kill: ", " and one image at once need ", " GiB is free", "| not reached |"];
    assert_has(&printed(&output), &refused);
}

/// A stand-in takes the place of a checkpoint that is not there, which is said.
#[test]
fn a_real_checkpoint_that_is_absent_is_told() {
    let place = Place::new();
    let absent = ["--real-checkpoint", "--set", "checkpoint.path=absent/ViT-B-32.pt", "--memory", "0.05"];
    let output = rehearse(&place, &["cifar10"], &absent).output().unwrap();
    let said = messages(&output);
    assert_has(
        &said,
        &["warning: --real-checkpoint: ", "ViT-B-32.pt: no such file or folder, so a stand-in is rehearsed"],
    );
    assert_eq!(said.matches("no such file").count(), 1, "{said}");
    let line = error_line(rehearse(&place, &["quickstart"], &absent), 2);
    assert_has(&line, &["head.checkpoint", "put it at ", "absent/ViT-B-32.pt"]);
}

/// A publisher's folder, and a module by its own forward.
#[test]
fn folders_and_modules_are_rehearsed_themselves() {
    let place = Place::new();
    let module = fixture("module/residual.pt").display().to_string();
    let own = format!("checkpoint={{path={module:?},kind=\"module\",image_size=8,normalize=\"imagenet\"}}");
    let sets = ["--set", own.as_str(), "--set", "head={linear={}}", "--set", "subspace={full={}}"];
    let line = error_line(rehearse(&place, &["quickstart"], &sets), 2);
    assert_has(&line, &["checkpoint.kind = \"module\"", "give --real-checkpoint"]);
    let folder = fixture("folders/hf-vit").display().to_string();
    let own = format!("checkpoint={{path={folder:?}}}");
    let sets = ["--set", own.as_str(), "--set", "head={linear={}}"];
    let line = error_line(rehearse(&place, &["quickstart"], &sets), 2);
    assert_has(&line, &["cannot be told from its name", "or give --real-checkpoint, since it is there"]);
    let real = [&sets[..], &["--real-checkpoint", "--then", ""]].concat();
    let output = done(rehearse(&place, &["quickstart"], &real));
    assert_has(&output, &["the real ", "hf-vit", "| resume"]);
}

#[test]
fn mistakes_are_refused() {
    let place = Place::new();
    let line = |files: &[&str], more: &[&str]| error_line(rehearse(&place, files, more), 2);
    assert_has(&line(&[], &[]), &["rehearse needs a config"]);
    assert_has(&line(&["quickstart"], &[]), &["head.checkpoint", "give --real-checkpoint"]);
    assert_has(&line(&["cifar10"], &["--set", "checkpoint.path=own.pt"]), &["`own`", "give --shape, one of vit-b-32"]);
    assert_has(&line(&["cifar10"], &["--then", "train"]), &["`train` is no command on a run; known: eval, soup"]);
    assert_has(&line(&["cifar10"], &["--then", "eval --data cifar11=x"]), &["cifar11"]);
    place.write("results/rehearsal/mine/metrics.csv", b"real");
    let taken = error_line(rehearse(&place, &["cifar10"], &["--name", "mine"]), 1);
    assert_has(&taken, &["holds something else than a rehearsal"]);
}

#[test]
fn a_table_is_rehearsed_cell_by_cell() {
    let place = Place::new();
    let sweep = |more: &[&str]| {
        let mut command = Command::new(repository("scripts/reproduce_table.sh"));
        command.env_remove("SWEEP_CELL").env("BELLA", env!("CARGO_BIN_EXE_bella"));
        command.args(["3", "--rehearse", "--tiny", "--device", "cpu", "--out"]).arg(place.path("results"));
        command.args(["--match", "*-bella-ensemble"]).args(more).output().unwrap()
    };
    let shown = printed(&sweep(&["--dry-run"]));
    assert_has(
        &shown,
        &["rehearse --name domainnet-bella-ensemble --config configs/domainnet.toml", "--tiny --then ''"],
    );
    let output = sweep(&["--", "--threads", "1", "--workers", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}\n{}", messages(&output), printed(&output));
    assert_has(&printed(&output), &["rehearsal domainnet-bella-ensemble: a stand-in", "the real thing: "]);
    assert_has(&messages(&output), &["1 of 1 cells done; rehearsals: "]);
    assert!(place.path("results/rehearsal/sweeps/table-3").is_dir() && !place.path("results/sweeps").exists());
}
