//! The detection of foreign images that is asked for: which sets, and by which scores.

use std::fmt;
use std::str::FromStr;

use crate::metrics::ood::features::Entry;
use crate::schema::Choice;

crate::schema::words! {
    /// A group of foreign sets, by the distance of their classes from those of the test set.
    pub enum SetGroup {
        Near = "near",
        Far = "far",
    }
}

crate::schema::words! {
    /// The images of a run on whose features scores are fitted.
    pub enum FittedOn {
        /// The images that it was trained on.
        Training = "train",
        /// The images that it held out, or the published validation split.
        HeldOut = "val",
    }
}

/// A set of other classes, as `KEY=ROOT` or a TOML file, with `near:` or `far:` before it if it belongs to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignSet {
    pub group: Option<SetGroup>,
    pub data: String,
}

impl FromStr for ForeignSet {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<ForeignSet, Self::Err> {
        let of = |group: SetGroup| {
            let data = text.strip_prefix(group.word())?.strip_prefix(':')?;
            Some(ForeignSet { group: Some(group), data: data.into() })
        };
        let grouped = SetGroup::all().find_map(of);
        Ok(grouped.unwrap_or_else(|| ForeignSet { group: None, data: text.into() }))
    }
}

impl fmt::Display for ForeignSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            Some(group) => write!(f, "{group}:{}", self.data),
            None => f.write_str(&self.data),
        }
    }
}

/// The detection of foreign images that is asked for.
pub struct Foreign {
    pub sets: Vec<ForeignSet>,
    /// The scores of features, beside those of predictions.
    pub by: Vec<&'static Entry>,
    pub fitted_on: FittedOn,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_stands_before_the_set() {
        let read = |text: &str| text.parse::<ForeignSet>().unwrap();
        assert_eq!(read("near:cifar100=data").to_string(), "near:cifar100=data");
        assert_eq!(
            read("near:cifar100=data"),
            ForeignSet { group: Some(SetGroup::Near), data: "cifar100=data".into() }
        );
        assert_eq!(read("far:x/y.toml"), ForeignSet { group: Some(SetGroup::Far), data: "x/y.toml".into() });
        for plain in ["cifar100=data", "nearby=data", "image-folder=a:b"] {
            assert_eq!(read(plain), ForeignSet { group: None, data: plain.into() });
            assert_eq!(read(plain).to_string(), plain);
        }
    }
}
