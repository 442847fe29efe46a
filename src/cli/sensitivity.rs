//! `bella sensitivity`: finds the training images that a Gaussian posterior depends on most.

use anyhow::Result;
use clap::Args;

use super::options::{ComputeArgs, PlaceArgs};
use crate::analysis::sensitivity::Sensitivities;
use crate::experiment::Overrides;
use crate::machine::Precision;
use crate::report::sheet::draw_sensitivities;
use crate::session::Opened;

/// Compute the sensitivity to each training image, and the leave-one-out estimate of the test loss (sensitivity.csv in
/// the run).
///
/// Needs a Gaussian posterior in a low-rank subspace ([method.ivon]).
#[derive(Args)]
#[command(after_help = "Example:\n  bella sensitivity low-rank-ivon-s1 --samples 2000")]
pub struct SensitivityArgs {
    /// Run: its folder, the start of its id, settings, or `latest` [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    /// Number of training images, chosen at random by the run's seed [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    samples: Option<u32>,

    #[command(flatten)]
    places: PlaceArgs,

    /// Number type to compute in: f32, bf16, f64 or auto [default: as in training].
    #[arg(long, value_name = "TYPE")]
    precision: Option<Precision>,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &SensitivityArgs) -> Result<()> {
    let overrides = Overrides { precision: args.precision, ..args.places.overrides() };
    let opened = Opened::run(args.run.as_deref(), &overrides, args.compute.computing())?;
    let all = Sensitivities::of_run(&opened, args.samples)?;
    println!("{} training images: loss {:.4}, leave-one-out loss {:.4}", all.found.len(), all.loss, all.loo_loss);
    if let Some((caught, top)) = all.caught(opened.experiment.data.label_noise) {
        println!("{caught} of the {top} most sensitive images have a replaced label");
    }
    let path = opened.run.path().join("sensitivity.png");
    draw_sensitivities(&all, &opened.session.classes, &opened.run.id(), &path)?;
    tracing::info!("picture: {}", path.display());
    Ok(())
}
