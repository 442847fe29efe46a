//! `bella init`: writes a first config for the user's own checkpoint and images.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::base::files::{expect_writable, write_atomic};
use crate::base::small::{Usage, for_shell, shortened};
use crate::draft::{Checkpoint, Images, METHODS, Recipe, SEED, Suggested, write};
use crate::experiment::Experiment;
use crate::machine::cores;
use crate::machine::device::DeviceChoice;
use crate::model::archive::Archive;
use crate::schema::Tree;
use crate::session::Settings;

/// Write a first config for your own checkpoint and images, with comments.
///
/// Checkpoint and images are opened as training opens them, so what is written trains. What is not given as an option is
/// asked for.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella init\n  \
    bella init --checkpoint vit-small/ --data photos/ --method bella-svgd --output photos.toml\n  \
    bella init --checkpoint ViT-B-32.pt --data cifar10=data\n  \
    bella init --checkpoint ViT-B-32.pt --data medmnist/bloodmnist=data --set data.medmnist.size=64\n  \
    bella init --checkpoint hf://google-bert/bert-base-uncased --data glue/sst2\n  \
    bella init --checkpoint resnet50.pt --image-size 224 --data photos/")]
pub struct InitArgs {
    /// Network to start from: a publisher's folder, a file of weights, a TorchScript archive, or a name (hf://ORG/NAME,
    /// openai://ViT-B-32).
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<PathBuf>,

    /// Height and width in pixels of what a module takes, which then runs by its own forward (checkpoint.kind = "module").
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(i64).range(1..=4096))]
    image_size: Option<i64>,

    /// Images or texts: a folder of class folders, tables (.parquet) or archives (.tar), a CSV list, a name (hf://ORG/NAME), KEY=ROOT of a
    /// data set that bella knows, or KEY of one that the Hub has; of a set of several tasks, KEY/TASK.
    #[arg(long, value_name = "DATA", add = super::completions::of_data_sets())]
    data: Option<String>,

    /// Further key of the data set, such as data.medmnist.size=64; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Method: the name of a file in configs/methods.
    #[arg(long, value_name = "NAME", add = super::completions::of_methods())]
    method: Option<String>,

    /// File to write [default: the name of the images' folder, with .toml].
    #[arg(long, alias = "out", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if there is one.
    #[arg(long)]
    force: bool,

    /// Load the checkpoint whatever its code calls; only for archives whose origin you know.
    #[arg(long)]
    trust: bool,
}

pub fn run(args: &InitArgs) -> Result<()> {
    if args.trust {
        crate::model::archive::trust();
    }
    if let Some(file) = &args.output {
        check_free(file, args.force)?;
        expect_writable(file)?;
    }
    let recipe = args.method.as_deref().map(recipe).transpose()?;
    let checkpoint = answer("Checkpoint (a folder or a file)", "--checkpoint", given(&args.checkpoint), |path| {
        look(Path::new(path), args.image_size)
    })?;
    tracing::info!("checkpoint: {}", checkpoint.about);
    if let Some(Suggested { value, why }) = &checkpoint.normalize {
        tracing::warn!("checkpoint.normalize = {value}: {why}");
    }
    let question = "Images (a folder of class folders, or KEY=ROOT)";
    let images = answer(question, "--data", args.data.clone(), |named| Images::look(named, SEED, &args.sets))?;
    let images = images.in_order_of(&checkpoint)?.shaped_for(&checkpoint)?;
    tracing::info!("images: {}, {}", images.key, images.about);
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.toml", name_of(&images))));
    check_free(&file, args.force)?;
    let recipe = match recipe {
        Some(recipe) => recipe,
        None => ask_for_method()?,
    };
    let stem = file.file_stem().map_or_else(|| name_of(&images), |stem| usable(&stem.to_string_lossy()));
    let text = write(&checkpoint, &images, recipe, &stem, &file.to_string_lossy())?;
    let shown = file.display().to_string();
    let experiment = Experiment::read(&Tree::parse(&shown, &text)?)?;
    super::check::open(&experiment, settings())?;
    write_atomic(&file, |out| Ok(out.write_all(text.as_bytes())?))?;
    println!("{shown}: written and checked; now: bella train -c {}", for_shell(&shown));
    Ok(())
}

