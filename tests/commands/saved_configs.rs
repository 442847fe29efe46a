//! A run saves its config with the defaults of all keys stated, and is opened by it again: whatever a config may say, what is saved of it is
//! read again without a complaint and means the same. Every key of every table is set to several values, by itself and, where it is
//! refused by itself, beside each other key of its table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bella::experiment::keys::{Key, all};
use bella::experiment::{CHOICE_TABLES, Experiment, load_config, over};
use bella::schema::{Problems, Tree, Value};

use crate::common::{repository, tiny};
use crate::configs::{ANSWERS, EXPERIMENTS, NUMBERS, PARTS, all as files};

/// Texts of keys that take not just any text, as TOML. A key without one gets `"x"`, or a list of it.
const TEXTS: [(&str, &str); 13] = [
    ("blocks", "\"0-1\""),
    ("chat", "\"<s>{prompt}</s>\""),
    ("rank_pattern", "[\"1.mlp.fc=3\"]"),
    ("alpha_pattern", "[\"1.mlp.fc=3\"]"),
    ("templates", "[\"a {}.\"]"),
    ("prompt", "\"<image> {question}\""),
    ("classes", "[\"cat\", \"dog\"]"),
    ("labels", "[\"yes\", \"no\"]"),
    ("answer_types", "[\"number\"]"),
    ("targets", "[\"mlp.fc\"]"),
    ("ranges", "[0.2, 0.8]"),
    ("validation", "\"val\""),
    ("architecture", "\"vit_base_patch16_224\""),
];

/// Lists of numbers that must rise.
const RISING: [&str; 3] = ["scale", "ratio", "cutmix_minmax"];

/// Names of tasks, of which each set has its own.
const TASKS: [(&str, &str); 3] =
    [("data.vtab.task", "\"cifar\""), ("data.medmnist.task", "\"pathmnist\""), ("data.uci.name", "\"yacht\"")];

/// Values of a key, as TOML, by its rule.
fn values(key: &Key) -> Vec<String> {
    let fixed =
        TASKS.iter().filter(|(path, _)| *path == key.path).chain(TEXTS.iter().filter(|(name, _)| *name == key.name()));
    let mut found: Vec<String> = fixed.map(|(_, value)| value.to_string()).collect();
    key.rule.split("; or ").for_each(|rule| found.extend(by_rule(key.name(), rule)));
    found
}

fn by_rule(name: &str, rule: &str) -> Vec<String> {
    let quoted = |word: &str| format!("\"{word}\"");
    if let Some(rule) = rule.strip_prefix("a list, each ") {
        let items = by_rule(name, rule);
        let pair = format!("[{}]", items.iter().take(2).cloned().collect::<Vec<_>>().join(", "));
        let rising = RISING.contains(&name).then(|| "[0.25, 0.75]".to_string());
        return items.iter().take(1).map(|item| format!("[{item}]")).chain([pair]).chain(rising).collect();
    }
    if let Some(words) = rule.strip_prefix("one of ") {
        return words.split(", ").map(quoted).collect();
    }
    let mut found = match rule {
        "true or false" => vec!["true".to_string(), "false".to_string()],
        _ if rule.starts_with("a list of texts") => vec!["[\"x\"]".to_string(), "[\"x\", \"y\"]".to_string()],
        _ if rule.starts_with("a whole number") => numbers(rule, true),
        _ if rule.starts_with("a number") => numbers(rule, false),
        _ => vec![quoted("x")],
    };
    let words = rule.split('"').skip(1).step_by(2).map(quoted);
    found.extend(words);
    found
}

/// Numbers at the lower limit of a rule, or just above it, and beyond.
fn numbers(rule: &str, is_whole: bool) -> Vec<String> {
    let words = rule.split([' ', ',']);
    let limits: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    let (low, high) = (limits.first().copied().unwrap_or(0.0), limits.get(1).copied().unwrap_or(f64::INFINITY));
    let steps = if is_whole { [0.0, 1.0, 2.0, 7.0] } else { [0.0, 0.25, 0.5, 3.0] };
    let within = steps.map(|step| low + step).into_iter().filter(|number| *number <= high);
    within.map(|number| if is_whole { format!("{number}") } else { format!("{number:?}") }).collect()
}

