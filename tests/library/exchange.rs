//! Models leave as adapters and whole folders and come in again. What the packages themselves make of them is compared by
//! scripts/compare_exports.py.

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{Place, assert_has, done, error_line, fixture, printed};
use bella::data::fields::{Fields, PIXELS};
use bella::model::folder;
use bella::model::network::{Network, Weights};
use bella::model::recognition::identify::Fixed;
use serde_json::Value;
use tch::{Kind, Tensor};

const ALL_LAYERS: &str =
    "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }";

fn family(name: &str) -> PathBuf {
    fixture("folders").join(name)
}

/// An experiment on a small folder, with `head` and further tables.
fn config(place: &Place, name: &str, more: &str) -> PathBuf {
    let text = format!(
        "name = \"tiny\"\nseed = 1\ncheckpoint = {{ path = {:?}, normalize = \"imagenet\" }}\nhead.linear = {{}}\n\
         data.digits.subset = {{ train = 24, test = 20 }}\noptimizer.adamw.lr = 1e-2\n\
         train = {{ epochs = 2, batch_size = 8 }}\n{more}\n",
        family(name)
    );
    place.write("x.toml", text.as_bytes())
}

/// Trains two particles; the run's folder.
fn train(place: &Place, name: &str, more: &str) -> PathBuf {
    let config = config(place, name, &format!("{more}\nmethod.svgd = {{ particles = 2, gamma = 0.01 }}"));
    let mut command = place.command("train", &[]);
    command.arg("--config").arg(config);
    done(command);
    place.run()
}

fn export(place: &Place, run: &Path, output: &str, more: &[&str]) -> assert_cmd::Command {
    let mut command = place.command("export", &[]);
    command.arg(run).arg("--output").arg(place.path(output)).args(more);
    command
}

/// Imports folders into results of their own; the new run's folder.
fn import(place: &Place, folders: &[PathBuf], more: &[&str]) -> PathBuf {
    let output = importing(place, folders, more).output().unwrap();
    assert!(output.status.success(), "{}", common::messages(&output));
    PathBuf::from(printed(&output).trim())
}

fn importing(place: &Place, folders: &[PathBuf], more: &[&str]) -> assert_cmd::Command {
    let mut command = common::bella(&["import", "--device", "cpu", "--threads", "1"]);
    command.arg("--out").arg(place.path("imported")).arg("--config").arg(place.path("x.toml")).args(folders).args(more);
    command
}

fn tensors(path: &Path) -> Vec<(String, Tensor)> {
    Tensor::read_safetensors(path).unwrap()
}

fn tensor(path: &Path, name: &str) -> Tensor {
    let found = tensors(path).into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{}: no {name}", path.display())).1
}

fn metadata(path: &Path) -> std::collections::HashMap<String, String> {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    header.metadata().clone().unwrap()
}

#[track_caller]
fn near(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.size(), expected.size());
    let largest = |t: &Tensor| t.abs().max().double_value(&[]);
    let difference = largest(&(found - expected)) / largest(expected);
    assert!(difference < 1e-5, "{difference:.2e}");
}

