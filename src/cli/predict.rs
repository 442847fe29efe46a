//! `bella predict`: predicts the classes of new images, with uncertainties.

mod questions;
mod texts;
mod written;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tch::Tensor;

use self::texts::Asked;
use super::conformal::ConformalArgs;
use super::failure::Usage;
use super::opened::{Opened, Overrides};
use super::options::ComputeArgs;
use crate::base::files::{create_file, expect_writable};
use crate::base::tensor::{ROOM_TO_PREDICT, guarded, host_f32};
use crate::data::{Decode, Medium, Resize};
use crate::evaluate::labelled;
use crate::machine::Precision;
use crate::machine::memory::Cutter;
use crate::metrics::conformal::Calibrated;
use crate::metrics::{Average, Uncertainty};
use crate::plot::contact_sheet::{Section, Tile, draw};
use crate::predict::inputs::{Format, Input, LIST, Prediction, Record, Writer, collect, decode};
use crate::predict::{Members, Predictor};

/// Predict the classes of images or texts, with the uncertainty of each prediction.
///
/// There is one record per image: path, class, probability, predictive entropy, mutual information, disagreement of
/// members, error; with --conformal also the set of classes, the most probable first. Texts come in files of JSON lines, of
/// which the run's own template makes prompts; questions about images have the keys `image`, a file beside that of the
/// lines, and `question`. A run on free answers, and any with --generate, writes a text after each prompt: every
/// token is the most probable one by the members' averaged probabilities, and has an entropy and a mutual information.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella predict low-rank-svgd-s1 photos/ cat.jpg > predictions.csv\n  \
    find . -name '*.png' | bella predict low-rank-svgd-s1 - --format jsonl\n  \
    bella predict low-rank-svgd-s1 photos/ --contact-sheet sheet.png\n  \
    bella predict low-rank-svgd-s1 photos/ --conformal 0.1    # sets that hold the class with probability 0.9\n  \
    bella predict low-rank-svgd-s1 questions.jsonl --generate 20 --format jsonl")]
pub struct PredictArgs {
    /// Run: its folder, the start of its id, settings, or `latest`.
    #[arg(add = super::completions::of_runs())]
    run: String,

    /// Image files, folders, or - for a list of paths on standard input; files of JSON lines for a run on texts or questions.
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    /// Format of the records.
    #[arg(long, default_value = "csv")]
    format: Format,

    /// Write the records to a file instead of standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Draw the most and the least certain images with their predictions to this file.
    #[arg(long, value_name = "FILE.png")]
    contact_sheet: Option<PathBuf>,

    /// Succeed even if some images cannot be read; their records hold the error [default: exit code 1].
    #[arg(long)]
    skip_corrupt: bool,

    #[command(flatten)]
    conformal: ConformalArgs,

    /// Way of resizing images to the network's size [default: that of the run's own images].
    #[arg(long)]
    resize: Option<Resize>,

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
        self.conformal.single()?;
        // An existing output may be a device, in whose folder no file can be created.
        let output = self.output.iter().filter(|path| !path.exists());
        self.contact_sheet.iter().chain(output).try_for_each(|path| expect_writable(path))
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
            ("--contact-sheet", self.contact_sheet.is_some()),
            ("--conformal", self.conformal.single()?.is_some()),
        ];
        match only_images.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Usage(format!("{option} is for runs on images: leave it out")).into()),
            None => Ok(()),
        }
    }

    /// Opens the place of the records.
    fn writer(&self) -> Result<Box<dyn Write>> {
        Ok(match &self.output {
            Some(path) => Box::new(create_file(path)?),
            None => Box::new(std::io::stdout()),
        })
    }
}

pub fn run(args: &PredictArgs) -> Result<()> {
    args.check()?;
    let named = (args.run != "latest").then_some(args.run.as_str());
    let overrides = Overrides { precision: args.precision, ..Overrides::default() };
    let opened = Opened::run(named, &overrides, &args.compute)?;
    let medium = opened.experiment.checkpoint.medium();
    args.check_medium(medium)?;
    let PredictArgs { paths, format, generate, batch_size, .. } = args;
    let asked = Asked { paths, format: *format, generate: *generate, batch_size: *batch_size };
    match medium {
        Medium::Images => images(args, &opened),
        Medium::Texts => texts::run(&asked, &opened, args.writer()?),
        Medium::Questions => questions::run(&asked, &opened, args.writer()?),
    }
}

