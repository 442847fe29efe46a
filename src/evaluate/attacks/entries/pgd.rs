//! PGD, projected gradient descent: small steps along the sign of the gradient, projected onto the ball after each,
//! from a random point in the ball (Madry et al. 2018, arXiv 1706.06083).

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, stream, uniform};
use crate::evaluate::attacks::{Attack, Clean, Entry, Loss, Settings, project};

pub static ENTRY: Entry = Entry {
    key: "pgd",
    about: "signed steps projected onto the ball, from a random start",
    build: |settings| Box::new(Pgd { settings }),
};

struct Pgd {
    settings: Settings,
}

impl Pgd {
    fn step_size(&self, epsilon: f64) -> f64 {
        self.settings.step_size.unwrap_or(2.5 * epsilon / self.settings.steps as f64)
    }

    /// Returns a description of the starting point, which is empty for the default.
    fn start(&self) -> String {
        match (self.settings.random_start, self.settings.seed) {
            (false, _) => " from the image".to_string(),
            (true, 0) => String::new(),
            (true, seed) => format!(" seed {seed}"),
        }
    }

    /// Returns uniform numbers in [-1, 1), in f64 and the shape of the pixels. Those of an image depend only on the
    /// seed and the index of the image.
    fn directions(&self, clean: &Clean) -> Tensor {
        let count = clean.pixels.numel() / clean.indices.len();
        let of_image = |index: &u32| {
            let mut rng = stream(self.settings.seed, Purpose::Attack, &[u64::from(*index)]);
            (0..count).map(move |_| 2.0 * uniform(&mut rng) - 1.0)
        };
        let values: Vec<f64> = clean.indices.iter().flat_map(of_image).collect();
        Tensor::from_slice(&values).view_as(clean.pixels).to_device(clean.pixels.device())
    }
}

impl Attack for Pgd {
    fn run(&self, clean: &Clean, epsilons: &[f64], loss: Loss) -> Result<Vec<Tensor>> {
        let centre = clean.pixels.to_kind(Kind::Double);
        let directions = self.settings.random_start.then(|| self.directions(clean));
        let attacked = |&epsilon: &f64| {
            let mut x = match &directions {
                Some(directions) => project(clean.pixels, &(&centre + directions * epsilon), epsilon),
                None => clean.pixels.shallow_clone(),
            };
            for _ in 0..self.settings.steps {
                let sign = loss(&x)?.gradient.sign().to_kind(Kind::Double);
                x = project(clean.pixels, &(x.to_kind(Kind::Double) + sign * self.step_size(epsilon)), epsilon);
            }
            Ok(x)
        };
        epsilons.iter().map(attacked).collect()
    }

    fn settings(&self, epsilon: f64) -> String {
        format!(" {} x {}{}", self.settings.steps, short(self.step_size(epsilon)), self.start())
    }

    fn variant(&self) -> String {
        let size = self.settings.step_size.map_or(String::new(), |size| format!(" of {}", short(size)));
        format!("{} steps{size}{}", self.settings.steps, self.start())
    }
}

/// Formats a number with at most six significant digits.
fn short(value: f64) -> String {
    format!("{value:.5e}").parse::<f64>().map_or_else(|_| value.to_string(), |rounded| rounded.to_string())
}
