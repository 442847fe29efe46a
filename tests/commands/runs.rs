//! The runs of a results folder: how they are listed, named, compared and removed, and several seeds at once.

use crate::common::{Bella, Place, assert_has, bella, cells, done, error_line, messages, number, printed, with};

/// `bella runs` on the results of a place, in 80 columns.
fn runs(place: &Place, arguments: &[&str]) -> Bella {
    let out = place.path("results").display().to_string();
    let mut command = bella(&[&["runs"], arguments, &["--out", &out]].concat());
    command.env("COLUMNS", "80");
    command
}

/// A finished run with seed 3 and a younger one with seed 4 that is paused.
fn two() -> Place {
    let place = Place::with_tiny();
    done(place.train(&[]));
    done(with(place.train(&["seed=4"]), &["--no-eval", "--until-epoch", "1"]));
    place
}

#[test]
fn runs_are_listed_in_a_line_each_and_found_by_their_short_names() {
    let place = two();
    let listed = done(runs(&place, &[]));
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 4, "{listed}");
    assert_has(lines[0], &["experiment: tiny"]);
    assert_has(lines[1], &["run ", "method", "settings", "state", "accuracy (lm)", "age"]);
    assert_has(lines[2], &["svgd", "seed=4", "stopped 1/2"]);
    assert_has(lines[3], &["svgd", "seed=3", "trained", " %"]);
    assert!(lines.iter().all(|line| line.chars().count() <= 80) && !listed.contains("gamma"), "{listed}");
    let short = lines[3].split(' ').next().unwrap();
    let mut ids = place.runs().into_iter().map(|run| run.file_name().unwrap().to_string_lossy().into_owned());
    let id = ids.find(|id| id.starts_with("low-rank-svgd-s3-")).unwrap();
    assert!(id.rsplit('-').next().unwrap().starts_with(short), "{short} of {id}");
    assert_has(&done(runs(&place, &["show", short])), &[&id, "trained: 2 epochs", "method.svgd.gamma = 0.01", "clean"]);
    assert_has(&done(runs(&place, &["--csv"])), &[&format!("tiny,{id},low-rank,svgd,seed=3,trained,,")]);
}

#[test]
fn held_out_images_are_no_accuracy_and_training_again_leaves_no_rows() {
    let place = Place::with_tiny();
    done(with(place.train(&[]), &["--no-eval"]));
    done(with(place.command("eval", &[]), &["--split", "val"]));
    let listed = done(runs(&place, &[]));
    assert!(!listed.contains('%') && listed.contains("trained"), "{listed}");
    done(with(place.command("eval", &[]), &["--corrupt", "gaussian-noise:1"]));
    done(with(place.train(&[]), &["--force"]));
    assert_has(&done(runs(&place, &[])), &[" %"]);
    let file = bella::results::store::read(&place.path("results/tiny.csv")).unwrap();
    assert_eq!(cells(&file, "set"), ["digits"], "rows of the run as it was before");
}

#[test]
fn runs_are_chosen_and_sorted() {
    let place = two();
    let of = |arguments: &[&str]| {
        let text = done(runs(&place, arguments));
        let seeds = text.match_indices("seed=").map(|(at, _)| text[at + 5..at + 6].to_string());
        (seeds.collect::<String>(), text.lines().count())
    };
    assert_eq!(of(&["--sort", "accuracy"]), ("34".into(), 4));
    assert_eq!(of(&["--sort", "seed"]), ("34".into(), 4));
    assert_eq!(of(&["--sort", "age", "--experiment", "tiny"]), ("43".into(), 4));
    // What all of the listed runs share is not said.
    assert_eq!(of(&["--filter", "method=svgd,seed=4"]), (String::new(), 3));
    let refused = |arguments: &[&str]| error_line(runs(&place, arguments), 2);
    assert_has(&refused(&["--filter", "method=svg"]), &["--filter method=svg: no run fits: method is svgd"]);
    assert_has(&refused(&["--filter", "seeed=4"]), &["none has a setting `seeed`", "did you mean `seed`"]);
    assert_has(&refused(&["--sort", "gama"]), &["--sort gama: no run has such a setting", "did you mean `gamma`"]);
    assert_has(&refused(&["--sweeps", "show", "low-rank-svgd-s3"]), &["options of the list stand alone"]);
    assert_has(&refused(&["--experiment", "other"]), &["--experiment other: has no runs; those that have: tiny"]);
}

#[test]
fn a_config_that_somebody_has_edited_is_named() {
    let place = Place::with_tiny();
    done(with(place.train(&[]), &["--no-eval", "--until-epoch", "1"]));
    let config = place.run().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("seed = 3", "seed = 5")).unwrap();
    let output = runs(&place, &[]).output().unwrap();
    let said = messages(&output);
    assert_has(&said, &["config.toml: changed since bella wrote it", "its settings are not known"]);
    assert_eq!(said.matches("config.toml").count(), 1, "{said}");
    assert!(!printed(&output).contains("checkpoint"), "{}", printed(&output));
}

