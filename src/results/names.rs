//! The names of series of runs: those of the literature, with the settings in which series of one name differ.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use crate::base::small::grouped;
use crate::experiment::{column_of, keys};
use crate::methods::{registered, sharpness};

/// Returns the value of a setting. Empty if the series does not have it.
pub fn setting<'a>(series: &[(&'a str, &'a str)], column: &str) -> &'a str {
    series.iter().find(|(name, _)| *name == column).map_or("", |(_, value)| value)
}

/// Returns the names of all series. Names that would be equal carry the settings in which they differ.
pub fn names<'a>(series: impl Iterator<Item = &'a [(&'a str, &'a str)]> + Clone) -> Vec<String> {
    let bases: Vec<String> = series.clone().map(base_name).collect();
    let peers: HashMap<&str, Vec<_>> =
        grouped(bases.iter().map(String::as_str).zip(series.clone())).into_iter().collect();
    let differing: HashMap<&str, Vec<&str>> = peers.iter().map(|(base, peers)| (*base, differing(peers))).collect();
    let name = |(this, base): (&[(&str, &str)], &String)| {
        let parts = told(this, &peers[base.as_str()], &differing[base.as_str()]);
        std::iter::once(base.clone()).chain(parts).collect::<Vec<_>>().join(", ")
    };
    series.zip(&bases).map(name).collect()
}

/// Returns what distinguishes a series from its peers, which differ in the settings `differing`. If only some of them have
/// a table of settings, such as that of an optimizer, its name says which, followed by what differs among those.
fn told(this: &[(&str, &str)], peers: &[&[(&str, &str)]], differing: &[&str]) -> Vec<String> {
    let mut parts = vec![];
    for column in differing {
        let value = setting(this, column);
        let owners: Vec<_> = peers.iter().filter(|peer| has_table(peer, table_of(column))).collect();
        let is_choice = column.contains('.') && owners.len() < peers.len();
        if is_choice && has_table(this, table_of(column)) && !parts.iter().any(|part| part == short(table_of(column))) {
            parts.push(short(table_of(column)).to_string());
        }
        if is_choice && owners.iter().all(|peer| setting(peer, column) == setting(owners[0], column)) {
            continue;
        }
        match (*column, value) {
            (_, "") if is_choice && !has_table(this, table_of(column)) => {}
            (_, "") => parts.push(match default_of(column) {
                Some(default) => format!("{} = {default}", short(column)),
                None => format!("no {}", short(column)),
            }),
            ("experiment" | "checkpoint" | "head" | "data", value) => parts.push(value.to_string()),
            (_, value) => parts.push(format!("{} = {}", short(column), plain(value))),
        }
    }
    parts
}

/// Returns the default of the setting in a column. Keys that every data set has are described once, as those of `data.*`.
fn default_of(column: &str) -> Option<&'static String> {
    let of_all = || Some(format!("data.*.{}", column.strip_prefix("data.")?.split_once('.')?.1));
    DEFAULTS.get(column).or_else(|| DEFAULTS.get(&of_all()?))
}

/// The defaults of settings, by column. A resolved config leaves some of them out.
static DEFAULTS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let of = |key: keys::Key| {
        let default = key.default.strip_prefix('`')?.strip_suffix('`')?.trim_matches('"');
        (!default.contains('`')).then(|| (column_of(&key.path).to_string(), default.to_string()))
    };
    keys::all().into_iter().filter_map(of).collect()
});

/// Returns the table that a setting stands in: that of `svgd.drive` is `svgd`.
fn table_of(column: &str) -> &str {
    column.rsplit_once('.').map_or("", |(table, _)| table)
}

fn has_table(settings: &[(&str, &str)], table: &str) -> bool {
    settings.iter().any(|(column, _)| table_of(column) == table)
}

/// Returns a value as a reader writes it: a list of one item is that item.
fn plain(value: &str) -> &str {
    let inner = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.filter(|inner| !inner.contains(',')).unwrap_or(value)
}

