//! Out-of-distribution detection: how well scores separate images of foreign classes from those of the test set. Its rows have a results file of
//! their own.

use anyhow::Result;

use super::Evaluation;
use super::asked::{FittedOn, Foreign, ForeignSet, SetGroup};
use super::condition::Condition;
use super::features::Scored;
use crate::base::small::{Usage, push_new};
use crate::data::batches::{SampleSet, TestImages};
use crate::data::{Fingerprint, SplitName};
use crate::experiment::{Experiment, on_other_data};
use crate::metrics::Uncertainty;
use crate::metrics::ood::features::{self, ON_HELD_OUT};
use crate::metrics::ood::{OOD_MEASURES, OodRow, compare};
use crate::predictions::{Predictions, SampleScores};
use crate::results::images::{FOREIGN, TESTED};
use crate::results::ood_csv;
use crate::results::rebuild::set_aside;
use crate::results::store::{Identity, Row, upsert_measurement};
use crate::results::uncertainty::describe;
use crate::schema::Choice;
use crate::session::Opened;
use crate::tasks::About;

/// The cells that identify a row of an out-of-distribution file.
const OOD_ROW: Identity = Identity {
    keys: &["run", "set", "ood_set", "predictive", "score", "average"],
    images: &[TESTED, FOREIGN],
    keeps: None,
};

/// The test set that foreign images are compared with.
pub struct Inside<'a> {
    pub predictions: Predictions,
    pub uncertainty: Uncertainty,
    pub images: &'a TestImages,
}

/// A foreign set that has been opened.
struct OpenedSet {
    group: Option<SetGroup>,
    label: String,
    experiment: Experiment,
}

/// The rows of one foreign set.
struct OfSet {
    group: Option<SetGroup>,
    images: Fingerprint,
    samples: usize,
    rows: Vec<Row>,
}

impl Foreign {
    /// Refuses scores of features, which linearised members do not have.
    ///
    /// # Errors
    /// Fails if such a score is asked for.
    pub(super) fn check_linearised(&self) -> Result<()> {
        if self.by.is_empty() {
            return Ok(());
        }
        let keys = self.by.iter().map(|entry| entry.key).collect::<Vec<_>>().join(",");
        let why = format!(
            "--ood-by {keys}: linearised members have no features of their own: predict with drawn weights (--predictive sampled) or \
             with the mode (--draws 0)"
        );
        Err(Usage(why).into())
    }

    /// Checks that the sets have names of their own, since their rows would replace each other.
    ///
    /// # Errors
    /// Fails if two sets have one name, or if a set has the name of the test set.
    fn open(&self, opened: &Opened) -> Result<Vec<OpenedSet>> {
        let mut others: Vec<OpenedSet> = Vec::new();
        for ForeignSet { group, data } in &self.sets {
            let experiment = on_other_data(&opened.run.config(), data)?;
            let label = experiment.data.label.clone();
            if opened.experiment.data.label == label || others.iter().any(|before| before.label == label) {
                let why = format!(
                    "--ood {data}: `{label}` is the test set or comes twice; if it is another set of that name, give a TOML \
                     file whose [data.*] table has a `label`"
                );
                return Err(Usage(why).into());
            }
            others.push(OpenedSet { group: *group, label, experiment });
        }
        Ok(others)
    }

    /// Returns the images on which scores of features are fitted.
    fn images(&self, opened: &Opened) -> Result<SampleSet> {
        match self.fitted_on {
            FittedOn::Training => opened.trained_on(),
            FittedOn::HeldOut => Ok(opened.validation()?.set),
        }
    }
}

/// The foreign sets of one evaluation.
pub(super) struct Detection<'a> {
    asked: &'a Foreign,
    opened: &'a Opened,
    split: SplitName,
    sets: Vec<OpenedSet>,
}

