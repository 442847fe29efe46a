//! The Gaussians that all members predict for the numbers of one set, and these numbers. They are kept in a file of the form of
//! safetensors, whatever its ending: `means` and `variances` F64 `[m, N]`, `numbers` F64 `[N]`, `spreads` F64 `[m, N]` if means are
//! Gaussian themselves, and `weights` F64 `[m]` if members weigh differently. All but weights are in the unit of the numbers.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use safetensors::SafeTensors;

use super::read::{bytes_of, doubles};
use crate::base::checksummed::{self, Part};
use crate::base::files::{open_file, read_file};

/// The ending of a file of predicted numbers.
pub const ENDING: &str = "numbers";

const NO_NUMBERS: &str = "is no file of predicted numbers, or is truncated; evaluate again to write it anew";

/// The Gaussian that a member predicts for a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub mean: f64,
    /// The variance, above 0.
    pub variance: f64,
    /// The part of the variance that is that of the mean, where the member is a Gaussian of means, as a linearised network is; the rest
    /// is the noise.
    pub spread: f64,
}

impl Moments {
    /// Returns whether all are finite, the variance is above 0, and the spread is a part of it.
    pub fn are_sound(&self) -> bool {
        let Moments { mean, variance, spread } = *self;
        mean.is_finite() && variance.is_finite() && variance > 0.0 && (0.0..=variance).contains(&spread)
    }

    /// Returns what is wrong with those of a member and a sample, for messages.
    pub fn fault(&self, member: usize, sample: usize) -> String {
        format!(
            "predicted numbers: the mean {} with the variance {} of member {member}, sample {sample}: must be finite, and the variance above 0; \
             did training diverge, or half precision overflow?",
            self.mean, self.variance
        )
    }
}

/// The Gaussians of m members for N samples, whose numbers are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    members: usize,
    /// The predicted means, `[m, N]`.
    means: Vec<f64>,
    /// The predicted variances, noise included, `[m, N]`, above 0.
    variances: Vec<f64>,
    /// The parts of the variances that are those of means, `[m, N]`; `None` if all is noise.
    spreads: Option<Vec<f64>>,
    /// The true numbers, `[N]`.
    numbers: Vec<f64>,
    /// The weights of the members, `[m]`; `None` if all weigh the same.
    weights: Option<Vec<f64>>,
    pub metadata: BTreeMap<String, String>,
}

