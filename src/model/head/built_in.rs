//! The built-in class names and prompt templates of `assets/prompts.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// The key of the templates for data sets that have none of their own.
pub const GENERIC: &str = "generic";
/// The placeholder for the class name in a template.
pub const PLACE: &str = "{}";
/// The key of the classes that are named by WordNet numbers.
pub const IMAGENET: &str = "imagenet";
/// Their names, with one number, tab and name per line.
const IMAGENET_NAMES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/imagenet_names.txt"));

static PROMPTS: LazyLock<BTreeMap<String, Prompts>> = LazyLock::new(|| {
    toml::from_str(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/prompts.toml")))
        .unwrap_or_else(|error| panic!("prompts.toml: {error}"))
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prompts {
    templates: Vec<String>,
    /// Further data sets that use these templates.
    #[serde(default)]
    data: Vec<String>,
    /// The classes of the data set in the order of their labels; `names` holds their names in prompts.
    #[serde(default)]
    classes: Vec<String>,
    #[serde(default)]
    names: Vec<String>,
}

/// Returns the keys of all templates.
pub fn keys() -> Vec<&'static str> {
    PROMPTS.keys().map(String::as_str).collect()
}

/// Returns the templates of a key, if there are any.
pub fn templates(key: &str) -> Option<&'static [String]> {
    PROMPTS.get(key).map(|prompts| prompts.templates.as_slice())
}

/// Returns the key of the templates that a data set uses.
pub fn of_data(data: &str) -> &'static str {
    let fits = |(key, prompts): &(&'static String, &Prompts)| *key == data || prompts.data.iter().any(|d| d == data);
    PROMPTS.iter().find(fits).map_or(GENERIC, |(key, _)| key)
}

/// Returns the keys of all lists of class names.
pub fn named_keys() -> Vec<&'static str> {
    let with_names = PROMPTS.iter().filter(|(_, prompts)| !prompts.names.is_empty());
    with_names.map(|(key, _)| key.as_str()).chain([IMAGENET]).collect()
}

/// Returns the classes of a key and their names in prompts, in the order of the labels; `None` if the key has none.
pub fn names(key: &str) -> Option<Vec<(String, String)>> {
    if key == IMAGENET {
        let pairs = IMAGENET_NAMES.lines().filter_map(|line| line.split_once('\t'));
        return Some(pairs.map(|(class, name)| (class.to_string(), name.to_string())).collect());
    }
    let prompts = PROMPTS.get(key).filter(|prompts| !prompts.names.is_empty())?;
    Some(prompts.classes.iter().cloned().zip(prompts.names.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_has_a_place_and_every_name_a_class() {
        for (key, prompts) in PROMPTS.iter() {
            assert!(!prompts.templates.is_empty(), "{key}");
            assert!(prompts.templates.iter().all(|template| template.contains(PLACE)), "{key}");
            assert_eq!(prompts.classes.len(), prompts.names.len(), "{key}");
        }
    }

    // The counts in CLIP's notebook and data/prompts.md.
    #[test]
    fn published_numbers_of_templates() {
        let published = [
            ("cifar10", 18),
            ("cifar100", 18),
            ("imagenet", 80),
            ("imagenet-simple", 7),
            ("stl10", 2),
            ("svhn", 1),
            ("flowers102", 1),
            ("camelyon17", 1),
            ("caltech101", 34),
            ("dtd", 8),
            ("eurosat", 3),
            ("resisc45", 18),
            ("cars", 8),
            ("gtsrb", 3),
        ];
        for (key, count) in published {
            let templates = templates(key).unwrap();
            assert_eq!(templates.len(), count, "{key}");
            let distinct: std::collections::BTreeSet<_> = templates.iter().collect();
            assert_eq!(distinct.len(), count, "{key}: a template comes twice");
        }
    }

    #[test]
    fn data_sets_find_their_templates() {
        for (data, key) in [("cifar10", "cifar10"), ("cifar10-c", "cifar10"), ("image-folder", GENERIC)] {
            assert_eq!(of_data(data), key);
        }
    }

    #[test]
    fn imagenet_has_a_thousand_names_by_number() {
        let names = names("imagenet").unwrap();
        assert_eq!(names.len(), 1000);
        assert!(names.is_sorted());
        assert_eq!(names[134], ("n02012849".to_string(), "crane bird".to_string()));
        assert_eq!(names[517].1, "construction crane");
    }
}
