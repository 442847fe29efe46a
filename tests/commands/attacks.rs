//! Attacks end to end on the embedded digits: budgets, targets, resolutions, saved pixels, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Place, assert_has, cells, done, error_line, messages, number, tensor_bytes, with};
use bella::results::store::Table;

/// A trained tiny run.
fn trained() -> Place {
    let place = Place::with_tiny();
    let output = place.train(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    place
}

#[track_caller]
fn eval(place: &Place, arguments: &[&str]) {
    let output = place.command("eval", &[]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
}

/// The row of a condition.
#[track_caller]
fn row<'a>(table: &'a Table, condition: &str) -> impl Fn(&str) -> &'a str + use<'a> {
    let index = table.index("condition").unwrap();
    let at = table.rows.iter().position(|row| row[index] == condition);
    let at = at.unwrap_or_else(|| panic!("no row {condition}"));
    move |column: &str| table.get(at, column).unwrap_or_else(|| panic!("no column {column}"))
}

pub fn floats(path: &Path) -> Vec<f32> {
    tensor_bytes(path, "images").chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn budget_zero_is_the_clean_row_bit_for_bit_and_larger_ones_hurt() {
    let place = trained();
    for resolution in ["model", "native"] {
        eval(&place, &["--attack", "fgsm", "--epsilon", "0,0.05,0.3", "--attack-resolution", resolution]);
        let table = place.results();
        let suffix = if resolution == "model" { "" } else { " native" };
        let clean = row(&table, "clean");
        let zero = row(&table, &format!("fgsm 0{suffix}"));
        for column in ["accuracy_lm", "nll_lm", "nll_pm", "ece_lm", "mi", "predictive_entropy", "brier_pm"] {
            assert_eq!(clean(column), zero(column), "{column}");
        }
        let run = place.run();
        let logits = |name: &str| tensor_bytes(&run.join("predictions").join(name), "logits");
        let name = format!("digits@fgsm-0{}.safetensors", suffix.replace(' ', "-"));
        assert_eq!(logits("digits@clean.safetensors"), logits(&name));
        let attacked = row(&table, &format!("fgsm 0.3{suffix}"));
        assert_eq!(
            (attacked("attack"), attacked("epsilon"), attacked("attack_target")),
            ("fgsm", "0.3", "mean-probability")
        );
        assert_eq!(attacked("attack_resolution"), resolution);
        let number = |text: &str| text.parse::<f64>().unwrap();
        assert!(number(attacked("nll_pm")) > number(clean("nll_pm")));
        assert!(number(attacked("accuracy_pm")) < number(clean("accuracy_pm")));
    }
}

#[test]
fn a_table_of_an_attack_begins_with_the_clean_row() {
    let place = trained();
    let mut command = place.command("eval", &[]);
    let output = command.args(["--attack", "fgsm", "--epsilon", "0.1,0.3"]).env("COLUMNS", "80").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with("| ") && line.contains('.')).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[2..].split(" |").next().unwrap().trim()).collect();
    assert_eq!(names, ["clean", "fgsm 0.1", "fgsm 0.3"], "{printed}");
    let [low, high] = ["[", "]"].map(|bracket| rows[0].find(bracket).unwrap_or_else(|| panic!("{printed}")));
    assert!(low < high, "the accuracy has its interval");
    assert_has(&printed, &["set: digits", "trainable parameters: ", "(Wilson)"]);
}

/// The only file of the only run whose condition is `condition`, whatever settings follow.
fn saved_images(folder: &Path, condition: &str) -> PathBuf {
    let run = only(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    let named = |path: &PathBuf| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        stem.split_once(condition).is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('-'))
    };
    only(fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).filter(named))
}

fn only<T>(mut all: impl Iterator<Item = T>) -> T {
    let first = all.next().unwrap();
    assert!(all.next().is_none());
    first
}

