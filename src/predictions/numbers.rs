//! The Gaussians that all members predict for the numbers of one set, and these numbers. They are kept in a file of the form of
//! safetensors, whatever its ending: `means` and `variances` F64 `[m, N]`, `numbers` F64 `[N]` and, if members weigh differently,
//! `weights` F64 `[m]`. All are in the unit of the numbers.

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

/// The Gaussians of m members for N samples, whose numbers are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    members: usize,
    /// The predicted means, `[m, N]`.
    means: Vec<f64>,
    /// The predicted variances, noise included, `[m, N]`, above 0.
    variances: Vec<f64>,
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
        let is_good = |at: usize| means[at].is_finite() && variances[at].is_finite() && variances[at] > 0.0;
        if let Some(at) = (0..means.len()).find(|at| !is_good(*at)) {
            anyhow::bail!(
                "predicted numbers: the mean {} with the variance {} of member {}, sample {}: must be finite, and the variance above 0; \
                 did training diverge, or half precision overflow?",
                means[at],
                variances[at],
                at / samples,
                at % samples
            );
        }
        Ok(Numbers { members, means, variances, numbers, weights: None, metadata: BTreeMap::new() })
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

    /// Returns the mean and the variance that each member predicts for a sample.
    pub fn of_sample(&self, sample: usize) -> impl Iterator<Item = (f64, f64)> + Clone {
        let samples = self.samples();
        (0..self.members).map(move |member| {
            let at = member * samples + sample;
            (self.means[at], self.variances[at])
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
    match tensors.names().contains(&"weights") {
        true => read.with_weights(values("weights")?.1),
        false => Ok(read),
    }
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
        for made in [numbers(), numbers().with_weights(vec![3.0, 1.0]).unwrap()] {
            made.save(&path).unwrap();
            assert_eq!(Numbers::open(&path).unwrap(), made);
        }
        assert_eq!(numbers().with_weights(vec![3.0, 1.0]).unwrap().shares(), [0.75, 0.25]);
        assert_eq!(numbers().of_sample(1).collect::<Vec<_>>(), [(2.0, 0.2), (2.5, 0.4)]);
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
        assert!(Numbers::new(vec![0.0; 3], vec![1.0; 3], vec![0.0; 2]).unwrap_err().to_string().contains("3 means"));
        assert!(Numbers::new(vec![], vec![], vec![]).unwrap_err().to_string().contains("no sample"));
    }
}
