//! Every key of a config. The readers run without a config, once for each entry of each registry, and every key that
//! they ask for is recorded. So the list always agrees with what a config may contain.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::{Experiment, Images};
use crate::base::small::{capital, push_new};
use crate::data::DATASETS;
use crate::methods::registered;
use crate::model::head::HEADS;
use crate::optimizers::OPTIMIZERS;
use crate::schema::{Absence, Asked, Given, Leading, Reader, Survey};
use crate::subspace::SUBSPACES;

/// A key with its type, range, default and meaning.
#[derive(Clone, Debug)]
pub struct Key {
    /// The dotted path, such as `method.svgd.gamma`.
    pub path: String,
    /// The type and range of the value.
    pub rule: String,
    pub default: String,
    /// The meaning, in one sentence.
    pub about: String,
}

impl Key {
    /// Returns the table that holds the key, such as `method.svgd`.
    pub fn table(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }

    /// Returns the key within its table, such as `gamma`.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('.').map_or(&self.path, |(_, name)| name)
    }
}

/// Returns every key, table by table in the order in which they are read.
pub fn all() -> Vec<Key> {
    let asked = survey();
    let (mut order, mut records) = (vec![], HashMap::<&str, Vec<&Asked>>::new());
    for one in &asked {
        let of_key = records.entry(&one.key).or_default();
        if of_key.is_empty() {
            order.push(one.key.as_str());
        }
        of_key.push(one);
    }
    let mut keys = share(order.into_iter().map(|key| joined(key, &records[key])).collect());
    let mut tables: Vec<String> = vec![];
    keys.iter().for_each(|key| push_new(&mut tables, key.table().to_owned()));
    let rank = |name: &str| REGISTRIES.iter().position(|(table, _)| *table == name.split('.').next().unwrap_or(name));
    tables.sort_by_key(|table| rank(table));
    keys.sort_by_cached_key(|key| tables.iter().position(|table| table == key.table()));
    keys
}

/// Returns everything that the readers ask for, without repetitions.
fn survey() -> Vec<Asked> {
    let sizes = [HEADS.len(), DATASETS.len(), registered().len(), OPTIMIZERS.len()];
    let all = sizes.into_iter().max().unwrap_or(1);
    let cases = Given::ALL.into_iter().flat_map(|given| (0..SUBSPACES.len()).map(move |subspace| (given, subspace)));
    let (mut seen, mut asked) = (HashSet::new(), vec![]);
    for (given, subspace) in cases {
        // The defaults of methods depend on the subspace, and nothing else does.
        let turns = if subspace == 0 { all } else { registered().len() };
        for turn in 0..turns {
            let survey = Survey::new(given, turn, Leading { table: "subspace", variant: subspace });
            // Reading always fails here because no key is given; only the recorded keys matter.
            let _ = Experiment::read_from(Reader::surveyed(&survey), Images::OfTraining);
            for one in survey.take_asked() {
                if !seen.contains(&one) {
                    seen.insert(one.clone());
                    asked.push(one);
                }
            }
        }
    }
    asked
}

/// The tables of a config and their titles, in the order of the page.
pub(super) const REGISTRIES: &[(&str, &str)] = &[
    ("", "The experiment"),
    ("checkpoint", "The checkpoint that training starts from"),
    ("head", "The classifier behind the image tower: one of these tables"),
    ("data", "The data set: one of these tables"),
    ("subspace", "The trained parameters: one of these tables"),
    ("method", "The rule by which particles move: one of these tables"),
    ("optimizer", "The step along a direction: one of these tables"),
    ("train", "Training"),
];

/// Merges the keys that every entry of `data` has into keys of `data.*`.
fn share(keys: Vec<Key>) -> Vec<Key> {
    let (mut entries, mut paths, mut shared) = (HashMap::new(), HashSet::new(), vec![]);
    keys.iter().for_each(|key| *entries.entry(within_entry(key)).or_insert(0) += 1);
    for key in &keys {
        let own = within_entry(key);
        let path = match own.0.filter(|_| entries[&own] == DATASETS.len()) {
            Some(rest) => format!("data.*.{rest}"),
            None => key.path.clone(),
        };
        if paths.insert(path.clone()) {
            shared.push(Key { path, ..key.clone() });
        }
    }
    shared
}