impl Numbers {
    /// Creates predictions from means and variances `[m, N]`, row-major, and the true numbers `[N]`.
    ///
    /// # Errors
    /// Fails if there is no member or sample, if lengths do not fit each other, if a number is not finite, or if a variance is not
    /// above 0; the message then names the member and the sample.
    pub fn new(means: Vec<f64>, variances: Vec<f64>, numbers: Vec<f64>) -> Result<Numbers> {
        let samples = numbers.len();
        ensure!(samples > 0, "predicted numbers: no sample");
        let members = means.len() / samples;
        ensure!(
            members > 0 && means.len() == members * samples && variances.len() == means.len(),
            "predicted numbers: {} means and {} variances for {samples} samples",
            means.len(),
            variances.len()
        );
        if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
            anyhow::bail!("predicted numbers: the number {} of sample {at} is not finite", numbers[at]);
        }
        let of = |at: usize| Moments { mean: means[at], variance: variances[at], spread: 0.0 };
        if let Some(at) = (0..means.len()).find(|at| !of(*at).are_sound()) {
            anyhow::bail!(of(at).fault(at / samples, at % samples));
        }
        Ok(Numbers { members, means, variances, spreads: None, numbers, weights: None, metadata: BTreeMap::new() })
    }

    /// Adds the parts `[m, N]` of the variances that are those of means; all 0 are none.
    ///
    /// # Errors
    /// Fails if there is not one for each variance, or if one is below 0 or above its variance.
    pub fn with_spreads(self, spreads: Vec<f64>) -> Result<Numbers> {
        ensure!(
            spreads.len() == self.variances.len(),
            "predicted numbers: {} spreads for {} variances",
            spreads.len(),
            self.variances.len()
        );
        let is_part = |at: &usize| (0.0..=self.variances[*at]).contains(&spreads[*at]);
        if let Some(at) = (0..spreads.len()).find(|at| !is_part(at)) {
            anyhow::bail!(
                "predicted numbers: the spread {} is no part of the variance {}",
                spreads[at],
                self.variances[at]
            );
        }
        let spreads = spreads.iter().any(|spread| *spread > 0.0).then_some(spreads);
        Ok(Numbers { spreads, ..self })
    }

    /// Adds the weights `[m]` with which the members count in the mixture. They need not sum to 1.
    ///
    /// # Errors
    /// Fails if there is not one for each member, if one is below 0 or not finite, or if all are 0.
    pub fn with_weights(mut self, weights: Vec<f64>) -> Result<Numbers> {
        super::check_weights(&weights, self.members)?;
        self.weights = Some(weights);
        Ok(self)
    }

    /// Adds free text about the predictions by key: set, condition, run, method, …
    pub fn with_metadata(self, metadata: BTreeMap<String, String>) -> Numbers {
        Numbers { metadata, ..self }
    }

    pub fn members(&self) -> usize {
        self.members
    }

    pub fn samples(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the true numbers, `[N]`.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// Returns what each member predicts for a sample.
    pub fn of_sample(&self, sample: usize) -> impl Iterator<Item = Moments> + Clone {
        let samples = self.samples();
        (0..self.members).map(move |member| {
            let at = member * samples + sample;
            let spread = self.spreads.as_ref().map_or(0.0, |spreads| spreads[at]);
            Moments { mean: self.means[at], variance: self.variances[at], spread }
        })
    }

    /// Returns the weights of the members, `[m]`, which sum to 1.
    pub fn shares(&self) -> Vec<f64> {
        let weights = self.weights.clone().unwrap_or_else(|| vec![1.0; self.members]);
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    /// Writes the predictions to `path` atomically. Equal predictions give equal bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let (members, samples) = (self.members, self.samples());
        let mut tensors: Vec<(&str, Vec<usize>, &[f64])> = vec![
            ("means", vec![members, samples], &self.means),
            ("variances", vec![members, samples], &self.variances),
            ("numbers", vec![samples], &self.numbers),
        ];
        tensors.extend(self.spreads.as_deref().map(|spreads| ("spreads", vec![members, samples], spreads)));
        tensors.extend(self.weights.as_deref().map(|weights| ("weights", vec![members], weights)));
        let part = |(name, shape, values): &(&'static str, Vec<usize>, &[f64])| Part {
            name,
            dtype: "F64",
            shape: shape.clone(),
            bytes: size_of_val(*values),
        };
        let metadata = self.metadata.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let parts: Vec<Part> = tensors.iter().map(part).collect();
        checksummed::write(path, &metadata, &parts, |part, file| Ok(file.write_all(bytes_of(tensors[part].2))?))
    }

    /// Reads a saved file.
    ///
    /// # Errors
    /// Fails if it is no file of predicted numbers, if it has changed since it was written, or if its tensors do not fit together.
    pub fn open(path: &Path) -> Result<Numbers> {
        read(path).with_context(|| format!("predictions file {}", path.display()))
    }
}

