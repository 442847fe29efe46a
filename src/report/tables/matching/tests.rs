//! Tests with a row that fits and near misses that must not.

use super::*;
use crate::report::paper;
use crate::results::store::{Row, Table};

/// A row that fits SVGD Bella in Table 1: CIFAR-10, rank 4, n = 5.
const FITTING: &[(&str, &str)] = &[
    ("experiment", "e"),
    ("run", "r1"),
    ("config", ""),
    ("checkpoint", "ViT-B-32"),
    ("subspace", "low-rank"),
    ("method", "svgd"),
    ("rank", "4"),
    ("particles", "5"),
    ("predictive", ""),
    ("seed", "1"),
    ("set", "cifar10"),
    ("condition", "clean"),
    ("accuracy_lm", "0.97"),
    ("low-rank.targets", ""),
    ("low-rank.blocks", ""),
    ("svgd.gamma", "0.01"),
    ("attack", ""),
    ("epsilon", ""),
    ("attack_target", ""),
    ("attack_resolution", ""),
];

fn sources(rows: &[Vec<(&str, &str)>]) -> Sources {
    let mut results = Table::default();
    for changes in rows {
        let mut row = Row::new();
        for (column, value) in FITTING {
            let changed = changes.iter().find(|(name, _)| name == column).map_or(*value, |(_, value)| value);
            row.push(*column, changed);
        }
        results.append(&row);
    }
    Sources { results, ..Sources::default() }
}

fn cell(key: &str, row: &str, column: &str) -> Cell {
    let table = paper::tables().unwrap().into_iter().find(|table| table.key == key).unwrap();
    table.cells.into_iter().find(|cell| cell.row == row && cell.column == column).unwrap()
}

fn values(rows: &[Vec<(&str, &str)>], cell: &Cell) -> Vec<Vec<f64>> {
    let sources = sources(rows);
    Matcher::new(&sources).find(cell).into_iter().map(|found| found.values).collect()
}

#[test]
fn a_fitting_row_is_found_and_near_misses_are_not() {
    let cell = cell("bella-1", "CIFAR10", "SVGD Bella (n=5)");
    assert_eq!(values(&[vec![]], &cell), [[0.97]]);
    let misses = [
        ("set", "cifar100"),
        ("condition", "jpeg:1"),
        ("condition", "gaussian-noise:3 (bella)"),
        ("subspace", "full"),
        ("method", "ensemble"),
        ("rank", "16"),
        ("rank", ""),
        ("particles", "3"),
        ("predictive", "soup"),
        ("low-rank.blocks", "0-5"),
        ("low-rank.targets", "[\"mlp.fc\"]"),
        ("accuracy_lm", ""),
    ];
    for miss in misses {
        assert_eq!(values(&[vec![miss]], &cell), Vec::<Vec<f64>>::new(), "{miss:?}");
    }
}

#[test]
fn the_gamma_sweep_is_matched_by_gamma_budget_and_rank() {
    let cell = cell("bella-8", "γ = 0.1", "ε = 0.005");
    let row = vec![
        ("rank", "16"),
        ("svgd.gamma", "0.10"),
        ("condition", "fgsm 0.005"),
        ("attack", "fgsm"),
        ("epsilon", "0.005"),
        ("attack_target", "mean-probability"),
        ("attack_resolution", "model"),
    ];
    assert_eq!(values(std::slice::from_ref(&row), &cell), [[0.97]]);
    for miss in [
        ("rank", "4"),
        ("svgd.gamma", "0.01"),
        ("epsilon", "0.05"),
        ("attack", "pgd"),
        ("attack_target", "member-3"),
        ("attack_resolution", "native"),
    ] {
        let missed = row.iter().map(|pair| if pair.0 == miss.0 { miss } else { *pair }).collect();
        assert!(values(&[missed], &cell).is_empty(), "{miss:?}");
    }
}

#[test]
fn seeds_are_one_series_and_checkpoints_and_settings_stay_apart() {
    let cell = cell("bella-1", "CIFAR10", "SVGD Bella (n=5)");
    let run = |run, seed, checkpoint, gamma, accuracy| {
        vec![
            ("run", run),
            ("seed", seed),
            ("checkpoint", checkpoint),
            ("svgd.gamma", gamma),
            ("accuracy_lm", accuracy),
            ("config", gamma),
        ]
    };
    let rows = [
        run("a", "1", "X", "0.01", "0.90"),
        run("b", "2", "X", "0.01", "0.92"),
        run("c", "1", "X", "0.1", "0.80"),
        run("d", "1", "", "0.01", "0.70"),
    ];
    let sources = sources(&rows);
    let found = Matcher::new(&sources).find(&cell);
    let of = |found: &Found| (found.checkpoint.clone(), found.values.clone());
    let mut found: Vec<_> = found.iter().map(of).collect();
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let expected = [("X", vec![0.8]), ("X", vec![0.9, 0.92]), ("experiment e", vec![0.7])];
    assert_eq!(found, expected.map(|(name, values)| (name.to_string(), values)));
}

#[test]
fn a_mean_over_severities_needs_all_five_of_one_run() {
    let cell = cell("bella-4", "SVGD Bella", "Shot Noise");
    let row = |run: &'static str, condition: &'static str, accuracy: &'static str| {
        vec![("run", run), ("condition", condition), ("accuracy_lm", accuracy)]
    };
    let mut rows = vec![
        row("r1", "shot_noise:1", "0.9"),
        row("r1", "shot_noise:2", "0.8"),
        row("r1", "shot_noise:3", "0.7"),
        row("r1", "shot_noise:4", "0.6"),
        row("r2", "shot_noise:5", "0.1"),
        row("r1", "shot-noise:5 (bella)", "0.1"),
    ];
    assert!(values(&rows, &cell).is_empty());
    rows.push(row("r1", "shot_noise:5", "0.5"));
    let found = values(&rows, &cell);
    assert!(found.len() == 1 && found[0].len() == 1 && (found[0][0] - 0.7).abs() < 1e-12, "{found:?}");
}

#[test]
fn targets_come_from_the_config_of_the_run() {
    let cell = cell("bella-6", "FC 0-5, Proj. 0-5", "Accuracy");
    let mut sources = sources(&[vec![("set", "camelyon17")]]);
    assert!(Matcher::new(&sources).find(&cell).is_empty());
    let config = "[subspace.low-rank]\ntargets = [\"mlp.fc\", \"mlp.proj\"]\nblocks = \"0-5\"\n";
    sources.runs.add(crate::report::sources::RunFiles {
        experiment: "e".into(),
        run: "r1".into(),
        folder: "none".into(),
        config: Some(config.parse().unwrap()),
        record: None,
        history: None,
        predictions: vec![],
    });
    assert_eq!(Matcher::new(&sources).find(&cell)[0].values, [0.97]);
    let whole = self::cell("bella-1", "CAMELYON17", "SVGD Bella (n=5)");
    assert!(Matcher::new(&sources).find(&whole).is_empty(), "half of the blocks are not the paper's setting");
}
