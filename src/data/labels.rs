//! The meaning of a data set's labels, classes or a number; and the mapping of a test set's classes to those that a model knows: by name if
//! the names match, otherwise by position.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use unicode_normalization::UnicodeNormalization;

use super::dataset::Dataset;
use super::numbers::Scale;
use super::read::wordnet;
use super::request::Request;
use super::split::SplitName;
use crate::machine::cores;

/// The meaning of a data set's labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    /// The names of the classes, or the name of the number alone.
    pub classes: Vec<String>,
    /// The scale of the numbers; `None` for classes.
    pub scale: Option<Scale>,
}

impl Labels {
    /// Returns the meaning of the labels of a data set.
    ///
    /// # Errors
    /// Fails if they cannot be read, if they are numbers that are all the same, or if [`check_forms`] refuses the classes.
    pub fn of(set: &dyn Dataset) -> Result<Labels> {
        let key = || format!("data.{}", set.key());
        let scale = || scale_of(set).with_context(key);
        let classes = set.classes()?;
        check_forms(&classes).with_context(key)?;
        Ok(Labels { classes, scale: set.has_numbers().then(scale).transpose()? })
    }
}

/// Returns the scale of the numbers of the training samples, without those that the set leaves out.
fn scale_of(set: &dyn Dataset) -> Result<Scale> {
    let training = set.load(SplitName::Train, &Request::listing(cores(), &|_, _| ()))?;
    Scale::of(&training.numbers.context("the training split has no numbers")?)
}

/// Refuses two classes whose names look the same and differ in their form of Unicode alone: a typed `é` is one letter, and that of a file
/// from a Mac is `e` and an accent.
///
/// # Errors
/// Fails if there are such names.
pub fn check_forms(classes: &[String]) -> Result<()> {
    let mut seen: HashMap<String, &String> = HashMap::new();
    for name in classes {
        if let Some(other) = seen.insert(name.nfc().collect(), name)
            && other != name
        {
            let escaped = |name: &str| name.escape_default().to_string();
            bail!(
                "two classes are called `{name}`, in two forms of Unicode (`{}` and `{}`): write both in one form, say NFC",
                escaped(other),
                escaped(name)
            );
        }
    }
    Ok(())
}

impl From<Vec<String>> for Labels {
    fn from(classes: Vec<String>) -> Labels {
        Labels { classes, scale: None }
    }
}

/// Words for the same class.
const ALIASES: [(&str, &str); 1] = [("car", "automobile")];

/// The way in which labels of the test set become classes of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// The test set has the same classes in the same order.
    Same,
    /// The test set has as many classes but no name in common with the model (`n01440764` and `tench`). They are
    /// matched by position, which deserves a warning.
    Renamed {
        /// The first name in the test set.
        tested: String,
        /// The first name in the model.
        trained: String,
    },
    /// The test set names its classes by WordNet's numbers, and the model, which has a thousand classes, knows none of these. Its
    /// classes are taken for ImageNet's in their usual order, which deserves a warning.
    Numbered {
        /// `to[label]` is the class of the model.
        to: Vec<u32>,
        /// The number of classes of the model.
        trained: usize,
    },
    /// The classes are matched by name: they are in another order, or fewer than those of the model.
    Mapped {
        /// `to[label]` is the class of the model. There is one entry for each class of the test set, and all are
        /// different.
        to: Vec<u32>,
        /// The number of classes of the model.
        trained: usize,
    },
}

impl Mapping {
    /// Replaces the labels of the test set by classes of the model.
    ///
    /// # Errors
    /// Fails if a label is beyond the classes of the test set.
    pub fn relabel(&self, labels: &mut [u32]) -> Result<()> {
        let (Mapping::Mapped { to, .. } | Mapping::Numbered { to, .. }) = self else { return Ok(()) };
        for label in labels {
            let class = to.get(*label as usize);
            *label = *class.with_context(|| format!("label {label}, but the test set has {} classes", to.len()))?;
        }
        Ok(())
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mapping::Same => write!(f, "the test set has the model's classes"),
            Mapping::Renamed { tested, trained } => write!(
                f,
                "the test set names its classes differently (`{tested}`, …) from the model (`{trained}`, …): taken by \
                 position"
            ),
            Mapping::Numbered { to, trained } => write!(
                f,
                "the test set has {} of ImageNet's classes by their WordNet numbers, of which the model names none: its {trained} \
                 classes are taken for ImageNet's in the order of these numbers",
                to.len()
            ),
            Mapping::Mapped { to, trained } if to.len() == *trained => {
                write!(f, "the test set has the model's {trained} classes in another order: matched by name")
            }
            Mapping::Mapped { to, trained } => {
                write!(f, "the test set has {} of the model's {trained} classes: matched by name", to.len())
            }
        }
    }
}

