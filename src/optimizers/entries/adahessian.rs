//! `[optimizer.adahessian]`: AdaHessian (Yao et al. 2021, arXiv 2006.00719, Algorithm 1), Adam with the diagonal of the Hessian
//! in place of the gradient in its second moment, without averages over blocks of a weight.
//!
//! | symbol | here |
//! |---|---|
//! | D = z ∘ (H z), z = ±1 | what [`Optimizer::observe`] is given: Hutchinson's estimate of diag(H) |
//! | m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) D² | the moments |
//! | θ ← θ − η (δ θ + m̂ / (v̂^(k/2) + eps)) | the step, with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ) |
//! | k, the Hessian power; δ | `hessian_power`, `weight_decay` |
//!
//! D has the rounding of a gradient over 2 h, so that sums in another order, such as those of parts of a batch, take other steps where D is near 0.
//!
//! Differs: H z is a central difference of gradients, where the authors' code differentiates twice. In bf16 the difference is lost (the
//! relative error of D was above 1), so `precision = "auto"` is f32 here, and bf16 is refused.

use anyhow::Result;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::optimizers::{Entry, Moments, Optimizer, OptimizerSpec, beta1, rates_of};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "adahessian",
    about: "Adam with an estimate of the Hessian's diagonal as its second moment; three gradients a step",
    read: |reader| Box::new(Spec::read(reader)),
};

settings! {
    #[derive(Clone)]
    struct Spec {
        /// Learning rate, or one per particle.
        lr: Vec<f64>, in above(0.0);
        /// Weight decay, apart from the gradient.
        weight_decay: f64 = 0.0, in at_least(0.0);
        beta1: f64, by beta1;
        /// Decay of the squared curvature's running mean.
        beta2: f64 = 0.999, in from_below(0.0, 1.0);
        /// Number added to the root of the squared curvature's mean.
        eps: f64 = 1e-4, in above(0.0);
        /// Power of the curvature that a step is divided by; 0 is gradient descent with momentum.
        hessian_power: f64 = 1.0, in between(0.0, 1.0);
    }
}

impl OptimizerSpec for Spec {
    fn rates(&self) -> &[f64] {
        &self.lr
    }

    fn kept_matrices(&self) -> u64 {
        2
    }

    /// The probe, the moved particles, and two gradients.
    fn matrices_of_a_step(&self) -> u64 {
        4
    }

    fn gradients_of_a_step(&self) -> u64 {
        2
    }

    fn needs_f32(&self) -> bool {
        true
    }

    fn build(&self, theta: &Tensor, factors: Option<&Tensor>) -> Box<dyn Optimizer> {
        let rates = rates_of(&self.lr, theta, factors);
        Box::new(AdaHessian { spec: self.clone(), rates, moments: Moments::new(ENTRY.key, theta) })
    }
}

struct AdaHessian {
    spec: Spec,
    /// The learning rates, `[n, 1]` or `[n, P]`.
    rates: Tensor,
    moments: Moments,
}

