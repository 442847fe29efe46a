//! Other people's test sets of ImageNet's classes, for a model of all thousand: predictions among a part of the classes.

use bella::data::Sizes;
use bella::predictions::Predictions;
use bella::results::store::{Table, read};

use crate::common::{Place, assert_has, done, error_line, fixture, messages, small_set, text};

/// `indices_in_1k` of `eval.py` of github.com/hendrycks/natural-adv-examples (commit 0777070): the places of the classes of
/// ImageNet-A among the thousand.
fn places() -> Vec<u32> {
    let text = std::fs::read_to_string(fixture("data/imagenet_a_places.txt")).unwrap();
    text.split_whitespace().map(|place| place.parse().unwrap()).collect()
}

/// The WordNet numbers of the thousand classes.
fn wnids() -> Vec<String> {
    bella::data::read::wordnet::all()
}

/// A run on one image of each of ten classes of ImageNet, two of which are classes of ImageNet-A and held out, too.
fn trained() -> Place {
    let place = Place::with_tiny();
    for place_of in [0, 6, 11, 30] {
        for number in 0..5 {
            crate::common::image(
                &place,
                &format!("train/{}/{number}.png", wnids()[place_of]),
                31 * number + place_of as u32,
            );
        }
    }
    let config = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    let imagenet = format!("[data.imagenet]\nroot = {:?}\nclasses = {:?}\nvalidation = 0.4\n", place.path(""), wnids());
    crate::common::image(&place, &format!("val/{}/v.png", wnids()[6]), 4);
    let config = config.replace("[data.digits]\nsubset = { train = 40, test = 30 }\nvalidation = 0.2\n", &imagenet);
    place.write("tiny.toml", config.replace("[head.checkpoint]", "[head.linear]").as_bytes());
    done(place.train(&["train.epochs=1", "train.batch_size=4"]));
    let sizes = Sizes { classes: 200, present: 5, train: 0, val: 0, test: 12, side: 8, corruptions: 0 };
    ["imagenet-a", "imagenet-r"].iter().for_each(|key| small_set(&place, "sets", key, &sizes));
    place
}

fn evaluated(place: &Place, data: &str, more: &[&str]) -> String {
    let mut command = place.command("eval", &[]);
    command.args(["--data", data]).args(more);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    messages(&output)
}

fn row(table: &Table, set: &str) -> usize {
    (0..table.rows.len()).find(|row| table.get(*row, "set") == Some(set)).unwrap_or_else(|| panic!("no {set}"))
}

/// The logits of a model of a thousand classes are narrowed as the authors' code does it, and metrics, attacks and what is fitted on
/// held-out images see these alone.
#[test]
fn predictions_are_among_the_classes_of_the_set() {
    let place = trained();
    let sets = text(&place.path("sets"));
    let log = evaluated(&place, &format!("imagenet-a={sets}"), &["--calibrate"]);
    assert_has(&log, &["200 of the model's 1000 classes: matched by name", "the logits of the other 800 are left out"]);
    evaluated(&place, &format!("imagenet-a={sets}"), &["--set", "data.imagenet-a.narrow=false"]);
    let open =
        |name: &str| Predictions::open(&place.run().join(format!("predictions/{name}@clean.safetensors"))).unwrap();
    let (narrow, all) = (open("imagenet-a"), open("imagenet-a-among-all"));
    assert_eq!((narrow.classes(), all.classes(), narrow.samples()), (200, 1000, 12));
    let places = places();
    for member in 0..2 {
        for sample in 0..12 {
            let expected: Vec<f32> = places.iter().map(|place| all.logits(member, sample)[*place as usize]).collect();
            assert_eq!(narrow.logits(member, sample), expected);
        }
    }
    let labels = [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4];
    assert_eq!(narrow.labels().unwrap(), labels);
    assert_eq!(all.labels().unwrap(), labels.map(|label| places[label as usize]));
    assert_eq!(narrow.class_names()[1], all.class_names()[places[1] as usize]);

    let (run, out) = (text(&place.run()), text(&place.path("results")));
    let compare = |set: &str| crate::common::bella(&["compare", &run, &run, "--out", &out, "--test-set", set]);
    assert_has(&done(compare("imagenet-a")), &["imagenet-a@clean.safetensors", "0.00 to 0.00"]);
    let line = error_line(compare("imagenet-v2"), 1);
    assert_has(&line, &["no predictions on imagenet-v2 under the condition `clean`: choose another test set"]);
    assert_has(&line, &["--test-set imagenet, imagenet-a, imagenet-a-among-all"]);

    let results = place.results();
    let (one, other) = (row(&results, "imagenet-a"), row(&results, "imagenet-a-among-all"));
    assert_eq!((results.get(one, "classes"), results.get(one, "narrowed_from")), (Some("200"), Some("1000")));
    assert_eq!((results.get(other, "classes"), results.get(other, "narrowed_from")), (Some("1000"), Some("")));
    let number = |row: usize, column: &str| results.get(row, column).unwrap().parse::<f64>().unwrap();
    assert!(number(one, "nll_lm") < number(other, "nll_lm"));
    assert!(number(one, "temperature_lm") > 0.0);
    // Of the eight held-out images, six are of classes of ImageNet-A: too few for 400 parameters.
    let mut command = place.command("eval", &[]);
    command.args(["--data", &format!("imagenet-a={sets}"), "--calibrate=vector"]);
    assert_has(&error_line(command, 2), &["400 parameters for 200 classes, but 6 held-out images"]);
}

#[test]
fn attacks_are_among_them_too() {
    let place = trained();
    let sets = text(&place.path("sets"));
    let data = format!("imagenet-r={sets}");
    evaluated(&place, &data, &["--attack", "fgsm", "--epsilon", "0,0.05"]);
    let csv = read(&place.path("results/tiny.csv")).unwrap();
    let of_r: Vec<usize> = (0..csv.rows.len()).filter(|row| csv.get(*row, "set") == Some("imagenet-r")).collect();
    assert_eq!(of_r.len(), 3, "clean, and two budgets");
    let nll = |at: usize| csv.get(of_r[at], "nll_lm").unwrap().parse::<f64>().unwrap();
    assert_eq!(nll(0), nll(1), "a budget of 0 changes nothing");
    assert!(nll(2) > nll(0));
    assert!(of_r.iter().all(|row| csv.get(*row, "narrowed_from") == Some("1000")));
}

#[test]
fn what_does_not_fit_is_refused() {
    let place = trained();
    let sets = text(&place.path("sets"));
    let mut command = place.command("eval", &[]);
    command.args(["--data", &format!("imagenet-a={sets}"), "--split", "train"]);
    assert_has(&error_line(command, 1), &["imagenet-a has test images alone, no split `train`"]);
    let mut command = place.command("eval", &[]);
    command.args(["--data", &format!("imagenet-v2={sets}")]);
    assert_has(&error_line(command, 1), &["not one of the 1000 classes", "remove it, since the set has these"]);
    let mut command = place.command("eval", &[]);
    command.args(["--data", "imagenet-z=x"]);
    assert_has(&error_line(command, 2), &["unknown data set `imagenet-z`; known: ", "imagenet-a, imagenet-r"]);
    let digits = crate::common::trained();
    let mut command = digits.command("eval", &[]);
    command.args(["--data", &format!("imagenet-a={sets}")]);
    assert_has(&error_line(command, 1), &["the model does not know 200 of the test set's 200 classes"]);
}
