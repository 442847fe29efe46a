use super::*;
use crate::schema::limits;

mod garbage;

crate::schema::words! {
    enum Drive { Own = "own", Shared = "shared" }
}

/// Reads a required word.
fn drive(reader: &Reader, key: &str) -> Drive {
    reader.choice(key).required_or(Drive::Own, "one of own, shared")
}

/// Returns the result of `read` on `text`, or the messages.
fn read<T>(text: &str, read: impl FnOnce(&Reader) -> T) -> Result<T, String> {
    let tree = Tree::parse("x.toml", text).map_err(|problems| problems.to_string())?;
    let root = Reader::root(&tree);
    let value = read(&root);
    root.close(value).map_err(|problems| problems.to_string())
}

/// Returns the messages from reading `text`.
fn complaints<T>(text: &str, reader: impl FnOnce(&Reader) -> T) -> String {
    read(text, reader).err().unwrap_or_default()
}

#[test]
fn values_are_read() {
    let text = "i = -3\nn = 5\nx = 2\ny = 1e-3\nb = true\ns = 'hi'\np = 'a/b'\n\
                xs = [1, 2.5]\none = 4\nis = [1, 2]\nss = ['u']\nc = 'shared'\n";
    let done = read(text, |r| {
        assert_eq!(r.integer("i", -5..=5).required(), -3);
        assert_eq!(r.count("n", 2..=usize::MAX).required(), 5);
        assert_eq!(r.float("x", limits::above(1.0)).required(), 2.0);
        assert_eq!(r.float("y", limits::any()).or(0.0), 1e-3);
        assert!(r.boolean("b").required());
        assert_eq!(r.string("s").required(), "hi");
        assert_eq!(r.path("p").required(), std::path::absolute("a/b").unwrap());
        assert_eq!(r.floats("xs", limits::any()).required(), [1.0, 2.5]);
        assert_eq!(r.floats_or_one("one", limits::any()).required(), [4.0]);
        assert_eq!(r.floats_or_one("xs", limits::any()).required(), [1.0, 2.5]);
        assert_eq!(r.integers("is", 0..=9).required(), [1, 2]);
        assert_eq!(r.strings("ss").required(), ["u"]);
        assert_eq!(drive(r, "c"), Drive::Shared);
        assert_eq!(r.choice::<Drive>("none").optional(), None);
        assert_eq!(r.count("none", 0..=9).or_else(|| 7), 7);
        assert_eq!(r.string("s").map(|s| s.len()).optional(), Some(2));
        assert!(r.has("i") && !r.has("none") && !r.is_table("i"));
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn numbers_out_of_range() {
    let text = "a = 1\nb = 1\nc = '1'\nd = 1.5\ne = -2\nf = 20\n";
    let open = 2..=usize::MAX;
    let expected = "\
x.toml:1: a = 1: must be at least 2
x.toml:2: b = 1: must be a whole number from 2 to 10000
x.toml:3: c = '1': must be a whole number, at least 2
x.toml:4: d = 1.5: must be a whole number
x.toml:5: e = -2: must be at least 0
x.toml:6: f = 20: must be at most 9";
    let found = complaints(text, |r| {
        r.count("a", open.clone()).required();
        r.integer("b", 2..=10_000).required();
        r.count("c", open).required();
        r.integer("d", i64::MIN..=i64::MAX).required();
        r.count("e", 0..=usize::MAX).required();
        r.integer("f", i64::MIN..=9).required();
    });
    assert_eq!(found, expected);
}

#[test]
fn real_numbers_out_of_bounds() {
    let text = "a = 0\nb = -1e-3\nc = 1.5\nd = 1\ne = nan\nf = inf\ng = 'x'\nh = true\n";
    let expected = "\
x.toml:1: a = 0: must be above 0
x.toml:2: b = -1e-3: must be at least 0
x.toml:3: c = 1.5: must be a number from 0 to 1
x.toml:4: d = 1: must be at least 0 and below 1
x.toml:5: e = nan: must be a finite number
x.toml:6: f = inf: must be a finite number
x.toml:7: g = 'x': must be a number
x.toml:8: h = true: must be a number, above 0.5";
    let found = complaints(text, |r| {
        r.float("a", limits::above(0.0)).required();
        r.float("b", limits::at_least(0.0)).required();
        r.float("c", limits::between(0.0, 1.0)).required();
        r.float("d", limits::from_below(0.0, 1.0)).required();
        r.float("e", limits::any()).required();
        r.float("f", limits::above(0.0)).required();
        r.float("g", limits::any()).required();
        r.float("h", limits::above(0.5)).required();
    });
    assert_eq!(found, expected);
}

#[test]
fn numbers_beyond_64_bits() {
    let text =
        "a = 9223372036854775808\nb = -9223372036854775809\nc = [1, 0xffffffffffffffffff]\nd = 99999999999999999999\n";
    let expected = "\
x.toml:1: a = 9223372036854775808: does not fit into 64 bits: must be a whole number, at least 0
x.toml:2: b = -9223372036854775809: does not fit into 64 bits: must be a number
x.toml:3: c[1] = 0xffffffffffffffffff: does not fit into 64 bits: must be a whole number
x.toml:4: d = 99999999999999999999: unknown key; known: a, b, c; did you mean `a`?";
    let found = complaints(text, |r| {
        r.count("a", 0..=usize::MAX).required();
        r.float("b", limits::any()).required();
        r.integers("c", i64::MIN..=i64::MAX).required();
    });
    assert_eq!(found, expected);
}

#[test]
fn other_types_and_words() {
    let text = "a = 'yes'\nb = 3\nc = ' '\nd = 2024-01-01\ne = 'onw'\nf = 1\n";
    let expected = "\
x.toml:1: a = 'yes': must be true or false, without quotes
x.toml:2: b = 3: must be a text in quotes
x.toml:3: c = ' ': must not be empty
x.toml:4: d = 2024-01-01: must be a text in quotes
x.toml:5: e = 'onw': must be one of own, shared; did you mean `own`?
x.toml:6: f = 1: must be one of own, shared, in quotes";
    let found = complaints(text, |r| {
        r.boolean("a").required();
        r.string("b").required();
        r.string("c").required();
        r.path("d").required();
        drive(r, "e");
        drive(r, "f");
    });
    assert_eq!(found, expected);
}

/// A list of words is a choice of them.
#[test]
fn words_stand_in_a_list_once() {
    let found = complaints("a = ['own', 'shared']\nb = ['own', 'shared', 'own']\n", |r| {
        r.choices::<Drive>("a").required();
        r.choices::<Drive>("b").required();
    });
    assert_eq!(found, "x.toml:2: b[2] = 'own': is in the list already: leave it out");
}

#[test]
fn lists_name_the_item() {
    let text = "a = [1,\n  -2, 'x']\nb = []\nc = 3\nd = 'x'\ne = [1, 99]\nf = ['', 1]\ng = -1\n";
    let expected = "\
x.toml:2: a[1] = -2: must be at least 0
x.toml:2: a[2] = 'x': must be a number, at least 0
x.toml:3: b = []: must not be empty
x.toml:4: c = 3: must be a list, each a number
x.toml:5: d = 'x': must be a number, above 0, or a list of such
x.toml:6: e[1] = 99: must be a whole number from 0 to 9
x.toml:7: f[0] = '': must not be empty
x.toml:7: f[1] = 1: must be a text in quotes
x.toml:8: g = -1: must be above 0";
    let found = complaints(text, |r| {
        r.floats("a", limits::at_least(0.0)).required();
        r.floats("b", limits::any()).required();
        r.floats("c", limits::any()).required();
        r.floats_or_one("d", limits::above(0.0)).required();
        r.integers("e", 0..=9).required();
        r.strings("f").required();
        r.floats_or_one("g", limits::above(0.0)).required();
    });
    assert_eq!(found, expected);
}

#[test]
fn missing_keys() {
    let expected = "\
x.toml: epochs is required: how long to train
x.toml: method.svgd.drive is required: own or shared
x.toml: method.svgd.lr is required: a list, each a number, above 0
x.toml: method.svgd.particles is required: a whole number, at least 2
x.toml: train.steps.warm is required: true or false";
    let found = complaints("[method.svgd]\n", |r| {
        r.count("epochs", 1..=9).required_because("how long to train");
        let method = r.section("method");
        let svgd = method.section("svgd");
        svgd.count("particles", 2..=usize::MAX).required();
        svgd.floats("lr", limits::above(0.0)).required();
        svgd.choice::<Drive>("drive").required_or(Drive::Own, "own or shared");
        svgd.finish();
        method.finish();
        let train = r.section("train");
        let steps = train.section("steps");
        steps.boolean("warm").required();
        steps.finish();
        train.finish();
    });
    assert_eq!(found, expected);
}

#[test]
fn a_value_in_place_of_a_table_is_reported_once() {
    let found = complaints("train = 3\n", |r| {
        let train = r.section("train");
        train.count("epochs", 1..=9).required();
        train.floats("lr", limits::any()).required();
        train.problem("epochs", "never shown");
        assert!(train.section("inner").one_of_is_none());
        train.finish();
    });
    assert_eq!(found, "x.toml:1: train = 3: must be a table: write [train] and its keys below");
}

impl Reader<'_> {
    fn one_of_is_none(self) -> bool {
        let none = self.one_of("x", &["a"]).is_none();
        self.finish();
        none
    }
}

#[test]
fn unknown_keys() {
    let text = "gama = 1\n[a]\n'o\\dd k' = [1]\n[b]\nx = 1\n[train]\nepoch = 3\n";
    let expected = "\
x.toml:1: gama = 1: unknown key; known: a, gamma, train; did you mean `gamma`?
x.toml:3: a.\"o\\\\dd k\" = [1]: unknown key: this table takes none
x.toml:4: b: unknown key; known: a, gamma, train; did you mean `a`?
x.toml:7: train.epoch = 3: unknown key; known: epochs; did you mean `epochs`?";
    let found = complaints(text, |r| {
        let _ = r.float("gamma", limits::any()).optional();
        r.section("a").finish();
        let train = r.section("train");
        let _ = train.count("epochs", 1..=9).optional();
        train.finish();
    });
    assert_eq!(found, expected);
}

#[test]
fn problems_of_the_caller() {
    let text = "seed = 1\n[data.x]\nroot = 'd'\n";
    let expected = "\
x.toml:1: seed = 1: is taken
x.toml:2: data.x.files: none of them is there
x.toml:3: data.x.root = 'd': has no images";
    let found = complaints(text, |r| {
        r.problem("seed", "is taken");
        let (_, data) = r.one_of("data", &["x"]).expect("a data set");
        data.problem("root", "has no images");
        data.problem("files", "none of them is there");
        data.finish();
    });
    assert_eq!(found, expected);
}

#[test]
fn all_layers_are_reported_in_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = [folder.path().join("b.toml"), folder.path().join("a.toml")];
    std::fs::write(&files[0], "[train]\nepochs = 0\nlr = 1\n").expect("a file");
    std::fs::write(&files[1], "\n[train]\nlr = 0\n").expect("a file");
    let sets = ["train.drive=onw".to_owned()];
    let tree = Tree::load(&files, &sets, &["method"]).expect("valid TOML");
    let root = Reader::root(&tree);
    let train = root.section("train");
    train.count("epochs", 1..=9).required();
    train.float("lr", limits::above(0.0)).required();
    drive(&train, "drive");
    train.count("steps", 1..=9).required();
    train.finish();
    root.integer("seed", 0..=9).required();
    let problems = root.close(()).expect_err("mistakes").to_string();
    let prefix = format!("{}/", folder.path().display());
    let expected = "\
b.toml: train.steps is required: a whole number from 1 to 9
b.toml + a.toml: seed is required: a whole number from 0 to 9
b.toml:2: train.epochs = 0: must be a whole number from 1 to 9
a.toml:3: train.lr = 0: must be above 0
--set: train.drive = onw: must be one of own, shared; did you mean `own`?";
    assert_eq!(problems.replace(&prefix, ""), expected);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the reader of [train] was not finished")]
fn an_unfinished_reader_is_noticed() {
    let tree = Tree::parse("x.toml", "").expect("valid TOML");
    let root = Reader::root(&tree);
    drop(root.section("train"));
}

const METHODS: [&str; 3] = ["map", "ensemble", "svgd"];

fn method(text: &str) -> Result<Option<String>, String> {
    read(text, |r| {
        let (name, reader) = r.one_of("method", &METHODS)?;
        reader.finish();
        Some(name)
    })
}

#[test]
fn one_variant_is_chosen() {
    assert_eq!(method("[method.svgd]\n"), Ok(Some("svgd".to_owned())));
    assert_eq!(method("method.map = {}"), Ok(Some("map".to_owned())));
    let all = "[method.map], [method.ensemble], [method.svgd]";
    let cases = [
        ("", format!("x.toml: method is required: one of {all}")),
        ("\n[method]", format!("x.toml:2: method: needs one of {all}")),
        (
            "[method.svgd]\n[method.map]\n",
            "x.toml:2: [method.map] and [method.svgd] are both given: choose one".to_owned(),
        ),
        (
            "[method.svdg]\n",
            "x.toml:1: unknown method `svdg`; known: map, ensemble, svgd; did you mean `svgd`?".to_owned(),
        ),
        ("method = 'svgd'", "x.toml:1: method = 'svgd': must be a table: write [method.svgd]".to_owned()),
        ("method = 3", format!("x.toml:1: method = 3: must be a table: one of {all}")),
        (
            "method.svgd = 3",
            "x.toml:1: method.svgd = 3: must be a table: write [method.svgd] and its keys below".to_owned(),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(method(text), Err(expected), "{text}");
    }
}