/// The logits that bella's own network computes with the weights in `folder`.
fn logits(folder: &Path, pixels: &Tensor, head: (&Tensor, &Tensor)) -> Tensor {
    let found = folder::identify(folder, &Fixed::default()).unwrap_or_else(|e| panic!("{e:#}"));
    let images = Fields::of(PIXELS, pixels.unsqueeze(0));
    let features = tch::no_grad(|| found.vit.forward(&Weights::frozen(&found.base), &images));
    features.squeeze_dim(0).linear(head.0, Some(head.1))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Follows docs/exchange.md with nothing but the file and the checkpoint.
#[test]
fn a_posterior_explains_itself() {
    for name in ["timm-vit", "hf-vit"] {
        let place = Place::new();
        let run = train(&place, name, ALL_LAYERS);
        done(export(&place, &run, "out", &["--to", "peft", "--particle", "1"]));
        let file = run.join("posterior.safetensors");
        let about = metadata(&file);
        let layout: Vec<Value> = serde_json::from_str(&about["layout"]).unwrap();
        let row = tensor(&file, "theta").get(1);
        let source = place.path("merged");
        copy(&family(name), &source);
        std::fs::remove_file(source.join("reference.safetensors")).unwrap();
        let mut weights = tensors(&source.join("model.safetensors"));
        let (mut head, mut end) = (Vec::new(), 0);
        let int = |value: &Value| value.as_i64().unwrap();
        for part in &layout {
            assert_eq!(int(&part["start"]), end, "columns follow each other");
            if part["kind"] == "whole" {
                let shape: Vec<i64> = part["shape"].as_array().unwrap().iter().map(int).collect();
                let count = shape.iter().product();
                head.push(row.narrow(0, end, count).view(&shape[..]));
                end += count;
                continue;
            }
            let [rank, inputs, outputs] = ["rank", "inputs", "outputs"].map(|key| int(&part[key]));
            let a = row.narrow(0, end, rank * inputs).view([rank, inputs]);
            let b = row.narrow(0, end + rank * inputs, outputs * rank).view([outputs, rank]);
            let update = b.matmul(&a) * (part["alpha"].as_f64().unwrap() / rank as f64);
            for piece in part["stored_as"].as_array().unwrap() {
                let [to, from, rows] = ["stored_row", "row", "rows"].map(|key| int(&piece[key]));
                let stored = weights.iter_mut().find(|(name, _)| piece["name"] == **name).unwrap();
                let mut target = stored.1.narrow(0, to, rows);
                let _ = target.g_add_(&update.narrow(0, from, rows));
            }
            end += rank * inputs + outputs * rank;
        }
        assert_eq!(end, row.size()[0]);
        Tensor::write_safetensors(&weights, source.join("model.safetensors")).unwrap();
        let expected = place.path("out").join("expected.safetensors");
        let found = logits(&source, &tensor(&expected, "pixels"), (&head[0], &head[1]));
        near(&found, &tensor(&expected, "logits"));
        let checkpoint: Value = serde_json::from_str(&about["checkpoint"]).unwrap();
        assert_eq!(checkpoint["name"], name);
        assert_eq!((about["method"].as_str(), about["subspace"].as_str()), ("svgd", "low-rank"));
        assert_has(&about["preprocessing"], &["\"image_size\":16", "0.485"]);
        assert_eq!(serde_json::from_str::<Vec<String>>(&about["classes"]).unwrap().len(), 10);
    }
}

/// The files of an adapter, and of its second export after an import.
fn round_trip(name: &str, subspace: &str, more: &[&str]) {
    let place = Place::new();
    let run = train(&place, name, subspace);
    done(export(&place, &run, "first", &[&["--to", "peft"], more].concat()));
    let several = place.path("first/particle-0").is_dir();
    let imported = import(&place, &[place.path("first")], &[]);
    done(export(&place, &imported, "second", &[&["--to", "peft"], more].concat()));
    let folders = if several { vec!["particle-0", "particle-1"] } else { vec!["."] };
    for folder in folders {
        for file in ["adapter_config.json", "adapter_model.safetensors", "expected.safetensors"] {
            let read = |side: &str| std::fs::read(place.path(side).join(folder).join(file)).unwrap();
            assert!(read("first") == read("second"), "{name} {more:?}: {folder}/{file}");
        }
    }
}

#[test]
fn adapters_come_back_bit_for_bit() {
    for name in ["timm-vit", "hf-vit", "hf-dinov2-registers"] {
        round_trip(name, ALL_LAYERS, &[]);
    }
}

#[test]
fn dora_comes_back_bit_for_bit() {
    let subspace = ALL_LAYERS.replace("rank = 2,", "rank = 2, dora = true,");
    round_trip("timm-vit", &subspace, &[]);
    // Queries, keys and values are modules of their own there.
    round_trip("hf-vit", &subspace, &[]);
}

/// Whole models and one file of all members have the logits of the particles, which the export computes by their factors.
#[test]
fn dora_and_pissa_leave_whole() {
    for more in ["dora = true,", "init = \"pissa\",", "init = \"pissa\", dora = true,"] {
        let place = Place::new();
        let run = train(&place, "timm-vit", &ALL_LAYERS.replace("rank = 2,", &format!("rank = 2, {more}")));
        done(export(&place, &run, "adapters", &["--to", "peft"]));
        done(export(&place, &run, "archive", &["--to", "torchscript"]));
        let imported = import(&place, &[place.path("adapters")], &[]);
        done(export(&place, &imported, "again", &["--to", "torchscript"]));
        let expected = |folder: &str| tensor(&place.path(folder).join("expected.safetensors"), "logits");
        near(&expected("again"), &expected("archive"));
        let [logits, ..] = outputs(
            &place.path("archive/posterior.pt"),
            &tensor(&place.path("archive/expected.safetensors"), "pixels"),
        );
        near(&logits, &expected("archive"));
    }
}

#[test]
fn adapters_for_either_generation_of_transformers_come_back_bit_for_bit() {
    round_trip("hf-vit", ALL_LAYERS, &["--for", "transformers-4"]);
    let gated = "subspace.low-rank = { rank = 2, targets = [\"mlp.gate\", \"mlp.fc\", \"mlp.proj\"], blocks = \"1\" }";
    for package in ["transformers-4", "transformers-5"] {
        round_trip("hf-dinov2-swiglu", gated, &["--for", package]);
    }
}

/// A head beside an adapter comes in with it; PEFT adds the update of an attention's second layer twice.
#[test]
fn a_head_beside_an_adapter_comes_in() {
    let place = Place::new();
    let run = train(&place, "open-clip", ALL_LAYERS);
    done(export(&place, &run, "first", &["--to", "peft", "--particle", "0"]));
    let imported = import(&place, &[place.path("first")], &[]);
    let theta = |run: &Path| tensor(&run.join("posterior.safetensors"), "theta").get(0);
    assert!(theta(&imported).equal(&theta(&run)));
    let again = importing(&place, &[place.path("first")], &[]).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", common::messages(&again));
    assert_has(&common::messages(&again), &["these particles are a run already: "]);
    assert_eq!(common::printed(&again).trim_end(), imported.display().to_string());
    let end = "visual.transformer.resblocks.1.attn.base_layer.out_proj.lora_B.weight";
    let b = tensor(&place.path("first/adapter_model.safetensors"), &format!("base_model.model.{end}"));
    let layout: Vec<Value> = serde_json::from_str(&metadata(&run.join("posterior.safetensors"))["layout"]).unwrap();
    let part = layout.iter().find(|part| part["name"] == "blocks.1.attn.proj.weight").unwrap();
    let start = part["start"].as_i64().unwrap() + 2 * 16;
    assert!((b * 2.0).reshape([-1]).equal(&theta(&run).narrow(0, start, 2 * 16)));
    std::fs::remove_file(place.path("first/head.safetensors")).unwrap();
    let line = error_line(importing(&place, &[place.path("first")], &["--force"]), 1);
    assert_has(&line, &["head.linear: the adapter has no trained classifier", "head.safetensors", "[head.zero-shot]"]);
}

#[test]
fn a_soup_leaves_and_comes_back() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "first", &["--to", "peft", "--soup"]));
    let config: Value =
        serde_json::from_slice(&std::fs::read(place.path("first/adapter_config.json")).unwrap()).unwrap();
    assert_eq!((config["r"].as_i64(), config["lora_alpha"].as_i64()), (Some(4), Some(32)));
    let imported = import(&place, &[place.path("first")], &[]);
    done(export(&place, &imported, "second", &["--to", "peft"]));
    let [first, second] = ["first", "second"].map(|side| place.path(side).join("expected.safetensors"));
    near(&tensor(&second, "logits"), &tensor(&first, "logits"));
    let mut soup = place.command("soup", &[]);
    soup.arg(&run).args(["--to", "weights", "--output"]).arg(place.path("soup"));
    done(soup);
    near(&tensor(&place.path("soup/expected.safetensors"), "logits"), &tensor(&first, "logits"));
}

