//! `bella predict`: predicts the classes of new images, with uncertainties.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::conformal::ConformalArgs;
use super::options::{ComputeArgs, PlaceArgs};
use super::output::Output;
use crate::base::files::expect_writable;
use crate::base::small::{Usage, counted};
use crate::data::{Medium, Resize, SplitName};
use crate::experiment::Overrides;
use crate::inference::{
    Asked, Estimates, Extremes, Predicted, Wanted, predict_images, predict_numbers, predict_numbers_of_set,
    predict_questions, predict_set, predict_texts,
};
use crate::machine::Precision;
use crate::metrics::calibrators::{CALIBRATORS, Calibrator};
use crate::predict::inputs::{Columns, Format, Input, Inputs, LIST, Writer, collect};
use crate::schema::{find, keys};
use crate::session::Opened;

/// Predict the classes or numbers of images or texts, with the uncertainty of each prediction.
///
/// There is one record per image: path, class, probability, predictive entropy, expected entropy and mutual information
/// (all in nats), disagreement of members, error; with --conformal also the set of classes, the most probable first. With
/// --split, the images are those of the run's own data set, and records have their label. Photos are turned by their EXIF
/// orientation; ICC profiles and transparency are ignored, as in training. Texts come in files of JSON lines, of
/// which the run's own template makes prompts; questions about images have the keys `image`, a file beside that of the
/// lines, and `question`. A run on free answers, and any with --generate, writes a text after each prompt: every
/// token is the most probable one by the members' averaged probabilities, and has an entropy and a mutual information. A run that learns
/// numbers writes the mean, the deviation, that of the noise and that of the members' means, and the ends of the central 90 % interval.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella predict low-rank-svgd-s1 photos/ cat.jpg > predictions.csv\n  \
    find . -name '*.png' | bella predict low-rank-svgd-s1 - --format jsonl\n  \
    bella predict low-rank-svgd-s1 photos/ --contact-sheet sheet.png --top 5\n  \
    bella predict low-rank-svgd-s1 --split test > test.csv    # the test images of the run, with their labels\n  \
    bella predict low-rank-svgd-s1 photos/ --conformal 0.1    # sets that hold the class with probability 0.9\n  \
    bella predict low-rank-svgd-s1 questions.jsonl --generate 20 --format jsonl")]
pub struct PredictArgs {
    /// Run: its folder, the start of its id, settings, or `latest`.
    #[arg(add = super::completions::of_runs())]
    run: String,

    /// Image files, folders, or - for a list of paths on standard input; files of JSON lines for a run on texts or questions.
    #[arg(required_unless_present = "split")]
    paths: Vec<PathBuf>,

    /// Predict the images of the run's own data set instead: train, val or test. Records then have the label.
    #[arg(long, value_name = "SPLIT", conflicts_with_all = ["paths", "resize", "as_stored", "conformal", "calibrate", "generate", "skip_corrupt"])]
    split: Option<SplitName>,

    /// Write the K most probable classes with their probabilities.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    top: Option<u32>,

    /// Write the probability of every class.
    #[arg(long)]
    all: bool,

    /// Format of the records.
    #[arg(long, default_value = "csv")]
    format: Format,

    /// Write the records to a file instead of standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Draw the most and the least certain images with their predictions to this file; with --split also the most
    /// confidently wrong ones.
    #[arg(long, value_name = "FILE.png")]
    contact_sheet: Option<PathBuf>,

    /// Succeed even if some images cannot be read; their records hold the error [default: exit code 1].
    #[arg(long)]
    skip_corrupt: bool,

    #[command(flatten)]
    conformal: ConformalArgs,

    #[arg(help = format!("Calibrate the probabilities by what is fitted on the images that the run held out: {}. Entropies and \
          disagreement stay those of the members", keys(CALIBRATORS)))]
    #[arg(long, value_name = "KEY", value_parser = |text: &str| find(CALIBRATORS, text))]
    calibrate: Option<&'static Calibrator>,

    /// Way of resizing images to the network's size [default: that of the run's own images].
    #[arg(long)]
    resize: Option<Resize>,

    /// Take photos as they are stored, without their EXIF orientation [default: as the run's own folder or list].
    #[arg(long)]
    as_stored: bool,

    /// Write texts of at most N tokens after the prompts, instead of classes; for a run on texts or questions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    generate: Option<u32>,

