//! The counts of predictions by class, from which the measures of agreement follow that are no mean over samples.

use super::{Average, Scores};

/// The counts of each class, `[C]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// The number of samples of the class that are predicted to be of it.
    pub correct: Vec<u64>,
    /// The number of samples that are predicted to be of the class.
    pub predicted: Vec<u64>,
    /// The number of samples of the class.
    pub labelled: Vec<u64>,
}

impl Tally {
    /// Counts the samples at `indices`, given the label and the predicted class of every sample.
    pub fn of_samples(classes: usize, samples: &[[u32; 2]], indices: impl IntoIterator<Item = usize>) -> Tally {
        let zeros = vec![0; classes];
        let mut all = Tally { correct: zeros.clone(), predicted: zeros.clone(), labelled: zeros };
        for [label, predicted] in indices.into_iter().map(|i| samples[i].map(|class| class as usize)) {
            all.labelled[label] += 1;
            all.predicted[predicted] += 1;
            all.correct[label] += u64::from(label == predicted);
        }
        all
    }

    /// Counts all samples.
    pub fn of(scores: &Scores, average: Average) -> Tally {
        let samples = scores.labels_with_guesses(average);
        Tally::of_samples(scores.uncertainty.shape.classes, &samples, 0..samples.len())
    }

    /// Returns the F1 of a class; `None` if it is neither a label nor predicted.
    pub fn f1(&self, class: usize) -> Option<f64> {
        f1(self.correct[class], self.labelled[class], self.predicted[class])
    }
}

/// Returns 2 TP / (2 TP + FP + FN), given TP and the numbers of samples of the class and predicted to be of it; `None` if both are 0.
pub(super) fn f1(correct: u64, labelled: u64, predicted: u64) -> Option<f64> {
    let all = labelled + predicted;
    (all > 0).then(|| 2.0 * correct as f64 / all as f64)
}
