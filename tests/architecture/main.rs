//! The floor plan: modules form layers in the order that `src/lib.rs` shows, imports point down only, nothing imports in a
//! circle (neither modules nor the files of one folder), and no file lies loose in `src/`.

mod imports;
mod rules;
mod source;

use std::path::Path;

use rules::violations;

/// Every source file below `folder`, its path from `root` and its text.
fn sources(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn imports_point_down_and_nothing_is_loose() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &root, &mut found);
    found.sort();
    assert!(found.len() > 100, "{} files are too few to be the program", found.len());
    let violations = violations(&found);
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// What libtorch loads was written by bella from what it had checked, and tried; a second way in would bypass that.
#[test]
fn archives_reach_libtorch_in_one_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &root, &mut found);
    let calls = |text: &str| {
        ["CModule::load", "CModule::f_load", "atm_load"].map(|call| text.matches(call).count()).iter().sum()
    };
    let places: Vec<(String, usize)> = found.into_iter().map(|(file, text)| (file, calls(&text))).collect();
    let places: Vec<(String, usize)> = places.into_iter().filter(|(_, calls)| *calls > 0).collect();
    assert_eq!(places, [("model/archive/clean.rs".to_string(), 1)]);
}

/// The violations of a made-up tree of two layers, `ground` below `roof`, with `files` besides.
fn of(files: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec![
        (
            "lib.rs",
            "//! Layers.\n\n// The ground.\npub mod ground;\n\n// What stands on it.\npub mod roof;\npub mod tower;\n",
        ),
        ("main.rs", "fn main() {}"),
    ];
    all.extend(files);
    violations(&all.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect::<Vec<_>>())
}

#[test]
fn a_clean_tree_passes() {
    let found = of(&[
        ("ground/mod.rs", "mod stone;\npub use stone::{Stone, lay};\n"),
        ("ground/stone.rs", "pub struct Stone;\npub fn lay() {}\n"),
        ("roof/mod.rs", "mod tile;\nuse crate::ground::Stone;\nfn cover(_: Stone) { tile::nail() }"),
        ("roof/tile.rs", "pub fn nail() { crate::ground::lay() }"),
        ("tower/mod.rs", "//! See [`crate::roof`].\nconst NAME: &str = \"crate::roof\"; // crate::roof\n"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn an_upward_import_is_found_however_it_is_written() {
    for text in [
        "use crate::roof::Tile;",
        "use crate::{roof::{Tile, self}};",
        "pub use super::roof as above;",
        "fn lay() { let _ = crate::roof::Tile; }",
        "fn lay(c: char) -> bool { c == '\"' && crate::roof::Tile.fits('\"') }",
    ] {
        let found = of(&[("ground/mod.rs", text), ("roof/mod.rs", "pub struct Tile;")]);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains("ground/mod.rs imports roof/mod.rs"), "{found:?}");
    }
}

#[test]
fn modules_of_one_layer_do_not_know_each_other() {
    let found = of(&[("roof/mod.rs", "use crate::tower::Bell;"), ("tower/mod.rs", "pub struct Bell;")]);
    assert!(found.len() == 1 && found[0].contains("roof/mod.rs imports tower/mod.rs"), "{found:?}");
}

#[test]
fn an_import_through_the_front_of_a_folder_counts_for_the_file_that_defines_the_name() {
    let found = of(&[
        ("ground/mod.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n"),
        ("ground/a.rs", "use super::B;\npub struct A(B);"),
        ("ground/b.rs", "use crate::ground::A;\npub struct B;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("circle of ground/a, ground/b"), "{found:?}");
    assert!(found[0].contains("ground/a.rs -> ground/b.rs (B)"), "{found:?}");
}

#[test]
fn a_front_that_uses_its_files_and_is_used_by_them_is_a_circle() {
    let found = of(&[
        ("ground/mod.rs", "mod a;\nuse a::A;\npub fn lay() -> A { A }\n"),
        ("ground/a.rs", "pub struct A;\nfn again() { super::lay(); }"),
    ]);
    assert!(found.len() == 1 && found[0].contains("circle of ground, ground/a"), "{found:?}");
}

#[test]
fn folders_of_a_module_form_no_circle_either() {
    let found = of(&[
        ("ground/mod.rs", "mod left;\nmod right;\n"),
        ("ground/left/mod.rs", "pub mod a;\npub mod b;\n"),
        ("ground/right/mod.rs", "pub mod c;\npub mod d;\n"),
        ("ground/left/a.rs", "use crate::ground::right::c;"),
        ("ground/left/b.rs", ""),
        ("ground/right/c.rs", ""),
        ("ground/right/d.rs", "use crate::ground::left::b;"),
    ]);
    assert!(found.len() == 1 && found[0].contains("circle of ground/left, ground/right"), "{found:?}");
}

#[test]
fn tests_may_import_what_they_like() {
    let inline = "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::roof::Tile;\n}\n#[cfg(test)]\nuse crate::roof::Tile;\n";
    let found = of(&[
        ("ground/mod.rs", inline),
        ("roof/mod.rs", "#[cfg(test)]\nmod tests;\n"),
        ("roof/tests.rs", "use crate::tower::Bell;"),
        ("tower/mod.rs", ""),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_loose_file_and_a_module_without_a_layer_are_found() {
    let found = of(&[("shed.rs", ""), ("ground/mod.rs", ""), ("cellar/mod.rs", "")]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().any(|text| text.contains("shed.rs lies loose")), "{found:?}");
    assert!(found.iter().any(|text| text.contains("cellar stands in no layer")), "{found:?}");
}
