//! The logits of a zero-shot model whose projections are Gaussian, by the mean and the variance of the cosine in closed form
//! (BayesVLM; Baumann et al., ICLR 2026, arXiv 2412.06014).
//!
//! With g ~ N(μ_g, Σ_g) and h ~ N(μ_h, Σ_h), independent, and the squared norms replaced by their means:
//!
//! | | |
//! |---|---|
//! | E cos(g, h) | μ_gᵀ μ_h / √((‖μ_g‖² + tr Σ_g) (‖μ_h‖² + tr Σ_h)) |
//! | Var cos(g, h) | (μ_hᵀ Σ_g μ_h + μ_gᵀ Σ_h μ_g + tr Σ_g Σ_h) / ((‖μ_g‖² + tr Σ_g) (‖μ_h‖² + tr Σ_h)) |
//!
//! The numerators are the exact mean and variance of gᵀ h. Differs: the paper takes the diagonals of Σ_g and Σ_h; here they
//! are whole, which costs no more, as the posterior's eigenvectors are the same for all images and for all texts.

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor, no_grad};

use super::predictive::shrunk;
use super::{Approximation, Curvature, Fitted, Output, noise};
use crate::data::Fields;
use crate::machine::memory::MemoryEstimate;
use crate::model::Model;
use crate::model::head::Head;
use crate::model::network::{Graph, Tape, Weights};
use crate::posterior::curvature::Pair;
use crate::predict::Linear;
use crate::subspace::Subspace;

/// Gaussian embeddings μ, `[B, d]`, with covariances U diag(v) Uᵀ; all in f64.
pub struct Embeddings {
    pub mean: Tensor,
    /// The eigenvectors U that all of them share, `[d, d]`.
    pub basis: Tensor,
    /// The variances v along them, `[B, d]`.
    pub variances: Tensor,
}

impl Embeddings {
    /// Returns the embeddings P φ + o for inputs φ, `[B, w]`, where P has the precision H + λ.
    pub fn new(mean: &Tensor, inputs: &Tensor, pair: &Pair, precision: f64) -> Embeddings {
        let squares = inputs.to_kind(Kind::Double).matmul(&pair.input.vectors).square();
        let variances = squares.matmul(&(pair.values() + precision).reciprocal().tr());
        Embeddings { mean: mean.to_kind(Kind::Double), basis: pair.gradient.vectors.shallow_clone(), variances }
    }

    /// Returns embeddings without a spread.
    fn points(mean: &Tensor) -> Embeddings {
        let mean = mean.to_kind(Kind::Double);
        let basis = Tensor::eye(mean.size()[1], (Kind::Double, mean.device()));
        Embeddings { variances: mean.zeros_like(), basis, mean }
    }

    /// Returns 1 + tr Σ / ‖μ‖², `[B]`.
    fn spread(&self) -> Tensor {
        let over = [1i64];
        let sum = |x: Tensor| x.sum_dim_intlist(over.as_slice(), false, Kind::Double);
        sum(self.variances.shallow_clone()) / sum(self.mean.square()) + 1.0
    }
}

/// The mean and the variance of cosines, `[B, C]`.
pub struct Moments {
    /// The factor of E cos on the cosine of the means.
    pub factor: Tensor,
    /// Var cos.
    pub variance: Tensor,
}

/// Returns the moments of the cosines of images and texts.
pub fn moments(images: &Embeddings, texts: &Embeddings) -> Moments {
    let in_basis = |of: &Embeddings, other: &Embeddings| of.mean.matmul(&other.basis).square();
    let overlap = images.basis.tr().matmul(&texts.basis).square();
    let variance = images.variances.matmul(&in_basis(texts, images).tr())
        + in_basis(images, texts).matmul(&texts.variances.tr())
        + images.variances.matmul(&overlap).matmul(&texts.variances.tr());
    let norms = |of: &Embeddings| of.mean.square().sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
    let spread = images.spread().outer(&texts.spread());
    let variance = variance / norms(images).outer(&norms(texts)) / &spread;
    Moments { factor: spread.rsqrt(), variance }
}

/// The means and the variances of logits, `[B, C]` in f64.
struct Logits {
    mean: Tensor,
    variance: Tensor,
}

/// The Gaussian projections and the settings that predictions need.
pub struct Cosines<'a> {
    pub(super) layer: &'static str,
    pub(super) pairs: &'a [Pair],
    /// The prior precision λ.
    pub(super) precision: f64,
    pub(super) output: Output,
    /// The number of draws.
    pub(super) samples: usize,
    pub(super) seed: u64,
}

