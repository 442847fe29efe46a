//! `[method.laplace]`: n particles trained independently, then a Gaussian fitted around each ([`crate::laplace`]).

use anyhow::{Result, bail, ensure};
use tch::Tensor;

use crate::laplace::tangents::{Drawn, NOT_WRITTEN};
use crate::laplace::{Expectation, Fisher, Linearised, Parameters, Settings, Shape, Structure, Tokens, Tuning};
use crate::methods::post_hoc::{Context, NO_GAUSSIAN_LOGITS, Origin, Passes, PostHoc, Predicted};
use crate::methods::{Entry, MethodContext, MethodSpec, Particles, RowsAre, Update, spec};
use crate::model::Model;
use crate::model::head::Noise;
use crate::model::network::UNRECORDED;
use crate::posterior::{Output, Posterior, Predictive};
use crate::predict::Linear;
use crate::schema::{Reader, settings};
use crate::subspace::Subspace;

pub static ENTRY: Entry = Entry {
    key: "laplace",
    about: "plain training, then a Gaussian around each particle by its curvature (Laplace)",
    paper: "VBL",
    update: Update::Optimizer,
    rows: RowsAre::Points,
    particles: Particles::Any,
    bench: &[],
    names: &[("full", "Laplace"), ("low-rank", "VBL")],
    names_of_many: &[],
    read: |reader, context| Box::new(Spec::read(reader, context)),
};

settings! {
    struct Spec(context: &MethodContext) {
        /// Precision τ of the prior, where it is fixed.
        prior_precision: Option<f64>, in above(0.0);
        particles: i64, by spec::fitted;
        from: Option<String>, by spec::from;
        /// Parameters that get a Gaussian; `all` is the default in `low-rank`, `last-layer` elsewhere.
        parameters: Parameters =
            if context.subspace == "low-rank" { Parameters::All } else { Parameters::LastLayer };
        shape: Shape, part Shape::read;
        expectation: Expectation, part Expectation::read;
        /// How the precision of the prior is chosen; `fixed` where `prior_precision` is given.
        tuning: Tuning = if prior_precision.is_some() { Tuning::Fixed } else { Tuning::Evidence };
        /// How Gaussian logits or weights become predictions.
        predictive: Output = Output::Mc;
        /// Draws per particle.
        samples: usize = 64, in 1..=100_000;
        /// Most memory for the curvature, in GiB; a larger one is refused before training.
        memory_gib: f64 = 8.0, in above(0.0);
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader, context: &MethodContext) {
        match (self.tuning, self.prior_precision) {
            (Tuning::Fixed, None) => {
                reader.missing("prior_precision", "is required for tuning = \"fixed\": a number above 0")
            }
            (Tuning::Evidence | Tuning::Validation, Some(_)) => {
                reader.problem("prior_precision", "is tuned: leave it out, or set tuning = \"fixed\"");
            }
            _ => {}
        }
        if self.shape.structure != Structure::Kron && !self.shape.has_default_factors() {
            reader.problem("structure", "tokens, wide and kept belong to structure = \"kron\": leave them out");
        }
        if self.parameters == Parameters::LastLayer && self.shape.tokens == Tokens::Reduce {
            reader.problem("tokens", "a last layer sees one token of each image: leave it out");
        }
        if self.expectation.fisher == Fisher::Exact && self.expectation.fisher_draws.is_some() {
            reader.problem("fisher_draws", "belongs to fisher = \"mc\": leave it out, or set fisher = \"mc\"");
        }
        if self.parameters == Parameters::All && context.is_not("low-rank") {
            let why = "the curvature of all parameters needs [subspace.low-rank]; set parameters = \"last-layer\"";
            reader.problem("parameters", why);
        }
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn needs_classes(&self) -> bool {
        true
    }

    /// The likelihood of a number is a Gaussian of known noise, whose curvature and predictions have a closed form.
    fn refuses_numbers(&self, noise: Noise) -> Option<String> {
        if noise != Noise::Fixed {
            return Some(
                "is of numbers with a known noise: set head.gaussian.sigma, or choose another method".to_string(),
            );
        }
        let key = if self.tuning == Tuning::Validation {
            "tuning = \"validation\""
        } else if matches!(self.predictive, Output::Probit | Output::Bridge) {
            "predictive = \"probit\" or \"bridge\""
        } else if self.expectation.fisher == Fisher::Mc {
            "fisher = \"mc\""
        } else {
            return None;
        };
        Some(format!("with {key} is of classes, and numbers are learnt: leave the key out, or choose another method"))
    }

    fn predictive(&self) -> Predictive {
        Predictive::laplace(self.predictive, self.samples)
    }

    fn origin(&self) -> Origin<'_> {
        self.from.as_deref().map_or(Origin::Training, Origin::Run)
    }

    fn post_hoc(&self) -> Option<&dyn PostHoc> {
        Some(self)
    }
}

