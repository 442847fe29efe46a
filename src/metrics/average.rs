//! The two ways of averaging members into one prediction. Their results differ a lot, so both are reported.

use crate::schema::{Choice, words};

words! {
    /// The way the outputs of the members are averaged into one prediction. The word is the suffix of the metric
    /// columns.
    pub enum Average {
        /// Softmax of the mean logits.
        Logit = "lm",
        /// Mean of the members' softmax.
        Probability = "pm",
    }
}

impl Average {
    /// Both averages in the order of the columns.
    pub const ALL: [Average; 2] = [Average::Logit, Average::Probability];

    /// Returns the column suffix without underscore: `lm`, `pm`.
    pub fn suffix(self) -> &'static str {
        self.word()
    }

    /// Returns the name of the average, as titles of columns have it.
    pub fn title(self) -> &'static str {
        match self {
            Average::Logit => "averaged logits",
            Average::Probability => "averaged probabilities",
        }
    }

    /// Returns the average as it stands behind a quantity, such as `NLL (nats), logits averaged`.
    pub fn behind(self) -> &'static str {
        match self {
            Average::Logit => "logits averaged",
            Average::Probability => "probabilities averaged",
        }
    }

    /// Returns a description of the average with its suffix, for readers of tables and figures.
    pub fn words(self) -> &'static str {
        match self {
            Average::Logit => "softmax of the averaged logits of all members (lm)",
            Average::Probability => "averaged probabilities of all members (pm)",
        }
    }

    /// Returns the sentence that says what a prediction is where this average alone is shown.
    pub fn legend_of_one(self) -> String {
        format!("A prediction is the {}.", self.words())
    }

    /// Returns a sentence that explains the suffixes of columns.
    pub fn legend() -> String {
        let [lm, pm] = [Average::Logit, Average::Probability].map(Average::words);
        format!("A prediction is the {lm}, or the {pm}.")
    }
}

/// One value for each way of averaging.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerAverage<T> {
    pub logit: T,
    pub probability: T,
}

impl<T> PerAverage<T> {
    /// Calls `make` for each average.
    pub fn each(mut make: impl FnMut(Average) -> T) -> Self {
        Self { logit: make(Average::Logit), probability: make(Average::Probability) }
    }

    pub fn of(&self, average: Average) -> &T {
        match average {
            Average::Logit => &self.logit,
            Average::Probability => &self.probability,
        }
    }
}

/// The temperatures that leave every prediction unchanged.
pub const UNSCALED: PerAverage<f64> = PerAverage { logit: 1.0, probability: 1.0 };