#[test]
fn whole_models_give_the_same_logits() {
    let full = "subspace.full = {}";
    let cases = [
        ("timm-vit", "head", ALL_LAYERS),
        ("hf-vit", "classifier", full),
        ("hf-dinov2", "classifier", full),
        ("timm-deit3", "head", full),
        ("timm-siglip", "head", full),
    ];
    for (name, head, subspace) in cases {
        let place = Place::new();
        let run = train(&place, name, subspace);
        done(export(&place, &run, "out", &["--to", "weights"]));
        for particle in ["particle-0", "particle-1"] {
            let folder = place.path("out").join(particle);
            let part = |part: &str| tensor(&folder.join("model.safetensors"), &format!("{head}.{part}"));
            let expected = folder.join("expected.safetensors");
            let (weight, bias) = (part("weight"), part("bias"));
            let found = logits(&folder, &tensor(&expected, "pixels"), (&weight, &bias));
            near(&found, &tensor(&expected, "logits"));
            let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
            assert!(config.contains("\"9\""), "{name}: the classes are in its config: {config}");
        }
    }
}

#[test]
fn fine_tuned_models_come_in_whole_and_compressed() {
    let place = Place::new();
    let run = train(&place, "hf-vit", "subspace.full = {}");
    done(export(&place, &run, "first", &["--to", "weights"]));
    let folders = [place.path("first/particle-0"), place.path("first/particle-1")];
    let imported = import(&place, &folders, &[]);
    let theta = |run: &Path| tensor(&run.join("posterior.safetensors"), "theta");
    assert!(theta(&imported).equal(&theta(&run)), "full particles are the stored weights");
    assert_eq!(import(&place, &[place.path("first")], &["--force"]), imported, "a folder of models is all of them");
    let twice = error_line(importing(&place, &[place.path("first"), folders[0].clone()], &[]), 1);
    assert_has(&twice, &["particle-0: is given twice"]);
    std::fs::create_dir(place.path("empty")).unwrap();
    let empty = error_line(importing(&place, &[place.path("empty")], &[]), 1);
    assert_has(&empty, &["empty: holds neither an adapter (adapter_config.json) nor a model (model.safetensors)"]);
    let output = importing(&place, &folders, &["--rank", "16"]).output().unwrap();
    assert_has(&common::messages(&output), &["rank 16 leaves out", "no linear layers"]);
    let compressed = PathBuf::from(printed(&output).trim());
    done(export(&place, &compressed, "third", &["--to", "peft", "--particle", "0"]));
    // Rank 16 is that of the layers: what is lost lies in the other parameters.
    let folder = place.path("first/particle-0");
    let (full, low) = (folder.join("model.safetensors"), place.path("third/adapter_model.safetensors"));
    let name = "vit.encoder.layer.1.output.dense.weight";
    let change = tensor(&full, name) - tensor(&family("hf-vit").join("model.safetensors"), name);
    let factor = |which: &str| tensor(&low, &format!("base_model.model.vit.layers.1.mlp.fc2.lora_{which}.weight"));
    near(&factor("B").matmul(&factor("A")), &change);
}

