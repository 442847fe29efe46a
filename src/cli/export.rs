//! `bella export`: writes the models of a run for other programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use tch::Tensor;

use super::failure::Usage;
use super::opened::{Opened, Overrides};
use super::options::ComputeArgs;
use crate::base::files::write_atomic;
use crate::exchange::expected::Expected;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::target::{Package, Target};
use crate::exchange::whole::{Form, Numbers, Runner, Whole};
use crate::exchange::{Loaded, Written, check, module, peft, python_lines, weights, write_folder};
use crate::experiment::{Experiment, load_config};
use crate::machine::Precision;
use crate::model::CheckpointKind;
use crate::posterior::{Draws, Posterior, Predictive};
use crate::report::card::{Card, FILE, loading};
use crate::results::runs::Summary;
use crate::run::{Record, RunFolder};
use crate::schema::words;
use crate::subspace::combine::mean;
use crate::subspace::{Combined, Space, Subspace};

words! {
    /// The format of an export.
    pub enum Format {
        /// One folder per adapter, as PEFT reads it.
        Peft = "peft",
        /// The checkpoint's own folder with merged weights.
        Weights = "weights",
        /// The whole posterior as one TorchScript archive.
        Torchscript = "torchscript",
        /// The whole posterior as one ONNX graph.
        Onnx = "onnx",
    }
}

/// Write the models of a run for other programs: adapters, or whole models.
///
/// Beside every model is expected.safetensors with a few inputs and their logits. The last lines are the Python that loads
/// it and compares.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella export low-rank-svgd-s1 --to peft --output adapters\n  \
    bella export low-rank-svgd-s1 --to peft --for transformers-4 --particle 0 --output adapter\n  \
    bella export low-rank-svgd-s1 --to weights --soup --output model")]
pub struct ExportArgs {
    /// Run: its folder, the start of its id, or settings [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    #[command(flatten)]
    door: DoorArgs,

    /// Number of the one particle to export, from 0 [default: all].
    #[arg(long, value_name = "K", conflicts_with = "soup")]
    particle: Option<u32>,

    /// Export the average of all particles' updates as one model.
    #[arg(long)]
    soup: bool,

    /// Write a model card, README.md, into the folder; without --to, print it.
    #[arg(long)]
    card: bool,

    /// Draws per particle from a Gaussian posterior; 0 exports the means.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    draws: Option<u32>,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// The options that name the format and the folder of an export.
#[derive(Args)]
pub struct DoorArgs {
    /// Format to write: peft (an adapter in a folder), weights (the checkpoint's own folder or archive with merged weights),
    /// torchscript (all models as one archive that needs no bella) or onnx (all models as one graph). Nothing is evaluated
    /// then.
    #[arg(long, value_name = "FORMAT", requires = "output")]
    to: Option<Format>,

    /// Folder to write; several models get a folder each in it.
    #[arg(short = 'o', long, value_name = "FOLDER", requires = "to")]
    output: Option<PathBuf>,

    /// Package that loads the models: timm, open-clip, torchvision, transformers-4 or transformers-5 [default: the checkpoint's own].
    #[arg(long = "for", value_name = "PACKAGE", requires = "to")]
    package: Option<Package>,

    /// Number type of an archive or a graph: f32, f16 or bf16 [default: f32].
    #[arg(long = "as", value_name = "TYPE", requires = "to")]
    numbers: Option<Numbers>,

    /// Put the preprocessing into an archive or a graph: it takes bytes [B, 3, h, w] of any size.
    #[arg(long, requires = "to")]
    preprocess: bool,