#[test]
fn an_ambiguous_name_lists_the_runs_that_it_fits() {
    let place = two();
    let output = runs(&place, &["show", "low-rank"]).output().unwrap();
    let said = messages(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[..2].iter().all(|line| line.starts_with("low-rank-svgd-s") && line.contains("seed=")), "{said}");
    assert_has(lines[2], &["error: `low-rank` fits 2 runs below", "give more of the id"]);
}

/// The hash in an id leaves the name of the experiment out.
#[test]
fn runs_of_one_id_are_told_apart_by_their_experiments() {
    let place = Place::with_tiny();
    done(with(place.train(&[]), &["--no-eval", "--until-epoch", "1"]));
    let run = place.run();
    let id = run.file_name().unwrap().to_str().unwrap();
    let other = place.path("results/runs/other").join(id);
    std::fs::create_dir_all(&other).unwrap();
    std::fs::copy(run.join("config.toml"), other.join("config.toml")).unwrap();
    let show = |name: &str| runs(&place, &["show", name]);
    let said = messages(&show(id).output().unwrap());
    assert_has(
        &said,
        &[&format!("other/{id}"), &format!("tiny/{id}"), "fits 2 runs below", "name one as EXPERIMENT/ID"],
    );
    assert_has(&done(show(&format!("other/{id}"))), &[&format!("folder: {}", other.display())]);
    std::fs::write(other.join("trial"), "a-sweep").unwrap();
    assert_has(&done(show(id)), &[&format!("folder: {}", run.display())]);
}

/// An attack on fewer images leaves a row of these, too.
#[test]
fn the_listed_accuracy_is_that_of_the_most_images_and_csv_stands_alone() {
    let place = Place::with_tiny();
    done(with(place.train(&[]), &["--no-eval"]));
    done(place.command("eval", &["data.digits.subset.test=4"]));
    done(place.command("eval", &[]));
    let results = place.results();
    let samples = cells(&results, "samples");
    assert_eq!(samples, ["4", "30"]);
    let [few, all] = [0, 1].map(|row| cells(&results, "accuracy_lm")[row].to_string());
    let listed = done(runs(&place, &["--csv"]));
    assert!(few != all && listed.contains(&format!(",{all},")), "{listed}");
    let shown = done(runs(&place, &["show", "latest", "--csv"]));
    assert_eq!((shown.lines().count(), shown.starts_with("experiment,")), (3, true), "{shown}");
}

#[test]
fn runs_are_compared_and_removed_after_a_question() {
    let place = two();
    let different = done(runs(&place, &["diff", "low-rank-svgd-s3", "low-rank-svgd-s4"]));
    assert_has(&different, &["| seed", " 3 |", " 4 |"]);
    assert_eq!(different.lines().count(), 3, "{different}");
    let asked = runs(&place, &["rm", "low-rank-svgd-s3"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(2), "{}", messages(&asked));
    assert_has(&messages(&asked), &["low-rank-svgd-s3", "trained, ", "--yes is needed where no terminal can ask"]);
    assert_eq!(place.runs().len(), 2);
    let removed = runs(&place, &["rm", "--yes", "low-rank-svgd-s3"]).output().unwrap();
    assert_has(&messages(&removed), &["removed ", "1 row stays in ", "tiny.csv until `bella report --rebuild`"]);
    assert_eq!((place.runs().len(), place.results().rows.len()), (1, 1));
    let results = place.path("results").display().to_string();
    let rebuilt = done(bella(&["report", "--rebuild", &results]));
    assert_has(&rebuilt, &["tiny.csv: 0 rows, 1 of runs that are gone left out; as it was: ", "tiny.csv.old"]);
    assert!(!place.path("results/tiny.csv").exists() && place.path("results/tiny.csv.old").is_file());
}

#[test]
fn several_seeds_are_trained_one_after_the_other_and_summed_up() {
    let place = Place::with_tiny();
    let paused = with(place.train(&[]), &["--seeds", "4", "--until-epoch", "1"]).output().unwrap();
    assert_has(&messages(&paused), &["seed 4: run 1 of 1", "paused after 4 steps"]);
    let seeds = |list: &str| with(place.train(&[]), &["--seeds", list]);
    let output = seeds("3,4").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["seed 3: run 1 of 2", "seed 4: run 2 of 2", "resuming after 4 steps"]);
    let table = place.results();
    assert_eq!(cells(&table, "seed"), ["3", "4"]);
    // Of two numbers, Student's t is 12.7062 and the deviation |a - b| / √2, so half the interval is 6.3531 |a - b|.
    let [a, b] = [0, 1].map(|row| number(&table, row, "nll_lm"));
    let (mean, half) = ((a + b) / 2.0, 6.353_102_4 * (a - b).abs());
    let shown = printed(&output);
    let interval = format!("{:.4} to {:.4}", mean - half, mean + half);
    assert_has(&shown, &["digits, clean: Bella-SVGD (n=2), 2 seeds", &format!("{mean:.4}"), &interval]);
    assert_eq!(printed(&seeds("3,4").output().unwrap()), shown, "nothing is trained again");
    assert_has(&error_line(seeds("3,3"), 2), &["--seeds: 3 comes twice"]);
    let both = with(place.train(&["seed=1"]), &["--seeds", "3,4"]);
    assert_has(&error_line(both, 2), &["--set seed=1: --seeds gives the seeds"]);
}
