//! A config as written: several TOML files and `--set key=value` arguments, parsed and merged. Every value keeps the
//! place where it was written.
//!
//! Files are merged from left to right, followed by the `--set` arguments. In the choice tables that the caller names,
//! a variant replaces the previous one. All mistakes are collected; none stops the reading of the rest.

use std::path::{Path, PathBuf};

use super::node::Problems;
use super::node::{Node, Origin, SET, Table, Value, merge_root};
use super::syntax;
use crate::base::files::read_file;
use crate::base::hash::check_toml_of_anyone;

/// The merged config.
#[derive(Clone, Debug)]
pub struct Tree {
    pub root: Node,
}

impl Tree {
    /// Reads `files`, merges them from left to right, and then applies `sets` (`a.b.c=value` each). `choices` names the
    /// top-level tables that hold one variant each, such as `[method.svgd]`: naming another variant replaces the
    /// previous one.
    ///
    /// # Errors
    /// Fails with all files that cannot be read, all syntax errors of the others and all malformed `sets`, at once.
    pub fn load(files: &[PathBuf], sets: &[String], choices: &[&str]) -> Result<Tree, Problems> {
        let mut problems = Problems::default();
        let mut layers = Vec::new();
        for (order, path) in files.iter().enumerate() {
            let origin = Origin::File { order, file: path.display().to_string().into(), line: 0 };
            match read_text(path) {
                Ok(text) if let Err(changed) = check_toml_of_anyone(&text) => {
                    problems.push(origin, format!("{changed:#}"))
                }
                Ok(text) => layers.extend(syntax::parse_file(&text, &origin, &mut problems)),
                Err(why) => problems.push(origin, why),
            }
        }
        for (order, argument) in sets.iter().enumerate() {
            layers.extend(syntax::parse_set(argument, order, &mut problems));
        }
        let mut table = Table::new();
        for layer in layers {
            merge_root(&mut table, layer, choices);
        }
        let names: Vec<String> = files.iter().map(|p| p.display().to_string()).collect();
        problems.into_result(Tree::new(table, &names))
    }

    /// Parses one text, which messages call `name`.
    ///
    /// # Errors
    /// Fails with all syntax errors of the text.
    pub fn parse(name: &str, text: &str) -> Result<Tree, Problems> {
        let mut problems = Problems::default();
        let origin = Origin::File { order: 0, file: name.into(), line: 0 };
        let table = syntax::parse_file(text, &origin, &mut problems).unwrap_or_default();
        problems.into_result(Tree::new(table, &[name.to_owned()]))
    }

    /// Merges this tree into `base`, like a file that follows it. `choices` has the same meaning as in [`Tree::load`].
    pub fn over(self, base: Tree, choices: &[&str]) -> Tree {
        let Node { value, written, origin } = self.root;
        let (Value::Table(mut table), Value::Table(own)) = (base.root.value, value) else {
            unreachable!("the root of a tree is a table")
        };
        merge_root(&mut table, own, choices);
        Tree { root: Node { value: Value::Table(table), written, origin } }
    }

    /// Returns whether there is a top-level entry `key`.
    pub fn has(&self, key: &str) -> bool {
        matches!(&self.root.value, Value::Table(table) if table.contains_key(key))
    }

    /// Returns the entry of a top-level table that holds one, such as `linear` of `[head.linear]`.
    pub fn chosen(&self, table: &str) -> Option<&str> {
        let Value::Table(all) = &self.root.value else { return None };
        let Value::Table(entries) = &all.get(table)?.value else { return None };
        entries.keys().next().map(String::as_str).filter(|_| entries.len() == 1)
    }

    /// Returns whether the config has no entry.
    pub fn is_empty(&self) -> bool {
        matches!(&self.root.value, Value::Table(table) if table.is_empty())
    }

    fn new(table: Table, names: &[String]) -> Tree {
        let origin = if names.is_empty() {
            Origin::Set { order: 0, option: SET }
        } else {
            Origin::File { order: 0, file: names.join(" + ").into(), line: 0 }
        };
        Tree { root: Node { value: Value::Table(table), written: String::new(), origin } }
    }
}

