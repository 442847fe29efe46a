//! Published corrupted versions of a test set, the names of their corruptions (Hendrycks and Dietterich 2019), and the
//! means over them that papers report.

use std::fmt;

/// One corruption of the test images at one severity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The name of the corruption as the publisher writes it, such as `gaussian_noise`.
    pub corruption: String,
    /// The severity, from 1 (the mildest) to 5.
    pub severity: u8,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.corruption, self.severity)
    }
}

/// The published severities.
pub const SEVERITIES: [u8; 5] = [1, 2, 3, 4, 5];

/// The 15 corruptions of the benchmark, followed by the four that its authors meant for validation.
#[rustfmt::skip]
pub static CORRUPTIONS: [&str; 19] = [
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
    "speckle_noise", "gaussian_blur", "spatter", "saturate",
];

/// A group of corruptions whose mean is reported under a name of its own.
pub struct Group {
    /// The condition in results. `mean-15:3` is the mean at severity 3, and `mean-15` the mean over all five
    /// severities.
    pub key: &'static str,
    /// The corruptions in the mean, all with the same weight.
    pub corruptions: &'static [&'static str],
}

/// All groups, starting with the smallest: the eight corruptions of Table 4 of Bella (arXiv 2407.20891), the 15 of the benchmark of
/// Hendrycks and Dietterich (2019), and these with the four extra ones.
pub static GROUPS: [Group; 3] = [
    Group {
        key: "mean-8",
        corruptions: &[
            "contrast",
            "gaussian_blur",
            "gaussian_noise",
            "impulse_noise",
            "pixelate",
            "shot_noise",
            "spatter",
            "speckle_noise",
        ],
    },
    Group { key: "mean-15", corruptions: CORRUPTIONS.split_at(15).0 },
    Group { key: "mean-19", corruptions: &CORRUPTIONS },
];

/// A row of results that is the mean of other rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mean {
    /// The condition, such as `mean-8:1` or `mean-8`.
    pub condition: String,
    /// The severity. `None` if the mean is over all severities.
    pub severity: Option<u8>,
    /// The versions in the mean: every corruption of the group, at the severity or at all five.
    pub versions: Vec<Version>,
}

/// Returns whether the condition of a row of results says that it is the mean of other rows.
pub fn is_mean(condition: &str) -> bool {
    let group = condition.split(':').next();
    GROUPS.iter().any(|of| group == Some(of.key))
}

/// Returns the means whose versions are all in `evaluated`; a mean over only a part of its versions is never formed.
/// `evaluated` may have any order and contain other versions too.
pub fn means(evaluated: &[Version]) -> Vec<Mean> {
    all_means().filter(|mean| missing(mean, evaluated).is_empty()).collect()
}

/// Returns the means over all severities that cannot be formed: the condition of each, and the versions that were not
/// evaluated. Groups of which nothing was evaluated are left out.
pub fn incomplete(evaluated: &[Version]) -> Vec<(String, Vec<Version>)> {
    let over_all = all_means().filter(|mean| mean.severity.is_none());
    let gaps = over_all.map(|mean| (missing(&mean, evaluated), mean));
    let begun = gaps.filter(|(gap, mean)| !gap.is_empty() && gap.len() < mean.versions.len());
    begun.map(|(gap, mean)| (mean.condition, gap)).collect()
}

fn missing(mean: &Mean, evaluated: &[Version]) -> Vec<Version> {
    mean.versions.iter().filter(|version| !evaluated.contains(version)).cloned().collect()
}

fn all_means() -> impl Iterator<Item = Mean> {
    GROUPS.iter().flat_map(|group| {
        let at = |severities: &[u8]| -> Vec<Version> {
            let of = |corruption: &&str| {
                let corruption = corruption.to_string();
                severities.iter().map(move |&severity| Version { corruption: corruption.clone(), severity })
            };
            group.corruptions.iter().flat_map(of).collect()
        };
        let one = |severity: u8| Mean {
            condition: format!("{}:{severity}", group.key),
            severity: Some(severity),
            versions: at(&[severity]),
        };
        let over_all = Mean { condition: group.key.to_string(), severity: None, versions: at(&SEVERITIES) };
        let each: Vec<Mean> = SEVERITIES.iter().map(|&severity| one(severity)).collect();
        each.into_iter().chain([over_all])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(corruptions: &[&str], severities: &[u8]) -> Vec<Version> {
        let of = |corruption: &&str| {
            let corruption = corruption.to_string();
            severities.iter().map(move |&severity| Version { corruption: corruption.clone(), severity })
        };
        corruptions.iter().flat_map(of).collect()
    }

    fn conditions(evaluated: &[Version]) -> Vec<String> {
        means(evaluated).into_iter().map(|mean| mean.condition).collect()
    }

    #[test]
    fn groups_hold_what_their_names_say() {
        for (group, count) in GROUPS.iter().zip([8, 15, 19]) {
            let distinct: std::collections::BTreeSet<_> = group.corruptions.iter().collect();
            assert_eq!((distinct.len(), group.key), (count, format!("mean-{count}").as_str()));
            assert!(group.corruptions.iter().all(|name| CORRUPTIONS.contains(name)), "{}", group.key);
        }
        assert_eq!(GROUPS[1].corruptions.last(), Some(&"jpeg_compression"));
    }

    #[test]
    fn everything_gives_every_mean() {
        let all = versions(&CORRUPTIONS, &SEVERITIES);
        let found = means(&all);
        assert_eq!(found.len(), 18);
        let sizes: Vec<usize> = found.iter().map(|mean| mean.versions.len()).collect();
        assert_eq!(sizes, [8, 8, 8, 8, 8, 40, 15, 15, 15, 15, 15, 75, 19, 19, 19, 19, 19, 95]);
        assert_eq!((found[5].condition.as_str(), found[5].severity), ("mean-8", None));
        assert_eq!((found[6].condition.as_str(), found[6].severity), ("mean-15:1", Some(1)));
        assert!(incomplete(&all).is_empty());
    }

    #[test]
    fn a_part_gives_no_mean() {
        let eight = GROUPS[0].corruptions;
        assert_eq!(conditions(&versions(eight, &[5, 1])), ["mean-8:1", "mean-8:5"]);
        assert!(conditions(&versions(&eight[1..], &SEVERITIES)).is_empty());
        let mut almost = versions(eight, &SEVERITIES);
        almost.retain(|version| version.to_string() != "spatter:4");
        assert_eq!(conditions(&almost), ["mean-8:1", "mean-8:2", "mean-8:3", "mean-8:5"]);
        let gaps = incomplete(&almost);
        assert_eq!(gaps[0].0, "mean-8");
        assert_eq!(gaps[0].1, versions(&["spatter"], &[4]));
        assert!(incomplete(&versions(&["own"], &SEVERITIES)).is_empty());
    }
}