/// Commands that follow training take an imported run like any other.
#[test]
fn an_imported_run_is_a_run() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "peft"]));
    let imported = import(&place, &[place.path("out")], &[]);
    for arguments in [&["eval", "--attack", "fgsm", "--epsilon", "0.01"][..], &["soup"], &["similarity"]] {
        let mut command = common::bella(&[arguments[0], "--device", "cpu", "--threads", "1", "--out"]);
        command.arg(place.path("imported")).arg(&imported).args(&arguments[1..]);
        done(command);
    }
    let mut merge = common::bella(&["merge", "--by", "mean", "--device", "cpu", "--threads", "1", "--out"]);
    merge.arg(place.path("imported")).args([&imported, &run]);
    done(merge);
    // Gaussians are fitted around what came in.
    let id = imported.file_name().unwrap().to_str().unwrap().to_string();
    let mut laplace = common::bella(&["train", "--device", "cpu", "--threads", "1", "--config"]);
    laplace.arg(imported.join("config.toml")).arg("--out").arg(place.path("imported"));
    laplace.args(["--set", "optimizer.adamw.lr=0.001", "--set", "method.laplace.particles=2"]);
    laplace.args(["--set", &format!("method.laplace.from=\"{id}\"")]);
    done(laplace);
    let line = error_line(
        {
            let mut command = common::bella(&["train", "--force", "--device", "cpu", "--config"]);
            command.arg(imported.join("config.toml")).arg("--out").arg(place.path("imported"));
            command
        },
        1,
    );
    assert_has(&line, &["method.imported", "`bella import`"]);
}

#[test]
fn what_cannot_leave_is_refused_in_one_line() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "peft"]));
    let cases: [(&str, &[&str], &[&str]); 5] = [
        ("out", &["--to", "weights"], &["out: holds another export (", "differs)", "--force to replace it"]),
        ("none/out", &["--to", "peft"], &["must be a new folder in a folder that can be written to"]),
        ("new", &["--to", "peft", "--for", "open-clip"], &["--for open-clip", "has timm names, which fit --for timm"]),
        ("new", &["--to", "peft", "--particle", "7"], &["--particle 7: the run has models 0 to 1"]),
        ("new", &["--to", "peft", "--draws", "3"], &["its particles are points, without draws"]),
    ];
    for (output, more, parts) in cases {
        assert_has(&error_line(export(&place, &run, output, more), 1), parts);
        assert!(!place.path("new").exists(), "nothing is half-written");
    }
    done(export(&place, &run, "out", &["--to", "weights", "--force"]));
    assert!(place.path("out/particle-1/model.safetensors").is_file());
    let other = Place::new();
    let full = train(&other, "timm-vit", "subspace.full = {}");
    assert_has(&error_line(export(&other, &full, "new", &["--to", "peft"]), 1), &["low-rank updates", "--to weights"]);
    let mut fit = place.command("train", &["method.laplace.particles=2"]);
    fit.arg("--config").arg(config(&place, "timm-vit", ALL_LAYERS));
    done(fit);
    let laplace = place.runs().into_iter().find(|run| run.to_string_lossy().contains("laplace")).unwrap();
    assert_has(
        &error_line(export(&place, &laplace, "new", &["--to", "peft"]), 1),
        &["linearised", "--draws 0", "--draws N"],
    );
    done(export(&place, &laplace, "new", &["--to", "peft", "--draws", "1"]));
    assert!(place.path("new/draw-1/adapter_config.json").is_file());
}

/// timm's forward of BEiT and EVA goes past what PEFT wraps, and no adapter holds both classifiers of a distilled DeiT.
#[test]
fn networks_past_which_adapters_go_leave_whole() {
    for (name, parts) in [
        ("timm-beit", ["q_bias", "past what PEFT wraps", "--to weights"]),
        ("timm-deit-distilled", ["distilled DeiT", "two classifiers", "--to weights"]),
    ] {
        let place = Place::new();
        let run = train(&place, name, ALL_LAYERS);
        assert_has(&error_line(export(&place, &run, "new", &["--to", "peft"]), 1), &parts);
        assert!(!place.path("new").exists(), "nothing is half-written");
        done(export(&place, &run, "whole", &["--to", "weights"]));
    }
}

