//! The texts of the picture: the names of the groups, and notes on everything that the axes do not show.

use super::comparison::{Comparison, Group};
use super::measured::Measured;
use crate::metrics::Average;

/// Returns the name of each group: the condition, then the test set on a line of its own if there are several sets. If
/// all images are clean, the test set alone is the name. If all conditions share an origin in brackets, it is left out
/// here and named in the notes.
pub fn group_names(groups: &[Group]) -> Vec<String> {
    let (sets, shared) = (several_sets(groups), shared_origin(groups).is_some());
    let all_clean = groups.iter().all(|group| group.condition == "clean");
    let name = |group: &Group| {
        let condition = if shared { split_origin(&group.condition).0 } else { &group.condition };
        match (sets, all_clean) {
            (true, true) => group.set.clone(),
            (true, false) => format!("{condition}\n{}", group.set),
            (false, _) => condition.to_string(),
        }
    };
    groups.iter().map(name).collect()
}

fn several_sets(groups: &[Group]) -> bool {
    groups.windows(2).any(|pair| pair[0].set != pair[1].set)
}

/// Splits the origin from a condition: `gaussian-noise:3 (bella)` is `gaussian-noise:3` from `bella`.
fn split_origin(condition: &str) -> (&str, Option<&str>) {
    match condition.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((name, origin)) => (name, Some(origin)),
        None => (condition, None),
    }
}

fn shared_origin(groups: &[Group]) -> Option<&str> {
    let mut origins = groups.iter().filter_map(|group| split_origin(&group.condition).1);
    let first = origins.next()?;
    origins.all(|origin| origin == first).then_some(first)
}

/// Returns the notes below the picture, one line each.
pub fn notes(comparison: &Comparison, measured: &[Measured]) -> Vec<String> {
    let mut about = vec![];
    about.extend(Some(&comparison.shared).filter(|shared| !shared.is_empty()).cloned());
    let groups = &comparison.groups;
    if let Some(group) = groups.first().filter(|group| !several_sets(groups) && !group.set.is_empty()) {
        about.push(format!("test set {}", group.set));
    }
    about.extend(shared_origin(groups).map(|origin| format!("corruption:severity by {origin}")));
    about.push(format!("predictions: {}", Average::Logit.words()));
    let mut notes = vec![about.join("  ·  ")];
    let seeds: Vec<usize> = measured.iter().flat_map(Measured::seeds).collect();
    let (least, most) = (seeds.iter().min(), seeds.iter().max());
    if let Some(most) = most.filter(|most| **most > 1) {
        let up_to = if least == Some(most) { "" } else { "up to " };
        notes.push(format!("mean of {up_to}{most} seeds, whiskers min to max, small dots single seeds"));
    }
    if measured.iter().any(Measured::is_information) {
        notes.push("MI: mutual information, which one member alone does not have".to_string());
    }
    notes
}
