//! The Gaussian over the projections of a zero-shot model (BayesVLM; Baumann et al., ICLR 2026, arXiv 2412.06014).
//!
//! | symbol | here |
//! |---|---|
//! | g = P φ, h = Q ψ: embeddings of an image and of a text | what enters the head; [`Texts`] |
//! | ĝ = g / ‖g‖, and the logits t ĝᵀ ĥ + b of a pair | t is the norm of a row of the head |
//! | J = t Ĥ (I − ĝ ĝᵀ) / ‖g‖, the derivative of one image's logits over all texts with respect to g | `rows` |
//! | Λ = diag(p) − p pᵀ (CLIP), diag(σ (1 − σ)) for every pair (SigLIP) | [`Likelihood`] |
//! | H = τ (Σ φ φᵀ) ⊗ (Σ Jᵀ Λ J) / n for P, over n images; likewise for Q, over the texts | [`Pair`] |
//! | τ, the pseudo-count; λ, the prior's precision | `pseudo_count`, `prior_precision` |
//!
//! The texts are those of the classes, and each text's logits are those over all the images, as in the two directions of the
//! contrastive loss with the other side held fixed. H does not depend on which image belongs to which text, so labels are not
//! used. A class with several templates is one text, whose ψ is their mean.
//!
//! Where images are held out, τ and λ are those of a grid with their lowest NLL; else τ is 10, as in the authors' `zeroshot.py`,
//! and λ the maximum of the evidence.
//!
//! Differs: the posterior's precision is H + λ, by the eigenvectors of the factors, where the paper damps each factor,
//! (√τ A + √λ I) ⊗ (√τ B + √λ I), so that its variances are smaller; both projections share one λ; SigLIP's projections have
//! random weights, but their biases stay as they are. The authors' code takes the whole of the log determinant from the evidence,
//! where half of it belongs, and counts that of each factor by its own size, so that its λ is larger.

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use super::cosine::{Collected, Cosines};
use super::factor::Sum;
use super::fit::Fitter;
use super::{Approximation, Curvature, Evidence, Fitted, Output};
use crate::base::random::some_of;
use crate::base::tensor::{guarded, host_f64, mixture_log_probabilities};
use crate::data::batches::{Batch, Samples, in_order};
use crate::model::head::{Head, Texts};
use crate::model::network::Graph;
use crate::posterior::curvature::{Factor, Pair};

/// The pseudo-counts and the prior precisions that are tried on held-out images.
const COUNTS: [f64; 6] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5];
/// The pseudo-count where no image is held out: that of the authors' `zeroshot.py`.
const COUNT: f64 = 10.0;
const PRECISIONS: [f64; 13] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6];

const ROOM: &str = "lower method.bayesvlm.images or train.eval_batch_size";

/// The distribution of the pairs of images and texts, given their logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likelihood {
    /// One text of all belongs to an image (CLIP).
    Softmax,
    /// Each pair belongs together or not (SigLIP).
    Sigmoid,
}

impl Likelihood {
    /// Returns the likelihood of a head: SigLIP's has a bias, CLIP's has none.
    pub fn of(bias: &Tensor) -> Likelihood {
        let has_bias = bias.abs().max().double_value(&[]) > 0.0;
        if has_bias { Likelihood::Sigmoid } else { Likelihood::Softmax }
    }
}

/// The side of a zero-shot model that embeddings are compared with.
#[derive(Clone, Copy)]
struct Others<'a> {
    /// The directions times the logit scale, `[M, d]`.
    directions: &'a Tensor,
    /// The bias of the logits, `[M]` or one number.
    bias: &'a Tensor,
}

/// Returns rows r, `[B·M, d]`, with Σ r rᵀ = Σ_b J_bᵀ Λ_b J_b, for embeddings `[B, d]`.
fn rows(embeddings: &Tensor, Others { directions: others, bias }: Others, likelihood: Likelihood) -> Tensor {
    let norms = embeddings.norm_scalaropt_dim(2.0, [-1], true);
    let units = embeddings / &norms;
    let logits = units.matmul(&others.tr()) + bias;
    let (shares, directions) = match likelihood {
        Likelihood::Softmax => {
            let shares = logits.softmax(-1, None::<Kind>);
            let centre = shares.matmul(others);
            (shares, others.unsqueeze(0) - centre.unsqueeze(1))
        }
        Likelihood::Sigmoid => (logits.sigmoid() * (-logits).sigmoid(), others.unsqueeze(0)),
    };
    // The projection off ĝ.
    let along = directions.matmul(&units.unsqueeze(2));
    let across = directions - along * units.unsqueeze(1);
    (across * (shares.sqrt() / norms).unsqueeze(2)).flatten(0, 1)
}