#[test]
fn an_adapter_without_its_config_is_not_passed_over() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "peft"]));
    std::fs::remove_file(place.path("out/particle-0/adapter_config.json")).unwrap();
    let line = error_line(importing(&place, &[place.path("out")], &[]), 1);
    assert_has(&line, &["out/particle-0: holds weights, but neither adapter_config.json nor config.json"]);
}

#[test]
fn adapters_that_do_not_fit_are_refused_in_one_line() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "peft", "--particle", "0"]));
    let changed = |from: &str, to: &str| {
        let folder = place.path("changed");
        let _ = std::fs::remove_dir_all(&folder);
        copy(&place.path("out"), &folder);
        let path = folder.join("adapter_config.json");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
        folder
    };
    // Without the metadata, as other programs write them.
    let renamed = |change: &dyn Fn(&str, &Tensor) -> (String, Tensor)| {
        let folder = changed("LORA", "LORA");
        let path = folder.join("adapter_model.safetensors");
        let all: Vec<(String, Tensor)> = tensors(&path).iter().map(|(name, t)| change(name, t)).collect();
        Tensor::write_safetensors(&all, &path).unwrap();
        folder
    };
    let wider = |name: &str, t: &Tensor| {
        let wide = name.ends_with("lora_A.weight");
        (name.to_string(), if wide { Tensor::cat(&[t, t], 1) } else { t.shallow_clone() })
    };
    let refused = |folder: PathBuf, parts: &[&str]| {
        assert_has(&error_line(importing(&place, &[folder], &[]), 1), parts);
        assert!(!place.path("imported/runs").exists(), "nothing is half-written");
    };
    refused(changed("LORA", "IA3"), &["adapter_config.json: peft_type = IA3", "bella reads"]);
    refused(
        changed("\"use_dora\": false", "\"use_dora\": true"),
        &["use_dora = true", "has no", "lora_magnitude_vector"],
    );
    refused(changed("\"bias\": \"none\"", "\"bias\": \"all\""), &["bias = \"all\""]);
    for start in ["lora_ga", "OLoRA", "pissa_niter_4", "loftq", "corda", "unheard-of"] {
        let named = format!("\"init_lora_weights\": \"{start}\"");
        refused(changed("\"init_lora_weights\": true", &named), &[&start.to_lowercase(), "changed the base"]);
    }
    refused(
        changed("\"bias\": \"none\"", "\"bias\": \"none\", \"kasa_config\": {\"a\": 1}"),
        &["kasa_config = ", "merge"],
    );
    let damaged = |name: &str, t: &Tensor| {
        let hit = name.ends_with("blocks.0.attn.proj.lora_B.weight");
        (name.to_string(), if hit { t * f64::NAN } else { t.shallow_clone() })
    };
    refused(renamed(&damaged), &["blocks.0.attn.proj.lora_B.weight holds values that are NaN or infinite"]);
    let only_b = place.path("only-b");
    copy(&place.path("out"), &only_b);
    let path = only_b.join("adapter_model.safetensors");
    let mut kept = tensors(&path);
    kept.retain(|(name, _)| !name.ends_with("blocks.0.attn.proj.lora_A.weight"));
    Tensor::write_safetensors(&kept, &path).unwrap();
    refused(only_b, &["blocks.0.attn.proj.lora_B.weight is a B without its A"]);
    refused(changed("\"r\": 2", "\"r\": 3"), &["has rank 2, but its config says 3"]);
    let foreign = renamed(&|name, t| (name.replace("blocks", "layers"), t.shallow_clone()));
    refused(foreign, &["8 of its 8 layers match none of", "layers.0.attn", "they are called like blocks.0."]);
    refused(renamed(&wider), &["is an adapter of another network", "blocks.0.attn"]);
    let more = renamed(&|name, t| (name.replace("blocks.0.mlp.fc1.lora_A", "blocks.0.norm1"), t.shallow_clone()));
    refused(more, &["blocks.0.mlp.fc1.lora_B.weight is a B without its A"]);
    // Another checkpoint of equal shapes is known by its hash.
    let other = place.path("other");
    copy(&family("timm-vit"), &other);
    std::fs::remove_file(other.join("reference.safetensors")).unwrap();
    let mut weights = tensors(&other.join("model.safetensors"));
    weights[0].1 = &weights[0].1 * 2.0;
    Tensor::write_safetensors(&weights, other.join("model.safetensors")).unwrap();
    let set = format!("checkpoint.path={:?}", other.display().to_string());
    let line = error_line(importing(&place, &[place.path("out")], &["--set", &set]), 1);
    assert_has(&line, &["is an adapter of another checkpoint than", "its SHA-256 was"]);
    // Its classifier needs columns of its own.
    let line = error_line(importing(&place, &[place.path("out")], &["--set", "head.checkpoint={}"]), 1);
    assert_has(&line, &["head.checkpoint"]);
}

