//! `bella eval`: evaluates trained runs, or a checkpoint without training, on a clean, corrupted or attacked test set,
//! or against sets of other classes.

use anyhow::{Result, ensure};
use clap::Args;

use super::attack::AttackArgs;
use super::conformal::{ConformalArgs, Plan};
use super::failure::Usage;
use super::opened::{Opened, Overrides, on_other_data};
use super::options::{ComputeArgs, TableArgs};
use crate::data::batches::{SampleSet, TestImages};
use crate::data::corruptions::Applied;
use crate::data::labels::{Mapping, map_classes};
use crate::data::versions::Version;
use crate::data::{Fingerprint, Split, SplitName};
use crate::evaluate::{
    Adversarial, AttackPlan, Condition, Conformal, Evaluation, Inside, conformal_csv, experiment_csv, ood_csv,
};
use crate::experiment::Experiment;
use crate::metrics::Uncertainty;
use crate::posterior::{Output, Predictive};
use crate::predict::{Members, Predictor};
use crate::results::store::Row;

/// Evaluate trained runs, or with --config a checkpoint without training.
///
/// Sets with published corrupted versions (cifar10-c, image-folder-c, …) are evaluated version by version, and their
/// means are added.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella eval                                     # the latest run, its own test split\n  \
    bella eval low-rank-svgd-s1 --attack fgsm --epsilon 0.001,0.005,0.01,0.03\n  \
    bella eval low-rank-svgd-s1 --data cifar10-c=data/CIFAR-10-C\n  \
    bella eval low-rank-svgd-s1 --corrupt gaussian-noise:3,jpeg:1\n  \
    bella eval low-rank-svgd-s1 --ood cifar100=data\n  \
    bella eval low-rank-svgd-s1 --conformal 0.1    # sets that hold the true class with probability 0.9\n  \
    bella eval --config configs/quickstart.toml    # the checkpoint before any training"
)]
pub struct EvalArgs {
    /// Runs: folders, the start of ids, or settings [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    runs: Vec<String>,

    /// TOML experiment whose checkpoint is evaluated without training; several merge left to right.
    #[arg(short, long = "config", value_name = "FILE", conflicts_with = "runs")]
    configs: Vec<std::path::PathBuf>,

    #[command(flatten)]
    overrides: Overrides,

    /// Draws per particle from a Gaussian posterior, of weights or linearised logits; 0 predicts with the means
    /// [default: as the method is configured].
    #[arg(long, value_name = "N", conflicts_with = "configs", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    draws: Option<u32>,

    /// Predictive of a Laplace approximation: mc, probit, bridge or sampled [default: as the method is configured].
    #[arg(long, value_name = "WORD", conflicts_with = "configs")]
    predictive: Option<Output>,

    #[command(flatten)]
    pub tests: TestArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// The data on which a posterior is tested.
#[derive(Args)]
pub struct TestArgs {
    /// Split to evaluate: train, val or test. If no val split is published, it is the training images that the run held
    /// out.
    #[arg(long, default_value = "test")]
    split: SplitName,

    /// Corruptions made by bella, as KIND:SEVERITY (see `bella list`). The clean set is then not evaluated.
    #[arg(long, value_name = "KIND:SEVERITY", value_delimiter = ',', conflicts_with = "attack")]
    corrupt: Vec<String>,

    /// Sets of other classes, as KEY=ROOT or a TOML file, to separate from the test set by uncertainty.
    #[arg(long, value_name = "KEY=ROOT|FILE", conflicts_with_all = ["attack", "corrupt"])]
    ood: Vec<String>,

    /// Fit temperatures on held-out training images and report scaled metrics beside the raw ones.
    #[arg(long)]
    calibrate: bool,

    /// Images per forward pass.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_size: Option<u32>,

    #[command(flatten)]
    attack: AttackArgs,

    #[command(flatten)]
    conformal: ConformalArgs,