/// Returns the path of a key within its entry of `data`, if it has one, and everything that is said of it.
fn within_entry(key: &Key) -> (Option<&str>, [&str; 3]) {
    let rest = key.path.strip_prefix("data.").and_then(|rest| rest.split_once('.'));
    (rest.map(|(_, rest)| rest), [&key.rule, &key.default, &key.about])
}

/// Returns whether `path` is at or below `prefix`, where `*` stands for any entry.
pub fn lies_below(path: &str, prefix: &str) -> bool {
    let (path, prefix): (Vec<&str>, Vec<&str>) = (path.split('.').collect(), prefix.split('.').collect());
    prefix.len() <= path.len() && path.iter().zip(&prefix).all(|(own, wanted)| own == wanted || *own == "*")
}

/// Joins the records of all surveys about one key.
fn joined(key: &str, found: &[&Asked]) -> Key {
    let (mut rules, mut defaults, mut about) = (vec![], vec![], String::new());
    for one in found {
        push_new(&mut rules, one.rule.clone());
        let default = match &one.absence {
            Absence::Required => "required".to_owned(),
            Absence::Unset => String::new(),
            Absence::Default(value) => format!("`{value}`"),
        };
        if !default.is_empty() {
            push_new(&mut defaults, default);
        }
        if about.is_empty() {
            about = one.about.clone();
        }
    }
    Key { path: key.to_owned(), rule: rules.join("; or "), default: defaults.join(" or "), about }
}

/// Returns all keys as a Markdown page.
pub fn page() -> String {
    let keys = all();
    let mut page = String::from(PREFACE);
    for (table, title) in REGISTRIES {
        let heading = if table.is_empty() { "top level" } else { table };
        let _ = write!(page, "\n## {heading}\n\n{title}.\n");
        let within = |key: &&Key| key.table().split('.').next().unwrap_or_default() == *table;
        let own: Vec<&Key> = keys.iter().filter(within).collect();
        for group in own.chunk_by(|a, b| a.table() == b.table()) {
            let name = group[0].table();
            if name != *table {
                let about = about_entry(name).map_or(String::new(), |about| format!("{}.\n\n", capital(about)));
                let _ = write!(page, "\n### `[{name}]`\n\n{about}");
            } else {
                page.push('\n');
            }
            page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
            for key in group {
                let _ = writeln!(page, "| `{}` | {} | {} | {} |", key.name(), key.rule, key.default, key.about);
            }
        }
    }
    page
}

const PREFACE: &str = "\
<!-- Generated by `bella list keys --markdown`; tests/commands/docs.rs compares it. -->

# Configuration

Every key of a config with its type and range, its default and its meaning. `bella list keys PREFIX` prints a part of this
page, `bella check FILE` every mistake of a config, `bella check --print FILE` the resolved config with all defaults.

Several `--config` files merge left to right, `--set KEY=VALUE` last, and `--unset KEY` leaves a key out. The last part of a key is
enough where it is unique in the tables of the config, as in `--set lr=1e-3`; `bella list keys lr` finds it. The tables `[head.*]`,
`[data.*]`, `[subspace.*]`, `[method.*]` and `[optimizer.*]` replace each other when merged, so that a method file turns one experiment
into another. In paths, `~` at the start is the home folder, and `$NAME` and `${NAME}` are variables of the environment;
`checkpoint.path` may be a name that is downloaded (`hf://ORG/NAME`, [networks.md](networks.md)).
Without `[subspace.*]`, `[method.*]`, `[optimizer.*]` and `[train]` the checkpoint is only evaluated. Unknown keys, wrong types and
values out of range are errors that name file, line, key, value and rule, all of them at once. An empty default means that
nothing is set. Where a default depends on other keys, the meaning says how.
";

/// Returns the registry's description of the entry of a table such as `method.svgd`.
fn about_entry(table: &str) -> Option<&'static str> {
    let (registry, key) = table.split_once('.')?;
    let entries: Vec<(&str, &'static str)> = match registry {
        "head" => HEADS.iter().map(|e| (e.key, e.about)).collect(),
        "data" => DATASETS.iter().map(|e| (e.key, e.about)).collect(),
        "subspace" => SUBSPACES.iter().map(|e| (e.key, e.about)).collect(),
        "method" => registered().iter().map(|e| (e.key, e.about)).collect(),
        "optimizer" => OPTIMIZERS.iter().map(|e| (e.key, e.about)).collect(),
        _ => vec![],
    };
    entries.into_iter().find(|(known, _)| *known == key).map(|(_, about)| about)
}