    /// Replace an existing folder.
    #[arg(long, requires = "to")]
    force: bool,
}

/// The format and the folder of an export.
pub struct Door {
    to: Leaving,
    output: PathBuf,
    force: bool,
    /// The model card but for the lines that load the model, if there is to be one.
    card: Option<String>,
}

/// The models of an export, or the one file that holds all of them.
enum Leaving {
    /// One folder per model, for a package.
    Models(Loaded, Option<Package>),
    /// One file for all models.
    Whole(Form),
}

impl DoorArgs {
    /// Returns the door, if the command line names one.
    ///
    /// # Errors
    /// Fails if an option does not fit the format.
    pub fn door(&self) -> Result<Option<Door>> {
        let (Some(to), Some(output)) = (self.to, self.output.clone()) else { return Ok(None) };
        let runner = match to {
            Format::Peft | Format::Weights => None,
            Format::Torchscript => Some(Runner::TorchScript),
            Format::Onnx => Some(Runner::Onnx),
        };
        let to = match runner {
            Some(runner) => {
                if self.package.is_some() {
                    return Err(Usage(format!("--for: {to} needs no package: leave it out")).into());
                }
                let numbers = self.numbers.unwrap_or(Numbers::F32);
                Leaving::Whole(Form { runner, numbers, prepares: self.preprocess })
            }
            None => {
                let option = if self.preprocess { "--preprocess" } else { "--as" };
                if self.preprocess || self.numbers.is_some() {
                    let rule =
                        format!("{option}: is for --to torchscript and --to onnx; {to} keeps what the checkpoint has");
                    return Err(Usage(rule).into());
                }
                let loaded = if to == Format::Peft { Loaded::Adapter } else { Loaded::Weights };
                Leaving::Models(loaded, self.package)
            }
        };
        Ok(Some(Door { to, output, force: self.force, card: None }))
    }
}

pub fn run(args: &ExportArgs) -> Result<()> {
    let Some(mut door) = args.door.door()? else {
        if args.card {
            return print_card(args);
        }
        return Err(Usage("--to FORMAT and --output FOLDER say what to write, and where".into()).into());
    };
    let opened = opened_to_leave(&door, args.run.as_deref(), &Overrides::default(), &args.compute)?;
    let theta = theta(args, &opened)?;
    let name = |number: usize| format!("{}-{number}", if args.draws.unwrap_or(0) > 0 { "draw" } else { "particle" });
    let count = theta.size()[0] as usize;
    let subspace = opened.session.subspace()?;
    let weights = opened.stored()?.posterior.weights();
    if args.card {
        door.card = Some(card_of(&opened.run, &opened.experiment, &opened.session.classes, part(args))?);
    }
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
    leave(&door, &opened, (subspace, &theta), (0..count).map(name).collect())
}

/// Says what of a run leaves, where that is not all of it.
fn part(args: &ExportArgs) -> Option<String> {
    match (args.particle, args.soup, args.draws) {
        (Some(particle), ..) => Some(format!("particle {particle}")),
        (None, true, _) => Some("the average of all particles' updates".to_string()),
        (None, false, Some(0)) => Some("the mean of each Gaussian".to_string()),
        (None, false, Some(draws)) => Some(format!("{draws} draws from each Gaussian")),
        (None, false, None) => None,
    }
}

/// Prints the card of a run that does not leave.
fn print_card(args: &ExportArgs) -> Result<()> {
    let run = RunFolder::find(args.compute.out(), args.run.as_deref())?;
    ensure!(run.is_finished(), "{}: this run is not finished: continue it with `bella train`", run.path().display());
    let experiment = Experiment::read_to_evaluate(&load_config(&[run.config()], &[])?)?;
    let classes = experiment.data.dataset.classes()?;
    print!("{}", card_of(&run, &experiment, &classes, None)?);
    let to = if experiment.checkpoint.kind == CheckpointKind::Native { Format::Onnx } else { Format::Weights };
    println!("\n## Loading\n\n`bella export {} --to {to} --output FOLDER` prints the lines that load it.", run.id());
    Ok(())
}

fn card_of(run: &RunFolder, experiment: &Experiment, classes: &[String], part: Option<String>) -> Result<String> {
    let record = Record::read(run)?;
    Card { experiment, run: &Summary::of(run.clone()), record: &record, classes, part }.text()
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
            "{run}: its particles are Gaussians, and a model has one value per weight: --draws 0 exports their means, \
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
    // Those of the components are the models' where each component is one.
    let weights = opened.stored()?.posterior.weights().filter(|weights| weights.len() == names.len());
    let weights = weights.map(<[f64]>::to_vec);
    let outgoing = Outgoing { experiment, session, subspace, theta, weights, names };
    if experiment.checkpoint.kind == CheckpointKind::Module {
        let whole = matches!(door.to, Leaving::Models(Loaded::Weights, None));
        ensure!(
            whole,
            "{}: a module (checkpoint.kind = \"module\") leaves by --to weights alone, as its own archive: the other ways need \
             the names or the layers of a network that bella computes itself",
            opened.run.id()
        );
        return leave_as_modules(door, &outgoing);
    }
    match &door.to {
        Leaving::Whole(form) => leave_together(door, *form, &outgoing),
        Leaving::Models(loaded, package) => leave_apart(door, (*loaded, *package), &outgoing),
    }
}

/// Writes a folder a model.
fn leave_apart(door: &Door, (loaded, package): (Loaded, Option<Package>), outgoing: &Outgoing) -> Result<()> {
    let session = outgoing.session;
    let target = Target::new(package, outgoing.checkpoint(), session.naming, &session.names)?;
    if loaded == Loaded::Adapter {
        target.expect_adapters(&session.names)?;
    }
    let (write, what): (Writer, Format) = match loaded {
        Loaded::Adapter => (peft::write, Format::Peft),
        Loaded::Weights => (weights::write, Format::Weights),
    };
    let python = python_lines(outgoing, &target, &door.output, loaded)?;
    let expected = outgoing.expected()?;
    let written =
        write_models(door, (outgoing, &expected), &python, |model, folder| write(outgoing, &target, model, folder))?;
    report(door, written, &format!("{what} for {}: {}", target.package, outgoing.names.join(", ")));
    print!("{python}");
    Ok(())
}

/// Writes a module again for every model.
fn leave_as_modules(door: &Door, outgoing: &Outgoing) -> Result<()> {
    let expected = outgoing.expected()?;
    let python = module::lines(outgoing, &expected, &door.output)?;
    let written = write_models(door, (outgoing, &expected), &python, |model, folder| {
        module::write(outgoing, model, folder).map(drop)
    })?;
    report(door, written, &format!("modules: {}", outgoing.names.join(", ")));
    print!("{python}");
    Ok(())
}

/// Reports what was written, or that it was there already.
fn report(door: &Door, written: Written, what: &str) {
    let output = door.output.display();
    match written {
        Written::New => tracing::info!("{output}: {what}"),
        Written::Already => tracing::info!("{output}: holds this export already: {what}"),
    }
}

/// Writes every model by `write` into its folder, with what is expected of it.
fn write_models(
    door: &Door,
    (outgoing, expected): (&Outgoing, &Expected),
    python: &str,
    write: impl Fn(usize, &Path) -> Result<()>,
) -> Result<Written> {
    write_folder(&door.output, door.force, |folder| {
        for model in 0..outgoing.count() {
            let own = outgoing.folder(folder, model);
            if own != folder {
                std::fs::create_dir(&own)?;
            }
            write(model, &own)?;
            expected.write(model, &own)?;
        }
        write_card(door, outgoing, python, folder)
    })
}

/// Writes all models as one file.
fn leave_together(door: &Door, form: Form, outgoing: &Outgoing) -> Result<()> {
    let whole = Whole::of(outgoing, form)?;
    let (expected, python) = (whole.expected()?, whole.lines(&door.output));
    let written = write_folder(&door.output, door.force, |folder| {
        whole.write(&expected, folder)?;
        write_card(door, outgoing, &python, folder)
    })?;
    report(door, written, &format!("{} in one file", outgoing.names.join(", ")));
    print!("{python}");
    Ok(())
}

/// Writes the model card, if there is to be one. Whoever reads it has the folder and the checkpoint under other paths.
fn write_card(door: &Door, outgoing: &Outgoing, python: &str, folder: &Path) -> Result<()> {
    let Some(card) = &door.card else { return Ok(()) };
    let checkpoint = outgoing.checkpoint();
    let name = checkpoint.file_name().unwrap_or_default().to_string_lossy();
    let python = python.replace(&checkpoint.display().to_string(), &name);
    let python =
        python.replace(&format!("{}/", door.output.display()), "").replace(&door.output.display().to_string(), ".");
    write_atomic(&folder.join(FILE), |file| Ok(file.write_all(format!("{card}{}", loading(&python)).as_bytes())?))
}