fn read(path: &Path) -> Result<Numbers> {
    checksummed::check(&open_file(path)?).context("evaluate again to write it anew")?;
    let bytes = read_file(path)?;
    let tensors = SafeTensors::deserialize(&bytes).context(NO_NUMBERS)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).context(NO_NUMBERS)?;
    let mut metadata: BTreeMap<_, _> = header.metadata().clone().unwrap_or_default().into_iter().collect();
    checksummed::check_present(&metadata)?;
    metadata.remove(checksummed::KEY);
    let values = |name: &str| -> Result<(Vec<usize>, Vec<f64>)> {
        let tensor = tensors.tensor(name).with_context(|| format!("has no tensor `{name}`: {NO_NUMBERS}"))?;
        Ok((tensor.shape().to_vec(), doubles(name, &tensor)?))
    };
    let ((shape, means), (_, variances), (_, numbers)) = (values("means")?, values("variances")?, values("numbers")?);
    ensure!(
        shape.len() == 2 && shape[1] == numbers.len(),
        "tensor `means` has shape {shape:?}; it must be [members, {}], as `numbers` has",
        numbers.len()
    );
    let read = Numbers { metadata, ..Numbers::new(means, variances, numbers)? };
    let has = |name: &str| tensors.names().contains(&name);
    let read = if has("spreads") { read.with_spreads(values("spreads")?.1)? } else { read };
    if has("weights") { read.with_weights(values("weights")?.1) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Numbers {
        let made = Numbers::new(vec![1.0, 2.0, 1.5, 2.5], vec![0.1, 0.2, 0.3, 0.4], vec![1.0, 3.0]).unwrap();
        Numbers { metadata: [("run".to_string(), "r1".to_string())].into(), ..made }
    }

    #[test]
    fn predictions_survive_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.numbers");
        let spread = numbers().with_spreads(vec![0.05, 0.0, 0.3, 0.1]).unwrap();
        for made in [numbers(), numbers().with_weights(vec![3.0, 1.0]).unwrap(), spread] {
            made.save(&path).unwrap();
            assert_eq!(Numbers::open(&path).unwrap(), made);
        }
        assert_eq!(numbers().with_weights(vec![3.0, 1.0]).unwrap().shares(), [0.75, 0.25]);
        let of = |mean, variance, spread| Moments { mean, variance, spread };
        assert_eq!(numbers().of_sample(1).collect::<Vec<_>>(), [of(2.0, 0.2, 0.0), of(2.5, 0.4, 0.0)]);
        let spread = numbers().with_spreads(vec![0.0, 0.1, 0.2, 0.3]).unwrap();
        assert_eq!(spread.of_sample(1).collect::<Vec<_>>(), [of(2.0, 0.2, 0.1), of(2.5, 0.4, 0.3)]);
        assert_eq!(numbers().with_spreads(vec![0.0; 4]).unwrap(), numbers());
    }

    #[test]
    fn damaged_and_foreign_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.numbers");
        numbers().save(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = format!("{:#}", Numbers::open(&path).unwrap_err());
        assert!(error.contains("a.numbers: evaluate again to write it anew"), "{error}");
        let logits = crate::predictions::Predictions::new(
            crate::predictions::Shape { members: 1, samples: 1, classes: 2 },
            vec![0.0, 1.0],
            vec![0],
        );
        logits.unwrap().save(&path).unwrap();
        let error = format!("{:#}", Numbers::open(&path).unwrap_err());
        assert!(error.contains("has no tensor `means`"), "{error}");
    }

    #[test]
    fn values_are_checked() {
        let new = |mean: f64, variance: f64, number: f64| {
            Numbers::new(vec![0.0, mean], vec![1.0, variance], vec![0.0, number]).map_err(|error| error.to_string())
        };
        assert!(new(1.0, 1.0, 1.0).is_ok());
        assert!(
            new(f64::NAN, 1.0, 1.0).unwrap_err().contains("the mean NaN with the variance 1 of member 0, sample 1")
        );
        assert!(new(1.0, 0.0, 1.0).unwrap_err().contains("the variance above 0"));
        assert!(new(1.0, 1.0, f64::INFINITY).unwrap_err().contains("the number inf of sample 1 is not finite"));
        let spread = |spreads: &[f64]| numbers().with_spreads(spreads.to_vec()).unwrap_err().to_string();
        assert!(spread(&[0.0, 0.3, 0.0, 0.0]).contains("the spread 0.3 is no part of the variance 0.2"));
        assert!(spread(&[0.0; 3]).contains("3 spreads for 4 variances"));
        assert!(Numbers::new(vec![0.0; 3], vec![1.0; 3], vec![0.0; 2]).unwrap_err().to_string().contains("3 means"));
        assert!(Numbers::new(vec![], vec![], vec![]).unwrap_err().to_string().contains("no sample"));
    }
}