/// Looks at a checkpoint.
///
/// # Errors
/// Fails as [`Checkpoint::look`], with the way to start from a TorchScript archive that bella does not know.
fn look(path: &Path, module_size: Option<i64>) -> Result<Checkpoint> {
    let found = Checkpoint::look(path, module_size);
    let is_module = module_size.is_none() && path.is_file() && Archive::open(path).is_ok();
    match found {
        Err(error) if is_module => {
            Err(anyhow!("{error:#}; to run it by its own forward as a module, give --image-size PIXELS"))
        }
        found => found,
    }
}

fn given(path: &Option<PathBuf>) -> Option<String> {
    path.as_ref().map(|path| path.to_string_lossy().into_owned())
}

/// Looks at what an option gives, or asks until something can be looked at.
///
/// # Errors
/// Fails if the option gives something else, or if nobody can be asked.
fn answer<T>(question: &str, option: &str, given: Option<String>, look: impl Fn(&str) -> Result<T>) -> Result<T> {
    if let Some(given) = given {
        return look(&given).with_context(|| option.to_string());
    }
    loop {
        match look(&ask(question, option)?) {
            Ok(found) => return Ok(found),
            Err(error) => tracing::error!("{error:#}"),
        }
    }
}

/// Asks a question on the terminal and returns the answer, which may be empty.
///
/// # Errors
/// Fails if there is no terminal, or if its input ends.
pub(super) fn ask(question: &str, option: &str) -> Result<String> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(Usage(format!("{option} is needed where no terminal can ask for it")).into());
    }
    let mut out = stderr().lock();
    write!(out, "{question}: ")?;
    out.flush()?;
    let mut line = String::new();
    if stdin().lock().read_line(&mut line)? == 0 {
        return Err(Usage("the input ended before the last question was answered".into()).into());
    }
    Ok(line.trim().to_string())
}

/// Asks for a method, of which the first is the default.
fn ask_for_method() -> Result<&'static Recipe> {
    let usual = &METHODS[0];
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Ok(usual);
    }
    let longest = METHODS.iter().map(|method| method.name.len()).max().unwrap_or(0);
    let width = usize::from(console::Term::stderr().size().1);
    for method in METHODS {
        let about = shortened(&method.about(), width.saturating_sub(longest + 4));
        eprintln!("  {:<longest$}  {about}", method.name);
    }
    answer(&format!("Method [{}]", usual.name), "--method", None, |name| {
        if name.is_empty() { Ok(usual) } else { recipe(name) }
    })
}

fn recipe(name: &str) -> Result<&'static Recipe> {
    Recipe::named(name).with_context(|| Usage(unknown_method(name)))
}

fn unknown_method(name: &str) -> String {
    let known: Vec<&str> = METHODS.iter().map(|recipe| recipe.name).collect();
    let hint = crate::schema::hint(name, known.iter().copied());
    format!("--method {name}: unknown; known: {}{hint}", known.join(", "))
}

/// Refuses a file that exists.
fn check_free(file: &Path, force: bool) -> Result<()> {
    // A device or a pipe is written to and not replaced.
    match (file.is_file() || file.is_dir()) && !force {
        true => Err(Usage(format!("{}: exists already; --force replaces it", file.display())).into()),
        false => Ok(()),
    }
}

/// Returns a name for the experiment: that of the images' folder, or of their data set.
fn name_of(images: &Images) -> String {
    let folder = images.root.as_ref().and_then(|root| root.canonicalize().ok());
    let name = folder.as_ref().and_then(|root| root.file_name()).map(|name| name.to_string_lossy().into_owned());
    let is_own = ["image-folder", "list"].contains(&images.key.as_str());
    usable(&name.filter(|_| is_own).unwrap_or_else(|| images.label.clone()))
}

/// Returns a text that can name a file and an experiment.
fn usable(text: &str) -> String {
    let safe = text.replace(|letter: char| !(letter.is_ascii_alphanumeric() || "-_.".contains(letter)), "-");
    let safe = safe.trim_start_matches('.').to_string();
    if safe.is_empty() { "experiment".into() } else { safe }
}

fn settings() -> Settings {
    Settings {
        device: DeviceChoice::Auto,
        threads: None,
        workers: cores(),
        precision: None,
        out: PathBuf::from("results"),
    }
}