/// Adds [`rows`] to a sum, a part of the embeddings at a time.
fn add_rows(sum: &mut Sum, embeddings: &Tensor, others: Others, likelihood: Likelihood) {
    /// The largest number of values in the rows that are held at once.
    const VALUES: i64 = 1 << 23;
    let part = (VALUES / (others.directions.numel() as i64).max(1)).max(1);
    for embeddings in embeddings.split(part, 0) {
        sum.add(&rows(&embeddings, others, likelihood));
    }
}

/// Returns an empty sum for rows as wide as those of `like`, with all entries.
fn dense(like: &Tensor) -> Sum {
    Sum::new(like.size()[1], i64::MAX, 1, like.device())
}

/// The settings of the fit and of its predictions.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The most images of the training split in the curvature.
    pub images: usize,
    /// The factor τ on the curvature, how many times the images are counted; `None` if it is chosen on held-out images.
    pub pseudo_count: Option<f64>,
    /// The prior precision λ, if it is fixed.
    pub prior_precision: Option<f64>,
    pub output: Output,
    /// The number of draws.
    pub samples: usize,
}

impl Fitter<'_, Settings> {
    /// Fits the Gaussian around the checkpoint, `theta: [1, P]`.
    ///
    /// # Errors
    /// Fails if there are fewer than two images, if the subspace has no projections, or if a curvature is not finite.
    pub fn fit(&self, theta: &Tensor) -> Result<Fitted> {
        let layer = self.subspace.projection().context("method.bayesvlm: write [subspace.projections]")?;
        let images = &some_of(self.train.indices, self.settings.images, self.seed);
        ensure!(
            images.len() > 1,
            "method.bayesvlm: {} training image: the curvature needs at least two images to tell apart",
            images.len()
        );
        let (approximation, count) = guarded("bayesvlm", ROOM, || {
            let _guard = tch::no_grad_guard();
            let pairs = self.pairs(layer, images)?;
            match (self.settings.pseudo_count, self.settings.prior_precision) {
                (Some(count), Some(precision)) => Ok((gaussian(&pairs, count, precision), count)),
                _ if !self.held_out.indices.is_empty() => self.choose(layer, &pairs),
                (count, precision) => {
                    let count = count.unwrap_or(COUNT);
                    let precision = precision.map_or_else(|| most_evident(&pairs, count, theta), Ok)?;
                    Ok((gaussian(&pairs, count, precision), count))
                }
            }
        })?;
        tracing::info!(
            "bayesvlm: prior precision {:.4e}, pseudo-count {count}; curvature of {} images and {} texts",
            approximation.precision,
            images.len(),
            self.model.head.classes()
        );
        Ok(Fitted { columns: 0..self.subspace.layout().parameters(), particles: vec![approximation] })
    }

    /// Returns the Gaussian with the lowest NLL of held-out images over [`COUNTS`] and [`PRECISIONS`], where the settings fix
    /// neither, and its pseudo-count. Draws of weights are judged by the probit approximation.
    fn choose(&self, layer: &'static str, pairs: &[Pair]) -> Result<(Approximation, f64)> {
        let Samples { set, indices } = self.held_out;
        let indices = &some_of(indices, self.settings.images, self.seed);
        let mut seen = Vec::new();
        for batch in self.batches("held out", Samples { set, indices })? {
            let batch = batch?;
            seen.push((self.see(layer, &batch)?, batch.labels));
        }
        let Settings { output, samples, pseudo_count, prior_precision, .. } = self.settings;
        let counts = pseudo_count.map_or(COUNTS.to_vec(), |count| vec![count]);
        let precisions = prior_precision.map_or(PRECISIONS.to_vec(), |precision| vec![precision]);
        let mut best = (f64::INFINITY, None);
        for count in counts {
            let pairs = &counted(pairs, count);
            for &precision in &precisions {
                let cosines = Cosines { layer, pairs, precision, output, samples, seed: self.seed };
                let mut sum = 0.0;
                for (seen, labels) in &seen {
                    let outputs = cosines.outputs(&self.model.head, seen)?;
                    sum -= host_f64(&mixture_log_probabilities(&outputs, labels, Kind::Double).sum(Kind::Double))?[0];
                }
                let nll = sum / indices.len() as f64;
                tracing::debug!("bayesvlm: pseudo-count {count}, prior precision {precision}: NLL {nll:.4}");
                if nll < best.0 {
                    best = (nll, Some((count, precision)));
                }
            }
        }
        let (count, precision) =
            best.1.context("method.bayesvlm: the NLL of the held-out images is not finite with any prior")?;
        Ok((gaussian(pairs, count, precision), count))
    }

    /// Returns the Kronecker factors of the image projection and, where its columns are there, of the text projection.
    fn pairs(&self, layer: &'static str, images: &[u32]) -> Result<Vec<Pair>> {
        let head = &self.model.head;
        let likelihood = Likelihood::of(&head.bias);
        let (pair, embeddings) = self.image_pair(layer, images, likelihood)?;
        let mut pairs = vec![pair];
        if self.subspace.layout().blocks.len() > 1 {
            let texts = head.texts.as_ref().context("the head has no texts")?;
            pairs.push(text_pair(head, texts, &embeddings, likelihood)?);
        }
        Ok(pairs)
    }

    /// Returns the factors of the image projection, and the embeddings of the images, `[n, d]`.
    fn image_pair(&self, layer: &'static str, images: &[u32], likelihood: Likelihood) -> Result<(Pair, Tensor)> {
        let head = &self.model.head;
        let (mut sums, mut kept): (Option<(Sum, Sum)>, Vec<Tensor>) = (None, Vec::new());
        let bar = crate::base::logging::bar(images.len() as u64, "curvature");
        for batch in self.batches("bayesvlm", Samples { set: self.train.set, indices: images })? {
            let seen = self.see(layer, &batch?)?;
            let (inputs, gradients) = sums.get_or_insert_with(|| (dense(&seen.inputs), dense(&seen.embeddings)));
            inputs.add(&seen.inputs);
            add_rows(gradients, &seen.embeddings, Others { directions: &head.weight, bias: &head.bias }, likelihood);
            bar.inc(seen.embeddings.size()[0] as u64);
            kept.push(seen.embeddings);
        }
        bar.finish_and_clear();
        let (inputs, gradients) = sums.context("there are no images")?;
        let pair = Pair { input: inputs.finish(1.0)?, gradient: gradients.finish(images.len() as f64)? };
        Ok((pair, Tensor::cat(&kept, 0)))
    }

    fn see(&self, layer: &'static str, batch: &Batch) -> Result<Collected> {
        Collected::new(self.model, layer, &self.model.preparation.prepare(&batch.samples.for_all()))
    }

    /// Returns batches with as many images as fit in memory.
    fn batches<'b>(
        &self,
        what: &str,
        Samples { set, indices }: Samples<'b>,
    ) -> Result<impl Iterator<Item = Result<Batch>> + 'b> {
        let chunker = self.model.plan(what, Graph::None, (self.batch_size.min(indices.len()), 0), ROOM)?;
        Ok(set.batches(in_order(indices, chunker.cut().images)))
    }
}

