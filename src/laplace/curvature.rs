//! The generalised Gauss-Newton matrix H = Σ_n J_nᵀ Λ_n J_n of one particle, Λ = diag(p) − p pᵀ, in three structures.
//!
//! It is exact in the labels: Λ = Σ_k s_k s_kᵀ with C − 1 directions s_k, one backward each, no label is drawn.
//!
//! | structure | here | what is left out |
//! |---|---|---|
//! | `kron` | a map's H ≈ G ⊗ X, X = mean of x xᵀ, G = Σ g gᵀ (Martens & Grosse 2015, arXiv 1503.05671) | between maps; Kronecker |
//! | `diag` | diag(H) | everything off the diagonal |
//! | `full` | H | nothing |
//!
//! Tokens in `kron`: `expand` takes each token as a datum (X: mean over images and tokens, G: sum over both); `reduce` takes
//! an image as one, x its mean over tokens and g its sum (Eschenhagen et al. 2023, arXiv 2311.00636). Sides of at least
//! `wide` are kept at low rank; in the directions left out the curvature is 0, and the posterior there is the prior.

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use super::factor::{Sum, check};
use super::pass::{Map, Maps, Pass, weight_gradient};
use crate::methods::laplace::{Shape, Structure, Tokens};
use crate::posterior::curvature::{Curvature, Factor, Pair};

impl Curvature {
    /// Whether it is about weights of these shapes.
    pub fn fits(&self, maps: &Maps) -> bool {
        match self {
            Curvature::Diag(diagonal) => diagonal.size() == [maps.parameters()],
            Curvature::Full(factor) => factor.size() == maps.parameters(),
            Curvature::Kron(pairs) => {
                let sizes = |pair: &Pair| (pair.input.size(), pair.gradient.size());
                let own: Vec<_> = maps.maps.iter().map(|map| (map.inputs, map.outputs)).collect();
                pairs.iter().map(sizes).collect::<Vec<_>>() == own
            }
        }
    }
}

/// The curvature while images come in.
pub struct Fit<'a> {
    maps: &'a Maps,
    tokens: Tokens,
    sums: Sums,
    /// Images so far.
    images: i64,
    /// Tokens an image, a map.
    lengths: Vec<i64>,
}

enum Sums {
    /// Inputs and gradients, a map.
    Kron(Vec<(Sum, Sum)>),
    Diag(Tensor),
    Full(Tensor),
}

impl Fit<'_> {
    pub fn new(maps: &Maps, shape: Shape, device: Device) -> Fit<'_> {
        let parameters = maps.parameters();
        let options = (Kind::Double, device);
        let side = |size: i64| Sum::new(size, shape.wide, shape.kept, device);
        let sums = match shape.structure {
            Structure::Kron => {
                // All gradients at the logits are kept: a head's variance is computed in the basis of G.
                let gradient = |map: &Map| {
                    if map.role.is_head() { Sum::new(map.outputs, i64::MAX, 0, device) } else { side(map.outputs) }
                };
                Sums::Kron(maps.maps.iter().map(|map| (side(map.inputs), gradient(map))).collect())
            }
            Structure::Diag => Sums::Diag(Tensor::zeros([parameters], options)),
            Structure::Full => Sums::Full(Tensor::zeros([parameters, parameters], options)),
        };
        Fit { maps, tokens: shape.tokens, sums, images: 0, lengths: vec![1; maps.maps.len()] }
    }

    /// Adds the images of a forward.
    pub fn add(&mut self, pass: &Pass) -> Result<()> {
        let logits = pass.logits.detach();
        let (batch, classes) = logits.size2()?;
        self.images += batch;
        if let Sums::Kron(sums) = &mut self.sums {
            for (at, (site, (inputs, _))) in pass.sites.iter().zip(sums).enumerate() {
                self.lengths[at] = site.input.size()[1];
                inputs.add(&data(&site.input, self.tokens, Over::Mean));
            }
        }
        let directions = directions(&logits.softmax(-1, logits.kind()));
        for direction in 0..classes - 1 {
            let gradients = pass.gradients(&directions.select(2, direction))?;
            match &mut self.sums {
                Sums::Kron(sums) => {
                    for ((_, sum), gradient) in sums.iter_mut().zip(&gradients) {
                        sum.add(&data(gradient, self.tokens, Over::Sum));
                    }
                }
                Sums::Diag(sum) => {
                    *sum += rows(pass, &gradients).square().sum_dim_intlist([0i64].as_slice(), false, Kind::Double)
                }
                Sums::Full(sum) => {
                    let rows = rows(pass, &gradients).to_kind(Kind::Double);
                    *sum += rows.tr().matmul(&rows);
                }
            }
        }
        Ok(())
    }

    /// # Errors
    /// No images, or a curvature that is not finite.
    pub fn finish(self) -> Result<Curvature> {
        ensure!(self.images > 0, "laplace: no image to take the curvature of");
        Ok(match self.sums {
            Sums::Kron(sums) => {
                let pair = |((input, gradient), length): ((Sum, Sum), i64)| {
                    let data = match self.tokens {
                        Tokens::Expand => self.images * length,
                        Tokens::Reduce => self.images,
                    };
                    Ok(Pair { input: input.finish(data as f64)?, gradient: gradient.finish(1.0)? })
                };
                Curvature::Kron(sums.into_iter().zip(self.lengths).map(pair).collect::<Result<_>>()?)
            }
            Sums::Diag(sum) => {
                check(&sum)?;
                Curvature::Diag(sum)
            }
            Sums::Full(sum) => Curvature::Full(
                Factor::of(&sum)
                    .with_context(|| format!("laplace: eigenvalues of {} x {0} curvature", self.maps.parameters()))?,
            ),
        })
    }
}

