//! Detection of samples from outside the training distribution by an uncertainty score. Outside samples are the
//! positives, and a higher score means more likely outside. Labels of either set are not used. Scores of predictions are here, those of
//! features in [`features`].

pub mod features;

use anyhow::{Result, ensure};

use super::auroc::Ranking;
use super::{Average, Better, Column, Scope, Uncertainty, Unit};

/// A score that should be higher for samples from outside. One of [`OOD_SCORES`].
pub struct OodScore {
    pub key: &'static str,
    /// The formula. High values mean outside.
    pub definition: &'static str,
    pub scope: Scope,
    /// The score of each sample, `[N]`. `None` if it is undefined (mutual information of one member).
    pub eval: fn(&Uncertainty, Average) -> Option<Vec<f64>>,
}

/// A measure of how well a score separates the two sets. One of [`OOD_MEASURES`].
pub struct OodMeasure {
    /// The name of the measure's column.
    pub key: &'static str,
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
    pub eval: fn(&Ranking) -> f64,
}

pub static OOD_SCORES: &[&OodScore] =
    &[&MAX_PROBABILITY, &PREDICTIVE_ENTROPY, &EXPECTED_ENTROPY, &MI, &ENERGY, &EXPECTED_ENERGY];

pub static OOD_MEASURES: &[&OodMeasure] = &[&AUROC, &AUPR_IN, &AUPR_OUT, &FPR95, &DETECTION_ERROR];

static MAX_PROBABILITY: OodScore = OodScore {
    key: "max_probability",
    definition: "-max_c p_c of the averaged prediction (ranks as 1 - max_c p_c does)",
    scope: Scope::PerAverage,
    eval: |of, average| Some(of.guesses.of(average).confidence.iter().map(|confidence| -confidence).collect()),
};

static PREDICTIVE_ENTROPY: OodScore = OodScore {
    key: "predictive_entropy",
    definition: "H[mean_k p_k]",
    scope: Scope::Shared,
    eval: |of, _| Some(of.predictive_entropy.clone()),
};

static EXPECTED_ENTROPY: OodScore = OodScore {
    key: "expected_entropy",
    definition: "mean_k H[p_k]",
    scope: Scope::Shared,
    eval: |of, _| Some(of.expected_entropy.clone()),
};

static MI: OodScore = OodScore {
    key: "mi",
    definition: "H[mean_k p_k] - mean_k H[p_k]; empty for one member",
    scope: Scope::Shared,
    eval: |of, _| of.spread.as_ref().map(|spread| spread.mutual_information.clone()),
};

static ENERGY: OodScore = OodScore {
    key: "energy",
    definition: "-log sum_c exp z_c of the mean logits z",
    scope: Scope::Shared,
    eval: |of, _| Some(of.energy.clone()),
};

static EXPECTED_ENERGY: OodScore = OodScore {
    key: "expected_energy",
    definition: "mean_k -log sum_c exp z_kc",
    scope: Scope::Shared,
    eval: |of, _| Some(of.expected_energy.clone()),
};

static AUROC: OodMeasure = OodMeasure {
    key: "auroc",
    definition: "P(score outside > score inside), ties half",
    unit: Unit::One,
    better: Better::Higher,
    eval: Ranking::auroc,
};

static AUPR_IN: OodMeasure = OodMeasure {
    key: "aupr_in",
    definition: "average precision (no interpolation) with inside as positive and the score negated, at the sets' own \
                 sizes",
    unit: Unit::One,
    better: Better::Higher,
    eval: |ranking| ranking.flipped().average_precision(),
};

static AUPR_OUT: OodMeasure = OodMeasure {
    key: "aupr_out",
    definition: "average precision (no interpolation) with outside as positive, at the sets' own sizes",
    unit: Unit::One,
    better: Better::Higher,
    eval: Ranking::average_precision,
};

static FPR95: OodMeasure = OodMeasure {
    key: "fpr95",
    definition: "share of inside flagged at the first falling threshold that flags at least 95 % of outside",
    unit: Unit::Fraction,
    better: Better::Lower,
    eval: |ranking| ranking.false_positive_rate_at(95),
};

static DETECTION_ERROR: OodMeasure = OodMeasure {
    key: "detection_error",
    definition: "min over thresholds of 0.5 (1 - TPR) + 0.5 FPR",
    unit: Unit::Fraction,
    better: Better::Lower,
    eval: Ranking::detection_error,
};

/// The measures of one score on one pair of sets.
pub struct OodRow {
    /// The key of the score.
    pub score: String,
    /// The formula of the score.
    pub formula: &'static str,
    /// `None` if the score does not depend on the averaging.
    pub average: Option<Average>,
    /// The values in the order of [`OOD_MEASURES`]. `None` if the score is undefined.
    pub values: Vec<Option<f64>>,
}

impl OodRow {
    /// Returns the formula of the score, its orientation and the definition of each measure.
    pub fn definition(&self) -> String {
        format!("{}; positive = outside, higher = more outside; {}", self.formula, measure_definitions())
    }

    /// Returns the row of a score that has been computed for samples `inside` and `outside`.
    pub fn of_scores(score: String, formula: &'static str, inside: &[f64], outside: &[f64]) -> OodRow {
        let values = measured(ranked(inside, outside).as_ref());
        OodRow { score, formula, average: None, values }
    }
}

