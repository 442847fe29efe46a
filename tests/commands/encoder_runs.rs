//! Text encoders in commands: `bella train` by every method and subspace, resumed, and what follows it, on sentences and
//! pairs; and what is refused.

use std::path::Path;

use crate::common::{
    Place, assert_has, bella as command, done, error_line, fixture, number, text, train_with_a_pause, with,
};

const NOUNS: [&str; 6] = ["cat", "dog", "fish", "bird", "tree", "house"];

/// Pairs in the layout of RTE: the second sentence follows from the first if it names the same thing.
fn rte(count: usize, first: usize) -> String {
    let row = |i: usize| {
        let (noun, other, same) = (NOUNS[i % 6], NOUNS[(i + 1 + i / 6) % 6], i.is_multiple_of(2));
        let label = if same || noun == other { "entailment" } else { "not_entailment" };
        let second = if same { noun } else { other };
        let more = " runs".repeat(i % 4);
        format!("{i}\tthe big {noun}{more}\tthe {second} is big\t{label}\n")
    };
    "index\tsentence1\tsentence2\tlabel\n".to_string() + &(first..first + count).map(row).collect::<String>()
}

/// Sentences in the layout of CoLA, acceptable if they are about something big.
fn cola(count: usize, first: usize) -> String {
    let row = |i: usize| {
        let (size, label) = if i.is_multiple_of(2) { ("big", 1) } else { ("small", 0) };
        format!("made\t{label}\t\tthe {size} {}{}\n", NOUNS[(i / 2) % 6], " runs".repeat(i % 4))
    };
    (first..first + count).map(row).collect()
}

pub fn place(encoder: &str, task: &str, more: &str) -> Place {
    let place = Place::new();
    let files = if task == "cola" { ("CoLA", cola as fn(usize, usize) -> String) } else { ("RTE", rte as _) };
    place.write(&format!("glue/{}/train.tsv", files.0), files.1(40, 0).as_bytes());
    place.write(&format!("glue/{}/dev.tsv", files.0), files.1(20, 7).as_bytes());
    let folder = fixture("encoder").join(encoder);
    let checkpoint = match encoder.starts_with("folders/") {
        true => format!("path = {folder:?}"),
        false => format!("path = {:?}\nkind = \"module\"", folder.join(format!("{encoder}.pt"))),
    };
    let config = format!(
        "name = \"tiny\"\nseed = 1\n[checkpoint]\n{checkpoint}\n[head.linear]\n[data.glue]\nroot = {:?}\n\
         task = \"{task}\"\nvalidation = 0.2\n{more}",
        place.path("glue")
    );
    place.write("tiny.toml", config.as_bytes());
    place
}

pub const LOW_RANK: &str = "[subspace.low-rank]\nrank = 2\ntargets = [\"linear\"]\n";
pub const TRAINED: &str = "[method.svgd]\nparticles = 2\ngamma = 0.01\n[optimizer.adamw]\nlr = 2e-2\n\
                       [train]\nepochs = 6\nbatch_size = 8\n";

#[test]
fn particles_learn_resume_and_are_evaluated_again() {
    let place = place("bert", "cola", &format!("{LOW_RANK}{TRAINED}"));
    train_with_a_pause(&place);
    let results = place.results();
    assert!(number(&results, 0, "accuracy_pm") > 0.9 && number(&results, 0, "matthews_pm") > 0.8, "{results:?}");
    // A batch of another size is padded to another length, which changes nothing but roundings.
    done(with(place.command("eval", &[]), &["--batch-size", "3"]));
    let again = place.results();
    let apart = number(&again, 0, "nll_pm") - number(&results, 0, "nll_pm");
    assert!(again.rows.len() == 1 && apart.abs() < 1e-5, "{apart}");
    let line = "{\"sentence\": \"the big sea\"}\n{\"sentence\": \"the small river runs\"}\n";
    let file = text(&place.write("new.jsonl", line.as_bytes()));
    let printed = done(with(place.command("predict", &[]), &["latest", &file]));
    let rows: Vec<&str> = printed.lines().collect();
    assert!(rows.len() == 3 && rows[1].contains(",acceptable,") && rows[2].contains(",unacceptable,"), "{printed}");
    let error = error_line(with(place.command("predict", &[]), &["latest", &file, "--generate", "3"]), 2);
    assert_has(&error, &["a text encoder writes no texts"]);
    assert_has(
        &error_line(with(place.command("eval", &[]), &["--attack", "fgsm", "--epsilon", "0.1"]), 1),
        &["no images"],
    );
}

