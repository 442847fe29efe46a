//! `bella list`: prints the entries of the registries.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::base::usage::Usage;
use crate::data::DATASETS;
use crate::data::corruptions::CORRUPTIONS;
use crate::evaluate::attacks::ATTACKS;
use crate::experiment::keys;
use crate::methods::registered;
use crate::metrics::METRICS;
use crate::metrics::answers::ANSWER_METRICS;
use crate::metrics::conformal::SCORES;
use crate::metrics::ood::OOD_SCORES;
use crate::model::head::{HEADS, templates};
use crate::model::vit::NAMINGS;
use crate::optimizers::OPTIMIZERS;
use crate::subspace::SUBSPACES;

/// List checkpoint namings, heads, subspaces, methods, optimizers, data sets, corruptions, attacks and metrics, or the keys
/// of a config.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella list\n  bella list keys\n  bella list keys method.svgd")]
pub struct ListArgs {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    Keys(KeysArgs),
}

/// List the keys of a config with type, range, default and meaning.
#[derive(Args)]
struct KeysArgs {
    /// Key or table to list, such as `train` or `method.svgd` [default: all].
    prefix: Option<String>,

    /// Print the page docs/configuration.md instead.
    #[arg(long, conflicts_with = "prefix")]
    markdown: bool,
}

pub fn run(args: &ListArgs) -> Result<()> {
    match &args.what {
        Some(What::Keys(args)) => list_keys(args),
        None => list_registries(),
    }
}

fn list_keys(args: &KeysArgs) -> Result<()> {
    if args.markdown {
        print!("{}", keys::page());
        return Ok(());
    }
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let found: Vec<_> =
        keys::all().into_iter().filter(|key| prefix.is_empty() || keys::lies_below(&key.path, prefix)).collect();
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

fn list_registries() -> Result<()> {
    section("checkpoint namings", NAMINGS.iter().map(|e| (e.key, e.about)));
    section("[head.*]", HEADS.iter().map(|e| (e.key, e.about)));
    println!("templates of [head.zero-shot]\n  {}\n", templates::keys().join(", "));
    section("[data.*]", DATASETS.iter().map(|e| (e.key, e.about)));
    section("[subspace.*]", SUBSPACES.iter().map(|e| (e.key, e.about)));
    println!("[method.*]");
    for entry in registered() {
        println!("  {:18} {} ({})", entry.key, entry.about, entry.paper);
    }
    section("\n[optimizer.*]", OPTIMIZERS.iter().map(|e| (e.key, e.about)));
    section("eval --corrupt KIND:SEVERITY (1 to 5)", CORRUPTIONS.iter().map(|e| (e.key, e.about)));
    section("eval --attack", ATTACKS.iter().map(|e| (e.key, e.about)));
    section("out-of-distribution scores (eval --ood, score --ood)", OOD_SCORES.iter().map(|e| (e.key, e.definition)));
    section("conformal scores (--conformal-score)", SCORES.iter().map(|e| (e.key, e.about)));
    section("metrics", METRICS.iter().map(|e| (e.key, e.about)));
    section("metrics of free answers", ANSWER_METRICS.iter().map(|e| (e.key, e.definition)));
    Ok(())
}

fn section(title: &str, entries: impl Iterator<Item = (&'static str, &'static str)>) {
    println!("{title}");
    for (key, about) in entries {
        println!("  {key:18} {about}");
    }
    println!();
}
