//! The rules of the floor plan.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Edges, House, Path};

/// Everything that breaks the floor plan, a line each.
pub fn violations(files: &[(String, String)]) -> Vec<String> {
    let house = House::read(files);
    let edges = house.edges();
    let lib = files.iter().find(|(file, _)| file == "lib.rs").map_or("", |(_, text)| text);
    let layers = layers(lib);
    let mut found = loose(files);
    found.extend(upward(&house, &edges, &layers));
    found.extend(circles(&house, &edges));
    found
}

/// The layers of `src/lib.rs` from the ground up: its `mod` lines, where a blank line begins the next layer.
fn layers(lib: &str) -> Vec<Vec<String>> {
    let mut layers = vec![Vec::new()];
    for line in lib.lines().map(str::trim) {
        let module = line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        if let (Some(module), Some(layer)) = (module, layers.last_mut()) {
            layer.push(module.to_owned());
        } else if line.is_empty() {
            layers.push(Vec::new());
        }
    }
    layers.retain(|layer| !layer.is_empty());
    layers
}

/// Files beside `main.rs` and `lib.rs`.
fn loose(files: &[(String, String)]) -> Vec<String> {
    let names = files.iter().map(|(file, _)| file.as_str());
    let loose = names.filter(|file| !file.contains('/') && !["main.rs", "lib.rs"].contains(file));
    loose.map(|file| format!("{file} lies loose in src/: a module is a folder")).collect()
}

/// Imports of a module in the same layer or in a higher one, and modules without a layer.
fn upward(house: &House, edges: &Edges, layers: &[Vec<String>]) -> Vec<String> {
    let layer = |module: &String| layers.iter().position(|layer| layer.contains(module));
    let modules: BTreeSet<&String> = house.modules.keys().filter_map(|path| path.first()).collect();
    let homeless = modules.iter().filter(|module| layer(module).is_none());
    let mut found: Vec<String> = homeless.map(|module| format!("{module} stands in no layer of src/lib.rs")).collect();
    for ((from, to), names) in edges {
        if let (Some(upper), Some(lower)) = (layer(&from[0]), layer(&to[0]))
            && from[0] != to[0]
            && upper <= lower
        {
            found.push(format!(
                "{} imports {} ({}), which is not below it",
                file(house, from),
                file(house, to),
                list(names)
            ));
        }
    }
    found
}

/// Circles among the parts of every module: its own file, its files and its folders.
fn circles(house: &House, edges: &Edges) -> Vec<String> {
    let mut found = Vec::new();
    for module in house.modules.keys() {
        let part = |path: &Path| path.starts_with(module).then(|| path[..path.len().min(module.len() + 1)].to_vec());
        let mut reached: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
        for (from, to) in edges.keys() {
            if let (Some(from), Some(to)) = (part(from), part(to))
                && from != to
            {
                reached.entry(from).or_default().insert(to);
            }
        }
        close(&mut reached);
        let on_circle: Vec<&Path> = reached.keys().filter(|path| reached[*path].contains(*path)).collect();
        let mut told: BTreeSet<&Path> = BTreeSet::new();
        for path in on_circle {
            if told.contains(path) {
                continue;
            }
            let back = |other: &&Path| reached.get(*other).is_some_and(|of| of.contains(path));
            let circle: BTreeSet<&Path> = reached[path].iter().filter(back).collect();
            found.push(describe(house, edges, &circle, &part));
            told.extend(circle);
        }
    }
    found
}

/// Makes of each part's imports all that it reaches.
fn close(reached: &mut BTreeMap<Path, BTreeSet<Path>>) {
    loop {
        let mut grown = false;
        let known = reached.clone();
        for targets in reached.values_mut() {
            let further: Vec<Path> = targets.iter().filter_map(|to| known.get(to)).flatten().cloned().collect();
            let before = targets.len();
            targets.extend(further);
            grown |= targets.len() > before;
        }
        if !grown {
            return;
        }
    }
}

/// The members of a circle and every import between them.
fn describe(house: &House, edges: &Edges, circle: &BTreeSet<&Path>, part: &impl Fn(&Path) -> Option<Path>) -> String {
    let names: Vec<String> = circle.iter().map(|path| path.join("/")).collect();
    let ties = edges.iter().filter(|((from, to), _)| match (part(from), part(to)) {
        (Some(from), Some(to)) => from != to && circle.contains(&from) && circle.contains(&to),
        _ => false,
    });
    let ties: Vec<String> = ties
        .map(|((from, to), names)| format!("\n    {} -> {} ({})", file(house, from), file(house, to), list(names)))
        .collect();
    format!("circle of {}:{}", names.join(", "), ties.concat())
}

fn file<'a>(house: &'a House, path: &Path) -> &'a str {
    house.modules.get(path).map_or("?", |(file, _)| file)
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
