use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::predictions::{Predictions, Shape};
use crate::report::Sources;
use crate::results::store::{self, Row, Table, upsert_row};

/// Returns a result row of a run with the method `svgd` or `map`. The cells of `more` are added or replace the default
/// ones.
fn row(run: &str, method: &str, more: &[(&str, &str)]) -> Row {
    let given = |column: &str| more.iter().any(|(name, _)| *name == column);
    let particles = if method == "svgd" { "2" } else { "1" };
    let plain = [
        ("experiment", "toy"),
        ("run", run),
        ("subspace", "low-rank"),
        ("method", method),
        ("rank", "4"),
        ("particles", particles),
        ("seed", "1"),
        ("set", "digits"),
        ("condition", "clean"),
        ("accuracy_lm", "0.9"),
        ("accuracy_pm", "0.9"),
        ("nll_lm", "0.3"),
        ("nll_pm", if method == "svgd" { "0.25" } else { "0.3" }),
        ("ece_pm", "0.05"),
        ("train_wall_seconds", if method == "svgd" { "50" } else { "10" }),
        ("mi", "0.05"),
        ("predictive_entropy", "0.4"),
        ("diversity_kl", "0.06"),
        ("trainable_parameters", "23000"),
    ];
    let mut row = Row::new();
    plain.iter().filter(|(column, _)| !given(column)).chain(more).for_each(|(column, value)| row.push(*column, *value));
    row
}

fn predictions(path: &Path, run: &str) {
    let shape = Shape { members: 2, samples: 60, classes: 3 };
    let logit = |at: usize| ((at * 37 % 101) as f32 / 25.0).sin() * 2.0;
    let labels = (0..60).map(|sample| sample * 7 % 3).collect();
    let text = [("experiment", "toy"), ("run", run), ("set", "digits"), ("condition", "clean")];
    let metadata: BTreeMap<_, _> = text.map(|(key, value)| (key.to_string(), value.to_string())).into();
    let predictions = Predictions::new(shape, (0..360).map(logit).collect(), labels).unwrap();
    predictions.with_metadata(metadata).unwrap().save(path).unwrap();
}

fn drawn(sources: &Sources) -> Vec<Figure> {
    all(&Material::of(&sources.by_experiment()))
}

/// Returns a results folder with data for every figure.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("toy.csv");
    let add = |run: &str, method: &str, more: &[(&str, &str)]| {
        upsert_row(&csv, &row(run, method, more), &["run", "set", "condition"]).unwrap();
    };
    let gamma = ("svgd.gamma", "0.01");
    add("a", "svgd", &[gamma]);
    add("b", "map", &[]);
    for epsilon in ["0", "0.01"] {
        let attack = [("attack", "fgsm"), ("epsilon", epsilon), ("attack_target", "mean-probability"), gamma];
        add("a", "svgd", &[("condition", &format!("fgsm {epsilon}")), attack[0], attack[1], attack[2], gamma]);
    }
    for severity in ["1", "2"] {
        let condition = format!("blur:{severity} (bella)");
        add("a", "svgd", &[("condition", &condition), ("corruption", "blur"), ("severity", severity), gamma]);
    }
    add("a", "svgd", &[("set", "stl10"), gamma]);
    add("c", "svgd", &[("rank", "8"), gamma]);
    add("d", "svgd", &[("particles", "4"), gamma]);
    add("e", "svgd", &[("svgd.gamma", "0.1")]);
    for run in ["a", "b"] {
        let run_folder = folder.path().join("runs/toy").join(run);
        fs::create_dir_all(run_folder.join("predictions")).unwrap();
        predictions(&run_folder.join("predictions/digits@clean.safetensors"), run);
        let mut history = Table::new(["epoch", "train_loss", "mean_kernel", "run"]);
        history.rows =
            [["1", "1.5", "0.2", run], ["2", "1.0", "0.3", run]].map(|row| row.map(String::from).to_vec()).into();
        store::write(&run_folder.join("train.csv"), &history).unwrap();
    }
    let trials =
        "trial,optimizer.adamw.lr,state,validation_nll_lm\n1,0.001,chosen,0.4\n2,0.01,finished,0.9\n3,0.1,failed,\n";
    fs::create_dir_all(folder.path().join("sweeps/toy-0123456789")).unwrap();
    fs::write(folder.path().join("sweeps/toy-0123456789/trials.csv"), trials).unwrap();
    let map = "x,y,train_error,test_error\n0,0,0.1,0.2\n1,0,0.2,0.3\n0,1,0.1,0.2\n1,1,0.3,0.4\n";
    fs::write(folder.path().join("runs/toy/a/landscape.csv"), map).unwrap();
    fs::write(folder.path().join("runs/toy/a/landscape-particles.csv"), "particle,x,y\n0,0.2,0.2\n7,0.8,0.3\n")
        .unwrap();
    folder
}

