//! `bella data`: checks the files of a data set before anything is trained on them, and fetches them from their publisher.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::base::small::Usage;
use crate::data::check::{Decoding, Extent, Findings, Part, Scope, check};
use crate::data::{Request, SplitName, entry};
use crate::experiment::{DataSpec, data_table, load_without};
use crate::hub::Settings;
use crate::hub::originals::{self, Original, Originals};
use crate::machine::cores;
use crate::schema::{CommandLine, Tree};

/// Check data sets on disk, or fetch them from their publishers.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella data fetch cifar10 --root data\n  bella data check cifar10=data")]
pub struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    Check(CheckArgs),
    Fetch(FetchArgs),
}

/// Download the files of a data set from its publisher, compare them with published hashes, unpack and check them.
///
/// Sets whose terms must be signed, or whose files have no published hash, are not downloaded: the message says what to do.
/// BELLA_DATA_MIRROR names a mirror, which has the files below <host>/<path>. A download that was stopped is continued.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella data fetch cifar10 --root data\n  \
    bella data fetch glue --set data.glue.task=rte")]
struct FetchArgs {
    /// Data set, as `bella list data` names it.
    #[arg(value_name = "NAME")]
    name: String,

    /// Folder for the files [default: data/NAME].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Key of data.*, such as the task of a set that has several.
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

/// Count classes, splits and images against the published numbers, and find missing and damaged files.
///
/// Every fault is printed on its own line, and the exit code is 1 if there is one. Nothing is downloaded: if files are
/// missing, the message says what to fetch and where to put it, or which command does so.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella data check cifar10=data camelyon17=data --decode\n  \
    bella data check --config configs/cifar10.toml\n  \
    bella data check vtab=data/vtab-1k --set data.vtab.task=dtd\n  \
    bella data check domainnet=data/pacs --partial --set 'data.domainnet={train=\"photo\"}'")]
#[derive(Default)]
struct CheckArgs {
    /// Data sets: KEY=ROOT, or TOML files with a [data.*] table.
    #[arg(
        value_name = "KEY=ROOT|FILE",
        required_unless_present = "configs",
        add = super::completions::of_data_sets()
    )]
    data: Vec<String>,

    /// TOML experiment of which only [data.*] is read; several merge left to right.
    #[arg(short, long = "config", value_name = "FILE", conflicts_with = "data")]
    configs: Vec<PathBuf>,

    /// Override a key of data.*.
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Leave out a key of data.* that a file sets.
    #[arg(long = "unset", value_name = "KEY", requires = "configs", add = super::completions::of_unset_keys())]
    unsets: Vec<String>,

    /// Split to check: train, val or test [default: all].
    #[arg(long)]
    split: Option<SplitName>,

    /// Decode every image to find damaged ones.
    #[arg(long)]
    decode: bool,

    /// Accept that the files are a part of the set, with other counts than the published ones.
    #[arg(long)]
    partial: bool,

    /// Threads that decode images [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

pub fn run(args: &DataArgs) -> Result<()> {
    match &args.command {
        DataCommand::Check(args) => run_check(args),
        DataCommand::Fetch(args) => run_fetch(args),
    }
}

fn expect_keys_of_data(sets: &[String]) -> Result<()> {
    match sets.iter().find(|set| !set.starts_with("data.")) {
        Some(other) => Err(Usage(format!("--set {other}: only keys of data.* matter here")).into()),
        None => Ok(()),
    }
}

fn run_fetch(args: &FetchArgs) -> Result<()> {
    expect_keys_of_data(&args.sets)?;
    let entry = entry(&args.name).map_err(|error| Usage(error.to_string()))?;
    let (key, fetch) = (entry.key, entry.fetch);
    let (files, terms) = match &entry.originals {
        Originals::Files { files, terms } => (files, terms),
        Originals::ByHand(why) => bail!("{key}: is not downloaded by bella, since {why}; what it reads: {fetch}"),
    };
    let root = args.root.clone().unwrap_or_else(|| Path::new("data").join(key));
    let spec = DataSpec::alone(data_table(&format!("{key}={}", root.display()), args.sets.clone())?)?;
    let table = spec.dataset.resolved();
    let files: Vec<&Original> = files.iter().filter(|file| file.belongs(&table)).collect();
    ensure!(!files.is_empty(), "{key}: none of its archives has this part; what bella reads: {fetch}");
    let all = CheckArgs::default();
    let whole = Scope { split: None, decoding: Decoding::Skip, extent: Extent::Whole };
    tracing::info!("{key}: {terms}");
    let is_there =
        root.is_dir() && check(&*spec.dataset, &whole, &Request::listing(cores(), &|_, _| ())).faults.is_empty();
    match is_there {
        true => tracing::info!("{key}: is in {} already", root.display()),
        false => originals::fetch(key, &files, &root, &Settings::of_environment())?,
    }
    failed(report(&spec, &all))
}