impl Spec {
    fn settings(&self) -> Settings {
        const GIB: f64 = (1u64 << 30) as f64;
        Settings {
            parameters: self.parameters,
            shape: self.shape,
            expectation: self.expectation,
            tuning: self.tuning,
            prior_precision: self.prior_precision.unwrap_or(1.0),
            output: self.predictive,
            samples: self.samples,
            memory_bytes: (self.memory_gib * GIB) as u64,
        }
    }
}

impl PostHoc for Spec {
    /// Checks that there are images to choose the precision of a prior by.
    fn check(&self, holds_out: bool) -> Option<&'static str> {
        let misses = self.tuning == Tuning::Validation && !holds_out;
        misses.then_some("laplace.tuning = \"validation\" needs held-out images: set data.*.validation, say to 0.1")
    }

    fn plan(&self, model: &Model, subspace: &dyn Subspace) -> Result<()> {
        ensure!(
            self.parameters == Parameters::LastLayer || model.network.records_layers(),
            "method.laplace.parameters = \"all\" needs what enters and leaves the layers, which {UNRECORDED} shows: set \
             method.laplace.parameters = \"last-layer\", with a head that is trained ([head.linear], or [subspace.full] or [subspace.last-layer])"
        );
        ensure!(
            self.predictive != Output::Tangent
                || self.parameters == Parameters::LastLayer
                || model.network.written().is_some(),
            "method.laplace.{NOT_WRITTEN}"
        );
        let trains_head = subspace.layout().outputs_of_head().is_some();
        ensure!(
            model.head.cap.is_none() || !trains_head,
            "method.laplace: the logits of this network are bounded (final_logit_softcapping), so that they are not linear in the rows of \
             its label words: adapt other layers ([subspace.low-rank] with parameters = \"all\"), or train a new classifier ([head.linear])"
        );
        let estimate = self.settings().estimate(subspace, self.particles, model.head.classes())?;
        tracing::info!("laplace: {estimate}");
        Ok(())
    }

    fn fit(&self, theta: &Tensor, context: &Context) -> Result<Posterior> {
        let fitted = context.fitter(self.settings()).fit(theta)?;
        Ok(Posterior::Laplace { mode: theta.shallow_clone(), fitted })
    }

    fn output(&self) -> Option<(Output, usize)> {
        Some((self.predictive, self.samples))
    }

    /// Where all parameters have Gaussians, the Jacobian takes a gradient of each logit, and each draw of weights takes a derivative. Both
    /// follow from the inputs of a last layer without a pass.
    fn passes(&self, classes: i64) -> Passes {
        match (self.parameters, self.predictive) {
            (Parameters::LastLayer, _) | (Parameters::All, Output::Sampled) => Passes::default(),
            (Parameters::All, Output::Tangent) => Passes { forward: self.samples as i64, backward: 0 },
            (Parameters::All, Output::Mc | Output::Probit | Output::Bridge) => Passes { forward: 0, backward: classes },
        }
    }

    fn predict<'a>(&self, predicted: Predicted<'a>) -> Result<Box<dyn Linear + 'a>> {
        let Predicted { subspace, posterior, output, samples, seed } = predicted;
        let Posterior::Laplace { mode, fitted } = posterior else { bail!(NO_GAUSSIAN_LOGITS) };
        Ok(match output {
            Output::Tangent => Box::new(Drawn::new(subspace, mode, fitted, samples, seed)?),
            _ => Box::new(Linearised::new(subspace, mode, fitted, output, samples, seed)?),
        })
    }
}