#[test]
fn every_figure_is_drawn_from_its_data_and_names_its_series() {
    let folder = folder();
    let sources = Sources::open(folder.path()).unwrap();
    let series = sources.series();
    assert_eq!(series.len(), 5);
    let named = |figure: &str| match figure {
        "landscape" => vec!["Train error (%)", "7"],
        "gamma" => vec!["clean", "FGSM ε = 0.01"],
        "rank" | "particles" => vec!["Bella-SVGD"],
        "fgsm" => vec!["Bella-SVGD (n=2)", "FGSM on mean-probability", "0.01"],
        "stl10" => vec!["Bella-SVGD (n=2)", "stl10"],
        "shift" => vec!["Bella-SVGD (n=2)", "digits: blur, accuracy"],
        "diversity" => vec!["Bella-SVGD (n=2)", "Diversity"],
        "diversity-gain" => vec!["Bella-SVGD (n=2)", "NLL of map − NLL"],
        "pareto" => vec!["Bella-SVGD (n=2)", "Single, low-rank", ">seconds of training (logarithmic)<"],
        "calibration-shift" => vec!["Bella-SVGD (n=2)", "digits: ECE", "blur:2", ">clean<"],
        "learning-rate" => vec!["search toy-0123456789", "optimizer.adamw.lr (logarithmic)", "chosen trial", ">0.001<"],
        "confusion" => vec!["Bella-SVGD (n=2)", "true class", "predicted class"],
        "reliability" => vec!["Bella-SVGD (n=2)", "60 images", "too sure"],
        "mi-density" | "entropy-density" => vec!["Bella-SVGD (n=2)", " right, ", " wrong"],
        _ => vec!["Bella-SVGD (n=2)", "Single, low-rank"],
    };
    for figure in drawn(&sources) {
        assert!(figure.problems.is_empty(), "{:?}", figure.problems);
        let picture = figure.picture.unwrap_or_else(|| panic!("{} is not drawn", figure.key));
        let svg = picture.svg();
        assert!(!figure.caption.is_empty(), "{}", figure.key);
        for text in named(&figure.key) {
            assert!(svg.contains(text), "{} lacks {text}", figure.key);
        }
        let png = crate::plot::raster::png(&picture, 0.5).unwrap();
        assert_eq!(&png[1..4], b"PNG", "{}", figure.key);
    }
}

