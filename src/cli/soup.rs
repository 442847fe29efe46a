//! `bella soup`: averages the particles of a run into one model and evaluates it like any posterior (Bella, Table 7).

use anyhow::{Result, ensure};
use clap::Args;

use super::eval::{TestArgs, Tests, show, test};
use super::export::{DoorArgs, leave, opened_to_leave};
use super::opened::{Opened, Overrides};
use super::options::ComputeArgs;
use crate::predict::Members;
use crate::subspace::Space;
use crate::subspace::combine::mean;

/// Average the particles of a run into one model and evaluate it.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella soup low-rank-svgd-s1\n  bella soup low-rank-svgd-s1 --space factors --attack fgsm\n  \
    bella soup low-rank-svgd-s1 --to weights --output model"
)]
pub struct SoupArgs {
    /// Run: its folder, the start of its id, or settings [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    /// Quantity to average: the updates of the weights (exact), or the factors of low-rank particles.
    #[arg(long, value_name = "SPACE", default_value = "weights")]
    space: Space,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    tests: TestArgs,

    #[command(flatten)]
    door: DoorArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &SoupArgs) -> Result<()> {
    let tests = Tests::read(&args.tests)?;
    let door = args.door.door()?;
    let opened = match &door {
        Some(door) => opened_to_leave(door, args.run.as_deref(), &args.overrides, &args.compute)?,
        None => Opened::run(args.run.as_deref(), &args.overrides, &args.compute)?,
    };
    let posterior = &opened.stored()?.posterior;
    let theta = posterior.theta();
    ensure!(theta.size()[0] > 1, "{}: this run has one particle: there is nothing to average", opened.run.id());
    let soup = mean(opened.session.subspace()?, theta, posterior.weights(), args.space)?;
    if let Some(door) = &door {
        return leave(door, &opened, (&*soup.subspace, &soup.theta), vec!["soup".to_string()]);
    }
    let members = Members::Rows { subspace: &*soup.subspace, rows: &soup.theta };
    let name = match args.space {
        Space::Weights => "soup",
        Space::Factors => "soup-factors",
    };
    let tested = test(&opened, members, name, &tests)?;
    show(&opened, &tested, &tests)
}
