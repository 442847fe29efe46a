//! `bella eval`: evaluates trained runs, or a checkpoint without training, on a clean, corrupted or attacked test set,
//! or against sets of other classes.

use anyhow::{Context, Result};
use clap::Args;

use super::attack::AttackArgs;
use super::conformal::ConformalArgs;
use super::options::{ComputeArgs, OverrideArgs, TableArgs, expect_distinct};
use crate::base::small::Usage;
use crate::data::SplitName;
use crate::data::corruptions::Applied;
use crate::evaluate::{FittedOn, Foreign, ForeignSet, Source, Subject, Suite, Tested};
use crate::experiment::{Experiment, Overrides};
use crate::metrics::calibrators::{self, CALIBRATORS, Calibrator, DEFAULT};
use crate::metrics::ood::features::{self, FEATURE_SCORES};
use crate::posterior::{Output, Predictive};
use crate::predict::Members;
use crate::results::store::Row;
use crate::results::{conformal_csv, experiment_csv, ood_csv};
use crate::run::RunFolder;
use crate::schema::{find, keys};
use crate::session::{Named, Opened};

/// Evaluate trained runs, or with --config a checkpoint without training.
///
/// Sets with published corrupted versions (cifar10-c, image-folder-c, …) are evaluated version by version, and their
/// means are added.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella eval                                     # the latest run, its own test split\n  \
    bella eval low-rank-svgd-s1 --attack fgsm --epsilon 0.001,0.005,0.01,0.03\n  \
    bella eval low-rank-svgd-s1 --attack pgd --transfer-from full-map-s1    # images that fool another run\n  \
    bella eval low-rank-svgd-s1 --data cifar10-c=data/CIFAR-10-C\n  \
    bella eval low-rank-svgd-s1 --corrupt gaussian-noise:3,jpeg:1\n  \
    bella eval low-rank-svgd-s1 --ood cifar100=data\n  \
    bella eval --ood near:cifar100=data --ood far:svhn=data --ood-by knn,relative-mahalanobis,vim\n  \
    bella eval low-rank-svgd-s1 --conformal 0.1    # sets that hold the true class with probability 0.9\n  \
    bella eval low-rank-svgd-s1 --calibrate=temperature,vector    # fitted on held-out images\n  \
    bella eval --config configs/quickstart.toml    # the checkpoint before any training"
)]
pub struct EvalArgs {
    /// Runs: folders, the start of ids, settings, or `latest` [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    runs: Vec<String>,

    /// TOML experiment whose checkpoint is evaluated without training; several merge left to right.
    #[arg(short, long = "config", value_name = "FILE", conflicts_with = "runs")]
    configs: Vec<std::path::PathBuf>,

    #[command(flatten)]
    overrides: OverrideArgs,

    /// Draws per particle from a Gaussian posterior, of weights or linearised logits; 0 predicts with the means
    /// [default: as the method is configured].
    #[arg(long, value_name = "N", conflicts_with = "configs", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    draws: Option<u32>,

    /// Predictive of a Laplace approximation: mc, probit, bridge, sampled or tangent [default: as the method is configured].
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

    /// Sets of other classes, as KEY=ROOT or a TOML file, to separate from the test set by uncertainty; with near: or far: before it, a set
    /// belongs to a group whose mean is reported, too.
    #[arg(long, value_name = "[near:|far:]KEY=ROOT|FILE", conflicts_with_all = ["attack", "corrupt"])]
    ood: Vec<ForeignSet>,

    #[arg(help = format!("Separate them by scores of features, too: {} (see `bella list metrics`)", keys(FEATURE_SCORES)))]
    #[arg(long, value_name = "KEY", value_delimiter = ',', requires = "ood", value_parser = |text: &str| find(FEATURE_SCORES, text))]
    ood_by: Vec<&'static features::Entry>,

    /// Images of the run on whose features these scores are fitted: train, or val (those that it held out).
    #[arg(long, value_name = "WHICH", requires = "ood_by", default_value = "train")]
    ood_fit: FittedOn,

