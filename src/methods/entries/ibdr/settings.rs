//! The table `[method.ibdr]`: the keys of both forms, and those that only one of them has.

use serde::Serialize;

use crate::methods::{Circumstances, MAX_PARTICLES};
use crate::schema::{Bounds, Reader, words};

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

#[derive(Serialize, Clone, Debug)]
pub struct Spec {
    pub particles: i64,
    /// The weight α of the diversity.
    pub diversity: f64,
    /// The standard deviation σ of the Gaussians.
    pub std: f64,
    /// The dual variable λ at the start.
    pub lambda: f64,
    /// The learning rate α_λ of λ.
    pub lambda_lr: f64,
    pub variant: Form,
    #[serde(flatten)]
    pub rule: Rule,
}

/// The settings that only one form has.
#[derive(Serialize, Clone, Debug)]
#[serde(untagged)]
pub enum Rule {
    Paper {
        /// The step size α_1 of the ascent.
        ascent_lr: f64,
        ascent_steps: usize,
        /// The radius ρ.
        radius: f64,
        /// The weight β of the divergence from the prior.
        kl_weight: f64,
    },
    Released {
        cost: Cost,
        /// The distance of predictions that λ keeps.
        bound: f64,
        /// The largest L2 norm of the gradient of the ascent, over all particles.
        ascent_clip_norm: f64,
        /// The number that is added to the squared gradients of the Fisher cost.
        #[serde(skip_serializing_if = "Option::is_none")]
        damping: Option<f64>,
    },
}

/// The keys of each form, beyond those of both.
const OF_PAPER: [&str; 4] = ["ascent_lr", "ascent_steps", "radius", "kl_weight"];
const OF_RELEASED: [&str; 4] = ["cost", "bound", "ascent_clip_norm", "damping"];

impl Spec {
    pub fn read(reader: &Reader, circumstances: &Circumstances) -> Spec {
        let variant = reader
            .choice("variant")
            .about("Algorithm 1 of the paper, or the rules of the released code.")
            .or(Form::Paper);
        let std = std(reader, variant);
        let spec = Spec {
            particles: reader.count("particles", 1..=MAX_PARTICLES).about("Number of Gaussians K.").required() as i64,
            diversity: reader
                .float("diversity", Bounds::at_least(0.0))
                .about("Weight α of the diversity of predictions.")
                .or(0.02),
            std,
            lambda: reader
                .float("lambda", Bounds::above(0.0))
                .about("Dual variable λ of the transport cost at the start.")
                .or(3.0),
            lambda_lr: reader
                .float("lambda_lr", Bounds::at_least(0.0))
                .about("Learning rate of λ; in `released`, where it follows the schedule, the optimizer's in their scripts.")
                .or(0.01),
            variant,
            rule: Rule::read(reader, variant),
        };
        if spec.std == 0.0 && circumstances.subspace == "full" && spec.particles > 1 {
            reader
                .problem("std", "0 in [subspace.full] keeps particles that start equal alike: give it a value above 0");
        }
        spec
    }
}

/// Reads the standard deviation of the Gaussians, which only the released form has a default for.
fn std(reader: &Reader, variant: Form) -> f64 {
    let std = reader
        .float("std", Bounds::at_least(0.0))
        .about("Standard deviation σ of the Gaussians; required for `paper`, 0 for `released`.")
        .optional();
    if variant == Form::Paper && std.is_none() {
        reader.problem(
            "std",
            "is required: the standard deviation σ of the Gaussians (the paper has 0.1; low-rank factors want less, say 0.01)",
        );
    }
    std.unwrap_or(0.0)
}

impl Rule {
    /// Reads the keys of both forms, so that those of the other form are reported with the way out.
    fn read(reader: &Reader, variant: Form) -> Rule {
        let (paper, released) = (Rule::paper(reader), Rule::released(reader));
        let (own, other) = match variant {
            Form::Paper => (paper, &OF_RELEASED[..]),
            Form::Released => (released, &OF_PAPER[..]),
        };
        for key in other.iter().filter(|key| reader.has(key)) {
            reader.problem(key, format!("is no key of variant = \"{variant}\": leave it out"));
        }
        match own {
            Rule::Released { cost: Cost::Fisher, damping: None, .. } => {
                reader.problem("damping", "is required for cost = \"fisher\": a number above 0, say 1e-3");
            }
            Rule::Released { cost: Cost::Euclidean, damping: Some(_), .. } => {
                reader.problem("damping", "belongs to cost = \"fisher\": leave it out");
            }
            _ => {}
        }
        own
    }

    fn paper(reader: &Reader) -> Rule {
        Rule::Paper {
            ascent_lr: reader
                .float("ascent_lr", Bounds::above(0.0))
                .about("Step size of the ascent to the worst case (`paper`).")
                .or(0.05),
            ascent_steps: reader
                .count("ascent_steps", 1..=1000)
                .about("Ascents in a step (`paper`); λ acts from the second on.")
                .or(1),
            radius: reader
                .float("radius", Bounds::at_least(0.0))
                .about("Radius ρ: the mean squared distance of the worst cases that λ keeps (`paper`).")
                .or(0.05),
            kl_weight: reader
                .float("kl_weight", Bounds::at_least(0.0))
                .about("Weight β of the divergence from the prior N(0, I) (`paper`).")
                .or(1e-4),
        }
    }

    fn released(reader: &Reader) -> Rule {
        Rule::Released {
            cost: reader.choice("cost").about("Cost of moving a particle (`released`).").or(Cost::Euclidean),
            damping: reader
                .float("damping", Bounds::above(0.0))
                .about("Number added to the squared gradients of the Fisher cost (`released`, `cost = \"fisher\"`).")
                .optional(),
            bound: reader
                .float("bound", Bounds::above(0.0))
                .about("Distance of the worst case's predictions that λ keeps (`released`).")
                .or(0.03),
            ascent_clip_norm: reader
                .float("ascent_clip_norm", Bounds::above(0.0))
                .about("Largest norm of the gradient of the ascent, over all particles (`released`).")
                .or(0.2),
        }
    }
}
