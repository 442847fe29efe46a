//! FGSM, the fast gradient sign method: x' = clip(x + epsilon · sign ∇_x L, 0, 1) (Goodfellow et al. 2015, arXiv
//! 1412.6572).

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::evaluate::attacks::{Attack, Classifier, Clean, Entry, project};

pub static ENTRY: Entry = Entry {
    key: "fgsm",
    about: "one step of epsilon along the sign of the gradient",
    reads: &[],
    ranks: false,
    classes: 2,
    kept: 0,
    build: |_| Box::new(Fgsm),
};

struct Fgsm;

impl Attack for Fgsm {
    /// Takes the gradient once and uses it for every epsilon; sign(0) = 0.
    fn run(&self, clean: &Clean, epsilons: &[f64], classifier: &dyn Classifier) -> Result<Vec<Tensor>> {
        let sign = classifier.loss(clean.pixels, clean.labels)?.gradient.sign().to_kind(Kind::Double);
        let centre = clean.pixels.to_kind(Kind::Double);
        Ok(epsilons.iter().map(|&epsilon| project(clean.pixels, &(&centre + &sign * epsilon), epsilon)).collect())
    }

    fn settings(&self, _: f64) -> String {
        String::new()
    }

    fn variant(&self) -> String {
        String::new()
    }
}
