//! The options of `--attack`.

use anyhow::Result;
use clap::Args;

use crate::base::small::Usage;
use crate::evaluate::attacks::{ATTACKS, Entry, Resolution, Settings, Target, Version};
use crate::evaluate::{AttackPlan, Source};
use crate::schema::find;

#[derive(Args)]
#[command(next_help_heading = "Attack")]
pub(super) struct AttackArgs {
    /// Attack the test images: one of `bella list attacks` (L∞, untargeted, pixels in [0, 1]).
    #[arg(long, value_name = "NAME", value_parser = |text: &str| find(ATTACKS, text))]
    attack: Option<&'static Entry>,

    /// Budgets of the attack, each from 0 to 1, such as 0.01 or 8/255.
    #[arg(long, value_name = "E,…", value_delimiter = ',', value_parser = parse_unit, requires = "attack",
          allow_negative_numbers = true, default_value = "0.001,0.005,0.01,0.03")]
    epsilon: Vec<f64>,

    /// Loss to raise: that of mean-probability, mean-logit, mean-loss, or member-K (a transfer attack).
    #[arg(long, value_name = "TARGET", default_value = "mean-probability", requires = "attack")]
    attack_target: Target,

    /// Make the attacked images on the members of another run, and try them on this one.
    #[arg(long, value_name = "RUN", requires = "attack")]
    transfer_from: Option<String>,

    /// Pixels to change: those that the network sees, or those of the data set before resizing.
    #[arg(long, value_name = "WHICH", default_value = "model", requires = "attack")]
    attack_resolution: Resolution,

    /// Number of steps of each start [default: 10 of pgd, 100 of apgd-* and fab*].
    #[arg(long, value_name = "N", requires = "attack", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    attack_steps: Option<u32>,

    /// Size of such a step in pixel units, from 0 to 1 [default: 2.5 epsilon / steps].
    #[arg(long, value_name = "S", value_parser = parse_unit, allow_negative_numbers = true, requires = "attack")]
    attack_step_size: Option<f64>,

    /// Start at the image instead of a random point of the ball, where an attack starts at random (pgd, apgd-*, later starts of fab*).
    #[arg(long, requires = "attack")]
    attack_from_image: bool,

    /// Number of starts of an attack that goes on with the images that resist [default: 1; 5 of half of the attacks of version plus].
    #[arg(long, value_name = "N", requires = "attack", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    attack_restarts: Option<u32>,

    /// Number of wrong classes that apgd-t and fab-t aim at, the most probable first [default: 9].
    #[arg(long, value_name = "N", requires = "attack", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    attack_targets: Option<u32>,

    /// Number of squares that square tries [default: 5000].
    #[arg(long, value_name = "N", requires = "attack", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    attack_queries: Option<u32>,

    /// Attacks of autoattack: standard (apgd-ce, apgd-t, fab-t, square) or plus (apgd-dlr and fab, too) [default:
    /// standard].
    #[arg(long, value_name = "VERSION", requires = "attack")]
    attack_version: Option<Version>,

    /// Seed of random starting points and squares [default: 0].
    #[arg(long, value_name = "SEED", requires = "attack")]
    attack_seed: Option<u64>,

    /// Write the attacked pixels (`images` [N, 3, h, w], `labels` [N]) into this folder, as
    /// RUN/SET@CONDITION.safetensors.
    #[arg(long, value_name = "FOLDER", requires = "attack")]
    pub save_images: Option<std::path::PathBuf>,
}

impl AttackArgs {
    /// Returns the attack that is asked for. The run that it is made on is opened with `open`.
    pub fn plan(&self, open: impl FnOnce(&str) -> Result<Source>) -> Result<Option<AttackPlan>> {
        let Some(entry) = self.attack else { return Ok(None) };
        let mut epsilons = self.epsilon.clone();
        epsilons.sort_by(f64::total_cmp);
        epsilons.dedup();
        if self.attack_step_size == Some(0.0) {
            return Err(Usage("--attack-step-size 0: such an attack does not move; give more than 0".into()).into());
        }
        let count = |number: Option<u32>| number.map(|number| number as usize);
        let settings = Settings {
            steps: count(self.attack_steps),
            step_size: self.attack_step_size,
            from_image: self.attack_from_image,
            seed: self.attack_seed,
            restarts: count(self.attack_restarts),
            targets: count(self.attack_targets),
            queries: count(self.attack_queries),
            version: self.attack_version,
        };
        settings.check(entry)?;
        if entry.ranks && self.attack_target == Target::MeanLoss {
            let why = format!(
                "--attack-target mean-loss: it predicts no class, which {} asks for: use mean-probability, mean-logit or \
                 member-K",
                entry.key
            );
            return Err(Usage(why).into());
        }
        let source = self.transfer_from.as_deref().map(open).transpose()?;
        Ok(Some(AttackPlan {
            source,
            entry,
            settings,
            epsilons,
            target: self.attack_target,
            resolution: self.attack_resolution,
        }))
    }
}

/// Reads a number or a fraction of two.
fn parse_unit(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| "must be a number or a fraction, such as 8/255");
    let value = match text.split_once('/') {
        Some((above, below)) => number(above)? / number(below)?,
        None => number(text)?,
    };
    let rule = "must be from 0 to 1: pixels are in [0, 1]";
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(rule.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_numbers_or_fractions() {
        assert_eq!(
            [parse_unit("8/255"), parse_unit(" 1 / 4"), parse_unit("0.03")],
            [Ok(8.0 / 255.0), Ok(0.25), Ok(0.03)]
        );
        for text in ["8/0", "-1", "0/0", "300/255", "inf"] {
            assert_eq!(parse_unit(text).unwrap_err(), "must be from 0 to 1: pixels are in [0, 1]", "{text}");
        }
        assert!(parse_unit("8/255/2").unwrap_err().contains("such as 8/255") && parse_unit("").is_err());
    }
}
