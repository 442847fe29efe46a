//! The labels over which the curvature is an expectation: Λ = E (p − e_y)(p − e_y)ᵀ over y ~ p, exactly or by draws; and those of
//! numbers, of which Λ is known.

use tch::{Kind, Tensor};

use crate::base::random::{Purpose, stream, uniform};

/// The labels of one particle's curvature.
#[derive(Debug)]
pub enum Labels {
    /// All of them, so that the expectation is exact.
    All,
    /// So many labels for each image, drawn from the predictions at the mode (Kunstner et al. 2019, arXiv 1905.12558, section 2.2).
    /// A draw is a pure function of (seed, particle, image), so it does not depend on how images are batched.
    Drawn { draws: i64, seed: u64, particle: i64 },
    /// Given labels `[N, M]` of all images, for comparison with other code.
    Given(Tensor),
    /// Numbers with a Gaussian noise of this standard deviation on the scale of the one output: Λ = 1 / σ².
    Numbers(f64),
}

impl Labels {
    /// Returns the directions S `[B, C, M]` for outputs `[B, C]`, of which the first is that of image `first`. The sum of S Sᵀ is Λ. For
    /// logits, Λ = diag(p) − p pᵀ with M = C − 1, or the expectation of S Sᵀ with M draws is Λ.
    pub fn directions(&self, outputs: &Tensor, first: i64) -> Tensor {
        match self {
            Labels::Numbers(deviation) => outputs.full_like(1.0 / deviation).unsqueeze(2),
            _ => self.directions_of_classes(&outputs.softmax(-1, outputs.kind()), first),
        }
    }

    fn directions_of_classes(&self, p: &Tensor, first: i64) -> Tensor {
        let Some(labels) = self.drawn(p, first) else { return root(p) };
        let one_hot = labels.one_hot(p.size()[1]).to_kind(p.kind()).transpose(1, 2);
        (p.unsqueeze(2) - one_hot) / (labels.size()[1] as f64).sqrt()
    }

    /// Returns the labels `[B, M]` that are drawn for probabilities `p: [B, C]`: the first class at which their sum exceeds a
    /// uniform number; `None` where all labels count.
    pub fn drawn(&self, p: &Tensor, first: i64) -> Option<Tensor> {
        let (draws, seed, particle) = match self {
            Labels::All | Labels::Numbers(_) => return None,
            Labels::Drawn { draws, seed, particle } => (*draws, *seed, *particle),
            Labels::Given(labels) => return Some(labels.narrow(0, first, p.size()[0])),
        };
        let numbers = |image: i64| {
            let mut rng = stream(seed, Purpose::Labels, &[particle as u64, image as u64]);
            (0..draws).map(move |_| uniform(&mut rng))
        };
        let numbers: Vec<f64> = (first..first + p.size()[0]).flat_map(numbers).collect();
        let sums = p.cumsum(1, Kind::Double);
        let numbers = Tensor::from_slice(&numbers).view([-1, draws]).to_device(p.device());
        // Rounding may leave the sum of all somewhat below or above 1, so that numbers are taken as shares of it.
        let shares = numbers * sums.narrow(1, -1, 1);
        let labels = shares.searchsorted(&sums, false, true, "right", None::<&Tensor>);
        Some(labels.clamp_max(p.size()[1] - 1))
    }
}

/// Returns S `[B, C, C − 1]` with S Sᵀ = diag(p) − p pᵀ, for `p: [B, C]`. S is diag(√p) times the last columns of the
/// Householder reflection that takes the unit vector √p to an axis; these columns are orthogonal to √p.
fn root(p: &Tensor) -> Tensor {
    let classes = p.size()[1];
    let root = p.sqrt();
    // v = √p + e_1 has no cancellation, since √p_1 ≥ 0. The reflection is H = 1 − v vᵀ / v_1, because vᵀv = 2 v_1.
    let first = (root.narrow(1, 0, 1) + 1.0).unsqueeze(2);
    let v = root.copy();
    let _ = v.narrow(1, 0, 1).g_add_scalar_(1.0);
    let rest = v.narrow(1, 1, classes - 1).unsqueeze(1);
    let identity = Tensor::eye(classes, (p.kind(), p.device())).narrow(1, 1, classes - 1);
    (identity - v.unsqueeze(2).matmul(&rest) / first) * root.unsqueeze(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    fn probabilities(images: i64) -> Tensor {
        tch::manual_seed(1);
        (Tensor::randn([images, 7], (Kind::Double, Device::Cpu)) * 2.0).softmax(-1, Kind::Double)
    }

    fn covariance(p: &Tensor) -> Tensor {
        p.diag_embed(0, 1, 2) - p.unsqueeze(2).matmul(&p.unsqueeze(1))
    }

    #[test]
    fn directions_are_a_root_of_the_covariance_of_labels() {
        let p = probabilities(4);
        let s = Labels::All.directions_of_classes(&p, 0);
        assert_eq!(s.size(), [4, 7, 6]);
        let difference = (s.matmul(&s.transpose(1, 2)) - covariance(&p)).abs().max().double_value(&[]);
        assert!(difference < 1e-15, "{difference}");
    }

    /// The entry (i, j) of one draw is x = (p − e_y)_i (p − e_y)_j, so that the mean of k draws has the variance (E x² − (E x)²) / k,
    /// which a sum over all labels gives exactly.
    #[test]
    fn drawn_labels_have_this_expectation() {
        let (p, draws) = (probabilities(3), 40_000);
        let s = Labels::Drawn { draws, seed: 2, particle: 0 }.directions_of_classes(&p, 0);
        let found = s.matmul(&s.transpose(1, 2));
        let apart = p.unsqueeze(1) - Tensor::eye(7, (Kind::Double, Device::Cpu));
        let products = apart.unsqueeze(3) * apart.unsqueeze(2);
        let weighted = |x: &Tensor| (x * p.view([3, 7, 1, 1])).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        let mean = weighted(&products);
        assert!((&mean - covariance(&p)).abs().max().double_value(&[]) < 1e-15);
        let deviation = ((weighted(&products.square()) - mean.square()) / draws as f64).clamp_min(0.0).sqrt();
        let off = ((found - mean).abs() / (deviation + 1e-12)).max().double_value(&[]);
        assert!(off < 4.5, "{off} standard deviations");
    }

    #[test]
    fn draws_do_not_depend_on_batches() {
        let p = probabilities(9);
        let labels = Labels::Drawn { draws: 5, seed: 2, particle: 1 };
        let whole = labels.drawn(&p, 0).unwrap();
        assert_eq!(whole.size(), [9, 5]);
        let parts = [(0, 4), (4, 5)].map(|(start, count)| labels.drawn(&p.narrow(0, start, count), start).unwrap());
        assert!(whole.equal(&Tensor::cat(&parts, 0)));
        assert!(!whole.equal(&Labels::Drawn { draws: 5, seed: 3, particle: 1 }.drawn(&p, 0).unwrap()), "another seed");
        assert!(
            !whole.equal(&Labels::Drawn { draws: 5, seed: 2, particle: 0 }.drawn(&p, 0).unwrap()),
            "another particle"
        );
        let certain = Tensor::from_slice(&[0.0, 1.0, 0.0]).view([1, 3]);
        assert_eq!(
            labels.drawn(&certain, 0).unwrap().eq(1).all().int64_value(&[]),
            1,
            "a class of probability 0 is never drawn"
        );
    }
}
