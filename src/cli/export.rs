//! `bella export`: writes the models of a run for other programs.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use tch::Tensor;

use super::failure::Usage;
use super::opened::{Opened, Overrides};
use super::options::ComputeArgs;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::target::{Package, Target};
use crate::exchange::{Loaded, check, peft, posterior_lines, python_lines, script, weights, write_folder};
use crate::machine::Precision;
use crate::posterior::{Draws, Posterior, Predictive};
use crate::schema::words;
use crate::subspace::combine::mean;
use crate::subspace::{Combined, Space, Subspace};

words! {
    /// What an export is.
    pub enum Format {
        /// A folder an adapter, as PEFT reads it.
        Peft = "peft",
        /// The checkpoint's own folder with merged weights.
        Weights = "weights",
        /// The whole posterior as one TorchScript archive.
        Torchscript = "torchscript",
    }
}

/// Write the models of a run for other programs: adapters, or whole models.
///
/// Beside every model is expected.safetensors with a few images and their logits. The last lines are the Python that loads
/// it and compares.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella export low-rank-svgd-s1 --to peft --output adapters\n  \
    bella export low-rank-svgd-s1 --to peft --for transformers-4 --particle 0 --output adapter\n  \
    bella export low-rank-svgd-s1 --to weights --soup --output model")]
pub struct ExportArgs {
    /// Run: its folder or the start of its id [default: the latest finished run].
    run: Option<String>,

    #[command(flatten)]
    door: DoorArgs,

    /// Number of the one particle to export, from 0 [default: all].
    #[arg(long, value_name = "K", conflicts_with = "soup")]
    particle: Option<u32>,

    /// Export the average of all particles' updates as one model.
    #[arg(long)]
    soup: bool,

    /// Draws per particle from a Gaussian posterior; 0 exports the means.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    draws: Option<u32>,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// Where models leave to, as the command line says it.
#[derive(Args)]
pub struct DoorArgs {
    /// What to write: peft (an adapter in a folder), weights (the checkpoint's own folder or archive with merged weights) or
    /// torchscript (all models as one archive that needs no bella). Nothing is evaluated then.
    #[arg(long, value_name = "FORMAT", requires = "output")]
    to: Option<Format>,

    /// Folder to write; several models get a folder each in it.
    #[arg(short = 'o', long, value_name = "FOLDER", requires = "to")]
    output: Option<PathBuf>,

    /// Package that loads the models: timm, open-clip, transformers-4 or transformers-5 [default: the checkpoint's own].
    #[arg(long = "for", value_name = "PACKAGE", requires = "to")]
    package: Option<Package>,

