//! Folders that are refused.

use super::*;

/// Why a folder is refused.
fn refusal(folder: &Path) -> String {
    format!("{:#}", folder::identify(folder, &Fixed::default()).err().expect("it is refused"))
}

/// Rewrites the weights of a folder.
fn tensors(folder: &Path, change: impl Fn(&mut Vec<(String, Tensor)>)) {
    let path = folder.join("model.safetensors");
    let mut all = Tensor::read_safetensors(&path).unwrap();
    change(&mut all);
    Tensor::write_safetensors(&all, &path).unwrap();
}

/// Takes the config away and puts these tensors in place of the weights.
fn looks(names: &'static [&'static str]) -> Box<dyn Fn(&Path)> {
    Box::new(move |at| {
        std::fs::remove_file(at.join("config.json")).unwrap();
        tensors(at, |all| {
            let kind = |name: &str| if name.contains("tracked") { Kind::Int64 } else { Kind::Float };
            *all = names
                .iter()
                .map(|name| (name.to_string(), Tensor::zeros([1], (kind(name), tch::Device::Cpu))))
                .collect();
        });
    })
}

/// timm's architecture is held against the weights, so that heads of another network are not taken for theirs.
#[test]
fn an_architecture_of_other_sizes_is_refused() {
    let fixed = |name: &str| Fixed { architecture: Some(name.into()), ..Fixed::default() };
    let place = Place::new();
    let without = changed(&place, "timm-vit", |at| std::fs::remove_file(at.join("config.json")).unwrap());
    let error = folder::identify(&without, &fixed("vit_base_patch16_224")).err().unwrap();
    assert_has(&format!("{error:#}"), &["width 768 belongs to the architecture vit_base_patch16_224", "have 16"]);
    let deeper = changed(&place, "timm-vit", |at| text(at, "config.json", "\"depth\": 2", "\"depth\": 12"));
    assert_has(&refusal(&deeper), &["blocks 12 belongs to the architecture vit_base_patch16_224", "have 2"]);
}

