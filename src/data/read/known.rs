//! The class that a label means: by its name, or by its place among all classes, counted from 0.

use std::collections::BTreeMap;

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
        let is_other = |(name, place): (&&str, &u32)| name.parse().is_ok_and(|number: u32| number != *place);
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
        label.parse().ok().filter(|place| (*place as usize) < self.count)
    }

    /// Returns the class that a label names, or at whose place it is. Where names are numbers other than their places, such as those of stars
    /// from 1 to 5, a number is a name alone: were it a name in one sample and a place in another, two classes would be taken for one.
    pub fn of(&self, label: &str) -> Option<u32> {
        self.named(label).or_else(|| self.placed(label).filter(|_| !self.are_numbers))
    }

    /// Returns what a message says behind "not one of the classes" of a label that is [`of`](Self::of) none.
    pub fn nor(&self) -> String {
        match self.are_numbers {
            true => ", whose names are numbers, so that a number is a name here and no place".into(),
            false => format!(", nor a number below {}", self.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let stars = ["1", "2"].map(String::from);
        assert_eq!(["0", "1", "2"].map(|place| Known::new(&stars).placed(place)), [Some(0), Some(1), None]);
    }
}
