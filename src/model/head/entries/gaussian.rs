//! `[head.gaussian]`: a new linear layer that predicts a number, with a Gaussian likelihood. Each particle trains it from its own start.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::data::numbers::Scale;
use crate::model::head::{Entry, Gaussian, Head, HeadContext, HeadSpec, Noise, Training};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "gaussian",
    about: "a number in place of a class: a new linear layer predicts its mean, with a Gaussian noise that is learnt or fixed",
    read: |reader| Box::new(Spec::read(reader)),
};

settings! {
    struct Spec {
        /// Standard deviation of the noise in the unit of the numbers, where it is known.
        sigma: Option<f64>, in above(0.0);
        /// Standard deviation of the noise: predicted for each sample (`sample`), one that is learnt (`shared`), or `sigma` (`fixed`,
        /// the default where `sigma` is given).
        noise: Noise = if sigma.is_some() { Noise::Fixed } else { Noise::Sample };
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        match (self.noise, self.sigma) {
            (Noise::Fixed, None) => reader.problem("noise", "\"fixed\" needs sigma: a number above 0"),
            (Noise::Sample | Noise::Shared, Some(_)) => {
                reader.problem("sigma", "is learnt: leave it out, or set noise = \"fixed\"");
            }
            _ => {}
        }
    }
}

impl HeadSpec for Spec {
    fn build(&self, context: &HeadContext) -> Result<Head> {
        Ok(self.outline(1, context.width))
    }

    fn outline(&self, _: i64, width: i64) -> Head {
        // Outputs: the mean, and the deviation of the noise if it is learnt. One that all samples share is a bias without a weight.
        let [rows, biases] = match self.noise {
            Noise::Sample => [2, 2],
            Noise::Shared => [1, 2],
            Noise::Fixed => [1, 1],
        };
        // The scale follows from the training numbers, which a checkpoint does not know.
        let gaussian = Some(Gaussian { sigma: self.sigma, scale: Scale::NONE });
        Head {
            bias: Tensor::zeros([biases], (Kind::Float, Device::Cpu)),
            gaussian,
            ..Head::zeros(rows, width, self.training())
        }
    }

    fn training(&self) -> Training {
        Training::Always
    }

    fn noise(&self) -> Option<Noise> {
        Some(self.noise)
    }
}
