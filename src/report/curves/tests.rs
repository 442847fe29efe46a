use std::collections::BTreeMap;
use std::time::SystemTime;

use super::*;
use crate::results::store::Row;
use crate::run::RunFolder;

fn watched(losses: &[f64], accuracies: bool) -> Watched {
    let mut history = Table::default();
    for (at, loss) in losses.iter().enumerate() {
        let mut row = Row::new();
        row.push("epoch", (at + 1).to_string());
        row.push_number("train_loss", Some(*loss));
        row.push_number("validation_accuracy_lm", accuracies.then_some(0.5));
        row.push_number("bandwidth", Some(2.0 * loss));
        history.append(&row);
    }
    let run = Summary {
        folder: RunFolder::at("low-rank-svgd-s1-0123456789".into()),
        short: "01234".into(),
        experiment: "tiny".into(),
        sweep: None,
        state: State::Training { epochs: losses.len() },
        settings: BTreeMap::from([("train.epochs".to_string(), "9".to_string())]),
        problem: None,
        accuracy: None,
        bytes: 0,
        changed: SystemTime::UNIX_EPOCH,
    };
    Watched { run, history, steps: Vec::new(), of: 0 }
}

#[test]
fn drawings_fit_any_width() {
    let runs = [watched(&[2.0, 1.0, f64::INFINITY, 0.5], true), watched(&[2.5, 1.5], false)];
    for (width, plain, color) in [(60, true, false), (80, false, true), (120, false, false), (20, true, false)] {
        let text = draw(&runs, &[], Room { width, height: Some(24), color, plain });
        let visible = text.replace("\u{1b}[0m", "");
        for line in visible.lines() {
            let escapes = line.matches("\u{1b}[3").count();
            assert!(line.chars().count() - 5 * escapes <= width, "{width}: {line}");
        }
        assert!(text.lines().count() < 24, "{text}");
        assert_eq!(text.contains('\u{1b}'), color);
        assert_eq!(text.is_ascii(), !color, "letters tell the two runs apart");
    }
}

#[test]
fn a_chart_is_drawn_for_what_there_is() {
    let room = Room { width: 80, height: None, color: false, plain: true };
    let text = draw(&[watched(&[2.0, 1.25], true)], &[], room);
    assert!(text.starts_with("low-rank-svgd-s1-0123456789: training, 2 of 9 epochs\n"), "{text}");
    assert!(text.contains("training loss: 1.250") && text.contains("validation accuracy (%): 50.00"), "{text}");
    assert!(!text.contains("validation NLL"), "{text}");
    let asked = draw(&[watched(&[2.0, 1.25], true)], &["bandwidth".into()], room);
    assert!(asked.contains("bandwidth: 2.500") && !asked.contains("training loss"), "{asked}");
    assert!(draw(&[watched(&[], false)], &[], room).ends_with("no epoch is finished yet\n"));
    let first = Watched { steps: vec![(1.0, 2.5), (14.0, 1.5)], of: 80, ..watched(&[], false) };
    let text = draw(&[first], &[], room);
    assert!(text.starts_with("low-rank-svgd-s1-0123456789: training, epoch 1 of 9, step 14 of 80\n"), "{text}");
    assert!(text.contains("training loss: 1.500") && text.contains(" step "), "{text}");
}
