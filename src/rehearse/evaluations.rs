//! The commands on a trained run that a rehearsal executes. Their data sets are replaced by stand-ins, and the numbers
//! of images in the real ones are recorded.

use anyhow::{Context, Result, bail};

use crate::base::small::Usage;
use crate::data::{Dataset, Sizes, SplitName};
use crate::evaluate::ForeignSet;
use crate::experiment::{DataSpec, Experiment, load_config};
use crate::rehearse::sizes::{CORRUPTIONS, MadeSet, classes_of, official};
use crate::rehearse::{Folder, Scale};
use crate::schema::Tree;

/// The commands on a run that can be rehearsed.
const COMMANDS: [&str; 2] = ["eval", "soup"];
/// The severities that are rehearsed, out of all published ones.
const SEVERITIES: [i64; 2] = [1, 5];
/// The number of images in each version of a set with published corruptions.
const VERSION_IMAGES: usize = 10_000;

/// A command on the trained run.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The command as the user gave it, for messages.
    pub name: String,
    pub command: String,
    /// The arguments that follow the run.
    pub arguments: Vec<String>,
    pub count: Counted,
}

/// The folder and the sizes of an evaluation's stand-ins.
pub struct Place<'a> {
    pub folder: &'a Folder,
    /// The index of the evaluation.
    pub number: usize,
    pub test_images: usize,
    pub scale: Scale,
}

/// Reads a command such as `eval --data KEY=ROOT …`, and returns it with the data sets to make for it.
///
/// # Errors
/// Fails if the command is unknown, or if a data set is unknown or has no stand-in.
pub fn plan(words: &[String], experiment: &Experiment, place: &Place) -> Result<(Evaluation, Vec<MadeSet>)> {
    let name = words.join(" ");
    let (command, rest) = words.split_first().context("--then: names no command, such as `eval --attack fgsm`")?;
    if !COMMANDS.contains(&command.as_str()) {
        bail!(Usage(format!("--then {name}: `{command}` is no command on a run; known: {}", COMMANDS.join(", "))));
    }
    let own = Counted::own(experiment, place.test_images);
    let (mut arguments, mut sets, mut counted) = (Vec::new(), Vec::new(), own);
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        // The value is the next word, or it stands behind `=`.
        let (option, own) = word.split_once('=').map_or((word.as_str(), None), |(option, value)| (option, Some(value)));
        if option != "--data" && option != "--ood" {
            arguments.push(word.clone());
            continue;
        }
        let value = own.or_else(|| rest.next().map(String::as_str));
        let value = value.with_context(|| format!("--then {name}: {option} needs a value"))?;
        let set = match option {
            "--ood" => value.parse()?,
            _ => ForeignSet { group: None, data: value.to_string() },
        };
        arguments.push(option.to_string());
        let (made, file, count) = foreign(&set.data, place, sets.len()).with_context(|| format!("--then {name}"))?;
        arguments.push(ForeignSet { data: file, ..set }.to_string());
        sets.push(made);
        // Another test set replaces the experiment's own; foreign sets are predicted in addition.
        counted = if option == "--data" { count } else { counted.and(count) };
    }
    Ok((Evaluation { name, command: command.clone(), arguments, count: counted }, sets))
}

/// The numbers of images of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The number of images of the stand-ins, which go through the network.
    pub images: usize,
    /// The number of images of the real sets, if it is known.
    pub official: Option<usize>,
}

impl Counted {
    /// Counts the experiment's own test sets.
    pub fn own(experiment: &Experiment, test_images: usize) -> Counted {
        let dataset = &*experiment.data.dataset;
        let sets = dataset.test_sets().len().max(1);
        Counted { images: sets * test_images, official: official(dataset, SplitName::Test) }
    }

    fn and(self, other: Counted) -> Counted {
        let official = self.official.zip(other.official).map(|(one, another)| one + another);
        Counted { images: self.images + other.images, official }
    }
}

/// Returns the stand-in for `KEY=ROOT` or for a file with a data table, and the path of a file with its own table.
fn foreign(value: &str, place: &Place, number: usize) -> Result<(MadeSet, String, Counted)> {
    let tree = match value.split_once('=') {
        Some((key, root)) => {
            let table = format!("[data.{key}]\nroot = {}\n", toml::Value::from(root));
            Tree::parse(value, &table).map_err(|problems| anyhow::anyhow!("{problems}"))?
        }
        None => load_config(&[value.into()], &[]).map_err(|problems| anyhow::anyhow!("{problems}"))?,
    };
    let spec = DataSpec::alone(tree).map_err(|problems| anyhow::anyhow!("{problems}"))?;
    let stem = format!("{}-{number}-{}", place.number, spec.key);
    let classes = classes_of(&*spec.dataset);
    let test = place.test_images;
    let present = classes.min(test);
    let sizes = |side| Sizes { classes, present, train: 1, val: 0, test, side, corruptions: CORRUPTIONS };
    let made = MadeSet::new(&spec.key, &*spec.dataset, place.folder.data().join(&stem), sizes, place.scale)?;
    let file = place.folder.data().join(format!("{stem}.toml"));
    let count = counted(&*spec.dataset, &spec.key, place.test_images);
    Ok((made, file.to_string_lossy().into_owned(), count))
}

fn counted(dataset: &dyn Dataset, key: &str, test_images: usize) -> Counted {
    if !has_versions(key) {
        return Counted { images: test_images, official: official(dataset, SplitName::Test) };
    }
    let settings = dataset.resolved();
    let length = |name: &str| settings.get(name).and_then(toml::Value::as_array).map(Vec::len);
    let versions = length("corruptions").zip(length("severities")).map(|(c, s)| c * s);
    // The number of files of a user's own images is not published.
    let official = versions.filter(|_| key != "image-folder-c").map(|versions| versions * VERSION_IMAGES);
    Counted { images: CORRUPTIONS * SEVERITIES.len() * test_images, official }
}

fn has_versions(key: &str) -> bool {
    key.ends_with("-c")
}

/// Returns the data table of a foreign set's stand-in, in the form that `--data FILE` and `--ood FILE` read.
pub fn data_file(made: &MadeSet) -> Result<String> {
    let mut table = made.settings.clone();
    table.insert("subset".into(), (made.sizes.test as i64).into());
    if has_versions(&made.key) {
        table.insert("severities".into(), SEVERITIES.to_vec().into());
    }
    let nested = |key: &str, inner: toml::Table| toml::Table::from_iter([(key.to_string(), inner.into())]);
    Ok(toml::to_string(&nested("data", nested(&made.key, table)))?)
}
