//! The ways in which a posterior predicts.

use crate::schema::words;

words! {
    /// The way in which Gaussian logits or weights become predictions.
    pub enum Output {
        /// Draws of linearised logits, one member each.
        Mc = "mc",
        /// The probit approximation softmax(f_c / √(1 + π V_cc / 8)): one member per particle, with its
        /// log-probabilities as logits.
        Probit = "probit",
        /// The Laplace bridge to a Dirichlet distribution (Hobbhahn et al. 2022, arXiv 2003.01227), with members as for
        /// `probit`.
        Bridge = "bridge",
        /// Draws of weights, one member each, through the network itself.
        Sampled = "sampled",
        /// Draws of weights, one member each, through the linearised network, by forward derivatives.
        Tangent = "tangent",
    }
}

/// The members that represent the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictive {
    /// The particles themselves: points, draws of a bank, or means of Gaussians.
    Particles,
    /// The means of Gaussians (IVON@mean), or particles without dropout, named separately from draws.
    Mean,
    /// This many draws of weights from each Gaussian, or masks of each particle.
    Draws(usize),
    /// The Gaussian logits of a Laplace approximation, with this many draws per particle if draws are the members.
    Linearised(Output, usize),
}

impl Predictive {
    /// Returns the predictive for the output of a Laplace approximation.
    pub fn laplace(output: Output, samples: usize) -> Predictive {
        match output {
            Output::Sampled => Predictive::Draws(samples),
            Output::Mc | Output::Probit | Output::Bridge | Output::Tangent => Predictive::Linearised(output, samples),
        }
    }

    /// Returns the cell in results. It is empty for `own`, the predictive of the method.
    pub fn name(self, own: Predictive) -> String {
        match self {
            Predictive::Particles => String::new(),
            asked if asked == own => String::new(),
            Predictive::Mean => "mean".to_string(),
            Predictive::Draws(draws) => format!("draws-{draws}"),
            Predictive::Linearised(output @ (Output::Mc | Output::Tangent), draws) => format!("{output}-{draws}"),
            Predictive::Linearised(output, _) => output.to_string(),
        }
    }
}
