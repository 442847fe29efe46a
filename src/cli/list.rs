//! `bella list`: what the registries know.

use anyhow::Result;
use clap::Args;

use crate::attacks::ATTACKS;
use crate::backbone::NAMINGS;
use crate::data::DATASETS;
use crate::data::corruptions::CORRUPTIONS;
use crate::head::{HEADS, templates};
use crate::methods::METHODS;
use crate::metrics::METRICS;
use crate::metrics::ood::OOD_SCORES;
use crate::optimizers::OPTIMIZERS;
use crate::subspace::SUBSPACES;

/// List checkpoint namings, heads, subspaces, methods, optimizers, data sets, corruptions, attacks and metrics.
#[derive(Args)]
#[command(after_help = "Example:\n  bella list")]
pub struct ListArgs {}

pub fn run(_: &ListArgs) -> Result<()> {
    section("checkpoint namings", NAMINGS.iter().map(|e| (e.key, e.about)));
    section("[head.*]", HEADS.iter().map(|e| (e.key, e.about)));
    println!("templates of [head.zero-shot]\n  {}\n", templates::keys().join(", "));
    section("[data.*]", DATASETS.iter().map(|e| (e.key, e.about)));
    section("[subspace.*]", SUBSPACES.iter().map(|e| (e.key, e.about)));
    println!("[method.*]");
    for entry in METHODS {
        println!("  {:18} {} ({})", entry.key, entry.about, entry.paper);
    }
    section("\n[optimizer.*]", OPTIMIZERS.iter().map(|e| (e.key, e.about)));
    section("eval --corrupt KIND:SEVERITY (1 to 5)", CORRUPTIONS.iter().map(|e| (e.key, e.about)));
    section("eval --attack", ATTACKS.iter().map(|e| (e.key, e.about)));
    section("out-of-distribution scores (eval --ood, score --ood)", OOD_SCORES.iter().map(|e| (e.key, e.definition)));
    section("metrics", METRICS.iter().map(|e| (e.key, e.about)));
    Ok(())
}

fn section(title: &str, entries: impl Iterator<Item = (&'static str, &'static str)>) {
    println!("{title}");
    for (key, about) in entries {
        println!("  {key:18} {about}");
    }
    println!();
}
