//! Checkpoints by name, against a server of the tests' own on the loopback: from an empty folder to a report, offline afterwards.

use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use bella::data::table::{Column, write};

use crate::common::{Place, assert_has, bella, fixture, messages, printed};
use crate::hub_server::{COMMIT, Fault, Hub, sha256};

/// `bella` in the folder of a test, with a cache of its own.
fn run(place: &Place, hub: &Hub, words: &[&str]) -> Output {
    bella(words)
        .current_dir(place.path(""))
        .env("HF_HOME", place.path("home"))
        .env("HF_ENDPOINT", &hub.address)
        .env_remove("HF_TOKEN")
        .output()
        .unwrap()
}

fn succeeds(place: &Place, hub: &Hub, words: &[&str]) -> Output {
    let output = run(place, hub, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", messages(&output));
    output
}

/// Two classes of twelve small images each.
fn photos(place: &Place) {
    for (at, class) in ["ant", "bee"].into_iter().enumerate() {
        for file in 0..12u8 {
            let image = image::RgbImage::from_pixel(9, 8, image::Rgb([90 * at as u8, 20 * file, 100]));
            let mut bytes = vec![];
            image.write_to(&mut std::io::Cursor::new(&mut bytes), image::ImageFormat::Png).unwrap();
            place.write(&format!("photos/{class}/{file}.png"), &bytes);
        }
    }
}

const DEVICE: [&str; 6] = ["--device", "cpu", "--threads", "1", "--workers", "1"];

fn with_device<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &DEVICE].concat()
}

#[test]
fn from_an_empty_folder_to_a_report_and_again_offline() {
    let (place, hub) = (Place::new(), Hub::of_folder("org/tiny-vit", &fixture("folders/timm-vit")));
    photos(&place);
    let sets = ["--set", "train.epochs=1", "--set", "particles=2", "--set", "batch_size=4", "--set", "warmup_steps=0"];
    let init = ["init", "--checkpoint", "hf://org/tiny-vit", "--data", "photos", "--output", "mine.toml"];
    assert_has(&messages(&succeeds(&place, &hub, &init)), &["checkpoint: timm ViT"]);
    assert_has(&std::fs::read_to_string(place.path("mine.toml")).unwrap(), &["path = \"hf://org/tiny-vit\""]);
    let train = with_device(&[&["train", "mine.toml"], &sets[..]].concat());
    succeeds(&place, &hub, &train);
    succeeds(&place, &hub, &with_device(&["eval", "--attack", "fgsm", "--epsilon", "0.01"]));
    assert_has(&printed(&succeeds(&place, &hub, &["report"])), &["fgsm"]);
    let rows = std::fs::read_to_string(place.path("results/mine.csv")).unwrap();
    assert_has(&rows, &["tiny-vit", COMMIT, "checkpoint.commit"]);
    let run_folder = only(&place.path("results/runs/mine"));
    let config = std::fs::read_to_string(run_folder.join("config.toml")).unwrap();
    assert_has(&config, &[&format!("path = \"hf://org/tiny-vit@{COMMIT}\"")]);
    let record = std::fs::read_to_string(run_folder.join("run.json")).unwrap();
    assert_has(&record, &[&format!("\"checkpoint_commit\": \"{COMMIT}\"")]);
    // Others have the checkpoint by its name, and not in this cache.
    succeeds(
        &place,
        &hub,
        &with_device(&["export", "--to", "peft", "--output", "adapters", "--particle", "0", "--card"]),
    );
    let card = std::fs::read_to_string(place.path("adapters/README.md")).unwrap();
    assert_has(&card, &[&format!("timm.create_model(\"hf-hub:org/tiny-vit@{COMMIT}\", pretrained=True")]);
    let adapter = std::fs::read_to_string(place.path("adapters/adapter_config.json")).unwrap();
    assert_has(&adapter, &["\"base_model_name_or_path\": \"org/tiny-vit\"", &format!("\"revision\": \"{COMMIT}\"")]);
    // The same run is found again, without a request; the option and the variable alike.
    hub.seen();
    let again = succeeds(&place, &hub, &[&train[..], &["--offline"]].concat());
    assert_has(&messages(&again), &["this run is finished"]);
    succeeds(&place, &hub, &with_device(&["check", "--deep", "mine.toml"]));
    succeeds(&place, &hub, &["inspect", "hf://org/tiny-vit", "--offline"]);
    assert_eq!(hub.seen(), []);
    // Another commit is another run.
    let other = "fedcba9876543210fedcba9876543210fedcba98";
    hub.set_commit(other);
    std::fs::remove_file(place.path("home/hub/models--org--tiny-vit/refs/main")).unwrap();
    let moved = succeeds(&place, &hub, &train);
    assert_has(&messages(&moved), &[other, "so this is another run than"]);
    assert_eq!(std::fs::read_dir(place.path("results/runs/mine")).unwrap().count(), 2);
    let pinned = format!("checkpoint.path=hf://org/tiny-vit@{COMMIT}");
    let kept = succeeds(&place, &hub, &[&train[..], &["--set", &pinned]].concat());
    assert_has(&messages(&kept), &["this run is finished"]);
    // A first look at the config of somebody else downloads the weights, too.
    std::fs::remove_dir_all(place.path("home")).unwrap();
    succeeds(&place, &hub, &with_device(&["check", "--deep", "mine.toml"]));
}

