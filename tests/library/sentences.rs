//! Folders of sentence-transformers. The reference is `SentenceTransformer.encode` (tests/fixtures/encoder/sentences, written by
//! scripts/make_encoder_fixtures.py).

use std::path::Path;

use crate::common::{Place, alike, assert_has, bella as command, done, error_line, fixture, messages, tensors, with};
use bella::data::fields::of_texts;
use bella::model::encoder;
use bella::model::families::encoders::Features;
use bella::model::folder::content;
use bella::model::folder::sentences::{Encoded, Sentences};
use bella::model::module::Limit;
use bella::model::network::{Network, Weights};
use tch::Tensor;
use tempfile::TempDir;

/// What a folder says of features, or why that is not computed.
fn encoded(folder: &Path) -> Result<Encoded, String> {
    Sentences::of(folder).map_err(|why| format!("{why:#}"))?.ok_or("it says nothing")?.encoded
}

/// The features that SentenceTransformer.encode gives (scripts/make_encoder_fixtures.py).
#[test]
fn folders_of_sentence_transformers_are_read_as_they_say() {
    for name in ["bert", "roberta-model", "mpnet-model", "xlm-roberta", "distilbert-masked", "modernbert-model"] {
        let (place, golden) = sentences(name);
        let said = encoded(place.path()).unwrap();
        let asked = encoder::Asked { features: Some(said.features), ..encoder::Asked::default() };
        let opened = encoder::open(place.path(), place.path(), Limit::default(), asked);
        let opened = opened.unwrap_or_else(|why| panic!("{name}: {why:#}"));
        assert_eq!(opened.encoder.geometry.features, said.features);
        let inputs = ["input_ids", "attention_mask", "token_type_ids"].into_iter();
        let inputs: Vec<Tensor> = inputs
            .filter_map(|key| golden.iter().find(|(name, _)| name == key))
            .map(|(_, t)| t.shallow_clone())
            .collect();
        let samples = of_texts(&Tensor::stack(&inputs, 1)).for_all();
        let found = tch::no_grad(|| opened.encoder.forward(&Weights::frozen(&opened.base), &samples)).squeeze_dim(0);
        let found = if said.is_unit { &found / found.norm_scalaropt_dim(2.0, [-1], true) } else { found };
        let features = golden.iter().find(|(name, _)| name == "features").map(|(_, features)| features).unwrap();
        alike(&found, features, name);
    }
}

/// The folder of a network with what sentence-transformers has saved beside it, and the features that it computes.
fn sentences(name: &str) -> (TempDir, Vec<(String, Tensor)>) {
    let (network, beside) = (fixture("encoder/folders").join(name), fixture("encoder/sentences").join(name));
    let own = name.trim_end_matches("-model").trim_end_matches("-masked");
    let tokenizer = fixture("encoder/folders").join(if own == "mpnet" { "roberta" } else { own });
    let place = tempfile::tempdir().unwrap();
    let copy = |from: &Path, file: &str| {
        let to = place.path().join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from.join(file), to).unwrap();
    };
    ["config.json", "model.safetensors"].into_iter().for_each(|file| copy(&network, file));
    ["tokenizer.json", "tokenizer_config.json"].into_iter().for_each(|file| copy(&tokenizer, file));
    ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json"]
        .into_iter()
        .for_each(|file| copy(&beside, file));
    (place, tensors(&beside.join("expected.safetensors")))
}

