//! Whole models leave and come in, and files say what they hold.

use super::*;
use crate::common::messages;

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
        alike(&found, &tensor(&expected, "logits"), "logits");
        let checkpoint: Value = serde_json::from_str(&about["checkpoint"]).unwrap();
        assert_eq!(checkpoint["name"], name);
        assert_eq!((about["method"].as_str(), about["subspace"].as_str()), ("svgd", "low-rank"));
        assert_has(&about["preprocessing"], &["\"image_size\":16", "0.485"]);
        assert_eq!(serde_json::from_str::<Vec<String>>(&about["classes"]).unwrap().len(), 10);
    }
}

#[test]
fn whole_models_give_the_same_logits() {
    let full = "subspace.full = {}";
    // A gate and its factor are one stored tensor, of which either may be trained.
    let [gate, factor] = [
        "subspace.low-rank = { rank = 2, targets = [\"mlp.gate\"] }",
        "subspace.low-rank = { rank = 2, targets = [\"mlp.fc\"] }",
    ];
    let cases = [
        ("timm-vit", "head", ALL_LAYERS),
        ("timm-dinov2-gated", "head", gate),
        ("timm-dinov2-gated", "head", factor),
        ("hf-dinov2-swiglu", "classifier", gate),
        ("hf-dinov2-swiglu", "classifier", factor),
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
            alike(&found, &tensor(&expected, "logits"), "logits");
            let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
            assert!(config.contains("\"9\""), "{name}: the classes are in its config: {config}");
        }
    }
}

/// An index may name any files, also one that is called as the file of a head is, and every one of them leaves.
#[test]
fn shards_leave_whatever_their_names_are() {
    let place = Place::new();
    let folder = place.path("hf-vit");
    copy(&family("hf-vit"), &folder);
    std::fs::remove_file(folder.join("reference.safetensors")).unwrap();
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    let all = tensors(&family("hf-vit").join("model.safetensors"));
    let files = ["part-a.safetensors", "head.safetensors", "part-b.safetensors"];
    let mut map = serde_json::Map::new();
    for (file, part) in files.iter().zip(all.chunks(all.len().div_ceil(3))) {
        Tensor::write_safetensors(part, folder.join(file)).unwrap();
        map.extend(part.iter().map(|(name, _)| (name.clone(), json!(file))));
    }
    let index = json!({ "metadata": {}, "weight_map": map }).to_string();
    std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    let run = train(&place, folder.to_str().unwrap(), ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "weights", "--particle", "0"]));
    let out = place.path("out");
    let written: Value =
        serde_json::from_slice(&std::fs::read(out.join("model.safetensors.index.json")).unwrap()).unwrap();
    for (name, old) in &all {
        let file = written["weight_map"][name].as_str().unwrap();
        assert!(name.starts_with("classifier.") || tensor(&out.join(file), name).size() == old.size(), "{name}");
    }
    let head = ["weight", "bias"].map(|part| {
        let name = format!("classifier.{part}");
        tensor(&out.join(written["weight_map"][&name].as_str().unwrap()), &name)
    });
    let expected = out.join("expected.safetensors");
    let found = logits(&out, &tensor(&expected, "pixels"), (&head[0], &head[1]));
    alike(&found, &tensor(&expected, "logits"), "logits");
}

