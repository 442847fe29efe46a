//! The machine that an estimate is for, and the lengths of prompts, counted in the data where they and the tokenizer are there, else taken to be as long as they may be.

use anyhow::{Context, Result, anyhow};
use tch::Kind;

use crate::bench::estimate::network::Sized;
use crate::bench::flops::Reads;
use crate::data::{Inputs, Request, SplitName};
use crate::experiment::{Experiment, Validation};
use crate::machine::Precision;
use crate::model::Preparation;

/// The number of tokens of an answer, where no data say it; memory is planned for as many.
const ANSWER: i64 = 8;

/// The lengths of the prompts of an experiment.
pub struct Lengths {
    /// The most tokens of a prompt.
    most: i64,
    splits: Vec<(SplitName, Counts)>,
    told: String,
}

/// The tokens of the samples of a split.
struct Counts {
    /// The tokens of each prompt, with the answer if one is learnt, ascending.
    whole: Vec<u32>,
    /// The tokens of each prompt alone, ascending.
    prompts: Vec<u32>,
    /// The tokens of each answer with its end, ascending; empty where classes are learnt.
    answers: Vec<u32>,
}

impl Counts {
    fn new(whole: &[u32], prompts: &[u32]) -> Counts {
        let sorted = |all: &[u32]| {
            let mut all = all.to_vec();
            all.sort_unstable();
            all
        };
        let answers: Vec<u32> = whole.iter().zip(prompts).map(|(whole, prompt)| whole - prompt).collect();
        Counts { whole: sorted(whole), prompts: sorted(prompts), answers: sorted(&answers) }
    }
}

/// Returns the expected largest of `size` numbers that are drawn without replacement from ascending ones; 0 without any. The
/// largest is at most number i with probability Π_{k < size} (i + 1 − k) / (N − k).
fn longest(ascending: &[u32], size: usize) -> f64 {
    let (count, size) = (ascending.len(), size.min(ascending.len()).max(1));
    let below =
        |i: usize| -> f64 { (0..size).map(|k| (i + 1).saturating_sub(k) as f64 / (count - k) as f64).product() };
    let mut before = 0.0;
    let mut expected = 0.0;
    for (i, value) in ascending.iter().enumerate() {
        let now = below(i);
        expected += (now - before) * f64::from(*value);
        before = now;
    }
    expected
}

impl Lengths {
    /// Returns the lengths of the prompts of an experiment; `None` if its network takes images alone.
    pub fn of(experiment: &Experiment, network: &Sized) -> Option<Lengths> {
        let most = network.longest.tokens?;
        let splits = match read(experiment, network) {
            Ok(splits) => splits,
            Err(why) => return Some(Lengths::most(network, most, &format!(", since {why:#}"))),
        };
        let mut found = Lengths { most, splits, told: String::new() };
        let batch = experiment.training.as_ref().map_or(1, |training| training.train.batch_size);
        let train = found.counts(SplitName::Train).map_or(&[][..], |counts| &counts.whole);
        let mean = train.iter().map(|tokens| f64::from(*tokens)).sum::<f64>() / train.len().max(1) as f64;
        found.told = format!(
            "{mean:.0} tokens in the mean, {} at most, {:.0} in a batch of {batch}: counted in the data",
            train.last().unwrap_or(&0),
            longest(train, batch)
        );
        Some(found)
    }

    /// Returns the lengths of prompts that are as long as they may be; `None` if the network takes images alone.
    pub fn assumed(network: &Sized) -> Option<Lengths> {
        let most = network.longest.tokens?;
        Some(Lengths::most(network, most, ""))
    }

    fn most(network: &Sized, most: i64, why: &str) -> Lengths {
        let image = match network.patches {
            Some(patches) => format!(", {patches} of them of the image, answers of {ANSWER}"),
            None => String::new(),
        };
        let told = format!("{most} tokens each{image}: assumed (checkpoint.max_tokens){why}");
        Lengths { most, splits: Vec::new(), told }
    }

    /// Returns how long prompts are, and how that is known.
    pub fn told(&self) -> &str {
        &self.told
    }

    fn counts(&self, split: SplitName) -> Option<&Counts> {
        self.splits.iter().find(|(name, _)| *name == split).map(|(_, counts)| counts)
    }

    /// Returns the number of samples of a split that has been counted.
    pub fn samples(&self, split: SplitName) -> Option<usize> {
        self.counts(split).map(|counts| counts.whole.len())
    }

