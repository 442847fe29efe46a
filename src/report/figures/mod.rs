//! The figures of a report. Each figure is drawn from the contents of a results folder; if they are missing, it names
//! the command that would produce them. A new figure is one entry in `KINDS`.

mod attacks;
mod calibration;
mod conditions;
pub mod confusion;
mod densities;
mod gains;
pub mod landscape;
mod material;
mod readings;
mod settings;
mod training;

use anyhow::{Context as _, Result};

use self::material::Drawing;
use crate::plot::Canvas;

pub use self::material::Material;

/// A figure of the report, drawn if the results allow it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The stem of the figure's file names.
    pub key: String,
    pub title: String,
    pub topic: Topic,
    /// The published figure that this one corresponds to. Empty if there is none.
    pub paper: &'static str,
    /// Text that names the quantities shown and the results they come from.
    pub caption: String,
    /// `None` if the results hold no data for this figure.
    pub picture: Option<Canvas>,
    /// A command that produces the data of this figure. A sweep needs it once for each of several values.
    pub command: &'static str,
    /// The reasons why a part of the figure could not be drawn, one line each.
    pub problems: Vec<String>,
}

/// What a figure is about. The page has a section for each, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    Comparison,
    Calibration,
    Robustness,
    Uncertainty,
    Classes,
    Training,
    Settings,
}

impl Topic {
    pub const ALL: [Topic; 7] = [
        Topic::Comparison,
        Topic::Calibration,
        Topic::Robustness,
        Topic::Uncertainty,
        Topic::Classes,
        Topic::Training,
        Topic::Settings,
    ];

    /// Returns the anchor and the title of the section.
    pub fn heading(self) -> (&'static str, &'static str) {
        match self {
            Topic::Comparison => ("comparison", "Comparison"),
            Topic::Calibration => ("calibration", "Calibration"),
            Topic::Robustness => ("robustness", "Attacks and shift"),
            Topic::Uncertainty => ("uncertainty", "Uncertainty"),
            Topic::Classes => ("classes", "Classes"),
            Topic::Training => ("training-section", "Training"),
            Topic::Settings => ("settings", "Rates, ranks, particles and sizes"),
        }
    }
}

/// One figure of the registry. `draw` returns `None` if the results hold no data for the figure.
struct Kind {
    key: &'static str,
    title: &'static str,
    topic: Topic,
    paper: &'static str,
    command: &'static str,
    draw: fn(&Material) -> Result<Option<Drawing>>,
}

const TRAIN: &str = "bella train --config EXPERIMENT.toml";

/// All figures in the order of the page.
static KINDS: &[Kind] = &[
    Kind {
        key: "comparison",
        title: "Every method under every condition",
        topic: Topic::Comparison,
        paper: "",
        command: TRAIN,
        draw: conditions::comparison,
    },
    Kind {
        key: "pareto",
        title: "NLL over the cost of training",
        topic: Topic::Comparison,
        paper: "",
        command: TRAIN,
        draw: gains::pareto,
    },
    Kind {
        key: "diversity-gain",
        title: "Gain over one network by the diversity of the members",
        topic: Topic::Comparison,
        paper: "",
        command: "bella train --config EXPERIMENT.toml --set method.svgd.particles=5, and with [method.map] on the same data",
        draw: gains::diversity,
    },
    Kind {
        key: "training",
        title: "Training curves",
        topic: Topic::Training,
        paper: "",
        command: TRAIN,
        draw: training::draw,
    },
    Kind {
        key: "mi-density",
        title: "Mutual information of right and wrong predictions",
        topic: Topic::Uncertainty,
        paper: "Bella, figures 2 and 9",
        command: TRAIN,
        draw: densities::mutual_information,
    },
    Kind {
        key: "entropy-density",
        title: "Predictive entropy of right and wrong predictions",
        topic: Topic::Uncertainty,
        paper: "Bella, figures 10 and 11",
        command: TRAIN,
        draw: densities::entropy,
    },
    Kind {
        key: "fgsm",
        title: "Accuracy under attack",
        topic: Topic::Robustness,
        paper: "Bella, figure 3",
        command: "bella eval RUN --attack fgsm --epsilon 0,0.001,0.005,0.01,0.03",
        draw: attacks::budgets,
    },
    Kind {
        key: "gamma",
        title: "Accuracy under attack by repulsion strength",
        topic: Topic::Robustness,
        paper: "Bella, table 8",
        command: "bella train --config EXPERIMENT.toml --set method.svgd.gamma=0.3 && bella eval --attack fgsm --epsilon 0.01",
        draw: attacks::gamma,
    },
    Kind {
        key: "learning-rate",
        title: "NLL over the learning rate",
        topic: Topic::Settings,
        paper: "",
        command: "bella sweep EXPERIMENT.toml --over optimizer.adamw.lr=1e-4..1e-2",
        draw: settings::learning_rate,
    },
    Kind {
        key: "rank",
        title: "Rank of the low-rank updates",
        topic: Topic::Settings,
        paper: "Bella, figure 4",
        command: "bella train --config EXPERIMENT.toml --set subspace.low-rank.rank=8",
        draw: settings::rank,
    },
    Kind {
        key: "particles",
        title: "Number of particles",
        topic: Topic::Settings,
        paper: "Bella, figure 4",
        command: "bella train --config EXPERIMENT.toml --set method.svgd.particles=10",
        draw: settings::particles,
    },
    Kind {
        key: "parameters",
        title: "Accuracy over trainable parameters",
        topic: Topic::Settings,
        paper: "Bella, figure 5",
        command: TRAIN,
        draw: settings::parameters,
    },
    Kind {
        key: "diversity",
        title: "Diversity of the members",
        topic: Topic::Uncertainty,
        paper: "Bella, figure 7",
        command: "bella train --config EXPERIMENT.toml --set method.svgd.particles=5",
        draw: conditions::diversity,
    },
    Kind {
        key: "stl10",
        title: "Uncertainty on STL-10",
        topic: Topic::Robustness,
        paper: "Bella, figure 8",
        command: "bella eval RUN --data stl10=data",
        draw: conditions::stl10,
    },
    Kind {
        key: "shift",
        title: "Corrupted images",
        topic: Topic::Robustness,
        paper: "",
        command: "bella eval RUN --corrupt gaussian-noise:1,gaussian-noise:3,gaussian-noise:5",
        draw: conditions::shift,
    },
    Kind {
        key: "calibration-shift",
        title: "Calibration under shift",
        topic: Topic::Calibration,
        paper: "",
        command: "bella eval RUN --corrupt gaussian-noise:3,contrast:3 --calibrate",
        draw: conditions::calibration_under_shift,
    },
    Kind {
        key: "reliability",
        title: "Reliability diagrams",
        topic: Topic::Calibration,
        paper: "",
        command: TRAIN,
        draw: calibration::reliability,
    },
    Kind {
        key: "class-reliability",
        title: "Reliability of classes",
        topic: Topic::Calibration,
        paper: "",
        command: TRAIN,
        draw: calibration::class_reliability,
    },
    Kind {
        key: "risk-coverage",
        title: "Risk over coverage",
        topic: Topic::Calibration,
        paper: "",
        command: TRAIN,
        draw: calibration::risk_coverage,
    },
    Kind {
        key: "confusion",
        title: "Classes taken for each other",
        topic: Topic::Classes,
        paper: "",
        command: TRAIN,
        draw: confusion::draw,
    },
    Kind {
        key: "landscape",
        title: "Error over the plane through three particles",
        topic: Topic::Training,
        paper: "Bella, figure 1",
        command: "bella landscape RUN",
        draw: landscape::of_runs,
    },
];

