//! The sweep scripts: which cells they make, that cells are skipped when done, that a failing one does not stop the others
//! and is told in the end.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::{Place, cells, messages, number, printed, repository};
use assert_cmd::Command;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sweep(script: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(repository(&format!("scripts/{script}.sh")));
    command.env_remove("SWEEP_CELL").env_remove("CUDA_VISIBLE_DEVICES");
    command.env("BELLA", env!("CARGO_BIN_EXE_bella")).args(arguments).output().unwrap()
}

/// The lines of a dry run that start with `start`, without the program and the results folder.
#[track_caller]
fn lines(output: &Output, start: &str) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", messages(output));
    let shown = printed(output).replace(env!("CARGO_BIN_EXE_bella"), "bella");
    let fitting = shown.lines().filter(|line| line.starts_with(start));
    fitting.map(|line| line.trim_end_matches(" --out results").to_string()).collect()
}

#[test]
fn dry_runs_print_the_cells() {
    let ranks = sweep("sweep_rank", &["--dry-run", "--ranks", "1 16", "--seeds", "1 2", "--set", "train.epochs=1"]);
    assert_eq!(
        lines(&ranks, "bella train"),
        [(1, 1), (1, 2), (16, 1), (16, 2)].map(|(rank, seed)| format!(
            "bella train --set subspace.low-rank.rank={rank} --set seed={seed} --config configs/camelyon17.toml \
             --set train.epochs=1"
        ))
    );
    let particles = sweep("sweep_particles", &["--dry-run", "--particles", "1 7"]);
    let rates = lines(&particles, "bella train").concat();
    crate::common::assert_has(&rates, &["'optimizer.adamw.lr=[1e-3]'", "lr=[1e-3,9e-4,5e-4,2.5e-4,8e-4,1e-3,9e-4]'"]);
    let ensembles = sweep("sweep_particles", &["--dry-run", "--method", "ensemble"]);
    assert_eq!(
        lines(&ensembles, "#"),
        ["# 1: particles-3", "# 2: particles-5", "# 3: particles-10", "# 4: particles-20"]
    );
    // Linearised logits cannot be attacked.
    let attacked = lines(&sweep("reproduce_table", &["fig-3", "--dry-run", "--out", "r"]), "bella eval");
    let all = "bella eval RUN --attack fgsm --out r".to_string();
    let of_vbl = "bella eval RUN --attack fgsm --predictive sampled --out r".to_string();
    assert_eq!(attacked, [vec![of_vbl], vec![all; 5]].concat());
    let gammas = sweep("sweep_gamma", &["--dry-run", "--cell", "2"]);
    assert_eq!(lines(&gammas, "#"), ["# 2: gamma-0.025"]);
    assert_eq!(lines(&gammas, "bella eval"), ["bella eval RUN --attack fgsm --epsilon 0.001,0.005,0.01,0.03"]);
}

/// Every table's cells are configs that are fine; `bella check` takes the arguments of `bella train`.
#[test]
fn tables_are_made_of_configs_that_are_fine() {
    let known = ["1", "2", "3", "4", "6", "7", "8", "fig-2", "fig-3", "fig-4a", "fig-4b", "fig-5", "fig-8"];
    let others = ["ivon-1", "ivon-2", "ivon-3", "ivon-4", "ibdr", "ibdr-3", "bayesadapt", "small-bayesadapt"];
    for name in known.into_iter().chain(others) {
        let output = sweep("reproduce_table", &[name, "--dry-run"]);
        let trained = lines(&output, "bella train");
        assert!(!trained.is_empty(), "{name}");
        trained.iter().for_each(|line| assert_trains(line));
    }
}

/// Fails unless the line is one of `bella train` with a config that trains.
#[track_caller]
fn assert_trains(line: &str) {
    let words: Vec<&str> = line.split(' ').skip(2).map(|word| word.trim_matches('\'')).collect();
    let of = |flag: &str| -> Vec<String> {
        words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].to_string()).collect()
    };
    let files: Vec<_> = of("--config").iter().map(|file| repository(file)).collect();
    let read = bella::experiment::load_config(&files, &of("--set"));
    let experiment = read.and_then(|tree| bella::experiment::Experiment::read(&tree));
    let trains = experiment.map(|experiment| experiment.training.is_some()).map_err(|problems| problems.to_string());
    assert_eq!(trains, Ok(true), "{line}");
}