/// Returns the factors of the text projection, for the embeddings `[n, d]` of the images.
fn text_pair(head: &Head, texts: &Texts, images: &Tensor, likelihood: Likelihood) -> Result<Pair> {
    let units = images / images.norm_scalaropt_dim(2.0, [-1], true);
    let scales = head.weight.norm_scalaropt_dim(2.0, [-1], true);
    let embeddings = texts.embeddings(&texts.projection);
    let (mut inputs, mut gradients) = (dense(&texts.inputs), dense(&embeddings));
    inputs.add(&texts.inputs);
    for class in 0..head.classes() {
        let (one, directions) = (embeddings.narrow(0, class, 1), &units * scales.get(class));
        let others = Others { directions: &directions, bias: &head.bias.get(class) };
        gradients.add(&rows(&one, others, likelihood));
    }
    Ok(Pair { input: inputs.finish(1.0)?, gradient: gradients.finish(head.classes() as f64)? })
}

/// Returns the Gaussian with the precision τ H + λ.
fn gaussian(pairs: &[Pair], pseudo_count: f64, precision: f64) -> Approximation {
    Approximation { curvature: Curvature::Kron(counted(pairs, pseudo_count)), precision }
}

/// Returns the prior precision with the largest evidence of the projections `theta: [1, P]`.
fn most_evident(pairs: &[Pair], pseudo_count: f64, theta: &Tensor) -> Result<f64> {
    let squared_norm = host_f64(&theta.to_kind(Kind::Double).square().sum(Kind::Double))?[0];
    let eigenvalues = host_f64(&Curvature::Kron(counted(pairs, pseudo_count)).eigenvalues())?;
    Ok(Evidence { log_likelihood: 0.0, squared_norm, eigenvalues }.maximum())
}