/// Other programs prepare images as the run did, whatever the checkpoint's folder asks for, and find no other weights beside the merged ones.
#[test]
fn whole_models_prepare_images_as_the_run_did() {
    let place = Place::new();
    let sizes = Sizes { classes: 3, present: 3, train: 24, val: 0, test: 20, side: 16, corruptions: 0 };
    common::small_set(&place, "images", "image-folder", &sizes);
    let of_run = |name: &str, resize: &str| {
        let folder = place.path(name);
        copy(&family(name), &folder);
        let text = std::fs::read_to_string(config(&place, name, ALL_LAYERS)).unwrap();
        let data = format!("data.image-folder = {{ root = {:?}, resize = {resize:?} }}", place.path("images"));
        let text =
            text.replace(&format!("{:?}", family(name)), &format!("{folder:?}, image_size = 16, crop_pct = 0.8"));
        let text = text.replace("data.digits.subset = { train = 24, test = 20 }", &data);
        place.write("x.toml", (text + "method.map = {}\n").as_bytes());
        let size = json!({ "height": 99, "width": 99 });
        let asked = json!({ "image_processor_type": "ViTImageProcessor", "size": size, "rescale_factor": 2.0 / 255.0 });
        std::fs::write(folder.join("processor_config.json"), json!({ "image_processor": asked }).to_string()).unwrap();
        for other in ["tf_model.h5", "flax_model.msgpack", "vocab.txt"] {
            std::fs::write(folder.join(other), "x").unwrap();
        }
        std::fs::remove_dir_all(place.path("results")).ok();
        let mut command = place.command("train", &[]);
        command.arg("--config").arg(place.path("x.toml"));
        done(command);
        done(export(&place, &place.run(), "out", &["--to", "weights", "--force"]));
        let others =
            ["tf_model.h5", "flax_model.msgpack", "vocab.txt"].map(|name| place.path("out").join(name).exists());
        assert_eq!(others, [false, false, true]);
    };
    let read = |file: &str| -> Value {
        serde_json::from_slice(&std::fs::read(place.path("out").join(file)).unwrap()).unwrap()
    };
    of_run("hf-vit", "shorter-side-crop");
    let written = read("preprocessor_config.json");
    assert_eq!(written["image_processor_type"], "CLIPImageProcessor", "one that cuts out the centre");
    assert_eq!(written["size"], json!({ "shortest_edge": 20 }));
    assert_eq!(written["rescale_factor"], json!(1.0 / 255.0), "the factor to which mean and deviation belong");
    assert_eq!((&written["do_center_crop"], &written["crop_size"]["width"]), (&json!(true), &json!(16)));
    assert_eq!(read("processor_config.json")["image_processor"], written, "transformers 5 reads this one");
    of_run("hf-vit", "stretch");
    assert_eq!(read("preprocessor_config.json")["size"], json!({ "height": 20, "width": 20 }));
    for (resize, mode) in [("shorter-side-crop", "center"), ("stretch", "squash")] {
        of_run("timm-vit", resize);
        assert_eq!(read("config.json")["pretrained_cfg"]["crop_mode"], mode);
    }
    for (resize, mode) in [("shorter-side-crop", "shortest"), ("stretch", "squash")] {
        of_run("open-clip", resize);
        assert_eq!(read("open_clip_config.json")["preprocess_cfg"]["resize_mode"], mode);
    }
}

/// timm builds the network for `model_args.img_size`, which may be a height and a width: at another size its weights would not fit. Where
/// the arguments have none, it builds it for the architecture's size, here 224, whatever else the config says.
#[test]
fn the_size_of_timms_arguments_is_that_of_the_positions() {
    let exported = |replaced: &str, more: &str| {
        let place = Place::new();
        let folder = place.path("timm-vit");
        copy(&family("timm-vit"), &folder);
        std::fs::remove_file(folder.join("reference.safetensors")).unwrap();
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let changed = text.replace("\"img_size\": 16,", replaced);
        assert_ne!(changed, text);
        std::fs::write(folder.join("config.json"), changed).unwrap();
        let text = std::fs::read_to_string(config(&place, "timm-vit", "subspace.full = {}")).unwrap();
        let text = text.replace(&format!("{:?}", family("timm-vit")), &format!("{folder:?}{more}"));
        place.write("x.toml", (text + "method.map = {}\n").as_bytes());
        let mut command = place.command("train", &[]);
        command.arg("--config").arg(place.path("x.toml"));
        done(command);
        done(export(&place, &place.run(), "out", &["--to", "weights"]));
        let written: Value = serde_json::from_slice(&std::fs::read(place.path("out/config.json")).unwrap()).unwrap();
        (written, tensor(&place.path("out/model.safetensors"), "pos_embed").size())
    };
    let (written, positions) = exported("\"img_size\": [16, 16],", ", image_size = 24");
    assert_eq!(written["model_args"]["img_size"], json!([24, 24]));
    assert_eq!(positions, [1, 37, 16]);
    let (written, positions) = exported("", "");
    assert_eq!(written["model_args"]["img_size"], json!(16));
    assert_eq!(positions, [1, 17, 16]);
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
    let inner = folders[0].join("second");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("adapter_config.json"), "{}").unwrap();
    let warned = messages(&importing(&place, &folders, &["--force"]).output().unwrap());
    assert_has(&warned, &["particle-0: is read alone; the folders second in it are adapters or models, too"]);
    std::fs::remove_dir_all(&inner).unwrap();
    std::fs::create_dir(place.path("empty")).unwrap();
    let empty = error_line(importing(&place, &[place.path("empty")], &[]), 1);
    assert_has(&empty, &["empty: holds neither an adapter (adapter_config.json) nor a model (model.safetensors)"]);
    std::fs::create_dir(place.path("exported")).unwrap();
    place.write("exported/posterior.onnx", b"");
    for path in ["exported", "exported/posterior.onnx"] {
        let program = error_line(importing(&place, &[place.path(path)], &[]), 1);
        assert_has(&program, &["posterior.onnx: is a program with merged weights, whose particles do not come in"]);
    }
    let file = error_line(importing(&place, &[folders[0].join("config.json")], &[]), 1);
    assert_has(&file, &["config.json: is a file: name the folder that holds it"]);
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
    alike(&factor("B").matmul(&factor("A")), &change, name);
}

