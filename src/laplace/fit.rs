//! Fits Gaussians to trained particles on their training images: first the curvature, then the prior precision.

use std::ops::Range;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use super::curvature::Fit;
use super::memory::images_at_once;
use super::pass::{Maps, Pass};
use super::variance::Projected;
use super::{Approximation, Curvature, Evidence, Fitted, Output, Settings, Tuning};
use crate::base::noise::posterior_row;
use crate::base::tensor::{guarded, host_f64, label_log_probabilities, mixture_log_probabilities};
use crate::data::batches::{Batch, SampleSet, in_order};
use crate::machine::Chunk;
use crate::model::Model;
use crate::predict::{Members, Predictor, Rows};
use crate::subspace::Subspace;

/// The number of prior precisions tried by `tuning = "validation"`, spaced logarithmically from 10⁻⁴ to 10⁴.
const GRID: usize = 41;

/// Advice printed when the fit runs out of memory.
const ROOM_TO_FIT: &str = "fit fewer parameters (subspace.low-rank.rank, blocks), or lower method.laplace.memory_gib";

/// The model, images and settings that the Gaussians are fitted with.
pub struct Fitter<'a> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub settings: Settings,
    pub images: &'a SampleSet,
    /// The indices of the training images.
    pub train: &'a [u32],
    /// The set of images that `validation` indexes.
    pub validation_images: &'a SampleSet,
    /// The indices of the held-out images on which τ is tuned.
    pub validation: &'a [u32],
    pub batch_size: usize,
    pub seed: u64,
}

