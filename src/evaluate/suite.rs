//! The tests that a posterior undergoes: test sets in every condition asked for, and what is fitted on held-out images
//! before.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::attacks::LINEARISED;
use super::conformal::{Thresholds, check_options};
use super::foreign::{Detection, Inside};
use super::{
    Adversarial, AttackPlan, Condition, Conformal, Evaluation, Foreign, Matched, PlainName, UnderAttack, mend_results,
};
use crate::base::small::Usage;
use crate::data::batches::{SampleSet, TestImages};
use crate::data::corruptions::Applied;
use crate::data::overlap::Seen;
use crate::data::versions::{Version, incomplete};
use crate::data::{Fingerprint, Split, SplitName};
use crate::experiment::Experiment;
use crate::metrics::Uncertainty;
use crate::metrics::calibrators::{Calibration, Calibrator};
use crate::metrics::conformal::Plan;
use crate::posterior::Predictive;
use crate::predict::{Members, Predictor};
use crate::results::store::Row;
use crate::run::Cost;
use crate::session::{Named, Opened};

/// The tests that a command asks for.
pub struct Suite {
    pub split: SplitName,
    /// The corruptions that bella makes. With some, the clean set is not evaluated.
    pub corruptions: Vec<Applied>,
    /// The sets of other classes to separate from the test set.
    pub foreign: Foreign,
    /// The calibrators that are fitted on held-out training images.
    pub calibrators: Vec<&'static Calibrator>,
    /// The number of images per forward pass; that of the config by default.
    pub batch_size: Option<u32>,
    pub attack: Option<AttackPlan>,
    /// The folder for attacked pixels.
    pub save_images: Option<PathBuf>,
    pub conformal: Option<Plan>,
}

/// The members of an opened run, or of a model that was made of it, as a suite tests them.
pub struct Subject<'a> {
    pub members: Members<'a>,
    /// The way of prediction, as results name it.
    pub predictive: &'a str,
    /// The cost of training them; absent for a checkpoint without training.
    pub cost: Option<Cost>,
}

/// The rows of results that a suite has stored.
pub struct Tested {
    pub rows: Vec<Row>,
    /// The rows of conformal sets.
    pub sets: Vec<Row>,
    /// The rows of out-of-distribution detection for each test set.
    pub ood: Vec<Vec<Row>>,
}

impl Suite {
    /// Checks what a run's config alone tells, so that a mistake in the last run is found before the first is tested.
    ///
    /// # Errors
    /// Fails if a test does not fit what the run learns or the way in which it predicts, if the run is a trial of a sweep or the one that an
    /// attack comes from, or if nothing is held out to calibrate on.
    pub fn check(&self, named: &Named, predictive: Predictive) -> Result<()> {
        named.check_trial(self.split)?;
        self.check_classes(&named.experiment).with_context(|| named.run.id())?;
        if let Some(source) = self.attack.iter().find_map(|plan| plan.source.as_ref()) {
            source.expect_other(&named.run.id())?;
        }
        if !self.calibrators.is_empty() || self.conformal.is_some() {
            named.expect_held_out()?;
        }
        self.check_weights(matches!(predictive, Predictive::Linearised(..))).with_context(|| named.run.id())
    }

    /// Evaluates a subject that was made of an opened run, stores the rows and returns them.
    ///
    /// # Errors
    /// Fails if a set or the held-out images cannot be read, if a test does not fit the set, if memory runs out, or if
    /// results cannot be written.
    pub fn test(&self, opened: &Opened, subject: Subject) -> Result<Tested> {
        let Opened { experiment, session, run, .. } = opened;
        self.check_classes(experiment)?;
        self.check_weights(matches!(subject.members, Members::Linear(_)))?;
        let matched = Matched::of(opened)?;
        let evaluation = Evaluation {
            experiment,
            session,
            run,
            group: run.group(experiment.file_hashes()?)?,
            cost: subject.cost,
            predictor: matched.predictor(Predictor::new(&session.model, subject.members, opened.chunk())),
            predictive: subject.predictive.to_string(),
            batch_size: opened.batch_size(self.batch_size),
            set: set_name(&experiment.data.label, self.split),
            plain_name: PlainName::Reserved,
            fitted_on: None,
            calibration: None,
            conformal: None,
        };
        // What writes answers has no classes, and is not attacked.
        if experiment.task.only_clean().is_none() {
            self.attack.iter().try_for_each(|plan| plan.check(&evaluation))?;
        }
        if !opened.is_of_training(self.split) {
            opened.check_trial()?;
        }
        mend_results(experiment, session, run)?;
        let mut testing = Testing { opened, suite: self, matched, seen: opened.seen(), evaluation, ood: Vec::new() };
        testing.calibrate()?;
        let rows = testing.on_sets()?;
        let sets = testing.evaluation.conformal.map_or_else(Vec::new, |conformal| conformal.measured());
        Ok(Tested { rows, sets, ood: testing.ood })
    }