/// Matches the classes of a test set with those of a model. Case, spaces, `-` and `_` in names and their form of Unicode are ignored,
/// and `car` equals `automobile`. An exact match is preferred.
///
/// # Errors
/// Fails if the model does not know some names, unless it knows none of them and the number of classes is the same; if
/// two names match one class; or if one name matches several classes of the model.
pub fn map_classes(trained: &[String], tested: &[String]) -> Result<Mapping> {
    if trained == tested {
        return Ok(Mapping::Same);
    }
    let model = Model::new(trained);
    let found: Vec<Option<u32>> = tested.iter().map(|name| model.class(name)).collect::<Result<_>>()?;
    let (known, count) = (found.iter().flatten().count(), trained.len());
    if known == 0 && tested.len() == count {
        let first = |names: &[String]| names.first().cloned().unwrap_or_default();
        return Ok(Mapping::Renamed { tested: first(tested), trained: first(trained) });
    }
    if known == 0
        && let Some(to) = numbered(tested, count)
    {
        return Ok(Mapping::Numbered { to, trained: count });
    }
    let strangers: Vec<&str> =
        tested.iter().zip(&found).filter(|(_, class)| class.is_none()).map(|(name, _)| name.as_str()).collect();
    ensure!(
        strangers.is_empty(),
        "the model does not know {} of the test set's {} classes: {}; take their samples out of the set, or name them as the \
         model does: {}",
        strangers.len(),
        tested.len(),
        some(&strangers),
        some(&trained.iter().map(String::as_str).collect::<Vec<_>>())
    );
    let to: Vec<u32> = found.into_iter().flatten().collect();
    for (i, class) in to.iter().enumerate() {
        if let Some(other) = to[..i].iter().position(|before| before == class) {
            let (a, b, class) = (&tested[other], &tested[i], &trained[*class as usize]);
            bail!("the test set's classes `{a}` and `{b}` are both the model's `{class}`: set data.*.classes");
        }
    }
    let in_order = to.len() == count && to.iter().zip(0..).all(|(class, i)| *class == i);
    Ok(if in_order { Mapping::Same } else { Mapping::Mapped { to, trained: count } })
}

/// Returns the places of WordNet's numbers among those of ImageNet's classes, of which the model has as many; `None` if a name is
/// no such number.
fn numbered(tested: &[String], trained: usize) -> Option<Vec<u32>> {
    let wnids = wordnet::all();
    if wnids.len() != trained {
        return None;
    }
    tested.iter().map(|name| Some(wnids.binary_search(name).ok()? as u32)).collect()
}

/// The classes that a model knows, by their names and by what is plain of these.
struct Model<'a> {
    trained: &'a [String],
    exact: HashMap<&'a str, Vec<u32>>,
    plain: HashMap<String, Vec<u32>>,
}