fn only(folder: &Path) -> std::path::PathBuf {
    let all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// bella writes the trained head of many exports beside them, and `bella import` reads it there.
#[test]
fn a_head_beside_weights_is_fetched_with_them() {
    let place = Place::new();
    std::fs::create_dir(place.path("published")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("folders/timm-vit").join(file), place.path("published").join(file)).unwrap();
    }
    place.write("published/head.safetensors", b"head");
    let hub = Hub::of_folder("org/tiny-vit", &place.path("published"));
    succeeds(&place, &hub, &["inspect", "hf://org/tiny-vit"]);
    let snapshot = place.path("home/hub/models--org--tiny-vit/snapshots").join(COMMIT);
    assert_eq!(std::fs::read(snapshot.join("head.safetensors")).unwrap(), b"head");
}

#[test]
fn a_killed_download_is_continued() {
    let place = Place::new();
    let (name, folder) = ("model.safetensors", fixture("folders/timm-vit"));
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let hub = Hub::of_folder("org/tiny-vit", &folder);
    let half = bytes.len() / 2;
    hub.fail("GET", "/blob/", 1, Fault::Stall(half));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
    command.args(["inspect", "hf://org/tiny-vit"]).env("HF_HOME", place.path("home")).env("HF_ENDPOINT", &hub.address);
    command.env("HF_HUB_DOWNLOAD_TIMEOUT", "60").stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for_part(&place, ("models--org--tiny-vit", half), &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    hub.seen();
    succeeds(&place, &hub, &["inspect", "hf://org/tiny-vit"]);
    let ranges: Vec<_> = hub.seen().into_iter().filter(|request| request.path.starts_with("/blob/")).collect();
    assert_eq!(ranges.iter().map(|request| request.from).collect::<Vec<_>>(), [Some(half)]);
}

fn wait_for_part(place: &Place, (repository, size): (&str, usize), child: &mut Child) {
    let began = Instant::now();
    loop {
        let blobs =
            std::fs::read_dir(place.path(&format!("home/hub/{repository}/blobs"))).into_iter().flatten().flatten();
        let mut parts = blobs.filter(|blob| blob.file_name().to_string_lossy().ends_with(".incomplete"));
        if parts.any(|part| part.metadata().is_ok_and(|about| about.len() == size as u64)) {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(),
            "no part of {size} bytes"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn mistakes_are_said_at_the_key_and_nothing_is_left_over() {
    let (place, hub) = (Place::with_tiny(), Hub::of_folder("org/tiny-vit", &fixture("folders/timm-vit")));
    let refused = |words: &[&str], wanted: &[&str]| {
        let output = run(&place, &hub, words);
        assert_ne!(output.status.code(), Some(0), "{words:?}");
        assert_has(&messages(&output), wanted);
        assert_eq!(messages(&output).lines().count(), 1, "{}", messages(&output));
    };
    let check = |path: &str| format!("checkpoint.path={path}");
    refused(
        &["check", "tiny.toml", "--set", &check("hf://org/none")],
        &["checkpoint.path", "hf://org/none", "check the name"],
    );
    refused(
        &["check", "tiny.toml", "--set", &check("hf://org")],
        &["checkpoint.path", "has no /api/models/org/revision/main"],
    );
    refused(&["check", "tiny.toml", "--set", &check("hf://a/b/c")], &["checkpoint.path", "must be hf://ORG/NAME"]);
    refused(&["inspect", "openai://ViT-B-23"], &["unknown; known: RN50, RN101", "ViT-B-32"]);
    refused(&["inspect", "hf://org/tiny-vit", "--offline"], &["hf://org/tiny-vit: is not in", "leave that out once"]);
    hub.fail("GET", "/api/", 9, Fault::Status(403, "x-error-code: GatedRepo"));
    refused(&["inspect", "hf://org/tiny-vit"], &["is gated", "accept its terms", "HF_TOKEN"]);
    assert!(!place.path("home/hub/models--org--tiny-vit/snapshots").exists());
}

/// An image of the network's size.
fn picture(i: usize) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let shade = |x: u32, y: u32| image::Rgb([(40 * (i % 2) as u32 + 3 * x + y) as u8; 3]);
    image::RgbImage::from_fn(64, 64, shade).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// The tables of a small set, as the Hub has them.
fn tables(place: &Place) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (split, count) in [("train", 20usize), ("test", 6)] {
        let images = Column::Images((0..count).map(picture).collect());
        let labels = Column::Texts((0..count).map(|i| ["cat", "dog"][i % 2].to_string()).collect());
        let name = format!("data/{split}-00000-of-00001.parquet");
        let path = place.path(&format!("written/{name}"));
        write(&path, &[("image", images), ("label", labels)]).unwrap();
        files.push((name, std::fs::read(path).unwrap()));
    }
    files
}

/// The tar archives of a small set, as clip-benchmark has them.
fn archives() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("classnames.txt".to_string(), b"cat\ndog".to_vec())];
    for (split, count) in [("train", 20usize), ("test", 6)] {
        let mut members = Vec::new();
        for i in 0..count {
            members.push((format!("s{i:04}.png"), picture(i)));
            members.push((format!("s{i:04}.cls"), (i % 2).to_string().into_bytes()));
        }
        let members = members.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        files.push((format!("{split}/0.tar"), bella::base::tar::packed(members)));
        files.push((format!("{split}/nshards.txt"), b"1".to_vec()));
    }
    files
}

/// The settings of a short training.
const SHORT: [&str; 8] =
    ["--set", "train.epochs=1", "--set", "particles=2", "--set", "batch_size=4", "--set", "warmup_steps=0"];

/// Checkpoint and data by name, from an empty folder: the download of the file `cut` is cut in the middle and goes on, a run is trained,
/// attacked and reported, and everything works offline afterwards. Another commit of the data set is another run.
fn goes_all_the_way(place: &Place, files: &[(String, Vec<u8>)], (key, cut): (&str, &str)) {
    let hub = Hub::of_folder("org/tiny-vit", &fixture("folders/timm-vit"));
    hub.put_data("org/tiny-set", &files.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect::<Vec<_>>());
    let init = ["init", "--checkpoint", "hf://org/tiny-vit", "--data", "hf://org/tiny-set", "--output", "mine.toml"];
    let content = &files.iter().find(|(name, _)| name == cut).unwrap().1;
    let (half, blob) = (content.len() / 2, &*format!("/blob/{}", sha256(content)).leak());
    hub.fail("GET", blob, 1, Fault::Stall(half));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
    command.args(init).current_dir(place.path("")).env("HF_HOME", place.path("home")).env("HF_ENDPOINT", &hub.address);
    command.env("HF_HUB_DOWNLOAD_TIMEOUT", "60").stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for_part(place, ("datasets--org--tiny-set", half), &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("mine.toml").exists());
    hub.seen();
    let found = format!("images: {key}, 2 classes, 16 training, 4 validation and 6 test");
    assert_has(&messages(&succeeds(place, &hub, &init)), &[&found]);
    let table = format!("[data.{key}]");
    assert_has(&std::fs::read_to_string(place.path("mine.toml")).unwrap(), &[&table, "root = \"hf://org/tiny-set\""]);
    let resumed: Vec<_> = hub.seen().into_iter().filter(|request| request.path.starts_with(blob)).collect();
    assert_eq!(resumed.iter().map(|request| request.from).collect::<Vec<_>>(), [Some(half)]);
    let train = with_device(&[&["train", "mine.toml"], &SHORT[..]].concat());
    succeeds(place, &hub, &train);
    let attack = with_device(&["eval", "--attack", "fgsm", "--epsilon", "0.01"]);
    succeeds(place, &hub, &attack);
    assert_has(&printed(&succeeds(place, &hub, &["report"])), &["fgsm", "tiny-set"]);
    states_its_commit(place, key);
    // Another commit of the data set is another run.
    let other = "fedcba9876543210fedcba9876543210fedcba98";
    hub.set_commit(other);
    std::fs::remove_file(place.path("home/hub/datasets--org--tiny-set/refs/main")).unwrap();
    let moved = messages(&succeeds(place, &hub, &train));
    assert_has(&moved, &[&format!("data.{key}.root: the repository is at commit {other} now, so this is another run")]);
    hub.stop();
    let offline = |words: &[&str]| succeeds(place, &hub, &[words, &["--offline"]].concat());
    assert_has(&messages(&offline(&train)), &["this run is finished"]);
    std::fs::remove_dir_all(place.path("results")).unwrap();
    offline(&train);
    offline(&attack);
    assert_has(&printed(&offline(&["report"])), &["fgsm", "tiny-set"]);
    let check = format!("{key}=hf://datasets/org/tiny-set");
    let column: &[&str] = if key == "parquet" { &["--set", "data.parquet.image=image"] } else { &[] };
    offline(&[&["data", "check", &check], column].concat());
}

/// The run, its config and its rows say which commit the data set has.
fn states_its_commit(place: &Place, key: &str) {
    let run = only(&place.path("results/runs/mine"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_has(&read(&run.join("config.toml")), &[&format!("root = \"hf://datasets/org/tiny-set@{COMMIT}\"")]);
    assert_has(&read(&run.join("run.json")), &[&format!("\"data_commit\": \"{COMMIT}\"")]);
    assert_has(&read(&place.path("results/mine.csv")), &[&format!("data.{key}.commit")]);
}

#[test]
fn checkpoint_and_archives_by_name_go_all_the_way_and_again_offline() {
    goes_all_the_way(&Place::new(), &archives(), ("webdataset", "train/0.tar"));
}

/// A split is there if the repository names its folder; the archives of another split are not fetched to find out.
#[test]
fn a_check_of_one_split_fetches_no_other() {
    let (place, hub) = (Place::new(), Hub::of_folder("org/none", &fixture("folders/timm-vit")));
    let files = archives();
    hub.put_data("org/tiny-set", &files.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect::<Vec<_>>());
    succeeds(&place, &hub, &["data", "check", "webdataset=hf://org/tiny-set", "--split", "test"]);
    let asked: Vec<String> = hub.seen().into_iter().map(|request| request.path).collect();
    let of = |part: &str| {
        let wanted = files.iter().filter(|(name, _)| name.starts_with(part)).map(|(_, bytes)| sha256(bytes));
        wanted.filter(|hash| asked.iter().any(|path| path.contains(hash))).count()
    };
    assert_eq!((of("train/"), of("test/") > 0), (0, true), "{asked:?}");
}

#[test]
fn checkpoint_and_tables_by_name_go_all_the_way_and_again_offline() {
    let place = Place::new();
    let files = tables(&place);
    goes_all_the_way(&place, &files, ("parquet", "data/train-00000-of-00001.parquet"));
}

/// A task of GLUE by the key of the set alone: its tables come from the repository of the entry.
#[test]
fn a_text_encoder_learns_a_task_of_glue_by_name() {
    let (place, hub) = (Place::new(), Hub::of_folder("org/none", &fixture("folders/timm-vit")));
    let table = |split: &str| {
        let name = format!("sst2/{split}-00000-of-00001.parquet");
        let bytes = std::fs::read(fixture("data/parquet/hub/glue").join(&name)).unwrap();
        (name, bytes)
    };
    let tables = [table("train"), table("validation")];
    hub.put_data("nyu-mll/glue", &tables.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect::<Vec<_>>());
    let checkpoint = fixture("encoder/folders/bert").display().to_string();
    let init = ["init", "--checkpoint", &checkpoint, "--data", "glue/sst2", "--method", "bella-svgd"];
    let output = succeeds(&place, &hub, &init);
    assert_has(&messages(&output), &["images: glue, 2 classes, 4 training, 1 validation and 3 test texts"]);
    let config = std::fs::read_to_string(place.path("glue-sst2.toml")).unwrap();
    assert_has(&config, &["name = \"glue-sst2\"", "root = \"hf://datasets/nyu-mll/glue\"", "task = \"sst2\""]);
    succeeds(&place, &hub, &with_device(&[&["train", "glue-sst2.toml"], &SHORT[..]].concat()));
    assert_has(&std::fs::read_to_string(place.path("results/glue-sst2.csv")).unwrap(), &["glue-sst2", COMMIT]);
    let without = run(&place, &hub, &[&init[..3], &["--data", "glue", "--output", "x.toml"]].concat());
    assert_has(&messages(&without), &["task is required"]);
}

#[test]
fn mistakes_of_data_by_name_are_one_line_with_the_way_out() {
    let (place, hub) = (Place::new(), Hub::of_folder("org/tiny-vit", &fixture("folders/timm-vit")));
    let refused = |data: &str, wanted: &[&str]| {
        let output =
            run(&place, &hub, &["init", "--checkpoint", "hf://org/tiny-vit", "--data", data, "--output", "x.toml"]);
        assert_ne!(output.status.code(), Some(0), "{data}");
        let said = messages(&output);
        let mistakes: Vec<&str> = said.lines().filter(|line| !line.contains("checkpoint: ")).collect();
        assert_eq!(mistakes.len(), 1, "{said}");
        assert_has(mistakes[0], wanted);
        assert!(!place.path("x.toml").exists());
    };
    hub.put_data("org/notes", &[("notes.txt", b"x")]);
    refused("hf://org/notes", &["hf://org/notes: has neither tables (.parquet) nor tar archives", "KEY=ROOT"]);
    let without =
        ["has no tables of the configuration `plain_text` (.parquet) among its files (notes.txt)", "original files"];
    refused("cifar10=hf://org/notes", &without);
    refused("hf://org/none", &["hf://datasets/org/none", "check the name"]);
    hub.put_data("org/cut", &[("train.parquet", b"PAR1, and no footer")]);
    refused("hf://org/cut", &["train.parquet: is damaged or no Parquet: fetch it again"]);
    hub.put_data("org/part", &[("data/train-00000-of-00002.parquet", b"PAR1")]);
    refused("hf://org/part", &["table 1 of the 2 tables of `train` is missing", "fetch it, too"]);
    std::fs::write(place.path("home/hub/datasets--org--theirs"), "").unwrap();
    hub.put_data("org/theirs", &[("train.parquet", b"PAR1")]);
    refused("hf://org/theirs", &["datasets--org--theirs", "set HF_HOME to a folder of your own"]);
    hub.fail("GET", "/api/datasets/", 9, Fault::Status(403, "x-error-code: GatedRepo"));
    refused("hf://org/gated", &["hf://datasets/org/gated", "is gated", "HF_TOKEN"]);
    refused("webdataset=hf://org/gated", &["root", "hf://datasets/org/gated", "is gated", "accept its terms"]);
}

/// What has come before Ctrl-C stays, and the same command asks for the rest alone.
#[test]
fn a_fetch_that_ctrl_c_ends_is_continued() {
    let (place, size, half) = (Place::new(), 28_999, 20_000);
    let name = "dl.fbaipublicfiles.com/glue/data/WNLI.zip";
    // As many bytes as the published file has, but others: the whole file is compared with its hash at the end.
    let hub = Hub::of("org/none", &[(name, &vec![7; size])]);
    hub.fail("GET", name, 1, Fault::Stall(half));
    let words = ["data", "fetch", "glue", "--set", "data.glue.task=wnli", "--root", "glue"];
    let fetch = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
        command.args(words).current_dir(place.path("")).env("BELLA_DATA_MIRROR", format!("{}/direct", hub.address));
        command.env("HF_HUB_DOWNLOAD_TIMEOUT", "60").stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let child = fetch().spawn().unwrap();
    let part = place.path("glue/WNLI.zip.incomplete");
    let began = Instant::now();
    while part.metadata().map_or(0, |about| about.len()) < half as u64 {
        assert!(began.elapsed() < Duration::from_secs(60), "no part of {half} bytes");
        std::thread::sleep(Duration::from_millis(20));
    }
    let stopped = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success() && !child.wait_with_output().unwrap().status.success());
    assert_eq!(part.metadata().unwrap().len(), half as u64);
    hub.seen();
    let again = fetch().output().unwrap();
    assert_has(&messages(&again), &["it is not the published file and was removed"]);
    let asked: Vec<_> = hub.seen().into_iter().filter(|request| request.path.ends_with(name)).collect();
    assert_eq!(asked[0].from, Some(half));
    assert!(!place.path("glue/WNLI.zip").exists() && !part.exists());
}
