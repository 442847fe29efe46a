//! `bella export`: writes the models of a run for other programs.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::options::{ComputeArgs, PlaceArgs};
use crate::base::small::Usage;
use crate::exchange::format::Format;
use crate::exchange::formats::{FORMATS, format, keys};
use crate::exchange::whole::{Form, Numbers};
use crate::exchange::{Destination, Models, Selection};
use crate::experiment::Experiment;
use crate::model::recognition::Package;
use crate::report::card::Card;
use crate::results::runs::Summary;
use crate::run::{Record, RunFolder};
use crate::session::Named;

/// Write the models of a run for other programs: adapters, or whole models.
///
/// Beside every model is expected.safetensors with a few inputs and their logits. The last lines are the Python that loads
/// it and compares.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella export low-rank-svgd-s1 --to peft --output adapters\n  \
    bella export low-rank-svgd-s1 --to peft --for transformers-4 --particle 0 --output adapter\n  \
    bella export low-rank-svgd-s1 --to weights --soup --output model")]
pub struct ExportArgs {
    /// Run: its folder, the start of its id, settings, or `latest` [default: the latest finished run].
    #[arg(add = super::completions::of_runs())]
    run: Option<String>,

    #[command(flatten)]
    destination: DestinationArgs,

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
    places: PlaceArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// Reads the word of a format; the help lists all.
fn words_of_formats() -> impl TypedValueParser<Value = &'static Format> {
    let words = FORMATS.iter().map(|format| PossibleValue::new(format.key).help(format.about));
    PossibleValuesParser::new(words).try_map(|word| format(&word).ok_or("unknown format"))
}

/// The options that name the format and the folder of an export.
#[derive(Args)]
pub struct DestinationArgs {
    /// Format to write. Nothing is evaluated then.
    #[arg(long, value_name = "FORMAT", requires = "output", value_parser = words_of_formats())]
    to: Option<&'static Format>,

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

impl DestinationArgs {
    /// Returns the destination, if the command line names one.
    ///
    /// # Errors
    /// Fails if an option does not fit the format.
    pub fn destination(&self) -> Result<Option<Destination>> {
        let (Some(to), Some(output)) = (self.to, self.output.clone()) else { return Ok(None) };
        let is_whole = to.leaves.is_whole();
        if is_whole && self.package.is_some() {
            return Err(Usage(format!("--for: {} needs no package: leave it out", to.key)).into());
        }
        if !is_whole && (self.preprocess || self.numbers.is_some()) {
            let option = if self.preprocess { "--preprocess" } else { "--as" };
            let fitting: Vec<String> =
                keys(|leaves| leaves.is_whole()).iter().map(|key| format!("--to {key}")).collect();
            let rule = format!("{option}: is for {}; {} keeps what the checkpoint has", fitting.join(" and "), to.key);
            return Err(Usage(rule).into());
        }
        let form = Form { numbers: self.numbers.unwrap_or(Numbers::F32), prepares: self.preprocess };
        let (package, force) = (self.package, self.force);
        Ok(Some(Destination { to, package, form, output, force, card: None }))
    }
}

impl ExportArgs {
    /// Returns the models that are asked for.
    fn selection(&self) -> Selection {
        let models = match (self.soup, self.particle) {
            (true, _) => Models::Soup,
            (false, Some(particle)) => Models::One(particle),
            (false, None) => Models::All,
        };
        Selection { models, draws: self.draws }
    }
}

pub fn run(args: &ExportArgs) -> Result<()> {
    let selection = args.selection();
    let Some(mut destination) = args.destination.destination()? else {
        if args.card {
            return print_card(args, selection.part());
        }
        return Err(Usage("--to FORMAT and --output FOLDER say what to write, and where".into()).into());
    };
    let opened = destination.open(args.run.as_deref(), &args.places.overrides(), args.compute.reading())?;
    if args.card {
        let classes = &opened.session.classes;
        destination.card = Some(card_of(&opened.run, &opened.experiment, classes, selection.part())?);
    }
    print_lines(selection.write(&destination, &opened)?)
}

/// Prints the lines that load a model.
pub(super) fn print_lines(python: String) -> Result<()> {
    print!("{python}");
    Ok(())
}

/// Prints the card of a run, or of a part of it, that does not leave.
fn print_card(args: &ExportArgs, part: Option<String>) -> Result<()> {
    let named = Named::find(args.run.as_deref(), &args.places.overrides(), args.compute.out())?;
    let classes = named.classes()?;
    let Named { run, experiment, .. } = named;
    print!("{}", card_of(&run, &experiment, &classes, part)?);
    let to = if experiment.checkpoint.kind.is_image_tower() { "onnx" } else { "weights" };
    let particle = args.particle.map_or_else(String::new, |particle| format!(" --particle {particle}"));
    let soup = if args.soup { " --soup" } else { "" };
    let draws = args.draws.map_or_else(String::new, |draws| format!(" --draws {draws}"));
    let command = format!("bella export {}{particle}{soup}{draws} --to {to} --output FOLDER", run.id());
    println!("\n## Loading\n\n`{command}` prints the lines that load it.");
    Ok(())
}

fn card_of(run: &RunFolder, experiment: &Experiment, classes: &[String], part: Option<String>) -> Result<String> {
    let record = Record::read(run)?;
    Card { experiment, run: &Summary::of(run.clone()), record: &record, classes, part }.text()
}