#[test]
fn folders_that_do_not_fit_are_refused_in_one_line() {
    let place = Place::new();
    type Change = Box<dyn Fn(&Path)>;
    let remove = |name: &'static str| -> Change { Box::new(move |at| std::fs::remove_file(at.join(name)).unwrap()) };
    let cases: Vec<(Change, &[&str])> = vec![
        (
            remove("config.json"),
            &["has no config.json", "of width 16, 2 blocks and patch 4", "checkpoint.architecture", "checkpoint.eps"],
        ),
        (remove("model.safetensors"), &["has no model.safetensors", "put the publisher's model.safetensors there"]),
        (
            Box::new(|at| std::fs::rename(at.join("model.safetensors"), at.join("best.safetensors")).unwrap()),
            &["has no model.safetensors", "best.safetensors is what you mean, set checkpoint.path to it"],
        ),
        (
            Box::new(|at| {
                std::fs::remove_file(at.join("model.safetensors")).unwrap();
                std::fs::write(at.join("adapter_config.json"), "{}").unwrap();
            }),
            &["is a PEFT adapter, which `bella import` reads"],
        ),
        (
            looks(&["layer1.0.conv1.weight"]),
            &["has no config.json", "look like a ResNet's", "export_torchscript.py timm"],
        ),
        (looks(&["layers.0.blocks.0.attn.qkv.weight"]), &["look like a Swin transformer's", "kind = \"module\""]),
        (looks(&["stages.0.blocks.0.conv_dw.weight"]), &["look like a ConvNeXt's", "kind = \"module\""]),
        (
            looks(&["conv.weight", "bn.running_mean", "bn.num_batches_tracked"]),
            &["look like a convolutional network's"],
        ),
        (looks(&["base_model.model.q.lora_A.weight"]), &["look like a PEFT adapter", "`bella import`"]),
        (looks(&["model.embed_tokens.weight"]), &["look like a language model's"]),
        (looks(&["encoder.weight"]), &["its parameters are encoder.weight", "export_torchscript.py"]),
        (
            Box::new(|at| std::fs::rename(at.join("model.safetensors"), at.join("pytorch_model.bin")).unwrap()),
            &["pytorch_model.bin: is no file of tensors that torch wrote"],
        ),
        (
            Box::new(|at| {
                std::fs::remove_file(at.join("model.safetensors")).unwrap();
                let index = "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}";
                std::fs::write(at.join("model.safetensors.index.json"), index).unwrap();
            }),
            &["names model-00001-of-00002.safetensors, which is missing"],
        ),
        (
            Box::new(|at| {
                std::fs::rename(at.join("model.safetensors"), at.join("a.safetensors")).unwrap();
                std::fs::write(at.join("model.safetensors.index.json"), "{\"weight_map\": {\"x\": \"a.safetensors\"}}")
                    .unwrap();
            }),
            &["a.safetensors: has `classifier.bias`, against what", "model.safetensors.index.json says"],
        ),
        (
            Box::new(|at| {
                std::fs::remove_file(at.join("model.safetensors")).unwrap();
                let index = "{\"weight_map\": {\"x\": \"../a.safetensors\"}}";
                std::fs::write(at.join("model.safetensors.index.json"), index).unwrap();
            }),
            &["names ../a.safetensors, which is no file beside it"],
        ),
        (
            Box::new(|at| tensors(at, |all| all.retain(|(name, _)| !name.contains("layer.1.output.dense.bias")))),
            &["it lacks the parameter that bella calls blocks.1.mlp.proj.bias"],
        ),
        (
            Box::new(|at| {
                tensors(at, |all| all.push(("vit.extra.weight".into(), Tensor::zeros([1], tch::kind::FLOAT_CPU))))
            }),
            &["it also has vit.extra.weight"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"model_type\": \"vit\"", "\"model_type\": \"swin\"")),
            &["model_type = \"swin\" is none that bella reads; known: vit, deit"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"hidden_size\": 16", "\"hidden_size\": 32")),
            &["config.json says hidden_size = 32, but the weights have 16"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu6\"")),
            &["hidden_act = \"relu6\" is none that bella computes"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"num_attention_heads\": 2", "\"num_attention_heads\": 4")),
            &["the native features differ from it by", "reference.safetensors"],
        ),
        (
            Box::new(|at| tensors(at, |all| all[0].1 = all[0].1.to_kind(Kind::Int8))),
            &["is stored as I8", "not quantised"],
        ),
        (
            // The same bytes, declared as numbers of eight bits.
            Box::new(|at| {
                tensors(at, |all| all.iter_mut().for_each(|(_, t)| *t = t.to_kind(Kind::Uint8)));
                let bytes = std::fs::read(at.join("model.safetensors")).unwrap();
                let text = unsafe { String::from_utf8_unchecked(bytes) }.replace("\"U8\"", "\"F8\"");
                std::fs::write(at.join("model.safetensors"), text.as_bytes()).unwrap();
            }),
            &["is stored as F8", "unquantised weights"],
        ),
        (
            Box::new(|at| {
                tensors(at, |all| {
                    let (_, position) = all.iter_mut().find(|(name, _)| name.ends_with("position_embeddings")).unwrap();
                    *position = position.narrow(2, 0, 8).contiguous();
                })
            }),
            &["its position has shape [17, 8], not [17, 16]"],
        ),
        (
            Box::new(|at| text(at, "config.json", "\"patch_size\": 4", "\"patch_size\": [4, 8]")),
            &["patch_size: must be the side of a square"],
        ),
        (
            Box::new(|at| std::fs::write(at.join("model.safetensors"), b"x").unwrap()),
            &["not a readable safetensors file"],
        ),
    ];
    let classifier = |at: &Path| {
        tensors(at, |all| {
            all.push(("classifier.weight".into(), Tensor::zeros([3, 16], tch::kind::FLOAT_CPU)));
            all.push(("classifier.bias".into(), Tensor::zeros([3], tch::kind::FLOAT_CPU)));
        });
    };
    let folder = changed(&place, "hf-siglip", classifier);
    let line = error_line(common::bella(&["inspect", folder.to_str().unwrap()]), 1);
    assert_has(&line, &["the classifier of a siglip_vision_model", "[head.linear]"]);
    for (change, parts) in cases {
        let folder = changed(&place, "hf-vit", change);
        let line = refusal(&folder);
        assert_has(&line, parts);
        assert!(!line.contains('\n'), "{line}");
    }
}

/// The config says how the weights are quantised, before a tensor is looked at.
#[test]
fn quantised_folders_are_refused_by_the_name_of_their_method() {
    let place = Place::new();
    for (name, first) in [("hf-vit", "\"architectures\""), ("hf-clip-both", "\"architectures\"")] {
        let how =
            format!("\"quantization_config\": {{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}}, {first}");
        let folder = changed(&place, name, |at| text(at, "config.json", first, &how));
        let parts =
            ["quantization_config.quant_method = \"bitsandbytes\"", "unquantised folder", "checkpoint.quantize"];
        assert_has(&refusal(&folder), &parts);
    }
}

#[test]
fn files_of_a_folder_that_cannot_be_read_are_no_missing_ones() {
    let place = Place::new();
    for file in std::fs::read_dir(family("hf-vit")).unwrap().map(|entry| entry.unwrap().path()) {
        place.write(&format!("vit/{}", file.file_name().unwrap().display()), &std::fs::read(&file).unwrap());
    }
    let folder = place.path("vit");
    let inspect = || common::bella(&["inspect", folder.to_str().unwrap()]);
    done(inspect());
    place.write("vit/preprocessor_config.json", b"{");
    assert_has(&error_line(inspect(), 1), &["vit/preprocessor_config.json: no JSON"]);
    for name in ["preprocessor_config.json", "config.json"] {
        let file = folder.join(name);
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("nowhere", &file).unwrap();
        assert_has(&error_line(inspect(), 1), &[&format!("vit/{name}: cannot read"), "No such file"]);
    }
}