impl Optimizer for AdaHessian {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        let Spec { weight_decay, beta1, beta2, eps, hessian_power, .. } = self.spec;
        self.moments.steps += 1;
        let rates = &self.rates * factor;
        let _ = self.moments.first.lerp_(gradient, 1.0 - beta1);
        let scale =
            (&self.moments.second / self.moments.correction(beta2)).pow_tensor_scalar(hessian_power / 2.0) + eps;
        let _ = theta.g_mul_(&(1.0 - &rates * weight_decay));
        let _ = theta.g_sub_(&(&self.moments.first / scale * (rates / self.moments.correction(beta1))));
    }

    fn probe(&self) -> Option<i64> {
        Some(self.moments.steps)
    }

    fn observe(&mut self, curvature: &Tensor) {
        let beta2 = self.spec.beta2;
        let _ = self.moments.second.g_mul_scalar_(beta2);
        let _ = self.moments.second.g_add_(&(curvature.square() * (1.0 - beta2)));
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.moments.keep(keeper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{self, Golden};
    use crate::optimizers::along;
    use tch::{Kind, with_grad};

    /// L = Σ a (p − c)⁴ with its diagonal Hessian, which z ∘ (H z) gives exactly.
    ///
    /// ```python
    /// import torch
    /// torch.set_default_dtype(torch.float64)
    /// p = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    /// c = torch.tensor([0.3, 0.1, -0.2]); a = torch.tensor([1.0, 3.0, 0.5]); z = torch.tensor([1.0, -1.0, 1.0])
    /// m = torch.zeros(3); v = torch.zeros(3); lr, wd, b1, b2, eps, k = 0.1, 0.05, 0.9, 0.99, 1e-4, POWER
    /// for t in range(1, 4):
    ///     g, = torch.autograd.grad((a * (p - c) ** 4).sum(), p, create_graph=True)
    ///     hz, = torch.autograd.grad((g * z).sum(), p)
    ///     with torch.no_grad():
    ///         m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * (z * hz) ** 2
    ///         p.mul_(1 - lr * wd)
    ///         p -= lr * (m / (1 - b1 ** t)) / ((v / (1 - b2 ** t)).sqrt() ** k + eps)
    /// print(p.tolist())
    /// ```
    #[test]
    fn equals_the_algorithm_in_torch() {
        let row = |values: [f64; 3]| Tensor::from_slice(&values).view([1, 3]);
        for (hessian_power, expected) in TORCH {
            let spec = Spec { lr: vec![0.1], weight_decay: 0.05, beta1: 0.9, beta2: 0.99, eps: 1e-4, hessian_power };
            let mut theta = row([1.0, -2.0, 0.5]);
            let mut optimizer = spec.build(&theta, None);
            for step in 0..3 {
                let (a, apart) = (row([1.0, 3.0, 0.5]), &theta - row([0.3, 0.1, -0.2]));
                assert_eq!(optimizer.probe(), Some(step));
                optimizer.observe(&(&a * apart.square() * 12.0));
                optimizer.step(&mut theta, &(a * apart.pow_tensor_scalar(3.0) * 4.0), 1.0);
            }
            let difference = (theta - row(expected)).abs().max().double_value(&[]);
            assert!(difference < 1e-9, "{hessian_power}: {difference:e}");
        }
    }

    const TORCH: [(f64, [f64; 3]); 2] = [
        (1.0, [0.9170846941431683, -1.7658832384544167, 0.424402146683641]),
        (0.5, [0.8309619438534289, -0.09252507109933045, 0.38054720773590184]),
    ];

    /// The gradient of the cross-entropy of a network with one hidden layer, for its weights `[1, P]`.
    fn gradients(golden: &Golden, theta: &Tensor) -> Result<Tensor> {
        let labels = golden.tensor("labels").to_kind(Kind::Int64);
        let leaf = theta.detach().set_requires_grad(true);
        let root = with_grad(|| {
            let (first, second) = (leaf.narrow(1, 0, 15).view([5, 3]), leaf.narrow(1, 15, 20).view([4, 5]));
            let logits = golden.tensor("x").matmul(&first.tr()).tanh().matmul(&second.tr());
            logits.log_softmax(-1, Kind::Double).nll_loss(&labels)
        });
        Ok(Tensor::f_run_backward(&[root], &[leaf], false, false)?.swap_remove(0))
    }

    /// The authors' `Adahessian` with the same signs, by `scripts/make_bayestune_adahessian_goldens.py`. Theirs differentiates
    /// twice and keeps |D| alone, whose square is the same.
    #[test]
    fn steps_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("adahessian");
        let number = |name: &str| golden.number(name);
        for case in ["whole", "half"] {
            let rows = |name: &str| golden.tensor(&format!("{case}/{name}")).unsqueeze(1).unbind(0);
            let spec = Spec {
                lr: vec![number("lr")],
                weight_decay: number("weight_decay"),
                beta1: number("beta1"),
                beta2: number("beta2"),
                eps: number("eps"),
                hessian_power: golden.number(&format!("{case}/power")),
            };
            let mut theta = golden.tensor("start").unsqueeze(0);
            let mut optimizer = spec.build(&theta, None);
            for (step, signs) in rows("signs").iter().enumerate() {
                let gradient = gradients(&golden, &theta).unwrap();
                let found = along(|at| gradients(&golden, at), &theta, signs).unwrap();
                golden::near(&found.abs(), &rows("curvature")[step], 1e-8);
                optimizer.observe(&found);
                optimizer.step(&mut theta, &gradient, 1.0);
                golden::near(&theta, &rows("after")[step], 1e-7);
            }
        }
    }

    /// The code in the authors' folder `instruction` averages |D| over each row of a weight, which is not done here.
    #[test]
    fn the_diagonal_is_not_averaged_over_rows() {
        let golden = Golden::of_authors("adahessian");
        let (theta, signs) = (golden.tensor("start").unsqueeze(0), golden.tensor("averaged/signs").unsqueeze(0));
        let found = along(|at| gradients(&golden, at), &theta, &signs).unwrap().abs();
        let theirs = golden.tensor("averaged/curvature").unsqueeze(0);
        let average = |start: i64, shape: [i64; 2]| {
            let rows = found.narrow(1, start, shape[0] * shape[1]).view(shape);
            rows.mean_dim([1i64].as_slice(), true, Kind::Double).expand(shape, true).reshape([1, -1])
        };
        golden::near(&Tensor::cat(&[average(0, [5, 3]), average(15, [4, 5])], 1), &theirs, 1e-8);
        assert!((found - theirs).abs().max().double_value(&[]) > 0.1);
    }
}
