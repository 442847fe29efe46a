//! PGD, projected gradient descent: small steps along the sign of the gradient, projected onto the ball after each,
//! from a random point in the ball (Madry et al. 2018, arXiv 1706.06083).

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::evaluate::attacks::{Attack, Classifier, Clean, Entry, Settings, project};

pub static ENTRY: Entry = Entry {
    key: "pgd",
    about: "signed steps projected onto the ball, from a random start",
    reads: &["steps", "step-size", "from-image", "seed"],
    ranks: false,
    classes: 2,
    kept: 0,
    build: |settings| Box::new(Pgd { settings }),
};

struct Pgd {
    settings: Settings,
}

impl Pgd {
    fn steps(&self) -> usize {
        self.settings.steps.unwrap_or(10)
    }

    fn step_size(&self, epsilon: f64) -> f64 {
        self.settings.step_size.unwrap_or(2.5 * epsilon / self.steps() as f64)
    }
}

impl Attack for Pgd {
    fn run(&self, clean: &Clean, epsilons: &[f64], classifier: &dyn Classifier) -> Result<Vec<Tensor>> {
        let centre = clean.pixels.to_kind(Kind::Double);
        let directions = (!self.settings.from_image).then(|| self.settings.directions(clean, &[]));
        let attacked = |&epsilon: &f64| {
            let mut x = match &directions {
                Some(directions) => project(clean.pixels, &(&centre + directions * epsilon), epsilon),
                None => clean.pixels.shallow_clone(),
            };
            for _ in 0..self.steps() {
                let sign = classifier.loss(&x, clean.labels)?.gradient.sign().to_kind(Kind::Double);
                x = project(clean.pixels, &(x.to_kind(Kind::Double) + sign * self.step_size(epsilon)), epsilon);
            }
            Ok(x)
        };
        epsilons.iter().map(attacked).collect()
    }

    fn settings(&self, epsilon: f64) -> String {
        format!(" {} x {}{}", self.steps(), short(self.step_size(epsilon)), self.settings.start_words())
    }

    fn variant(&self) -> String {
        let size = self.settings.step_size.map_or(String::new(), |size| format!(" of {}", short(size)));
        format!("{} steps{size}{}", self.steps(), self.settings.start_words())
    }
}

/// Formats a number with at most six significant digits.
fn short(value: f64) -> String {
    format!("{value:.5e}").parse::<f64>().map_or_else(|_| value.to_string(), |rounded| rounded.to_string())
}