    #[command(flatten)]
    table: TableArgs,
}

pub fn run(args: &EvalArgs) -> Result<()> {
    let tests = Tests::read(&args.tests)?;
    if !args.configs.is_empty() {
        let opened = Opened::checkpoint(&args.configs, &args.overrides, &args.compute)?;
        let tested = test(&opened, Members::Checkpoint, "", &tests)?;
        return show(&opened, &tested, &tests);
    }
    let named: Vec<Option<&str>> =
        if args.runs.is_empty() { vec![None] } else { args.runs.iter().map(|run| Some(run.as_str())).collect() };
    if args.predictive.is_some() && args.draws == Some(0) {
        return Err(Usage("--draws 0 predicts with the means: leave --predictive out".into()).into());
    }
    for name in named {
        let opened = Opened::run(name, &args.overrides, &args.compute)?;
        let predictive = predictive(args, &opened.experiment);
        let prepared = opened.prepare(predictive)?;
        let tested = test(&opened, prepared.members(), &predictive.name(opened.experiment.predictive()), &tests)?;
        show(&opened, &tested, &tests)?;
    }
    Ok(())
}

/// Returns the predictive that the command line asks for, or else that of the method.
fn predictive(args: &EvalArgs, experiment: &Experiment) -> Predictive {
    let own = experiment.training.as_ref().and_then(|training| training.method.spec.course().output());
    let samples = args.draws.map_or(own.map_or(64, |(_, samples)| samples), |draws| draws as usize);
    match (args.predictive, args.draws) {
        (Some(output), _) => Predictive::laplace(output, samples),
        (None, None) => experiment.predictive(),
        (None, Some(0)) => Predictive::Mean,
        (None, Some(_)) => own.map_or(Predictive::Draws(samples), |(output, _)| Predictive::laplace(output, samples)),
    }
}

/// The options in [`TestArgs`], checked.
pub(super) struct Tests<'a> {
    args: &'a TestArgs,
    corruptions: Vec<Applied>,
    attack: Option<AttackPlan>,
    conformal: Option<Plan>,
}

/// The rows of results, and those of conformal sets.
pub(super) struct Tested {
    rows: Vec<Row>,
    sets: Vec<Row>,
}