/// A figure of several experiments would compare what cannot be compared.
#[test]
fn every_experiment_has_figures_of_its_own_and_legends_say_what_differs() {
    let mut sources = Sources::default();
    for (experiment, run, lr) in [("one", "a", "[0.1]"), ("one", "b", "[0.2]"), ("two/x", "c", "[0.1]")] {
        let cells = [("experiment", experiment), ("adamw.lr", lr), ("config", run)];
        sources.results.append(&row(run, "svgd", &cells));
    }
    let figures: Vec<Figure> = drawn(&sources).into_iter().filter(|figure| figure.picture.is_some()).collect();
    let of = |key: &str| figures.iter().find(|figure| figure.key == key).unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(of("parameters-one").title, "Accuracy over trainable parameters: one");
    assert!(of("parameters-two-x").picture.as_ref().unwrap().svg().contains(">Bella-SVGD (n=2)<"));
    let one = of("parameters-one");
    let svg = one.picture.as_ref().unwrap().svg();
    assert!(svg.contains(">lr = 0.1<") && svg.contains(">lr = 0.2<") && !svg.contains("Bella-SVGD"), "{svg}");
    assert!(one.caption.ends_with("All are Bella-SVGD (n=2)."), "{}", one.caption);
    let rates = of("learning-rate-one").picture.as_ref().unwrap().svg();
    assert!(rates.contains("adamw.lr (logarithmic)") && rates.contains("runs, on test images"), "{rates}");
    assert!(figures.iter().all(|figure| figure.key != "learning-rate-two-x"));
}

#[test]
fn few_images_are_dots_and_many_are_curves() {
    let material = |samples: usize| {
        let shape = Shape { members: 2, samples, classes: 2 };
        let logits = (0..4 * samples).map(|at| ((at * 37 % 101) as f32 / 25.0).sin()).collect();
        let labels = (0..samples as u32).map(|sample| sample % 2).collect();
        let scores = crate::metrics::Scores::compute(&Predictions::new(shape, logits, labels).unwrap()).unwrap();
        material::Measured {
            series: 0,
            set: "digits".into(),
            condition: "clean".into(),
            classes: vec!["a".into(), "b".into()],
            scores,
        }
    };
    let draw = |figure: fn(&Material) -> Result<Option<material::Drawing>>, samples: usize| {
        let sources = Sources::default();
        let (series, shared, names) = (vec![], String::new(), vec!["x".to_string()]);
        let measured = vec![material(samples)];
        let material =
            Material { experiment: String::new(), sources: &sources, series, shared, names, measured, unread: vec![] };
        figure(&material).unwrap().map(|drawing| drawing.picture.svg())
    };
    let density = |samples: usize| draw(densities::mutual_information, samples).unwrap();
    let (few, many) = (density(20), density(400));
    assert!(few.contains("single right predictions") && !few.contains("<polygon"), "{few}");
    assert!(many.contains(">right predictions<") && many.contains("<polygon") && !many.contains("single"), "{many}");
    // No probability was given to ten images of eight.
    assert!(draw(calibration::class_reliability, 8).is_none() && draw(calibration::class_reliability, 400).is_some());
}

#[test]
fn attacks_of_other_settings_are_panels_of_their_own() {
    let folder = folder();
    let csv = folder.path().join("toy.csv");
    for (steps, accuracy) in [("10", "0.5"), ("100", "0.1")] {
        let (variant, condition) = (format!("{steps} steps"), format!("pgd 0.01 {steps} x 0.0025"));
        let cells = [
            ("condition", condition.as_str()),
            ("attack", "pgd"),
            ("epsilon", "0.01"),
            ("attack_target", "mean-probability"),
            ("attack_variant", &variant),
            ("svgd.gamma", "0.01"),
            ("accuracy_pm", accuracy),
        ];
        upsert_row(&csv, &row("a", "svgd", &cells), &["run", "set", "condition"]).unwrap();
    }
    let sources = Sources::open(folder.path()).unwrap();
    let svg = drawn(&sources)
        .into_iter()
        .find(|figure| figure.key == "fgsm")
        .and_then(|figure| figure.picture)
        .unwrap()
        .svg();
    for steps in [10, 100] {
        assert!(svg.contains(&format!("PGD on mean-probability, {steps} steps")), "{svg}");
    }
}