/// Returns the factors of τ H from those of H.
fn counted(pairs: &[Pair], pseudo_count: f64) -> Vec<Pair> {
    let factor = |of: &Factor, by: f64| Factor { vectors: of.vectors.shallow_clone(), values: &of.values * by };
    let counted =
        |pair: &Pair| Pair { input: factor(&pair.input, 1.0), gradient: factor(&pair.gradient, pseudo_count) };
    pairs.iter().map(counted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};

    fn random(shape: &[i64]) -> Tensor {
        Tensor::randn(shape, tch::kind::DOUBLE_CPU)
    }

    /// Σ_b J_bᵀ Λ_b J_b with J by autograd and Λ by its definition.
    fn by_autograd(embeddings: &Tensor, others: &Tensor, bias: &Tensor, likelihood: Likelihood) -> Tensor {
        let (count, width) = embeddings.size2().unwrap();
        let mut sum = Tensor::zeros([width, width], tch::kind::DOUBLE_CPU);
        for image in 0..count {
            let g = embeddings.get(image).copy().set_requires_grad(true);
            let logits = others.mv(&(&g / g.norm())) + bias;
            let row = |at| Tensor::run_backward(&[logits.get(at)], &[&g], true, false).remove(0);
            let jacobian = Tensor::stack(&(0..others.size()[0]).map(row).collect::<Vec<_>>(), 0);
            let middle = match likelihood {
                Likelihood::Softmax => {
                    let p = logits.softmax(-1, Kind::Double).detach();
                    p.diag(0) - p.outer(&p)
                }
                Likelihood::Sigmoid => {
                    let p: Tensor = logits.sigmoid().detach();
                    (&p - p.square()).diag(0)
                }
            };
            sum += jacobian.tr().matmul(&middle).matmul(&jacobian);
        }
        sum
    }

    #[test]
    fn rows_have_the_curvature_of_autograd() {
        tch::manual_seed(5);
        for likelihood in [Likelihood::Softmax, Likelihood::Sigmoid] {
            let (embeddings, others, bias) = (random(&[6, 4]), random(&[5, 4]) * 2.0, random(&[5]));
            let side = Others { directions: &others, bias: &bias };
            let found = rows(&embeddings, side, likelihood);
            assert_eq!(found.size(), [30, 4]);
            let (found, expected) = (found.tr().matmul(&found), by_autograd(&embeddings, &others, &bias, likelihood));
            let difference = ((&found - &expected).abs().max() / expected.abs().max()).double_value(&[]);
            assert!(difference < 1e-12, "{likelihood:?}: {difference:e}");
            // A longer embedding has the same direction, so there is no curvature along it.
            let along = rows(&embeddings.narrow(0, 0, 1), side, likelihood).matmul(&embeddings.get(0));
            assert!(along.abs().max().double_value(&[]) < 1e-12);
        }
    }

    #[test]
    fn the_head_tells_the_likelihood() {
        assert_eq!(Likelihood::of(&Tensor::from_slice(&[0.0, 0.0])), Likelihood::Softmax);
        assert_eq!(Likelihood::of(&Tensor::from_slice(&[-10.0, -10.0])), Likelihood::Sigmoid);
    }

    /// The factors of the text projection: n images are what each text tells apart.
    #[test]
    fn the_factors_of_the_texts_are_those_of_autograd() {
        tch::manual_seed(6);
        let texts = Texts { inputs: random(&[3, 5]), offsets: random(&[3, 4]) * 0.1, projection: random(&[4, 5]) };
        let own = texts.embeddings(&texts.projection);
        let weight = &own / own.norm_scalaropt_dim(2.0, [-1], true) * 20.0;
        let bias = Tensor::full([3], -3.0, tch::kind::DOUBLE_CPU);
        let head = Head {
            weight,
            bias,
            normalised: true,
            random: None,
            training: crate::model::head::Training::Never,
            rows: None,
            cap: None,
            texts: None,
            gaussian: None,
        };
        let images = random(&[8, 4]);
        let pair = text_pair(&head, &texts, &images, Likelihood::Sigmoid).unwrap();
        let whole = |f: &Factor| (&f.vectors * &f.values).matmul(&f.vectors.tr());
        let units = &images / images.norm_scalaropt_dim(2.0, [-1], true) * 20.0;
        let bias = Tensor::full([8], -3.0, tch::kind::DOUBLE_CPU);
        let expected = by_autograd(&own, &units, &bias, Likelihood::Sigmoid) / 3.0;
        let scale = expected.abs().max();
        assert!(((whole(&pair.gradient) - expected).abs().max() / scale).double_value(&[]) < 1e-10);
        let inputs = texts.inputs.tr().matmul(&texts.inputs);
        assert!((whole(&pair.input) - inputs).abs().max().double_value(&[]) < 1e-10);
        let twice = counted(std::slice::from_ref(&pair), 2.0);
        assert!((twice[0].values() - pair.values() * 2.0).abs().max().double_value(&[]) < 1e-10);
    }

    /// τ counts the images and the texts: the precision is τ H + λ, so that τ pairs are one pair seen τ times, and the evidence of λ
    /// is that of τ H.
    #[test]
    fn the_pseudo_count_multiplies_the_curvature() {
        tch::manual_seed(7);
        let (inputs, gradients, theta) = (random(&[9, 4]), random(&[9, 3]), random(&[1, 12]));
        let pair = |times: i64| {
            let (mut a, mut b) = (dense(&inputs), dense(&gradients));
            a.add(&inputs);
            (0..times).for_each(|_| b.add(&gradients));
            vec![Pair { input: a.finish(1.0).unwrap(), gradient: b.finish(1.0).unwrap() }]
        };
        let of = |pairs: &[Pair], count| {
            let Curvature::Kron(pairs) = gaussian(pairs, count, 0.3).curvature else { panic!("not kron") };
            (pairs[0].values().view([-1]).sort(-1, false).0, most_evident(&pairs, 1.0, &theta).unwrap())
        };
        let ((once, evident), (thrice, same)) = (of(&pair(1), 3.0), of(&pair(3), 1.0));
        near(&once, &thrice, 1e-10);
        assert!((evident / same - 1.0).abs() < 1e-6 && (evident / of(&pair(1), 1.0).1 - 1.0).abs() > 1e-3);
        assert_eq!(most_evident(&pair(1), 3.0, &theta).unwrap(), evident);
    }

    /// `compute_hessian_analytic_InfoNCE` and `…_SigLIP` of the authors (tests/fixtures/authors/bayesvlm.json).
    #[test]
    fn rows_have_the_curvature_of_the_authors_code() {
        let golden = Golden::of_authors("bayesvlm");
        let embeddings = |side: &str| {
            let projection = golden.tensor(&format!("projections/{side}"));
            golden.tensor(&format!("inputs/{side}")).matmul(&projection.tr())
        };
        let (images, texts) = (embeddings("images"), embeddings("texts"));
        let others = &texts / texts.norm_scalaropt_dim(2.0, [-1], true) * golden.number("log_scale").exp();
        let cases = [("clip", 0.0, Likelihood::Softmax), ("siglip", golden.number("bias"), Likelihood::Sigmoid)];
        for (model, bias, likelihood) in cases {
            let side = Others { directions: &others, bias: &Tensor::from(bias) };
            let found = rows(&images, side, likelihood);
            near(&found.tr().matmul(&found), &golden.tensor(&format!("hessian/{model}")), 1e-11);
        }
    }
}
