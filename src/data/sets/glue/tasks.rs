//! The tasks of GLUE: their folders, columns, labels and published sizes.

use crate::schema::words;

words! {
    /// A task, of classification but for the last.
    pub enum Task {
        /// Whether a sentence is acceptable English (Warstadt et al. 2018).
        Cola = "cola",
        /// The sentiment of a sentence (Socher et al. 2013).
        Sst2 = "sst2",
        /// Whether two sentences mean the same (Dolan & Brockett 2005).
        Mrpc = "mrpc",
        /// Whether two questions ask the same.
        Qqp = "qqp",
        /// Whether a sentence follows from another one, contradicts it, or neither (Williams et al. 2018).
        Mnli = "mnli",
        /// Whether a sentence answers a question.
        Qnli = "qnli",
        /// Whether a sentence follows from another one.
        Rte = "rte",
        /// Whether a sentence with a pronoun resolved follows from one with the pronoun (Levesque et al. 2012).
        Wnli = "wnli",
        /// How similar two sentences are, a number from 0 to 5 (Cer et al. 2017).
        Stsb = "stsb",
    }
}

/// The published form of a task.
pub struct Layout {
    /// The folder below the root.
    pub folder: &'static str,
    /// The names of the columns if the files have no header.
    pub header: Option<&'static [&'static str]>,
    /// The columns of the first and of the second text, and of the label.
    pub first: &'static str,
    pub second: Option<&'static str>,
    pub label: &'static str,
    /// The label of each class in the files, none if labels are numbers, and the names of the classes, or of the number.
    pub labels: &'static [&'static str],
    pub classes: &'static [&'static str],
    /// The keys of the texts in JSON lines.
    pub keys: (&'static str, Option<&'static str>),
    /// Whether lines without all cells are known and left out.
    pub has_broken_lines: bool,
    pub train: usize,
    /// The number of texts of the first test set.
    pub dev: usize,
}

/// The number of pairs of MNLI's mismatched test set.
pub const MISMATCHED: usize = 9_832;

const BITS: &[&str] = &["0", "1"];
const ENTAILMENT: &[&str] = &["entailment", "not_entailment"];
const SENTENCES: (&str, Option<&str>) = ("sentence1", Some("sentence2"));

/// A task of pairs in columns `sentence1`, `sentence2` and `label`; the others differ from it.
const PAIRS: Layout = Layout {
    folder: "RTE",
    header: None,
    first: "sentence1",
    second: Some("sentence2"),
    label: "label",
    labels: ENTAILMENT,
    classes: ENTAILMENT,
    keys: SENTENCES,
    has_broken_lines: false,
    train: 2_490,
    dev: 277,
};

const SENTENCE: Layout = Layout { first: "sentence", second: None, labels: BITS, keys: ("sentence", None), ..PAIRS };

static COLA: Layout = Layout {
    folder: "CoLA",
    header: Some(&["source", "label", "mark", "sentence"]),
    classes: &["unacceptable", "acceptable"],
    train: 8_551,
    dev: 1_043,
    ..SENTENCE
};

static SST2: Layout =
    Layout { folder: "SST-2", classes: &["negative", "positive"], train: 67_349, dev: 872, ..SENTENCE };

static MRPC: Layout = Layout {
    folder: "MRPC",
    first: "#1 String",
    second: Some("#2 String"),
    label: "Quality",
    labels: BITS,
    classes: &["not_equivalent", "equivalent"],
    train: 3_668,
    dev: 408,
    ..PAIRS
};

static QQP: Layout = Layout {
    folder: "QQP",
    first: "question1",
    second: Some("question2"),
    label: "is_duplicate",
    labels: BITS,
    classes: &["not_duplicate", "duplicate"],
    keys: ("question1", Some("question2")),
    has_broken_lines: true,
    train: 363_846,
    dev: 40_430,
    ..PAIRS
};

const THREE: &[&str] = &["entailment", "neutral", "contradiction"];

static MNLI: Layout =
    Layout { folder: "MNLI", label: "gold_label", labels: THREE, classes: THREE, train: 392_702, dev: 9_815, ..PAIRS };

static QNLI: Layout = Layout {
    folder: "QNLI",
    first: "question",
    second: Some("sentence"),
    keys: ("question", Some("sentence")),
    train: 104_743,
    dev: 5_463,
    ..PAIRS
};

static RTE: Layout = PAIRS;

static WNLI: Layout =
    Layout { folder: "WNLI", labels: BITS, classes: &["not_entailment", "entailment"], train: 635, dev: 71, ..PAIRS };

static STSB: Layout = Layout {
    folder: "STS-B",
    label: "score",
    labels: &[],
    classes: &["similarity"],
    train: 5_749,
    dev: 1_500,
    ..PAIRS
};

impl Layout {
    /// Returns whether labels are numbers.
    pub fn has_numbers(&self) -> bool {
        self.labels.is_empty()
    }
}

impl Task {
    pub fn layout(self) -> &'static Layout {
        match self {
            Task::Cola => &COLA,
            Task::Sst2 => &SST2,
            Task::Mrpc => &MRPC,
            Task::Qqp => &QQP,
            Task::Mnli => &MNLI,
            Task::Qnli => &QNLI,
            Task::Rte => &RTE,
            Task::Wnli => &WNLI,
            Task::Stsb => &STSB,
        }
    }
}
