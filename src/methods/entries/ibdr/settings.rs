//! The table `[method.ibdr]`: the keys of both forms, and those that only one of them has.

use crate::methods::MAX_PARTICLES;
use crate::schema::{Reader, Resolved, limits, settings, words};

words! {
    /// The form of the method.
    pub enum Form {
        /// Algorithm 1 of the paper.
        Paper = "paper",
        /// The authors' released code.
        Released = "released",
    }
}

words! {
    /// The cost of moving a particle in the released form.
    pub enum Cost {
        /// The squared distance.
        Euclidean = "euclidean",
        /// The squared distance in the metric of the diagonal empirical Fisher matrix.
        Fisher = "fisher",
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        /// Algorithm 1 of the paper, or the rules of the released code.
        pub variant: Form = Form::Paper;
        pub std: f64, by |reader| std(reader, variant);
        /// Number of Gaussians K.
        pub particles: i64, in 1..=MAX_PARTICLES;
        /// Weight α of the diversity of predictions.
        pub diversity: f64 = 0.02, in at_least(0.0);
        /// Dual variable λ of the transport cost at the start.
        pub lambda: f64 = 3.0, in above(0.0);
        /// Learning rate of λ; in `released`, where it follows the schedule, the optimizer's in their scripts.
        pub lambda_lr: f64 = 0.01, in at_least(0.0);
        pub rule: Rule, part |reader| Rule::read(reader, variant);
    }
}

settings! {
    /// The keys that only the form of the paper has.
    #[derive(Clone, Debug)]
    pub struct Paper {
        /// Step size of the ascent to the worst case (`paper`).
        pub ascent_lr: f64 = 0.05, in above(0.0);
        /// Ascents in a step (`paper`); λ acts from the second on.
        pub ascent_steps: usize = 1, in 1..=1000;
        /// Radius ρ: the mean squared distance of the worst cases that λ keeps (`paper`).
        pub radius: f64 = 0.05, in at_least(0.0);
        /// Weight β of the divergence from the prior N(0, I) (`paper`).
        pub kl_weight: f64 = 1e-4, in at_least(0.0);
    }
}

settings! {
    /// The keys that only the released form has.
    #[derive(Clone, Debug)]
    pub struct Released {
        /// Cost of moving a particle (`released`).
        pub cost: Cost = Cost::Euclidean;
        /// Number added to the squared gradients of the Fisher cost (`released`, `cost = "fisher"`).
        pub damping: Option<f64>, in above(0.0);
        /// Distance of the worst case's predictions that λ keeps (`released`).
        pub bound: f64 = 0.03, in above(0.0);
        /// Largest norm of the gradient of the ascent, over all particles (`released`).
        pub ascent_clip_norm: f64 = 0.2, in above(0.0);
    }
}

/// The settings that only one form has.
#[derive(Clone, Debug)]
pub enum Rule {
    Paper(Paper),
    Released(Released),
}

impl Resolved for Rule {
    fn resolved(&self) -> toml::Table {
        match self {
            Rule::Paper(keys) => keys.resolved(),
            Rule::Released(keys) => keys.resolved(),
        }
    }
}

/// The keys of each form, beyond those of both.
const OF_PAPER: [&str; 4] = ["ascent_lr", "ascent_steps", "radius", "kl_weight"];
const OF_RELEASED: [&str; 4] = ["cost", "bound", "ascent_clip_norm", "damping"];

/// The keys of the cost of moving, which has no gradient where the first ascent starts.
const OF_LATER_ASCENTS: [&str; 3] = ["lambda", "lambda_lr", "radius"];

/// Reads the standard deviation of the Gaussians, which only the released form has a default for.
fn std(reader: &Reader, variant: Form) -> f64 {
    let std = reader
        .float("std", limits::at_least(0.0))
        .about("Standard deviation σ of the Gaussians; required for `paper`, 0 for `released`.")
        .optional();
    if variant == Form::Paper && std.is_none() {
        reader.missing(
            "std",
            "is required: the standard deviation σ of the Gaussians (the paper has 0.1; low-rank factors want less, say 0.01)",
        );
    }
    std.unwrap_or(0.0)
}

impl Rule {
    /// Reads the keys of both forms, so that those of the other form are reported with the way out.
    fn read(reader: &Reader, variant: Form) -> Rule {
        let (paper, released) = (Rule::Paper(Paper::read(reader)), Rule::Released(Released::read(reader)));
        let (own, other) = match variant {
            Form::Paper => (paper, &OF_RELEASED[..]),
            Form::Released => (released, &OF_PAPER[..]),
        };
        for key in other.iter().filter(|key| reader.sets(key)) {
            reader.problem(key, format!("is no key of variant = \"{variant}\": leave it out"));
        }
        match own {
            Rule::Released(Released { cost: Cost::Fisher, damping: None, .. }) => {
                reader.missing("damping", "is required for cost = \"fisher\": a number above 0, say 1e-3");
            }
            Rule::Paper(Paper { ascent_steps: 1, .. }) => {
                for key in OF_LATER_ASCENTS.into_iter().filter(|key| reader.sets(key)) {
                    let why =
                        "moves no particle in the first ascent, and there is one: leave it out, or raise ascent_steps";
                    reader.problem(key, why);
                }
            }
            Rule::Released(Released { cost: Cost::Euclidean, damping: Some(_), .. }) => {
                reader.problem("damping", "belongs to cost = \"fisher\": leave it out");
            }
            _ => {}
        }
        own
    }
}