/// A folder's network is computed by bella: particles go through it at once, layers have names, and blocks below the first
/// trained one are computed once.
#[test]
fn a_folder_learns_resumes_and_is_evaluated_again() {
    let targets = "[subspace.low-rank]\nrank = 2\nblocks = \"1\"\n\
                   targets = [\"attn.q\", \"attn.v\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\", \"pooler\"]\n";
    let place = place("folders/bert", "cola", &format!("{targets}{TRAINED}"));
    train_with_a_pause(&place);
    let results = place.results();
    assert!(number(&results, 0, "nll_pm") < 0.69 && number(&results, 0, "mi") > 0.0, "{results:?}");
    done(with(place.command("eval", &[]), &["--batch-size", "3"]));
    let again = place.results();
    let apart = number(&again, 0, "nll_pm") - number(&results, 0, "nll_pm");
    assert!(again.rows.len() == 1 && apart.abs() < 1e-5, "{apart}");
    let file = text(&place.write("new.jsonl", b"{\"sentence\": \"the big sea\"}\n"));
    let printed = done(with(place.command("predict", &[]), &["latest", &file]));
    assert!(printed.lines().count() == 2 && printed.contains("acceptable"), "{printed}");
    let printed = done(with(command(&["inspect"]), &[&text(&fixture("encoder/folders/bert"))]));
    assert_has(
        &printed,
        &["bert (BERT), a text encoder", "at most 40 tokens", "2 classes", "a layer on the first token"],
    );
    let error = error_line(place.train(&["seed=2", "checkpoint.heads=2"]), 2);
    assert_has(&error, &["checkpoint.heads", "means nothing to a text encoder"]);
}

/// What a module cannot do: curvature of all parameters. And every subspace, with new and own classifiers.
#[test]
fn folders_train_in_every_subspace() {
    let low_rank = "subspace={low-rank={rank=2,targets=[\"attn.q\",\"attn.v\",\"mlp.proj\"]}}";
    let masked = format!("checkpoint.tokenizer={:?}", fixture("encoder/folders/bert"));
    for (encoder, sets) in [
        ("folders/bert", &[low_rank, "head={checkpoint={}}"][..]),
        ("folders/bert", &[low_rank, "method={laplace={samples=4,parameters=\"all\"}}"]),
        ("folders/roberta", &["subspace={full={}}", "method={ivon={lr=0.01,ess=32}}", "optimizer={none={}}"]),
        ("folders/bert-masked", &["subspace={last-layer={}}", &masked]),
        ("folders/bert-masked", &["subspace={full={}}", "train.recompute=true", &masked]),
    ] {
        let place = place(encoder, "rte", TRAINED);
        done(place.train(sets));
        let results = place.results();
        assert!(number(&results, 0, "nll_pm").is_finite() && number(&results, 0, "mi") > 0.0, "{encoder}: {sets:?}");
    }
}

/// Pairs, whose second texts `bella predict` needs, with the encoder's own classifier or a new one, in each subspace.
#[test]
fn pairs_are_learnt_in_every_subspace() {
    for (encoder, sets) in [
        ("bert", &["subspace={low-rank={rank=2,targets=[\"linear\"]}}", "optimizer.adamw.lr=1e-2"][..]),
        ("roberta", &["subspace={full={}}", "optimizer.adamw.lr=5e-3"]),
        ("deberta-v2", &["subspace={full={}}", "optimizer.adamw.lr=5e-3"]),
        ("deberta", &["subspace={last-layer={}}"]),
    ] {
        let place = place(encoder, "rte", TRAINED);
        done(place.train(sets));
        let results = place.results();
        assert!(number(&results, 0, "nll_pm").is_finite() && number(&results, 0, "mi") > 0.0, "{encoder}");
        if encoder != "deberta" {
            assert!(number(&results, 0, "nll_pm") < 0.69, "{encoder}: {}", number(&results, 0, "nll_pm"));
        }
        let line = "{\"sentence1\": \"the big cat\", \"sentence2\": \"the cat is big\"}\n";
        let file = text(&place.write("new.jsonl", line.as_bytes()));
        let printed = done(with(place.command("predict", &[]), &["latest", &file]));
        assert!(printed.lines().count() == 2 && printed.contains("entailment"), "{printed}");
        let file = text(&place.write("new.jsonl", b"{\"sentence1\": \"a\"}\n"));
        let error = error_line(with(place.command("predict", &[]), &["latest", &file]), 1);
        assert_has(&error, &["has no key `sentence2`"]);
    }
}