/// A config, with the entries of its choice tables.
struct Base {
    name: String,
    tree: Tree,
    /// By table, such as `method`.
    entries: BTreeMap<&'static str, String>,
}

impl Base {
    /// Returns a base if the config is fine.
    fn of(name: String, tree: Tree) -> Result<Base, Problems> {
        let resolved = Experiment::read(&tree)?.resolved();
        let entry = |table: &str| resolved.get(table)?.as_table()?.keys().next().cloned();
        let entries = CHOICE_TABLES.into_iter().filter_map(|table| Some((table, entry(table)?))).collect();
        Ok(Base { name, tree, entries })
    }

    /// Returns the config with the tables or keys of a text.
    fn with(&self, text: &str) -> Tree {
        let part = Tree::parse("keys", text).unwrap_or_else(|problems| panic!("{text}: {problems}"));
        over(part, self.tree.clone())
    }

    /// Returns the path of a key in the config: `data.*.label_noise` is one of its data set.
    fn path(&self, key: &Key) -> String {
        let set = key.path.strip_prefix("data.*").map(|rest| format!("data.{}{rest}", self.entries["data"]));
        set.unwrap_or_else(|| key.path.clone())
    }

    /// Returns the config on another checkpoint, of which `text` is the table.
    fn on(&self, text: &str) -> Base {
        let mut own = self.tree.clone();
        if let Value::Table(all) = &mut own.root.value {
            all.remove("checkpoint");
        }
        let part = Tree::parse("checkpoint", &format!("[checkpoint]\n{text}")).unwrap();
        let problem = |problems: Problems| panic!("{} on {text}: {problems}", self.name);
        Base::of(format!("{} on {text}", self.name), over(part, own)).unwrap_or_else(problem)
    }
}

/// Every shipped experiment, and one of them with every shipped part.
fn shipped() -> Vec<Base> {
    let cifar = repository("configs/cifar10.toml");
    let alone = files(&[&EXPERIMENTS[..], &ANSWERS, &NUMBERS].concat()).into_iter().map(|file| vec![file]);
    let merged = files(&PARTS).into_iter().map(|part| vec![cifar.clone(), part]);
    let base = |files: Vec<PathBuf>| {
        let name = files.last().unwrap().display().to_string();
        let base = load_config(&files, &[]).and_then(|tree| Base::of(name, tree));
        base.unwrap_or_else(|problems| panic!("{files:?}: {problems}"))
    };
    alone.chain(merged).map(base).collect()
}

/// The table of an entry with its required keys.
fn table_of(keys: &[Key], table: &str) -> String {
    let own = keys_of(keys, table).into_iter().filter(|key| key.default == "required" && key.table() == table);
    own.map(|key| format!("{} = {}\n", key.name(), values(key)[0]))
        .fold(format!("[{table}]\n"), |all, line| all + &line)
}

fn keys_of<'a>(keys: &'a [Key], table: &str) -> Vec<&'a Key> {
    let start = format!("{table}.");
    keys.iter().filter(|key| key.path.starts_with(&start)).collect()
}

/// The keys that were accepted in some config, and what went wrong.
#[derive(Default)]
struct Found {
    accepted: BTreeSet<String>,
    failures: BTreeSet<String>,
}

impl Found {
    /// Reads a config, and returns whether it is fine. What a run would save of it must then be read again, and mean the same.
    fn holds(&mut self, base: &Base, keys: &str) -> bool {
        let Ok(experiment) = Experiment::read(&base.with(keys)) else { return false };
        let saved = experiment.resolved();
        let again = Tree::parse("config.toml", &toml::to_string(&saved).unwrap()).unwrap();
        for (purpose, read) in [("train", Experiment::read(&again)), ("evaluate", Experiment::read_to_evaluate(&again))]
        {
            let difference = match read.map(|experiment| experiment.resolved()) {
                Err(problems) => problems.to_string(),
                Ok(again) if again == saved => continue,
                Ok(again) => format!("{saved}\nis read as\n{again}"),
            };
            self.failures.insert(format!("{} with {keys:?}, read to {purpose}: {difference}", base.name));
        }
        true
    }

