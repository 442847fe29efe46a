//! How far the particles' predictions of the wrong classes point in different directions (IBDR, ICML 2025; after
//! determinantal point processes, Kulesza and Taskar 2012, arXiv 1207.6083).
//!
//! For an image with label y, f̃_i is the vector of particle i's probabilities of all classes but y, divided by its L2
//! norm, and G_ij = f̃_i · f̃_j their Gram matrix `[n, n]`. det G is the squared volume that they span: 1 if all are
//! orthogonal, 0 if one is a combination of others. n vectors of C − 1 numbers span no volume if C − 1 < n.

use anyhow::Result;
use tch::{Kind, Tensor, no_grad, with_grad};

/// The number that measures a Gram matrix G.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Volume {
    /// det G.
    Squared,
    /// log det(G + ε I), for ε > 0.
    Log { epsilon: f64 },
}

/// A volume of every image, and its gradient.
pub struct Diversity {
    /// The volumes, `[B]` in f64.
    pub values: Tensor,
    /// The gradient of their sum with respect to the logits, `[n, B, C]` in f64.
    pub by_logits: Tensor,
}

/// Returns the volumes for `logits: [n, B, C]` and `labels: [B]`. The gradient is also exact where G is singular, as it
/// is where particles start equal.
///
/// # Errors
/// Fails if libtorch fails.
pub fn diversity(logits: &Tensor, labels: &Tensor, volume: Volume) -> Result<Diversity> {
    let logits = logits.detach().to_kind(Kind::Double).set_requires_grad(true);
    let directions = with_grad(|| directions(&logits, labels));
    let (values, pulled) = no_grad(|| {
        let Volumes { values, by_gram } = measured(&directions.matmul(&directions.transpose(1, 2)), volume);
        // dv = ⟨M, dG⟩ with G = F Fᵀ and M symmetric, so dv = 2 ⟨M F, dF⟩.
        (values, by_gram.matmul(&directions) * 2.0)
    });
    let root = with_grad(|| (&directions * pulled).sum(Kind::Double));
    let by_logits = Tensor::f_run_backward(&[root], &[&logits], false, false)?.swap_remove(0);
    Ok(Diversity { values, by_logits })
}

/// Returns f̃, `[B, n, C]` with 0 at the label, for `logits: [n, B, C]` and `labels: [B]`.
fn directions(logits: &Tensor, labels: &Tensor) -> Tensor {
    let target = labels.one_hot(logits.size()[2]).to_kind(Kind::Bool);
    // The norm cancels any factor, so that the probabilities may be those without the label: they do not underflow where
    // its probability is almost 1.
    let others = logits.transpose(0, 1).masked_fill(&target.unsqueeze(1), f64::NEG_INFINITY).softmax(-1, Kind::Double);
    let norms = others.norm_scalaropt_dim(2.0, [-1], true);
    others / norms
}

/// The volumes `[B]` of Gram matrices, and their gradients M `[B, n, n]` with respect to these.
struct Volumes {
    values: Tensor,
    by_gram: Tensor,
}

/// Returns the volumes of Gram matrices `[B, n, n]`.
fn measured(gram: &Tensor, volume: Volume) -> Volumes {
    let (values, vectors) = gram.linalg_eigh("L");
    let values = values.clamp_min(0.0);
    let (volumes, slopes) = match volume {
        Volume::Squared => (values.prod_dim_int(-1, false, Kind::Double), products_of_others(&values)),
        Volume::Log { epsilon } => {
            let values = values + epsilon;
            (values.log().sum_dim_intlist([-1i64].as_slice(), false, Kind::Double), values.reciprocal())
        }
    };
    let by_gram = (&vectors * slopes.unsqueeze(1)).matmul(&vectors.transpose(1, 2));
    Volumes { values: volumes, by_gram }
}