impl<'a> Detection<'a> {
    /// Opens the foreign sets that are asked for.
    ///
    /// # Errors
    /// Fails if one is not known, or if two have one name.
    pub fn new(asked: &'a Foreign, opened: &'a Opened, split: SplitName) -> Result<Detection<'a>> {
        Ok(Detection { asked, opened, split, sets: asked.open(opened)? })
    }

    /// Separates the test images `inside` from those of every foreign set; stores and returns the rows, with the means of groups of several
    /// sets. Scores of features are saved with the predictions.
    ///
    /// # Errors
    /// Fails if images cannot be read, if a score cannot be fitted, if memory runs out, or if results cannot be written.
    pub fn against(&self, evaluation: &Evaluation, mut inside: Inside) -> Result<Vec<Row>> {
        let by_features = !self.asked.by.is_empty();
        let fitted_on = if by_features { Some(self.asked.images(self.opened)?) } else { None };
        // Detectors of features are fitted once for all sets; otherwise one set is held at a time.
        let at_once = if by_features { self.sets.len() } else { 1 };
        let mut found = Vec::new();
        for some in self.sets.chunks(at_once.max(1)) {
            let images = some.iter().map(|set| self.load(set)).collect::<Result<Vec<_>>>()?;
            let mut scored = vec![SampleScores::new(); images.len()];
            if let Some(fitted_on) = &fitted_on {
                let sets: Vec<&SampleSet> =
                    std::iter::once(inside.images).chain(&images).map(|images| &images.set).collect();
                let all = evaluation.feature_scores(&self.asked.by, fitted_on, &sets)?;
                scored = all.into_iter().map(|scores| self.named(scores)).collect();
                inside.predictions = inside.predictions.with_scores(scored.remove(0))?;
                evaluation.save(&inside.predictions)?;
            }
            for ((set, images), scored) in some.iter().zip(&images).zip(scored) {
                let rows = evaluation.out_of_distribution(&inside, &set.label, set.group, images, scored)?;
                let samples = images.set.samples();
                found.push(OfSet { group: set.group, images: images.fingerprint, samples, rows });
            }
        }
        let means = evaluation.means_of_groups(&found)?;
        Ok(found.into_iter().flat_map(|one| one.rows).chain(means).collect())
    }

    fn load(&self, set: &OpenedSet) -> Result<TestImages> {
        let session = &self.opened.session;
        let split = session.load(&set.experiment, self.split)?;
        TestImages::new(split, session.device, session.settings.workers)
    }

    /// Returns the scores of a set by the names of rows.
    fn named(&self, scores: Scored) -> SampleScores {
        let on = match self.asked.fitted_on {
            FittedOn::Training => "",
            FittedOn::HeldOut => ON_HELD_OUT,
        };
        self.asked.by.iter().map(|entry| format!("{}{on}", entry.key)).zip(scores).collect()
    }
}

impl Evaluation<'_> {
    /// Predicts the foreign `images` with the same members; stores and returns one row per score and average, those of features last.
    fn out_of_distribution(
        &self,
        inside: &Inside,
        ood_set: &str,
        group: Option<SetGroup>,
        images: &TestImages,
        scores: SampleScores,
    ) -> Result<Vec<Row>> {
        let About { classes, metadata } = self.about(&Condition::Foreign(ood_set.to_string()), images.fingerprint);
        let outside = self.predictor.predictions(self.logits(&images.set)?, None)?;
        let outside = outside.with_class_names(classes)?.with_metadata(metadata)?.with_scores(scores)?;
        self.save(&outside)?;
        self.measure_foreign_sets(&outside, ood_set, images.fingerprint)?;
        let measured = compare(&inside.uncertainty, &Uncertainty::compute(&outside)?)?;
        let by_features = features::compare(inside.predictions.scores(), outside.scores());
        let row = |one: OodRow| {
            let mut row = self.who();
            row.push("set", &self.set);
            row.push("ood_set", ood_set);
            if let Some(group) = group {
                row.push("ood_group", group.word());
            }
            row.push("members", inside.uncertainty.shape.members.to_string());
            row.push("samples", inside.uncertainty.shape.samples.to_string());
            row.push("images", inside.images.fingerprint.short());
            row.push("ood_samples", outside.samples().to_string());
            row.push("ood_images", images.fingerprint.short());
            describe(&one, &mut row);
            row
        };
        self.stored(measured.into_iter().chain(by_features).map(row).collect())
    }

    /// Stores and returns the means over the sets of each group of several, one row per score and average.
    fn means_of_groups(&self, found: &[OfSet]) -> Result<Vec<Row>> {
        let mut groups = Vec::new();
        found.iter().filter_map(|one| one.group).for_each(|group| push_new(&mut groups, group));
        let mut rows = Vec::new();
        for group in groups {
            let of: Vec<&OfSet> = found.iter().filter(|one| one.group == Some(group)).collect();
            if of.len() > 1 {
                rows.extend((0..of[0].rows.len()).map(|place| mean_of_sets(group, &of, place)));
            }
        }
        self.stored(rows)
    }

    /// Stores rows of out-of-distribution detection and returns them. Only the first process writes.
    fn stored(&self, rows: Vec<Row>) -> Result<Vec<Row>> {
        if self.session.group.is_main() {
            let file = ood_csv(self.run, &self.session.settings.out, &self.experiment.name);
            set_aside(&file)?;
            rows.iter().try_for_each(|row| upsert_measurement(&file, row, &OOD_ROW).map(|_| ()))?;
        }
        Ok(rows)
    }
}

/// Returns the mean of the rows at a place, which are of one score. A mean is empty if any of its values is.
fn mean_of_sets(group: SetGroup, of: &[&OfSet], place: usize) -> Row {
    let mean = |column: &str| {
        let values: Option<Vec<f64>> = of.iter().map(|one| one.rows[place].get(column)?.parse().ok()).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
    };
    let images: Vec<String> = of.iter().map(|one| one.images.short()).collect();
    let mut row = Row::new();
    for (column, cell) in of[0].rows[place].cells() {
        match column.as_str() {
            "ood_set" => row.push("ood_set", format!("{} (mean of {})", group.word(), of.len())),
            "ood_samples" => row.push("ood_samples", of.iter().map(|one| one.samples).sum::<usize>().to_string()),
            "ood_images" => row.push("ood_images", Fingerprint::of_all(images.iter().map(String::as_str)).short()),
            measure if OOD_MEASURES.iter().any(|one| one.key == measure) => row.push_number(measure, mean(measure)),
            other => row.push(other, cell),
        }
    }
    row
}
