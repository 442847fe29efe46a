//! Random Fourier features, by which a linear classifier is a Gaussian process with an RBF kernel (Rahimi and Recht 2007), as the last
//! layer of SNGP has them (Liu et al. 2020, arXiv 2006.10108).

use tch::{Kind, Tensor};

use crate::model::network::ops::Dual;

/// φ(f) = √(2 / D) cos(W f̂ + b) with f̂ = (f − mean f) / √(var f + 10⁻⁶) over the features. W and b are drawn once and frozen.
#[derive(Debug)]
pub struct RandomFeatures {
    /// W, `[D, d]`.
    pub weight: Tensor,
    /// b, `[D]`.
    pub bias: Tensor,
}

/// The number that is added to the variance of a feature vector.
const EPS: f64 = 1e-6;

impl RandomFeatures {
    /// Returns φ, `[…, D]`, for features `[…, d]`.
    pub fn of(&self, features: &Tensor) -> Tensor {
        self.phases(features).cos() * self.scale()
    }

    /// Returns the derivatives `[S, B, D]` of φ along those of features `[1, B, d]`.
    pub fn along(&self, features: &Tensor, moved: &Tensor) -> Tensor {
        let mean = |x: &Tensor| x.mean_dim([-1i64].as_slice(), true, None::<Kind>);
        let centred = |x: &Tensor| x - mean(x);
        let normed = self.normed(features);
        let inverse = (mean(&centred(features).square()) + EPS).rsqrt();
        let moved = centred(moved);
        let moved = (&moved - &normed * mean(&(&moved * &normed))) * inverse;
        self.phases(features).sin() * moved.matmul(&self.weight.tr()) * -self.scale()
    }

    /// Returns φ with its derivatives.
    pub fn dual(&self, features: &Dual) -> Dual {
        let moved = features.moved.as_ref().map(|moved| self.along(&features.value, moved));
        Dual { value: self.of(&features.value), moved }
    }

    fn normed(&self, features: &Tensor) -> Tensor {
        let width = features.size().last().copied().unwrap_or(0);
        features.layer_norm([width], None::<&Tensor>, None::<&Tensor>, EPS, true)
    }

    fn phases(&self, features: &Tensor) -> Tensor {
        self.normed(features).matmul(&self.weight.tr()) + &self.bias
    }

    fn scale(&self) -> f64 {
        (2.0 / self.bias.size()[0] as f64).sqrt()
    }

    pub(super) fn map(&self, of: impl Fn(&Tensor) -> Tensor) -> RandomFeatures {
        RandomFeatures { weight: of(&self.weight), bias: of(&self.bias) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};

    /// Features are those of edward2's layers with given W and b, up to their scale, which is 1 there.
    #[test]
    fn features_are_those_of_edward2() {
        let golden = Golden::of_authors("random_features");
        let tensor = |name: &str| golden.tensor(name);
        let random = RandomFeatures { weight: tensor("kernel").tr(), bias: tensor("bias") };
        near(&(random.of(&tensor("inputs")) / random.scale()), &tensor("features"), 1e-6);
    }

    #[test]
    fn derivatives_are_limits_of_differences() {
        tch::manual_seed(3);
        let draw = |size: &[i64]| Tensor::randn(size, tch::kind::DOUBLE_CPU);
        let random = RandomFeatures { weight: draw(&[7, 5]), bias: draw(&[7]) };
        let (features, moved) = (draw(&[1, 4, 5]), draw(&[3, 4, 5]));
        let step = 1e-6;
        let slope = (random.of(&(&features + &moved * step)) - random.of(&(&features - &moved * step))) / (2.0 * step);
        near(&random.along(&features, &moved), &slope, 1e-8);
    }

    /// With many features the inner product is the kernel exp(−‖x − y‖² / d) of normalised features.
    #[test]
    fn inner_products_are_a_kernel() {
        tch::manual_seed(5);
        let (wide, width) = (200_000, 4);
        let weight = Tensor::randn([wide, width], tch::kind::DOUBLE_CPU) * (2.0 / width as f64).sqrt();
        let bias = Tensor::rand([wide], tch::kind::DOUBLE_CPU) * std::f64::consts::TAU;
        let random = RandomFeatures { weight, bias };
        let x = Tensor::randn([3, width], tch::kind::DOUBLE_CPU);
        let (found, normed) = (random.of(&x), random.normed(&x));
        let apart = Tensor::cdist(&normed, &normed, 2.0, None::<i64>).square();
        near(&found.matmul(&found.tr()), &(-apart / width as f64).exp(), 0.02);
    }
}
