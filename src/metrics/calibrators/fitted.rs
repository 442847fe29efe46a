//! The entry of a calibrator in the registry, the averaged predictions that it maps, and the result of fitting it.

use anyhow::{Result, bail, ensure};

use crate::base::small::Usage;
use crate::metrics::sample::{each_sample, log_sum_exp};
use crate::metrics::scores::{distribution_at, labels};
use crate::metrics::{Average, PerAverage, UNSCALED, temperature};
use crate::predictions::Predictions;
use crate::schema::keyed;

/// A map of averaged predictions to probabilities.
pub trait Map: Send + Sync {
    /// Returns the probabilities of the classes, `[C]`, from averaged logits, `[C]`.
    fn probabilities(&self, logits: &[f64]) -> Vec<f64>;
}

/// A function that fits a map of averaged predictions on those of held-out images and their labels.
pub type FitMap = fn(&Averaged, &[u32]) -> Result<Box<dyn Map>>;

/// The way in which a calibrator is fitted.
pub enum Fit {
    /// One temperature for the logits of all members, before they are averaged.
    Temperature,
    /// A map of averaged predictions.
    Map(FitMap),
}

/// The number of held-out images that a calibrator needs.
pub enum Size {
    /// The calibrator needs as many images as it has parameters for this number of classes. With fewer it is refused, because many
    /// maps fit them all.
    Parameters(fn(usize) -> usize),
    /// A penalty or monotony chooses among maps, so that fewer images are possible; then a warning says so.
    Advised(fn(usize) -> usize),
}

/// A calibrator.
pub struct Calibrator {
    /// The word of `--calibrate`.
    pub key: &'static str,
    pub about: &'static str,
    pub paper: &'static str,
    /// The part of the names of its columns.
    pub suffix: &'static str,
    pub size: Size,
    pub fit: Fit,
}

keyed!(Calibrator, "calibrator");

impl Calibrator {
    /// Returns the title of a table of calibrated numbers.
    pub fn title(&self) -> String {
        match self.fit {
            Fit::Temperature => "temperature scaling".to_string(),
            Fit::Map(_) => format!("calibration by {}", self.key),
        }
    }

    /// Fits the calibrator on held-out predictions for one average.
    ///
    /// # Errors
    /// Fails if there are no labels, if there are fewer images than parameters, or if a logit is not finite.
    pub fn fit(&'static self, held_out: &Predictions, average: Average) -> Result<Calibrated> {
        self.check(held_out)?;
        self.fitted(held_out, average)
    }

    /// Fits the calibrator on held-out predictions for each average.
    ///
    /// # Errors
    /// Fails as [`fit`](Self::fit) does.
    pub fn fit_both(&'static self, held_out: &Predictions) -> Result<PerAverage<Calibrated>> {
        self.check(held_out)?;
        let of = |average| self.fitted(held_out, average);
        Ok(PerAverage { logit: of(Average::Logit)?, probability: of(Average::Probability)? })
    }

    fn fitted(&'static self, held_out: &Predictions, average: Average) -> Result<Calibrated> {
        let fitted = match self.fit {
            Fit::Temperature => {
                let fit = temperature::fit(held_out, average)?;
                let [low, high] = temperature::BOUNDS;
                ensure!(
                    !fit.at_bound,
                    Usage(format!(
                        "--calibrate={}: the held-out NLL ({}) has no minimum for T in {low} to {high}: leave it out, hold out more \
                     images, or choose isotonic",
                        self.key,
                        average.suffix()
                    ))
                );
                Fitted::Temperature(fit.temperature)
            }
            Fit::Map(fit) => Fitted::Map(fit(&Averaged::of(held_out, average)?, labels(held_out)?)?),
        };
        Ok(Calibrated { average, classes: held_out.classes(), fitted })
    }

