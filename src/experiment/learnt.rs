//! The rules that connect what a head learns with the labels of the data set and with the way of training.

use super::criterion::Criterion;
use super::data::DataSpec;
use super::train_table::Sampling;
use super::training::{Selected, Training};
use crate::metrics::NLL;
use crate::model::head::HeadSpec;
use crate::schema::Reader;

/// Checks that the head learns what the labels are, and that training does without classes where there are none. `training` is that
/// of a config that trains.
pub(super) fn check_learnt(
    root: &Reader,
    (head, data): (&Selected<dyn HeadSpec>, &DataSpec),
    training: Option<&Training>,
) {
    let Some(what) = without_classes(root, head, data) else { return };
    if data.label_noise > 0.0 {
        root.problem("data", format!("label_noise: {} are no labels of classes: leave it out", what.are));
    }
    let Some(training) = training else { return };
    what.check_training(root, training);
    let method = &training.method;
    let why = match head.spec.noise() {
        Some(noise) => method.spec.refuses_numbers(noise),
        None => {
            method.spec.needs_classes().then(|| "needs the logits of classes, and free answers have none".to_string())
        }
    };
    if let Some(why) = why {
        root.problem("method", format!("{} {why}: try {}", method.key, what.methods));
    }
}

/// Labels that are learnt in place of classes.
struct Learnt {
    /// The name of such labels, for messages.
    are: &'static str,
    /// The methods that learn them.
    methods: &'static str,
}

const ANSWERS: Learnt = Learnt { are: "free answers", methods: "map, svgd or ivon" };
const NUMBERS: Learnt = Learnt { are: "numbers", methods: "map, ensemble, svgd, mc-dropout, swag, sgld or ivon" };

/// Returns the labels that are learnt in place of classes; `None` for classes, or if the head does not fit the labels, which is reported.
fn without_classes(root: &Reader, head: &Selected<dyn HeadSpec>, data: &DataSpec) -> Option<Learnt> {
    let (writes, asks) = (head.spec.answer_tokens().is_some(), data.dataset.has_free_answers());
    let (predicts, numbers) = (head.spec.noise().is_some(), data.dataset.has_numbers());
    let key = &data.key;
    let why = if asks && !writes {
        format!("{key} has questions with free answers: write [head.answers], or set data.{key}.labels")
    } else if writes && !asks {
        format!("answers: {key} has no free answers: choose another head")
    } else if numbers && !predicts {
        format!("{key} has numbers and no classes: write [head.gaussian]")
    } else if predicts && !numbers {
        format!(
            "{}: {key} has classes and no numbers: choose another head, or name the number where the set has one \
             (data.list.columns.target, data.jsonl.target, data.parquet.target)",
            head.key
        )
    } else {
        return if asks { Some(ANSWERS) } else { numbers.then_some(NUMBERS) };
    };
    root.problem("head", why);
    None
}

impl Learnt {
    fn check_training(&self, root: &Reader, training: &Training) {
        let Learnt { are, .. } = self;
        if training.subspace.key == "last-layer" && *are == ANSWERS.are {
            root.problem("subspace", "last-layer trains a head of classes: use low-rank with targets = [\"lm_head\"]");
        }
        if training.train.select_by != Criterion(&NLL) {
            root.problem("train", format!("select_by: {are} have no metric of classes: leave it out, which means nll"));
        }
        let balanced = (training.train.sampling == Sampling::Balanced).then_some("sampling");
        if let Some(key) = training.train.changed_loss().or(balanced) {
            root.problem("train", format!("{key}: {are} have no classes: leave it out"));
        }
        if training.train.loo_samples > 0 {
            root.problem("train", "loo_samples: leave-one-out losses are those of classes: leave it out");
        }
    }
}