    /// Returns the tokens of each prompt of a batch, which are those of its longest.
    pub fn tokens(&self, split: SplitName, reads: Reads, batch: usize) -> i64 {
        let of = |counts: &Counts| match reads {
            Reads::Writes(_) => longest(&counts.prompts, batch),
            Reads::Classes | Reads::Answer(_) => longest(&counts.whole, batch),
        };
        self.counts(split).map_or(self.most, |counts| of(counts).round() as i64)
    }

    /// Returns the tokens of the longest answer of a batch.
    pub fn answer(&self, split: SplitName, batch: usize) -> i64 {
        self.counts(split).map_or(ANSWER, |counts| longest(&counts.answers, batch).round() as i64)
    }

    /// Returns the tokens that are written for each answer of a batch, of at most `most`: as many as the longest known answer has,
    /// since texts that have ended wait for the longest.
    pub fn written(&self, most: usize) -> i64 {
        let known = self.counts(SplitName::Test).and_then(|counts| counts.answers.last().copied());
        known.map_or(ANSWER, i64::from).min(most as i64)
    }
}

/// Reads and counts the splits of an experiment that it trains and tests on.
fn read(experiment: &Experiment, network: &Sized) -> Result<Vec<(SplitName, Counts)>> {
    let tokenizer = network.tokenizer.as_ref().context("the tokenizer is not there")?;
    let preparation = tokenizer.as_ref().map_err(|why| anyhow!("{why:#}"))?;
    let has_val = experiment.data.validation == Validation::Published;
    let names = [SplitName::Train, SplitName::Val, SplitName::Test];
    let names = names.into_iter().filter(|name| *name != SplitName::Val || has_val);
    names.map(|name| Ok((name, counted(experiment, &**preparation, name)?))).collect()
}

fn counted(experiment: &Experiment, preparation: &dyn Preparation, name: SplitName) -> Result<Counts> {
    let split = experiment.data.dataset.load(name, &Request::listing(1, &|_, _| ()))?;
    let counts = match &split.inputs {
        Inputs::Texts(texts) => {
            let found = preparation.tokens(&split.name, &texts.prompts)?;
            found.map(|found| Counts::new(&found.lengths, &found.lengths))
        }
        Inputs::Questions(questions) => {
            let found = preparation.questions(&split.name, questions)?;
            found.map(|found| Counts::new(&found.answered.lengths, &found.prompts.lengths))
        }
        Inputs::Packed(_) | Inputs::Files(_) | Inputs::Rows(_) => None,
    };
    counts.with_context(|| format!("{}: holds {}", split.name, split.inputs.medium()))
}

/// The share of the rate of matrix products that a training step reaches: 0.64 to 0.72 were measured on two cores
/// (results/speed.md).
pub const SHARE: f64 = 0.65;

/// The machine that the estimate is for.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The rate of large matrix products, in floating-point operations per second.
    pub rate: f64,
    /// The number of images that are decoded and resized per second.
    pub image_rate: f64,
    /// The free memory of the computing device, in bytes.
    pub memory: u64,
    /// The type that `train.precision = "auto"` stands for.
    pub auto: Kind,
}

impl Machine {
    /// Returns the type that a precision stands for.
    pub fn kind(&self, precision: Precision) -> Kind {
        match precision {
            Precision::Auto => self.auto,
            Precision::F32 => Kind::Float,
            Precision::Bf16 => Kind::BFloat16,
            Precision::F16 => Kind::Half,
            Precision::F64 => Kind::Double,
        }
    }
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// The floating-point operations.
    pub flop: f64,
    /// The number of images that are decoded.
    pub decoded: f64,
}

impl Part {
    /// Returns the seconds that the part takes. Images are decoded while the step before computes.
    pub fn seconds(&self, machine: &Machine) -> f64 {
        (self.flop / (SHARE * machine.rate)).max(self.decoded / machine.image_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs of 1, 2 and 4 have the largest values 2, 4 and 4, whose mean is 10 / 3.
    #[test]
    fn the_longest_of_a_batch_is_expected_over_all_batches() {
        assert_eq!(longest(&[1, 2, 4], 1), 7.0 / 3.0);
        assert!((longest(&[1, 2, 4], 2) - 10.0 / 3.0).abs() < 1e-12);
        assert_eq!(longest(&[1, 2, 4], 3), 4.0);
        assert_eq!(longest(&[1, 2, 4], 9), 4.0);
        assert_eq!(longest(&[], 4), 0.0);
    }
}