impl<'a> Model<'a> {
    fn new(trained: &'a [String]) -> Model<'a> {
        let mut model = Model { trained, exact: HashMap::new(), plain: HashMap::new() };
        for (place, name) in (0..).zip(trained) {
            model.exact.entry(name).or_default().push(place);
            model.plain.entry(plain(name)).or_default().push(place);
        }
        model
    }

    /// Returns the class that `name` matches. `None` if there is none.
    fn class(&self, name: &str) -> Result<Option<u32>> {
        let fitting = self.exact.get(name).or_else(|| self.plain.get(&plain(name))).map_or(&[][..], Vec::as_slice);
        ensure!(
            fitting.len() < 2,
            "the test set's class `{name}` fits several of the model's: {}; set data.*.classes",
            some(&fitting.iter().map(|&class| self.trained[class as usize].as_str()).collect::<Vec<_>>())
        );
        Ok(fitting.first().copied())
    }
}

/// Returns a name reduced to the parts that distinguish classes.
fn plain(name: &str) -> String {
    let letters: String = name.nfc().filter(|c| !matches!(c, '-' | '_') && !c.is_whitespace()).collect();
    let letters = letters.to_lowercase();
    ALIASES.iter().find(|(alias, _)| *alias == letters).map_or(letters, |(_, name)| name.to_string())
}

/// Returns the first ten names, followed by the total number if there are more.
fn some(names: &[&str]) -> String {
    let shown = names[..names.len().min(10)].join(", ");
    if names.len() > 10 { format!("{shown}, … ({} in all)", names.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIFAR10: [&str; 10] =
        ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

    fn map(trained: &[&str], tested: &[&str]) -> Result<Mapping> {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        map_classes(&owned(trained), &owned(tested))
    }

    fn error(trained: &[&str], tested: &[&str]) -> String {
        map(trained, tested).unwrap_err().to_string()
    }

    #[test]
    fn one_name_in_two_forms_is_refused() {
        let check = |names: [&str; 3]| check_forms(&names.map(str::to_string)).map_err(|error| error.to_string());
        let twice = check(["dog", "caf\u{e9}", "cafe\u{301}"]).unwrap_err();
        assert!(twice.contains("(`caf\\u{e9}` and `cafe\\u{301}`): write both in one form"), "{twice}");
        // Tables of ImageNet have two classes `crane`.
        assert_eq!(check(["crane", "crane", "Crane"]), Ok(()));
    }

    #[test]
    fn equal_classes_stay() {
        assert_eq!(map(&CIFAR10, &CIFAR10).unwrap(), Mapping::Same);
        assert_eq!(map(&["fire truck", "tree_frog"], &["Fire-Truck", "treeFrog"]).unwrap(), Mapping::Same);
        assert_eq!(map(&["caf\u{e9}", "th\u{e9}"], &["the\u{301}", "cafe\u{301}"]).unwrap(), {
            Mapping::Mapped { to: vec![1, 0], trained: 2 }
        });
        let mut labels = [1, 0];
        Mapping::Same.relabel(&mut labels).unwrap();
        assert_eq!(labels, [1, 0]);
    }

    #[test]
    fn a_part_and_another_order_go_by_name() {
        let nine = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "ship", "truck"];
        let mapping = map(&CIFAR10, &nine).unwrap();
        assert_eq!(mapping, Mapping::Mapped { to: vec![0, 2, 1, 3, 4, 5, 7, 8, 9], trained: 10 });
        assert_eq!(mapping.to_string(), "the test set has 9 of the model's 10 classes: matched by name");
        let mut labels = [8, 2, 2, 0];
        mapping.relabel(&mut labels).unwrap();
        assert_eq!(labels, [9, 1, 1, 0]);
        assert!(mapping.relabel(&mut [9]).unwrap_err().to_string().contains("label 9, but the test set has 9 classes"));
        assert_eq!(map(&["a", "b"], &["b", "a"]).unwrap(), Mapping::Mapped { to: vec![1, 0], trained: 2 });
    }

    #[test]
    fn an_exact_name_goes_before_a_similar_one() {
        assert_eq!(
            map(&["car", "automobile", "Car"], &["Car", "car"]).unwrap(),
            Mapping::Mapped { to: vec![2, 0], trained: 3 }
        );
        assert!(
            error(&["car", "automobile"], &["CAR", "x"]).contains("`CAR` fits several of the model's: car, automobile")
        );
    }

    #[test]
    fn foreign_names_go_by_position_only_if_all_are_foreign() {
        let mapping = map(&["tench", "goldfish"], &["n01440764", "n01443537"]).unwrap();
        assert_eq!(mapping, Mapping::Renamed { tested: "n01440764".into(), trained: "tench".into() });
        assert!(mapping.to_string().contains("taken by position"));
        let text = error(&CIFAR10, &["cat", "monkey", "okapi"]);
        assert!(
            text.starts_with("the model does not know 2 of the test set's 3 classes: monkey, okapi; take"),
            "{text}"
        );
        assert!(error(&["a", "b", "c"], &["x", "y"]).contains("2 of the test set's 2 classes: x, y"));
        let hundred: Vec<String> = (0..100).map(|i| format!("c{i}")).collect();
        let hundred: Vec<&str> = hundred.iter().map(String::as_str).collect();
        assert!(error(&CIFAR10, &hundred).contains("c9, … (100 in all)"));
    }

    #[test]
    fn numbers_of_wordnet_go_by_their_place_where_the_model_has_a_thousand_names() {
        let named: Vec<String> = (0..1000).map(|i| format!("name {i}")).collect();
        let tested = ["n01498041", "n12267677"].map(str::to_string);
        let mapping = map_classes(&named, &tested).unwrap();
        assert_eq!(mapping, Mapping::Numbered { to: vec![6, 988], trained: 1000 });
        assert!(mapping.to_string().contains("its 1000 classes are taken for ImageNet's"));
        let mut labels = [1, 0];
        mapping.relabel(&mut labels).unwrap();
        assert_eq!(labels, [988, 6]);
        assert!(map_classes(&named[..999], &tested).is_err());
        assert_eq!(map_classes(&wordnet::all(), &tested).unwrap(), Mapping::Mapped { to: vec![6, 988], trained: 1000 });
    }

    #[test]
    fn two_names_of_one_class_are_refused() {
        assert!(error(&CIFAR10, &["car", "automobile", "cat"]).contains("`car` and `automobile` are both the model's"));
    }
}
