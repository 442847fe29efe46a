//! A run whose checkpoint and data lie elsewhere than in training, as on another machine: every command that opens it takes their places
//! by `--set`, says so where they are missing, and refuses what is no place.

use crate::common::{
    Place, assert_has, bella, done, error_in, error_line, fixture, folder, messages, repository, text, with,
};
use crate::encoder_runs::{self, LOW_RANK, TRAINED};

const IVON: [&str; 2] =
    ["method.ivon={lr=0.1,ess=32,hess_init=0.1,beta2=0.99,samples=1,particles=3}", "optimizer.none={}"];

/// Two runs of three Gaussians each on the user's own images, in a copy of their results folder, after the checkpoint and the images moved
/// from `here` to `there`.
fn moved() -> Place {
    let place = Place::with_tiny();
    let archive = std::fs::read(repository("assets/vit-digits.pt")).unwrap();
    place.write("here/net.pt", &archive);
    for (split, images) in [("train", 4), ("test", 2)] {
        for at in 0..10 * images {
            let pixel = |x: u32, y: u32| ::image::Rgb([((x * 37 + y * 91 + at * 53 + images * 7) % 256) as u8; 3]);
            let path = place.write(&format!("here/images/{split}/{}/{at}.png", at % 10), &[]);
            ::image::RgbImage::from_fn(8, 8, pixel).save(path).unwrap();
        }
    }
    let own = [
        format!("checkpoint.path={}", text(&place.path("here/net.pt"))),
        format!("data.image-folder={{root={:?},validation=0.25}}", text(&place.path("here/images"))),
        "train.epochs=1".to_string(),
    ];
    for seed in ["seed=1", "seed=2"] {
        let sets: Vec<&str> = own.iter().map(String::as_str).chain(IVON).chain([seed]).collect();
        done(with(place.train(&sets), &["--no-eval"]));
    }
    std::fs::rename(place.path("here"), place.path("there")).unwrap();
    std::fs::rename(place.path("results"), place.path("first")).unwrap();
    place.write("results/keep", b"");
    std::fs::rename(place.path("first/runs"), place.path("results/runs")).unwrap();
    place
}

/// A command that opens a run.
struct Opening {
    command: &'static str,
    /// The arguments that follow the run.
    arguments: Vec<String>,
    reads_data: bool,
    /// Whether other keys of data.* may be set, too.
    tests: bool,
}

/// Every command that opens a run by its config.
fn commands(place: &Place, other: &str) -> Vec<Opening> {
    let pool = text(&folder(place, "pool"));
    let model = |name: &str| text(&place.path(name));
    let opening = |command, arguments: &[&str], reads_data, tests| Opening {
        command,
        arguments: arguments.iter().map(|argument| argument.to_string()).collect(),
        reads_data,
        tests,
    };
    vec![
        opening("eval", &["--calibrate"], true, true),
        opening("eval", &["--attack", "fgsm", "--epsilon", "0.1", "--transfer-from", other], true, true),
        opening("soup", &[], true, true),
        opening("merge", &[other], true, true),
        opening("merge", &[other, "--by", "squared-gradients", "--images", "8"], true, true),
        opening("landscape", &["--grid", "2", "--samples", "10"], true, true),
        opening("sensitivity", &[], true, false),
        opening("similarity", &[], false, false),
        opening("acquire", &[&pool, "--count", "1"], true, false),
        opening("predict", &[&pool], false, false),
        opening("predict", &[&pool, "--conformal", "0.2"], true, false),
        opening("predict", &["--split", "test"], true, false),
        opening("export", &["--draws", "0", "--to", "weights", "-o", &model("weights")], false, false),
        opening("export", &["--card"], true, false),
    ]
}

