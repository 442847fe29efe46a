//! Data sets end to end: `bella data check` on good and bad folders, a published validation split, several test domains.

use crate::common::{Place, assert_has, bella, cells, done, error_line, messages, printed};
use crate::hub_server::{Fault, Hub};

/// An image of the network's size for each of the ten classes, below `folder`; lines of `<path><separator><class>`.
fn classes(place: &Place, folder: &str, separator: &str) -> String {
    let line = |class: u32| {
        crate::common::image(place, &format!("{folder}/{class}/0.png"), class);
        format!("{folder}/{class}/0.png{separator}{class}\n")
    };
    (0..10).map(line).collect()
}

fn check(place: &Place, arguments: &[&str]) -> crate::common::Bella {
    let mut command = bella(&["data", "check"]);
    command.current_dir(place.path("")).args(arguments);
    command
}

#[test]
fn a_good_set_is_counted() {
    let place = Place::new();
    let rows = ["train", "val", "test"].map(|split| {
        let lines = classes(&place, split, ",");
        lines.lines().map(|line| format!("{line},{split}\n")).collect::<String>()
    });
    place.write("list.csv", format!("path,label,split\n{}", rows.concat()).as_bytes());
    let text = done(check(&place, &["list=.", "--decode", "--workers", "1"]));
    assert_has(&text, &["(list): 10 classes", "train    10 images, 1 in each of 10 classes", "val ", "test "]);
    let text = done(check(&place, &["list=.", "--split", "val", "--set", "data.list.subset=4"]));
    assert_has(&text, &["val      4 images"]);
    place.write("both.toml", b"nothing = \"else is read\"\n[data.list]\nroot = \".\"\n");
    assert_has(&done(check(&place, &["--config", "both.toml"])), &["10 classes"]);
}

/// The tables of WinoGrande call their two answers 1 and 2.
#[test]
fn a_class_that_no_label_names_is_warned_of() {
    let place = Place::new();
    let root = format!("parquet={}", crate::common::fixture("data/parquet/hub/winogrande").display());
    let with = |more: &[&str]| {
        let keys = ["text=\"sentence\"", "label=\"answer\"", "config=\"winogrande_s\"", "test=\"validation\""];
        let keys: Vec<String> = keys.iter().chain(more).map(|key| format!("data.parquet.{key}")).collect();
        let all = keys.iter().flat_map(|key| ["--set", key.as_str()]);
        messages(&check(&place, &[root.as_str()].into_iter().chain(all).collect::<Vec<_>>()).output().unwrap())
    };
    let rule = "winogrande: nothing has the label 0, which is a class all the same; otherwise set data.parquet.classes = [\"1\", \"2\"]";
    assert_has(&with(&[]), &[rule]);
    assert!(!with(&["classes=[\"1\", \"2\"]"]).contains("label 0"));
}