/// rsLoRA, ranks of single layers and adapters of some attention parts, as PEFT writes them.
#[test]
fn ranks_and_factors_of_single_layers_are_kept() {
    let place = Place::new();
    config(&place, "hf-vit", "");
    let folder = place.path("adapter");
    std::fs::create_dir_all(&folder).unwrap();
    tch::manual_seed(4);
    let random = |rows: i64, columns: i64| Tensor::randn([rows, columns], (Kind::Float, tch::Device::Cpu)) * 0.1;
    let root = "base_model.model.vit";
    let modules = [
        ("encoder.layer.0.attention.attention.query", 2, 16, 16),
        ("encoder.layer.0.attention.attention.value", 3, 16, 16),
        ("layers.1.mlp.fc1", 4, 16, 32),
    ];
    let mut all = vec![
        ("base_model.model.classifier.weight".to_string(), random(10, 16)),
        ("base_model.model.classifier.bias".to_string(), random(10, 1).squeeze_dim(1)),
    ];
    for (path, rank, inputs, outputs) in modules {
        all.push((format!("{root}.{path}.lora_A.weight"), random(rank, inputs)));
        all.push((format!("{root}.{path}.lora_B.weight"), random(outputs, rank)));
    }
    Tensor::write_safetensors(&all, folder.join("adapter_model.safetensors")).unwrap();
    let text = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_rslora": true, "target_modules": ["query"],
        "rank_pattern": {"attention.value": 3, "mlp.fc1": 4}, "alpha_pattern": {"fc1": 8}}"#;
    std::fs::write(folder.join("adapter_config.json"), text).unwrap();
    let imported = import(&place, std::slice::from_ref(&folder), &[]);
    done(export(&place, &imported, "out", &["--to", "weights"]));
    let stored = |folder: &Path, name: &str| tensor(&folder.join("model.safetensors"), name);
    let factors =
        [("attention.attention.query", 0, 4.0 / 2f64.sqrt()), ("attention.attention.value", 1, 4.0 / 3f64.sqrt())];
    for (layer, index, scale) in factors {
        let name = format!("vit.encoder.layer.0.{layer}.weight");
        let update = all[3 + 2 * index].1.matmul(&all[2 + 2 * index].1) * scale;
        near(&stored(&place.path("out"), &name), &(stored(&family("hf-vit"), &name) + update));
    }
    let name = "vit.encoder.layer.1.intermediate.dense.weight";
    let update = all[7].1.matmul(&all[6].1) * (8.0 / 4f64.sqrt());
    near(&stored(&place.path("out"), name), &(stored(&family("hf-vit"), name) + update));
    let key = "vit.encoder.layer.0.attention.attention.key.weight";
    assert!(stored(&place.path("out"), key).equal(&stored(&family("hf-vit"), key)));
}

#[test]
fn a_posterior_leaves_as_one_archive() {
    let full = "subspace.full = {}";
    let cases = [("timm-vit", ALL_LAYERS), ("hf-siglip", full), ("hf-dinov3", full)];
    cases.into_iter().for_each(|(name, subspace)| archive_of_all(name, subspace));
}

#[test]
fn a_posterior_with_rotary_or_relative_positions_leaves_as_one_archive() {
    archive_of_all("timm-eva02", "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"mlp.gate\"] }");
    archive_of_all("timm-beit", "subspace.full = {}");
}

/// The outputs of an archive: logits, mean probabilities and mutual information.
fn outputs(archive: &Path, input: &Tensor) -> [Tensor; 3] {
    let module = tch::CModule::load(archive).unwrap();
    let output = module.method_is("forward", &[tch::IValue::Tensor(input.shallow_clone())]).unwrap();
    let tch::IValue::Tuple(parts) = output else { panic!("no tuple") };
    let parts: Vec<Tensor> = parts.into_iter().map(|part| Tensor::try_from(part).unwrap()).collect();
    parts.try_into().unwrap()
}

/// One archive with all particles gives their logits for any number of images, the mean probabilities and the mutual information.
fn archive_of_all(name: &str, subspace: &str) {
    let place = Place::new();
    let run = train(&place, name, subspace);
    done(export(&place, &run, "out", &["--to", "torchscript"]));
    let (expected, archive) = (place.path("out/expected.safetensors"), place.path("out/posterior.pt"));
    let (pixels, logits) = (tensor(&expected, "pixels"), tensor(&expected, "logits"));
    let parts = outputs(&archive, &pixels);
    near(&parts[0], &logits);
    assert_eq!((parts[0].size(), parts[2].size()), (vec![2, 4, 10], vec![4]));
    averages(&parts, &logits, &[1.0, 1.0]);
    let many = Tensor::cat(&[&pixels, &pixels.narrow(0, 0, 3)], 0);
    near(&outputs(&archive, &many)[0].narrow(1, 4, 3), &logits.narrow(1, 0, 3));
    near(&outputs(&archive, &pixels.narrow(0, 1, 1))[0], &logits.narrow(1, 1, 1));
}

