//! Fits Gaussians to trained particles on their training images: first the curvature, then the prior precision.
//!
//! The curvature is the generalised Gauss-Newton matrix H = Σ_n J_nᵀ Λ_n J_n of one particle, with Λ = diag(p) − p pᵀ, in three
//! structures.
//!
//! For numbers with a Gaussian noise of deviation σ, Λ = 1 / σ². The expectation over the labels is exact or by draws ([`Labels`]):
//! Λ = Σ_k s_k s_kᵀ has C − 1 directions s_k, or one a draw, and each takes one backward pass.
//!
//! | structure | H is approximated by | what is left out |
//! |---|---|---|
//! | `kron` | G ⊗ X per map (Martens & Grosse 2015, arXiv 1503.05671) | between maps; Kronecker |
//! | `diag` | diag(H) | everything off the diagonal |
//! | `full` | H | nothing |
//!
//! In `kron`, X is the mean of x xᵀ and G = Σ g gᵀ. Tokens, without those that only fill up a text, enter in one of two ways (Eschenhagen et al. 2023, arXiv
//! 2311.00636). `expand` counts each token as one sample: X is a mean over images and tokens, and G a sum over both.
//! `reduce` counts each image as one sample: x is its mean over tokens, and g its sum. Sides of at least `wide`
//! dimensions are kept at low rank. In the directions left out the curvature is 0, so the posterior there is the prior.

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use super::factor::{Sum, check};
use super::memory::images_at_once;
use super::pass::{Map, Maps, Pass, Site, weight_gradient};
use super::{Approximation, Evidence, Fitted, Labels, Settings, Shape, Structure, Tokens, Tuning};
use crate::base::tensor::{guarded, host_f64, label_log_probabilities, selected};
use crate::data::batches::{Batch, Samples, in_order};
use crate::model::Model;
use crate::posterior::curvature::{Curvature, Factor, Pair};
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

impl Curvature {
    /// Returns whether this curvature belongs to maps of these shapes.
    pub fn fits(&self, maps: &Maps) -> bool {
        match self {
            Curvature::Diag(diagonal) => diagonal.size() == [maps.parameters()],
            Curvature::Full(factor) => factor.size() == maps.parameters(),
            Curvature::Kron(pairs) => {
                let sizes = |pair: &Pair| (pair.input.size(), pair.gradient.size());
                let own: Vec<_> = maps.maps.iter().map(|map| (map.inputs, map.outputs)).collect();
                pairs.iter().map(sizes).collect::<Vec<_>>() == own
            }
        }
    }
}

/// The curvature while it is accumulated over batches of images.
pub struct Fit<'a> {
    maps: &'a Maps,
    tokens: Tokens,
    labels: Labels,
    sums: Sums,
    /// The number of images added so far.
    images: i64,
    /// The number of inputs added so far, one entry per map.
    inputs: Vec<i64>,
}

enum Sums {
    /// The sums over inputs and over gradients, one pair per map.
    Kron(Vec<(Sum, Sum)>),
    Diag(Tensor),
    Full(Tensor),
}

