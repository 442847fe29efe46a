//! How a posterior predicts.

use crate::schema::words;

words! {
    /// How Gaussian logits, or weights, become predictions.
    pub enum Output {
        /// Draws of linearised logits, a member each.
        Mc = "mc",
        /// softmax(f_c / √(1 + π V_cc / 8)), one member a particle, its log-probabilities as logits.
        Probit = "probit",
        /// The Laplace bridge to a Dirichlet distribution (Hobbhahn et al. 2022, arXiv 2003.01227), as `Probit`.
        Bridge = "bridge",
        /// Draws of weights, a member each, through the network itself.
        Sampled = "sampled",
    }
}

/// Which members stand for the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictive {
    /// The particles themselves: points, draws of a bank, or means of Gaussians.
    Particles,
    /// The means of Gaussians (IVON@mean), named as such beside draws from them.
    Mean,
    /// So many draws of weights from each Gaussian.
    Draws(usize),
    /// Gaussian logits of a Laplace approximation, with so many draws a particle where draws are members.
    Linearised(Output, usize),
}

impl Predictive {
    /// A Laplace approximation's output.
    pub fn laplace(output: Output, samples: usize) -> Predictive {
        match output {
            Output::Sampled => Predictive::Draws(samples),
            Output::Mc | Output::Probit | Output::Bridge => Predictive::Linearised(output, samples),
        }
    }

    /// The cell in results where the method would predict by `own`, for which it is empty.
    pub fn name(self, own: Predictive) -> String {
        match self {
            Predictive::Particles => String::new(),
            asked if asked == own => String::new(),
            Predictive::Mean => "mean".to_string(),
            Predictive::Draws(draws) => format!("draws-{draws}"),
            Predictive::Linearised(Output::Mc, draws) => format!("mc-{draws}"),
            Predictive::Linearised(output, _) => output.to_string(),
        }
    }
}