/// A run that was trained in a number type which this machine lacks is computed in f32, and only who asks for the type is refused.
#[test]
fn a_run_of_another_machines_precision_is_computed_in_f32() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    done(export(&place, &run, "out", &["--to", "peft"]));
    let imported = import(&place, &[place.path("out")], &["--set", "train.precision=f16"]);
    let follow = |name: &str| {
        let mut command = common::bella(&[name, "--device", "cpu", "--threads", "1", "--out"]);
        command.arg(place.path("imported")).arg(&imported);
        command
    };
    let output = follow("eval").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["computing in f32", "train.precision = \"f16\""]);
    let results = ::bella::results::store::read(&imported.join("metrics.csv")).unwrap();
    assert_eq!(results.get(0, "precision"), Some("f32"));
    for name in ["soup", "similarity"] {
        done(follow(name));
    }
    for (asked, value) in [("--precision", "f16"), ("--set", "train.precision=f16")] {
        let mut command = follow("eval");
        command.args([asked, value]);
        assert_has(&error_line(command, 1), &["precision: \"f16\" is for GPUs", "use \"f32\" or \"auto\""]);
    }
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
    let cases: [(i32, &str, &[&str], &[&str]); 5] = [
        (1, "out", &["--to", "weights"], &["out: holds another export (", "differs)", "--force to replace it"]),
        (
            1,
            "out/particle-0/expected.safetensors/new",
            &["--to", "peft"],
            &["must be a new folder in a folder that can be written to"],
        ),
        (
            2,
            "new",
            &["--to", "peft", "--for", "open-clip"],
            &["--for open-clip", "has timm names, which fit --for timm"],
        ),
        (2, "new", &["--to", "peft", "--particle", "7"], &["--particle 7: the run has models 0 to 1"]),
        (2, "new", &["--to", "peft", "--draws", "3"], &["its particles are points, without draws"]),
    ];
    for (code, output, more, parts) in cases {
        assert_has(&error_line(export(&place, &run, output, more), code), parts);
        assert!(!place.path("new").exists(), "nothing is half-written");
    }
    done(export(&place, &run, "out", &["--to", "weights", "--force"]));
    assert!(place.path("out/particle-1/model.safetensors").is_file());
    // What others have put beside the files of an export stays.
    place.write("out/particle-1/notes.txt", b"");
    place.write("mine/README.md", b"");
    for (output, held) in [("out/particle-1", "notes.txt"), ("out", "particle-1/notes.txt"), ("mine", "README.md")] {
        let line = error_line(export(&place, &run, output, &["--to", "peft", "--force"]), 1);
        assert_has(
            &line,
            &[&format!("{output}: holds {held}, which `bella export` has not written, so --force does not")],
        );
    }
    let other = Place::new();
    let full = train(&other, "timm-vit", "subspace.full = {}");
    assert_has(&error_line(export(&other, &full, "new", &["--to", "peft"]), 1), &["low-rank updates", "--to weights"]);
    let mut fit = place.command("train", &["method.laplace.particles=2"]);
    fit.arg("--config").arg(config(&place, "timm-vit", ALL_LAYERS));
    done(fit);
    let laplace = place.runs().into_iter().find(|run| run.to_string_lossy().contains("laplace")).unwrap();
    assert_has(
        &error_line(export(&place, &laplace, "new", &["--to", "peft"]), 2),
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
        alike(&found, &tensor(&expected, "logits"), "logits");
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
        "onnxruntime.InferenceSession(\"./posterior.onnx\")",
    ];
    assert_has(&card, &parts);
    assert!(!card.contains(place.path("out").to_str().unwrap()) && !card.contains("fixtures"), "{card}");
    let mut print = place.command("export", &[]);
    print.arg(&run).arg("--card");
    assert_has(&printed(&print.output().unwrap()), &["# tiny", "## Training", "## Loading"]);
    let mut one = place.command("export", &[]);
    one.arg(&run).args(["--card", "--particle", "1"]);
    assert_has(
        &printed(&one.output().unwrap()),
        &["This is particle 1; ", &format!("bella export {id} --particle 1 --to onnx")],
    );
}

