//! `bella merge`: merges runs fine-tuned from one checkpoint into one model, weighted by their certainty, and evaluates
//! it like any posterior.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use tch::{Kind, Tensor};

use super::eval::{TestArgs, Tests, show, test};
use super::export::{DoorArgs, leave, opened_to_leave};
use super::failure::Usage;
use super::opened::{Opened, Overrides};
use super::options::ComputeArgs;
use crate::analysis::merge::fisher::squared_gradients;
use crate::analysis::merge::{By, Contribution, Settings, merge};
use crate::data::SplitName;
use crate::data::batches::SampleSet;
use crate::posterior::Posterior;
use crate::predict::Members;
use crate::subspace::Space;

/// Merge runs that were fine-tuned from the same checkpoint into one model, and evaluate it like the first run.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella merge low-rank-ivon-s1 low-rank-ivon-s2 --by posterior\n  \
    bella merge full-map-s1 full-map-s2 --by squared-gradients --images 1000\n  \
    bella merge full-map-s1 full-map-s2 --by mean --to weights --output model")]
pub struct MergeArgs {
    /// Runs: folders, the start of ids, or settings. Head and test set are those of the first. All particles are merged.
    #[arg(required = true, num_args = 2.., add = super::completions::of_runs())]
    runs: Vec<String>,

    /// Measure of how certain a model is about a parameter.
    #[arg(long, value_name = "WORD", default_value = "posterior")]
    by: By,

    /// Quantity to merge: the updates of the weights, or the factors of low-rank particles that started from the same A.
    #[arg(long, value_name = "SPACE", default_value = "weights")]
    space: Space,

    /// Share of each model [default: 1 over the number of models].
    #[arg(long, value_name = "ALPHA")]
    share: Option<f64>,

    /// Precision of the checkpoint's own weights [default: 0; with squared gradients 1].
    #[arg(long, value_name = "H0")]
    prior: Option<f64>,

    /// Number of training images per run for the squared gradients.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    images: u32,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    tests: TestArgs,

    #[command(flatten)]
    door: DoorArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &MergeArgs) -> Result<()> {
    let tests = Tests::read(&args.tests)?;
    let prior = checked(args)?;
    let door = args.door.door()?;
    let opened = match &door {
        Some(door) => opened_to_leave(door, Some(&args.runs[0]), &args.overrides, &args.compute)?,
        None => Opened::run(Some(&args.runs[0]), &args.overrides, &args.compute)?,
    };
    let mut runs = vec![contribution(&opened, args, prior)?];
    let mut names = Vec::new();
    for name in &args.runs[1..] {
        let other = Opened::run(Some(name), &args.overrides.for_another_run(), &args.compute)?;
        let same = other.experiment.checkpoint.sha256()? == opened.experiment.checkpoint.sha256()?;
        ensure!(same, "{name}: fine-tuned from another checkpoint than {}: their updates do not add up", args.runs[0]);
        starts_equal(&opened, &other, args.space)?;
        runs.push(contribution(&other, args, prior)?);
        names.push(other.run.id());
    }
    let models: i64 = runs.iter().map(|run| run.updates.size()[0]).sum();
    let entrywise = args.space == Space::Factors || opened.session.subspace()?.layout().is_dense();
    let settings = Settings {
        share: args.share.unwrap_or(1.0 / models as f64),
        // The products B A do not include the checkpoint's weights, so no precision of these applies to them.
        prior: if entrywise { prior } else { 0.0 },
    };
    let merged = merge(runs, &settings)?;
    if let Some(door) = &door {
        return leave(door, &opened, (&*merged.subspace, &merged.theta), vec!["merged".to_string()]);
    }
    let members = Members::Rows { subspace: &*merged.subspace, rows: &merged.theta };
    let tested = test(&opened, members, &label(args, prior, &names), &tests)?;
    show(&opened, &tested, &tests)
}

/// Returns the precision H_0 of the checkpoint's weights.
fn checked(args: &MergeArgs) -> Result<f64> {
    let prior = args.prior.unwrap_or(if args.by == By::SquaredGradients { 1.0 } else { 0.0 });
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !args.share.is_none_or(positive) {
        return Err(Usage("--share must be above 0".into()).into());
    }
    if !positive(prior) && (args.by == By::SquaredGradients || prior != 0.0) {
        return Err(Usage("--prior must be above 0; without squared gradients it may be 0".into()).into());
    }
    Ok(prior)
}

/// Returns the data of an opened run that merging needs.
fn contribution(opened: &Opened, args: &MergeArgs, prior: f64) -> Result<Contribution> {
    let posterior = &opened.stored()?.posterior;
    ensure!(
        posterior.weights().is_none(),
        "{}: its draws have weights, and a merge gives every model the same share: average them by `bella soup {0}`",
        opened.run.id()
    );
    let subspace = opened.session.subspace()?;
    let variances = match args.by {
        By::Mean => None,
        By::Posterior => {
            let Posterior::Gaussians { std, .. } = posterior else {
                bail!(
                    "{}: its posterior is without variances of single parameters: train with [method.ivon], or merge --by \
                     squared-gradients or --by mean",
                    opened.run.id()
                )
            };
            Some(std.square())
        }
        By::SquaredGradients => Some((fisher(opened, args.images as usize)? + prior).reciprocal()),
    };
    Ok(Contribution::new(subspace, posterior.theta(), variances, args.space))
}

/// Returns the squared gradients of every particle, `[n, P]`, scaled to a sum over all training images.
fn fisher(opened: &Opened, count: usize) -> Result<Tensor> {
    let (experiment, session) = (&opened.experiment, &opened.session);
    session.model.check_classes().context("--by squared-gradients")?;
    let split = session.load(experiment, SplitName::Train)?;
    let mut indices = experiment.data.validation.holdout(experiment.seed, &split.labels).train;
    let all = indices.len();
    indices.truncate(count);
    let set = SampleSet::new(split, session.device, session.settings.workers)?;
    let theta = opened.stored()?.posterior.theta();
    let bar = crate::base::logging::bar((theta.size()[0] as usize * indices.len()) as u64, "squared gradients");
    let of = |particle: i64| {
        let row = theta.narrow(0, particle, 1);
        squared_gradients(&session.model, session.subspace()?, &row, (&set, &indices), &bar, experiment.seed)
    };
    let rows = (0..theta.size()[0]).map(of).collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    Ok((Tensor::stack(&rows, 0) * (all as f64 / indices.len() as f64)).to_kind(Kind::Double))
}

/// Checks that both runs started from the same A. Otherwise their factors are written in different bases.
fn starts_equal(first: &Opened, other: &Opened, space: Space) -> Result<()> {
    if space == Space::Weights {
        return Ok(());
    }
    let start = |opened: &Opened| opened.session.subspace()?.initial(opened.experiment.seed, 0);
    let (a, b) = (start(first)?, start(other)?);
    ensure!(
        a.size() == b.size() && a.equal(&b),
        "{}: --space factors needs runs that started from the same A (equal seeds): leave --space out",
        other.run.id()
    );
    Ok(())
}

/// Returns the cell in results: the way of merging, and the runs after the first.
fn label(args: &MergeArgs, prior: f64, others: &[String]) -> String {
    let mut label = format!("merge-{}", args.by);
    if args.space == Space::Factors {
        label += "-factors";
    }
    if let Some(share) = args.share {
        label += &format!(" share {share}");
    }
    if args.by != By::Mean && prior != 0.0 {
        label += &format!(" prior {prior}");
    }
    if args.by == By::SquaredGradients {
        label += &format!(" images {}", args.images);
    }
    format!("{label} with {}", others.join(", "))
}