/// Returns all figures in the order of the page. Anything that cannot be read or drawn is reported in the figure's
/// `problems`.
pub fn all(materials: &[Material]) -> Vec<Figure> {
    let mut figures: Vec<_> = KINDS.iter().flat_map(|kind| kind.figures(materials)).collect();
    // Names of experiments may differ only in letters that file names do not have.
    for at in 1..figures.len() {
        let same = figures[..at].iter().filter(|other| other.key == figures[at].key).count();
        if same > 0 {
            figures[at].key = format!("{}-{}", figures[at].key, same + 1);
        }
    }
    // Several figures read the same predictions. A file that cannot be read is reported once, at the first of these
    // figures.
    if let Some(figure) = figures.iter_mut().find(|figure| figure.topic == Topic::Uncertainty) {
        figure.problems.extend(materials.iter().flat_map(|material| material.unread.iter().cloned()));
    }
    figures
}

impl Kind {
    /// Returns the figure of every experiment that has its data; one without a picture if none has.
    fn figures(&self, materials: &[Material]) -> Vec<Figure> {
        let all: Vec<Figure> = materials.iter().map(|material| self.figure(material)).collect();
        if all.iter().all(|figure| figure.picture.is_none()) {
            let problems = all.into_iter().flat_map(|figure| figure.problems).collect();
            return vec![Figure { problems, ..self.named("") }];
        }
        all.into_iter().filter(|figure| figure.picture.is_some() || !figure.problems.is_empty()).collect()
    }

    /// Returns the figure of an experiment without a picture. Its key has the letters of the experiment's name that file
    /// names may have.
    fn named(&self, experiment: &str) -> Figure {
        let Kind { key, title, topic, paper, command, .. } = *self;
        let plain: String =
            experiment.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let (key, title) = match experiment {
            "" => (key.to_string(), title.to_string()),
            _ => (format!("{key}-{plain}"), format!("{title}: {experiment}")),
        };
        Figure { key, title, topic, paper, caption: String::new(), picture: None, command, problems: vec![] }
    }

    fn figure(&self, material: &Material) -> Figure {
        let drawn = (self.draw)(material).with_context(|| format!("figure {}", self.key));
        let (drawing, problems) = match drawn {
            Ok(drawing) => (drawing, vec![]),
            Err(error) => (None, vec![format!("{error:#}")]),
        };
        let (picture, caption) = match drawing {
            Some(Drawing { picture, caption }) if !material.shared.is_empty() => {
                (Some(picture), format!("{caption} All are {}.", material.shared))
            }
            Some(Drawing { picture, caption }) => (Some(picture), caption),
            None => (None, String::new()),
        };
        Figure { caption, picture, problems, ..self.named(&material.experiment) }
    }
}

#[cfg(test)]
mod tests;