/// Returns Π_{j≠i} v_j in place of each v_i, for `[B, n]`. It is defined where some are 0.
fn products_of_others(values: &Tensor) -> Tensor {
    let n = values.size()[1];
    let ones = values.narrow(1, 0, 1).ones_like();
    let before =
        |values: &Tensor| Tensor::cat(&[ones.shallow_clone(), values.narrow(1, 0, n - 1)], 1).cumprod(1, Kind::Double);
    before(values) * before(&values.flip([1])).flip([1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: &Tensor, b: &Tensor) {
        let (difference, scale) = ((a - b).abs().max().double_value(&[]), b.abs().max().double_value(&[]));
        assert!(scale > 0.0 && difference < 1e-10 * scale, "{a} {b}");
    }

    /// The definition, written with the probabilities themselves and libtorch's determinant.
    fn by_definition(logits: &Tensor, labels: &[i64], volume: Volume) -> (Tensor, Tensor) {
        let logits = logits.copy().set_requires_grad(true);
        let classes = logits.size()[2];
        let of = |(image, label): (usize, &i64)| {
            let others: Vec<i64> = (0..classes).filter(|class| class != label).collect();
            let p = logits.select(1, image as i64).softmax(-1, Kind::Double);
            let others = p.index_select(1, &Tensor::from_slice(&others));
            let unit = &others / others.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double).sqrt();
            let gram = unit.matmul(&unit.tr());
            match volume {
                Volume::Squared => gram.det(),
                Volume::Log { epsilon } => {
                    let eye = Tensor::eye(gram.size()[0], (Kind::Double, tch::Device::Cpu));
                    (gram + eye * epsilon).logdet()
                }
            }
        };
        let values = Tensor::stack(&labels.iter().enumerate().map(of).collect::<Vec<_>>(), 0);
        let gradient = Tensor::run_backward(&[values.sum(Kind::Double)], &[&logits], false, false).swap_remove(0);
        (values.detach(), gradient)
    }

    #[test]
    fn values_and_gradients_are_those_of_the_definition() {
        tch::manual_seed(3);
        let labels = [4i64, 0, 2, 2];
        for n in [1, 2, 4] {
            let logits = Tensor::randn([n, 4, 5], tch::kind::DOUBLE_CPU) * 1.5;
            for volume in [Volume::Squared, Volume::Log { epsilon: 1e-7 }] {
                let found = diversity(&logits, &Tensor::from_slice(&labels), volume).unwrap();
                let (values, gradient) = by_definition(&logits, &labels, volume);
                near(&(found.values + 1.0), &(values + 1.0));
                if n > 1 {
                    near(&found.by_logits, &gradient);
                }
            }
        }
    }

    /// ```python
    /// import numpy as np
    /// z = np.array([[.3, -1., .5, 2.], [1.2, .4, -.7, 0.]])
    /// p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    /// f = np.delete(p, 1, 1); f /= np.linalg.norm(f, axis=1, keepdims=True)
    /// print(np.linalg.det(f @ f.T))  # 0.7780883232290087
    /// ```
    #[test]
    fn equals_numpy() {
        let logits = Tensor::from_slice(&[0.3, -1.0, 0.5, 2.0, 1.2, 0.4, -0.7, 0.0]).view([2, 1, 4]);
        let found = diversity(&logits, &Tensor::from_slice(&[1i64]), Volume::Squared).unwrap();
        assert!((found.values.double_value(&[0]) - 0.7780883232290087).abs() < 1e-12, "{}", found.values);
    }

    /// Three equal particles span nothing; the gradient is that of the adjugate, 0, and not NaN. Of two equal ones among
    /// certain predictions, too, everything is finite.
    #[test]
    fn equal_and_certain_particles_have_finite_gradients() {
        let one = Tensor::from_slice(&[0.1f32, 80.0, -0.5, 0.4, 0.2]).view([1, 1, 5]);
        let found = diversity(&one.repeat([3, 1, 1]), &Tensor::from_slice(&[1i64]), Volume::Squared).unwrap();
        assert!(found.values.double_value(&[0]).abs() < 1e-12);
        assert!(found.by_logits.abs().max().double_value(&[]) < 1e-12);
        let found =
            diversity(&one.repeat([2, 1, 1]), &Tensor::from_slice(&[1i64]), Volume::Log { epsilon: 1e-7 }).unwrap();
        assert!(bool::try_from(found.by_logits.isfinite().all()).unwrap());
        assert!(
            found.by_logits.select(2, 1).abs().max().double_value(&[]) == 0.0,
            "the label's logit has no part in it"
        );
    }
}