/// Returns the definitions of all measures in one line.
pub fn measure_definitions() -> String {
    let texts = OOD_MEASURES.iter().map(|measure| format!("{}: {}", measure.key, measure.definition));
    texts.collect::<Vec<_>>().join("; ")
}

/// Returns one row for every score, for samples `inside` and `outside` the training distribution.
///
/// # Errors
/// Fails if the two come from predictors with different numbers of classes or members.
pub fn compare(inside: &Uncertainty, outside: &Uncertainty) -> Result<Vec<OodRow>> {
    let (a, b) = (inside.shape, outside.shape);
    ensure!(
        a.classes == b.classes && a.members == b.members,
        "out-of-distribution predictions have {} members and {} classes, those inside {} and {}: must be of one predictor",
        b.members,
        b.classes,
        a.members,
        a.classes
    );
    let mut rows = vec![];
    for score in OOD_SCORES {
        let averages = match score.scope {
            Scope::Shared => vec![None],
            Scope::PerAverage => Average::ALL.map(Some).to_vec(),
        };
        for average in averages {
            let ranking = rank(score, average.unwrap_or(Average::Probability), inside, outside);
            let values = measured(ranking.as_ref());
            rows.push(OodRow { score: score.key.to_string(), formula: score.definition, average, values });
        }
    }
    Ok(rows)
}

fn rank(score: &OodScore, average: Average, inside: &Uncertainty, outside: &Uncertainty) -> Option<Ranking> {
    ranked(&(score.eval)(inside, average)?, &(score.eval)(outside, average)?)
}

fn ranked(inside: &[f64], outside: &[f64]) -> Option<Ranking> {
    let inside = inside.iter().map(|value| (*value, false));
    Ranking::new(inside.chain(outside.iter().map(|value| (*value, true))))
}

/// Returns the measures of a ranking in the order of [`OOD_MEASURES`].
fn measured(ranking: Option<&Ranking>) -> Vec<Option<f64>> {
    OOD_MEASURES.iter().map(|measure| ranking.map(measure.eval)).collect()
}

/// Returns the meaning of a column of an out-of-distribution table.
pub(super) fn of_column(column: &str) -> Option<Column> {
    let measure = OOD_MEASURES.iter().find(|measure| measure.key == column)?;
    Some(Column { short: measure.key, definition: measure.definition, unit: measure.unit, better: measure.better })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::{Predictions, Shape};

    fn of(members: usize, classes: usize, logits: Vec<f32>) -> Uncertainty {
        let shape = Shape { members, samples: logits.len() / members / classes, classes };
        Uncertainty::compute(&Predictions::unlabelled(shape, logits).unwrap()).unwrap()
    }

    /// Inside, the members are certain and agree. Outside, they are uncertain, or certain of different classes.
    fn pair() -> (Uncertainty, Uncertainty) {
        let inside = of(2, 2, vec![5.0, 0.0, 0.0, 6.0, 6.0, 0.0, 0.0, 5.0]);
        (inside, of(2, 2, vec![0.2, 0.0, 3.0, 0.0, 0.0, 0.4, 0.0, 3.0]))
    }

    #[test]
    fn every_score_is_higher_outside() {
        let (inside, outside) = pair();
        for row in compare(&inside, &outside).unwrap() {
            let best = [1.0, 1.0, 1.0, 0.0, 0.0];
            assert_eq!(row.values, best.map(Some), "{}", row.score);
        }
        for row in compare(&outside, &inside).unwrap() {
            assert_eq!((row.values[0], row.values[4]), (Some(0.0), Some(0.5)), "{}", row.score);
        }
    }

    #[test]
    fn rows_follow_the_registry_and_say_what_they_mean() {
        let (inside, outside) = pair();
        let rows = compare(&inside, &outside).unwrap();
        let scores: Vec<_> =
            rows.iter().map(|row| (row.score.as_str(), row.average.map_or("", Average::suffix))).collect();
        let shared = ["predictive_entropy", "expected_entropy", "mi", "energy", "expected_energy"].map(|key| (key, ""));
        assert_eq!(scores[..2], [("max_probability", "lm"), ("max_probability", "pm")]);
        assert_eq!(scores[2..], shared);
        let measures = ["auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"];
        assert_eq!(OOD_MEASURES.iter().map(|measure| measure.key).collect::<Vec<_>>(), measures);
        for row in &rows {
            assert!(row.definition().contains(row.formula) && row.definition().contains("positive = outside"));
        }
        assert!(measures.iter().all(|column| of_column(column).is_some()) && of_column("score").is_none());
    }

    #[test]
    fn mutual_information_of_one_member_is_empty() {
        let rows = compare(&of(1, 2, vec![3.0, 0.0]), &of(1, 2, vec![1.0, 0.0])).unwrap();
        let empty: Vec<_> = rows.iter().filter(|row| row.values.iter().all(Option::is_none)).collect();
        assert_eq!(empty.iter().map(|row| row.score.as_str()).collect::<Vec<_>>(), ["mi"]);
    }

    #[test]
    fn another_predictor_is_refused() {
        let inside = of(1, 2, vec![1.0, 0.0]);
        for outside in [of(1, 3, vec![0.0, 1.0, 2.0]), of(2, 2, vec![0.0, 1.0, 2.0, 3.0])] {
            let message = compare(&inside, &outside).err().unwrap().to_string();
            assert!(message.contains("must be of one predictor"), "{message}");
        }
    }
}