#[test]
fn poolings_that_are_not_computed_are_named() {
    let error = |file: &str, text: &str| {
        let (place, _) = sentences("bert");
        std::fs::write(place.path().join(file), text).unwrap();
        encoded(place.path()).err().unwrap_or_else(|| "it is computed".into())
    };
    const POOLING: &str = "1_Pooling/config.json";
    const LIMITS: &str = "sentence_bert_config.json";
    let module = |kind: &str, path: &str| {
        format!(
            "{{\"idx\": 0, \"name\": \"0\", \"path\": {path:?}, \"type\": \"sentence_transformers.models.{kind}\"}}"
        )
    };
    let modules = |more: &[(&str, &str)]| {
        let all = [("Transformer", ""), ("Pooling", "1_Pooling")].iter().chain(more);
        format!("[{}]", all.map(|(kind, path)| module(kind, path)).collect::<Vec<_>>().join(", "))
    };
    for (file, text, parts) in [
        (
            POOLING,
            r#"{"pooling_mode": "max"}"#.to_string(),
            ["1_Pooling/config.json: its pooling is max", "set checkpoint.features"],
        ),
        (
            POOLING,
            r#"{"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": false}"#.into(),
            ["its pooling is max", "\"mean\""],
        ),
        (
            POOLING,
            r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#.into(),
            ["its pooling is cls_token + mean", "set"],
        ),
        (POOLING, r#"{"pooling_mode": ["cls", "max"]}"#.into(), ["its pooling is cls + max", "set"]),
        (POOLING, r#"{"pooling_mode": "mean", "include_prompt": false}"#.into(), ["include_prompt = false", "set"]),
        ("modules.json", modules(&[("Dense", "2_Dense")]), ["modules.json: the module Dense", "does not compute"]),
        (
            "modules.json",
            modules(&[("Normalize", "2_Normalize"), ("Dense", "3_Dense")]),
            ["the module Dense", "does not compute"],
        ),
        ("modules.json", format!("[{}]", module("Transformer", "")), ["modules.json: no Pooling", "does not compute"]),
        (
            "modules.json",
            format!("[{}, {}]", module("Transformer", ""), module("Pooling", "../x")),
            ["must be a list of modules", "path"],
        ),
        ("modules.json", "{}".into(), ["must be a list of modules", "type"]),
        (POOLING, r#"{"pooling_mode": ["mean", 1]}"#.into(), ["1_Pooling/config.json: pooling_mode", "list of words"]),
        (
            "modules.json",
            modules(&[]).replace("sentence_transformers.models.Pooling", "mine.Pooling"),
            ["the module mine.Pooling", "set"],
        ),
        (
            "modules.json",
            modules(&[]).replace("models.Transformer", "models.CLIPModel"),
            ["the module CLIPModel", "set"],
        ),
        (
            LIMITS,
            r#"{"max_seq_length": "24"}"#.into(),
            ["sentence_bert_config.json: max_seq_length = \"24\"", "from 1 on"],
        ),
        (LIMITS, r#"{"max_seq_length": 0}"#.into(), ["max_seq_length = 0", "from 1 on"]),
        (LIMITS, r#"{"do_lower_case": true}"#.into(), ["sentence_bert_config.json: do_lower_case = true", "set"]),
        (
            "config_sentence_transformers.json",
            r#"{"prompts": {"query": "query: "}, "default_prompt_name": "query"}"#.into(),
            ["config_sentence_transformers.json: default_prompt_name = \"query\"", "set"],
        ),
    ] {
        let found = error(file, &text);
        assert!(parts.iter().all(|part| found.contains(part)), "{text}: {found}");
    }
}

/// Earlier versions said the pooling by one key for each, and put the network into a folder of its own.
#[test]
fn earlier_folders_of_sentence_transformers_are_read() {
    let (place, _) = sentences("bert");
    let text = r#"{"word_embedding_dimension": 16, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    std::fs::write(place.path().join("1_Pooling/config.json"), text).unwrap();
    std::fs::write(place.path().join("sentence_bert_config.json"), r#"{"max_seq_length": 24, "do_lower_case": false}"#)
        .unwrap();
    assert_eq!(encoded(place.path()).unwrap().features, Features::First);
    let inner = place.path().join("0_Transformer");
    std::fs::create_dir(&inner).unwrap();
    for file in
        ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json"]
    {
        std::fs::rename(place.path().join(file), inner.join(file)).unwrap();
    }
    let list = std::fs::read_to_string(place.path().join("modules.json")).unwrap();
    std::fs::write(
        place.path().join("modules.json"),
        list.replacen("\"path\": \"\"", "\"path\": \"0_Transformer\"", 1),
    )
    .unwrap();
    assert_eq!(encoded(&inner).unwrap().features, Features::First);
    assert_eq!(Sentences::of(&inner).unwrap().unwrap().tokens, Some(24));
    assert_eq!(content(&inner).unwrap().len(), 7);
}

/// The first versions named the file of limits after the network, and no pooling where it is the mean.
#[test]
fn the_first_folders_of_sentence_transformers_are_read() {
    let (place, _) = sentences("bert");
    let of = || Sentences::of(place.path()).unwrap().unwrap();
    std::fs::remove_file(place.path().join("sentence_bert_config.json")).unwrap();
    std::fs::write(place.path().join("1_Pooling/config.json"), "{}").unwrap();
    assert_eq!(of().encoded.unwrap().features, Features::Mean);
    let (earlier, later) = ("sentence_xlm-roberta_config.json", "sentence_roberta_config.json");
    let before = content(place.path()).unwrap().len();
    std::fs::write(place.path().join(earlier), r#"{"max_seq_length": 7}"#).unwrap();
    assert_eq!((of().tokens, content(place.path()).unwrap().len()), (Some(7), before + 1));
    // The package takes the first name of its list.
    std::fs::write(place.path().join(later), r#"{"do_lower_case": true}"#).unwrap();
    assert!(of().encoded.unwrap_err().contains("sentence_roberta_config.json: do_lower_case = true"));
}

/// A network that classifies, as CrossEncoder saves it, is read as any other folder.
#[test]
fn lists_of_cross_encoders_say_nothing_of_features() {
    let (place, _) = sentences("bert");
    let list = r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]"#;
    std::fs::write(place.path().join("modules.json"), list).unwrap();
    let settings = r#"{"transformer_task": "sequence-classification"}"#;
    std::fs::write(place.path().join("sentence_bert_config.json"), settings).unwrap();
    assert_eq!(Sentences::of(place.path()).unwrap(), None);
}

/// A config of texts for a folder, and the folder.
fn described(tables: &str) -> (Place, TempDir) {
    let (folder, _) = sentences("bert");
    let limits = r#"{"max_seq_length": 24, "do_lower_case": false}"#;
    std::fs::write(folder.path().join("sentence_bert_config.json"), limits).unwrap();
    let place = Place::new();
    let line = |i: usize| {
        let (size, label) = if i.is_multiple_of(2) { ("big", "yes") } else { ("small", "no") };
        format!("{{\"text\": \"the {size} cat\", \"label\": \"{label}\"}}\n")
    };
    for file in ["data/train.jsonl", "data/test.jsonl"] {
        place.write(file, (0..8).map(line).collect::<String>().as_bytes());
    }
    let config = format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint.path = {:?}\n{tables}\
         data.jsonl = {{ root = {:?}, prompt = \"is {{text}} big ?\", labels = [\"no\", \"yes\"] }}\n\
         method.svgd = {{ particles = 2, gamma = 0.01 }}\noptimizer.adamw.lr = 2e-2\n\
         train = {{ epochs = 1, batch_size = 8 }}\n",
        folder.path(),
        place.path("data")
    );
    place.write("tiny.toml", config.as_bytes());
    (place, folder)
}

const LOW_RANK: &str = "head.linear = {}\nsubspace.low-rank = { rank = 2, targets = [\"attn.q\"] }\n";

/// The folder decides, the run says so, and knows the folder by the files that decided.
#[test]
fn runs_follow_a_folder_of_sentence_transformers() {
    let (place, folder) = described(LOW_RANK);
    let output = place.train(&[]).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let resolved = std::fs::read_to_string(place.run().join("config.toml")).unwrap();
    assert_has(&resolved, &["features = \"mean\"", "max_tokens = 24", "unit_features = true"]);
    let run = place.run().display().to_string();
    let eval = || with(place.command("eval", &[]), &[&run]);
    done(eval());
    for file in ["1_Pooling/config.json", "modules.json", "sentence_bert_config.json"] {
        let file = folder.path().join(file);
        let before = std::fs::read(&file).unwrap();
        std::fs::write(&file, [&before[..], b"\n"].concat()).unwrap();
        assert_has(&error_line(eval(), 1), &["checkpoint"]);
        std::fs::write(&file, before).unwrap();
    }
    // Two ways of reading are no one network.
    done(place.train(&["checkpoint.features=first"]));
    let runs: Vec<String> = place.runs().iter().map(|run| run.display().to_string()).collect();
    let both: Vec<&str> = runs.iter().map(String::as_str).collect();
    let line = error_line(with(with(place.command("merge", &[]), &both), &["--by", "mean"]), 1);
    assert_has(&line, &["trained with another checkpoint.features than"]);
    done(place.train(&["checkpoint.unit_features=false"]));
    let plain = place.runs().into_iter().map(|run| run.display().to_string()).find(|run| !runs.contains(run)).unwrap();
    let line = error_line(with(place.command("merge", &[]), &[&run, &plain, "--by", "mean"]), 1);
    assert_has(&line, &["trained with another checkpoint.unit_features than"]);
    // A folder with these features keeps its list of modules, and one with others has none.
    for (run, out, is_kept) in [(&run, "same", true), (&plain, "plain", false)] {
        let to = place.path(out).display().to_string();
        done(with(place.command("export", &[]), &[run, "--to", "weights", "--particle", "0", "--output", &to]));
        assert_eq!(place.path(out).join("modules.json").is_file(), is_kept, "{out}");
        assert_eq!(place.path(out).join("1_Pooling/config.json").is_file(), is_kept, "{out}");
    }
}

/// What a folder says and bella does not do, or does not understand, is refused unless the config says what takes its place.
#[test]
fn configs_say_what_takes_the_place_of_a_refused_default() {
    let (place, folder) = described(LOW_RANK);
    let config = place.path("tiny.toml").display().to_string();
    let check = |sets: &[&str]| with(place.command("check", sets), &[&config]);
    done(check(&[]));
    let write = |text: &str| std::fs::write(folder.path().join("1_Pooling/config.json"), text).unwrap();
    write(r#"{"pooling_mode": "max"}"#);
    assert_has(&error_line(check(&[]), 2), &["checkpoint.features", "its pooling is max"]);
    done(check(&["checkpoint.features=first"]));
    write("{");
    for sets in [&[][..], &["checkpoint.features=mean"]] {
        assert_has(&error_line(check(sets), 2), &["1_Pooling/config.json: no JSON", "unit_features"]);
    }
    done(check(&["checkpoint.features=mean", "checkpoint.unit_features=true", "checkpoint.max_tokens=24"]));
    // So says the config that a run of it saves, also where the usual value takes the place.
    let usual = ["checkpoint.features=mean", "checkpoint.unit_features=false", "checkpoint.max_tokens=24"];
    done(with(place.train(&usual), &["--no-eval"]));
    done(place.command("eval", &[]));
}

/// `inspect` says what a folder asks for, and `init` writes what takes the place of what bella does not do.
#[test]
fn folders_with_other_poolings_are_inspected_and_drafted() {
    let (place, folder) = described(LOW_RANK);
    let path = folder.path().display().to_string();
    let inspected = done(command(&["inspect", &path]));
    let said = "features      the mean of all tokens, divided by its L2 norm";
    assert_has(&inspected, &[said, "max_tokens    24 by default"]);
    std::fs::write(folder.path().join("1_Pooling/config.json"), r#"{"pooling_mode": "max"}"#).unwrap();
    let inspected = done(command(&["inspect", &path]));
    assert_has(&inspected, &["features      a layer on the first token", "not computed", "its pooling is max"]);
    let (data, file) = (place.path("data").display().to_string(), place.path("mine.toml").display().to_string());
    done(command(&["init", "--checkpoint", &path, "--data", &data, "--output", &file]));
    assert_has(
        &std::fs::read_to_string(place.path("mine.toml")).unwrap(),
        &["its pooling is max", "features = \"pooled\"", "max_tokens = 24"],
    );
}

/// A classifier that was trained on unit features has no place in a class that gives it others.
#[test]
fn classifiers_of_unit_features_do_not_leave_as_those_of_others() {
    let tables =
        "checkpoint.features = \"pooled\"\ncheckpoint.unit_features = true\nhead.checkpoint = {}\nsubspace.full = {}\n";
    let (place, _folder) = described(tables);
    done(place.train(&[]));
    let (run, to) = (place.run().display().to_string(), place.path("out").display().to_string());
    let line = error_line(with(place.command("export", &[]), &[&run, "--to", "weights", "--output", &to]), 1);
    assert_has(&line, &["checkpoint.unit_features = true: BertForSequenceClassification", "--to torchscript"]);
}
