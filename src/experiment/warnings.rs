//! Settings that are allowed and yet hardly meant, once the number of training images is known: a method's file merged
//! over another data set than it was written for.

use super::{Experiment, Validation};
use crate::data::SplitName;

/// How far `ess` may lie from the number of training images, as a factor.
const FAR: f64 = 2.0;

impl Experiment {
    /// Returns the number of training images that the publisher's numbers, `subset` and the held-out share give; `None`
    /// for a set without published numbers.
    pub fn published_training_images(&self) -> Option<usize> {
        let all = self.data.dataset.published().images_of(SplitName::Train)?;
        let images = match self.data.dataset.resolved().get("subset") {
            None => all,
            Some(toml::Value::Table(of)) => of.get("train").and_then(as_count).unwrap_or(all),
            Some(count) => as_count(count)?,
        };
        Some(match self.data.validation {
            Validation::Published => images,
            Validation::HeldOut(share) => (images as f64 * (1.0 - share)).round() as usize,
        })
    }

    /// Returns a sentence for each setting that does not suit this number of training images.
    pub fn warnings(&self, images: usize) -> Vec<String> {
        let Some(training) = &self.training else { return vec![] };
        let mut warnings = vec![];
        let key = &training.method.key;
        if let Some(ess) = training.method.spec.resolved().get("ess").and_then(as_number)
            && (ess > FAR * images as f64 || ess * FAR < images as f64)
        {
            warnings.push(format!(
                "method.{key}.ess = {ess}, but there are {images} training images: it is usually their number"
            ));
        }
        let steps = training.train.epochs * images.div_ceil(training.train.batch_size);
        let warmup = training.train.warmup_steps;
        if warmup >= steps {
            warnings.push(format!(
                "train.warmup_steps = {warmup} of {steps} steps: the learning rate never reaches its value"
            ));
        }
        warnings
    }
}

fn as_count(value: &toml::Value) -> Option<usize> {
    value.as_integer().and_then(|count| count.try_into().ok())
}

fn as_number(value: &toml::Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|whole| whole as f64))
}