    /// Refuses a calibrator with more parameters than images, and warns of one that wants more.
    fn check(&self, held_out: &Predictions) -> Result<()> {
        let (images, classes, key) = (held_out.samples(), held_out.classes(), self.key);
        match self.size {
            Size::Parameters(of) if of(classes) > images => bail!(Usage(format!(
                "--calibrate={key}: {} parameters for {classes} classes, but {images} held-out images: needs as many images as \
                 parameters, since many maps fit fewer: hold out more (data.*.validation) or choose temperature",
                of(classes)
            ))),
            Size::Advised(of) if of(classes) > images => tracing::warn!(
                "--calibrate={key}: {images} held-out images, and {} are advised for {classes} classes: expect it to follow them \
                 too closely",
                of(classes)
            ),
            _ => {}
        }
        Ok(())
    }
}

/// A calibrator that was fitted for one average.
pub struct Calibrated {
    average: Average,
    classes: usize,
    fitted: Fitted,
}

enum Fitted {
    Temperature(f64),
    Map(Box<dyn Map>),
}

impl Calibrated {
    /// Returns the calibrated probabilities of all samples, `[N, C]`.
    ///
    /// # Errors
    /// Fails if the number of classes is another one, or if a logit is not finite.
    pub fn probabilities(&self, predictions: &Predictions) -> Result<Vec<Vec<f64>>> {
        let (fitted, found) = (self.classes, predictions.classes());
        ensure!(fitted == found, "a calibrator was fitted on {fitted} classes, and is applied to {found}");
        match &self.fitted {
            Fitted::Temperature(temperature) => {
                let temperatures = match self.average {
                    Average::Logit => PerAverage { logit: *temperature, ..UNSCALED },
                    Average::Probability => PerAverage { probability: *temperature, ..UNSCALED },
                };
                let one = |i| distribution_at(predictions, i, self.average, temperatures);
                (0..predictions.samples()).map(one).collect()
            }
            Fitted::Map(map) => {
                let averaged = Averaged::of(predictions, self.average)?;
                Ok(averaged.rows().map(|row| map.probabilities(row)).collect())
            }
        }
    }
}

/// The averaged predictions of all samples as logits, `[N, C]`: the mean logits, or the logarithms of the mean probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Averaged {
    pub classes: usize,
    pub(super) logits: Vec<f64>,
}

impl Averaged {
    /// Averages the members of all samples.
    ///
    /// # Errors
    /// Fails if a logit is NaN or infinite; the message names the member and the sample.
    pub fn of(predictions: &Predictions, average: Average) -> Result<Averaged> {
        let rows = each_sample(predictions, UNSCALED, |scratch, sample| {
            scratch.read(predictions, sample)?;
            Ok(scratch.logits(predictions, sample, average))
        })?;
        Ok(Averaged { classes: predictions.classes(), logits: rows.concat() })
    }

    pub fn samples(&self) -> usize {
        self.logits.len() / self.classes
    }

    /// Returns the logits of one sample, `[C]`.
    pub fn row(&self, sample: usize) -> &[f64] {
        &self.logits[sample * self.classes..(sample + 1) * self.classes]
    }

    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.logits.chunks_exact(self.classes)
    }

    /// Returns some of the samples.
    pub fn select(&self, samples: &[usize]) -> Averaged {
        let rows: Vec<&[f64]> = samples.iter().map(|sample| self.row(*sample)).collect();
        Averaged { classes: self.classes, logits: rows.concat() }
    }

    /// Returns the logits with the log-sum-exp of each sample subtracted, which are the logarithms of probabilities.
    pub fn normalised(&self) -> Averaged {
        let rows: Vec<Vec<f64>> = self.rows().map(log_softmax).collect();
        Averaged { classes: self.classes, logits: rows.concat() }
    }
}

/// Returns the logarithms of the probabilities of logits, `[C]`.
pub fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let sum = log_sum_exp(logits);
    logits.iter().map(|logit| logit - sum).collect()
}

/// Returns the probabilities of logits, `[C]`.
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    log_softmax(logits).into_iter().map(f64::exp).collect()
}

/// Divides values by their sum; where it is 0, all become equal, as scikit-learn has it.
pub fn normalised(values: Vec<f64>) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    let count = values.len() as f64;
    values.into_iter().map(|value| if sum > 0.0 { value / sum } else { 1.0 / count }).collect()
}
