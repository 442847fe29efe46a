//! How answers depend on the agreement of people, and people's confidence on the network's entropy (Figure 6 of Bella).

use super::scored::{Scored, mean};

/// The numbers of the answers on one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// What the level is of: `agreement`, `entropy up to` or `entropy above`.
    pub by: &'static str,
    /// The share of people who gave the most common answer, or a threshold of the entropy in nats.
    pub level: f64,
    pub questions: usize,
    /// The mean official accuracy; `None` without answers.
    pub accuracy: Option<f64>,
    /// The mean share of people who gave the most common answer.
    pub confidence: Option<f64>,
    /// The mean entropy.
    pub entropy: Option<f64>,
}

/// Returns the levels of agreement 0.1, 0.2, … 1, then the answers up to and above the thresholds 0.1 … 0.8 of the entropy.
/// Answers whose entropy is not known are on no level of it.
pub fn levels(all: &[Scored]) -> Vec<Level> {
    let tenth = |number: u32| f64::from(number) / 10.0;
    let agreeing = |level: f64| move |one: &Scored| (one.confidence - level).abs() < 0.05;
    let mut found: Vec<Level> = (1..=10).map(|n| Level::of("agreement", tenth(n), all, agreeing(tenth(n)))).collect();
    for threshold in (1..=8).map(tenth) {
        let up_to = |one: &Scored| one.entropy.is_some_and(|entropy| entropy <= threshold);
        let above = |one: &Scored| one.entropy.is_some_and(|entropy| entropy > threshold);
        found.push(Level::of("entropy up to", threshold, all, up_to));
        found.push(Level::of("entropy above", threshold, all, above));
    }
    found
}

impl Level {
    fn of(by: &'static str, level: f64, all: &[Scored], here: impl Fn(&Scored) -> bool) -> Level {
        let some: Vec<&Scored> = all.iter().filter(|one| here(one)).collect();
        Level {
            by,
            level,
            questions: some.len(),
            accuracy: mean(some.iter().map(|one| one.accuracy)),
            confidence: mean(some.iter().map(|one| one.confidence)),
            entropy: mean(some.iter().filter_map(|one| one.entropy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parted_by_agreement_and_by_entropy() {
        let one = |accuracy: f64, confidence: f64, entropy: f64| Scored {
            kind: String::new(),
            accuracy,
            evalai: accuracy,
            confidence,
            entropy: Some(entropy),
            mutual_information: None,
        };
        let found = levels(&[one(1.0, 1.0, 0.05), one(0.3, 0.4, 0.3), one(0.9, 0.4, 0.9)]);
        let at = |by: &str, level: f64| found.iter().find(|one| one.by == by && one.level == level).unwrap();
        assert_eq!((at("agreement", 0.4).questions, at("agreement", 0.4).accuracy), (2, Some(0.6)));
        assert_eq!((at("agreement", 0.5).questions, at("agreement", 0.5).accuracy), (0, None));
        assert_eq!(at("entropy up to", 0.3).confidence, Some(0.7));
        assert_eq!((at("entropy above", 0.3).confidence, at("entropy above", 0.3).entropy), (Some(0.4), Some(0.9)));
    }
}