impl<'a> Cosines<'a> {
    /// Checks that the Gaussian is one over projections.
    ///
    /// # Errors
    /// Fails if the posterior was fitted to a model of another shape.
    pub fn new(
        subspace: &'a dyn Subspace,
        fitted: &'a Fitted,
        output: Output,
        samples: usize,
        seed: u64,
    ) -> Result<Cosines<'a>> {
        let layer = subspace.projection().context("the subspace has no projection")?;
        ensure!(
            output != Output::Tangent,
            "tangent: the logits are cosines, which are not linearised: use probit, mc or sampled"
        );
        ensure!(
            output != Output::Bridge,
            "bridge: the closed form of cosines has the variance of each logit, and the Laplace bridge needs their \
             covariance: use probit, mc or sampled"
        );
        let one = fitted.particles.first();
        let Some(Approximation { curvature: Curvature::Kron(pairs), precision }) = one else {
            bail!("the Gaussian of this run is none over projections")
        };
        let shapes = subspace.layout().columns.iter().map(|column| column.shape.clone());
        let found = pairs.iter().map(|pair| vec![pair.gradient.size(), pair.input.size()]);
        ensure!(shapes.eq(found), "the Gaussian over the projections is that of another model than the run's");
        Ok(Cosines { layer, pairs, precision: *precision, output, samples, seed })
    }

    /// Returns the outputs `[m, B, C]` of all members.
    ///
    /// # Errors
    /// Fails if the Gaussian is also one over a text projection that the head does not know.
    pub(super) fn outputs(&self, head: &Head, seen: &Collected) -> Result<Tensor> {
        let Logits { mean, variance } = self.gaussian(head, seen)?;
        let bias = head.bias.to_kind(Kind::Double);
        if self.output != Output::Mc {
            // The bias is certain, and SigLIP's is the same for all classes: divided by what differs among them, it would order
            // them.
            return Ok((shrunk(&mean, &variance) + bias).log_softmax(-1, Kind::Double).unsqueeze(0));
        }
        let mean = mean + bias;
        let noise = noise(self.seed, 0, self.samples, head.classes(), mean.device());
        Ok(mean.unsqueeze(0) + variance.clamp_min(0.0).sqrt().unsqueeze(0) * noise.unsqueeze(1))
    }

    /// Returns the logits without the head's bias.
    fn gaussian(&self, head: &Head, seen: &Collected) -> Result<Logits> {
        let precision = self.precision;
        let images = Embeddings::new(&seen.embeddings, &seen.inputs, &self.pairs[0], precision);
        let texts = match (self.pairs.get(1), &head.texts) {
            (Some(pair), Some(texts)) => {
                Embeddings::new(&texts.embeddings(&texts.projection), &texts.inputs, pair, precision)
            }
            (Some(_), None) => bail!("the head has no texts, but its projection is Gaussian"),
            (None, _) => Embeddings::points(&head.weight),
        };
        let Moments { factor, variance } = moments(&images, &texts);
        // The head's own product, so that the logits without a spread are exactly its.
        let cosines = head.inputs(&seen.embeddings).linear(&head.weight, None::<&Tensor>).to_kind(Kind::Double);
        let scales = head.weight.to_kind(Kind::Double).norm_scalaropt_dim(2.0, [-1], false);
        Ok(Logits { mean: cosines * factor, variance: variance * scales.square() })
    }
}

impl Linear for Cosines<'_> {
    /// Returns the number of members: one per draw for `mc`, otherwise one.
    fn count(&self) -> usize {
        if self.output == Output::Mc { self.samples } else { 1 }
    }

    fn need(&self, model: &Model) -> MemoryEstimate {
        let pass = model.need(Graph::None);
        let (classes, width) = (model.head.classes(), model.network.feature_width());
        let inputs = self.pairs[0].input.size();
        // The inputs, embeddings and logits of an image, each with what is computed of it, in f64.
        let numbers = 3 * inputs + 6 * width + (6 + self.count() as i64) * classes;
        let image = pass.image + pass.pair + 8 * numbers as u64;
        MemoryEstimate { fixed: pass.fixed, image, ..MemoryEstimate::default() }
    }

    fn images_at_once(&self, _: &Model) -> usize {
        usize::MAX
    }

    /// Returns the logits of all members: draws with independent classes, as in the paper, or the probit approximation.
    fn logits(&self, model: &Model, samples: &Fields, _: usize) -> Result<Tensor> {
        self.outputs(&model.head, &Collected::new(model, self.layer, samples)?)
    }
}

/// The output of the image tower for some images.
pub struct Collected {
    /// The inputs of the projection, φ, `[B, w]`.
    pub inputs: Tensor,
    /// The embeddings g, `[B, d]`.
    pub embeddings: Tensor,
}

