//! Adapters leave for PEFT and come back.

use super::*;

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
        alike(&expected("again"), &expected("archive"), "logits");
        let [logits, ..] = outputs(
            &place.path("archive/posterior.pt"),
            &tensor(&place.path("archive/expected.safetensors"), "pixels"),
        );
        alike(&logits, &expected("archive"), "logits");
    }
}

/// PEFT wraps both layers of an `nn.MultiheadAttention`, with one rank and one alpha.
#[test]
fn layers_of_one_attention_leave_with_one_alpha() {
    let place = Place::new();
    let patterns = "rank = 3, alpha = 5, rank_pattern = [\"attn.proj=1\"], alpha_pattern = [\"attn.qkv=9\"],";
    let run = train(&place, "open-clip", &ALL_LAYERS.replace("rank = 2,", patterns));
    done(export(&place, &run, "adapters", &["--to", "peft"]));
    done(export(&place, &run, "archive", &["--to", "torchscript"]));
    let imported = import(&place, &[place.path("adapters")], &[]);
    done(export(&place, &imported, "again", &["--to", "torchscript"]));
    let expected = |folder: &str| tensor(&place.path(folder).join("expected.safetensors"), "logits");
    alike(&expected("again"), &expected("archive"), "logits");
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
    alike(&tensor(&second, "logits"), &tensor(&first, "logits"), "logits");
    let mut soup = place.command("soup", &[]);
    soup.arg(&run).args(["--to", "weights", "--output"]).arg(place.path("soup"));
    done(soup);
    alike(&tensor(&place.path("soup/expected.safetensors"), "logits"), &tensor(&first, "logits"), "the soup");
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
    // Where layers have no biases, `bias` says nothing; the tensors do.
    let biased = changed("\"bias\": \"none\"", "\"bias\": \"all\"").join("adapter_model.safetensors");
    let mut all = tensors(&biased);
    let name = "base_model.model.blocks.0.attn.proj.base_layer.bias".to_string();
    all.push((name, Tensor::zeros([16], tch::kind::FLOAT_CPU)));
    Tensor::write_safetensors(&all, &biased).unwrap();
    let named = "holds another base_model.model.blocks.0.attn.proj.base_layer.bias than";
    refused(place.path("changed"), &[named, "has also trained that", "merge_and_unload"]);
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
        // Together with those of queries more than the layer has inputs.
        ("encoder.layer.0.attention.attention.value", 20, 16, 16),
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
        "rank_pattern": {"attention.value": 20, "mlp.fc1": 4}, "alpha_pattern": {"fc1": 8}}"#;
    std::fs::write(folder.join("adapter_config.json"), text).unwrap();
    let imported = import(&place, std::slice::from_ref(&folder), &[]);
    done(export(&place, &imported, "out", &["--to", "weights"]));
    let stored = |folder: &Path, name: &str| tensor(&folder.join("model.safetensors"), name);
    let factors =
        [("attention.attention.query", 0, 4.0 / 2f64.sqrt()), ("attention.attention.value", 1, 4.0 / 20f64.sqrt())];
    for (layer, index, scale) in factors {
        let name = format!("vit.encoder.layer.0.{layer}.weight");
        let update = all[3 + 2 * index].1.matmul(&all[2 + 2 * index].1) * scale;
        alike(&stored(&place.path("out"), &name), &(stored(&family("hf-vit"), &name) + update), &name);
    }
    let name = "vit.encoder.layer.1.intermediate.dense.weight";
    let update = all[7].1.matmul(&all[6].1) * (8.0 / 4f64.sqrt());
    alike(&stored(&place.path("out"), name), &(stored(&family("hf-vit"), name) + update), name);
    let key = "vit.encoder.layer.0.attention.attention.key.weight";
    assert!(stored(&place.path("out"), key).equal(&stored(&family("hf-vit"), key)));
}
