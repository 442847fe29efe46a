//! `[method.bayesvlm]`: a Gaussian over the two projections of CLIP or SigLIP, without any training (Baumann et al., "Post-hoc
//! probabilistic vision-language models", ICLR 2026, arXiv 2412.06014). [`crate::laplace::projections`] fits it, and
//! [`crate::laplace::cosine`] predicts with it.

use anyhow::{Result, bail};
use tch::Tensor;

use crate::laplace::cosine::Cosines;
use crate::laplace::projections::Settings;
use crate::methods::post_hoc::{Context, NO_GAUSSIAN_LOGITS, Origin, PostHoc, Predicted};
use crate::methods::{Entry, MethodContext, MethodSpec, Particles, RowsAre, Update};
use crate::posterior::{Output, Posterior, Predictive};
use crate::predict::Linear;
use crate::schema::{Reader, settings, words};

pub static ENTRY: Entry = Entry {
    key: "bayesvlm",
    about: "a Gaussian over the projections of a zero-shot model, by curvature, without training (BayesVLM)",
    paper: "BayesVLM",
    update: Update::Own,
    rows: RowsAre::Points,
    particles: Particles::One,
    bench: &[],
    names: &[("projections", "BayesVLM")],
    names_of_many: &[],
    read: |reader, context| Box::new(Spec::read(reader, context)),
};

words! {
    /// The ways in which Gaussian cosines or weights become predictions. There is no bridge, which needs the covariance of the logits, and
    /// nothing is linearised.
    enum Way {
        Mc = "mc",
        Probit = "probit",
        Sampled = "sampled",
    }
}

settings! {
    struct Spec(context: &MethodContext) {
        /// Most training images in the curvature; their labels are not used.
        images: usize = 10_000, in 2..=1_000_000_000;
        /// Factor on the curvature: how many times the images and the texts are counted; by default the one with the
        /// lowest NLL of held-out images, or 10 where none are held out.
        pseudo_count: Option<f64>, in above(0.0);
        /// Precision λ of the prior; by default the one with the lowest NLL of held-out images, or with the largest
        /// evidence where none are held out.
        prior_precision: Option<f64>, in above(0.0);
        /// How Gaussian logits or weights become predictions.
        predictive: Way = Way::Probit;
        /// Draws of the predictives that draw.
        samples: usize = 64, in 1..=100_000;
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader, context: &MethodContext) {
        if context.is_not("projections") {
            reader.problem("images", "the Gaussian is that of the projections: write [subspace.projections]");
        }
    }

    fn output(&self) -> Output {
        match self.predictive {
            Way::Mc => Output::Mc,
            Way::Probit => Output::Probit,
            Way::Sampled => Output::Sampled,
        }
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        1
    }

    fn needs_classes(&self) -> bool {
        true
    }

    fn check_steps(&self, _: usize) -> Result<()> {
        bail!("method.bayesvlm: is fitted to the checkpoint as it is, and takes no steps")
    }

    fn predictive(&self) -> Predictive {
        Predictive::laplace(Spec::output(self), self.samples)
    }

    fn origin(&self) -> Origin<'_> {
        Origin::Checkpoint
    }

    fn post_hoc(&self) -> Option<&dyn PostHoc> {
        Some(self)
    }
}

impl PostHoc for Spec {
    fn fit(&self, theta: &Tensor, context: &Context) -> Result<Posterior> {
        let &Spec { images, pseudo_count, prior_precision, samples, .. } = self;
        let output = Spec::output(self);
        let fitted = context.fitter(Settings { images, pseudo_count, prior_precision, output, samples }).fit(theta)?;
        Ok(Posterior::Laplace { mode: theta.shallow_clone(), fitted })
    }

    fn output(&self) -> Option<(Output, usize)> {
        Some((Spec::output(self), self.samples))
    }

    fn predict<'a>(&self, predicted: Predicted<'a>) -> Result<Box<dyn Linear + 'a>> {
        let Predicted { subspace, posterior, output, samples, seed } = predicted;
        let Posterior::Laplace { fitted, .. } = posterior else { bail!(NO_GAUSSIAN_LOGITS) };
        Ok(Box::new(Cosines::new(subspace, fitted, output, samples, seed)?))
    }
}