impl Collected {
    /// Runs the checkpoint's image tower on prepared samples `[1, B, …]`.
    ///
    /// # Errors
    /// Fails if the network does not show what enters its projection.
    pub fn new(model: &Model, layer: &'static str, samples: &Fields) -> Result<Collected> {
        let tape = Tape::default();
        let mut weights = Weights::frozen(&model.base);
        weights.watch(layer, &tape);
        let kind = model.head.weight.kind();
        let embeddings = no_grad(|| model.network.forward(&weights, samples)).squeeze_dim(0).to_kind(kind);
        let tap = tape.take().pop().context("the network does not show what enters its projection")?;
        Ok(Collected { inputs: tap.input.flatten(0, 2).to_kind(kind), embeddings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{self, Golden};
    use crate::model::head::{Texts, Training};
    use crate::posterior::curvature::Factor;

    fn matrix<const N: usize>(rows: [&[f64]; N]) -> Tensor {
        Tensor::from_slice(&rows.concat()).view([N as i64, -1])
    }

    fn pair(input: &Tensor, gradient: &Tensor) -> Pair {
        Pair { input: Factor::of(input).unwrap(), gradient: Factor::of(gradient).unwrap() }
    }

    fn head(weight: Tensor, bias: Tensor, texts: Texts) -> Head {
        Head { normalised: true, texts: Some(texts), ..Head::new(weight, bias, Training::Never) }
    }

    /// The model of scripts/bayesvlm_reference.py: what is seen of two images, the head with two texts, and the factors.
    fn tiny() -> (Collected, Head, [Pair; 2]) {
        let image = matrix([&[1.0, 0.5], &[-0.5, 2.0], &[0.25, 1.5]]);
        let projection = matrix([&[0.5, -1.0], &[1.5, 0.75], &[1.0, 0.5]]);
        let inputs = matrix([&[1.0, 2.0], &[-0.5, 1.0]]);
        let seen = Collected { embeddings: inputs.matmul(&image.tr()), inputs };
        let texts = Texts {
            inputs: matrix([&[2.0, 0.5], &[1.0, 1.5]]),
            offsets: Tensor::zeros([2, 3], tch::kind::DOUBLE_CPU),
            projection,
        };
        let embeddings = texts.embeddings(&texts.projection);
        let weight = &embeddings / embeddings.norm_scalaropt_dim(2.0, [-1], true) * 10.0;
        let bias = Tensor::from_slice(&[-1.0, -1.0]);
        let head = head(weight, bias, texts);
        let of_image = pair(
            &matrix([&[4.0, 1.0], &[1.0, 3.0]]),
            &matrix([&[5.0, 1.0, 0.5], &[1.0, 4.0, -1.0], &[0.5, -1.0, 6.0]]),
        );
        let of_text = pair(
            &matrix([&[3.0, -1.0], &[-1.0, 5.0]]),
            &matrix([&[6.0, 0.0, 1.0], &[0.0, 3.0, 0.5], &[1.0, 0.5, 4.0]]),
        );
        (seen, head, [of_image, of_text])
    }

    fn cosines(pairs: &[Pair], precision: f64, output: Output) -> Cosines<'_> {
        Cosines { layer: "proj", pairs, precision, output, samples: 50_000, seed: 3 }
    }

    #[track_caller]
    fn near(found: &Tensor, expected: &[f64], bound: f64) {
        let difference = (found.reshape([-1]) - Tensor::from_slice(expected)).abs().max().double_value(&[]);
        assert!(difference < bound, "{found} differs by {difference}");
    }

    // The values are those that scripts/bayesvlm_reference.py prints; it also compares them with ten million draws.
    const MEANS: [f64; 4] = [8.204997379579927, 6.266858661106495, 8.567711713818808, 8.182803838263755];
    const VARIANCES: [f64; 4] = [2.131175183014344, 2.2693907206100437, 2.5232037818375916, 2.68510534676663];

    #[test]
    fn moments_are_those_of_whole_covariance_matrices() {
        let (seen, head, pairs) = tiny();
        let Logits { mean, variance } = cosines(&pairs, 7.0, Output::Probit).gaussian(&head, &seen).unwrap();
        near(&(mean + &head.bias), &MEANS, 1e-12);
        near(&variance, &VARIANCES, 1e-12);
        let scaled = |at: usize| (MEANS[at] + 1.0) / (1.0 + std::f64::consts::PI / 8.0 * VARIANCES[at]).sqrt();
        let outputs = cosines(&pairs, 7.0, Output::Probit).outputs(&head, &seen).unwrap();
        let expected = Tensor::from_slice(&[scaled(0), scaled(1), scaled(2), scaled(3)]).view([1, 2, 2]);
        assert!((outputs - expected.log_softmax(-1, Kind::Double)).abs().max().double_value(&[]) < 1e-12);
    }

    #[test]
    fn draws_have_these_moments() {
        let (seen, head, pairs) = tiny();
        let drawn = cosines(&pairs, 7.0, Output::Mc).outputs(&head, &seen).unwrap();
        assert_eq!(drawn.size(), [50_000, 2, 2]);
        near(&drawn.mean_dim([0i64].as_slice(), false, Kind::Double), &MEANS, 0.03);
        near(&drawn.var_dim([0i64].as_slice(), true, false), &VARIANCES, 0.06);
    }

    /// A prior so precise that nothing has a spread, and an image projection alone under such a prior, give the zero-shot
    /// head's probabilities, to the last bit.
    #[test]
    fn without_a_spread_it_is_the_zero_shot_head() {
        let (seen, head, pairs) = tiny();
        let features = head.inputs(&seen.embeddings);
        let zero_shot = features.linear(&head.weight, Some(&head.bias)).log_softmax(-1, Kind::Double);
        for pairs in [&pairs[..], &pairs[..1]] {
            let outputs = cosines(pairs, f64::INFINITY, Output::Probit).outputs(&head, &seen).unwrap();
            assert!(outputs.squeeze_dim(0).equal(&zero_shot));
        }
        let some = cosines(&pairs[..1], 7.0, Output::Probit).gaussian(&head, &seen).unwrap().variance;
        let all = cosines(&pairs, 7.0, Output::Probit).gaussian(&head, &seen).unwrap().variance;
        assert!((all - some).min().double_value(&[]) > 0.1, "the texts add to the variance");
    }

    /// The embeddings of one side in tests/fixtures/authors/bayesvlm.json, under the authors' factors.
    fn authors(golden: &Golden, side: &str, precision: f64) -> Embeddings {
        let tensor = |name: &str| golden.tensor(&format!("{name}/{side}"));
        let pair = pair(&tensor("factors/a"), &(tensor("factors/b") * 10.0));
        let inputs = tensor("inputs");
        Embeddings::new(&inputs.matmul(&tensor("projections").tr()), &inputs, &pair, precision)
    }

    /// Where the covariances of the embeddings are diagonal, as the paper takes them, and no prior is added to the factors.
    #[test]
    fn moments_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("bayesvlm");
        let (images, texts) = (authors(&golden, "images", 0.0), authors(&golden, "texts", 0.0));
        let Moments { factor, variance } = moments(&images, &texts);
        let unit = |of: &Tensor| of / of.norm_scalaropt_dim(2.0, [-1], true);
        let scale = golden.number("log_scale").exp();
        let mean = unit(&images.mean).matmul(&unit(&texts.mean).tr()) * factor * scale;
        golden::near(&mean, &golden.tensor("undamped/mean"), 1e-12);
        golden::near(&(variance * scale * scale), &golden.tensor("undamped/variance"), 1e-11);
        // (√H₁ + √λ) (√H₂ + √λ) there is more than H + λ here.
        let damped = (authors(&golden, "images", 3.0), authors(&golden, "texts", 3.0));
        let larger = moments(&damped.0, &damped.1).variance * (scale * scale) - golden.tensor("damped/variance");
        assert!(larger.min().double_value(&[]) > 0.01, "{larger}");
    }

    /// SigLIP's bias is neither scaled by the variances nor seen in the probabilities.
    #[test]
    fn the_probit_of_siglip_is_that_of_the_authors_code() {
        let golden = Golden::of_authors("bayesvlm");
        let tensor = |name: &str| golden.tensor(name);
        let inputs = tensor("inputs/images");
        let seen = Collected { embeddings: inputs.matmul(&tensor("projections/images").tr()), inputs };
        let texts = Texts {
            inputs: tensor("inputs/texts"),
            offsets: Tensor::zeros([5, 3], tch::kind::DOUBLE_CPU),
            projection: tensor("projections/texts"),
        };
        let embeddings = texts.embeddings(&texts.projection);
        let scale = golden.number("log_scale").exp();
        let weight = &embeddings / embeddings.norm_scalaropt_dim(2.0, [-1], true) * scale;
        let bias = Tensor::full([5], golden.number("bias"), tch::kind::DOUBLE_CPU);
        let head = head(weight, bias, texts);
        let pairs = ["images", "texts"]
            .map(|side| pair(&tensor(&format!("factors/a/{side}")), &(tensor(&format!("factors/b/{side}")) * 10.0)));
        let outputs = cosines(&pairs, 0.0, Output::Probit).outputs(&head, &seen).unwrap();
        golden::near(&outputs.squeeze_dim(0).exp(), &tensor("undamped/siglip_probit"), 1e-12);
    }
}
