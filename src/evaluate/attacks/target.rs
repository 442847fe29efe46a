//! What an attack raises, and which pixels it moves.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, anyhow, ensure};

use crate::base::small::{Usage, counted};
use crate::schema::words;

/// The loss that an attack raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// −log p̄_y, with p̄ the mean probability over members.
    MeanProbability,
    /// The cross-entropy of the mean logit.
    MeanLogit,
    /// The mean cross-entropy over members.
    MeanLoss,
    /// The cross-entropy of one member (counted from 0): a transfer attack on the others.
    Member(usize),
}

impl Target {
    /// Checks that the member whose loss is raised is one of `members`.
    ///
    /// # Errors
    /// Fails if there are fewer.
    pub fn check(self, members: usize) -> Result<()> {
        if let Target::Member(member) = self {
            let all = counted(members, "member, which is member-0", "members, counted from 0");
            ensure!(member < members, Usage(format!("--attack-target member-{member}: the prediction has {all}")));
        }
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::MeanProbability => f.write_str("mean-probability"),
            Target::MeanLogit => f.write_str("mean-logit"),
            Target::MeanLoss => f.write_str("mean-loss"),
            Target::Member(member) => write!(f, "member-{member}"),
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Target> {
        match text {
            "mean-probability" => Ok(Target::MeanProbability),
            "mean-logit" => Ok(Target::MeanLogit),
            "mean-loss" => Ok(Target::MeanLoss),
            _ => {
                let member = text.strip_prefix("member-").and_then(|digits| digits.parse().ok());
                member.map(Target::Member).ok_or_else(|| {
                    anyhow!(
                        "unknown target `{text}`; known: mean-probability, mean-logit, mean-loss, member-K (from 0)"
                    )
                })
            }
        }
    }
}

words! {
    /// The pixels that an attack moves.
    pub enum Resolution {
        /// The pixels that the network sees, after resizing.
        Model = "model",
        /// The pixels of the data set, before resizing. The gradient passes through the resizing.
        Native = "native",
    }
}