#[test]
fn every_bad_file_is_a_line() {
    let place = Place::new();
    let mut list = format!("path,label\n{}", classes(&place, "img", ","));
    let jpeg = place.write("img/cut.jpg", &[]);
    image::RgbImage::from_pixel(16, 16, image::Rgb([25, 90, 10])).save(&jpeg).unwrap();
    let bytes = std::fs::read(&jpeg).unwrap();
    std::fs::write(&jpeg, &bytes[..bytes.len() * 2 / 3]).unwrap();
    place.write("img/text.png", b"no image");
    list += "img/cut.jpg,1\nimg/text.png,2\n";
    place.write("list.csv", list.as_bytes());
    done(check(&place, &["list=."]));
    let output = check(&place, &["list=.", "--decode"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_has(&printed(&output), &["12 images", "expected: your own images and a list of them"]);
    let text = messages(&output);
    assert_has(&text, &["error: list: test: ", "img/cut.jpg: the JPEG is cut off", "img/text.png", "error: 2 faults"]);

    place.write("img/empty.png", b"");
    place.write("list.csv", (list + "img/empty.png,1\nimg/gone.png,1\n").as_bytes());
    let output = check(&place, &["list=."]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_has(&messages(&output), &["2 of 14 listed files", "img/empty.png is empty", "img/gone.png: No such file"]);
}

#[test]
fn missing_files_are_told_where_to_come_from() {
    let place = Place::new();
    let output = check(&place, &["svhn=absent"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_has(&printed(&output), &["expected: train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu"]);
    assert_has(&messages(&output), &["train_32x32.mat: cannot read", "test_32x32.mat: cannot read", "error: 2 faults"]);
    assert_has(&error_line(check(&place, &["cifar11=x"]), 2), &["unknown data set `cifar11`; known: cifar10"]);
    let line = error_line(check(&place, &["vtab=x"]), 2);
    assert_has(&line, &["data.vtab.task is required"]);
    let line = error_line(check(&place, &["vtab=x", "--set", "seed=1"]), 2);
    assert_has(&line, &["--set seed=1: only keys of data.* matter here"]);
}

#[test]
fn a_published_validation_split_validates() {
    let place = Place::with_tiny();
    for split in ["train", "val", "test"] {
        classes(&place, &format!("data/{split}"), ",");
    }
    let root = format!("data.image-folder.root={}", place.path("data").display());
    done(place.train(&[&root, "data.image-folder.validation=val", "train.batch_size=5"]));
    let run = place.run();
    let record = std::fs::read_to_string(run.join("run.json")).unwrap();
    assert_has(&record, &["\"train_samples\": 10", "\"validation_samples\": 10"]);
    let curve = bella::results::store::read(&run.join("train.csv")).unwrap();
    assert!(cells(&curve, "validation_nll_lm").iter().all(|nll| nll.parse::<f64>().unwrap() > 0.0));
    let resolved = std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert_has(&resolved, &["validation = \"val\"", "select = \"best-epoch\""]);
    let mut calibrated = place.command("eval", &[]);
    calibrated.arg("--calibrate");
    assert_has(
        &messages(&calibrated.output().unwrap()),
        &["image-folder/val: 10 images", "image-folder/test: 10 images"],
    );

    std::fs::remove_dir_all(place.path("data/val")).unwrap();
    let line = error_line(place.train(&[&root, "data.image-folder.validation=val", "seed=4"]), 1);
    assert_has(&line, &["data.image-folder.validation = \"val\": ", "no folder `val`, only train, test"]);
    let line = error_line(place.train(&["data.digits.validation=dev"]), 2);
    assert_has(
        &line,
        &["data.digits.validation = dev: must be a number from 0 to below 1, or \"val\" for the published split"],
    );
}

/// Test images that were trained on are said once, by training for the run's own test set and by `eval` for another one, and are in the
/// run's record.
#[test]
fn test_images_among_the_training_images_are_told() {
    let place = Place::with_tiny();
    ["train", "test"].iter().for_each(|split| drop(classes(&place, &format!("data/{split}"), ",")));
    crate::common::image(&place, "data/test/3/0.png", 70);
    let root = format!("data.image-folder.root={}", place.path("data").display());
    let output = place.train(&[&root, "train.batch_size=5"]).output().unwrap();
    let said = "data: 9 images are of 10 images among the training images (";
    assert_eq!(messages(&output).matches(said).count(), 1, "{}", messages(&output));
    let record = std::fs::read_to_string(place.run().join("run.json")).unwrap();
    assert_has(&record, &["\"overlap\": [", "\"set\": \"data\"", "\"images\": 9", "\"compared\": 10", "test/0/0.png"]);

    classes(&place, "other", ",");
    (0..10).filter(|class| *class != 4).for_each(|class| {
        drop(crate::common::image(&place, &format!("other/{class}/0.png"), 100 + class));
    });
    let evaluated = |data: &str| {
        let mut command = place.command("eval", &[]);
        command.args(["--data", &format!("image-folder={}", place.path(data).display())]);
        messages(&command.output().unwrap())
    };
    assert_has(&evaluated("other"), &["other: 1 image is of 10 images among the training images (", "other/4/0.png"]);
    std::fs::remove_dir_all(place.path("other/4")).unwrap();
    assert!(!evaluated("other").contains("among the training images"));
    // Where the training images are gone, there is nothing to compare with.
    std::fs::remove_dir_all(place.path("data")).unwrap();
    assert!(!evaluated("other").contains("error"));
}

#[test]
fn new_images_are_resized_as_those_of_the_run() {
    let place = Place::with_tiny();
    for split in ["train", "test"] {
        classes(&place, &format!("data/{split}"), ",");
    }
    let wide = place.write("wide.png", &[]);
    image::RgbImage::from_fn(48, 16, |x, _| image::Rgb([(5 * x) as u8; 3])).save(&wide).unwrap();
    let predicted = |more: &[&str]| {
        let mut command = place.command("predict", &[]);
        command.args(["latest", wide.to_str().unwrap()]).args(more);
        done(command)
    };
    for resize in ["stretch", "shorter-side-crop"] {
        let sets = [
            format!("data.image-folder.root={}", place.path("data").display()),
            format!("data.image-folder.resize={resize}"),
        ];
        done(place.train(&[&sets[0], &sets[1], "train.batch_size=5", "train.select=last-epoch"]));
        assert_eq!(predicted(&[]), predicted(&["--resize", resize]));
        let other = if resize == "stretch" { "shorter-side-crop" } else { "stretch" };
        assert_ne!(predicted(&[]), predicted(&["--resize", other]));
    }
}

#[test]
fn settings_that_a_set_cannot_follow_are_refused() {
    let place = Place::new();
    let refused = |arguments: &[&str]| error_line(check(&place, arguments), 2);
    assert_has(&refused(&["cifar10=x", "--set", "data.cifar10.cache=kept"]), &["data.cifar10.cache", "leave it out"]);
    let line = refused(&["cifar10=x", "--set", "data.cifar10.validation=val"]);
    assert_has(&line, &["data.cifar10.validation", "no split `val`", "give a share"]);
    let sets = ["--set", "data.camelyon17.val=id_val", "--set", "data.camelyon17.validation=0.2"];
    let line = refused(&[&["camelyon17=x"], &sets[..]].concat());
    assert_has(&line, &["data.camelyon17.val", "is for validation = \"val\""]);
    assert_has(&refused(&["image-folder="]), &["image-folder=: names no folder"]);
}

#[test]
fn every_test_domain_has_a_row() {
    let place = Place::with_tiny();
    for domain in ["photo", "cartoon"] {
        for split in ["train", "test"] {
            let lines = classes(&place, domain, " ");
            place.write(&format!("{domain}_{split}.txt"), lines.as_bytes());
        }
    }
    let data = |test: &str| format!("data.domainnet={{root={:?},train=\"photo\",test={test}}}", place.path(""));
    let both = data("[\"photo\", \"cartoon\"]");
    let sets = [both.as_str(), "train.select=last-epoch", "train.batch_size=5"];
    done(place.train(&sets));
    assert_eq!(cells(&place.results(), "set"), ["domainnet-photo", "domainnet-cartoon"]);
    // a finished run shows all of its rows
    let text = done(place.train(&sets));
    assert_has(&text, &["domainnet-photo", "domainnet-cartoon"]);
    let mut shifted = place.command("eval", &["data.domainnet.label=toons"]);
    shifted.args(["--corrupt", "contrast:1"]);
    done(shifted);
    assert_eq!(cells(&place.results(), "set")[2..], ["toons-photo", "toons-cartoon"]);
}

#[test]
fn a_set_is_fetched_by_name_or_the_message_says_what_to_do() {
    let place = Place::new();
    let hub = Hub::of("org/none", &[("www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", b"no archive")]);
    let fetch = |words: &[&str]| {
        let mut command = bella(&["data", "fetch"]);
        command.current_dir(place.path("")).args(words);
        command.env("BELLA_DATA_MIRROR", format!("{}/direct", hub.address)).output().unwrap()
    };
    for (words, code, contains) in [
        (&["cifr10"][..], 2, &["unknown data set `cifr10`"][..]),
        (&["imagenet"], 1, &["imagenet: is not downloaded by bella, since its terms must be accepted", "ILSVRC2012"]),
        (&["list"], 1, &["these are your own files"]),
        (&["glue"], 1, &["data.glue.task"]),
        (&["glue", "--set", "data.glue.task=mrpc"], 1, &["glue: none of its archives has this part", "MRPC"]),
        (&["cifar10", "--set", "seed=1"], 2, &["only keys of data.*"]),
        (&["cifar10", "--offline"], 1, &["cifar10: is to be downloaded", "--offline"]),
        (&["svhn"], 1, &["svhn: 127.0.0.1 answers 404", "BELLA_DATA_MIRROR"]),
        (&["cifar10"], 1, &["has 10 bytes, not the 170052171 that were promised"]),
    ] {
        let output = fetch(words);
        assert!([code, 2].contains(&output.status.code().unwrap()), "{words:?}: {}", messages(&output));
        assert_has(&messages(&output), contains);
    }
    hub.fail("GET", "cifar-10", 1, Fault::Header("content-length", "170052171".into()));
    assert_has(&messages(&fetch(&["cifar10"])), &["cifar10: no licence is stated"]);
    let output = check(&place, &["glue=glue data", "--set", "data.glue.task=rte"]).output().unwrap();
    assert_has(&printed(&output), &["to get it: bella data fetch glue --root ", "glue data' --set data.glue.task=rte"]);
}