fn failed(faults: usize) -> Result<()> {
    match faults {
        0 => Ok(()),
        1 => bail!("1 fault"),
        _ => bail!("{faults} faults"),
    }
}

fn run_check(args: &CheckArgs) -> Result<()> {
    expect_keys_of_data(&args.sets)?;
    let trees = if args.configs.is_empty() {
        args.data.iter().map(|data| data_table(data, args.sets.clone())).collect::<Result<Vec<Tree>>>()?
    } else {
        vec![load_without(&args.configs, &args.sets, &args.unsets)?]
    };
    let sets = trees.into_iter().map(DataSpec::alone).collect::<Result<Vec<DataSpec>, _>>()?;
    let mut faults = 0;
    for spec in &sets {
        faults += report(spec, args);
    }
    failed(faults)
}

/// Prints the findings and returns the number of faults.
fn report(spec: &DataSpec, args: &CheckArgs) -> usize {
    let is_part = args.partial || spec.dataset.resolved().contains_key("subset");
    let scope = Scope {
        split: args.split,
        decoding: if args.decode { Decoding::All } else { Decoding::Skip },
        extent: if is_part { Extent::Part } else { Extent::Whole },
    };
    let bar = crate::base::logging::doing("reading");
    let progress = |done, total| crate::base::logging::advance(&bar, done, total);
    let workers = args.workers.map_or_else(cores, usize::from);
    let findings = check(&*spec.dataset, &scope, &Request::listing(workers, &progress));
    bar.finish_and_clear();
    print(spec, &findings);
    findings.faults.iter().for_each(|fault| tracing::error!("{}: {fault}", spec.key));
    findings.faults.len()
}

fn print(spec: &DataSpec, findings: &Findings) {
    let count = |count: Option<usize>| count.map_or("?".to_string(), |count| count.to_string());
    let classes = count(findings.classes);
    let published = findings.published_classes.map_or(String::new(), |count| format!(" (published: {count})"));
    println!("{} ({}): {classes} classes{published}", spec.label, spec.key);
    for part in &findings.parts {
        println!("  {}", line(part));
    }
    if !findings.faults.is_empty()
        && let Ok(entry) = entry(&spec.key)
    {
        println!("  expected: {}", entry.fetch);
        if let Originals::Files { files, .. } = &entry.originals {
            let table = spec.dataset.resolved();
            let root = table.get("root").and_then(toml::Value::as_str).unwrap_or("DIR");
            let part = files.iter().filter(|file| file.belongs(&table)).find_map(|file| file.of);
            let mut words = ["bella", "data", "fetch", &spec.key, "--root", root].map(String::from).to_vec();
            words.extend(
                part.into_iter().flat_map(|(key, value)| ["--set".into(), format!("data.{}.{key}={value}", spec.key)]),
            );
            println!("  to get it: {}", CommandLine::Program(words));
        }
    }
}

fn line(part: &Part) -> String {
    let published = part.published.map_or(String::new(), |count| format!(" (published: {count})"));
    let groups = part.groups.map_or(String::new(), |count| format!(", {count} groups"));
    let Part { name, images, medium, classes, .. } = part;
    if let Some([least, most]) = part.range {
        return format!("{name:8} {images} {medium}{published}, with numbers from {least} to {most}{groups}");
    }
    let (least, most) = part.per_class;
    let each = if least == most { least.to_string() } else { format!("{least} to {most}") };
    format!("{name:8} {images} {medium}{published}, {each} in each of {classes} classes{groups}")
}