/// The folder of a card is that of its reader, whatever the export was called: its name may be a word of Python.
#[test]
fn a_card_loads_the_folder_it_lies_in() {
    let place = Place::new();
    let run = train(&place, "timm-vit", ALL_LAYERS);
    let card = |to: &str, output: &str| {
        let mut command = place.command("export", &[]);
        command.current_dir(place.path("")).args(["--to", to, "--output", output, "--card"]).arg(&run);
        done(command);
        let text = std::fs::read_to_string(place.path(output).join("README.md")).unwrap();
        let start = text.find("```python\n").unwrap();
        text[start..].to_string()
    };
    let compared = "    print((output - expected[\"logits\"]).abs().max() / expected[\"logits\"].abs().max())\n```\n";
    let lines = |model: &str| {
        format!(
            "```python\n{model}model.eval()\nexpected = load_file(\"./particle-0/expected.safetensors\")\nwith torch.no_grad():\n    \
             pixels = expected[\"pixels\"]\n    output = model(pixels)\n{compared}"
        )
    };
    let imports = "import torch, timm\nfrom safetensors.torch import load_file\n";
    let whole = format!("{imports}model = timm.create_model(\"local-dir:./particle-0\", pretrained=True)\n");
    assert_eq!(card("weights", "model"), lines(&whole));
    let adapter = format!(
        "from peft import PeftModel\n{imports}model = timm.create_model(\"local-dir:timm-vit\", pretrained=True, img_size=16)\n\
         model.reset_classifier(10)\nmodel = PeftModel.from_pretrained(model, \"./particle-0\")\n"
    );
    assert_eq!(card("peft", "peft"), lines(&adapter));
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
    alike(&found, &tensor(&expected, "logits"), "logits");
}

/// The code of an archive adds the positions that it has, and no others.
#[test]
fn an_archive_leaves_at_its_own_size_alone() {
    let place = Place::new();
    let text =
        std::fs::read_to_string(config(&place, "timm-vit", &format!("{ALL_LAYERS}\nmethod.map = {{}}"))).unwrap();
    let named = |size: i64| format!("{:?}, image_size = {size}", fixture("timm_traced.pt"));
    let text = |size: i64| text.replace(&format!("{:?}", family("timm-vit")), &named(size));
    for (size, leaves) in [(24, false), (32, true)] {
        place.write("x.toml", text(size).as_bytes());
        std::fs::remove_dir_all(place.path("results")).ok();
        let mut command = place.command("train", &[]);
        command.arg("--config").arg(place.path("x.toml"));
        done(command);
        if leaves {
            done(export(&place, &place.run(), "out", &["--to", "weights"]));
            continue;
        }
        let line = error_line(export(&place, &place.run(), "out", &["--to", "weights"]), 1);
        assert_has(&line, &["timm_traced.pt: the run reads images of 24 pixels per side, and the archive's own code"]);
        done(export(&place, &place.run(), "whole", &["--to", "torchscript"]));
    }
}