#[test]
fn every_command_takes_the_places_of_what_moved() {
    let place = moved();
    let runs = place.runs();
    let [run, other] = [0, 1].map(|run| text(&runs[run]));
    let checkpoint = format!("checkpoint.path={}", text(&place.path("there/net.pt")));
    let root = format!("data.image-folder.root={}", text(&place.path("there/images")));
    for Opening { command, arguments, reads_data, tests } in commands(&place, &other) {
        let with_sets = |sets: &[&str]| {
            let rest: Vec<&str> = arguments.iter().map(String::as_str).collect();
            with(with(place.command(command, sets), &[&run]), &rest)
        };
        let is_card = arguments.contains(&"--card".to_string());
        if !is_card {
            let line = error_line(with_sets(&[&root]), 1);
            assert_has(&line, &["checkpoint.path: ", "here/net.pt: no such", "--set checkpoint.path=PATH says where"]);
        }
        if reads_data {
            let line = error_line(with_sets(&[&checkpoint]), 1);
            assert_has(&line, &["here/images: no such file or folder", "--set data.image-folder.root=PATH says where"]);
        }
        let line = error_line(with_sets(&[&checkpoint, &root, "train.epochs=9"]), 2);
        assert_has(&line, &["--set train.epochs=9: ", "can be set here"]);
        let line = error_line(with_sets(&[&checkpoint, &root, "head.zero-shot.weights=w.safetensors"]), 2);
        assert_has(&line, &["--set head.zero-shot.weights=w.safetensors: the run has head.checkpoint"]);
        if !tests {
            let line = error_line(with_sets(&[&checkpoint, &root, "data.image-folder.subset=3"]), 2);
            assert_has(&line, &["--set data.image-folder.subset=3: ", "data.*.root"]);
            let line = error_line(with_sets(&[&checkpoint, &root, "data.cifar10.root=x"]), 2);
            assert_has(&line, &["--set data.cifar10.root=x: the run has data.image-folder"]);
        }
        // Short keys are those of the run's config.
        let short = ["there/net.pt", "there/images"].map(|name| text(&place.path(name)));
        done(with_sets(&[&format!("path={}", short[0]), &format!("root={}", short[1])]));
    }
    // Another test set leaves the place of the run's own images to be told.
    let sets = [&*checkpoint, "data.digits.subset={test=10}"];
    let other_set = |more: &[&str]| {
        let sets = [&sets[..], more].concat();
        with(place.command("eval", &sets), &[&run, "--data", "digits", "--calibrate"])
    };
    assert_has(&error_line(other_set(&[]), 1), &["--set data.image-folder.root=PATH says where"]);
    done(other_set(&[&root]));
    // The page of a run shows its images.
    let page = text(&place.path("page"));
    let shown = |more: &[&str]| bella(&[&["report", &run, "--out", &page][..], more].concat()).output().unwrap();
    assert_has(&messages(&shown(&[])), &["no sheet of images: ", "--set data.image-folder.root=PATH says where"]);
    let said = shown(&["--set", &root]);
    assert!(said.status.success() && place.path("page/images.png").is_file(), "{}", messages(&said));
    assert_has(&error_in(&shown(&["--set", "train.epochs=9"]), 2), &["--set train.epochs=9: ", "can be set here"]);
    assert_has(&error_line(bella(&["report", &run, "--set", &root]), 2), &["--set: ", "--out and --html"]);
    // The config takes the places for good, and nothing is trained again.
    let config = text(&runs[0].join("config.toml"));
    let output = with(place.command("train", &[&checkpoint, &root]), &[&config, "--no-eval"]).output().unwrap();
    assert_has(&messages(&output), &["this run is finished"]);
    done(with(place.command("eval", &[]), &[&run]));
    // Another checkpoint in its place is noticed.
    let stranger = place.write("other.pt", &std::fs::read(fixture("timm_scripted.pt")).unwrap());
    let set = format!("checkpoint.path={}", text(&stranger));
    assert_has(&error_line(with(place.command("similarity", &[&set]), &[&run]), 1), &["has changed since the run was"]);
}

#[test]
fn a_split_has_an_option_of_its_own_and_is_understood_by_the_former_one() {
    let place = Place::with_tiny();
    done(place.train(&["train.epochs=1"]));
    let predicted = |split: &[&str]| done(with(place.command("predict", &[]), &[&["latest"], split].concat()));
    let own = predicted(&["--split", "test"]);
    assert_eq!((predicted(&["--set", "test"]), predicted(&["--set=test"])), (own.clone(), own));
}

#[test]
fn the_tokenizer_of_a_moved_encoder_is_named() {
    let place = encoder_runs::place("bert", "cola", &format!("{LOW_RANK}{TRAINED}"));
    let config = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    let fixture = text(&fixture("encoder/bert"));
    for entry in std::fs::read_dir(&fixture).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        place.write(&format!("here/{}", entry.file_name().unwrap().display()), &std::fs::read(&entry).unwrap());
    }
    place.write("tiny.toml", config.replace(&fixture, &text(&place.path("here"))).as_bytes());
    done(with(place.train(&["train.epochs=1"]), &["--no-eval"]));
    std::fs::rename(place.path("here"), place.path("there")).unwrap();
    std::fs::rename(place.path("glue"), place.path("texts")).unwrap();
    let archive = format!("checkpoint.path={}", text(&place.path("there/bert.pt")));
    let tokenizer = format!("checkpoint.tokenizer={}", text(&place.path("there")));
    let root = format!("data.glue.root={}", text(&place.path("texts")));
    for arguments in [&["eval"][..], &["predict", "latest", "--split", "test"]] {
        let command = |sets: &[&str]| with(place.command(arguments[0], sets), &arguments[1..]);
        let line = error_line(command(&[&archive, &root]), 1);
        assert_has(&line, &["checkpoint.tokenizer: ", "--set checkpoint.tokenizer=PATH says where"]);
        done(command(&[&archive, &tokenizer, &root]));
    }
}
