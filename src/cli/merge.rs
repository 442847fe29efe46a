//! The commands that make one model of several and evaluate it like any posterior: `bella merge` merges runs fine-tuned from one
//! checkpoint, weighted by their certainty, and `bella soup` averages the particles of a run (Bella, Table 7).

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Command, Id};

use super::eval::{TestArgs, print_csv, show};
use super::export::{DestinationArgs, print_lines};
use super::options::{ComputeArgs, OverrideArgs, expect_distinct};
use crate::analysis::merge::{By, Merge, Merged};
use crate::base::small::Usage;
use crate::evaluate::Subject;
use crate::predict::Members;
use crate::run::RunFolder;
use crate::schema::Choice;
use crate::session::Opened;
use crate::subspace::Space;

/// The usual number of images for the squared gradients.
const IMAGES: u32 = 1000;

/// Merge runs that were fine-tuned from the same checkpoint into one model, and evaluate it like the first run.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella merge low-rank-ivon-s1 low-rank-ivon-s2 --by posterior\n  \
    bella merge full-map-s1 full-map-s2 --by squared-gradients --images 1000\n  \
    bella merge full-map-s1 full-map-s2 --by mean --to weights --output model")]
pub struct MergeArgs {
    /// Runs: folders, the start of ids, settings, or `latest`. Head and test set are those of the first. All particles are merged.
    #[arg(required = true, num_args = 2.., add = super::completions::of_runs())]
    runs: Vec<String>,

    /// Measure of how certain a model is about a parameter [default: posterior if the first run has variances, else mean].
    #[arg(long, value_name = "WORD")]
    by: Option<By>,

    /// Quantity to merge: the updates of the weights, or the factors of low-rank particles that started from the same A.
    #[arg(long, value_name = "SPACE", default_value = "weights")]
    space: Space,

    /// Share of each model [default: 1 over the number of models].
    #[arg(long, value_name = "ALPHA")]
    share: Option<f64>,

    /// Precision of the checkpoint's own weights [default: 0; with squared gradients 1].
    #[arg(long, value_name = "H0")]
    prior: Option<f64>,

    /// Number of training images per run for the squared gradients, chosen at random by the run's seed.
    #[arg(long, value_name = "N", default_value_t = IMAGES, value_parser = clap::value_parser!(u32).range(1..))]
    images: u32,

    #[command(flatten)]
    pub shared: ModelArgs,
}

/// Average the particles of a run into one model and evaluate it.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella soup low-rank-svgd-s1\n  bella soup low-rank-svgd-s1 --space factors --attack fgsm\n  \
    bella soup low-rank-svgd-s1 --to weights --output model"
)]
pub struct SoupArgs {
    /// Run: its folder, the start of its id, settings, or `latest` [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    /// Quantity to average: the updates of the weights (exact), or the factors of low-rank particles.
    #[arg(long, value_name = "SPACE", default_value = "weights")]
    space: Space,

    #[command(flatten)]
    pub shared: ModelArgs,
}

/// Returns the options that say how a model is tested and computed, which mean nothing to one that is written.
fn of_tests() -> Vec<Id> {
    let tests = TestArgs::augment_args(Command::new("tests"));
    let declared = tests.get_arguments().map(|option| option.get_id().clone());
    declared.chain(["data", "precision"].map(Id::from)).collect()
}

/// The options of one model that is made of several: its tests, or the files that it is written into, which ask for no test.
#[derive(Args)]
#[command(mut_arg("to", |to| to.conflicts_with_all(of_tests())))]
pub struct ModelArgs {
    #[command(flatten)]
    overrides: OverrideArgs,

    #[command(flatten)]
    tests: TestArgs,

    #[command(flatten)]
    destination: DestinationArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

impl ModelArgs {
    /// Evaluates the model that `make` makes of a run, or writes it into files under the name `written`.
    fn apply(&self, run: Option<&str>, written: &str, make: impl Fn(&Opened) -> Result<Merged>) -> Result<()> {
        let overrides = self.overrides.overrides();
        let suite = self.tests.suite(&overrides, &self.compute)?;
        if let Some(destination) = self.destination.destination()? {
            let opened = destination.open(run, &overrides, self.compute.reading())?;
            let Merged { model, .. } = make(&opened)?;
            let written = vec![written.to_string()];
            return print_lines(destination.write(&opened, &*model.subspace, &model.theta, written)?);
        }
        let opened = Opened::run(run, &overrides, self.compute.computing())?;
        let Merged { model, predictive, cost } = make(&opened)?;
        let members = Members::Rows { subspace: &*model.subspace, rows: &model.theta };
        let tested = suite.test(&opened, Subject { members, predictive: &predictive, cost })?;
        show(&opened, &tested, &self.tests)?;
        print_csv(&tested.rows, &self.tests)
    }
}

pub fn merge(args: &MergeArgs) -> Result<()> {
    let prior = checked(args)?;
    let ModelArgs { overrides, compute, .. } = &args.shared;
    // Runs of one config on two sites' data have one id and two folders.
    let folder = |run: &String| Ok(RunFolder::find(compute.out(), Some(run.as_str()))?.path().canonicalize()?);
    let folders = args.runs.iter().map(folder).collect::<Result<Vec<PathBuf>>>()?;
    expect_distinct("the run", &folders, |folder| folder.display().to_string())?;
    let overrides = overrides.overrides();
    args.shared.apply(Some(&args.runs[0]), "merged", |opened| {
        let by = match args.by {
            Some(by) => by,
            None => usual(opened)?,
        };
        let way = Merge { by, space: args.space, share: args.share, prior, images: args.images as usize };
        way.runs(opened, &args.runs, |name| Opened::another(name, &overrides, compute.reading()))
    })
}

pub fn soup(args: &SoupArgs) -> Result<()> {
    let predictive = match args.space {
        Space::Weights => "soup",
        Space::Factors => "soup-factors",
    };
    let made = |opened: &Opened| {
        Ok(Merged { model: opened.soup(args.space)?, predictive: predictive.to_string(), cost: opened.cost() })
    };
    args.shared.apply(args.run.as_deref(), "soup", made)
}

/// Returns the way that the first run's posterior supports, and says which one it is.
fn usual(opened: &Opened) -> Result<By> {
    let by = By::usual(&opened.stored()?.posterior);
    tracing::info!("merged by {}: --by chooses another way", by.word());
    Ok(by)
}

/// Returns the precision H_0 of the checkpoint's weights.
fn checked(args: &MergeArgs) -> Result<f64> {
    let prior = args.prior.unwrap_or(if args.by == Some(By::SquaredGradients) { 1.0 } else { 0.0 });
    if args.by != Some(By::SquaredGradients) && args.images != IMAGES {
        return Err(Usage("--images: is of --by squared-gradients: leave it out".into()).into());
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !args.share.is_none_or(positive) {
        return Err(Usage("--share must be above 0".into()).into());
    }
    if !positive(prior) && (args.by == Some(By::SquaredGradients) || prior != 0.0) {
        return Err(Usage("--prior must be above 0; without squared gradients it may be 0".into()).into());
    }
    Ok(prior)
}