/// MNLI has two test sets; the archive's own classifier has its three classes, in an order that its folder names.
#[test]
fn the_own_classifier_is_trained_on_both_test_sets() {
    let place = place("roberta", "mnli", &format!("{LOW_RANK}{TRAINED}"));
    let row = |i: usize, label: &str| format!("{i}\tthe {} runs\tit runs\t{label}\n", NOUNS[i % 6]);
    let labels = ["entailment", "neutral", "contradiction"];
    let file = |count: usize| {
        "index\tsentence1\tsentence2\tgold_label\n".to_string()
            + &(0..count).map(|i| row(i, labels[i % 3])).collect::<String>()
    };
    place.write("glue/MNLI/train.tsv", file(30).as_bytes());
    place.write("glue/MNLI/dev_matched.tsv", file(9).as_bytes());
    place.write("glue/MNLI/dev_mismatched.tsv", file(12).as_bytes());
    let own = ["head={checkpoint={}}", "train.epochs=1"];
    done(place.train(&own));
    let results = place.results();
    let sets: Vec<&str> = crate::common::cells(&results, "set");
    assert_eq!(sets, ["glue-mnli-matched", "glue-mnli-mismatched"], "{sets:?}");
    let other = place.path("other");
    std::fs::create_dir_all(&other).unwrap();
    for name in ["roberta.pt", "tokenizer.json", "tokenizer_config.json", "config.json"] {
        std::fs::copy(fixture("encoder/roberta").join(name), other.join(name)).unwrap();
    }
    let config = std::fs::read_to_string(other.join("config.json")).unwrap();
    let swapped = config
        .replace("\"0\": \"entailment\"", "\"0\": \"x\"")
        .replace("\"2\": \"contradiction\"", "\"2\": \"entailment\"");
    std::fs::write(other.join("config.json"), swapped.replace("\"0\": \"x\"", "\"0\": \"contradiction\"")).unwrap();
    let path = format!("checkpoint.path={:?}", other.join("roberta.pt"));
    let error = error_line(place.train(&[own[0], "seed=2", &path]), 1);
    assert_has(&error, &["has the data set's classes in another order"]);
}

/// The methods that the other tests leave out, with settings of a few steps.
const METHODS: [(&str, &str, bool); 14] = [
    ("map", "{}", true),
    ("ensemble", "{particles=2}", true),
    ("sam", "{}", true),
    ("ivon", "{lr=0.01,ess=32}", false),
    ("vogn", "{lr=1e-3,ess=32}", false),
    ("bbb", "{lr=1e-3,ess=32}", false),
    ("laplace", "{samples=4,parameters=\"last-layer\"}", true),
    ("swag", "{start=0,every=1,columns=2,samples=4}", true),
    ("mc-dropout", "{samples=4}", true),
    ("sgld", "{lr=1e-4,ess=32,start=0,every=1}", false),
    ("sghmc", "{lr=1e-4,ess=32,start=0,every=1}", false),
    ("tfb", "{}", true),
    ("blob", "{cycle=4,flipout=false}", true),
    ("vbll", "{ess=32}", true),
];

/// A run by one of the methods has a finite loss, and its members differ where there are several.
fn trains(methods: &[(&str, &str, bool)]) {
    let train = "[train]\nepochs = 1\nbatch_size = 16\n";
    for (key, settings, optimized) in methods {
        let place = place("bert", "rte", &format!("{LOW_RANK}{train}"));
        let method = format!("method={{{key}={settings}}}");
        let optimizer = if *optimized { "optimizer={adamw={lr=2e-3}}" } else { "optimizer={none={}}" };
        done(place.train(&[&method, optimizer]));
        let table = place.results();
        assert!(number(&table, 0, "nll_pm").is_finite(), "{key}");
        let members = number(&table, 0, "members");
        assert!(members == 1.0 || number(&table, 0, "mi") > 0.0, "{key}: {members} equal members");
        assert_eq!(members == 1.0, ["map", "sam"].contains(key), "{key}: {members} members");
    }
}

#[test]
fn methods_of_points_and_variational_ones_train_it() {
    trains(&METHODS[..6]);
}

#[test]
fn methods_after_training_and_chains_train_it() {
    trains(&METHODS[6..]);
}

