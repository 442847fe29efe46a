//! Fits Gaussians to trained particles on their training images: first the curvature, then the prior precision.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::curvature::Fit;
use super::memory::images_at_once;
use super::pass::{Maps, Pass};
use super::{Approximation, Curvature, Evidence, Fitted, Labels, Settings, Tuning};
use crate::base::tensor::{guarded, host_f64, label_log_probabilities};
use crate::data::batches::{Batch, Samples, in_order};
use crate::model::Model;
use crate::subspace::Subspace;

/// Advice printed when the fit runs out of memory.
pub const ROOM_TO_FIT: &str =
    "fit fewer parameters (subspace.low-rank.rank, blocks), or lower method.laplace.memory_gib";

/// The model, images and settings that Gaussians are fitted with: around trained particles, or around the checkpoint.
pub struct Fitter<'a, S> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub settings: S,
    /// The training images.
    pub train: Samples<'a>,
    /// The images that are held out.
    pub held_out: Samples<'a>,
    pub batch_size: usize,
    pub seed: u64,
}

impl Fitter<'_, Settings> {
    /// Fits a Gaussian around each row of `theta: [n, P]`.
    ///
    /// # Errors
    /// Fails if the fit needs more memory than allowed, if a curvature is not finite, or if τ is tuned on held-out
    /// images and there are none.
    pub fn fit(&self, theta: &Tensor) -> Result<Fitted> {
        let maps = self.settings.parameters.maps(self.subspace)?;
        let (particles, classes) = (theta.size()[0], self.model.head.classes());
        self.settings.estimate(self.subspace, particles, classes)?;
        let tunable = self.settings.tuning != Tuning::Validation || !self.held_out.indices.is_empty();
        ensure!(
            tunable,
            "method.laplace.tuning = \"validation\" needs held-out images: set data.*.validation, say to 0.1"
        );
        let mut fitted = Vec::new();
        for particle in 0..particles {
            let started = std::time::Instant::now();
            let mode = theta.narrow(0, particle, 1);
            let (curvature, log_likelihood) = self.curvature(&maps, &mode, particle)?;
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
                1e3 * seconds / self.train.indices.len() as f64
            );
            fitted.extend(one.particles.into_iter().map(|p| Approximation { precision, ..p }));
        }
        Ok(Fitted { columns: maps.columns, particles: fitted })
    }

    /// Returns H at `theta: [1, P]`, the row `particle`, and the log-likelihood of the training images.
    pub fn curvature(&self, maps: &Maps, theta: &Tensor, particle: i64) -> Result<(Curvature, f64)> {
        let labels = match self.model.head.gaussian.and_then(|gaussian| gaussian.fixed()) {
            Some(deviation) => Labels::Numbers(deviation),
            None => self.settings.expectation.labels(self.seed, particle),
        };
        let mut fit = Fit::new(maps, self.settings.shape, labels, theta.device());
        let mut log_likelihood = Tensor::zeros([1], (Kind::Double, theta.device()));
        let bar = crate::base::logging::bar(self.train.indices.len() as u64, "curvature");
        // The curvature needs one gradient per image at a time, a linearised prediction one per class.
        for batch in self.batches(maps, self.train, 1)? {
            let Batch { samples, labels } = batch?;
            guarded("laplace", ROOM_TO_FIT, || {
                let images = self.model.preparation.prepare(&samples.for_all());
                let pass = Pass::new(self.model, self.subspace, maps, theta, &images)?;
                let outputs = pass.logits.detach();
                let likelihoods = match &self.model.head.gaussian {
                    Some(gaussian) => -gaussian.losses(&outputs.to_kind(Kind::Double), &labels),
                    None => label_log_probabilities(&outputs, &labels, Kind::Double),
                };
                log_likelihood += likelihoods.sum(Kind::Double);
                fit.add(&pass)
            })?;
            bar.inc(labels.size()[0] as u64);
        }
        bar.finish_and_clear();
        Ok((fit.finish()?, host_f64(&log_likelihood)?[0]))
    }

    /// Returns batches with as many images as fit in memory when each image holds `gradients` gradients.
    pub fn batches<'b>(
        &self,
        maps: &Maps,
        Samples { set, indices }: Samples<'b>,
        gradients: i64,
    ) -> Result<Box<dyn Iterator<Item = Result<Batch>> + 'b>> {
        let most = images_at_once(maps, gradients, Kind::Double) as usize;
        let graph = super::jacobian_graph(self.subspace);
        let estimate = self.settings.estimate(self.subspace, 1, self.model.head.classes())?;
        let sizes = (self.batch_size.min(most).min(indices.len()), estimate.peak);
        let chunker = self.model.plan("laplace", graph, sizes, ROOM_TO_FIT)?;
        Ok(set.batches(in_order(indices, chunker.cut().images)))
    }
}