/// Writes a record for each image, and the sheet of images if it is asked for.
fn images(args: &PredictArgs, opened: &Opened) -> Result<()> {
    // The images are looked up before the output is created.
    let inputs = collect(&args.paths, &mut std::io::stdin().lock())?;
    let out = args.writer()?;
    let mut extremes = Extremes::default();
    let prepared = opened.prepare(opened.experiment.predictive())?;
    let model = Predicting::new(args, opened, prepared.members(), inputs.len())?;
    let failed = predict(args, &model, &inputs, &mut Writer::new(out, args.format), &mut extremes)?;
    ensure!(failed < inputs.len(), "none of the {} images could be read", inputs.len());
    args.contact_sheet.iter().try_for_each(|sheet| extremes.draw(sheet))?;
    if failed > 0 {
        let what =
            format!("{failed} of {} images could not be read: see the column error of their records", inputs.len());
        ensure!(args.skip_corrupt, "{what}; mend or remove them, or accept that with --skip-corrupt");
        tracing::warn!("{what}");
    }
    Ok(())
}

/// The members that predict, with the thresholds of conformal sets.
struct Predicting<'a> {
    opened: &'a Opened,
    predictor: Predictor<'a>,
    batch_size: usize,
    sets: Option<Calibrated>,
}

impl<'a> Predicting<'a> {
    /// Takes the members for `images` images, and the thresholds from the images that the run held out.
    fn new(args: &PredictArgs, opened: &'a Opened, members: Members<'a>, images: usize) -> Result<Predicting<'a>> {
        let predictor = Predictor::new(&opened.session.model, members, opened.chunk());
        let batch_size = opened.batch_size(args.batch_size);
        let mut sets = None;
        if let Some(plan) = args.conformal.single()? {
            let held_out = opened.validation()?.set;
            plan.check(&held_out.split.labels, &opened.session.classes)?;
            let predictions = labelled(&opened.session, &predictor, &held_out, batch_size)?;
            // Records hold the classes and probabilities of the averaged probabilities.
            sets = plan.calibrate(&predictions)?.into_iter().find(|one| one.average == Average::Probability);
        }
        Ok(Predicting { opened, predictor, batch_size: batch_size.min(images), sets })
    }

    /// Returns the record of an image, whose set of classes is left out unless sets are asked for.
    fn record(&self, input: &Input, outcome: Result<Prediction, String>, set: Vec<String>) -> Record {
        Record { path: input.path.clone(), outcome, set: self.sets.is_some().then_some(set) }
    }
}