    /// Images or prompts per forward pass.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_size: Option<u32>,

    /// Number type to compute in [default: as in training].
    #[arg(long, value_name = "TYPE")]
    precision: Option<Precision>,

    #[command(flatten)]
    places: PlaceArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,
}

impl PredictArgs {
    /// Finds mistakes before a model is loaded.
    fn check(&self) -> Result<()> {
        let usage = |text: String| Err(Usage(text).into());
        if self.resize == Some(Resize::None) {
            return usage("--resize none: new images need the network's size; use shorter-side-crop or stretch".into());
        }
        if self.paths.iter().filter(|path| path.as_os_str() == LIST).count() > 1 {
            return usage("- twice: standard input can be read once".into());
        }
        if let Some(sheet) = self.contact_sheet.as_ref().filter(|sheet| sheet.extension().is_none_or(|e| e != "png")) {
            return usage(format!("--contact-sheet {}: must end in .png", sheet.display()));
        }
        if self.conformal.single()?.is_some() && self.calibrate.is_some() {
            return usage(
                "--calibrate and --conformal: sets are those of the uncalibrated probabilities: leave one out".into(),
            );
        }
        self.contact_sheet.iter().chain(&self.output).try_for_each(|path| expect_writable(path))
    }
}

impl PredictArgs {
    /// Refuses options that mean nothing to a run on images, or to one on texts or questions.
    fn check_medium(&self, medium: Medium) -> Result<()> {
        if medium == Medium::Images {
            return match self.generate {
                Some(_) => Err(Usage("--generate: this run is on images: name a run on texts".into()).into()),
                None => Ok(()),
            };
        }
        let only_images = [
            ("--resize", self.resize.is_some()),
            ("--as-stored", self.as_stored),
            ("--contact-sheet", self.contact_sheet.is_some()),
            ("--conformal", self.conformal.single()?.is_some()),
            ("--calibrate", self.calibrate.is_some()),
        ];
        let of_classes = [("--top", self.top.is_some()), ("--all", self.all)];
        if let Some((option, _)) = of_classes.iter().find(|(_, given)| *given && self.generate.is_some()) {
            return Err(Usage(format!("{option} is of classes, and --generate writes texts: leave one out")).into());
        }
        match only_images.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Usage(format!("{option} is for runs on images: leave it out")).into()),
            None => Ok(()),
        }
    }

    /// Refuses options that mean nothing to a run that predicts a number.
    fn check_numbers(&self) -> Result<()> {
        let of_classes = [
            ("--top", self.top.is_some()),
            ("--all", self.all),
            ("--conformal", self.conformal.is_asked()),
            ("--calibrate", self.calibrate.is_some()),
            ("--contact-sheet", self.contact_sheet.is_some()),
            ("--generate", self.generate.is_some()),
        ];
        match of_classes.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Usage(format!("{option}: this run predicts a number: leave it out")).into()),
            None => Ok(()),
        }
    }

    /// Returns what records have besides the usual columns.
    fn columns(&self, opened: &Opened) -> Columns {
        Columns {
            classes: opened.session.classes.clone(),
            label: self.split.is_some(),
            top: self.top.map_or(0, |count| count as usize),
            all: self.all,
            set: self.conformal.is_asked(),
        }
    }

    /// Says how many samples were predicted, and where their records are.
    fn close(&self, count: usize, one: &str, several: &str) {
        let place = self.output.as_ref().map_or_else(String::new, |path| format!(": {}", path.display()));
        tracing::info!("predicted {}{place}", counted(count, one, several));
    }

    /// Opens the place of the records.
    fn open(&self) -> Result<Output> {
        Output::open(self.output.as_deref())
    }
}