const OF_A_COMPARISON: [&str; 4] = ["--checkpoint", "clip.pt", "--head", "head.safetensors"];

/// Twelve recipes, each with every seed, are configs that are fine.
#[test]
fn recipes_are_made_of_configs_that_are_fine() {
    let output = sweep("compare_recipes", &[&["--dry-run"][..], &OF_A_COMPARISON].concat());
    let trained = lines(&output, "bella train");
    assert_eq!(trained.len(), 36);
    trained.iter().for_each(|line| assert_trains(line));
    let few = sweep("compare_recipes", &[&["--count", "--seeds", "4"][..], &OF_A_COMPARISON].concat());
    assert_eq!(printed(&few).trim(), "12");
}

/// A method that is added to the registry needs its settings in the comparison.
#[test]
fn the_comparison_has_settings_for_every_method() {
    let script = read(&repository("scripts/compare_methods.sh"));
    let arms: Vec<&str> = script.lines().filter_map(|line| line.trim().split_once(')')).map(|(keys, _)| keys).collect();
    let known = |key: &str| arms.iter().any(|keys| keys.split(" | ").any(|word| word == key));
    // These are not trained, so there are no epochs to compare at.
    let untrained = ["imported", "bayesvlm"];
    for entry in bella::methods::METHODS.iter().filter(|entry| !untrained.contains(&entry.key)) {
        assert!(known(entry.key), "add settings of method.{} to scripts/compare_methods.sh", entry.key);
    }
}

