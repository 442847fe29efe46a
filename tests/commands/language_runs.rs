//! Language networks in commands: `bella train`, resumed, and what follows it, on sentences that say `big` or `small`; and
//! what is refused.

use std::path::Path;

use crate::common::{
    Place, assert_has, cells, done, error_line, fixture, messages, number, printed, train_with_a_pause, with,
};

/// Sentences of the fixtures' words, as JSON lines.
fn sentences(count: usize, first: usize) -> String {
    let nouns = ["cat", "dog", "fish", "bird", "tree", "house"];
    let line = |i: usize| {
        let (size, label) = if i.is_multiple_of(2) { ("big", "yes") } else { ("small", "no") };
        let more = " runs".repeat(i % 4);
        format!("{{\"text\": \"the {size} {}{more}\", \"label\": \"{label}\"}}\n", nouns[(i / 2) % nouns.len()])
    };
    (first..first + count).map(line).collect()
}

/// A two-particle SVGD on 40 sentences; `tiny.toml` is what [`Place::train`] reads.
fn place(more: &str) -> Place {
    let place = Place::new();
    place.write("data/train.jsonl", sentences(40, 0).as_bytes());
    place.write("data/test.jsonl", sentences(20, 7).as_bytes());
    let config = format!(
        "name = \"tiny\"\nseed = 1\n[checkpoint]\npath = {:?}\n[head.label-words]\n[data.jsonl]\nroot = {:?}\n\
         prompt = \"is {{text}} big ?\"\nlabels = [\"no\", \"yes\"]\nvalidation = 0.2\n{more}",
        fixture("language").join("llama-3"),
        place.path("data")
    );
    place.write("tiny.toml", config.as_bytes());
    place
}

const TRAINED: &str = "[subspace.low-rank]\nrank = 2\ntargets = [\"attn.q\", \"attn.v\", \"lm_head\"]\n\
                       [method.svgd]\nparticles = 2\ngamma = 0.01\n[optimizer.adamw]\nlr = 2e-2\n\
                       [train]\nepochs = 4\nbatch_size = 8\n";

#[test]
fn particles_learn_resume_and_are_evaluated_again() {
    let place = place(TRAINED);
    let checked = done(with(place.command("check", &[]), &["--deep", &place.path("tiny.toml").display().to_string()]));
    assert_has(&checked, &["training: 32 texts, validation: 8 texts", "a step: 2 particles x 8 texts go through"]);
    train_with_a_pause(&place);
    let results = place.results();
    assert!(number(&results, 0, "accuracy_pm") > 0.9, "{:?}", results.rows);
    // A batch of another size is padded to another length, which changes nothing but roundings.
    done(with(place.command("eval", &[]), &["--batch-size", "3"]));
    let again = place.results();
    let apart = number(&again, 0, "nll_pm") - number(&results, 0, "nll_pm");
    assert!(again.rows.len() == 1 && apart.abs() < 1e-5, "{apart}");
}

/// On a base in fewer bits, which is another run than that on the plain one.
#[test]
fn particles_learn_on_a_quantised_base() {
    let place = place(TRAINED);
    for (row, scheme) in ["int8", "nf4"].iter().enumerate() {
        let set = format!("checkpoint.quantize=\"{scheme}\"");
        done(place.train(&[&set]));
        let accuracy = number(&place.results(), row, "accuracy_pm");
        assert!(accuracy > 0.9, "{scheme}: {accuracy}");
    }
    assert_eq!(place.runs().len(), 2);
    let laplace = ["method={laplace={}}", "checkpoint.quantize=\"nf4\"", "train.epochs=1"];
    done(place.train(&laplace));
    assert!(number(&place.results(), 2, "nll_lm").is_finite());
    let full = ["subspace={full={}}", "checkpoint.quantize=\"nf4\""];
    assert_has(
        &error_line(place.train(&full), 2),
        &["checkpoint", "quantize = \"nf4\"", "subspace.full trains the weights, which are frozen"],
    );
    assert_has(&error_line(place.train(&["checkpoint.quantize=\"int4\""]), 2), &["int4", "int8, nf4"]);
}

/// The cache of what enters the second block, and activations computed again, give the same particles but for roundings.
#[test]
fn caches_and_recomputation_change_only_roundings() {
    let place = place(TRAINED);
    let second = "subspace.low-rank.blocks=\"1\"";
    let sets = [
        ["train.prefix_cache=\"memory\"", "train.recompute=false"],
        ["train.prefix_cache=\"off\"", "train.recompute=true"],
    ];
    let found = sets.map(|[cache, recompute]| {
        done(with(place.train(&[second, cache, recompute]), &["--force"]));
        number(&place.results(), 0, "nll_lm")
    });
    assert!((found[0] - found[1]).abs() < 1e-4, "{found:?}");
}