/// Writes one record per image and returns the number of records with an error.
fn predict(
    args: &PredictArgs,
    model: &Predicting,
    inputs: &[Input],
    writer: &mut Writer<Box<dyn Write>>,
    extremes: &mut Extremes,
) -> Result<usize> {
    let Predicting { opened, predictor, batch_size, .. } = model;
    let side = opened.session.model.images()?.size() as usize;
    let how = preparation(args, opened, side)?;
    let cutter = predictor.plan(*batch_size, *batch_size)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(opened.session.settings.workers).build()?;
    let bar = crate::base::logging::bar(inputs.len() as u64, "predicting");
    let (mut failed, mut done) = (0, 0);
    for batch in inputs.chunks(*batch_size) {
        let decoded = pool.install(|| decode(batch, how));
        let pixels: Vec<&[u8]> = decoded.iter().flatten().map(Vec::as_slice).collect();
        let mut predicted = predict_batch(model, &cutter, &pixels, (side, done))?.into_iter();
        done += pixels.len();
        for (input, decoded) in batch.iter().zip(decoded) {
            let record = match decoded {
                Ok(pixels) => {
                    let (prediction, set) = predicted.next().context("an image has no prediction")?;
                    if args.contact_sheet.is_some() {
                        extremes.offer(&input.path, &prediction, &pixels, side);
                    }
                    model.record(input, Ok(prediction), set)
                }
                Err(why) => model.record(input, Err(why), Vec::new()),
            };
            failed += usize::from(record.outcome.is_err());
            writer.write(&record)?;
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(failed)
}

/// Returns how images become squares of `side` pixels.
fn preparation(args: &PredictArgs, opened: &Opened, side: usize) -> Result<Decode> {
    let interpolation = opened.session.model.images()?.interpolation();
    let resize = args.resize.unwrap_or_else(|| as_trained(opened));
    let shorter_side = resize.shorter_side(side, opened.experiment.checkpoint.crop_pct);
    Ok(Decode { resize, interpolation, height: side, width: side, shorter_side })
}

/// Returns how the run's own images were resized. Images that are stored at one size are stretched.
fn as_trained(opened: &Opened) -> Resize {
    match opened.experiment.data.dataset.resize() {
        Some(Resize::Stretch | Resize::None) => Resize::Stretch,
        Some(Resize::Pad) => Resize::Pad,
        Some(Resize::ShorterSideCrop) | None => Resize::ShorterSideCrop,
    }
}

/// Returns the predictions for decoded images `[3, side, side]` and their sets of classes, which are empty unless sets are
/// asked for. `first` images were predicted before.
fn predict_batch(
    model: &Predicting,
    cutter: &Cutter,
    images: &[&[u8]],
    (side, first): (usize, usize),
) -> Result<Vec<(Prediction, Vec<String>)>> {
    let Predicting { opened, predictor, sets, .. } = model;
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let (network, side) = (&opened.session.model, side as i64);
    let logits = guarded("prediction", ROOM_TO_PREDICT, || {
        let bytes = Tensor::from_slice(&images.concat()).view([-1, 3, side, side]).to_device(network.device);
        host_f32(&predictor.logits(cutter, &crate::model::Input::Stored(bytes.unsqueeze(0)))?)
    })?;
    let predictions = predictor.predictions(logits, None)?;
    let (uncertainty, names) = (Uncertainty::compute(&predictions)?, &opened.session.classes);
    let classes = match sets {
        Some(calibrated) => calibrated.sets(&predictions, first)?,
        None => vec![Vec::new(); images.len()],
    };
    let named = |set: &Vec<usize>| set.iter().map(|class| names[*class].clone()).collect();
    (0..images.len()).map(|i| Ok((Prediction::of(&uncertainty, i, names)?, named(&classes[i])))).collect()
}

/// The images with the lowest and the highest predictive entropy so far.
#[derive(Default)]
struct Extremes {
    certain: Vec<(f64, Tile)>,
    uncertain: Vec<(f64, Tile)>,
}

impl Extremes {
    /// The number of images per section.
    const SHOWN: usize = 12;

    fn offer(&mut self, path: &Path, prediction: &Prediction, pixels: &[u8], side: usize) {
        let entropy = prediction.predictive_entropy;
        let tile = || {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let lines = vec![
                prediction.class.clone(),
                format!("p {:.3}  H {entropy:.3}", prediction.probability),
                prediction.mutual_information.map_or_else(String::new, |mi| format!("MI {mi:.4}")),
                name,
            ];
            let lines = lines.into_iter().filter(|line| !line.is_empty()).collect();
            Tile { pixels: pixels.to_vec(), height: side, width: side, lines }
        };
        for (list, order) in [(&mut self.certain, entropy), (&mut self.uncertain, -entropy)] {
            let at = list.partition_point(|(other, _)| *other <= order);
            if at < Self::SHOWN {
                list.insert(at, (order, tile()));
                list.truncate(Self::SHOWN);
            }
        }
    }

    fn draw(&self, path: &Path) -> Result<()> {
        let section = |heading: &str, list: &[(f64, Tile)]| Section {
            heading: heading.to_string(),
            tiles: list.iter().map(|(_, tile)| tile.clone()).collect(),
        };
        let sections = [section("Most certain", &self.certain), section("Least certain", &self.uncertain)];
        draw(&sections, 6, path)?;
        tracing::info!("contact sheet: {}", path.display());
        Ok(())
    }
}
