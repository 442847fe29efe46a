//! `bella report` as a user calls it: over a folder, over files, over what is half-written.

use std::fs;
use std::path::Path;

use crate::common::{Bella, Place};

const RESULTS: &str = "\
experiment,run,checkpoint,subspace,method,particles,rank,predictive,seed,set,condition,accuracy_lm,nll_lm,ece_lm,config
e,r1,ViT-B-32,low-rank,svgd,5,4,,1,cifar10,clean,0.9790,0.07,0.01,c5
e,r2,ViT-B-32,low-rank,svgd,5,4,,2,cifar10,clean,0.9800,0.06,0.01,c5
e,r3,ViT-B-32,low-rank,svgd,3,4,,1,cifar10,clean,0.5000,0.06,0.01,c3
";

fn report(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Bella::new(folder, &["report"]).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("results")).unwrap();
    fs::write(folder.path().join("results/e.csv"), RESULTS).unwrap();
    folder
}

#[test]
fn a_folder_shows_the_tables_with_results_and_names_the_others() {
    let folder = folder();
    let (code, out, _) = report(folder.path(), &[]);
    assert_eq!(code, Some(0));
    let row = out.lines().find(|line| line.contains("ours: ViT-B-32")).unwrap();
    assert!(row.contains("97.95 ± 0.07 (2 seeds)") && row.contains("not run") && !row.contains("50.00"), "{row}");
    let others = out.lines().last().unwrap();
    assert_eq!(others, "Tables of papers without a result of ours: --table all, or --table KEY");
}