#[test]
fn stl10_is_never_left_out_of_its_figure() {
    let folder = folder();
    let csv = folder.path().join("toy.csv");
    for set in 0..8 {
        let cells = [("set", format!("other-{set}")), ("svgd.gamma", "0.01".to_string())];
        let cells: Vec<(&str, &str)> = cells.iter().map(|(column, value)| (*column, value.as_str())).collect();
        upsert_row(&csv, &row("a", "svgd", &cells), &["run", "set", "condition"]).unwrap();
        upsert_row(&csv, &row("b", "map", &[("set", "b-only")]), &["run", "set", "condition"]).unwrap();
    }
    let sources = Sources::open(folder.path()).unwrap();
    let svg = drawn(&sources)
        .into_iter()
        .find(|figure| figure.key == "stl10")
        .and_then(|figure| figure.picture)
        .unwrap()
        .svg();
    assert!(svg.contains("stl10") && svg.contains("digits") && !svg.contains("b-only"));
}

#[test]
fn a_method_that_others_were_tested_beyond_keeps_its_diversity() {
    let mut sources = Sources::default();
    for (run, rank, severity) in [("a", "4", "4"), ("b", "8", "2"), ("b", "8", "1")] {
        let condition = format!("blur:{severity} (bella)");
        let cells = [
            ("config", run),
            ("rank", rank),
            ("condition", &condition),
            ("corruption", "blur"),
            ("severity", severity),
        ];
        sources.results.append(&row(run, "svgd", &cells));
    }
    let figure = drawn(&sources).into_iter().find(|figure| figure.key == "diversity").unwrap();
    let svg = figure.picture.unwrap().svg();
    assert!(svg.contains("blur:4") && svg.contains("blur:2") && !svg.contains("blur:1"), "{svg}");
}

#[test]
fn figures_without_data_are_not_drawn_and_name_a_command() {
    let mut sources = Sources::default();
    sources.results.append(&row("a", "map", &[("trainable_parameters", ""), ("diversity_kl", "")]));
    // Accuracy alone is enough for the comparison.
    for figure in drawn(&sources).into_iter().filter(|figure| figure.key != "comparison") {
        assert!(figure.picture.is_none() && figure.problems.is_empty(), "{}", figure.key);
        assert!(figure.command.starts_with("bella "), "{}", figure.key);
    }
}

#[test]
fn a_broken_landscape_is_a_problem_of_its_figure_alone() {
    let folder = folder();
    fs::write(folder.path().join("runs/toy/a/landscape.csv"), "x,y,train_error,test_error\n0,0,0.1,0.2\n").unwrap();
    let figures = drawn(&Sources::open(folder.path()).unwrap());
    let broken: Vec<_> = figures.iter().filter(|figure| figure.picture.is_none()).collect();
    assert_eq!(broken.len(), 1);
    assert!(
        broken[0].problems[0].contains("landscape.csv: 1 points for 1 × 1 coordinates"),
        "{:?}",
        broken[0].problems
    );
}

#[test]
fn a_landscape_is_written_to_a_file() {
    let folder = folder();
    let run = folder.path().join("runs/toy/a");
    let out = folder.path().join("landscape.svg");
    landscape::draw(&run.join("landscape.csv"), &run.join("landscape-particles.csv"), &out).unwrap();
    assert!(fs::read_to_string(out).unwrap().contains("Test error (%)"));
}

#[test]
fn learning_rates_cycled_over_particles_are_one_sweep() {
    let series = |particles: &'static str, rates: &'static str| {
        let settings = vec![("method", "svgd"), ("particles", particles), ("adamw.lr", rates)];
        crate::results::series::Series { name: String::new(), settings, rows: vec![] }
    };
    let all = [
        series("1", "[0.001]"),
        series("3", "[0.001,0.0009,0.0005]"),
        series("5", "[0.001,0.0009,0.0005,0.00025,0.0008]"),
        series("5", "[0.006]"),
        series("10", "[0.006]"),
    ];
    let steps: Vec<_> = super::readings::sweeps(&all, "particles", &[]).into_iter().map(|sweep| sweep.steps).collect();
    assert_eq!(steps, [vec![(1.0, 0), (3.0, 1), (5.0, 2)], vec![(5.0, 3), (10.0, 4)]]);
    assert!(super::readings::sweeps(&all[1..], "adamw.lr", &[]).is_empty(), "no numbers");
}