pub fn run(args: &PredictArgs) -> Result<()> {
    args.check()?;
    let overrides = Overrides { precision: args.precision, ..args.places.overrides() };
    let opened = Opened::run(Some(&args.run), &overrides, args.compute.reading())?;
    let medium = opened.experiment.checkpoint.medium();
    args.check_medium(medium)?;
    if opened.session.model.head.gaussian.is_some() {
        args.check_numbers()?;
        if let Some(split) = args.split {
            let output = args.open()?;
            let mut out = Estimates::new(output.writer()?, args.format);
            let count = predict_numbers_of_set(&opened, split, args.batch_size, &mut out)?;
            output.finish()?;
            args.close(count, "sample", "samples");
            return Ok(());
        }
    }
    let PredictArgs { paths, format, generate, batch_size, .. } = args;
    if let Some(split) = args.split {
        return of_set(args, &opened, split);
    }
    let columns = args.columns(&opened);
    let asked = Asked { paths, format: *format, generate: *generate, batch_size: *batch_size, columns };
    match medium {
        Medium::Images => images(args, &opened),
        Medium::Texts | Medium::Questions => {
            let output = args.open()?;
            let predict = if medium == Medium::Texts { predict_texts } else { predict_questions };
            predict(&asked, &opened, output.writer()?)?;
            output.finish()
        }
        Medium::Rows => bail!("{}: predicts rows of numbers, which have no files of their own", opened.run.id()),
    }
}

/// Writes a record for each image, and the sheet of images if it is asked for.
fn images(args: &PredictArgs, opened: &Opened) -> Result<()> {
    // The images are looked up before the output is created.
    let inputs = collect(&args.paths, &mut std::io::stdin().lock())?;
    let Inputs { images, skipped } = &inputs;
    let output = args.open()?;
    let wanted = Wanted {
        resize: args.resize,
        batch_size: args.batch_size,
        conformal: args.conformal.single()?,
        calibrator: args.calibrate,
        keeps_extremes: args.contact_sheet.is_some(),
        as_stored: args.as_stored,
    };
    let Predicted { failed, extremes } = if opened.session.model.head.gaussian.is_some() {
        let mut estimates = Estimates::new(output.writer()?, args.format);
        let failed = predict_numbers(&wanted, opened, images, &mut estimates)?;
        Predicted { failed, extremes: Extremes::default() }
    } else {
        let mut writer = Writer::new(output.writer()?, args.format, args.columns(opened));
        predict_images(&wanted, opened, images, &mut writer)?
    };
    // The records say which images could not be read.
    output.finish()?;
    let none = match images.len() {
        1 => "the image could not be read".to_string(),
        count => format!("none of the {count} images could be read"),
    };
    ensure!(failed < images.len(), "{none}: see the column error of the records");
    args.contact_sheet.iter().try_for_each(|sheet| extremes.draw(&opened.run.id(), sheet))?;
    warn_of(skipped);
    warn_of_names(images);
    args.close(images.len() - failed, "image", "images");
    if failed > 0 {
        let what =
            format!("{failed} of {} images could not be read: see the column error of their records", images.len());
        ensure!(args.skip_corrupt, "{what}; mend or remove them, or accept that with --skip-corrupt");
        tracing::warn!("{what}");
    }
    Ok(())
}

/// Says which files were left out because their names are not those of images.
fn warn_of(skipped: &[PathBuf]) {
    if skipped.is_empty() {
        return;
    }
    let shown: Vec<String> = skipped.iter().take(5).map(|path| path.display().to_string()).collect();
    let more = if skipped.len() > 5 { ", …" } else { "" };
    let files = counted(skipped.len(), "file is no image", "files are no images");
    tracing::warn!("{files} by name: {}{more}; left out", shown.join(", "));
}

/// Says how many images have names that records cannot have as they are.
fn warn_of_names(images: &[Input]) {
    let count = images.iter().filter(|image| image.path.to_str().is_none()).count();
    if count > 0 {
        let images = counted(count, "image has a name that is", "images have names that are");
        tracing::warn!(
            "{images} no UTF-8: records have such bytes as numbers (\\xe9); rename the files where a program reads the paths"
        );
    }
}

/// Writes a record for each sample of the run's own data set, and the sheet of images if it is asked for.
fn of_set(args: &PredictArgs, opened: &Opened, split: SplitName) -> Result<()> {
    let output = args.open()?;
    let mut writer = Writer::new(output.writer()?, args.format, args.columns(opened));
    let mut extremes = args.contact_sheet.as_ref().map(|_| Extremes::default());
    let count = predict_set(opened, split, args.batch_size, &mut writer, extremes.as_mut())?;
    output.finish()?;
    if let (Some(extremes), Some(sheet)) = (&extremes, &args.contact_sheet) {
        extremes.draw(&opened.run.id(), sheet)?;
    }
    args.close(count, "sample", "samples");
    Ok(())
}