#[test]
fn files_and_a_picture_work_as_in_the_readme() {
    let folder = folder();
    let (code, out, err) = report(folder.path(), &["results/e.csv", "--picture", "results/e.svg"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "", "picture: results/e.svg\n"));
    let (code, out, _) = report(folder.path(), &["results/e.csv"]);
    assert_eq!((code, out.matches("\n| Bella-SVGD").count()), (Some(0), 3), "{out}");
    assert!(out.contains("A prediction is the softmax of the averaged logits of all members (lm).\n"), "{out}");
    assert!(fs::read_to_string(folder.path().join("results/e.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn a_table_in_every_format() {
    let folder = folder();
    let print = |format| report(folder.path(), &["--table", "bella-1", "--format", format]).1;
    assert_eq!(report(folder.path(), &["--table", "bella-1", "--csv"]).1, print("csv"));
    assert!(print("csv").starts_with("row,source,") && print("latex").contains("\\toprule"));
    assert!(print("markdown").contains("| CIFAR10 | paper | 97.57 |"));
    let seeds = report(folder.path(), &["--seeds", "--format", "csv"]).1;
    assert!(seeds.contains("accuracy_lm,2,0.9795,"), "{seeds}");
}

#[test]
fn mistakes_are_named_with_the_way_out() {
    let folder = folder();
    let failure = |arguments: &[&str]| {
        let (code, out, err) = report(folder.path(), arguments);
        assert!(out.is_empty(), "{out}");
        (code, err)
    };
    let (code, err) = failure(&["--table", "bella-11"]);
    assert!(code == Some(2) && err.contains("unknown table `bella-11`; known: all, results"), "{err}");
    let (code, err) = failure(&["none"]);
    assert!(code == Some(1) && err.contains("no results folder none: run `bella train` first"), "{err}");
    let (code, err) = failure(&["none.csv"]);
    assert!(code == Some(1) && err.contains("results file none.csv"), "{err}");
    let (code, err) = failure(&["results", "results/e.csv"]);
    assert!(code == Some(2) && err.contains("is a folder; name one folder, or files only"), "{err}");
    let (code, err) = failure(&["--format", "csv"]);
    assert!(code == Some(2) && err.contains("--format csv prints one table: choose it with --table"), "{err}");
    let (code, err) = failure(&["--csv"]);
    assert!(code == Some(2) && err.contains("--csv prints one table: choose it with --table"), "{err}");
    let (code, err) = failure(&["--format", "latex", "--wide"]);
    assert!(code == Some(2) && err.contains("--wide: is of tables on a terminal"), "{err}");
    let (code, err) = failure(&["--out", "results"]);
    assert!(code == Some(2) && err.contains("holds the results that are reported; name another folder"), "{err}");
    fs::remove_file(folder.path().join("results/e.csv")).unwrap();
    let (code, err) = failure(&[]);
    assert!(code == Some(1) && err.contains("no results in it; run `bella train` first"), "{err}");
}

#[test]
fn a_half_written_file_is_said_and_its_row_is_not_run() {
    let folder = folder();
    let whole = fs::read(folder.path().join("results/e.csv")).unwrap();
    let second = RESULTS.find("e,r2").unwrap();
    // Cut within the accuracy of the second run, and within its last number.
    for (end, problem) in [(second + 45, "line 3"), (RESULTS.find("e,r3").unwrap() - 2, "ends within a row")] {
        fs::write(folder.path().join("results/e.csv"), &whole[..end]).unwrap();
        fs::write(folder.path().join("results/other.csv"), RESULTS.replace("e,r", "o,q").replace(",0.9", ",0.6"))
            .unwrap();
        let (code, out, err) = report(folder.path(), &["--table", "bella-1"]);
        assert_eq!(code, Some(0), "{err}");
        assert!(err.contains("e.csv") && err.contains(problem), "{err}");
        assert!(out.contains("67.95 ± 0.07 (2 seeds)") && !out.contains("98.00"), "{out}");
    }
}

#[test]
fn everything_is_written_to_a_folder_and_a_page() {
    let folder = folder();
    let (code, out, err) = report(folder.path(), &["--out", "all", "--html", "results/report.html"]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    assert_eq!(err, "tables and figures: all\npage: results/report.html\n");
    for name in ["bella-1.md", "bella-1.csv", "bella-1.tex", "results.csv", "seeds.md"] {
        assert!(folder.path().join("all").join(name).is_file(), "{name}");
    }
    for empty in ["ibdr-2.tex", "ood.md", "conformal.csv"] {
        assert!(!folder.path().join("all").join(empty).exists(), "{empty}");
    }
    let seeds = fs::read_to_string(folder.path().join("all/seeds.csv")).unwrap();
    assert!(seeds.starts_with("series,set,condition,metric,n,mean,sd"), "{seeds}");
    let page = fs::read_to_string(folder.path().join("results/report.html")).unwrap();
    assert!(page.contains("id=\"table-bella-1\"") && page.contains("97.95 ± 0.07 (2 seeds)"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn runs_are_reported_in_every_form_and_broken_files_do_not_end_it() {
    let place = Place::with_tiny();
    for gamma in ["method.svgd.gamma=0.01", "method.svgd.gamma=0.3"] {
        assert!(place.train(&[gamma]).output().unwrap().status.success());
    }
    let results = place.path("results");
    let report = |arguments: &[&str]| report(place.path("").as_path(), arguments);
    let (code, out, err) = report(&[]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("gamma = ") && out.contains("without a result of ours: --table all"), "{out}");
    for (format, part) in [
        ("markdown", "| vit-digits | low-rank |"),
        ("csv", "vit-digits,low-rank,svgd,2,2,0.3,"),
        ("latex", "\\toprule"),
    ] {
        let (code, out, err) = report(&["--table", "results", "--format", format]);
        assert!(code == Some(0) && out.contains(part), "{out}{err}");
    }

    // A file cut off on a full disk beside each good one.
    let run = place.runs().remove(0);
    let predictions = run.join("predictions/digits@clean.safetensors");
    let whole = fs::read(&predictions).unwrap();
    fs::write(run.join("predictions/cut.safetensors"), &whole[..whole.len() / 2]).unwrap();
    let csv = fs::read(results.join("tiny.csv")).unwrap();
    fs::write(results.join("cut.csv"), &csv[..csv.len() - 30]).unwrap();
    let (code, _, err) = report(&["--out", "all", "--html", "report.html"]);
    assert_eq!(code, Some(0), "{err}");
    for (file, rule) in [("cut.safetensors", "truncated"), ("cut.csv", "line 3")] {
        let line = err.lines().find(|line| line.contains(file)).unwrap_or_else(|| panic!("{file} in {err}"));
        assert!(line.starts_with("warning: ") && line.contains(rule), "{line}");
    }
    for name in
        ["results.md", "results.csv", "results.tex", "seeds.csv", "training.svg", "training.png", "reliability.svg"]
    {
        assert!(place.path("all").join(name).is_file(), "{name}");
    }
    let page = fs::read_to_string(place.path("report.html")).unwrap();
    let problems = &page[page.find("id=\"problems\"").unwrap()..];
    assert!(problems.contains("cut.safetensors") && problems.contains("cut.csv"), "{problems}");
    let id = run.file_name().unwrap().to_str().unwrap();
    assert!(problems.contains(&format!("bella train --out . --config runs/tiny/{id}/config.toml")), "{problems}");
}

#[test]
fn a_run_has_its_classes_its_matrix_and_its_images() {
    let place = Place::with_tiny();
    assert!(place.train(&[]).output().unwrap().status.success());
    let id = place.run().file_name().unwrap().to_str().unwrap().to_string();
    // The run's folder, and its id below `results`.
    for named in [place.run().to_str().unwrap(), &id] {
        let (code, out, err) = report(place.path("").as_path(), &[named]);
        assert_eq!(code, Some(0), "{err}");
        for part in ["classes of digits, the least accurate first", "most", "true class", "accuracy [%]"] {
            assert!(out.contains(part), "{part} is not in {out}");
        }
    }
    let (code, _, err) = report(place.path("").as_path(), &[&id, "--out", "all", "--html", "run.html"]);
    assert_eq!(code, Some(0), "{err}");
    for name in ["classes.csv", "mistakes.md", "confusion-1.csv", "confusion.svg", "confusion.png", "images.png"] {
        assert!(place.path("all").join(name).is_file(), "{name}");
    }
    let matrix = fs::read_to_string(place.path("all/confusion-1.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(matrix.as_bytes());
    // Method, set and true class stand in front.
    assert_eq!(reader.headers().unwrap().len(), 13);
    let rows: Vec<Vec<u64>> =
        reader.records().map(|row| row.unwrap().iter().skip(3).map(|cell| cell.parse().unwrap()).collect()).collect();
    assert_eq!(rows.iter().flatten().sum::<u64>(), 30, "every test image is in the matrix");
    let right: u64 = (0..10).map(|class| rows[class][class]).sum();
    let results = place.results();
    let accuracy: f64 = results.get(0, "accuracy_lm").unwrap().parse().unwrap();
    assert!((right as f64 / 30.0 - accuracy).abs() < 1e-9);
    let page = fs::read_to_string(place.path("run.html")).unwrap();
    assert!(page.contains("src=\"data:image/png;base64,iVBOR") && page.contains("id=\"figure-confusion\""));
}

/// The lines of `report FILE --seeds --format csv` on the clean accuracy: series, number of seeds, mean.
fn over_seeds(csv: &str) -> Vec<(String, usize, f64)> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows = reader.records().map(Result::unwrap).filter(|row| &row[3] == "accuracy_lm" && &row[2] == "clean");
    rows.map(|row| (row[0].to_string(), row[4].parse().unwrap(), row[5].parse().unwrap())).collect()
}

/// A second run of one seed replaces the first and does not break up the mean; a run with other settings that no column of the
/// literature names is a series of its own, named by what differs.
#[test]
fn seeds_are_runs_of_one_config() {
    let folder = tempfile::tempdir().unwrap();
    let head = "experiment,run,checkpoint,subspace,method,particles,rank,predictive,seed,set,condition,accuracy_lm,config,train.batch_size";
    let row = |run: &str, seed: i64, accuracy: f64, config: &str, batch: i64| {
        format!("e,{run},ViT-B-32,low-rank,svgd,5,4,,{seed},cifar10,clean,{accuracy},{config},{batch}\n")
    };
    let rows = [
        row("r1", 1, 0.90, "c", 128),
        row("r2", 2, 0.10, "c", 128),
        row("r3", 3, 0.50, "d", 64),
        row("r4", 2, 0.94, "c", 128),
    ];
    fs::write(folder.path().join("e.csv"), format!("{head}\n{}", rows.concat())).unwrap();
    let (code, shown, messages) = report(folder.path(), &["e.csv", "--seeds", "--format", "csv"]);
    assert_eq!(code, Some(0), "{messages}");
    let series = over_seeds(&shown);
    assert_eq!(series.len(), 2, "{shown}");
    let find = |batch: &str| series.iter().find(|(name, ..)| name.contains(batch)).unwrap_or_else(|| panic!("{shown}"));
    let (_, seeds, mean) = find("batch_size = 128");
    assert!(*seeds == 2 && (mean - 0.92).abs() < 1e-12, "{shown}");
    let (_, seeds, mean) = find("batch_size = 64");
    assert!(*seeds == 1 && (mean - 0.5).abs() < 1e-12, "{shown}");
}

/// Runs of another batch size are no seeds of the others, end to end.
#[test]
fn runs_with_another_batch_size_are_no_seeds() {
    let place = Place::with_tiny();
    for sets in [&["seed=3"][..], &["seed=4"], &["seed=5", "train.batch_size=4"]] {
        crate::common::done(place.train(sets));
    }
    let file = crate::common::text(&place.path("results/tiny.csv"));
    let shown = crate::common::done(crate::common::bella(&["report", &file, "--seeds", "--format", "csv"]));
    let mut seeds: Vec<(usize, bool)> =
        over_seeds(&shown).into_iter().map(|(name, seeds, _)| (seeds, name.contains("batch_size = 4"))).collect();
    seeds.sort_unstable();
    assert_eq!(seeds, [(1, true), (2, false)], "{shown}");
}

#[test]
fn a_notebook_reads_the_folder_from_where_it_lies() {
    let folder = folder();
    let (code, _, messages) = report(folder.path(), &["--notebook", "notes/report.ipynb"]);
    assert_eq!(code, Some(1), "{messages}");
    assert!(messages.contains("notes"), "{messages}");
    fs::create_dir(folder.path().join("notes")).unwrap();
    let (code, _, messages) = report(folder.path(), &["--notebook", "notes/report.ipynb"]);
    assert!(code == Some(0) && messages.contains("notebook: notes/report.ipynb"), "{messages}");
    let text = fs::read_to_string(folder.path().join("notes/report.ipynb")).unwrap();
    let notebook: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sources = notebook["cells"].as_array().unwrap().iter().map(|cell| cell["source"].to_string());
    assert!(sources.into_iter().any(|source| source.contains(r#"Path(\"../results\")"#)), "{text}");
    let (code, _, messages) = report(folder.path(), &["results/e.csv", "--notebook", "notes/report.ipynb"]);
    assert!(code == Some(2) && messages.contains("--notebook takes a results folder"), "{messages}");
    // The folder of a run has tables of its own, which are no results of experiments.
    fs::create_dir_all(folder.path().join("run")).unwrap();
    fs::write(folder.path().join("run/metrics.csv"), RESULTS).unwrap();
    let (code, out, messages) = report(folder.path(), &["run", "--notebook", "notes/of-run.ipynb"]);
    assert!(code == Some(2) && out.is_empty() && messages.contains("run is a run: name the folder"), "{messages}");
    assert!(!folder.path().join("notes/of-run.ipynb").exists());
}

#[test]
fn options_of_printed_tables_are_refused_where_none_is_printed() {
    let folder = folder();
    for option in [&["--csv"][..], &["--wide"], &["--columns", "nll_lm"], &["--format", "latex"]] {
        let rebuilt = report(folder.path(), &[&["--rebuild"], option].concat());
        assert!(rebuilt.0 == Some(2) && rebuilt.2.contains("cannot be used with"), "{}", rebuilt.2);
        let written = report(folder.path(), &[&["--html", "a.html"], option].concat());
        assert!(written.0 == Some(2) && written.2.contains("beside files none is printed"), "{}", written.2);
        assert!(!folder.path().join("a.html").exists());
    }
    fs::write(
        folder.path().join("results/e-ood.csv"),
        "run,method,set,ood_set,score,average,auroc\nr1,map,cifar10,svhn,mi,,0.9\n",
    )
    .unwrap();
    let (code, _, messages) = report(folder.path(), &["results/e-ood.csv", "--seeds"]);
    assert!(code == Some(2) && messages.contains("--seeds: is of results of test sets"), "{messages}");
    let (code, _, messages) = report(folder.path(), &["--picture", "a.png"]);
    assert!(code == Some(2) && messages.contains("must end in .svg"), "{messages}");
}

#[test]
fn a_name_of_several_runs_is_an_error_that_lists_them() {
    let folder = folder();
    for run in ["svgd-s1", "svgd-s2"] {
        let path = folder.path().join("results/runs/e").join(run);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config.toml"), "").unwrap();
    }
    let (code, _, messages) = report(folder.path(), &["svgd"]);
    assert!(code == Some(1) && messages.contains("`svgd` fits 2 runs") && messages.contains("svgd-s2  "), "{messages}");
}
