//! `bella data check`: checks the files of a data set before anything is trained on them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};

use crate::base::small::Usage;
use crate::data::check::{Decoding, Extent, Findings, Part, Scope, check};
use crate::data::{Request, SplitName, entry};
use crate::experiment::{DataSpec, data_table, load_config};
use crate::machine::cores;
use crate::schema::Tree;

/// Check data sets on disk.
#[derive(Args)]
#[command(after_help = "Example:\n  bella data check cifar10=data")]
pub struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    Check(CheckArgs),
}

/// Count classes, splits and images against the published numbers, and find missing and damaged files.
///
/// Every fault is printed on its own line, and the exit code is 1 if there is one. Nothing is downloaded: if files are
/// missing, the message says what to fetch and where to put it.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella data check cifar10=data camelyon17=data --decode\n  \
    bella data check --config configs/cifar10.toml\n  \
    bella data check vtab=data/vtab-1k --set data.vtab.task=dtd\n  \
    bella data check domainnet=data/pacs --partial --set 'data.domainnet={train=\"photo\"}'")]
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
    let DataCommand::Check(args) = &args.command;
    if let Some(other) = args.sets.iter().find(|set| !set.starts_with("data.")) {
        return Err(Usage(format!("--set {other}: only keys of data.* matter here")).into());
    }
    let trees = if args.configs.is_empty() {
        args.data.iter().map(|data| data_table(data, args.sets.clone())).collect::<Result<Vec<Tree>>>()?
    } else {
        vec![load_config(&args.configs, &args.sets)?]
    };
    let sets = trees.into_iter().map(DataSpec::alone).collect::<Result<Vec<DataSpec>, _>>()?;
    let mut faults = 0;
    for spec in &sets {
        faults += report(spec, args);
    }
    match faults {
        0 => Ok(()),
        1 => bail!("1 fault"),
        _ => bail!("{faults} faults"),
    }
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
    }
}

fn line(part: &Part) -> String {
    let published = part.published.map_or(String::new(), |count| format!(" (published: {count})"));
    let groups = part.groups.map_or(String::new(), |count| format!(", {count} groups"));
    let (least, most) = part.per_class;
    let each = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let Part { name, images, medium, classes, .. } = part;
    format!("{name:8} {images} {medium}{published}, {each} in each of {classes} classes{groups}")
}