/// The largest number of bytes of a config.
const LARGEST: u64 = 16 << 20;

fn read_text(path: &Path) -> Result<String, String> {
    if path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > LARGEST) {
        return Err(format!("has more than {LARGEST} bytes: is this a TOML file?"));
    }
    if path.is_dir() {
        let config = path.join("config.toml");
        let way_out = if config.is_file() { format!(": name {}", config.display()) } else { String::new() };
        return Err(format!("is a folder, not a TOML file{way_out}"));
    }
    let bytes = read_file(path).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("is not UTF-8 text (byte {at}): is this a TOML file?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::node::{Origin, SET};

    const CHOICES: [&str; 5] = ["head", "data", "subspace", "method", "optimizer"];

    fn messages(result: Result<Tree, Problems>) -> String {
        match result {
            Ok(_) => String::new(),
            Err(problems) => problems.to_string(),
        }
    }

    /// Loads files with the given texts, named 0.toml, 1.toml, …
    fn load(texts: &[&str], sets: &[&str]) -> (Result<Tree, Problems>, String) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut files = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let path = folder.path().join(format!("{i}.toml"));
            std::fs::write(&path, text).expect("a file in it");
            files.push(path);
        }
        let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
        let prefix = format!("{}/", folder.path().display());
        (Tree::load(&files, &sets, &CHOICES), prefix)
    }

    /// Returns the values of the merged config, as `key=text` for every leaf.
    fn leaves(texts: &[&str], sets: &[&str]) -> String {
        fn walk(node: &Node, path: &str, found: &mut Vec<String>) {
            match &node.value {
                Value::Table(table) if table.is_empty() => found.push(format!("{path}={{}}")),
                Value::Table(table) => {
                    for (key, inner) in table {
                        let dot = if path.is_empty() { "" } else { "." };
                        walk(inner, &format!("{path}{dot}{key}"), found);
                    }
                }
                _ => found.push(format!("{path}={}", node.written)),
            }
        }
        let tree = load(texts, sets).0.expect("no mistakes");
        let mut found = Vec::new();
        walk(&tree.root, "", &mut found);
        found.join(" ")
    }

    #[test]
    fn tables_merge_and_values_replace() {
        let base = "seed = 1\nlr = [1, 2]\n[train]\nepochs = 7\nbatch_size = 8\n";
        let over = "lr = [3]\n[train]\nepochs = 2\n";
        assert_eq!(leaves(&[base, over], &[]), "lr=[3] seed=1 train.batch_size=8 train.epochs=2");
    }

    #[test]
    fn variants_replace_each_other_and_one_variant_merges() {
        let base = "[method.svgd]\nparticles = 5\n";
        assert_eq!(leaves(&[base, "[method.ivon]\nlr = 0.1\n"], &[]), "method.ivon.lr=0.1");
        assert_eq!(
            leaves(&[base, "[method.svgd]\ngamma = 0.1\n"], &[]),
            "method.svgd.gamma=0.1 method.svgd.particles=5"
        );
        assert_eq!(leaves(&[base], &["method.ivon.lr=0.2"]), "method.ivon.lr=0.2");
        assert_eq!(leaves(&[base], &["method.map={}"]), "method.map={}");
        assert_eq!(leaves(&[base, "[method]\n"], &[]), "method.svgd.particles=5");
        // In other tables, the same names are plain keys.
        assert_eq!(leaves(&["[train.svgd]\na = 1\n", "[train.ivon]\nb = 2\n"], &[]), "train.ivon.b=2 train.svgd.a=1");
    }

    #[test]
    fn sets_take_toml_values_and_bare_words() {
        let sets = [
            "a.text=own",
            "a.path = heads/x.safetensors ",
            "a.list=[1, 2.5]",
            "a.flag=true",
            "a.\"b c\"=3",
            "a.text2=\"x=y\"",
        ];
        assert_eq!(
            leaves(&[], &sets),
            "a.b c=3 a.flag=true a.list=[1, 2.5] a.path=heads/x.safetensors a.text=own a.text2=\"x=y\""
        );
        assert_eq!(leaves(&["seed = 1"], &["seed=2", "seed=3"]), "seed=3");
        let tree = load(&[], &["a=1"]).0.expect("no mistakes");
        let Value::Table(table) = &tree.root.value else {
            panic!("the root is a table");
        };
        assert_eq!(table["a"].value, Value::Integer(1));
        assert_eq!(table["a"].origin, Origin::Set { order: 0, option: SET });
    }

    #[test]
    fn bad_sets_are_all_named() {
        let sets = ["novalue", "=3", "a..b=1", "a=", "a=[1", "#a=1", "a\nb=1"];
        let (result, _) = load(&[], &sets);
        let expected = "\
--set: `novalue`: must be key=value, such as train.epochs=3
--set: `=3`: the key before `=` must be dotted words, such as train.epochs
--set: `a..b=1`: the key before `=` must be dotted words, such as train.epochs
--set: `a=`: has no value after `=`; an empty text is '\"\"'
--set: `a=[1`: the value is not valid TOML: unclosed array, expected `]`
--set: `#a=1`: the key before `=` must be dotted words, such as train.epochs
--set: `a b=1`: the key before `=` must be dotted words, such as train.epochs";
        assert_eq!(messages(result), expected);
    }

    #[test]
    fn syntax_errors_of_all_files_have_lines() {
        let (result, prefix) = load(&["seed = 1\nlr = = 3\n", "a = 1\nb = 2\na = 3\n"], &["x"]);
        let expected = "\
0.toml:2: not valid TOML: extra `=`, expected nothing, in `lr = = 3`
1.toml:3: not valid TOML: duplicate key, in `a = 3`
--set: `x`: must be key=value, such as train.epochs=3";
        assert_eq!(messages(result).replace(&prefix, ""), expected);
    }

    #[test]
    fn unreadable_files_are_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let missing = folder.path().join("missing.toml");
        let binary = folder.path().join("binary.toml");
        std::fs::write(&binary, [b'a', 0xff, 0xfe]).expect("a file");
        let [run, empty] = ["run", "empty"].map(|name| folder.path().join(name));
        for folder in [&run, &empty] {
            std::fs::create_dir(folder).expect("a folder");
        }
        std::fs::write(run.join("config.toml"), "").expect("a file");
        let prefix = format!("{}/", folder.path().display());
        let text = messages(Tree::load(&[missing, binary, run, empty], &[], &CHOICES)).replace(&prefix, "");
        assert_eq!(
            text,
            "missing.toml: cannot be read: No such file or directory (os error 2)\n\
         binary.toml: is not UTF-8 text (byte 1): is this a TOML file?\n\
         run: is a folder, not a TOML file: name run/config.toml\n\
         empty: is a folder, not a TOML file"
        );
    }

    #[test]
    fn values_know_the_line_and_text_they_were_written_as() {
        let text = "# héllo\n\n[a]\nb = 1e-3\nc = [\n  1,\n  0x10,\n]\nd.e = 'x'\n";
        let tree = Tree::parse("x.toml", text).expect("no mistakes");
        let Value::Table(root) = &tree.root.value else {
            panic!("the root is a table");
        };
        assert_eq!(root["a"].origin.to_string(), "x.toml:3");
        let Value::Table(a) = &root["a"].value else {
            panic!("a is a table");
        };
        let line = |node: &Node| format!("{} {}", node.origin, node.written);
        assert_eq!(line(&a["b"]), "x.toml:4 1e-3");
        assert_eq!(line(&a["c"]), "x.toml:5 [ 1, 0x10, ]");
        let Value::Array(items) = &a["c"].value else {
            panic!("c is a list");
        };
        assert_eq!(line(&items[1]), "x.toml:7 0x10");
        assert_eq!(items[1].value, Value::Integer(16));
        assert_eq!(a["d"].origin.to_string(), "x.toml:9");
    }
}
