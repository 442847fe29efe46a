//! The imports of each file by another, with their names: a name counts for the file that defines it, whatever front hands it on.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// A module's path from the crate's root.
pub type Path = Vec<String>;

/// By importing and imported module: the names.
pub type Edges = BTreeMap<(Path, Path), BTreeSet<String>>;

/// All modules of a crate but those of tests.
pub struct House {
    /// By path: the file and what it says.
    pub modules: BTreeMap<Path, (String, Source)>,
}

impl House {
    /// `files`: paths from `src/`, with their texts.
    pub fn read(files: &[(String, String)]) -> House {
        let all = files.iter().filter(|(file, _)| file != "main.rs");
        let mut modules: BTreeMap<Path, (String, Source)> =
            all.map(|(file, text)| (path_of(file), (file.clone(), Source::read(text)))).collect();
        let tests = modules.iter().flat_map(|(path, (_, source))| {
            source.test_modules.iter().map(|name| [&path[..], std::slice::from_ref(name)].concat())
        });
        let tests: Vec<Path> = tests.collect();
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        House { modules }
    }

    /// Every import of a module by another.
    pub fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (path, (_, source)) in self.modules.iter().filter(|(path, _)| !path.is_empty()) {
            let handed_on = |import: &&super::source::Import| {
                let below = self.absolute(path, &import.path, 0).is_some_and(|to| to.starts_with(path));
                !(import.exported && below) || source.mentioned.contains(&import.name)
            };
            let imported = source.imports.iter().filter(handed_on).map(|import| &import.path);
            for named in imported.chain(&source.paths) {
                let Some(absolute) = self.absolute(path, named, 0) else { continue };
                let owner = self.owner(&absolute, 0);
                if owner != *path && !owner.is_empty() {
                    let name = absolute.last().cloned().unwrap_or_default();
                    edges.entry((path.clone(), owner)).or_default().insert(name);
                }
            }
        }
        edges
    }

    /// The path from the crate's root of what module `from` calls `path`; `None` for another crate's.
    fn absolute(&self, from: &Path, path: &[String], depth: usize) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let module = |base: &[String], rest: &[String]| Some([base, rest].concat());
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => module(from, rest),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                module(&from[..from.len().checked_sub(ups)?], &path[ups..])
            }
            _ => {
                let child = [&from[..], std::slice::from_ref(first)].concat();
                if self.modules.contains_key(&child) {
                    return module(from, path);
                }
                let imports = &self.modules.get(from)?.1.imports;
                let import = imports.iter().find(|import| import.name == *first && import.path[0] != *first)?;
                let base = if depth < 8 { self.absolute(from, &import.path, depth + 1)? } else { return None };
                module(&base, rest)
            }
        }
    }

    /// The module whose file defines what stands at `path`.
    fn owner(&self, path: &[String], depth: usize) -> Path {
        let mut length = 0;
        while length < path.len() && self.modules.contains_key(&path[..=length]) {
            length += 1;
        }
        let module = path[..length].to_vec();
        let (Some(name), Some((_, source))) = (path.get(length), self.modules.get(&module)) else { return module };
        if depth >= 8 || source.defined.contains(name) {
            return module;
        }
        let follow = |import: &super::source::Import| self.absolute(&module, &import.path, 0);
        if let Some(base) = source.imports.iter().find(|import| import.name == *name).and_then(follow) {
            return self.owner(&[&base, &path[length + 1..]].concat(), depth + 1);
        }
        let globs = source.imports.iter().filter(|import| import.name == "*").filter_map(follow);
        let mut owners = globs.map(|base| self.owner(&[&base, &path[length..]].concat(), depth + 1));
        let defines = |owner: &Path| self.modules.get(owner).is_some_and(|(_, source)| source.defined.contains(name));
        owners.find(defines).unwrap_or(module)
    }
}

/// `laplace/fit.rs` as `laplace::fit`.
fn path_of(file: &str) -> Path {
    let mut path: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] {
        path.pop();
    }
    path
}
