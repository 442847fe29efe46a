//! `bella init`: what it writes for images and checkpoints, and what it refuses.

use std::path::Path;

use crate::common::{Place, assert_has, bella, fixture, messages, printed, repository};
use bella::draft::{Checkpoint, Images, METHODS, write};
use bella::experiment::Experiment;
use bella::schema::Tree;

/// Three classes of eight small images each.
fn photos(place: &Place) -> String {
    let (name, mut bytes) = ("photos", vec![]);
    for (at, class) in ["ant", "bee", "cat"].into_iter().enumerate() {
        for file in 0..8u8 {
            let pixel = image::Rgb([40 * at as u8, 20 * file, 100]);
            bytes.clear();
            let image = image::RgbImage::from_pixel(9, 8, pixel);
            image.write_to(&mut std::io::Cursor::new(&mut bytes), image::ImageFormat::Png).unwrap();
            place.write(&format!("{name}/{class}/{file}.png"), &bytes);
        }
    }
    place.path(name).display().to_string()
}

fn init(checkpoint: &Path, data: &str, file: &str, more: &[&str]) -> std::process::Output {
    let checkpoint = checkpoint.display().to_string();
    let words = [&["init", "--checkpoint", &checkpoint, "--data", data, "--output", file], more].concat();
    bella(&words).output().unwrap()
}

/// Folders of domains, each with the same classes, become classes with a warning; folders that are called as splits become splits without
/// one.
#[test]
fn folders_that_are_hardly_classes_are_doubted() {
    let place = Place::new();
    let (data, file) = (photos(&place), place.path("mine.toml").display().to_string());
    let checkpoint = repository("assets/vit-digits.pt");
    for (outer, split) in [("domains", ["cartoon", "sketch"]), ("splits", ["train", "valid"])] {
        for folder in split {
            let to = place.path(&format!("{outer}/{folder}"));
            for class in ["ant", "bee"] {
                std::fs::create_dir_all(to.join(class)).unwrap();
                for image in 0..4 {
                    std::fs::copy(format!("{data}/{class}/{image}.png"), to.join(format!("{class}/{image}.png")))
                        .unwrap();
                }
            }
        }
    }
    let output = init(&checkpoint, &place.path("domains").display().to_string(), &file, &[]);
    let doubt = "its 2 folders become classes, though each holds folders of the same names (ant, bee, …)";
    assert_has(&messages(&output), &[doubt]);
    let output = init(&checkpoint, &place.path("splits").display().to_string(), &file, &["--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert!(!messages(&output).contains("become classes"), "{}", messages(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    assert_has(&text, &["val = \"valid\"\ntest = 0.2 #", "validation = \"val\""]);
}

/// Images get the shape that the checkpoint's folder asks for, unless the user says otherwise.
#[test]
fn images_are_stretched_where_the_folder_asks_for_it() {
    let place = Place::new();
    let (data, file) = (photos(&place), place.path("mine.toml").display().to_string());
    for name in ["config.json", "model.safetensors"] {
        place.write(&format!("vit/{name}"), &std::fs::read(fixture("folders/hf-vit").join(name)).unwrap());
    }
    let asked = b"{\"image_processor_type\": \"ViTImageProcessor\", \"size\": {\"height\": 16, \"width\": 16}}";
    place.write("vit/preprocessor_config.json", asked);
    let written = |more: &[&str]| {
        let output = init(&place.path("vit"), &data, &file, more);
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        (std::fs::read_to_string(&file).unwrap(), messages(&output))
    };
    let (text, told) = written(&[]);
    assert_has(&text, &["resize = \"stretch\" # as preprocessor_config.json asks"]);
    assert!(!told.contains("warning"), "{told}");
    let (text, told) = written(&["--force", "--set", "data.image-folder.resize=shorter-side-crop"]);
    assert!(text.contains("resize = \"shorter-side-crop\"\n") && !text.contains("stretch"), "{text}");
    assert_has(&told, &["the data set's resize is shorter-side-crop"]);
}