#[test]
fn saved_pixels_stay_within_the_budget_and_the_unit_interval() {
    let place = trained();
    let folder = place.path("images");
    for attack in ["fgsm", "pgd"] {
        eval(&place, &["--attack", attack, "--epsilon", "0,0.01,0.1", "--save-images", folder.to_str().unwrap()]);
        let saved = |epsilon: f64| saved_images(&folder, &format!("@{attack}-{epsilon}"));
        let clean = floats(&saved(0.0));
        for epsilon in [0.01, 0.1] {
            let moved = floats(&saved(epsilon));
            let differences = || clean.iter().zip(&moved).map(|(a, b)| (f64::from(*b) - f64::from(*a)).abs());
            assert!(differences().all(|difference| difference <= epsilon), "{attack} {epsilon}");
            assert!(differences().filter(|difference| *difference > 0.9 * epsilon).count() > clean.len() / 10);
            assert!(moved.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        }
    }
    assert_eq!(tensor_bytes(&saved_images(&folder, "@fgsm-0"), "labels").len(), 30 * 8);
}

#[test]
fn pgd_is_no_weaker_than_fgsm_and_repeats() {
    let place = trained();
    eval(&place, &["--attack", "fgsm", "--epsilon", "0.1"]);
    eval(&place, &["--attack", "pgd", "--epsilon", "0.1", "--attack-steps", "20"]);
    let first = place.results();
    let (fgsm, pgd) = (row(&first, "fgsm 0.1"), row(&first, "pgd 0.1 20 x 0.0125"));
    let number = |text: &str| text.parse::<f64>().unwrap();
    assert!(number(pgd("nll_pm")) >= number(fgsm("nll_pm")));
    eval(&place, &["--attack", "pgd", "--epsilon", "0.1", "--attack-steps", "20", "--batch-size", "7"]);
    let second = place.results();
    let (again, pgd) = (number(row(&second, "pgd 0.1 20 x 0.0125")("nll_pm")), number(pgd("nll_pm")));
    assert!((again - pgd).abs() < 1e-2 * pgd, "random starts belong to images, not to batches: {again} and {pgd}");
    eval(&place, &["--attack", "pgd", "--epsilon", "0.1", "--attack-steps", "20", "--attack-seed", "3"]);
    let third = place.results();
    let other = number(row(&third, "pgd 0.1 20 x 0.0125 seed 3")("nll_pm"));
    assert_eq!(row(&third, "pgd 0.1 20 x 0.0125 seed 3")("attack_variant"), "20 steps seed 3");
    assert!(other != again && number(row(&third, "pgd 0.1 20 x 0.0125")("nll_pm")) == again);
}

#[test]
fn every_target_is_a_row_of_its_own_and_chunks_change_nothing() {
    let place = trained();
    for target in ["mean-probability", "mean-logit", "mean-loss", "member-1"] {
        eval(&place, &["--attack", "fgsm", "--epsilon", "0.1", "--attack-target", target, "--precision", "f64"]);
    }
    let whole = place.results();
    assert_eq!(whole.rows.len(), 5);
    let targets = ["mean-probability", "mean-logit", "mean-loss", "member-1"];
    for target in targets {
        let output = place.command("eval", &["train.particle_chunk=1"]);
        let mut output = output;
        let arguments = ["--attack", "fgsm", "--epsilon", "0.1", "--attack-target", target, "--precision", "f64"];
        assert_eq!(output.args(arguments).output().unwrap().status.code(), Some(0));
    }
    let chunked = place.results();
    assert_eq!(chunked.rows.len(), 5, "the same rows again");
    let conditions = ["fgsm 0.1", "fgsm 0.1 mean-logit", "fgsm 0.1 mean-loss", "fgsm 0.1 member-1"];
    for (condition, target) in conditions.iter().zip(targets) {
        let (a, b) = (row(&whole, condition), row(&chunked, condition));
        assert_eq!((a("attack_target"), a("precision")), (target, "f64"));
        let number = |text: &str| text.parse::<f64>().unwrap();
        assert!((number(a("nll_pm")) - number(b("nll_pm"))).abs() < 1e-6, "{condition}");
    }
}

#[test]
fn a_checkpoint_as_it_is_can_be_attacked() {
    let place = Place::with_tiny();
    let output = place.configured("eval", &[]).args(["--attack", "fgsm", "--epsilon", "0.1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_eq!(row(&place.results(), "fgsm 0.1")("mi"), "", "one member has no mutual information");
}

#[test]
fn bad_attacks_are_refused() {
    let place = trained();
    for (arguments, parts) in [
        (&["--attack", "fgsm", "--epsilon", "1.5"][..], &["1.5", "from 0 to 1"][..]),
        (&["--attack", "fgsm", "--epsilon", "0.1,x"], &["x", "a number or a fraction, such as 8/255"]),
        (&["--attack", "fgsm", "--epsilon", "-1"], &["'-1'", "must be from 0 to 1"]),
        (&["--attack", "apgd-t", "--attack-targets", "20"], &["--attack-targets 20: 10 classes have 9 wrong ones"]),
        (&["--attack", "fgsm", "--epsilon", "nan"], &["from 0 to 1"]),
        (&["--attack", "fgsm", "--epsilon=-0.1"], &["from 0 to 1"]),
        (&["--attack", "cw"], &["unknown attack `cw`; known: fgsm, pgd, apgd-ce"]),
        (&["--attack", "pgd", "--attack-step-size", "0"], &["does not move"]),
        (&["--attack", "fgsm", "--attack-steps", "3"], &["--attack-steps: fgsm does not read it"]),
        (
            &["--attack", "fgsm", "--attack-seed", "0"],
            &["--attack-seed: fgsm does not read it, since it draws nothing"],
        ),
        (&["--attack", "fab", "--attack-seed", "3"], &["its only start is the image; --attack-restarts adds"]),
        (&["--attack", "pgd", "--attack-from-image", "--attack-seed", "3"], &["every start is the image"]),
        (&["--attack", "fab", "--attack-target", "mean-loss"], &["mean-loss: it predicts no class"]),
        (&["--attack", "fgsm", "--attack-target", "best"], &["unknown target `best`", "member-K"]),
        (&["--attack", "fgsm", "--corrupt", "contrast:1"], &["cannot be used with"]),
    ] {
        let output = place.command("eval", &[]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", messages(&output));
        assert_has(&messages(&output), parts);
    }
    let mut command = place.command("eval", &[]);
    command.args(["--attack", "fgsm", "--attack-target", "member-2"]);
    assert_has(&error_line(command, 2), &["member-2", "the prediction has 2 members, counted from 0"]);
}

/// Half of the attacks of `plus` have five starts, so that one start is another attack with a name of its own.
#[test]
fn attacks_that_differ_have_names_that_differ() {
    let place = Place::with_tiny();
    done(place.train(&["train.epochs=1", "data.digits.subset.test=2"]));
    let effort = [
        "--attack",
        "autoattack",
        "--attack-version",
        "plus",
        "--attack-steps",
        "2",
        "--attack-queries",
        "2",
        "--attack-targets",
        "1",
    ];
    let attacked =
        |more: &[&str]| done(with(place.command("eval", &[]), &[&effort[..], &["--epsilon", "0.05"], more].concat()));
    attacked(&[]);
    attacked(&["--attack-restarts", "1"]);
    let conditions = place.results();
    let mut conditions: Vec<&str> = cells(&conditions, "condition");
    conditions.retain(|condition| condition.starts_with("autoattack"));
    assert_eq!(conditions.len(), 2, "{conditions:?}");
    assert!(conditions.iter().any(|condition| condition.contains("1 starts")), "{conditions:?}");
}

/// Each attack of AutoAttack alone leaves at least as many images right as all of them together, on whatever batches.
#[test]
fn autoattack_is_no_weaker_than_its_parts() {
    let place = trained();
    let effort = ["--epsilon", "0.1", "--attack-steps", "10"];
    for attack in ["apgd-ce", "apgd-t", "fab-t"] {
        eval(&place, &[&["--attack", attack], &effort[..]].concat());
    }
    eval(&place, &["--attack", "square", "--epsilon", "0.1", "--attack-queries", "40"]);
    let all = [&["--attack", "autoattack", "--attack-queries", "40"], &effort[..]].concat();
    eval(&place, &all);
    let number = |table: &Table, condition: &str| row(table, condition)("accuracy_pm").parse::<f64>().unwrap();
    let table = place.results();
    let whole = number(&table, "autoattack 0.1 10 steps 40 queries");
    assert!(whole < number(&table, "clean"));
    for part in ["apgd-ce 0.1 10 steps", "apgd-t 0.1 10 steps", "fab-t 0.1 10 steps", "square 0.1 40 queries"] {
        assert!(whole <= number(&table, part), "{part}");
    }
    eval(&place, &[&all[..], &["--batch-size", "7"]].concat());
    assert_eq!(number(&place.results(), "autoattack 0.1 10 steps 40 queries"), whole);
}

/// Images that are made on another run change less than those made on the run itself, and rows say whose they are.
#[test]
fn attacks_transfer_from_another_run() {
    let place = trained();
    let ids =
        || place.runs().iter().map(|run| run.file_name().unwrap().to_str().unwrap().to_string()).collect::<Vec<_>>();
    let own = ids().remove(0);
    done(place.train(&["seed=9", "optimizer.adamw.lr=2e-2"]));
    let other = ids().into_iter().find(|id| *id != own).unwrap();
    let attack = ["--attack", "fgsm", "--epsilon", "0,0.2"];
    let eval =
        |of: &str, arguments: &[&str]| with(place.command("eval", &[]), &[&[of], &attack[..], arguments].concat());
    done(eval(&own, &[]));
    done(eval(&own, &["--transfer-from", &other]));
    let table = place.results();
    let found = |condition: &str| {
        let is = |row: &usize| table.get(*row, "run") == Some(&*own) && table.get(*row, "condition") == Some(condition);
        (0..table.rows.len()).find(is).unwrap_or_else(|| panic!("no row {condition}"))
    };
    let transferred = found(&format!("fgsm 0.2 from {other}"));
    assert_eq!(table.get(transferred, "attack_source"), Some(other.as_str()));
    assert_eq!(table.get(found("fgsm 0.2"), "attack_source"), Some(""));
    let nll = |row: usize| number(&table, row, "nll_pm");
    let clean = nll(found("clean"));
    assert_eq!(nll(found(&format!("fgsm 0 from {other}"))), clean, "an attack that moves nothing");
    assert!(nll(transferred) > clean && nll(transferred) < nll(found("fgsm 0.2")));
    assert_has(&error_line(eval(&own, &["--transfer-from", &own]), 2), &["is the run that is evaluated"]);
    done(place.train(&["seed=9", "checkpoint.interpolation=\"bilinear\""]));
    let unlike = ids().into_iter().find(|id| *id != own && *id != other).unwrap();
    let refused = error_line(eval(&own, &["--transfer-from", &unlike]), 2);
    assert_has(&refused, &["the filter: bilinear, and bicubic", "prepared in different ways"]);
}

/// Images that are made against one member are measured on all, as a row of their own.
#[test]
fn autoattack_transfers_from_one_member() {
    let place = trained();
    let effort = ["--attack", "apgd-ce", "--epsilon", "0.1", "--attack-steps", "10"];
    eval(&place, &effort);
    eval(&place, &[&effort[..], &["--attack-target", "member-0"]].concat());
    let table = place.results();
    let number = |condition: &str| row(&table, condition)("accuracy_pm").parse::<f64>().unwrap();
    assert!(number("apgd-ce 0.1 10 steps member-0") >= number("apgd-ce 0.1 10 steps"));
}
