//! `[method.laplace]` from the command line: training, every structure, every predictive, and what is refused.

use crate::common::{Place, assert_has, cell, done, error_line, folder, messages, repository, text, with};
use bella::base::tensor_file::State;
use bella::results::store::Table;

const LAPLACE: &str = "method.laplace={samples=6}";

#[track_caller]
fn trained(sets: &[&str]) -> Place {
    let place = Place::with_tiny();
    let output = place.train(&[&[LAPLACE], sets].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(
        &messages(&output),
        &["parameters a particle takes", "laplace: particle 1: prior precision", "log evidence"],
    );
    place
}

fn number(table: &Table, predictive: &str, column: &str) -> f64 {
    cell(table, predictive, column).parse().unwrap()
}

#[test]
fn one_run_predicts_in_every_way() {
    let place = trained(&["method.laplace.particles=2"]);
    let table = place.results();
    assert_eq!(table.rows.len(), 2, "linearised draws and the mode");
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("12", "2"));
    let predicted = |word: &str, more: &[&str]| with(with(place.command("eval", &[]), &["--predictive", word]), more);
    for (word, draws) in [("mc", "9"), ("sampled", "6"), ("tangent", "6"), ("mc", "6")] {
        done(predicted(word, &["--draws", draws]));
    }
    for word in ["probit", "bridge"] {
        done(predicted(word, &[]));
        let line = error_line(predicted(word, &["--draws", "6"]), 2);
        assert_has(&line, &[&format!("--draws 6: the predictive {word} draws nothing: leave it out")]);
    }
    let output = place.command("eval", &[]).args(["--draws", "9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let again = place.results();
    assert_eq!(again.rows.len(), 7, "mc with 6 draws is what the config says");
    assert_eq!(cell(&again, "", "nll_pm"), cell(&table, "", "nll_pm"), "the same draws again");
    for (predictive, members) in
        [("mc-9", "18"), ("probit", "2"), ("bridge", "2"), ("draws-6", "12"), ("tangent-6", "12")]
    {
        assert_eq!(cell(&again, predictive, "members"), members);
        let nll = number(&again, predictive, "nll_pm");
        assert!(nll.is_finite() && nll != number(&again, "mean", "nll_pm"), "{predictive}: {nll}");
    }
    // Two approximations of one integral.
    let (mc, probit) = (number(&again, "mc-9", "nll_pm"), number(&again, "probit", "nll_pm"));
    assert!((mc - probit).abs() < 0.3, "{mc} and {probit}");
    let tangent = number(&again, "tangent-6", "nll_pm");
    assert!((mc - tangent).abs() < 0.3, "{mc} and {tangent}");
}

#[test]
fn every_structure_and_every_tuning_trains() {
    let small = "subspace.low-rank.blocks=\"0\"";
    for sets in [
        &["method.laplace.structure=\"diag\""][..],
        &["method.laplace.structure=\"full\"", "subspace.low-rank.rank=1"],
        &["method.laplace.tokens=\"reduce\"", "method.laplace.wide=8", "method.laplace.kept=3"],
        &["method.laplace.tuning=\"validation\"", "method.laplace.predictive=\"probit\""],
        &["method.laplace.tuning=\"validation\"", "method.laplace.predictive=\"sampled\"", "method.laplace.samples=2"],
        &["method.laplace.tuning=\"validation\"", "method.laplace.predictive=\"tangent\"", "method.laplace.samples=2"],
        &["method.laplace.fisher=\"mc\"", "method.laplace.fisher_draws=2", "method.laplace.structure=\"diag\""],
    ] {
        let sets = [&[small, "train.epochs=1"], sets].concat();
        let place = trained(&sets);
        let table = place.results();
        assert!(number(&table, "", "nll_pm").is_finite(), "{sets:?}");
    }
}

/// The precision was chosen by images that the run held out; another data set has none and needs none.
#[test]
fn a_run_tuned_by_validation_is_evaluated_on_other_images() {
    let sets = ["subspace.low-rank.blocks=\"0\"", "train.epochs=1", "method.laplace.tuning=\"validation\""];
    let place = trained(&sets);
    let images = format!("image-folder={}", text(&folder(&place, "images")));
    done(with(place.command("eval", &[]), &["--ood", &images]));
    done(with(place.command("eval", &[]), &["--data", &images]));
}

#[test]
fn a_new_head_is_fitted_in_both_subspaces() {
    let head = "head.linear={}";
    for sets in [
        &["subspace.full={}"][..],
        &["method.laplace.parameters=\"last-layer\""],
        &["method.laplace.structure=\"diag\"", "method.laplace.parameters=\"last-layer\""],
        &["method.laplace.parameters=\"all\""],
    ] {
        let place = trained(&[&[head, "train.epochs=1"], sets].concat());
        let table = place.results();
        assert_ne!(cell(&table, "", "nll_pm"), cell(&table, "mean", "nll_pm"));
    }
}

/// The labels are drawn by the seed of the run, so that a second fit of the same particles draws the same ones.
#[test]
fn drawn_labels_are_those_of_the_seed() {
    let curvature = |sets: &[&str]| {
        let place = trained(&[&["subspace.low-rank.blocks=\"0\"", "train.epochs=1"], sets].concat());
        crate::common::tensor_bytes(&place.run().join("posterior.safetensors"), "laplace.0.1.gradient.values")
    };
    let mc = "method.laplace.fisher=\"mc\"";
    let drawn = curvature(&[mc]);
    assert_eq!(drawn, curvature(&[mc]), "a second run draws the same labels");
    assert_ne!(drawn, curvature(&[]));
    assert_ne!(drawn, curvature(&[mc, "method.laplace.fisher_draws=2"]));
}

#[test]
fn a_fixed_precision_is_kept() {
    let place = trained(&["method.laplace.prior_precision=12.5"]);
    let state = State::read(&place.run().join("posterior.safetensors")).unwrap();
    assert_eq!(state.get("laplace.precision").unwrap().double_value(&[0]), 12.5);
    // A prior this tight leaves the mode.
    let tight = trained(&["method.laplace.prior_precision=1e12"]);
    let table = tight.results();
    let (linearised, mode) = (number(&table, "", "nll_pm"), number(&table, "mean", "nll_pm"));
    assert!((linearised - mode).abs() < 1e-4, "{linearised} and {mode}");
}

#[test]
fn bad_settings_are_refused() {
    let place = Place::with_tiny();
    for (sets, parts) in [
        (&["method.laplace.prior_precision=0"][..], &["method.laplace.prior_precision = 0", "above 0"][..]),
        (&["method.laplace.prior_precision=-1"], &["method.laplace.prior_precision = -1", "above 0"]),
        (&["method.laplace.tuning=\"fixed\""], &["method.laplace.prior_precision: is required for tuning = \"fixed\""]),
        (&["method.laplace.tuning=\"evidence\"", "method.laplace.prior_precision=1"], &["is tuned"]),
        (&["method.laplace.tuning=\"validation\"", "data.digits.validation=0"], &["held-out images", "validation"]),
        (&["subspace.full={}", "method.laplace.parameters=\"all\""], &["[subspace.low-rank]", "last-layer"]),
        (
            &["method.laplace.parameters=\"last-layer\"", "method.laplace.tokens=\"reduce\""],
            &["method.laplace.tokens", "one token"],
        ),
        (&["method.laplace.fisher_draws=3"], &["method.laplace.fisher_draws", "belongs to fisher = \"mc\""]),
        (&["method.laplace.structure=\"kfac\""], &["kron, diag, full"]),
        (
            &["method.laplace.structure=\"diag\"", "method.laplace.kept=3"],
            &["method.laplace.structure", "belong to", "kron"],
        ),
    ] {
        let mut all = vec![LAPLACE];
        all.extend(sets);
        assert_has(&error_line(place.train(&all), 2), parts);
    }
}

#[test]
fn too_much_and_nothing_to_fit_are_refused_before_training() {
    let place = Place::with_tiny();
    let full = [LAPLACE, "method.laplace.structure=\"full\"", "method.laplace.memory_gib=0.001"];
    assert_has(
        &error_line(place.train(&full), 1),
        &["GiB, more than method.laplace.memory_gib", "structure = \"kron\""],
    );
    let frozen = [LAPLACE, "method.laplace.parameters=\"last-layer\""];
    assert_has(&error_line(place.train(&frozen), 1), &["does not train its head", "[head.linear]"]);
}

#[test]
fn runs_without_gaussians_and_attacks_on_linearised_ones_are_refused() {
    let place = Place::with_tiny();
    assert_eq!(place.train(&[]).output().unwrap().status.code(), Some(0));
    let mut command = place.command("eval", &[]);
    command.args(["--predictive", "probit"]);
    assert_has(&error_line(command, 1), &["no Laplace approximation", "[method.laplace]"]);
    let place = trained(&["train.epochs=1"]);
    let mut command = place.command("eval", &[]);
    command.args(["--attack", "fgsm", "--epsilon", "0.01"]);
    assert_has(&error_line(command, 2), &["linearised predictions cannot be attacked", "--predictive sampled"]);
    let output =
        place.command("eval", &[]).args(["--attack", "fgsm", "--epsilon", "0", "--predictive", "sampled"]).output();
    assert_eq!(output.unwrap().status.code(), Some(0));
}

/// What does not fit the last run is found before the first one is tested.
#[test]
fn no_run_is_tested_where_another_one_is_refused() {
    let place = Place::with_tiny();
    done(place.train(&["method.ensemble={particles=2}"]));
    done(place.train(&[LAPLACE, "train.epochs=1"]));
    let runs = place.runs().iter().map(|run| run.display().to_string()).collect::<Vec<_>>();
    let plain = runs.iter().find(|run| run.contains("ensemble")).unwrap();
    let linearised = runs.iter().find(|run| run.contains("laplace")).unwrap();
    let before = text(&place.path("results/tiny.csv"));
    done(with(place.train(&["data.digits.validation=0"]), &["--no-eval"]));
    let runs_now = place.runs();
    let without = runs_now.iter().map(|run| run.display().to_string()).find(|run| !runs.contains(run)).unwrap();
    for option in ["--calibrate", "--conformal=0.1"] {
        let line = error_line(with(place.command("eval", &[]), &[plain, &without, option]), 1);
        assert_has(&line, &["nothing to calibrate on", "train with data.*.validation, say 0.2"]);
    }
    let foreign = format!("digits={}", place.path("none").display());
    for (code, options, parts) in [
        (2, &["--attack", "fgsm"][..], &["linearised predictions cannot be attacked"][..]),
        (2, &["--ood", &foreign, "--ood-by", "knn"], &["--ood-by knn: linearised members have no features"]),
        (2, &["--attack", "fgsm", "--transfer-from", linearised], &["--transfer-from", "linearised", "another run"]),
        (2, &["--attack", "fgsm", "--transfer-from", plain, "--draws", "0"], &["is the run that is evaluated"]),
    ] {
        let order = [plain.as_str(), linearised.as_str()];
        assert_has(&error_line(with(with(place.command("eval", &[]), &order), options), code), parts);
    }
    let alone = with(place.command("eval", &[]), &[plain, "--attack", "fgsm", "--attack-target", "member-2"]);
    assert_has(&error_line(alone, 2), &["member-2: the prediction has 2 members"]);
    assert_eq!(text(&place.path("results/tiny.csv")), before);
}

#[test]
fn several_runs_are_one_table_of_csv() {
    let place = Place::with_tiny();
    done(place.train(&["method.ensemble={particles=2}"]));
    done(place.train(&[LAPLACE, "train.epochs=1"]));
    let runs = place.runs().iter().map(|run| run.display().to_string()).collect::<Vec<_>>();
    let printed = done(with(place.command("eval", &[]), &[&runs[0], &runs[1], "--csv"]));
    assert!(printed.starts_with("experiment,run,"), "{printed}");
    let table = bella::results::store::read(&place.write("printed.csv", printed.as_bytes())).unwrap();
    let [method, samples] = ["method", "laplace.samples"].map(|column| table.index(column).unwrap());
    let found: Vec<[&str; 2]> = table.rows.iter().map(|row| [&*row[method], &*row[samples]]).collect();
    assert_eq!(found, [["ensemble", ""], ["laplace", "6"]]);
}

#[test]
fn a_method_that_reads_runs_keeps_to_itself() {
    let place = Place::with_tiny();
    done(place.train(&["method.map={}"]));
    let trained = place.run().file_name().unwrap().to_str().unwrap().to_string();
    let from = ["--from", &trained];
    done(with(place.train(&["method.tfb={tolerance=10,anchors=8,samples=2}"]), &from));
    let methods: Vec<String> = place.runs().iter().map(|run| text(run)).filter(|run| run.contains("-tfb-")).collect();
    assert_eq!((methods.len(), place.runs().len()), (1, 2), "{:?}", place.runs());
    let bayesvlm = ["method.bayesvlm={samples=2}", "optimizer.none={}", "subspace.projections={}"];
    assert_has(
        &error_line(with(place.train(&bayesvlm), &from), 2),
        &["--from: method.bayesvlm is fitted to the pretrained network"],
    );
}

#[test]
fn particles_of_another_run_are_fitted() {
    let place = Place::with_tiny();
    assert_eq!(place.train(&["method.ensemble={particles=2}"]).output().unwrap().status.code(), Some(0));
    let trained = place.run().file_name().unwrap().to_str().unwrap().to_string();
    let from = format!("method.laplace={{samples=6,particles=2,from={trained:?}}}");
    let output = place.train(&["method.laplace={samples=6,particles=2}"]).args(["--from", &trained]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let runs = place.runs();
    let theta = |run: &std::path::PathBuf| crate::common::tensor_bytes(&run.join("posterior.safetensors"), "theta");
    assert_eq!(runs.len(), 2);
    assert_eq!(theta(&runs[0]), theta(&runs[1]));
    let table = place.results();
    let linearised = table.rows.iter().filter(|row| row[table.index("members").unwrap()] == "12").count();
    assert_eq!(linearised, 1, "two particles of six draws");
    // The place of the checkpoint is no setting of a run.
    let copy = place.path("copy.pt");
    std::fs::copy(repository("assets/vit-digits.pt"), &copy).unwrap();
    done(with(place.train(&[&from, &format!("checkpoint.path={copy:?}")]), &["--force"]));
    for (sets, parts) in [
        (&["method.laplace={from=\"absent\"}"][..], &["method.laplace.from", "no run `absent`"][..]),
        (&[&from, "method.laplace.particles=3"], &["2 particles", "method.laplace.particles = 2"]),
        (&[&from, "subspace.low-rank.rank=1"], &["`subspace` is not this config's"]),
        (&[&from, "seed=9"], &["`seed` is not this config's"]),
    ] {
        assert_has(&error_line(place.train(sets), 1), parts);
    }
}