    #[arg(help = format!("Fit calibrators on held-out training images and report calibrated metrics beside the raw ones: {} (see `bella \
          list metrics`) [default without a word: {}]", keys(CALIBRATORS), DEFAULT.key))]
    #[arg(long, value_name = "KEY", num_args = 0..=1, require_equals = true, value_delimiter = ',', default_missing_value = DEFAULT.key, value_parser = |text: &str| find(CALIBRATORS, text))]
    calibrate: Vec<&'static Calibrator>,

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
    let overrides = args.overrides.overrides();
    args.check_names()?;
    let suite = args.tests.suite(&overrides, &args.compute)?;
    if !args.configs.is_empty() {
        let opened = Opened::checkpoint(&args.configs, &overrides, args.compute.settings())?;
        let subject = Subject { members: Members::Checkpoint, predictive: "", cost: None };
        let tested = suite.test(&opened, subject)?;
        show(&opened, &tested, &args.tests)?;
        return print_csv(&tested.rows, &args.tests);
    }
    let named: Vec<Option<&str>> =
        if args.runs.is_empty() { vec![None] } else { args.runs.iter().map(|run| Some(run.as_str())).collect() };
    if args.predictive.is_some() && args.draws == Some(0) {
        return Err(Usage("--draws 0 predicts with the means: leave --predictive out".into()).into());
    }
    // Mistakes are found before the first run is tested.
    let find = |name| Named::find(name, &overrides, args.compute.out());
    let runs = named.into_iter().map(find).collect::<Result<Vec<Named>>>()?;
    let predictive = |experiment: &Experiment| experiment.predictive_as(args.predictive, args.draws);
    for run in &runs {
        let predictive = predictive(&run.experiment);
        args.check_draws(predictive).with_context(|| run.run.id())?;
        suite.check(run, predictive)?;
    }
    let (mut rows, mut printed) = (Vec::new(), Ok(()));
    let ended = runs.into_iter().try_for_each(|run| -> Result<()> {
        let opened = Opened::named(run, args.compute.computing())?;
        let predictive = predictive(&opened.experiment);
        let prepared = opened.prepare(predictive)?;
        let name = predictive.name(opened.experiment.predictive());
        let subject = Subject { members: prepared.members(), predictive: &name, cost: opened.cost() };
        let tested = suite.test(&opened, subject)?;
        // A column that no row has is no reason to leave the other runs untested.
        let shown = show(&opened, &tested, &args.tests);
        if printed.is_ok() {
            printed = shown;
        }
        rows.extend(tested.rows);
        Ok(())
    });
    // A run that fails takes no row of those before it.
    if ended.is_ok() || !rows.is_empty() {
        print_csv(&rows, &args.tests)?;
    }
    ended.and(printed)
}

impl TestArgs {
    /// Returns the tests that the options ask for.
    ///
    /// # Errors
    /// Fails if an option has no meaning, or if the run that an attack is made on cannot be opened.
    pub fn suite(&self, overrides: &Overrides, compute: &ComputeArgs) -> Result<Suite> {
        // The same noise for every run and seed, so that results can be compared image by image.
        const SEED: u64 = 0;
        let parse = |word: &String| {
            Applied::parse(word, SEED).map_err(|error| anyhow::Error::from(Usage(format!("--corrupt: {error}"))))
        };
        expect_distinct("--corrupt", &self.corrupt, Clone::clone)?;
        expect_distinct("--ood-by", &self.ood_by, |score| score.key)?;
        expect_distinct("--calibrate", &self.calibrate, |calibrator| calibrator.key)?;
        let corruptions = self.corrupt.iter().map(parse).collect::<Result<_>>()?;
        let conformal = self.conformal.plan()?;
        Ok(Suite {
            split: self.split,
            corruptions,
            foreign: Foreign { sets: self.ood.clone(), by: self.ood_by.clone(), fitted_on: self.ood_fit },
            calibrators: self.calibrate.clone(),
            batch_size: self.batch_size,
            attack: self.attack.plan(|run| Source::open(run, overrides, compute.reading()))?,
            save_images: self.attack.save_images.clone(),
            conformal,
        })
    }
}

impl EvalArgs {
    /// Refuses a number of draws for a predictive that draws nothing.
    fn check_draws(&self, predictive: Predictive) -> Result<()> {
        match (self.draws, predictive) {
            (Some(draws @ 1..), Predictive::Linearised(output @ (Output::Probit | Output::Bridge), _)) => {
                let why = format!(
                    "--draws {draws}: the predictive {output} draws nothing: leave it out, or set --predictive to mc, sampled or tangent"
                );
                Err(Usage(why).into())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a calibrator that stands where runs are named, as it does after `--calibrate` without `=`.
    fn check_names(&self) -> Result<()> {
        let is_calibrator = |name: &&String| {
            let is_key = name.split(',').all(|key| find(CALIBRATORS, key).is_ok());
            is_key && RunFolder::find(self.compute.out(), Some(name.as_str())).is_err()
        };
        match self.runs.iter().find(is_calibrator) {
            Some(name) => Err(Usage(format!("`{name}` is no run: for the calibrator write --calibrate={name}")).into()),
            None => Ok(()),
        }
    }
}

/// Prints the rows of everything that was tested as one table of CSV, if CSV was asked for.
pub(super) fn print_csv(rows: &[Row], tests: &TestArgs) -> Result<()> {
    if tests.table.csv { super::report::print_rows(rows, &tests.table) } else { Ok(()) }
}

/// Prints rows, unless [`print_csv`] does, and logs where they are stored.
pub(super) fn show(opened: &Opened, tested: &Tested, tests: &TestArgs) -> Result<()> {
    let (table, Tested { rows, sets, ood }) = (&tests.table, tested);
    let (out, name) = (&opened.session.settings.out, &opened.experiment.name);
    for of_set in ood.iter().filter(|_| !table.csv) {
        super::report::print_ood(of_set, table)?;
        println!();
    }
    if !ood.is_empty() {
        tracing::info!("results: {}", ood_csv(&opened.run, out, name).display());
    }
    if !table.csv {
        super::report::Kind::Results.print(&super::report::table_of(rows), table)?;
        if rows.iter().any(|row| row.cells().iter().any(|(column, _)| calibrators::is_column(column))) {
            super::score::print_calibrated(rows, table);
        }
    }
    // The row of a trial stays in its folder, as a warning has said.
    if opened.run.trial().is_none() {
        tracing::info!("results: {}", experiment_csv(out, name).display());
    }
    if !sets.is_empty() {
        if !table.csv {
            println!();
            super::report::print_conformal(sets, table)?;
        }
        tracing::info!("results: {}", conformal_csv(&opened.run, out, name).display());
    }
    let all = [rows, sets, &ood.concat()].map(|rows| super::report::table_of(rows));
    super::report::check_columns(&all.each_ref(), table)
}
