//! Fits Gaussians to trained particles on their training images: first the curvature, then the prior precision. The memory of the
//! fit is estimated before.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::curvature::Fit;
use super::factor::sketch_width;
use super::pass::{Maps, Pass};
use super::{Approximation, Curvature, Evidence, Fitted, Settings, Shape, Structure, Tuning};
use crate::base::tensor::{guarded, host_f64, label_log_probabilities, wide};
use crate::data::batches::{Batch, SampleSet, in_order};
use crate::machine::memory::gib;
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
    pub images: &'a SampleSet,
    /// The indices of the training images.
    pub train: &'a [u32],
    /// The set of images from which some are held out, and the indices of these.
    pub held_out: (&'a SampleSet, &'a [u32]),
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
        let tunable = self.settings.tuning != Tuning::Validation || !self.held_out.1.is_empty();
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
                let images = self.model.preparation.prepare(&samples.for_all());
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
    pub fn batches<'b>(
        &self,
        maps: &Maps,
        (images, indices): (&'b SampleSet, &[u32]),
        gradients: i64,
    ) -> Result<Box<dyn Iterator<Item = Result<Batch>> + 'b>> {
        let most = images_at_once(maps, gradients, Kind::Double) as usize;
        let graph = super::jacobian_graph(self.subspace);
        let estimate = self.settings.estimate(self.subspace, 1, self.model.head.classes())?;
        let sizes = (self.batch_size.min(most).min(indices.len()), estimate.peak);
        let chunker = self.model.plan("laplace", graph, sizes, ROOM_TO_FIT)?;
        Ok(images.batches(in_order(indices, chunker.cut().images)))
    }
}

/// The largest number of bytes that the gradients of one batch may take.
pub const BATCH_BYTES: i64 = 256 << 20;

/// The memory of the curvature of all particles, and of the work space for fitting the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of the stored curvature of all particles.
    pub stored: u64,
    /// The largest number of bytes in use while fitting.
    pub peak: u64,
    /// The number of parameters per particle.
    pub parameters: u64,
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "the curvature of {} parameters a particle takes {:.3} GiB, at most {:.3} GiB while it is fitted",
            self.parameters,
            gib(self.stored),
            gib(self.peak)
        )
    }
}

impl Estimate {
    pub fn new(maps: &Maps, shape: Shape, particles: u64, classes: i64) -> Estimate {
        const F64: u64 = 8;
        let parameters = maps.parameters() as u64;
        let (one, work) = match shape.structure {
            Structure::Diag => (F64 * parameters, F64 * parameters),
            // The work space holds the sum, its eigenvectors, and the buffers of the eigenvalue solver.
            Structure::Full => (F64 * parameters * (parameters + 1), 2 * F64 * parameters * parameters),
            Structure::Kron => {
                let side = |size: i64, low: bool| {
                    let (size, kept) = (size as u64, shape.kept as u64);
                    if low {
                        (F64 * size * kept, 4 * F64 * size * sketch_width(size as i64, shape.kept) as u64)
                    } else {
                        (F64 * size * size, 2 * F64 * size * size)
                    }
                };
                let low = |size: i64| size >= shape.wide && sketch_width(size, shape.kept) < size;
                let sides = maps.maps.iter().flat_map(|map| {
                    [side(map.inputs, low(map.inputs)), side(map.outputs, low(map.outputs) && !map.role.is_head())]
                });
                let sides: Vec<(u64, u64)> = sides.collect();
                (sides.iter().map(|s| s.0).sum(), sides.iter().map(|s| s.1).max().unwrap_or(0))
            }
        };
        let batch = images_at_once(maps, classes, Kind::Double) as u64 * per_image(maps, classes, Kind::Double) as u64;
        Estimate { stored: one * particles, peak: one * particles + work + batch, parameters }
    }

    /// Checks the estimate against `limit` bytes.
    ///
    /// # Errors
    /// Fails if fitting needs more than `limit` bytes; the message says what to change.
    pub fn check(&self, shape: Shape, limit: u64) -> Result<()> {
        let advice = match shape.structure {
            Structure::Full => {
                "set method.laplace.structure = \"kron\", or fit fewer parameters (subspace.low-rank.rank, blocks)"
            }
            Structure::Kron => "lower method.laplace.wide or method.laplace.kept",
            Structure::Diag => "fit fewer parameters (subspace.low-rank.rank, blocks)",
        };
        ensure!(
            self.peak <= limit,
            "method.laplace: the curvature of {} parameters needs {:.1} GiB, more than method.laplace.memory_gib = {:.1}: \
             {advice}, or raise the bound",
            self.parameters,
            gib(self.peak),
            gib(limit)
        );
        Ok(())
    }
}

/// Returns the bytes of the gradients of one image, counted twice: as they are computed, and concatenated.
pub fn per_image(maps: &Maps, gradients: i64, kind: Kind) -> i64 {
    2 * gradients * maps.parameters() * wide(kind).elt_size_in_bytes() as i64
}

/// Returns the number of images whose gradients are held at once, with `gradients` per image (a Jacobian has one per
/// class).
pub fn images_at_once(maps: &Maps, gradients: i64, kind: Kind) -> i64 {
    (BATCH_BYTES / per_image(maps, gradients, kind).max(1)).clamp(1, 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laplace::Tokens;
    use crate::laplace::pass::{Map, Role};

    #[test]
    fn full_curvature_of_many_parameters_is_refused() {
        let map = |role, inputs, outputs| Map { block: 0, role, inputs, outputs };
        let maps = Maps { maps: vec![map(Role::Down, 768, 4), map(Role::Up, 4, 3072)], columns: 0..15_360 };
        let shape = |structure| Shape { structure, tokens: Tokens::Expand, wide: 512, kept: 10 };
        let estimate = |structure| Estimate::new(&maps, shape(structure), 1, 10);
        assert_eq!(estimate(Structure::Diag).stored, 8 * 15_360);
        // The inputs of A and the gradients of B are kept at rank 10; the other sides are 4 x 4.
        assert_eq!(estimate(Structure::Kron).stored, 8 * (10 * (768 + 3072) + 2 * 16));
        assert!(estimate(Structure::Kron).check(shape(Structure::Kron), 1 << 30).is_ok());
        let error = estimate(Structure::Full).check(shape(Structure::Full), 1 << 30).unwrap_err().to_string();
        assert!(error.contains("15360 parameters needs 5.") && error.contains("structure = \"kron\""), "{error}");
    }
}
