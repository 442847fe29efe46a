//! A run saves its config with the defaults of all keys stated, and is opened by it again: whatever a config may say, what is saved of it is
//! read again without a complaint and means the same. Every key of every table is set to several values, by itself and, where that is
//! refused, beside each other key of its table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bella::experiment::keys::{Key, all};
use bella::experiment::{CHOICE_TABLES, Experiment, load_config, over};
use bella::schema::{Problems, Tree, Value};

use crate::common::{assert_has, repository, tiny};
use crate::configs::{ANSWERS, EXPERIMENTS, NUMBERS, PARTS, all as files};

/// Values of keys that take not just any text or list, as TOML, by the end of the key's path. Every other text is `"x"`.
const VALUES: [(&str, &str); 24] = [
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
    ("validation", "\"val\""),
    ("architecture", "\"vit_base_patch16_224\""),
    ("mean", "[0.5, 0.25, 0.5]"),
    ("std", "[0.5, 0.25, 0.5]"),
    ("corruptions", "[\"fog\"]"),
    ("train", "\"clipart\""),
    ("scale", "[0.25, 0.75]"),
    ("ratio", "[0.25, 0.75]"),
    ("cutmix_minmax", "[0.25, 0.75]"),
    ("jsonl.second", "\"{x}\""),
    ("mclmc.start", "1000"),
    ("vtab.task", "\"cifar\""),
    ("medmnist.task", "\"pathmnist\""),
    ("uci.name", "\"yacht\""),
];

/// Sets of which all classes are named or none.
const CLASSES: [(&str, usize); 3] =
    [("data.flowers102.classes", 102), ("data.iwildcam.classes", 182), ("data.vtab.classes", 100)];

/// Tables beside those of shipped experiments and those with the required keys alone, where a key needs two others.
const TABLES: [&str; 15] = [
    "[data.parquet]\nroot = \"x\"\nimage = \"x\"\n",
    "[data.parquet]\nroot = \"x\"\ntext = \"x\"\n",
    "[data.parquet]\nroot = \"x\"\nimage = \"x\"\ntarget = \"x\"\n",
    "[data.webdataset]\nroot = \"x\"\nlabel = \"json\"\n",
    "[data.jsonl]\nroot = \"x\"\nprompt = \"{x}\"\nlabels = [\"no\", \"yes\"]\n",
    "[data.jsonl]\nroot = \"x\"\nprompt = \"{x}\"\ntarget = \"x\"\n",
    "[data.vqa-v2]\nroot = \"x\"\nlabels = [\"yes\", \"no\"]\n[head.label-words]\n",
    "[data.ok-vqa]\nroot = \"x\"\nlabels = [\"yes\", \"no\"]\n[head.label-words]\n",
    "[head.zero-shot]\nweights = \"x\"\n",
    "[method.sgld]\nlr = 0.1\ness = 9\nstart = 0\nevery = 1\ncycle = 20\n[optimizer.none]\n[train]\nschedule = \"constant\"\n",
    "[method.psgld]\nlr = 0.1\ness = 9\nstart = 0\nevery = 1\ncycle = 20\n[optimizer.none]\n[train]\nschedule = \"constant\"\n",
    "[method.ibdr]\nparticles = 2\nvariant = \"released\"\ncost = \"fisher\"\ndamping = 0.001\n",
    "[train.ema]\ndecay = 0.9\nuse_warmup = true\n",
    "[train.mixup]\ncutmix_alpha = 0.5\n",
    "[head.gaussian]\nsigma = 0.5\nnoise = \"fixed\"\n",
];

/// Values of a key, as TOML, by its rule.
fn values(key: &Key) -> Vec<String> {
    let named = VALUES.iter().filter(|(end, _)| key.path.ends_with(&format!(".{end}")));
    let mut found: Vec<String> = named.map(|(_, value)| value.to_string()).collect();
    let classes = CLASSES.iter().filter(|(path, _)| *path == key.path);
    found.extend(classes.map(|(_, count)| format!("{:?}", (0..*count).map(|i| format!("c{i}")).collect::<Vec<_>>())));
    key.rule.split("; or ").for_each(|rule| found.extend(by_rule(rule)));
    found
}