#[test]
fn methods_train_the_last_layer_and_all_weights() {
    let place = place(TRAINED);
    for (name, sets) in [
        ("last", vec!["subspace={last-layer={}}", "method={ensemble={particles=2}}"]),
        ("laplace", vec!["method={laplace={}}"]),
        ("full", vec!["subspace={full={}}", "method={ivon={lr=0.1,ess=32,hess_init=1.0}}", "optimizer={none={}}"]),
        ("classifier", vec!["head={linear={}}", "subspace.low-rank.targets=[\"mlp.fc\"]"]),
    ] {
        let named = format!("name=\"{name}\"");
        done(place.train(&[vec![named.as_str(), "train.epochs=1"], sets].concat()));
        let table = bella::results::store::read(&place.path(&format!("results/{name}.csv"))).unwrap();
        assert!(
            !table.rows.is_empty()
                && cells(&table, "nll_lm").iter().all(|cell| cell.parse::<f64>().is_ok_and(f64::is_finite))
        );
    }
}

/// VBLL's bound has the logits of a linear head, which those of Gemma 2 are not behind its label words.
#[test]
fn a_bound_on_linear_logits_is_not_taken_for_bounded_ones() {
    let place = place(TRAINED);
    let gemma = format!("checkpoint.path={:?}", fixture("language").join("gemma2"));
    let vbll = ["subspace={last-layer={}}", "method={vbll={ess=32}}", "train.epochs=1", gemma.as_str()];
    let line = error_line(place.train(&vbll), 1);
    assert_has(&line, &["method.vbll", "bounded (final_logit_softcapping)", "[head.linear]"]);
    done(with(place.train(&[&vbll[..], &["head={linear={}}"]].concat()), &["--no-eval"]));
}

