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
    assert_eq!(leaves(&[base, "[method.svgd]\ngamma = 0.1\n"], &[]), "method.svgd.gamma=0.1 method.svgd.particles=5");
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
fn a_number_beyond_64_bits_is_refused() {
    assert_eq!(
        messages(Tree::parse("x.toml", "a = 1\nb = 9223372036854775808")),
        "x.toml:2: 9223372036854775808 does not fit into 64 bits"
    );
}

#[test]
fn unreadable_files_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("missing.toml");
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [b'a', 0xff, 0xfe]).expect("a file");
    let prefix = format!("{}/", folder.path().display());
    let text = messages(Tree::load(&[missing, binary], &[], &CHOICES)).replace(&prefix, "");
    assert_eq!(
        text,
        "missing.toml: cannot be read: No such file or directory (os error 2)\n\
         binary.toml: is not UTF-8 text (byte 1): is this a TOML file?"
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
