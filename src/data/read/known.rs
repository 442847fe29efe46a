//! The class that a label means: by its name, or by its place among all classes, counted from 0.

use std::collections::{BTreeMap, BTreeSet};

/// The classes of a set, as labels name them.
pub struct Known<'a> {
    count: usize,
    place: BTreeMap<&'a str, u32>,
    /// Whether the name of a class is a number that is not its place.
    are_numbers: bool,
}

impl<'a> Known<'a> {
    /// Takes the names of all classes in the order of their places.
    pub fn new(names: &'a [String]) -> Known<'a> {
        let place: BTreeMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
        let is_other = |(name, place): (&&str, &u32)| whole(name).is_some_and(|number| number != *place);
        Known { count: names.len(), are_numbers: place.iter().any(is_other), place }
    }

    /// Returns the number of classes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the class of this name.
    pub fn named(&self, label: &str) -> Option<u32> {
        self.place.get(label).copied()
    }

    /// Returns the class at the place that a label writes.
    pub fn placed(&self, label: &str) -> Option<u32> {
        whole(label).filter(|place| (*place as usize) < self.count)
    }

    /// Returns the class that a label names, or at whose place it is. Where names are numbers other than their places, such as those of stars
    /// from 1 to 5, a number is a name alone: were it a name in one sample and a place in another, two classes would be taken for one.
    pub fn of(&self, label: &str) -> Option<u32> {
        let number = || self.named(&whole(label)?.to_string());
        self.named(label).or_else(number).or_else(|| self.placed(label).filter(|_| !self.are_numbers))
    }

    /// Returns the class of a truth value: the one that is called so, in any case. Where no class is called by a truth value, false is at
    /// place 0, and true at place 1.
    pub fn truth(&self, value: bool) -> Option<u32> {
        let called = |value: bool| {
            let word = value.to_string();
            self.place.iter().find(|(name, _)| name.eq_ignore_ascii_case(&word)).map(|(_, place)| *place)
        };
        match called(!value) {
            Some(_) => called(value),
            None => called(value).or_else(|| self.of(if value { "1" } else { "0" })),
        }
    }

    /// Returns what a message says behind "not one of the classes" of a label that is [`of`](Self::of) none.
    pub fn nor(&self) -> String {
        match self.are_numbers {
            true => ", whose names are numbers, so that a number is a name here and no place".into(),
            false => format!(", nor a number below {}", self.count),
        }
    }
}

/// Returns the whole number that a label writes. Programs write a column of whole numbers in which some are missing as `3.0`.
fn whole(label: &str) -> Option<u32> {
    let is_whole = |zeros: &str| !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0');
    let digits = label.split_once('.').filter(|(_, zeros)| is_whole(zeros)).map_or(label, |(digits, _)| digits);
    digits.parse().ok()
}

/// Returns whether a number has zeros in front, such as `007`, so that it is a name and no count.
fn is_padded(label: &str) -> bool {
    label.len() > 1 && label.starts_with('0') && label.as_bytes()[1].is_ascii_digit()
}

/// Returns the classes that labels imply: all numbers from 0 up to the highest if every label is a whole number, and there are not more
/// of them than labels; otherwise the names in order.
pub fn implied(labels: &[String]) -> Vec<String> {
    let number = |label: &String| whole(label).filter(|_| !is_padded(label));
    let numbers: Option<BTreeSet<u32>> = labels.iter().map(number).collect();
    let highest = numbers.as_ref().and_then(|numbers| numbers.last().copied());
    match (highest, numbers) {
        (Some(last), _) if (last as usize) < labels.len() => (0..=last).map(|class| class.to_string()).collect(),
        (_, Some(numbers)) => numbers.iter().map(u32::to_string).collect(),
        (_, None) => ordered(labels.iter().cloned().collect()),
    }
}

/// Returns names in the order of their values if all are numbers, 2 before 10, and else in their own.
pub fn ordered(names: BTreeSet<String>) -> Vec<String> {
    let value = |name: &String| name.parse::<f64>().ok().filter(|value| value.is_finite() && !is_padded(name));
    let mut names: Vec<String> = names.into_iter().collect();
    if let Some(values) = names.iter().map(value).collect::<Option<Vec<f64>>>() {
        let mut both: Vec<(f64, String)> = values.into_iter().zip(names).collect();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        names = both.into_iter().map(|(_, name)| name).collect();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels of files that go by numbers have the order of these, however a program wrote them.
    #[test]
    fn numbers_imply_classes_in_their_order() {
        let of = |labels: &[&str]| implied(&labels.iter().map(|label| label.to_string()).collect::<Vec<_>>());
        let twelve: Vec<String> = (0..12).map(|class| class.to_string()).collect();
        let numbers: Vec<String> = (0..12).map(|class| format!("{class}.0")).collect();
        assert_eq!((implied(&twelve), implied(&numbers)), (twelve.clone(), twelve.clone()));
        assert_eq!(Known::new(&twelve).of("10.0"), Some(10));
        let from_one: Vec<String> = (1..=12).map(|class| class.to_string()).collect();
        assert_eq!(implied(&from_one), from_one, "an image a class");
        assert_eq!(Known::new(&from_one).of("10.0"), Some(9));
        assert_eq!(of(&["10", "2", "-1"]), ["-1", "2", "10"]);
        assert_eq!(of(&["10.5", "2.5", "2.5"]), ["2.5", "10.5"]);
        assert_eq!(of(&["003", "001", "002", "001"]), ["001", "002", "003"], "zeros in front belong to a name");
        assert_eq!(of(&["b", "10", "9"]), ["10", "9", "b"]);
    }

    #[test]
    fn a_number_is_a_place_unless_classes_are_called_by_other_numbers() {
        let of = |names: &[&str], labels: &[&str]| -> Vec<Option<u32>> {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            labels.iter().map(|label| Known::new(&names).of(label)).collect()
        };
        assert_eq!(of(&["no", "yes"], &["yes", "0", "1", "2", "-1"]), [Some(1), Some(0), Some(1), None, None]);
        assert_eq!(of(&["0", "1", "2"], &["2", "01", "3"]), [Some(2), Some(1), None]);
        assert_eq!(of(&["1", "2", "3"], &["1", "3", "0"]), [Some(0), Some(2), None]);
        assert_eq!(of(&["0", "20", "40"], &["20", "1"]), [Some(1), None]);
        let truth = |names: [&str; 2]| {
            let names = names.map(String::from);
            [false, true].map(|value| Known::new(&names).truth(value))
        };
        assert_eq!(truth(["no", "yes"]), [Some(0), Some(1)]);
        assert_eq!(truth(["false", "true"]), [Some(0), Some(1)]);
        assert_eq!(truth(["True", "False"]), [Some(1), Some(0)], "a name is more than a place");
        assert_eq!(truth(["true", "no"]), [None, Some(0)], "`no` might be meant, or not");
        let stars = ["1", "2"].map(String::from);
        assert_eq!(["0", "1", "2"].map(|place| Known::new(&stars).placed(place)), [Some(0), Some(1), None]);
    }
}