fn by_rule(rule: &str) -> Vec<String> {
    let quoted = |word: &str| format!("\"{word}\"");
    if let Some(rule) = rule.strip_prefix("a list, each ") {
        let items = by_rule(rule);
        return [1, 2].map(|count| format!("[{}]", items[..items.len().min(count)].join(", "))).into();
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
    let is_above = rule.contains("above");
    let steps = steps.into_iter().filter(|step| *step > 0.0 || !is_above);
    let within = steps.map(|step| low + step).filter(|number| *number <= high);
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

    /// Returns the config with the tables or keys of a text, unless one of them is a key and a table at once.
    fn with(&self, text: &str) -> Result<Tree, Problems> {
        Ok(over(Tree::parse("keys", text)?, self.tree.clone()))
    }

    /// Returns the config with further tables, if it is fine.
    fn beside(&self, text: &str) -> Result<Base, Problems> {
        Base::of(format!("{} with {text:?}", self.name), self.with(text)?)
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
        let Ok(experiment) = base.with(keys).and_then(|tree| Experiment::read(&tree)) else { return false };
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

    /// Sets each of these keys to each of its values by itself. A word that is refused, and a key of which every value is refused, is
    /// set beside each value of another key.
    fn set(&mut self, base: &Base, keys: &[&Key]) {
        let mut all: Vec<(&Key, String)> = Vec::new();
        for key in keys {
            all.extend(values(key).into_iter().map(|value| (*key, format!("{} = {value}\n", base.path(key)))));
        }
        let (fine, refused): (Vec<_>, Vec<_>) = all.iter().partition(|(_, line)| self.holds(base, line));
        self.accepted.extend(fine.into_iter().map(|(key, _)| key.path.clone()));
        for (key, line) in refused {
            let is_word = key.rule.starts_with("one of ") || key.rule == "true or false";
            if !is_word && self.accepted.contains(&key.path) {
                continue;
            }
            for (other, beside) in all.iter().filter(|(other, _)| other.path != key.path) {
                if self.holds(base, &format!("{line}{beside}")) {
                    self.accepted.extend([key.path.clone(), other.path.clone()]);
                }
            }
        }
    }
}

/// The entries of all registries, as the tables that choose them.
fn entries() -> Vec<[&'static str; 2]> {
    let heads = bella::model::head::HEADS.iter().map(|entry| ["head", entry.key]);
    let sets = bella::data::DATASETS.iter().map(|entry| ["data", entry.key]);
    let subspaces = bella::subspace::SUBSPACES.iter().map(|entry| ["subspace", entry.key]);
    let methods = bella::methods::METHODS.iter().map(|entry| ["method", entry.key]);
    let optimizers = bella::optimizers::OPTIMIZERS.iter().map(|entry| ["optimizer", entry.key]);
    heads.chain(sets).chain(subspaces).chain(methods).chain(optimizers).collect()
}

/// Sets the keys of an entry in up to three configs: those that have the entry, and others with its table of required keys.
fn set_entry(found: &mut Found, bases: &[Base], keys: &[Key], [table, key]: [&str; 2]) {
    let path = format!("{table}.{key}");
    // A published split is chosen by a key that all sets share.
    let beside = |key: &&Key| table == "data" && key.path == "data.*.validation";
    let own: Vec<&Key> = keys_of(keys, &path).into_iter().chain(keys.iter().filter(beside)).collect();
    let (with, without): (Vec<&Base>, Vec<&Base>) =
        bases.iter().partition(|base| base.entries.get(table).is_some_and(|entry| entry == key));
    let text = table_of(keys, &path);
    let made = without.into_iter().filter_map(|base| base.beside(&text).ok());
    let mut tried = 0;
    for base in with.into_iter().map(|base| base.beside("").unwrap()).chain(made).take(3) {
        tried += 1;
        found.set(&base, &own);
        if own.iter().all(|key| found.accepted.contains(&key.path)) {
            break;
        }
    }
    assert!(tried > 0 || TABLES.iter().any(|text| text.starts_with(&format!("[{path}]"))), "nothing takes\n{text}");
}

#[test]
fn what_a_run_saves_opens_it_again() {
    let (keys, mut found) = (all(), Found::default());
    let mut bases = shipped();
    bases.push(Base::of("tiny".into(), Tree::parse("tiny", &tiny()).unwrap()).unwrap());
    bases.iter().for_each(|base| assert!(found.holds(base, "")));
    entries().into_iter().for_each(|entry| set_entry(&mut found, &bases, &keys, entry));
    for text in TABLES {
        let table = text[1..].split(']').next().unwrap();
        let base =
            bases.iter().find_map(|base| base.beside(text).ok()).unwrap_or_else(|| panic!("nothing takes\n{text}"));
        found.set(&base, &keys_of(&keys, table));
    }
    let named = |end: &str| bases.iter().find(|base| base.name.ends_with(end)).unwrap_or_else(|| panic!("no {end}"));
    for (base, tables) in [
        ("tiny", &["data.*", "train", "checkpoint", "method.svgd"][..]),
        ("methods/ivon.toml", &["train"]),
        ("configs/domainnet.toml", &["data.*"]),
        ("glue/sst2.toml", &["data.*", "train"]),
        ("regression/uci.toml", &["train", "checkpoint"]),
        ("vqa/vqa-v2-single.toml", &["train"]),
    ] {
        tables.iter().for_each(|table| found.set(named(base), &keys_of(&keys, table)));
    }
    found.set(named("tiny"), &keys.iter().filter(|key| !key.path.contains('.')).collect::<Vec<_>>());
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
    let untried = keys.iter().map(|key| key.path.as_str()).filter(|path| !accepted.contains(*path));
    let untried = untried.map(|path| format!("{path}: no value of it was accepted: give this test one"));
    let wrong: Vec<String> = failures.into_iter().chain(untried).collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Rules that connect settings of a training come and go. A run that followed its settings is read all the same.
#[test]
fn a_finished_run_may_break_rules_of_training() {
    let (method, optimizer) = ("[method.svgd]\nparticles = 2\ngamma = 0.01\n", "[optimizer.adamw]\nlr = 2e-3\n");
    let smile = "[method.mclmc]\ndynamics = \"smile\"\ness = 30\nfit_steps = 1\nstart = 200\nevery = 1\n";
    let cases = [
        (optimizer, "[optimizer.sgd]\nlr = 0.1\nmomentum = 0.0\nnesterov = true\n".into(), "sgd.nesterov = true"),
        (method, "[method.laplace]\nparameters = \"last-layer\"\ntokens = \"reduce\"\n".into(), "laplace.tokens"),
        (method, format!("{smile}energy_variance = 1e-3\n"), "mclmc.energy_variance"),
    ];
    for (from, to, key) in cases {
        let parsed = |text: &str| Tree::parse("tiny.toml", text).unwrap();
        let text = tiny().replace(from, &to);
        let refused = Experiment::read(&parsed(&text)).err().unwrap().to_string();
        assert_has(&refused, &[key]);
        let read = Experiment::read_to_evaluate(&parsed(&text)).unwrap_or_else(|why| panic!("{why}"));
        let saved = toml::to_string(&read.resolved()).unwrap();
        assert_eq!(Experiment::read_to_evaluate(&parsed(&saved)).unwrap().resolved(), read.resolved());
        let wrong = tiny().replace(from, &format!("{to}unheard = 1\n"));
        let refused = Experiment::read_to_evaluate(&parsed(&wrong)).err().unwrap().to_string();
        assert_has(&refused, &["unheard = 1: unknown key"]);
    }
    // A value that is absent has no other one in its place.
    let absent = [
        ("[method.laplace]\ntuning = \"fixed\"\n", "laplace.prior_precision: is required"),
        ("[method.ibdr]\nparticles = 2\n", "ibdr.std: is required"),
    ];
    for (to, why) in absent {
        let tree = Tree::parse("tiny.toml", &tiny().replace(method, to)).unwrap();
        assert_has(&Experiment::read_to_evaluate(&tree).err().unwrap().to_string(), &[why]);
    }
}