impl Fitter<'_> {
    /// Fits a Gaussian around each row of `theta: [n, P]`.
    ///
    /// # Errors
    /// Fails if the fit needs more memory than allowed, if a curvature is not finite, or if τ is tuned on held-out
    /// images and there are none.
    pub fn fit(&self, theta: &Tensor) -> Result<Fitted> {
        let maps = self.settings.parameters.maps(self.subspace)?;
        let (particles, classes) = (theta.size()[0], self.model.head.classes());
        self.settings.estimate(self.subspace, particles, classes)?;
        let tunable = self.settings.tuning != Tuning::Validation || !self.validation.is_empty();
        ensure!(
            tunable,
            "method.laplace.tuning = \"validation\" needs held-out images: set data.*.validation, say to 0.1"
        );
        let mut fitted = Vec::new();
        for particle in 0..particles {
            let started = std::time::Instant::now();
            let mode = theta.narrow(0, particle, 1);
            let (curvature, log_likelihood) = self.curvature(&maps, &mode)?;
            let seconds = started.elapsed().as_secs_f64();
            let own = mode.get(0).narrow(0, maps.columns.start, maps.parameters());
            let evidence = Evidence::new(&curvature, &own, log_likelihood)?;
            let one =
                Fitted { columns: maps.columns.clone(), particles: vec![Approximation { curvature, precision: 1.0 }] };
            let precision = self.tune(&maps, particle, &mode, &one, &evidence)?;
            tracing::info!(
                "laplace: particle {}: prior precision {precision:.4e}, log evidence {:.2} (log-likelihood {:.2}); curvature \
                 in {:.2} s per 1,000 images",
                particle + 1,
                evidence.at(precision),
                evidence.log_likelihood,
                1e3 * seconds / self.train.len() as f64
            );
            fitted.extend(one.particles.into_iter().map(|p| Approximation { precision, ..p }));
        }
        Ok(Fitted { columns: maps.columns, particles: fitted })
    }

    /// Returns H at `theta: [1, P]`, and the log-likelihood of the training images.
    pub fn curvature(&self, maps: &Maps, theta: &Tensor) -> Result<(Curvature, f64)> {
        let mut fit = Fit::new(maps, self.settings.shape, theta.device());
        let mut log_likelihood = Tensor::zeros([1], (Kind::Double, theta.device()));
        let bar = crate::base::logging::bar(self.train.len() as u64, "curvature");
        // The curvature needs one gradient per image at a time, a linearised prediction one per class.
        for batch in self.batches(maps, (self.images, self.train), 1)? {
            let Batch { samples, labels } = batch?;
            guarded("laplace", ROOM_TO_FIT, || {
                let images = self.model.preparation.prepare(&samples.unsqueeze(0));
                let pass = Pass::new(self.model, self.subspace, maps, theta, &images)?;
                log_likelihood +=
                    label_log_probabilities(&pass.logits.detach(), &labels, Kind::Double).sum(Kind::Double);
                fit.add(&pass)
            })?;
            bar.inc(labels.size()[0] as u64);
        }
        bar.finish_and_clear();
        Ok((fit.finish()?, host_f64(&log_likelihood)?[0]))
    }

    /// Returns batches with as many images as fit in memory when each image holds `gradients` gradients.
    fn batches<'b>(
        &self,
        maps: &Maps,
        (images, indices): (&'b SampleSet, &[u32]),
        gradients: i64,
    ) -> Result<Box<dyn Iterator<Item = Result<Batch>> + 'b>> {
        let most = images_at_once(maps, gradients, Kind::Double) as usize;
        let graph = super::jacobian_graph(self.subspace);
        let estimate = self.settings.estimate(self.subspace, 1, self.model.head.classes())?;
        let sizes = (self.batch_size.min(most).min(indices.len()), estimate.peak);
        let cutter = self.model.plan("laplace", graph, sizes, ROOM_TO_FIT)?;
        Ok(images.batches(in_order(indices, cutter.cut().images)))
    }

    /// Returns the prior precision τ of one particle.
    fn tune(&self, maps: &Maps, particle: i64, theta: &Tensor, one: &Fitted, evidence: &Evidence) -> Result<f64> {
        match self.settings.tuning {
            Tuning::Fixed => Ok(self.settings.prior_precision),
            Tuning::Evidence => {
                let precision = evidence.maximum();
                let (low, high) = super::evidence::RANGE;
                if precision < 1.01 * low || precision > 0.99 * high {
                    tracing::warn!(
                        "laplace: the evidence has no maximum in {low:e} to {high:e}: prior precision {precision:e}"
                    );
                }
                Ok(precision)
            }
            Tuning::Validation => {
                let grid: Vec<f64> = (0..GRID).map(|i| 10f64.powf(-4.0 + 8.0 * i as f64 / (GRID - 1) as f64)).collect();
                let losses = match self.settings.output {
                    Output::Sampled => self.sampled_losses(&grid, theta, one)?,
                    _ => self.linearised_losses(&grid, maps, particle, theta, one)?,
                };
                let best = grid.iter().zip(&losses).filter(|(_, loss)| loss.is_finite());
                let best = best.min_by(|a, b| a.1.total_cmp(b.1));
                let (precision, _) = best.ok_or_else(|| {
                    anyhow::anyhow!(
                        "laplace: no prior precision of the grid has a finite validation NLL: lower optimizer.*.lr"
                    )
                })?;
                Ok(*precision)
            }
        }
    }

    /// Returns the validation NLL of linearised predictions at each τ. One Jacobian per batch serves every τ.
    fn linearised_losses(
        &self,
        grid: &[f64],
        maps: &Maps,
        particle: i64,
        theta: &Tensor,
        one: &Fitted,
    ) -> Result<Vec<f64>> {
        let classes = self.model.head.classes();
        let epsilon = super::noise(self.seed, particle, self.settings.samples, classes, theta.device());
        let mut sums = Tensor::zeros([grid.len() as i64], (Kind::Double, theta.device()));
        let held_out = (self.validation_images, self.validation);
        for batch in self.batches(maps, held_out, self.model.head.classes())? {
            let Batch { samples, labels } = batch?;
            guarded("laplace", ROOM_TO_FIT, || {
                let images = self.model.preparation.prepare(&samples.unsqueeze(0));
                let pass = Pass::new(self.model, self.subspace, maps, theta, &images)?;
                let projected = Projected::new(&one.particles[0].curvature, maps, &pass)?;
                let mean = pass.logits.detach();
                let losses: Vec<Tensor> = grid
                    .iter()
                    .map(|tau| {
                        let members =
                            super::outputs(self.settings.output, &mean, &projected.variance(*tau)?, &epsilon)?;
                        Ok(-mixture_log_probabilities(&members, &labels, Kind::Double).sum(Kind::Double))
                    })
                    .collect::<Result<_>>()?;
                sums += Tensor::stack(&losses, 0);
                Ok(())
            })?;
        }
        host_f64(&(sums / self.validation.len() as f64))
    }

    /// Returns the validation NLL of networks with sampled weights at each τ. Every τ uses the same noise.
    fn sampled_losses(&self, grid: &[f64], theta: &Tensor, one: &Fitted) -> Result<Vec<f64>> {
        let loss = |tau: &f64| {
            let rows = Drawn { one, tau: *tau, theta, seed: self.seed, samples: self.settings.samples };
            let members = Members::Rows { subspace: self.subspace, rows: &rows };
            let predictor = Predictor::new(self.model, members, Chunk::Auto);
            let values = predictor.all_logits(
                self.validation_images,
                self.validation,
                self.batch_size,
                &ProgressBar::hidden(),
            )?;
            let shape = [rows.count() as i64, self.validation.len() as i64, self.model.head.classes()];
            let labels = self.validation.iter().map(|i| i64::from(self.validation_images.split.labels[*i as usize]));
            let labels = Tensor::from_slice(&labels.collect::<Vec<_>>());
            let found = mixture_log_probabilities(&Tensor::from_slice(&values).view(shape), &labels, Kind::Double);
            Ok(-found.mean(Kind::Double).double_value(&[]))
        };
        grid.iter().map(loss).collect()
    }
}

/// Sampled weights around one particle at a given prior precision.
struct Drawn<'a> {
    one: &'a Fitted,
    tau: f64,
    /// The particle, `[1, P]`.
    theta: &'a Tensor,
    seed: u64,
    samples: usize,
}

impl Rows for Drawn<'_> {
    fn count(&self) -> usize {
        self.samples
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        let curvature = &self.one.particles[0].curvature;
        let row = |sample: usize| {
            let epsilon = posterior_row(self.seed, sample as i64, 0, self.theta);
            curvature.draw(self.tau, &self.one.columns, &self.theta.get(0), &epsilon)
        };
        Ok(Tensor::stack(&members.map(row).collect::<Vec<_>>(), 0))
    }

    fn are_made(&self) -> bool {
        true
    }
}