/// A copy of the folder of an encoder, changed, as settings.
fn changed(place: &Place, name: &str, change: impl Fn(&Path)) -> String {
    let copy = place.path("copy");
    let _ = std::fs::remove_dir_all(&copy);
    std::fs::create_dir_all(&copy).unwrap();
    for file in std::fs::read_dir(fixture("encoder").join(name)).unwrap().flatten() {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    change(&copy);
    format!("checkpoint.path={:?}", copy.join(format!("{name}.pt")))
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let place = place("bert", "rte", &format!("{LOW_RANK}{TRAINED}"));
    let refused = |sets: &[&str], code: i32, parts: &[&str]| assert_has(&error_line(place.train(sets), code), parts);
    let roberta = fixture("encoder/roberta/tokenizer.json");
    let other = changed(&place, "bert", |at| {
        std::fs::copy(&roberta, at.join("tokenizer.json")).unwrap();
    });
    refused(&[&other], 1, &["its forward fails on the token numbered 299", "they are not of one model"]);
    let none = changed(&place, "bert", |at| std::fs::remove_file(at.join("tokenizer.json")).unwrap());
    refused(&[&none], 2, &["for a module of texts, set tokenizer instead"]);
    let elsewhere = format!("checkpoint.tokenizer={:?}", place.path("copy"));
    refused(&[&none, &elsewhere], 1, &["tokenizer.json: no such file, which a text encoder needs"]);
    refused(
        &[&none, "checkpoint.image_size=8", "checkpoint.normalize=imagenet", "data={digits={}}"],
        1,
        &["its forward takes 3 tensors (input_ids, attention_mask, token_type_ids)", "checkpoint.tokenizer"],
    );
    refused(
        &["checkpoint.max_tokens=6"],
        1,
        &["glue-rte/train: the text \"", "tokens, and checkpoint.max_tokens is 6"],
    );
    refused(&["checkpoint.max_tokens=41"], 1, &["its forward fails on 41 tokens", "set checkpoint.max_tokens"]);
    refused(&["checkpoint.normalize=imagenet"], 2, &["checkpoint.normalize", "means nothing to a module of texts"]);
    refused(&["checkpoint.heads=2"], 2, &["means nothing with kind = \"module\""]);
    refused(&["data={digits={}}"], 2, &["digits has images, but the network of checkpoint.path takes texts"]);
    let residual = fixture("module").join("residual.pt");
    let image = format!("checkpoint.path={residual:?}");
    let tokenizer = format!("checkpoint.tokenizer={:?}", fixture("encoder/bert"));
    refused(&[&image, &tokenizer], 1, &["its forward takes one tensor (x)", "leave checkpoint.tokenizer out"]);
    refused(&["head={checkpoint={}}"], 1, &["has no classifier of its own"]);
    refused(&["train.precision=f64"], 1, &["computes in f32 only"]);
    assert!(place.runs().iter().all(|run| !run.join("posterior.safetensors").exists()));
    let cut = ["checkpoint.truncate=true", "train.epochs=1"];
    refused(&["checkpoint.max_tokens=3", cut[0]], 1, &["puts 3 special tokens around a pair, which leaves no room"]);
    done(place.train(&["checkpoint.max_tokens=6", cut[0], cut[1]]));
}

#[test]
fn language_networks_refuse_pairs() {
    let place = place("bert", "rte", "");
    let path = format!("checkpoint.path={:?}", fixture("language").join("llama-3"));
    let train = "train={epochs=1,batch_size=8}";
    let more = ["subspace={last-layer={}}", "method={map={}}", "optimizer={adamw={lr=1e-3}}"];
    let sets = [&path, "checkpoint.kind=language", train, more[0], more[1], more[2]];
    assert_has(
        &error_line(place.train(&sets), 1),
        &["glue-rte/train: has pairs of texts, which are for text encoders"],
    );
}

#[test]
fn the_files_of_a_task_are_counted_against_the_published_numbers() {
    let place = place("bert", "rte", "");
    let (root, task) = (format!("glue={}", place.path("glue").display()), "data.glue.task=rte");
    let printed = done(command(&["data", "check", &root, "--set", task, "--partial"]));
    assert_has(&printed, &["train    40 texts (published: 2490)", "test     20 texts (published: 277)"]);
    let output = command(&["data", "check", &root, "--set", task]).output().unwrap();
    assert_has(&crate::common::messages(&output), &["glue: train: 40 texts, but 2490 are published", "2 faults"]);
    assert_has(&error_line(command(&["data", "check", &root]), 2), &["data.glue.task is required"]);
}

#[test]
fn inspect_tells_what_an_encoder_is() {
    let roberta = text(&fixture("encoder/roberta/roberta.pt"));
    let printed = done(command(&["inspect", &roberta]));
    assert_has(&printed, &["token ids and mask, at most 96 tokens", "tokens up to 299, padded on the right by 1"]);
    assert_has(&printed, &["own head      3 classes", "13 linear"]);
    let place = Place::new();
    let alone = text(&place.write("encoder.pt", &std::fs::read(&roberta).unwrap()));
    assert_has(
        &error_line(command(&["inspect", &alone]), 1),
        &["takes 2 tensors (input_ids, attention_mask)", "--tokenizer"],
    );
    let folder = text(&fixture("encoder/roberta"));
    assert_has(&done(command(&["inspect", &alone, "--tokenizer", &folder])), &["own head      3 classes"]);
}