/// A copy of a folder, changed.
fn changed(place: &Place, change: impl Fn(&Path)) -> String {
    let copy = place.path("copy");
    let _ = std::fs::remove_dir_all(&copy);
    std::fs::create_dir_all(&copy).unwrap();
    for file in std::fs::read_dir(fixture("language").join("llama-3")).unwrap().flatten() {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    change(&copy);
    format!("checkpoint.path={:?}", copy)
}

fn replace(at: &Path, file: &str, from: &str, to: &str) {
    let old = std::fs::read_to_string(at.join(file)).unwrap();
    assert!(old.contains(from), "{old}");
    std::fs::write(at.join(file), old.replace(from, to)).unwrap();
}

#[test]
fn folders_that_do_not_fit_are_refused_in_one_line() {
    type Change = Box<dyn Fn(&Path)>;
    let config =
        |from: &'static str, to: &'static str| -> Change { Box::new(move |at| replace(at, "config.json", from, to)) };
    let cases: Vec<(Change, &[&str])> = vec![
        (
            Box::new(|at| std::fs::remove_file(at.join("model-00003-of-00005.safetensors")).unwrap()),
            &["names model-00003-of-00005.safetensors, which is missing"],
        ),
        (Box::new(|at| std::fs::remove_file(at.join("tokenizer.json")).unwrap()), &["tokenizer.json: no such file"]),
        (
            Box::new(|at| {
                let other = fixture("language").join("qwen2/tokenizer.json");
                std::fs::copy(other, at.join("tokenizer.json")).unwrap();
            }),
            &["has a token numbered 299, but the network knows 50"],
        ),
        (config("\"llama3\"", "\"proportional\""), &["rope_type = \"proportional\" is none that bella computes"]),
        (config("\"use_cache\"", "\"quantization_config\": {}, \"use_cache\""), &["unquantised"]),
        (config("\"intermediate_size\": 24", "\"intermediate_size\": 25"), &["has the shape [24, 16]", "[25, 16]"]),
        (
            config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
            &["the weights lack `model.layers.2.input_layernorm.weight`"],
        ),
        (config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"), &["has no place"]),
    ];
    let place = place(TRAINED);
    for (change, parts) in cases {
        let path = changed(&place, change);
        assert_has(&error_line(place.train(&[&path]), 1), parts);
        assert!(place.runs().iter().all(|run| !run.join("posterior.safetensors").exists()));
    }
    // A network that bella does not know is named, and not its texts.
    let other = changed(&place, config("\"model_type\": \"llama\"", "\"model_type\": \"longformer\""));
    let named = [
        "model_type = \"longformer\" is no network of texts that bella reads",
        "bert, roberta",
        "scripts/export_text_encoder.py",
    ];
    let output = place.train(&[&other]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_has(&messages(&output), &named);
}

#[test]
fn prompts_labels_and_keys_that_do_not_fit_are_refused_in_one_line() {
    let place = place(TRAINED);
    for (set, code, parts) in [
        ("checkpoint.max_tokens=5", 1, &["jsonl/train: the prompt \"", "tokens, and checkpoint.max_tokens is 5"][..]),
        ("checkpoint.truncate=true", 2, &["checkpoint.truncate", "raise max_tokens"]),
        (
            "method={svgd={particles=2,gamma=0.1,space=\"input-gradients\"}}",
            2,
            &["takes gradients by pixels", "space = \"weights\""],
        ),
        ("checkpoint.chat=\"no place\"", 2, &["checkpoint.chat", "must have {prompt} where the prompt belongs"]),
        ("checkpoint.max_tokens=129", 1, &["checkpoint.max_tokens = 129", "reads at most 128 tokens"]),
        ("data.jsonl.labels=[\"no cat\",\"yes\"]", 1, &["`no cat` is 2 tokens of this tokenizer (no cat)"]),
        ("data.jsonl.labels=[\"no\",\"maybe\"]", 1, &["`maybe` is unknown to this tokenizer"]),
        ("head={zero-shot={}}", 1, &["has no text tower"]),
        ("head={checkpoint={}}", 1, &["no classifier of its own"]),
        ("subspace.low-rank.targets=[\"attn.qkv\"]", 1, &["no linear layer `attn.qkv`", "lm_head"]),
        ("checkpoint.image_size=32", 2, &["checkpoint.image_size", "means nothing to a language network"]),
        ("data.jsonl.augment={flip=0.5}", 2, &["has texts, which have no random views"]),
        ("data={digits={}}", 2, &["digits has images, but the network of checkpoint.path takes texts"]),
        ("train.precision=\"f64\"", 0, &[]),
    ] {
        let command = place.train(&[set, "train.epochs=1"]);
        match code {
            0 => drop(done(command)),
            code => assert_has(&error_line(command, code), parts),
        }
    }
}

/// Lines need no label; a written token has its entropy, and two particles tell more than one.
#[test]
fn a_run_predicts_classes_and_writes_texts() {
    let place = place(TRAINED);
    done(place.train(&["train.epochs=1"]));
    let file = place.write("new.jsonl", b"{\"text\": \"the big cat\"}\n\n{\"text\": \"the small tree sleeps\"}\n");
    let run = place.run().display().to_string();
    let predict = |more: &[&str]| {
        let output = with(place.command("predict", &[]), &[&[run.as_str(), file.to_str().unwrap()], more].concat());
        let output = { output }.output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        printed(&output)
    };
    let classes = predict(&[]);
    assert_eq!(classes.lines().count(), 3);
    assert_has(&classes, &["new.jsonl:1,", "new.jsonl:3,", "path,class,probability"]);
    let written = predict(&["--generate", "4", "--format", "jsonl"]);
    let first: serde_json::Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!(first["tokens"].as_array().unwrap().len(), 4, "{first}");
    assert!(first["tokens"][0]["mutual_information"].as_f64().unwrap() > 0.0, "{first}");
    let table = predict(&["--generate", "4"]);
    assert_has(&table, &["path,text,tokens,mean_entropy,mean_mutual_information", ",4,"]);
    for (more, code, rule) in [
        (&["--generate", "200"][..], 1, "exceed the network's context of 128 tokens"),
        (&["--contact-sheet", "x.png"], 2, "--contact-sheet is for runs on images"),
    ] {
        let command = with(place.command("predict", &[]), &[&[run.as_str(), file.to_str().unwrap()], more].concat());
        assert_has(&error_line(command, code), &[rule]);
    }
}

#[test]
fn commands_for_images_say_so() {
    let place = place(TRAINED);
    done(place.train(&["train.epochs=1"]));
    for (command, arguments, rule) in [
        ("eval", &["--attack", "fgsm"][..], "this network takes no images, which this command needs"),
        ("eval", &["--corrupt", "gaussian-noise:1"], "this set holds texts, and this command needs images"),
    ] {
        assert_has(&error_line(with(place.command(command, &[]), arguments), 1), &[rule]);
    }
}

/// Prompts are counted where the data and the tokenizer are there; the config alone gives the shape.
#[test]
fn an_estimate_counts_prompts_and_needs_no_weights() {
    let place = place(TRAINED);
    let estimate = |more: &[&str]| {
        let config = place.path("tiny.toml").display().to_string();
        let rate = ["--estimate", &config, "--rate", "1e11", "--memory", "8", "--set", "train.precision=\"f32\""];
        done(with(place.command("bench", &[]), &[&rate[..], more].concat()))
    };
    let counted = estimate(&[]);
    // Sentences of 3 to 6 words in "is the … big ?".
    assert_has(
        &counted,
        &["8 tokens in the mean", "10 at most", "counted in the data", "texts: 40 for training", "(20 test texts)"],
    );
    assert_has(&counted, &["2 particles x 8 texts at once"]);
    place.write("alone/config.json", &std::fs::read(fixture("language").join("llama-3/config.json")).unwrap());
    let path = format!("checkpoint.path={:?}", place.path("alone"));
    let assumed = estimate(&["--set", &path, "--set", "checkpoint.kind=\"language\"", "--set", "data.jsonl.subset=12"]);
    assert_has(&assumed, &["assumed (checkpoint.max_tokens), since", "tokenizer.json", "texts: 12 for training"]);
    let parameters = |text: &str| text.lines().find(|line| line.starts_with("particles:")).unwrap().to_string();
    assert_eq!(parameters(&counted), parameters(&assumed));
}