impl Fit<'_> {
    pub fn new(maps: &Maps, shape: Shape, labels: Labels, device: Device) -> Fit<'_> {
        let parameters = maps.parameters();
        let options = (Kind::Double, device);
        let side = |size: i64| Sum::new(size, shape.wide, shape.kept, device);
        let sums = match shape.structure {
            Structure::Kron => {
                // A head keeps all directions of G: the variance of a head is computed in the eigenbasis of G.
                let gradient = |map: &Map| {
                    if map.role.is_head() { Sum::new(map.outputs, i64::MAX, 0, device) } else { side(map.outputs) }
                };
                Sums::Kron(maps.maps.iter().map(|map| (side(map.inputs), gradient(map))).collect())
            }
            Structure::Diag => Sums::Diag(Tensor::zeros([parameters], options)),
            Structure::Full => Sums::Full(Tensor::zeros([parameters, parameters], options)),
        };
        Fit { maps, tokens: shape.tokens, labels, sums, images: 0, inputs: vec![0; maps.maps.len()] }
    }

    /// Adds the images of one forward pass, which follow those of the passes before.
    pub fn add(&mut self, pass: &Pass) -> Result<()> {
        let logits = pass.logits.detach();
        let directions = self.labels.directions(&logits, self.images);
        self.images += logits.size()[0];
        if let Sums::Kron(sums) = &mut self.sums {
            for (at, (site, (inputs, _))) in pass.sites.iter().zip(sums).enumerate() {
                let rows = inputs_of(site, self.tokens);
                self.inputs[at] += rows.size()[0];
                inputs.add(&rows);
            }
        }
        for direction in 0..directions.size()[2] {
            let gradients = pass.gradients(&directions.select(2, direction))?;
            match &mut self.sums {
                Sums::Kron(sums) => {
                    for ((_, sum), gradient) in sums.iter_mut().zip(&gradients) {
                        sum.add(&gradients_of(gradient, self.tokens));
                    }
                }
                Sums::Diag(sum) => {
                    *sum += rows(pass, &gradients).square().sum_dim_intlist([0i64].as_slice(), false, Kind::Double)
                }
                Sums::Full(sum) => {
                    let rows = rows(pass, &gradients).to_kind(Kind::Double);
                    *sum += rows.tr().matmul(&rows);
                }
            }
        }
        Ok(())
    }

    /// Returns the curvature of all images added.
    ///
    /// # Errors
    /// Fails if no image was added, or if the curvature is not finite.
    pub fn finish(self) -> Result<Curvature> {
        ensure!(self.images > 0, "laplace: no image to take the curvature of");
        Ok(match self.sums {
            Sums::Kron(sums) => {
                let pair = |((input, gradient), inputs): ((Sum, Sum), i64)| {
                    Ok(Pair { input: input.finish(inputs as f64)?, gradient: gradient.finish(1.0)? })
                };
                Curvature::Kron(sums.into_iter().zip(self.inputs).map(pair).collect::<Result<_>>()?)
            }
            Sums::Diag(sum) => {
                check(&sum)?;
                Curvature::Diag(sum)
            }
            Sums::Full(sum) => Curvature::Full(
                Factor::of(&sum)
                    .with_context(|| format!("laplace: eigenvalues of {} x {0} curvature", self.maps.parameters()))?,
            ),
        })
    }
}

/// Returns the inputs of a map as rows `[M, in]`: one per token for `expand`, one per image, their mean, for `reduce`. Tokens that only fill up
/// a text are left out.
fn inputs_of(site: &Site, tokens: Tokens) -> Tensor {
    let (input, dim) = (&site.input, [1i64]);
    match (tokens, &site.mask) {
        (Tokens::Expand, mask) => selected(input.flatten(0, 1), mask.as_ref()),
        (Tokens::Reduce, None) => input.mean_dim(dim.as_slice(), false, Kind::Double),
        (Tokens::Reduce, Some(mask)) => {
            let mask = mask.to_kind(Kind::Double).unsqueeze(2);
            let sum = (input * &mask).sum_dim_intlist(dim.as_slice(), false, Kind::Double);
            sum / mask.sum_dim_intlist(dim.as_slice(), false, Kind::Double)
        }
    }
}

/// Returns the gradients `[B, T, out]` at the output of a map as rows `[M, out]`: one per token for `expand`, one per image, their sum, for
/// `reduce`. They are 0 at tokens that only fill up a text.
fn gradients_of(gradients: &Tensor, tokens: Tokens) -> Tensor {
    match tokens {
        Tokens::Expand => gradients.flatten(0, 1),
        Tokens::Reduce => gradients.sum_dim_intlist([1i64].as_slice(), false, Kind::Double),
    }
}

/// Returns the gradient of each image with respect to the weights of all maps, `[B, P]`.
fn rows(pass: &Pass, gradients: &[Tensor]) -> Tensor {
    let batch = pass.logits.size()[0];
    let row =
        |(site, gradient): (&super::pass::Site, &Tensor)| weight_gradient(&site.input, gradient).reshape([batch, -1]);
    Tensor::cat(&pass.sites.iter().zip(gradients).map(row).collect::<Vec<_>>(), 1)
}