    /// Checks that no option is given that needs classes where there are none.
    fn check_classes(&self, experiment: &Experiment) -> Result<()> {
        if experiment.task.has_classes() || experiment.task.only_clean().is_some() {
            return Ok(());
        }
        let asked = [
            ("--attack", self.attack.is_some()),
            ("--ood", !self.foreign.sets.is_empty()),
            ("--calibrate", !self.calibrators.is_empty()),
        ];
        match asked.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                let why = format!("{option} needs the logits of classes, and this run predicts a number: leave it out");
                Err(Usage(why).into())
            }
            None => self.conformal.as_ref().map_or(Ok(()), check_options),
        }
    }

    /// Checks that no option is given that needs members with weights, if predictions are linearised.
    fn check_weights(&self, linearised: bool) -> Result<()> {
        if !linearised {
            return Ok(());
        }
        ensure!(self.attack.as_ref().is_none_or(|plan| plan.source.is_some()), Usage(LINEARISED.into()));
        self.foreign.check_linearised()
    }

    /// Checks that the suite asks for nothing besides predictions of a plain set.
    fn expect_plain(&self, why: impl FnOnce() -> String) -> Result<()> {
        ensure!(self.corruptions.is_empty() && self.attack.is_none() && self.foreign.sets.is_empty(), Usage(why()));
        Ok(())
    }
}

/// A suite while it is run.
struct Testing<'a> {
    opened: &'a Opened,
    suite: &'a Suite,
    matched: Matched,
    /// The training images, if test images are compared with them.
    seen: Seen,
    evaluation: Evaluation<'a>,
    ood: Vec<Vec<Row>>,
}