/// Returns the parts of a name between commas that stand in no bracket.
fn parts_of(name: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (vec![], 0, 0);
    for (at, letter) in name.char_indices() {
        match letter {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 && name[at..].starts_with(", ") => {
                parts.push(&name[start..at]);
                start = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&name[start..]);
    parts
}

/// Returns the parts that all names share, such as `Bella-SVGD (n=5)`, and the names without them. Names that would be empty
/// keep all their parts.
pub fn without_shared(names: &[String]) -> (String, Vec<String>) {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| parts_of(name)).collect();
    let shared: Vec<&str> = match &parts[..] {
        [first, others @ ..] if !others.is_empty() => {
            first.iter().copied().filter(|part| others.iter().all(|other| other.contains(part))).collect()
        }
        _ => vec![],
    };
    let own = |parts: &Vec<&str>| {
        let own: Vec<&str> = parts.iter().copied().filter(|part| !shared.contains(part)).collect();
        own.join(", ")
    };
    let short: Vec<String> = parts.iter().map(own).collect();
    match shared.is_empty() || short.iter().any(String::is_empty) {
        true => (String::new(), names.to_vec()),
        false => (shared.join(", "), short),
    }
}

/// Returns the settings in which series differ, in the order of their names.
fn differing<'a>(peers: &[&'a [(&'a str, &'a str)]]) -> Vec<&'a str> {
    let columns: BTreeSet<&str> = peers.iter().flat_map(|peer| peer.iter().map(|(column, _)| *column)).collect();
    let differs = |column: &&str| peers.iter().any(|peer| setting(peer, column) != setting(peers[0], column));
    columns.into_iter().filter(differs).collect()
}

/// Returns the name of a setting without its method: `svgd.drive` becomes `drive`, because the legend already names the
/// method.
fn short(column: &str) -> &str {
    column.rsplit_once('.').map_or(column, |(_, key)| key)
}