/// The mean probabilities and the mutual information are those of the logits `[m, B, C]` with the members' weights.
fn averages([_, probabilities, information]: &[Tensor; 3], logits: &Tensor, weights: &[f64]) {
    let (members, samples, classes) = logits.size3().unwrap();
    let shares = Tensor::from_slice(weights).to_kind(Kind::Float).view([-1, 1, 1]) / weights.iter().sum::<f64>();
    near(
        probabilities,
        &(logits.softmax(-1, Kind::Float) * shares).sum_dim_intlist([0i64].as_slice(), false, Kind::Float),
    );
    let shape = [members, samples, classes].map(|size| size as usize);
    let shape = bella::predictions::Shape { members: shape[0], samples: shape[1], classes: shape[2] };
    let values = Vec::<f32>::try_from(&logits.reshape([-1])).unwrap();
    let predictions = bella::predictions::Predictions::unlabelled(shape, values).unwrap();
    let predictions = predictions.with_weights(weights.to_vec()).unwrap();
    let spread = bella::metrics::Uncertainty::compute(&predictions).unwrap().spread.unwrap();
    for (image, expected) in spread.mutual_information.iter().enumerate() {
        let difference = (information.double_value(&[image as i64]) - expected).abs();
        assert!(difference < 1e-5, "{weights:?}: {difference:.1e}");
    }
}

/// Draws that do not weigh the same keep their weights in the archive.
#[test]
fn weighted_draws_leave_with_their_weights() {
    let place = Place::new();
    let method =
        "method.sgld = { lr = 0.05, ess = 24, start = 1, every = 1, weights = \"step-size\" }\noptimizer.none = {}";
    let text = std::fs::read_to_string(config(&place, "timm-vit", &format!("{ALL_LAYERS}\n{method}"))).unwrap();
    let text = text
        .replace("optimizer.adamw.lr = 1e-2\n", "")
        .replace("batch_size = 8", "batch_size = 8, select = \"last-epoch\"");
    let mut command = place.command("train", &[]);
    command.arg("--config").arg(place.write("x.toml", text.as_bytes()));
    done(command);
    let run = place.run();
    done(export(&place, &run, "out", &["--to", "torchscript"]));
    let (expected, archive) = (place.path("out/expected.safetensors"), place.path("out/posterior.pt"));
    let stored = tensor(&run.join("posterior.safetensors"), "weights");
    let weights = Vec::<f64>::try_from(&stored.to_kind(Kind::Double)).unwrap();
    assert!(weights.iter().any(|weight| (weight - weights[0]).abs() > 1e-3), "{weights:?}");
    averages(&outputs(&archive, &tensor(&expected, "pixels")), &tensor(&expected, "logits"), &weights);
}

/// Bytes of another size go in where the preprocessing is in the file; numbers in half precision give nearly the same.
#[test]
fn an_archive_prepares_images_and_has_other_numbers() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "torchscript", "--preprocess", "--particle", "1"]));
    let (expected, archive) = (place.path("out/expected.safetensors"), place.path("out/posterior.pt"));
    let images = tensor(&expected, "images");
    assert_eq!((images.kind(), images.size()), (Kind::Uint8, vec![4, 3, 32, 24]));
    let one = tensor(&expected, "logits");
    near(&outputs(&archive, &images)[0], &one);
    assert_eq!(outputs(&archive, &images)[2].abs().max().double_value(&[]), 0.0, "one member has no spread");
    done(export(&place, &run, "out", &["--to", "torchscript", "--as", "bf16", "--force"]));
    let [logits, ..] = outputs(&archive, &tensor(&expected, "pixels"));
    let difference = (&logits - tensor(&expected, "logits")).abs().max().double_value(&[]);
    assert!((1e-4..0.2).contains(&difference), "{difference}");
    let refused = error_line(export(&place, &run, "new", &["--to", "peft", "--as", "f16"]), 2);
    assert_has(&refused, &["--as: is for --to torchscript and --to onnx"]);
    let refused = error_line(export(&place, &run, "new", &["--to", "onnx", "--for", "timm"]), 2);
    assert_has(&refused, &["--for: onnx needs no package"]);
}