/// Seeds of one config are averaged; a run of the same method with another learning rate has a row of its own.
#[test]
fn the_comparison_averages_runs_of_one_config_alone() {
    let place = Place::new();
    let mut results = String::from("experiment,run,method,seed,condition,config,members,samples,accuracy_pm,nll_pm\n");
    for (method, seed, config, accuracy) in [
        ("map", 1, "m", 0.5),
        ("map", 2, "m", 0.7),
        ("svgd", 1, "a", 0.8),
        ("svgd", 2, "b", 0.2),
        ("svgd", 3, "a", 0.6),
        ("svgd@1", 1, "c", 0.65),
    ] {
        let run = format!("{method}-s{seed}-{config}");
        let folder = place.path(&format!("results/runs/comparison/{run}"));
        fs::create_dir_all(&folder).unwrap();
        // An evaluation prints the id alone.
        let log = format!("run: {}\nrun: {run}  set: cifar10\n", folder.display());
        let seconds = if method == "svgd" { "40\n12\n" } else { "10\n" };
        place.write(&format!("results/runs/comparison/{run}/processor-seconds.txt"), seconds.as_bytes());
        place.write(&format!("results/sweeps/comparison/{method}-s{seed}.log"), log.as_bytes());
        let method = method.trim_end_matches("@1");
        results += &format!("comparison,{run},{method},{seed},clean,{config},1,10000,{accuracy},0.4\n");
    }
    place.write("results/comparison.csv", results.as_bytes());
    let mut command = std::process::Command::new("python3");
    command.arg(repository("scripts/compare_methods.py")).arg("--out").arg(place.path("results")).args(["map", "svgd"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let table = bella::results::store::read(&place.path("results/comparison/table.csv")).unwrap();
    // The second table is of what costs as much as `map`.
    assert_eq!(cells(&table, "method"), ["map", "svgd, config a", "svgd, config b", "map", "svgd@1"]);
    assert_eq!(cells(&table, "seeds"), ["2", "2", "1", "2", "1"]);
    assert_eq!(cells(&table, "table")[2..4], ["Equal epochs", "Equal processor time, 1 times that of `map`"]);
    assert_eq!(number(&table, 1, "train_processor_seconds"), 52.0);
    let runs = bella::results::store::read(&place.path("results/comparison/runs.csv")).unwrap();
    assert_eq!((runs.rows.len(), number(&runs, 4, "train_processor_seconds")), (6, 52.0));
    let accuracies: Vec<f64> = (0..3).map(|row| number(&table, row, "accuracy")).collect();
    assert!(accuracies.iter().zip([0.6, 0.7, 0.2]).all(|(found, mean)| (found - mean).abs() < 1e-12), "{accuracies:?}");
}

/// A comparison that was first run with other numbers of images leaves rows behind; a corruption without a row leaves no mean.
#[test]
fn the_comparison_reads_the_rows_of_its_numbers_of_images_alone() {
    let place = Place::new();
    let folder = place.path("results/runs/comparison/m");
    fs::create_dir_all(&folder).unwrap();
    place.write("results/sweeps/comparison/map-s1.log", format!("run: {}\n", folder.display()).as_bytes());
    let head = "experiment,run,condition,config,attack,epsilon,corruption,severity,samples,accuracy_pm\n";
    let rows = "comparison,m,clean,c,,,,,100,0.1\ncomparison,m,clean,c,,,,,50,0.2\n\
                comparison,m,fgsm,c,fgsm,0.01,,,20,0.3\ncomparison,m,fgsm,c,fgsm,0.01,,,30,0.4\n\
                comparison,m,contrast:3,c,,,contrast,3,20,0.5\ncomparison,m,contrast:3,c,,,contrast,3,40,0.6\n";
    place.write("results/comparison.csv", [head, rows].concat().as_bytes());
    let tables = |shifts: &str| {
        let mut command = std::process::Command::new("python3");
        command.arg(repository("scripts/compare_methods.py")).arg("--out").arg(place.path("results"));
        command.args([
            "--epsilons",
            "0.01",
            "--tested",
            "50",
            "--attacked",
            "30",
            "--shifted",
            "40",
            "--shifts",
            shifts,
        ]);
        let output = command.arg("map").output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        bella::results::store::read(&place.path("results/comparison/table.csv")).unwrap()
    };
    let table = tables("contrast:3");
    let found = ["accuracy", "accuracy_fgsm_0.01", "accuracy_shifted"].map(|column| number(&table, 0, column));
    assert_eq!(found, [0.2, 0.4, 0.6]);
    assert_eq!(cells(&tables("contrast:3 gaussian-blur:3"), "accuracy_shifted"), [""]);
}

/// On any experiment: a search, a run of each method for the seed, and the differences from the first method.
#[test]
fn methods_are_compared_on_any_experiment() {
    let place = Place::with_tiny();
    let (config, out) = (place.path("tiny.toml"), place.path("results"));
    let of = ["--config", config.to_str().unwrap(), "--out", out.to_str().unwrap(), "--seeds", "1"];
    let own = ["--rates", "1e-4", "--over", "lora optimizer.adamw.lr=1e-3,1e-2"];
    let few = [&["--methods", "lora bella-ensemble", "--budget", "2", "--device", "cpu"][..], &own].concat();
    let output = sweep("compare_experiment", &[&of[..], &few, &ONE_THREAD].concat());
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert!(
        messages(&output).contains("search of lora --over optimizer.adamw.lr=1e-3,1e-2\n"),
        "{}",
        messages(&output)
    );
    assert_eq!(cells(&place.results(), "method"), ["map", "ensemble"]);
    let table = bella::results::store::read(&place.path("results/differences.csv")).unwrap();
    assert!(table.rows.len() >= 4 && cells(&table, "training_seed").iter().all(|seed| *seed == "1"));
    assert!(cells(&table, "predictor")[0].contains("low-rank-ensemble-s1"));
    let again = sweep("compare_experiment", &[&of[..], &few, &ONE_THREAD].concat());
    assert!(again.status.success() && place.results().rows.len() == 2, "{}", messages(&again));
}

#[test]
fn bad_usage_is_refused() {
    let cases: [(&str, &[&str], &str); 17] = [
        ("sweep_rank", &["--ranks", "1 x"], "error: --ranks: `x` is not a number"),
        ("sweep_rank", &["--ranks", ""], "error: --ranks: no values"),
        ("sweep_rank", &["--rank", "4"], "error: unknown argument `--rank`"),
        ("sweep_rank", &["--jobs", "0"], "error: --jobs 0: must be a whole number from 1"),
        ("sweep_rank", &["--cell", "6"], "error: --cell 6: there are 5 cells"),
        ("sweep_gamma", &["--seeds", "one"], "error: --seeds: `one` is not a whole number"),
        ("sweep_gamma", &["--match", "delta-*"], "error: no cells"),
        ("compare_methods", &["--epochs", "3"], "error: --checkpoint and --head are needed"),
        (
            "compare_methods",
            &[&OF_A_COMPARISON[..], &["--images", "300"]].concat(),
            "error: --images 300 --epochs 3: 3 steps",
        ),
        ("compare_methods", &[&OF_A_COMPARISON[..], &["--budget", "7"]].concat(), "error: --budget 7: at most 6"),
        ("compare_methods", &[&OF_A_COMPARISON[..], &["--dry-run"]].concat(), "error: --dry-run, --count"),
        ("compare_experiment", &["--config", "x.toml", "--cell", "1"], "error: --cell: cells follow from searches"),
        ("compare_experiment", &["--budget", "9"], "error: --config is needed: an experiment"),
        (
            "compare_experiment",
            &["--config", "x.toml", "--methods", "none"],
            "error: --methods: there is no configs/methods/none.toml",
        ),
        (
            "compare_experiment",
            &["--config", "x.toml", "--over", "single optimizer.adamw.lr=1"],
            "error: --over: `single` is not among --methods",
        ),
        (
            "compare_experiment",
            &["--config", "x.toml", "--methods", "vbl", "--over", "vbl optimizer.adamw.lr=1"],
            "error: --over: `vbl` takes the settings that are found for `lora`: give --over \"lora optimizer.adamw.lr=1\"",
        ),
        ("reproduce_table", &["9"], "error: 9: unknown table; known: 1, 2, 3"),
    ];
    for (script, arguments, message) in cases {
        let output = sweep(script, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(messages(&output).starts_with(message), "{}", messages(&output));
    }
}

const ONE_THREAD: [&str; 5] = ["--", "--threads", "1", "--workers", "1"];

/// Ranks 1 and 2 of the tiny experiment, and one that is refused between them.
fn run_tiny(place: &Place, more: &[&str]) -> Output {
    let (config, out) = (place.path("tiny.toml"), place.path("results"));
    let sweep_of = ["--config", config.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let arguments = [&sweep_of[..], more, &["--ranks", "1 0 2", "--device", "cpu"], &ONE_THREAD].concat();
    sweep("sweep_rank", &arguments)
}

#[test]
fn a_failing_cell_is_listed_and_the_others_are_done_once() {
    let place = Place::with_tiny();
    let first = run_tiny(&place, &["--jobs", "2"]);
    assert_eq!(first.status.code(), Some(1));
    let results = place.results();
    let mut ranks = cells(&results, "rank");
    ranks.sort_unstable();
    assert_eq!(ranks, ["1", "2"]);
    let log = place.path("results/sweeps/rank/rank-0.log");
    let refused = "error: --set: subspace.low-rank.rank = 0: must be a whole number from 1 to 4096";
    crate::common::assert_has(
        &messages(&first),
        &["2 of 3 cells done", &format!("  rank-0 (2): {refused} [{}]", log.display())],
    );
    let again = run_tiny(&place, &[]);
    assert_eq!(again.status.code(), Some(1), "the failing cell still fails");
    assert_eq!(place.results().rows.len(), 2);
    let log = read(&place.path("results/sweeps/rank/rank-1.log"));
    assert_eq!(log.matches("this run is finished").count(), 1, "{log}");
}

#[test]
fn evaluations_are_done_once_and_again_for_a_run_trained_anew() {
    let place = Place::with_tiny();
    let (config, out) = (place.path("tiny.toml"), place.path("results"));
    let evaluated = |log: &Path| read(log).matches("--attack fgsm").count();
    let run = || {
        let files = ["--config", config.to_str().unwrap(), "--out", out.to_str().unwrap(), "--device", "cpu"];
        let output =
            sweep("sweep_gamma", &[&files[..], &["--gammas", "0.1", "--epsilon", "0.01"], &ONE_THREAD].concat());
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        evaluated(&place.path("results/sweeps/gamma/gamma-0.1.log"))
    };
    assert_eq!(run(), 1);
    assert_eq!(run(), 1, "done already");
    let posterior = place.run().join("posterior.safetensors");
    let bytes = std::fs::read(&posterior).unwrap();
    std::fs::write(&posterior, bytes).unwrap();
    assert_eq!(run(), 2, "the posterior is newer");
    assert_eq!(cells(&place.results(), "condition"), ["clean", "fgsm 0.01"]);
}

/// A program in the test's folder.
#[cfg(unix)]
fn script(place: &Place, name: &str, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = place.write(name, format!("#!/usr/bin/env bash\n{body}\n").as_bytes());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// With a program in bella's place that writes down its threads, and one that counts eight cores.
#[cfg(unix)]
#[test]
fn jobs_divide_the_cores() {
    let place = Place::new();
    let here = place.path("").display().to_string();
    script(&place, "nproc", "echo 8");
    script(&place, "nvidia-smi", "exit 1");
    let standin = script(
        &place,
        "bella",
        &format!(
            "echo \"${{OMP_NUM_THREADS:-all}} $(grep -o -e '--workers.*' <<<\"$*\")\" >>'{here}/seen'; echo 'run: {here}' >&2"
        ),
    );
    let seen = |jobs: &str, threads: Option<&str>, more: &[&str]| {
        let mut command = Command::new(repository("scripts/sweep_rank.sh"));
        command.env("PATH", format!("{here}:{}", std::env::var("PATH").unwrap()));
        command.env_remove("SWEEP_CELL").env_remove("OMP_NUM_THREADS").envs(threads.map(|n| ("OMP_NUM_THREADS", n)));
        let out = place.path("results");
        command.args(["--bella", &standin, "--out", out.to_str().unwrap(), "--jobs", jobs, "--ranks", "1"]);
        let output = command.args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        let path = place.path("seen");
        let line = read(&path);
        std::fs::remove_file(path).unwrap();
        line
    };
    assert_eq!(seen("1", None, &[]), "all \n");
    assert_eq!(seen("2", None, &[]), "4 --workers 4\n");
    assert_eq!(seen("16", None, &[]), "1 --workers 1\n");
    assert_eq!(seen("2", Some("3"), &["--", "--workers", "2"]), "3 --workers 2\n");
}

/// With a program in bella's place that writes down its device, and one that lists two GPUs.
#[cfg(unix)]
#[test]
fn jobs_have_a_gpu_each() {
    let place = Place::new();
    script(&place, "nvidia-smi", "printf 'GPU 0: a\\nGPU 1: b\\n'");
    // The first job to come waits for the other one: both run at a time.
    let here = place.path("").display().to_string();
    let standin = script(
        &place,
        "bella",
        &format!(
            "device=$(sed 's/.*--device \\([^ ]*\\).*/\\1/' <<<\"$*\"); echo \"$device\" >>'{here}/seen'\n\
             for _ in {{1..200}}; do [[ $(sort -u '{here}/seen' | wc -l) == 2 ]] && break; sleep 0.05; done\n\
             echo \"run: {here}\" >&2"
        ),
    );
    let path = format!("{here}:{}", std::env::var("PATH").unwrap());
    let run = |jobs: &str, visible: Option<&str>| {
        let mut command = Command::new(repository("scripts/sweep_rank.sh"));
        command.env("PATH", &path).env_remove("SWEEP_CELL").env_remove("CUDA_VISIBLE_DEVICES");
        command.envs(visible.map(|list| ("CUDA_VISIBLE_DEVICES", list)));
        let out = place.path("results");
        command.args(["--bella", &standin, "--out", out.to_str().unwrap(), "--jobs", jobs, "--ranks", "1 2"]);
        command.output().unwrap()
    };
    let output = run("2", None);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let seen = read(&place.path("seen"));
    let mut seen: Vec<&str> = seen.lines().collect();
    seen.sort_unstable();
    assert_eq!(seen, ["cuda:0", "cuda:1"]);
    for (jobs, visible, found) in [("3", None, 2), ("2", Some("1"), 1)] {
        let output = run(jobs, visible);
        assert_eq!(output.status.code(), Some(2));
        let message = format!("error: --jobs {jobs}: there are {found} GPUs; fewer jobs, or --device");
        crate::common::assert_has(&messages(&output), &[&message]);
    }
}

/// A list of CUDA_VISIBLE_DEVICES may be empty, and what follows an entry that is none is not seen.
#[cfg(unix)]
#[test]
fn devices_are_those_that_are_visible() {
    let place = Place::new();
    script(&place, "nvidia-smi", "printf 'GPU 0: a\\nGPU 1: b\\n'");
    let path = format!("{}:{}", place.path("").display(), std::env::var("PATH").unwrap());
    let text = "set -euo pipefail; . scripts/sweep.sh; jobs=$1 device=; choose_devices; echo \"${devices[*]}\"";
    for (visible, jobs, devices) in [
        (None, "2", "cuda:0 cuda:1"),
        (Some("1,0"), "2", "cuda:0 cuda:1"),
        (Some(""), "2", "cpu cpu"),
        (Some("-1"), "1", "cpu"),
        (Some("1,-1,0"), "1", "cuda:0"),
        (Some("1,-1,0"), "2", ""),
    ] {
        let mut command = Command::new("bash");
        command.current_dir(repository("")).args(["-c", text, "bash", jobs]).env("PATH", &path);
        command.env_remove("CUDA_VISIBLE_DEVICES").envs(visible.map(|list| ("CUDA_VISIBLE_DEVICES", list)));
        let output = command.output().unwrap();
        assert_eq!(printed(&output).trim(), devices, "{visible:?}: {}", messages(&output));
    }
}

/// `scripts/acquire_rounds.sh` on a pool of images, with a program in bella's place whose `acquire` is given.
#[cfg(unix)]
fn rounds(place: &Place, acquire: &str) -> std::process::Command {
    let here = place.path("").display().to_string();
    for file in ["pool/a/1.png", "pool/a/2.png", "pool/b/1.png", "test/a/1.png", "test/b/1.png", "x.toml"] {
        place.write(file, b"");
    }
    place.write("run/metrics.csv", b"condition,accuracy_pm,nll_pm\nclean,0.5,1.0\n");
    let body = format!(
        "case $1 in train) echo 'run: {here}/run' ;; acquire) while [[ $1 != --output ]]; do shift; done; {acquire} ;; esac"
    );
    let standin = script(place, "bella", &body);
    let mut command = std::process::Command::new(repository("scripts/acquire_rounds.sh"));
    command.env_remove("CUDA_VISIBLE_DEVICES").args(["--bella", &standin, "--config", &format!("{here}/x.toml")]);
    command.args([
        "--pool",
        &format!("{here}/pool"),
        "--test",
        &format!("{here}/test"),
        "--out",
        &format!("{here}/out"),
    ]);
    command.args(["--rules", "random", "--start", "1", "--each", "1", "--rounds", "1", "--seeds", "1"]);
    command
}

/// A choice that cannot be joined to the list is no list for the next round.
#[cfg(unix)]
#[test]
fn half_a_list_of_labels_is_none() {
    let place = Place::new();
    let list = place.path("out/sweeps/acquire/1+1-s1-random-1.csv");
    let output = rounds(&place, ": nothing is written").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", messages(&output));
    assert!(!list.exists());
    let output = rounds(&place, "printf 'path\\nx.png\\n' >\"$2\"").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert!(read(&list).ends_with("\nx.png\n"), "{}", read(&list));
    // The network that would choose is another one.
    let output = rounds(&place, ": nothing is written").args(["--set", "train.epochs=9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", messages(&output));
    assert!(
        messages(&output)
            .contains("its lists of 1+1 images are of other configs, settings or images: give another --out")
    );
}

/// Whoever stops the script stops what it runs, which saves and ends.
#[cfg(unix)]
#[test]
fn rounds_that_are_stopped_leave_nothing_behind() {
    let place = Place::new();
    let (began, ended) = (place.path("began"), place.path("ended"));
    let waits = format!(
        "trap 'echo >{:?}; kill $!; exit' TERM; sleep 60 & echo >{:?}; wait",
        ended.display().to_string(),
        began.display().to_string()
    );
    let mut script = rounds(&place, &waits).spawn().unwrap();
    let wait_for = |path: &Path| {
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            path.exists()
        })
    };
    assert!(wait_for(&began), "it chooses");
    let stop = std::process::Command::new("kill").args(["-TERM", &script.id().to_string()]).status().unwrap();
    assert!(stop.success());
    assert_eq!(script.wait().unwrap().code(), Some(130));
    assert!(ended.exists(), "bella was told before the script ended");
}

/// A set whose noise is not known is refused before its networks are trained.
#[cfg(unix)]
#[test]
fn regression_sets_are_known_before_they_are_trained() {
    let place = Place::new();
    let standin = script(&place, "bella", &format!("echo >>'{}'", place.path("seen").display()));
    place.write("wine/data/index_features.txt", b"0 1 2");
    place.write("out/mlp-3.pt", b"");
    let mut command = Command::new(repository("scripts/uci_regression.sh"));
    command.env("BELLA", standin).arg(place.path("")).arg(place.path("out")).arg("wine");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    crate::common::assert_has(&messages(&output), &["no noise is known for wine"]);
    assert!(!place.path("seen").exists());
}
