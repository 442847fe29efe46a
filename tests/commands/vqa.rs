//! The scores of answers are those of the published rule (tests/fixtures/vqa, written by scripts/make_vqa_fixture.py).

use crate::common::fixture;
use bella::metrics::answers::{Answered, Scored, evaluate, of_column};
use serde_json::Value;

/// The sets of ten answers of the fixture, or of the file that `BELLA_VQA_SETS` names.
fn sets() -> Vec<Value> {
    let path = std::env::var_os("BELLA_VQA_SETS").map_or_else(|| fixture("vqa/answers.json"), Into::into);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn answered(set: &Value) -> Answered {
    let people = set["people"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_string()).collect();
    Answered { answer: set["answer"].as_str().unwrap().to_string(), people, ..Answered::default() }
}

#[test]
fn scores_are_those_of_the_published_rule() {
    let sets = sets();
    assert!(sets.len() >= 100);
    for set in &sets {
        let found = Scored::of(&answered(set));
        for (found, key) in [(found.accuracy, "accuracy"), (found.evalai, "evalai"), (found.confidence, "confidence")] {
            let expected = set[key].as_f64().unwrap();
            assert!((found - expected).abs() < 1e-12, "{key}: {found}, expected {expected}: {set}");
        }
    }
}

/// Three answers by hand: a right one, one that two people of ten gave, and a wrong one.
#[test]
fn columns_are_over_all_questions_and_over_each_type() {
    let people = |same: usize| {
        let answers = (0..10).map(|i| if i < same { "cat".to_string() } else { format!("dog {i}") });
        answers.collect::<Vec<_>>()
    };
    let one = |kind: &str, same, entropy, mutual_information| {
        let (kind, answer) = (kind.to_string(), "cat".to_string());
        Scored::of(&Answered { kind, answer, people: people(same), entropy: Some(entropy), mutual_information })
    };
    let all = [one("yes/no", 10, 0.2, Some(0.1)), one("other", 2, 1.0, None), one("other", 0, 2.0, Some(0.5))];
    let columns = evaluate(&all);
    let value = |name: &str| columns.iter().find(|(column, _)| column == name).unwrap_or_else(|| panic!("{name}")).1;
    let near = |name: &str, expected: f64| assert!((value(name).unwrap() - expected).abs() < 1e-12, "{name}");
    near("vqa_accuracy", 1.6 / 3.0);
    near("exact_match", 1.0 / 3.0);
    near("entropy_right", 0.2);
    near("entropy_wrong", 1.5);
    near("mi_wrong", 0.5);
    near("vqa_accuracy_yes_no", 1.0);
    near("questions_other", 2.0);
    near("entropy_wrong_other", 1.5);
    assert_eq!(value("entropy_wrong_yes_no"), None);
    assert!(of_column("exact_match_yes_no").is_some() && of_column("exact_matches").is_none());
}
