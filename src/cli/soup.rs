//! `bella soup`: averages the particles of a run into one model and evaluates it like any posterior (Bella, Table 7).

use anyhow::Result;
use clap::Args;

use super::eval::{TestArgs, show};
use super::export::{DestinationArgs, print_lines};
use super::options::{ComputeArgs, OverrideArgs};
use crate::predict::Members;
use crate::session::Opened;
use crate::subspace::Space;

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
    overrides: OverrideArgs,

    #[command(flatten)]
    tests: TestArgs,

    #[command(flatten)]
    destination: DestinationArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &SoupArgs) -> Result<()> {
    let (overrides, computing) = (args.overrides.overrides(), args.compute.computing());
    let suite = args.tests.suite(&overrides, &args.compute)?;
    if let Some(destination) = args.destination.destination()? {
        let opened = destination.open(args.run.as_deref(), &overrides, computing)?;
        let soup = opened.soup(args.space)?;
        return print_lines(destination.write(&opened, (&*soup.subspace, &soup.theta), vec!["soup".to_string()])?);
    }
    let opened = Opened::run(args.run.as_deref(), &overrides, computing)?;
    let soup = opened.soup(args.space)?;
    let members = Members::Rows { subspace: &*soup.subspace, rows: &soup.theta };
    let name = match args.space {
        Space::Weights => "soup",
        Space::Factors => "soup-factors",
    };
    let tested = suite.test(&opened, members, name)?;
    show(&opened, &tested, &args.tests)
}