impl<'a> Tests<'a> {
    pub fn read(args: &'a TestArgs) -> Result<Tests<'a>> {
        // The same noise for every run and seed, so that results can be compared image by image.
        const SEED: u64 = 0;
        let parse = |word: &String| {
            Applied::parse(word, SEED).map_err(|error| anyhow::Error::from(Usage(format!("--corrupt: {error}"))))
        };
        let corruptions = args.corrupt.iter().map(parse).collect::<Result<_>>()?;
        let conformal = args.conformal.plan()?;
        Ok(Tests { args, corruptions, attack: args.attack.plan()?, conformal })
    }
}

/// Prints rows and logs where they are stored.
pub(super) fn show(opened: &Opened, Tested { rows, sets }: &Tested, tests: &Tests) -> Result<()> {
    let table = &tests.args.table;
    super::report::print_rows(rows, table)?;
    if !table.csv && rows.iter().any(|row| row.get("temperature_lm").is_some()) {
        super::score::print_scaled(rows);
    }
    let (out, name) = (&opened.session.settings.out, &opened.experiment.name);
    // The row of a trial stays in its folder, as a warning has said.
    if opened.run.trial().is_none() {
        tracing::info!("results: {}", experiment_csv(out, name).display());
    }
    if !sets.is_empty() {
        if !table.csv {
            super::report::print_conformal(sets);
        }
        tracing::info!("results: {}", conformal_csv(out, name).display());
    }
    Ok(())
}

/// Evaluates members of an opened run in every condition asked for.
pub(super) fn test(opened: &Opened, members: Members, predictive: &str, tests: &Tests) -> Result<Tested> {
    let Opened { experiment, session, run, .. } = opened;
    let mut evaluation = Evaluation {
        experiment,
        session,
        run,
        group: run.group(experiment.file_hashes()?)?,
        record: opened.record(),
        predictor: Predictor::new(&session.model, members, opened.chunk()),
        predictive: predictive.to_string(),
        batch_size: opened.batch_size(tests.args.batch_size),
        set: set_name(&experiment.data.label, tests.args.split),
        names_files: true,
        validation: None,
        conformal: None,
    };
    if !opened.is_of_training(tests.args.split) {
        opened.check_trial()?;
    }
    calibrate(opened, &mut evaluation, tests)?;
    let rows = on_sets(opened, &mut evaluation, tests)?;
    Ok(Tested { rows, sets: evaluation.conformal.map_or_else(Vec::new, |conformal| conformal.measured()) })
}

/// Predicts the held-out images, if temperatures or conformal sets are fitted on them.
fn calibrate(opened: &Opened, evaluation: &mut Evaluation, tests: &Tests) -> Result<()> {
    if !tests.args.calibrate && tests.conformal.is_none() {
        return Ok(());
    }
    if tests.conformal.is_some() && opened.is_of_training(tests.args.split) {
        let split = tests.args.split;
        let why = format!(
            "--conformal --split {split}: sets are calibrated on held-out training images, which cannot test them: leave --split out"
        );
        return Err(Usage(why).into());
    }
    opened.session.model.check_classes()?;
    let held_out = opened.validation()?;
    if let Some(plan) = &tests.conformal {
        plan.check(&held_out.set.split.labels, &opened.session.classes)?;
    }
    let predictions = evaluation.labelled(&held_out.set)?;
    if let Some(plan) = &tests.conformal {
        evaluation.conformal = Some(Conformal::new(plan.calibrate(&predictions)?, held_out.fingerprint));
    }
    evaluation.validation = Some(predictions).filter(|_| tests.args.calibrate);
    Ok(())
}

/// Evaluates every test set, or every published version of one.
fn on_sets(opened: &Opened, evaluation: &mut Evaluation, tests: &Tests) -> Result<Vec<Row>> {
    let Opened { experiment, session, .. } = opened;
    let is_test = tests.args.split == SplitName::Test;
    let versions = if is_test { experiment.data.dataset.versions()? } else { Vec::new() };
    let sets = if is_test && versions.is_empty() { experiment.data.test_sets() } else { Vec::new() };
    let mut rows = Vec::new();
    for (label, set) in sets {
        evaluation.names_files = opened.names_files(&label);
        evaluation.set = label;
        rows.extend(on_split(opened, evaluation, tests, session.load_test(experiment, &*set)?)?);
    }
    if !rows.is_empty() {
        return Ok(rows);
    }
    evaluation.names_files = opened.names_files(&evaluation.set);
    if versions.is_empty() {
        return on_split(opened, evaluation, tests, opened.split(tests.args.split)?);
    }
    ensure!(
        tests.corruptions.is_empty() && tests.attack.is_none() && tests.args.ood.is_empty(),
        "{}: its images are corrupted already: --corrupt, --attack and --ood are for plain test sets",
        experiment.data.label
    );
    on_versions(opened, evaluation, versions)
}

/// Evaluates the published corrupted versions of a test set one by one, and adds their means.
fn on_versions(opened: &Opened, evaluation: &Evaluation, versions: Vec<Version>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for version in versions {
        let split = opened.session.load_version(&opened.experiment, &version)?;
        let fingerprint = Fingerprint::of(&split)?;
        let images = images(opened, split, fingerprint)?;
        let row = evaluation.plain(&images, &Condition::Published(version.clone()))?.0;
        rows.push((version, row));
    }
    let means = evaluation.means(&rows)?;
    let evaluated: Vec<_> = rows.iter().map(|(version, _)| version.clone()).collect();
    for (condition, missing) in crate::data::versions::incomplete(&evaluated) {
        tracing::info!("no {condition}: {} of its versions were not evaluated", missing.len());
    }
    Ok(rows.into_iter().map(|(_, row)| row).chain(means).collect())
}

/// Evaluates one split: clean, corrupted, attacked, or against sets of other classes.
fn on_split(opened: &Opened, evaluation: &Evaluation, tests: &Tests, split: Split) -> Result<Vec<Row>> {
    let fingerprint = Fingerprint::of(&split)?;
    if opened.session.model.head.writes_tokens() {
        return answered(opened, evaluation, tests, split, fingerprint);
    }
    if !tests.corruptions.is_empty() {
        let mut rows = Vec::new();
        for applied in &tests.corruptions {
            let corrupted = split.with_inputs(split.inputs.corrupted(*applied)?);
            let images = images(opened, corrupted, fingerprint)?;
            rows.push(evaluation.plain(&images, &Condition::Corrupted(*applied))?.0);
        }
        return Ok(rows);
    }
    let others = foreign_sets(opened, &tests.args.ood)?;
    let images = images(opened, split, fingerprint)?;
    if let Some(plan) = &tests.attack {
        // The folder has one file per run, set and condition, like that of the predictions.
        let folder = tests.args.attack.save_images.as_ref().map(|folder| folder.join(opened.run.id()));
        folder.as_deref().map_or(Ok(()), crate::base::files::create_folder)?;
        let (rows, kept) = evaluation.attacked(&images, plan, folder.is_some())?;
        folder.map_or(Ok(()), |folder| kept.iter().try_for_each(|one: &Adversarial| one.write(&folder)))?;
        return Ok(rows);
    }
    let (row, predictions) = evaluation.plain(&images, &Condition::Clean)?;
    if others.is_empty() {
        return Ok(vec![row]);
    }
    let inside = Inside { uncertainty: Uncertainty::compute(&predictions)?, images: fingerprint };
    let mut ood = Vec::new();
    for other in &others {
        let split = opened.session.load(other, tests.args.split)?;
        let images = TestImages::new(split, opened.session.device, opened.session.settings.workers)?;
        ood.extend(evaluation.out_of_distribution(&inside, &other.data.label, &images)?);
    }
    super::report::print_ood(&ood);
    tracing::info!("results: {}", ood_csv(&opened.session.settings.out, &opened.experiment.name).display());
    Ok(vec![row])
}

/// Evaluates the answers to the questions of a split.
fn answered(
    opened: &Opened,
    evaluation: &Evaluation,
    tests: &Tests,
    split: Split,
    fingerprint: Fingerprint,
) -> Result<Vec<Row>> {
    ensure!(
        tests.corruptions.is_empty() && tests.attack.is_none() && tests.args.ood.is_empty(),
        "{}: --corrupt, --attack and --ood are for images with classes, and this set has questions: leave them out",
        opened.experiment.data.label
    );
    let set = SampleSet::new(split, opened.session.device, opened.session.settings.workers)?;
    Ok(vec![evaluation.answered(&TestImages { set, fingerprint })?])
}

/// Returns the experiments of `--ood`.
///
/// # Errors
/// Fails if two sets have one name, since their rows would replace each other, or if a set has the name of the test
/// set.
fn foreign_sets(opened: &Opened, ood: &[String]) -> Result<Vec<Experiment>> {
    let mut others: Vec<Experiment> = Vec::new();
    for data in ood {
        let other = on_other_data(&opened.run, data)?;
        let label = &other.data.label;
        let taken = std::iter::once(&opened.experiment).chain(&others).any(|before| before.data.label == *label);
        if taken {
            let why = format!(
                "--ood {data}: `{label}` is the test set or comes twice; if it is another set of that name, give a TOML \
                 file whose [data.*] table has a `label`"
            );
            return Err(Usage(why).into());
        }
        others.push(other);
    }
    Ok(others)
}

/// Returns the images of a split, or corrupted versions of them, with labels in the model's own numbering.
fn images(opened: &Opened, mut split: Split, fingerprint: Fingerprint) -> Result<TestImages> {
    let mapping = map_classes(&opened.session.classes, &opened.experiment.data.dataset.classes()?)?;
    match mapping {
        Mapping::Same => {}
        Mapping::Mapped { .. } => tracing::info!("{mapping}"),
        Mapping::Renamed { .. } => tracing::warn!("{mapping}"),
    }
    mapping.relabel(&mut split.labels)?;
    let set = SampleSet::new(split, opened.session.device, opened.session.settings.workers)?;
    Ok(TestImages { set, fingerprint })
}

/// Returns the name of a set, such as `cifar10` for the test split and `cifar10-train` for another.
fn set_name(label: &str, split: SplitName) -> String {
    match split {
        SplitName::Test => label.to_string(),
        other => format!("{label}-{other}"),
    }
}
