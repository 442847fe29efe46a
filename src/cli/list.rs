//! `bella list`: prints the entries of the registries.

use std::fmt::Display;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::base::small::Usage;
use crate::data::DATASETS;
use crate::data::corruptions::CORRUPTIONS;
use crate::evaluate::attacks::ATTACKS;
use crate::experiment::keys;
use crate::inference::acquire::RULES;
use crate::methods::registered;
use crate::metrics::answers::ANSWER_METRICS;
use crate::metrics::calibrators::CALIBRATORS;
use crate::metrics::conformal::SCORES;
use crate::metrics::numbers::NUMBER_METRICS;
use crate::metrics::numbers::conformal::INTERVAL_SCORES;
use crate::metrics::ood::OOD_SCORES;
use crate::metrics::ood::features::FEATURE_SCORES;
use crate::metrics::{METRICS, Unit};
use crate::model::head::{HEADS, built_in};
use crate::model::recognition::NAMINGS;
use crate::optimizers::OPTIMIZERS;
use crate::subspace::SUBSPACES;

/// List checkpoint namings, heads, subspaces, methods, optimizers, data sets, corruptions, attacks, metrics and rules of
/// acquisition, or the keys of a config.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella list\n  bella list methods\n  bella list keys\n  bella list keys method.svgd\n  bella list keys lr"
)]
pub struct ListArgs {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    Keys(KeysArgs),
    #[command(flatten)]
    Registry(Registry),
}

#[derive(Clone, Copy, Subcommand)]
enum Registry {
    /// List the namings of checkpoints.
    Checkpoints,
    /// List the heads and the templates of zero-shot heads.
    Heads,
    /// List the data sets.
    Data,
    /// List the subspaces.
    Subspaces,
    /// List the methods with their papers.
    Methods,
    /// List the optimizers.
    Optimizers,
    /// List the corruptions that bella makes.
    Corruptions,
    /// List the attacks.
    Attacks,
    /// List the metrics, the calibrators, and the scores of sets of other classes and of conformal sets.
    Metrics,
    /// List the rules of what to label next.
    Rules,
}

impl Registry {
    /// All registries, in the order in which they are listed.
    const ALL: [Registry; 10] = [
        Registry::Checkpoints,
        Registry::Heads,
        Registry::Data,
        Registry::Subspaces,
        Registry::Methods,
        Registry::Optimizers,
        Registry::Corruptions,
        Registry::Attacks,
        Registry::Metrics,
        Registry::Rules,
    ];
}

/// List the keys of a config with type, range, default and meaning.
#[derive(Args)]
struct KeysArgs {
    /// Key or table to list, such as `train` or `method.svgd`, or the last part of keys, such as `lr` [default: all].
    prefix: Option<String>,

    /// Print the page docs/configuration.md instead.
    #[arg(long, conflicts_with = "prefix")]
    markdown: bool,
}

pub fn run(args: &ListArgs) -> Result<()> {
    match &args.what {
        Some(What::Keys(args)) => return list_keys(args),
        Some(What::Registry(one)) => list_registry(*one),
        None => Registry::ALL.into_iter().for_each(list_registry),
    }
    Ok(())
}

fn list_keys(args: &KeysArgs) -> Result<()> {
    if args.markdown {
        print!("{}", keys::page());
        return Ok(());
    }
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let all = keys::all();
    let mut found: Vec<_> = all.iter().filter(|key| prefix.is_empty() || keys::lies_below(&key.path, prefix)).collect();
    if found.is_empty() {
        found = all.iter().filter(|key| key.name() == prefix).collect();
    }
    if found.is_empty() {
        return Err(Usage(format!("no key `{prefix}`; `bella list keys` lists all")).into());
    }
    for key in found {
        let default = match key.default.as_str() {
            "" | "required" => key.default.clone(),
            default => format!("default {}", default.replace('`', "")),
        };
        println!("{}\n    {}{}{default}", key.path, key.rule, if default.is_empty() { "" } else { "; " });
        println!("    {}", key.about);
    }
    Ok(())
}

fn list_registry(registry: Registry) {
    match registry {
        Registry::Checkpoints => section("checkpoint namings", NAMINGS.iter().map(|e| (e.key, (e.about)()))),
        Registry::Heads => {
            section("[head.*]", HEADS.iter().map(|e| (e.key, e.about)));
            println!("templates of [head.zero-shot]\n  {}\n", built_in::keys().join(", "));
        }
        Registry::Data => section("[data.*]", DATASETS.iter().map(|e| (e.key, e.about))),
        Registry::Subspaces => section("[subspace.*]", SUBSPACES.iter().map(|e| (e.key, e.about))),
        Registry::Methods => {
            println!("[method.*]");
            for entry in registered() {
                println!("  {:18} {} ({})", entry.key, entry.about, entry.paper);
            }
            println!();
        }
        Registry::Optimizers => section("[optimizer.*]", OPTIMIZERS.iter().map(|e| (e.key, e.about))),
        Registry::Corruptions => {
            section("eval --corrupt KIND:SEVERITY (1 to 5)", CORRUPTIONS.iter().map(|e| (e.key, e.about)));
        }
        Registry::Attacks => section("eval --attack", ATTACKS.iter().map(|e| (e.key, e.about))),
        Registry::Metrics => list_metrics(),
        Registry::Rules => section("acquire --by", RULES.iter().map(|e| (e.key, e.about))),
    }
}

fn list_metrics() {
    section("out-of-distribution scores (eval --ood, score --ood)", OOD_SCORES.iter().map(|e| (e.key, e.definition)));
    section(
        "out-of-distribution scores of features (eval --ood-by)",
        FEATURE_SCORES.iter().map(|e| (e.key, format!("{} ({})", e.definition, e.paper))),
    );
    section(
        "calibrators (--calibrate of eval, score and predict)",
        CALIBRATORS.iter().map(|e| (e.key, format!("{} ({})", e.about, e.paper))),
    );
    section(
        "conformal scores (--conformal-score)",
        SCORES.iter().map(|e| (e.key, format!("{}: {}", e.about, e.definition))),
    );
    section(
        "conformal scores of predicted numbers (--conformal makes intervals by all of them)",
        INTERVAL_SCORES.iter().map(|e| (e.key, e.definition)),
    );
    println!("metrics");
    for metric in METRICS {
        let unit = if metric.unit == Unit::Nats { ", in nats" } else { "" };
        println!("  {:18} {}{unit}", metric.key, metric.about);
    }
    println!();
    section("metrics of free answers", ANSWER_METRICS.iter().map(|e| (e.key, e.definition)));
    section("metrics of predicted numbers", NUMBER_METRICS.iter().map(|e| (e.key, e.definition)));
}

fn section(title: &str, entries: impl Iterator<Item = (&'static str, impl Display)>) {
    println!("{title}");
    for (key, about) in entries {
        println!("  {key:18} {about}");
    }
    println!();
}