/// S `[B, C, C − 1]` with S Sᵀ = diag(p) − p pᵀ, for `p: [B, C]`: diag(√p) times the last columns of the Householder
/// reflection that takes √p, a unit vector, to an axis; they are orthogonal to √p.
fn directions(p: &Tensor) -> Tensor {
    let classes = p.size()[1];
    let root = p.sqrt();
    // v = √p + e_1: no cancellation, since √p_1 ≥ 0; H = 1 − v vᵀ / v_1, because vᵀv = 2 v_1.
    let first = (root.narrow(1, 0, 1) + 1.0).unsqueeze(2);
    let v = root.copy();
    let _ = v.narrow(1, 0, 1).g_add_scalar_(1.0);
    let rest = v.narrow(1, 1, classes - 1).unsqueeze(1);
    let identity = Tensor::eye(classes, (p.kind(), p.device())).narrow(1, 1, classes - 1);
    (identity - v.unsqueeze(2).matmul(&rest) / first) * root.unsqueeze(2)
}

/// What `reduce` does with an image's tokens.
#[derive(Clone, Copy)]
enum Over {
    Mean,
    Sum,
}

/// Rows `[M, d]` of `[B, T, d]`, a datum each.
fn data(values: &Tensor, tokens: Tokens, over: Over) -> Tensor {
    let dim = [1i64];
    match (tokens, over) {
        (Tokens::Expand, _) => values.reshape([-1, values.size()[2]]),
        (Tokens::Reduce, Over::Mean) => values.mean_dim(dim.as_slice(), false, Kind::Double),
        (Tokens::Reduce, Over::Sum) => values.sum_dim_intlist(dim.as_slice(), false, Kind::Double),
    }
}

/// Gradients of each image with respect to all maps, `[B, P]`.
fn rows(pass: &Pass, gradients: &[Tensor]) -> Tensor {
    let batch = pass.logits.size()[0];
    let row =
        |(site, gradient): (&super::pass::Site, &Tensor)| weight_gradient(&site.input, gradient).reshape([batch, -1]);
    Tensor::cat(&pass.sites.iter().zip(gradients).map(row).collect::<Vec<_>>(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_a_root_of_the_covariance_of_labels() {
        tch::manual_seed(1);
        let logits = Tensor::randn([4, 7], (Kind::Double, Device::Cpu)) * 5.0;
        let p = logits.softmax(-1, Kind::Double);
        let s = directions(&p);
        assert_eq!(s.size(), [4, 7, 6]);
        let lambda = p.diag_embed(0, 1, 2) - p.unsqueeze(2).matmul(&p.unsqueeze(1));
        let difference = (s.matmul(&s.transpose(1, 2)) - lambda).abs().max().double_value(&[]);
        assert!(difference < 1e-15, "{difference}");
    }
}