    /// Replace an existing folder.
    #[arg(long, requires = "to")]
    force: bool,
}

/// Where models leave to.
pub struct Door {
    to: Format,
    output: PathBuf,
    package: Option<Package>,
    force: bool,
}

impl DoorArgs {
    /// Returns the door, if the command line names one.
    pub fn door(&self) -> Option<Door> {
        let (to, output) = (self.to?, self.output.clone()?);
        Some(Door { to, output, package: self.package, force: self.force })
    }
}

pub fn run(args: &ExportArgs) -> Result<()> {
    let door =
        args.door.door().ok_or_else(|| Usage("--to FORMAT and --output FOLDER say what to write, and where".into()))?;
    let opened = opened_to_leave(&door, args.run.as_deref(), &Overrides::default(), &args.compute)?;
    let theta = theta(args, &opened)?;
    let name = |number: usize| format!("{}-{number}", if args.draws.unwrap_or(0) > 0 { "draw" } else { "particle" });
    let count = theta.size()[0] as usize;
    let subspace = opened.session.subspace()?;
    let weights = opened.stored()?.posterior.weights();
    if args.soup {
        ensure!(
            count > 1,
            "{}: this run has one particle: there is nothing to average: leave --soup out",
            opened.run.id()
        );
        let Combined { subspace, theta } = mean(subspace, &theta, weights, Space::Weights)?;
        return leave(&door, &opened, (&*subspace, &theta), vec!["soup".to_string()]);
    }
    if let Some(particle) = args.particle {
        let rule = format!("--particle {particle}: the run has models 0 to {}", count - 1);
        ensure!((particle as usize) < count, rule);
        let one = theta.narrow(0, i64::from(particle), 1);
        return leave(&door, &opened, (subspace, &one), vec![name(particle as usize)]);
    }
    ensure!(
        weights.is_none() || door.to != Format::Torchscript,
        "{}: its draws have weights, and the archive averages all models equally: export the average by --soup, one draw by \
         --particle, or all draws by --to weights",
        opened.run.id()
    );
    leave(&door, &opened, (subspace, &theta), (0..count).map(name).collect())
}

/// Opens a run whose models leave. Whoever loads them computes in f32, and so do the expected logits.
pub(super) fn opened_to_leave(
    door: &Door,
    run: Option<&str>,
    overrides: &Overrides,
    compute: &ComputeArgs,
) -> Result<Opened> {
    check(&door.output, door.force)?;
    let overrides = Overrides { precision: Some(Precision::F32), ..overrides.clone() };
    Opened::run(run, &overrides, compute)
}

/// Returns the rows that are exported.
fn theta(args: &ExportArgs, opened: &Opened) -> Result<Tensor> {
    let posterior = &opened.stored()?.posterior;
    let run = opened.run.id();
    match (args.draws, posterior.is_random()) {
        (None, true) if matches!(opened.experiment.predictive(), Predictive::Linearised(..)) => bail!(
            "{run}: its predictions are those of a linearised model, which no weights have: --draws 0 exports the particles \
             that it was fitted around, --draws N so many draws of weights around each"
        ),
        (None | Some(1..), true) if matches!(posterior, Posterior::Dropout { .. }) => bail!(
            "{run}: its members drop inputs at random, which no weights do: --draws 0 exports the particles without dropout"
        ),
        (None, true) => bail!(
            "{run}: its particles are Gaussians, and a model has one value a weight: --draws 0 exports their means, \
             --draws N so many draws from each"
        ),
        (Some(draws), true) if draws > 0 => {
            let draws = Draws::new(posterior, draws as usize, opened.experiment.seed)?;
            draws.rows(0..draws.count())
        }
        (Some(draws), false) if draws > 0 => bail!("{run}: its particles are points, without draws: leave --draws out"),
        _ => Ok(posterior.theta().shallow_clone()),
    }
}

/// Writes one model into a folder.
type Writer = fn(&Outgoing, &Target, usize, &Path) -> Result<()>;

/// Writes models, given as rows `[k, P]` of a subspace, and prints the Python that loads them.
pub(super) fn leave(
    door: &Door,
    opened: &Opened,
    (subspace, theta): (&dyn Subspace, &Tensor),
    names: Vec<String>,
) -> Result<()> {
    let (experiment, session) = (&opened.experiment, &opened.session);
    ensure!(
        session.vit.is_some(),
        "{}: a module (checkpoint.kind = \"module\") is not exported: only the names of vision transformers are known to \
         other packages",
        opened.run.id()
    );
    let outgoing = Outgoing { experiment, session, subspace, theta, names };
    if door.to == Format::Torchscript {
        return leave_together(door, &outgoing);
    }
    let target = Target::new(door.package, outgoing.checkpoint(), session.naming, &session.names)?;
    let (write, loaded): (Writer, Loaded) = match door.to {
        Format::Peft => (peft::write, Loaded::Adapter),
        Format::Weights | Format::Torchscript => (weights::write, Loaded::Weights),
    };
    let python = python_lines(&outgoing, &target, &door.output, loaded)?;
    let expected = outgoing.expected()?;
    write_folder(&door.output, door.force, |folder| {
        for model in 0..outgoing.count() {
            let own = outgoing.folder(folder, model);
            if own != folder {
                std::fs::create_dir(&own)?;
            }
            write(&outgoing, &target, model, &own)?;
            expected.write(model, &own)?;
        }
        Ok(())
    })?;
    tracing::info!("{}: {} for {}: {}", door.output.display(), door.to, target.package, outgoing.names.join(", "));
    print!("{python}");
    Ok(())
}

/// Writes all models as one archive.
fn leave_together(door: &Door, outgoing: &Outgoing) -> Result<()> {
    ensure!(door.package.is_none(), "--for: an archive needs no package: leave it out");
    let expected = outgoing.expected()?;
    write_folder(&door.output, door.force, |folder| {
        script::write_posterior(outgoing, folder)?;
        expected.write_all(folder)
    })?;
    tracing::info!("{}: {} in one archive", door.output.display(), outgoing.names.join(", "));
    print!("{}", posterior_lines(&door.output));
    Ok(())
}