/// A module leaves as its own archive; it has a classifier, which is the trained one then.
#[test]
fn a_module_leaves_as_its_own_archive() {
    for subspace in ["full = {}", "low-rank = { rank = 2, targets = [\"linear\", \"pointwise\"] }"] {
        let place = Place::new();
        let text = format!(
            "name = \"tiny\"\nseed = 1\ncheckpoint = {{ path = {:?}, kind = \"module\", image_size = 8, normalize = \"imagenet\" }}\n\
             head.linear = {{}}\ndata.digits.subset = {{ train = 24, test = 20 }}\noptimizer.adamw.lr = 1e-2\n\
             train = {{ epochs = 1, batch_size = 8 }}\nmethod.svgd = {{ particles = 2, gamma = 0.01 }}\nsubspace.{subspace}\n",
            fixture("module/residual.pt")
        );
        let mut command = place.command("train", &[]);
        command.arg("--config").arg(place.write("x.toml", text.as_bytes()));
        done(command);
        done(export(&place, &place.run(), "out", &["--to", "weights", "--particle", "1"]));
        let expected = place.path("out/expected.safetensors");
        let module = tch::CModule::load(place.path("out/model.pt")).unwrap();
        let found = tch::no_grad(|| module.forward_ts(&[tensor(&expected, "pixels")]).unwrap());
        near(&found, &tensor(&expected, "logits"));
        let line = error_line(export(&place, &place.run(), "new", &["--to", "onnx"]), 1);
        assert_has(&line, &["a module (checkpoint.kind = \"module\") leaves by --to weights alone"]);
    }
}

/// A card says what the run is, what was measured, and how to load it, and names no folder of this machine.
#[test]
fn a_model_card_lies_beside_an_export() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "onnx", "--particle", "1", "--card"]));
    let card = std::fs::read_to_string(place.path("out/README.md")).unwrap();
    let id = run.file_name().unwrap().to_str().unwrap().to_string();
    let parts = [
        "license:\n",
        "2 particles of `timm-vit` for 10 classes",
        &format!("Run `{id}`"),
        "This is particle 1; the numbers below are those of all particles",
        "| digits | clean |",
        "`bella eval --calibrate`",
        "method.svgd.gamma = 0.01",
        "onnxruntime.InferenceSession(\"posterior.onnx\")",
    ];
    assert_has(&card, &parts);
    assert!(!card.contains(place.path("out").to_str().unwrap()) && !card.contains("fixtures"), "{card}");
    let mut print = place.command("export", &[]);
    print.arg(&run).arg("--card");
    assert_has(&printed(&print.output().unwrap()), &["# tiny", "## Training", "## Loading"]);
}

/// The checker of ONNX and ONNX Runtime read the graph in scripts/compare_exports.py; here, that it is written whole.
#[test]
fn a_posterior_leaves_as_one_graph() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    let output = export(&place, &run, "out", &["--to", "onnx"]).output().unwrap();
    assert!(output.status.success(), "{}", common::messages(&output));
    assert_has(&printed(&output), &["onnxruntime.InferenceSession(", "{\"pixels\": expected[\"pixels\"]}"]);
    let bytes = std::fs::read(place.path("out/posterior.onnx")).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    for text in ["blocks.1.mlp.fc.A", "mutual_information", "LayerNormalization", "[\"particle-0\",\"particle-1\"]"] {
        assert!(has(text), "{text}");
    }
    assert_eq!(tensor(&place.path("out/expected.safetensors"), "logits").size(), [2, 4, 10]);
}

/// A TorchScript archive is written again with its own code.
#[test]
fn an_archive_leaves_as_an_archive() {
    let place = Place::new();
    let path = format!("checkpoint.path = {:?}", fixture("openai_clip.pt"));
    let text =
        std::fs::read_to_string(config(&place, "timm-vit", &format!("{ALL_LAYERS}\nmethod.map = {{}}"))).unwrap();
    let start = text.find("checkpoint = ").unwrap();
    let end = start + text[start..].find('\n').unwrap();
    place.write(
        "x.toml",
        format!("{}{path}\ncheckpoint.normalize = \"clip\"{}", &text[..start], &text[end..]).as_bytes(),
    );
    let mut command = place.command("train", &[]);
    command.arg("--config").arg(place.path("x.toml"));
    done(command);
    let output = export(&place, &place.run(), "out", &["--to", "weights"]).output().unwrap();
    assert_has(&printed(&output), &["torch.jit.load(", "output = model.encode_image(pixels)"]);
    let [expected, head] = ["expected", "head"].map(|name| place.path("out").join(format!("{name}.safetensors")));
    let module = tch::CModule::load(place.path("out/model.pt")).unwrap();
    let pixels = tensor(&expected, "pixels");
    let features = module.method_ts("encode_image", &[pixels]).unwrap();
    let found = features.detach().linear(&tensor(&head, "weight"), Some(&tensor(&head, "bias")));
    near(&found, &tensor(&expected, "logits"));
}
