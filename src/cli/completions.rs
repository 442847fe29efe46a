//! `bella completions`: completion in the shell, of commands and options as well as of runs, keys and data sets. The shell
//! asks bella itself at every Tab, so that it knows the runs that there are.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;

use crate::data::DATASETS;
use crate::draft::METHODS;
use crate::experiment::{Scope, keys};
use crate::run::RunFolder;

/// The variable by which the shell asks for completions; its value is the name of the shell.
pub const ASKED_BY: &str = "BELLA_COMPLETE";

/// Print the line that makes a shell complete commands, runs, keys and data sets.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella completions bash > ~/.local/share/bash-completion/completions/bella\n  \
                  echo 'source <(bella completions zsh)' >> ~/.zshrc")]
pub struct CompletionsArgs {
    shell: clap_complete::Shell,
}

pub fn run(args: &CompletionsArgs) -> Result<()> {
    let (shell, shells) = (args.shell.to_string(), Shells::builtins());
    let completer = shells.completer(&shell).with_context(|| format!("{shell}: no completion for this shell"))?;
    let mut script = Vec::new();
    completer.write_registration(ASKED_BY, "bella", "bella", "bella", &mut script)?;
    Ok(std::io::Write::write_all(&mut std::io::stdout(), &script)?)
}

/// Completes the id of a run in the usual results folder.
pub fn of_runs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let runs = RunFolder::all(Path::new("results")).unwrap_or_default();
        runs.iter().map(|run| CompletionCandidate::new(run.id())).collect()
    })
}

/// Completes the key of `--set KEY=VALUE`.
pub fn of_keys() -> ArgValueCompleter {
    keys_before("=", |_| true)
}

/// Completes the key of `--unset KEY`.
pub fn of_unset_keys() -> ArgValueCompleter {
    keys_before("", |_| true)
}

/// Completes the key of `--set KEY=VALUE` where the config is that of a run.
pub fn of_keys_in(scope: Scope) -> ArgValueCompleter {
    keys_before("=", move |key| scope.has(key))
}

/// Completes a key among those that `is_taken` takes, which `end` follows.
fn keys_before(end: &'static str, is_taken: impl Fn(&str) -> bool + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let typed = typed.to_string_lossy();
        let expanded = keys::all().into_iter().flat_map(|key| match key.path.strip_prefix("data.*.") {
            Some(rest) => DATASETS.iter().map(|set| (format!("data.{}.{rest}", set.key), key.about.clone())).collect(),
            None => vec![(key.path.clone(), key.about.clone())],
        });
        let fitting = expanded.filter(|(path, _)| path.starts_with(&*typed) && is_taken(path));
        fitting.map(|(path, about)| CompletionCandidate::new(format!("{path}{end}")).help(Some(about.into()))).collect()
    })
}

/// Completes the data set of `--data KEY=ROOT`; after it, the shell completes the path.
pub fn of_data_sets() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let typed = typed.to_string_lossy();
        let fitting = DATASETS.iter().filter(|set| set.key.starts_with(&*typed));
        let candidate =
            |key: &str, about: &'static str| CompletionCandidate::new(format!("{key}=")).help(Some(about.into()));
        fitting.map(|set| candidate(set.key, set.about)).collect()
    })
}

/// Completes the method of `bella init`.
pub fn of_methods() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate =
            |recipe: &crate::draft::Recipe| CompletionCandidate::new(recipe.name).help(Some(recipe.about().into()));
        METHODS.iter().map(candidate).collect()
    })
}