/// Returns the name that a combination of subspace, method, predictive and number of particles has in the literature.
/// Methods that take sharpness-aware steps by a setting have the prefix `SA-`.
fn base_name(settings: &[(&str, &str)]) -> String {
    let count = match setting(settings, "particles") {
        "1" => "",
        count => count,
    };
    let particles = if count.is_empty() { String::new() } else { format!(" (n={count})") };
    let predictive = match setting(settings, "predictive") {
        "" => String::new(),
        name => format!(" {name}"),
    };
    let (subspace, key) = (setting(settings, "subspace"), setting(settings, "method"));
    let entry = registered().into_iter().find(|entry| entry.key == key);
    let names = entry.map_or([&[][..], &[]], |entry| [entry.names, entry.names_of_many]);
    let name = |names: &[(&'static str, &'static str)]| names.iter().find(|(of, _)| *of == subspace).copied();
    let many = if count.is_empty() { None } else { name(names[1]) };
    let method = match many.or_else(|| name(names[0])) {
        _ if key == "checkpoint" => return "checkpoint, zero-shot".to_string(),
        Some((_, name)) => name.to_string(),
        None if subspace.is_empty() => key.to_string(),
        None => format!("{subspace} × {key}"),
    };
    let aware = !setting(settings, &format!("{key}.{}", sharpness::KEY)).is_empty();
    let prefix = if aware { "SA-" } else { "" };
    format!("{prefix}{method}{predictive}{particles}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_different_optimizers_are_told_apart_by_their_names() {
        let of = |more: &[(&'static str, &'static str)]| {
            [&[("subspace", "full"), ("method", "map"), ("particles", "1")], more].concat()
        };
        let all = [
            of(&[("adamw.lr", "[0.001]"), ("adamw.eps", "1e-8")]),
            of(&[("adamw.lr", "[0.002]"), ("adamw.eps", "1e-8")]),
            of(&[("sgd.lr", "[0.1]"), ("sgd.momentum", "0.9")]),
        ];
        let names = names(all.iter().map(Vec::as_slice));
        assert_eq!(names, ["Single, adamw, lr = 0.001", "Single, adamw, lr = 0.002", "Single, sgd"]);
    }

    #[test]
    fn a_setting_that_is_left_out_has_its_default() {
        let of = |more: &[(&'static str, &'static str)]| {
            [&[("subspace", "full"), ("method", "svgd"), ("particles", "2"), ("svgd.gamma", "1.0")], more].concat()
        };
        let all = [of(&[]), of(&[("svgd.flow", "wasserstein")])];
        let names = names(all.iter().map(Vec::as_slice));
        assert_eq!(names, ["SVGD (n=2), flow = stein", "SVGD (n=2), flow = wasserstein"]);
        let all = [of(&[]), of(&[("svgd.bandwidth", "0.5")])];
        let names = self::names(all.iter().map(Vec::as_slice));
        assert_eq!(names, ["SVGD (n=2), no bandwidth", "SVGD (n=2), bandwidth = 0.5"]);
        let other = [("data.cifar10.label_noise", "0.2"), ("train.b_rate", "2.0"), ("train.label_smoothing", "0.1")];
        let both = [("data.cifar10.validation", "0.2"), ("train.epochs", "1")];
        let all = [of(&both), of(&[&both[..], &other].concat())];
        let names = self::names(all.iter().map(Vec::as_slice));
        assert_eq!(
            names,
            [
                "SVGD (n=2), label_noise = 0.0, b_rate = 1.0, label_smoothing = 0.0",
                "SVGD (n=2), label_noise = 0.2, b_rate = 2.0, label_smoothing = 0.1"
            ]
        );
    }

    #[test]
    fn what_all_names_share_is_said_once() {
        let names = |all: &[&str]| all.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let (shared, short) = without_shared(&names(&["SVGD (n=5), lr = 0.1", "SVGD (n=5), lr = 0.2"]));
        assert_eq!((shared.as_str(), short), ("SVGD (n=5)", names(&["lr = 0.1", "lr = 0.2"])));
        let (shared, short) = without_shared(&names(&["a, x, y = 1", "b, x, y = 2"]));
        assert_eq!((shared.as_str(), short), ("x", names(&["a, y = 1", "b, y = 2"])));
        let (shared, short) = without_shared(&names(&["SVGD, lr = [0.1, 0.2]", "SVGD, lr = [0.1, 0.3]"]));
        assert_eq!((shared.as_str(), short), ("SVGD", names(&["lr = [0.1, 0.2]", "lr = [0.1, 0.3]"])));
        for all in [names(&["SVGD", "SVGD, lr = 0.2"]), names(&["SVGD"]), names(&["SVGD", "MAP"])] {
            assert_eq!(without_shared(&all), (String::new(), all));
        }
    }

    #[test]
    fn names_are_those_of_the_literature() {
        let name = |subspace, method, particles, more: &[(&'static str, &'static str)]| {
            let settings = [("subspace", subspace), ("method", method), ("particles", particles)];
            base_name(&[&settings[..], more].concat())
        };
        assert_eq!(name("low-rank", "swag", "1", &[]), "SWAG-LoRA");
        assert_eq!(name("full", "swag", "1", &[("predictive", "mean")]), "SWAG mean");
        assert_eq!(name("full", "swag", "5", &[]), "MultiSWAG (n=5)");
        assert_eq!(name("low-rank", "ivon", "5", &[]), "Low-rank Multi-IVON (n=5)");
        assert_eq!(name("low-rank", "svgd", "5", &[("svgd.sharpness", "0.05")]), "SA-Bella-SVGD (n=5)");
        assert_eq!(name("full", "sam", "1", &[("sam.rho", "0.05")]), "SAM");
        assert_eq!(name("other", "sam", "2", &[]), "other × sam (n=2)");
    }
}