    /// Sets each of these keys to each of its values: by itself and, if it is refused by itself, beside each value of another key.
    fn set(&mut self, base: &Base, keys: &[&Key]) {
        let lines = |key: &Key| values(key).into_iter().map(|value| format!("{} = {value}\n", base.path(key)));
        let candidates: Vec<(&Key, String)> = keys.iter().flat_map(|key| lines(key).map(|line| (*key, line))).collect();
        for (key, line) in &candidates {
            if self.holds(base, line) {
                self.accepted.insert(key.path.clone());
                continue;
            }
            for (other, beside) in candidates.iter().filter(|(other, _)| other.path != key.path) {
                if self.holds(base, &format!("{line}{beside}")) {
                    self.accepted.extend([key.path.clone(), other.path.clone()]);
                }
            }
        }
    }
}

/// The entries of all registries, as the tables that choose them.
fn tables() -> Vec<(&'static str, String)> {
    let heads = bella::model::head::HEADS.iter().map(|entry| ("head", entry.key));
    let sets = bella::data::DATASETS.iter().map(|entry| ("data", entry.key));
    let subspaces = bella::subspace::SUBSPACES.iter().map(|entry| ("subspace", entry.key));
    let methods = bella::methods::METHODS.iter().map(|entry| ("method", entry.key));
    let optimizers = bella::optimizers::OPTIMIZERS.iter().map(|entry| ("optimizer", entry.key));
    let all = heads.chain(sets).chain(subspaces).chain(methods).chain(optimizers);
    all.map(|(table, key)| (table, key.to_string())).collect()
}

#[test]
fn what_a_run_saves_opens_it_again() {
    let (keys, mut found) = (all(), Found::default());
    let mut bases = shipped();
    bases.push(Base::of("tiny".into(), Tree::parse("tiny", &tiny()).unwrap()).unwrap());
    bases.iter().for_each(|base| assert!(found.holds(base, "")));
    for (table, key) in tables() {
        let path = format!("{table}.{key}");
        let known = bases.iter().position(|base| base.entries.get(table) == Some(&key));
        let at = known.unwrap_or_else(|| {
            let text = table_of(&keys, &path);
            let mut made =
                bases.iter().filter_map(|base| Base::of(format!("{} with {path}", base.name), base.with(&text)).ok());
            let made = made.next().unwrap_or_else(|| panic!("no shipped experiment takes\n{text}"));
            bases.push(made);
            bases.len() - 1
        });
        found.set(&bases[at], &keys_of(&keys, &path));
    }
    let named = |end: &str| bases.iter().find(|base| base.name.ends_with(end)).unwrap_or_else(|| panic!("no {end}"));
    for (base, tables) in [
        ("tiny", &["data.*", "train", "checkpoint"][..]),
        ("cifar10.toml", &["data.*", "train"]),
        ("methods/ivon.toml", &["train"]),
        ("data.list", &["data.*"]),
        ("glue/sst2.toml", &["data.*", "train"]),
        ("regression/uci.toml", &["train", "checkpoint"]),
        ("vqa/vqa-v2-single.toml", &["train"]),
    ] {
        tables.iter().for_each(|table| found.set(named(base), &keys_of(&keys, table)));
    }
    let fixture = |name: &str| format!("path = {:?}\n", repository("tests/fixtures").join(name));
    for (base, checkpoint) in [
        ("tiny", fixture("folders/hf-vit")),
        ("tiny", fixture("folders/timm-vit")),
        ("tiny", fixture("folders/open-clip")),
        ("tiny", fixture("module/residual.pt") + "kind = \"module\"\nimage_size = 8\nnormalize = \"clip\"\n"),
        ("glue/sst2.toml", fixture("encoder/roberta")),
        ("commonsense/boolq.toml", fixture("language/llama")),
        ("vqa/vqa-v2-single.toml", fixture("llava/transformers-5")),
    ] {
        found.set(&named(base).on(&checkpoint), &keys_of(&keys, "checkpoint"));
    }
    let Found { accepted, failures } = found;
    let failures: Vec<String> = failures.into_iter().collect();
    assert!(failures.is_empty(), "{} configs:\n{}", failures.len(), failures.join("\n"));
    let untried: Vec<&str> =
        keys.iter().map(|key| key.path.as_str()).filter(|path| !accepted.contains(*path)).collect();
    assert!(untried.is_empty(), "no value was accepted of {untried:?}: give this test one");
}