impl Testing<'_> {
    /// Predicts the held-out images, if calibrators or conformal sets are fitted on them.
    fn calibrate(&mut self) -> Result<()> {
        let Suite { split, calibrators, conformal, .. } = self.suite;
        if calibrators.is_empty() && conformal.is_none() {
            return Ok(());
        }
        if self.opened.is_of_training(*split) {
            let (option, what) = match conformal {
                Some(_) => ("--conformal", "sets"),
                None => ("--calibrate", "calibrators"),
            };
            let why = format!(
                "{option} --split {split}: {what} are fitted on held-out training images, which cannot test them: leave --split \
                 or {option} out"
            );
            return Err(Usage(why).into());
        }
        if let (Some(plan), false) = (conformal, self.opened.experiment.task.has_classes()) {
            let held_out = self.opened.validation_among(None)?;
            let found = self.evaluation.predicted(&held_out, &Condition::Clean)?;
            self.evaluation.fitted_on = Some(held_out.fingerprint);
            self.evaluation.conformal = Some(Conformal::new(Thresholds::of(plan, &*found)?));
            return Ok(());
        }
        let session = &self.opened.session;
        session.model.check_classes()?;
        let held_out = self.opened.validation_among(self.matched.among())?;
        if let Some(plan) = conformal {
            plan.check(&held_out.set.split.labels, &self.matched.names(self.opened))?;
        }
        let predictions = self.evaluation.labelled(&held_out.set)?;
        self.evaluation.fitted_on = Some(held_out.fingerprint);
        if let Some(plan) = conformal {
            self.evaluation.conformal = Some(Conformal::new(Thresholds::of(plan, &predictions)?));
        }
        if !calibrators.is_empty() {
            self.evaluation.calibration = Some(Calibration::fit(calibrators, &predictions)?);
        }
        Ok(())
    }

    /// Evaluates every test set, or every published version of one.
    fn on_sets(&mut self) -> Result<Vec<Row>> {
        let Opened { experiment, session, .. } = self.opened;
        let is_test = self.suite.split == SplitName::Test;
        let versions = if is_test { self.opened.located(experiment.data.dataset.versions())? } else { Vec::new() };
        let sets = if is_test && versions.is_empty() { experiment.data.test_sets() } else { Vec::new() };
        let mut rows = Vec::new();
        for (label, set) in sets {
            self.evaluation.plain_name = self.plain_name(&label);
            self.evaluation.set = label;
            rows.extend(self.on_split(self.opened.located(session.load_test(experiment, &*set))?)?);
        }
        if !rows.is_empty() {
            return Ok(rows);
        }
        self.evaluation.plain_name = self.plain_name(&self.evaluation.set);
        if versions.is_empty() {
            return self.on_split(self.opened.split(self.suite.split)?);
        }
        self.suite.expect_plain(|| {
            format!(
                "{}: its images are corrupted already: --corrupt, --attack and --ood are for plain test sets",
                experiment.data.label
            )
        })?;
        self.on_versions(versions)
    }

    fn plain_name(&self, set: &str) -> PlainName {
        match (self.opened.has_own_data(), self.opened.is_own_set(set)) {
            (true, _) => PlainName::Own,
            (false, false) => PlainName::IfFree,
            (false, true) => PlainName::Reserved,
        }
    }

    /// Evaluates the published corrupted versions of a test set one by one, and adds their means.
    fn on_versions(&self, versions: Vec<Version>) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for version in versions {
            let Opened { experiment, session, .. } = self.opened;
            let split = self.opened.located(session.load_version(experiment, &version))?;
            let fingerprint = Fingerprint::of(&split)?;
            let images = self.images(split, fingerprint)?;
            let row = self.evaluation.row_of(&images, &Condition::Published(version.clone()))?;
            rows.push((version, row));
        }
        let means = self.evaluation.means(&rows)?;
        let evaluated: Vec<_> = rows.iter().map(|(version, _)| version.clone()).collect();
        for (condition, missing) in incomplete(&evaluated) {
            tracing::info!("no {condition}: {} of its versions were not evaluated", missing.len());
        }
        Ok(rows.into_iter().map(|(_, row)| row).chain(means).collect())
    }

    /// Evaluates one split: clean, corrupted, attacked, or against sets of other classes.
    fn on_split(&mut self, split: Split) -> Result<Vec<Row>> {
        let fingerprint = Fingerprint::of(&split)?;
        if let Some(found) = self.seen.overlap(&self.evaluation.set, &split)? {
            tracing::warn!("{found}");
        }
        if let Some(why) = self.opened.experiment.task.only_clean() {
            return self.only_clean(split, fingerprint, why);
        }
        if !self.suite.corruptions.is_empty() {
            return self.corrupted(&split, fingerprint);
        }
        let detection = Detection::new(&self.suite.foreign, self.opened, self.suite.split)?;
        let images = self.images(split, fingerprint)?;
        if let Some(plan) = &self.suite.attack {
            return self.attacked(&images, plan);
        }
        if self.suite.foreign.sets.is_empty() {
            return Ok(vec![self.evaluation.row_of(&images, &Condition::Clean)?]);
        }
        let (row, predictions) = self.evaluation.plain(&images, &Condition::Clean)?;
        let inside = Inside { uncertainty: Uncertainty::compute(&predictions)?, predictions, images: &images };
        self.ood.push(detection.against(&self.evaluation, inside)?);
        Ok(vec![row])
    }

    fn corrupted(&self, split: &Split, fingerprint: Fingerprint) -> Result<Vec<Row>> {
        let row = |applied: &Applied| {
            let images = self.images(split.with_inputs(split.inputs.corrupted(*applied)?), fingerprint)?;
            self.evaluation.row_of(&images, &Condition::Corrupted(*applied))
        };
        self.suite.corruptions.iter().map(row).collect()
    }

    /// Evaluates the images as they are, which an attack is compared with, and under attack.
    fn attacked(&self, images: &TestImages, plan: &AttackPlan) -> Result<Vec<Row>> {
        let (clean, _) = self.evaluation.plain(images, &Condition::Clean)?;
        // The folder has one file per run, set and condition, like that of the predictions.
        let folder = self.suite.save_images.as_ref().map(|folder| folder.join(self.opened.run.id()));
        folder.as_deref().map_or(Ok(()), crate::base::files::create_folder)?;
        let UnderAttack { rows, images } = self.evaluation.attacked(images, plan, folder.is_some())?;
        folder.map_or(Ok(()), |folder| images.iter().try_for_each(|one: &Adversarial| one.write(&folder)))?;
        Ok(std::iter::once(clean).chain(rows).collect())
    }

    /// Evaluates a split of a task that has no other conditions, and says `why`.
    fn only_clean(&self, split: Split, fingerprint: Fingerprint, why: &str) -> Result<Vec<Row>> {
        let Opened { experiment, session, .. } = self.opened;
        self.suite.expect_plain(|| {
            format!(
                "{}: --corrupt, --attack and --ood are for images with classes, and {why}: leave them out",
                experiment.data.label
            )
        })?;
        let set = SampleSet::new(split, session.device, session.settings.workers)?;
        Ok(vec![self.evaluation.row_of(&TestImages { set, fingerprint }, &Condition::Clean)?])
    }

    /// Returns the images of a split, or corrupted versions of them, with labels in the model's own numbering.
    fn images(&self, split: Split, fingerprint: Fingerprint) -> Result<TestImages> {
        Ok(TestImages { set: self.matched.samples(self.opened, split)?, fingerprint })
    }
}

/// Returns the name of a set, such as `cifar10` for the test split and `cifar10-train` for another.
fn set_name(label: &str, split: SplitName) -> String {
    match split {
        SplitName::Test => label.to_string(),
        other => format!("{label}-{other}"),
    }
}
