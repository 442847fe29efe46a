//! `[head.random-features]`: a new linear classifier on random features, the last layer of SNGP (Liu et al. 2020, arXiv 2006.10108)
//! without the spectral normalisation of the network, which is pretrained here.
//!
//! | symbol | here |
//! |---|---|
//! | φ(f) = √(2 / D) cos(W f̂ + b) | D is `features`; f̂ the features, normalised by their mean and variance |
//! | W ~ N(0, 2 / (d ℓ²)), b ~ U(0, 2 π) | ℓ is `length_scale`; drawn by `draw`, the same for all particles, and frozen |
//! | kernel exp(−‖f̂ − f̂'‖² / (d ℓ²)) | its limit for many features |
//! | logits = β φ + c | trained by each particle; a posterior over β is `[method.laplace]` or `[method.vbll]` |
//!
//! Differs from edward2: φ has the scale √(2 / D) of Algorithm 1, which its JAX layer leaves out, and c is trained. The covariance of β is that of the
//! method, where theirs is the inverse of I + Σ φ φᵀ for all classes.

use std::f64::consts::TAU;

use anyhow::Result;
use rand::RngExt;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, normal, stream};
use crate::model::head::{Entry, Head, HeadContext, HeadSpec, RandomFeatures, Training};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "random-features",
    about: "a new linear layer on random Fourier features, by which it is a Gaussian process (SNGP), trained per particle",
    read: |reader| Box::new(Spec::read(reader)),
};

settings! {
    struct Spec {
        /// Number of random features D.
        features: i64 = 1024, in 1..=1_000_000;
        /// Length ℓ of the kernel, in root mean squares of the normalised features.
        length_scale: f64 = 1.0, in above(0.0);
        /// Number of the draw of the random features.
        draw: i64 = 0, in 0..=1_000_000_000;
    }
}

impl HeadSpec for Spec {
    fn build(&self, context: &HeadContext) -> Result<Head> {
        let (classes, width) = (context.classes.len() as i64, context.width);
        let mut rng = stream(self.draw as u64, Purpose::Init, &[u64::MAX]);
        let std = (2.0 / width as f64).sqrt() / self.length_scale;
        let weight: Vec<f32> = (0..self.features * width).map(|_| (std * normal(&mut rng)) as f32).collect();
        let bias: Vec<f32> = (0..self.features).map(|_| rng.random_range(0.0..TAU) as f32).collect();
        let weight = Tensor::from_slice(&weight).view([self.features, width]).to_kind(Kind::Float);
        let random = RandomFeatures { weight, bias: Tensor::from_slice(&bias) };
        // The classifier only gives the shape; the trained ones are in the rows of the particles.
        Ok(Head { random: Some(random), ..self.outline(classes, width) })
    }

    fn outline(&self, classes: i64, width: i64) -> Head {
        let Head { weight, bias, .. } = Head::zeros(self.features, width, self.training());
        Head { random: Some(RandomFeatures { weight, bias }), ..Head::zeros(classes, self.features, self.training()) }
    }

    fn training(&self) -> Training {
        Training::Always
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Reader, Tree};

    /// Plans count the classifier on the random features, which may be many times the network's own.
    #[test]
    fn an_outline_has_the_shapes_of_the_random_features() {
        let tree = Tree::parse("test.toml", "features = 3000").unwrap();
        let reader = Reader::root(&tree);
        let spec = Spec::read(&reader);
        let outline = reader.close(spec).unwrap().outline(10, 64);
        assert_eq!((outline.weight.size(), outline.bias.size()), (vec![10, 3000], vec![10]));
        let random = outline.random.unwrap();
        assert_eq!((random.weight.size(), random.bias.size()), (vec![3000, 64], vec![3000]));
    }
}
