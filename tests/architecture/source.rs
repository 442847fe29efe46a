//! One source file: the names that it imports, mentions and defines. Comments, texts and tests are left out.

use std::collections::BTreeSet;

/// A name that a `use` brings into a module.
#[derive(Debug)]
pub struct Import {
    /// As written, from `crate`, `super`, `self` or a name in scope.
    pub path: Vec<String>,
    /// The name in this module; `*` for everything.
    pub name: String,
    /// Whether it is handed on (`pub use`).
    pub exported: bool,
}

#[derive(Debug, Default)]
pub struct Source {
    pub imports: Vec<Import>,
    /// Paths of at least two names in the rest of the code.
    pub paths: Vec<Vec<String>>,
    /// Every name in the rest of the code, but those of `mod` lines.
    pub mentioned: BTreeSet<String>,
    /// Names of items.
    pub defined: BTreeSet<String>,
    /// Modules that only tests have.
    pub test_modules: Vec<String>,
}

impl Source {
    pub fn read(text: &str) -> Source {
        let mut source = Source::default();
        let tokens = source.without_tests(&tokens(text));
        let mut rest = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            // `use<…>` in a type says which lifetimes it captures, and imports nothing.
            if tokens[at] != "use" || tokens.get(at + 1).is_some_and(|next| next == "<") {
                rest.push(tokens[at].as_str());
                at += 1;
                continue;
            }
            let exported = at > 0 && ["pub", ")"].contains(&tokens[at - 1].as_str());
            at += 1;
            while at < tokens.len() && tokens[at] != ";" {
                at = tree(&tokens, at, &[], exported, &mut source.imports);
            }
        }
        source.read_rest(&rest);
        source
    }

    fn read_rest(&mut self, rest: &[&str]) {
        const ITEMS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];
        let mut at = 0;
        while at < rest.len() {
            if !is_name(rest[at]) {
                at += 1;
                continue;
            }
            let before = if at > 0 { rest[at - 1] } else { "" };
            let mut path = vec![rest[at].to_string()];
            while at + 2 < rest.len() && rest[at + 1] == "::" && is_name(rest[at + 2]) {
                path.push(rest[at + 2].to_string());
                at += 2;
            }
            at += 1;
            if ITEMS.contains(&before) {
                self.defined.insert(path[0].clone());
            }
            if before != "mod" {
                self.mentioned.extend(path.iter().cloned());
            }
            if path.len() > 1 && before != "::" {
                self.paths.push(path);
            }
        }
    }

    /// The tokens without items that only tests have.
    fn without_tests(&mut self, tokens: &[String]) -> Vec<String> {
        const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
        let mut kept = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at..].iter().map(String::as_str).take(MARK.len()).ne(MARK) {
                kept.push(tokens[at].clone());
                at += 1;
                continue;
            }
            let start = at + MARK.len();
            let mut depth = 0;
            at = start;
            while at < tokens.len() {
                match tokens[at].as_str() {
                    "(" | "[" | "{" => depth += 1,
                    ")" | "]" => depth -= 1,
                    "}" if depth == 1 => break,
                    "}" => depth -= 1,
                    ";" if depth == 0 => break,
                    _ => {}
                }
                at += 1;
            }
            let item = &tokens[start..at.min(tokens.len())];
            let named = item.iter().position(|token| token == "mod").and_then(|place| item.get(place + 1));
            self.test_modules.extend(named.cloned());
            at += 1;
        }
        kept
    }
}

/// One tree of a `use` from token `at`; the place behind it.
fn tree(tokens: &[String], mut at: usize, prefix: &[String], exported: bool, found: &mut Vec<Import>) -> usize {
    let mut path = prefix.to_vec();
    while at < tokens.len() {
        match tokens[at].as_str() {
            // `$crate`, as macros name their own crate.
            "::" | "$" => at += 1,
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at = if tokens[at] == "," { at + 1 } else { tree(tokens, at, &path, exported, found) };
                }
                return at + 1;
            }
            "*" => {
                found.push(Import { path, name: "*".into(), exported });
                return at + 1;
            }
            name if is_name(name) => {
                path.push(name.to_string());
                at += 1;
                if tokens.get(at).is_some_and(|next| next == "::") {
                    continue;
                }
                if path.last().is_some_and(|last| last == "self") {
                    path.pop();
                }
                let mut name = path.last().cloned().unwrap_or_default();
                if tokens.get(at).is_some_and(|next| next == "as") {
                    name = tokens[at + 1].clone();
                    at += 2;
                }
                found.push(Import { path, name, exported });
                return at;
            }
            other => panic!("`{other}` in a use"),
        }
    }
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single signs; comments, texts, characters, numbers and lifetimes are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = skipped(rest);
        if taken > 0 {
            rest = &rest[taken..];
            continue;
        }
        let length = match first {
            _ if rest.starts_with("::") => 2,
            c if c.is_alphanumeric() || c == '_' => word_length(rest),
            c => c.len_utf8(),
        };
        if !first.is_numeric() {
            found.push(rest[..length].to_string());
        }
        rest = &rest[length..];
    }
    found
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// Bytes at the start of `text` that hold no code.
fn skipped(text: &str) -> usize {
    let end = |from: usize, of: &str| text[from..].find(of).map_or(text.len(), |place| from + place + of.len());
    let prefix = text.find(|c: char| !"bcr".contains(c)).unwrap_or(0);
    let raw = &text[prefix..];
    let fences = raw.find(|c| c != '#').unwrap_or(0);
    match text {
        _ if text.starts_with(char::is_whitespace) => text.find(|c: char| !c.is_whitespace()).unwrap_or(text.len()),
        _ if text.starts_with("//") => text.find('\n').unwrap_or(text.len()),
        _ if text.starts_with("/*") => end(2, "*/"),
        _ if text[..prefix].contains('r') && raw[fences..].starts_with('"') => {
            end(prefix + fences + 1, &format!("\"{}", "#".repeat(fences)))
        }
        _ if raw.starts_with('"') => prefix + quoted(raw, '"'),
        _ if raw.starts_with('\'') => prefix + character(raw),
        _ => 0,
    }
}

/// Length of a text in quotes, with its escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a character or of a lifetime.
fn character(text: &str) -> usize {
    let mut after = text.char_indices().skip(1);
    match (after.next(), after.next()) {
        (Some((_, '\\')), _) => quoted(text, '\''),
        (_, Some((at, '\''))) => at + 1,
        _ => 1 + word_length(&text[1..]),
    }
}
