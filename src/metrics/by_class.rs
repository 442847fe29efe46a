//! The confusion matrix, which counts how often each class is taken for another, and the numbers of each class that follow from it.

use super::metric::f1;
use super::{Average, Better, Column, Scores, Unit};

/// The number of samples of each true class (rows) that are predicted to be of each class (columns), `[C][C]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    pub counts: Vec<Vec<u64>>,
}

/// Samples of one class that are taken for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub label: usize,
    pub predicted: usize,
    pub samples: u64,
}

/// The measures of a class with the meaning of their columns.
static MEASURES: [(&str, Column); 3] = [
    measure("class_accuracy", "accuracy", "share of the samples of the class that are predicted to be of it (recall)"),
    measure("class_precision", "precision", "share of the samples predicted to be of the class that are of it"),
    measure("class_f1", "F1", "2 TP / (2 TP + FP + FN) of the class"),
];

const fn measure(key: &'static str, short: &'static str, definition: &'static str) -> (&'static str, Column) {
    (key, Column { short, definition, unit: Unit::Fraction, better: Better::Neither })
}

/// Returns the meaning of a column of measures.
pub fn of_column(column: &str) -> Option<Column> {
    MEASURES.iter().find(|(key, _)| *key == column).map(|(_, column)| *column)
}

impl Confusion {
    /// Returns a matrix without samples.
    pub fn new(classes: usize) -> Confusion {
        Confusion { counts: vec![vec![0; classes]; classes] }
    }

    /// Adds the samples of scores with as many classes.
    pub fn add(&mut self, scores: &Scores, average: Average) {
        self.add_samples(&scores.labels_with_guesses(average));
    }

    fn add_samples(&mut self, samples: &[[u32; 2]]) {
        for [label, predicted] in samples {
            self.counts[*label as usize][*predicted as usize] += 1;
        }
    }

    /// Returns the number of samples of a class.
    pub fn samples(&self, class: usize) -> u64 {
        self.counts[class].iter().sum()
    }

    fn predicted(&self, class: usize) -> u64 {
        self.counts.iter().map(|row| row[class]).sum()
    }

    /// Returns the accuracy, the precision and the F1 of a class, each with its column. A share of nothing is `None`.
    pub fn measures(&self, class: usize) -> [(&'static str, Option<f64>); 3] {
        let (right, all, predicted) = (self.counts[class][class], self.samples(class), self.predicted(class));
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let values = [share(right, all), share(right, predicted), f1(right, all, predicted)];
        [0, 1, 2].map(|at| (MEASURES[at].0, values[at]))
    }

    /// Returns the pairs of classes that are confused, the most frequent first.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let of_class = |(label, row): (usize, &Vec<u64>)| {
            let pairs = row.iter().enumerate().filter(move |(predicted, samples)| *predicted != label && **samples > 0);
            pairs.map(move |(predicted, samples)| Mistake { label, predicted, samples: *samples }).collect::<Vec<_>>()
        };
        let mut mistakes: Vec<Mistake> = self.counts.iter().enumerate().flat_map(of_class).collect();
        mistakes.sort_by_key(|mistake| std::cmp::Reverse(mistake.samples));
        mistakes
    }

    /// Returns the classes by rising accuracy. Those without samples are left out.
    pub fn worst_first(&self) -> Vec<usize> {
        let mut classes: Vec<usize> = (0..self.counts.len()).filter(|class| self.samples(*class) > 0).collect();
        let accuracy = |class: &usize| self.measures(*class)[0].1.unwrap_or_default();
        classes.sort_by(|a, b| accuracy(a).total_cmp(&accuracy(b)));
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label and the prediction of sample i, as scripts/make_class_goldens.py makes them.
    fn samples() -> Vec<[u32; 2]> {
        (0u32..60).map(|i| [(i * i + i / 3) % 4, (i * 7 + i / 5) % 5 % 4]).collect()
    }

    // scripts/make_class_goldens.py, scikit-learn 1.9.1
    const MATRIX: [[u64; 4]; 4] = [[12, 2, 4, 2], [3, 2, 2, 3], [6, 5, 4, 5], [3, 3, 2, 2]];
    const CLASSES: [[f64; 3]; 4] = [
        [0.6, 0.5, 0.5454545454545454],
        [0.2, 0.16666666666666666, 0.18181818181818182],
        [0.2, 0.3333333333333333, 0.25],
        [0.2, 0.16666666666666666, 0.18181818181818182],
    ];

    #[test]
    fn numbers_of_classes_are_those_of_scikit_learn() {
        let mut all = Confusion::new(4);
        all.add_samples(&samples());
        assert_eq!(all.counts, MATRIX.map(|row| row.to_vec()));
        for (class, expected) in CLASSES.iter().enumerate() {
            for ((column, found), expected) in all.measures(class).iter().zip(expected) {
                assert!((found.unwrap_or_default() - expected).abs() < 1e-12, "{class} {column}: {found:?} {expected}");
            }
        }
    }

    #[test]
    fn a_class_without_samples_has_no_accuracy() {
        let mut all = Confusion::new(3);
        all.add_samples(&[[0, 1], [0, 1], [0, 0], [1, 1]]);
        assert_eq!(all.measures(2).map(|(_, value)| value), [None, None, None]);
        assert_eq!(all.worst_first(), [0, 1]);
        assert_eq!(all.mistakes(), [Mistake { label: 0, predicted: 1, samples: 2 }]);
    }
}