#[test]
fn a_flat_folder_of_images_gets_a_config() {
    let place = Place::new();
    let (data, file) = (photos(&place), place.path("mine.toml").display().to_string());
    let checkpoint = repository("assets/vit-digits.pt");
    let output = init(&checkpoint, &data, &file, &["--method", "ivon"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let said = [
        "images: image-folder, 3 classes, 15 training, 3 validation and 6 test images",
        "warning: checkpoint.normalize = ",
    ];
    assert_has(&messages(&output), &said);
    let text = std::fs::read_to_string(&file).unwrap();
    let wanted = [
        "name = \"mine\"",
        "[head.linear] # a new classifier: the checkpoint's own has 10 classes",
        "test = 0.2 #",
        "validation = 0.2",
        "ess = 15 # the number of training images",
        "[optimizer.none]",
    ];
    assert_has(&text, &wanted);
    bella(&["check", &file]).assert().success();
    let deep = bella(&["check", "--deep", "--device", "cpu", &file]).output().unwrap();
    assert_eq!(deep.status.code(), Some(0), "{}", messages(&deep));
    assert!(!messages(&deep).contains("warning"), "{}", messages(&deep));
    let again = init(&checkpoint, &data, &file, &[]);
    assert_eq!(again.status.code(), Some(2));
    assert_has(&messages(&again), &["mine.toml: exists already; --force replaces it"]);
    let replaced = init(&checkpoint, &data, &file, &["--force"]);
    assert_eq!(replaced.status.code(), Some(0), "{}", messages(&replaced));
    assert_has(&std::fs::read_to_string(&file).unwrap(), &["[method.svgd]", "[optimizer.adamw]"]);
    place.write("photos/ant/of-a-phone.HEIC", b"");
    let with_heic = init(&checkpoint, &data, &file, &["--force"]);
    assert_eq!(with_heic.status.code(), Some(0), "{}", messages(&with_heic));
    assert_has(&messages(&with_heic), &["photos: 1 image is in a form that bella does not decode (.heic)", "left out"]);
}

/// Paths are read as those of a config, and the command that is printed can be pasted.
#[test]
fn paths_have_variables_and_spaces() {
    let place = Place::new();
    photos(&place);
    std::fs::copy(repository("assets/vit-digits.pt"), place.path("vit-digits.pt")).unwrap();
    for data in ["$PHOTOS/photos", "image-folder=$PHOTOS/photos", "~/photos"] {
        let file = place.path("my photos.toml").display().to_string();
        let mut command = bella(&["init", "--checkpoint", "$PHOTOS/vit-digits.pt", "--data", data, "--force"]);
        let more = ["--set", "data.image-folder.validation=0.3", "--method", "ivon", "--output", &file];
        let home = place.path("");
        let output = command.args(more).env("PHOTOS", &home).env("HOME", &home).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        assert_has(&printed(&output), &[&format!("now: bella train -c '{file}'")]);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("validation = 0.3") && !text.contains("validation = 0.2"), "{text}");
        assert_has(&text, &["test = 0.2 #", &format!("bella train --config '{file}';")]);
    }
    let unset = init(Path::new("$NOWHERE_AT_ALL/a.pt"), "digits", "x.toml", &[]);
    assert_has(&messages(&unset), &["--checkpoint", "NOWHERE_AT_ALL of the environment is not set"]);
}

/// The keys that a data set cannot do without are given by `--set`.
#[test]
fn further_keys_of_a_data_set_are_given() {
    let place = Place::new();
    let file = place.path("blood.toml").display().to_string();
    let (checkpoint, data) = (repository("assets/vit-digits.pt"), fixture("data/medmnist"));
    let data = format!("medmnist={}", data.display());
    let output = init(&checkpoint, &data, &file, &["--method", "bella-svgd"]);
    assert_has(&messages(&output), &["task is required"]);
    let task = ["--method", "bella-svgd", "--set", "data.medmnist.task=bloodmnist"];
    let output = init(&checkpoint, &data, &file, &task);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["images: medmnist, 8 classes, 7 training, 2 validation and 3 test images"]);
    assert_has(&std::fs::read_to_string(&file).unwrap(), &["task = \"bloodmnist\"", "validation = \"val\""]);
    let text = std::fs::read_to_string(&file).unwrap();
    let behind_key = data.replace("medmnist=", "medmnist/bloodmnist=");
    let output = init(&checkpoint, &behind_key, &file, &["--force", "--method", "bella-svgd"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let output = init(&checkpoint, &format!("digits/{}", 3), &file, &["--force"]);
    assert_has(&messages(&output), &["task"]);
    let output = init(&checkpoint, &data, &file, &["--force", "--set", "seed=3"]);
    assert_eq!(output.status.code(), Some(2));
    assert_has(&messages(&output), &["--set seed=3: must be data.medmnist.KEY=VALUE, a key of the data set"]);
}

/// BayesTune's default sample size is far above any number of images, by intention.
#[test]
fn a_default_of_bayestune_is_no_doubt() {
    let text = std::fs::read_to_string(repository("configs/quickstart.toml")).unwrap();
    let (before, after) = text.split_once("[method.svgd]").unwrap();
    let (_, after) = after.split_once("[optimizer").unwrap();
    let text = format!("{before}[method.bayestune]\nsearch_steps = 20\nlr = 0.1\n\n[optimizer{after}");
    let experiment = Tree::parse("mine.toml", &text).and_then(|tree| Experiment::read(&tree)).unwrap();
    assert_eq!(experiment.warnings(120), Vec::<String>::new());
}

#[test]
fn every_method_is_a_config_without_doubts() {
    let checkpoint = Checkpoint::look(&repository("assets/vit-digits.pt"), None).unwrap();
    let images = Images::look("digits", 1, &[]).unwrap();
    assert_eq!((images.train, images.classes.len()), (799, 10));
    for recipe in METHODS {
        let text = write(&checkpoint, &images, recipe, "mine", "mine.toml").unwrap();
        let experiment = Tree::parse("mine.toml", &text).and_then(|tree| Experiment::read(&tree));
        let experiment = experiment.unwrap_or_else(|error| panic!("{}: {error}\n{text}", recipe.name));
        assert_eq!(experiment.warnings(images.train), Vec::<String>::new(), "{text}");
        let training = experiment.training.unwrap();
        training.method.spec.check_steps(training.train.epochs * 799usize.div_ceil(training.train.batch_size)).unwrap();
    }
    assert!(
        write(&checkpoint, &images, &METHODS[0], "a", "a")
            .unwrap()
            .contains("[head.checkpoint] # the checkpoint's own")
    );
}

#[test]
fn a_text_tower_gives_the_head() {
    let checkpoint = Checkpoint::look(&fixture("openai_clip_words.pt"), None).unwrap();
    let normalize = checkpoint.normalize.as_ref().expect("a suggestion");
    assert!(checkpoint.has_text && normalize.value == "\"clip\"" && normalize.why == "as all models of CLIP");
    let images = Images::look("digits", 1, &[]).unwrap();
    let text = write(&checkpoint, &images, &METHODS[0], "mine", "mine.toml").unwrap();
    assert_has(&text, &["[head.zero-shot] # from the text tower", "normalize = \"clip\""]);
}

/// Each of these folders lacks the file that says how images are prepared; facebook/dinov2-base and openai/clip-vit-base-patch32 have it.
#[test]
fn the_model_type_tells_the_usual_normalisation() {
    for (folder, value) in
        [("hf-dinov2", "\"imagenet\""), ("hf-clip", "\"clip\""), ("hf-beit", "{ mean = [0.5, 0.5, 0.5]")]
    {
        let found = Checkpoint::look(&fixture(&format!("folders/{folder}")), None).unwrap();
        let normalize = found.normalize.expect("a suggestion");
        assert!(normalize.value.starts_with(value) && normalize.why.contains("model_type"), "{folder}: {normalize:?}");
    }
}

#[test]
fn a_module_gets_a_config_that_runs_it() {
    let place = Place::new();
    let (data, file) = (photos(&place), place.path("mine.toml").display().to_string());
    let module = fixture("module/residual.pt");
    let refused = init(&module, &data, &file, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert_has(&messages(&refused), &["to run it by its own forward as a module, give --image-size PIXELS"]);
    let output = init(&module, &data, &file, &["--image-size", "8"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    let wanted = ["kind = \"module\" #", "image_size = 8", "[subspace.low-rank]", "\"linear\"", "precision = \"f32\""];
    assert_has(&text, &wanted);
    bella(&["check", &file]).assert().success();
    let trained = bella(&["train", "-c", &file, "-s", "train.epochs=1", "-s", "train.warmup_steps=0"])
        .args(["--device", "cpu", "--out", &place.path("out").display().to_string()])
        .output()
        .unwrap();
    assert_eq!(trained.status.code(), Some(0), "{}", messages(&trained));
}

/// A folder of transformers with JSON lines gets a config that trains; a network of images does not take them.
#[test]
fn a_text_encoder_gets_a_config_that_trains() {
    let place = Place::new();
    let line = |i: usize| {
        let (size, label) = if i.is_multiple_of(2) { ("big", "yes") } else { ("small", "no") };
        format!("{{\"text\": \"the {size} cat{}\", \"label\": \"{label}\"}}\n", " runs".repeat(i % 4))
    };
    for (file, count) in [("train", 40), ("test", 12)] {
        place.write(&format!("texts/{file}.jsonl"), (0..count).map(line).collect::<String>().as_bytes());
    }
    let (data, file) = (place.path("texts").display().to_string(), place.path("mine.toml").display().to_string());
    let output = init(&fixture("encoder/folders/bert"), &data, &file, &["--method", "bella-svgd"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(
        &messages(&output),
        &["BERT, a text encoder, width 16, 2 blocks", "2 classes, 32 training, 8 validation"],
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let wanted =
        ["truncate = true #", "[data.jsonl] # 2 classes", "prompt = \"{text}\"", "targets = [\"attn.q\", \"attn.v\"]"];
    assert_has(&text, &wanted);
    let trained = bella(&["train", "-c", &file, "-s", "train.epochs=1", "-s", "train.warmup_steps=0"])
        .args(["--device", "cpu", "--out", &place.path("out").display().to_string()])
        .output()
        .unwrap();
    assert_eq!(trained.status.code(), Some(0), "{}", messages(&trained));
    // ModernBERT has one layer for queries, keys and values.
    let output = init(&fixture("encoder/folders/modernbert"), &data, &file, &["--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&std::fs::read_to_string(&file).unwrap(), &["targets = [\"attn.qkv\"]"]);
    let other = place.path("other.toml").display().to_string();
    let refused = init(&repository("assets/vit-digits.pt"), &data, &other, &[]);
    assert_has(&messages(&refused), &["jsonl has texts, but the network of checkpoint.path takes images"]);
}

/// The words of JSON lines are in the order of the checkpoint's classifier, whose config names them in another one than theirs.
#[test]
fn label_words_are_in_the_order_of_the_classifier() {
    let place = Place::new();
    let line = |i: usize| {
        let label = ["contradiction", "entailment", "neutral"][i % 3];
        format!("{{\"text\": \"the big cat{}\", \"label\": \"{label}\"}}\n", " runs".repeat(i % 5))
    };
    for (file, count) in [("train", 40), ("test", 12)] {
        place.write(&format!("texts/{file}.jsonl"), (0..count).map(line).collect::<String>().as_bytes());
    }
    let (data, file) = (place.path("texts").display().to_string(), place.path("mine.toml").display().to_string());
    let output = init(&fixture("encoder/folders/roberta"), &data, &file, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let words =
        "labels = [\"entailment\", \"neutral\", \"contradiction\"] # in the order of the checkpoint's classifier";
    assert_has(&std::fs::read_to_string(&file).unwrap(), &["[head.checkpoint]", words]);
    let eval = |more: &[&str]| {
        let out = place.path("out").display().to_string();
        bella(&["eval", "--config", &file, "--device", "cpu", "--out", &out]).args(more).output().unwrap()
    };
    let found = eval(&[]);
    assert_eq!(found.status.code(), Some(0), "{}", messages(&found));
    let sorted = "data.jsonl.labels=[\"contradiction\", \"entailment\", \"neutral\"]";
    assert_has(&messages(&eval(&["--set", sorted])), &["in another order", "(labels in [data.jsonl])"]);
}

/// Networks that write: a decoder on texts with a classifier, and PaliGemma, which answers questions as it was trained to.
#[test]
fn networks_that_write_get_configs_that_train() {
    let place = Place::new();
    let line = |i: usize| format!("{{\"text\": \"the cat {i}\", \"label\": \"{}\"}}\n", ["no", "yes"][i % 2]);
    for (file, count) in [("train", 40), ("test", 12)] {
        place.write(&format!("texts/{file}.jsonl"), (0..count).map(line).collect::<String>().as_bytes());
    }
    crate::common::questions(&place, "paligemma/gemma");
    let vqa = format!("vqa-v2={}", place.path("vqa").display());
    for (folder, data, wanted) in [
        (
            "language/qwen3",
            place.path("texts").display().to_string(),
            ["[head.linear] #", "targets = [\"attn.q\", \"attn.v\"]"],
        ),
        ("language/gpt2", place.path("texts").display().to_string(), ["[head.linear] #", "targets = [\"attn.qkv\"]"]),
        ("paligemma/gemma", vqa, ["[head.answers] #", "prompt = \"<image>answer en {question}\""]),
    ] {
        let file = place.path(&format!("{}.toml", folder.replace('/', "-"))).display().to_string();
        let output = init(&fixture(folder), &data, &file, &["--method", "bella-ensemble"]);
        assert_eq!(output.status.code(), Some(0), "{folder}: {}", messages(&output));
        assert_has(&std::fs::read_to_string(&file).unwrap(), &wanted);
        let trained = bella(&["train", "-c", &file, "-s", "train.epochs=1", "-s", "train.warmup_steps=0"])
            .args(["--device", "cpu", "--out", &place.path("out").display().to_string()])
            .output()
            .unwrap();
        assert_eq!(trained.status.code(), Some(0), "{folder}: {}", messages(&trained));
    }
}

#[test]
fn what_is_missing_or_unknown_is_told() {
    let place = Place::new();
    let (data, file) = (photos(&place), place.path("mine.toml").display().to_string());
    let checkpoint = repository("assets/vit-digits.pt");
    let cases: [(std::process::Output, i32, &str); 5] = [
        (init(&checkpoint, &data, &file, &["--method", "bella-svg"]), 2, "did you mean `bella-svgd`?"),
        (init(Path::new("no.pt"), &data, &file, &[]), 1, "--checkpoint: no.pt: no such file or folder"),
        (init(&checkpoint, "no/such", &file, &[]), 1, "--data: no/such: no such folder, and no data set of that name"),
        (init(&checkpoint, &format!("{data}/ant"), &file, &[]), 1, "no layout that bella knows"),
        (bella(&["init", "--output", &file]).output().unwrap(), 2, "--checkpoint is needed where no terminal can ask"),
    ];
    for (output, code, message) in cases {
        assert_eq!(output.status.code(), Some(code), "{}", messages(&output));
        assert_has(&messages(&output), &[message]);
        assert!(!Path::new(&file).exists());
    }
}

#[test]
fn settings_of_another_data_set_are_doubted() {
    let place = Place::new();
    let quickstart = repository("configs/quickstart.toml").display().to_string();
    let ivon = repository("configs/methods/ivon.toml").display().to_string();
    let check = |more: &[&str]| bella(&[&["check", "--merge", &quickstart, &ivon], more].concat()).output().unwrap();
    let output = check(&["--set", "train.warmup_steps=9999"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let warnings = [
        "warning: ",
        "method.ivon.ess = 40000, but there are 120 training images",
        "train.warmup_steps = 9999 of 240 steps: the learning rate never reaches its value",
    ];
    assert_has(&messages(&output), &warnings);
    assert!(!messages(&check(&["--set", "method.ivon.ess=120"])).contains("warning"));
    // 240 steps in 60 epochs.
    let late = ["--set", "method={map={}}", "--set", "optimizer.adamw.lr=1e-3", "--set"];
    let ema = |after: &str| {
        messages(&check(&[&late[..], &[&format!("train.ema={{decay=0.9,update_after_step={after}}}")]].concat()))
    };
    assert_has(
        &ema("239"),
        &["train.ema: of 240 steps the average forgets all but the last one: lower update_after_step"],
    );
    let stop = |epochs: &str| messages(&check(&[&late[..], &[&format!("train.early_stop={epochs}")]].concat()));
    assert_has(&stop("59"), &["train.early_stop = 59 of 60 epochs: training cannot end before its last one"]);
    for told in [ema("238"), stop("58")] {
        assert!(!told.contains("warning"), "{told}");
    }
    drop(place);
}
