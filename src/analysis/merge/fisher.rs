//! Squared gradients of single images at labels drawn from the model, which estimate the diagonal of the Fisher matrix
//! (the baseline "SG" of Daheim et al. 2024).

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, stream};
use crate::base::tensor::{ROOM_ELSEWHERE, guarded, host_f64, label_log_probabilities};
use crate::data::batches::{SampleSet, in_order};
use crate::model::Model;
use crate::model::network::Graph;
use crate::subspace::Subspace;

/// Returns Σ_n (∂ log p(y_n | x_n) / ∂θ)² over the images `indices`, with y_n ~ p(· | x_n), for `theta: [1, P]`. Each
/// image is passed through its own copy of the particle, so that one backward pass yields all gradients. Shape `[P]`.
///
/// # Errors
/// Fails if some gradients are not finite.
pub fn squared_gradients(
    model: &Model,
    subspace: &dyn Subspace,
    theta: &Tensor,
    (set, indices): (&SampleSet, &[u32]),
    bar: &ProgressBar,
    seed: u64,
) -> Result<Tensor> {
    use rand::RngExt;
    let layout = subspace.layout();
    let parameters = layout.parameters();
    let mut sum = Tensor::zeros([parameters], (Kind::Double, theta.device()));
    let mut rng = stream(seed, Purpose::Posterior, &[1]);
    let at_once = layout.copies_at_once();
    let graph = Graph::Weights { trained: layout, recompute: false, own_samples: true };
    // The memory of the sum and of the copies.
    let fixed = 8 * parameters as u64 + layout.copies_bytes();
    let chunker = model.plan("squared gradients", graph, (at_once, fixed), ROOM_ELSEWHERE)?;
    for batch in set.batches(in_order(indices, chunker.cut().images)) {
        let batch = batch?;
        let count = batch.labels.size()[0];
        let uniform: Vec<f64> = (0..count).map(|_| rng.random::<f64>()).collect();
        guarded("squared gradients", ROOM_ELSEWHERE, || {
            let images = model.preparation.prepare(&batch.samples.of_particles(count));
            let leaves = layout.leaves(&theta.expand([count, -1], false), model.kind, true);
            let logits = model.logits(&subspace.weights(&model.base, &leaves), &images);
            let labels = drawn(&logits.detach(), &Tensor::from_slice(&uniform));
            let loss = -label_log_probabilities(&logits, &labels, logits.kind()).sum(logits.kind());
            ensure!(loss.requires_grad(), "the loss does not depend on any trainable parameter");
            let rows = Tensor::zeros([count, parameters], (Kind::Float, theta.device()));
            layout.gather(&Tensor::f_run_backward(&[loss], &leaves, false, false)?, &rows);
            sum += rows.square().sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
            Ok(())
        })?;
        bar.inc(count as u64);
    }
    ensure!(host_f64(&sum.sum(Kind::Double))?[0].is_finite(), "squared gradients: some are not finite");
    Ok(sum)
}

/// Draws labels `[k, 1]` from logits `[k, 1, C]`: the first class at which the summed probability exceeds
/// `uniform: [k]`.
fn drawn(logits: &Tensor, uniform: &Tensor) -> Tensor {
    let classes = logits.size()[2];
    let below = logits.softmax(-1, Kind::Double).cumsum(-1, Kind::Double);
    let passed = below.le_tensor(&uniform.to_device(logits.device()).view([-1, 1, 1]));
    passed.sum_dim_intlist([2i64].as_slice(), false, Kind::Int64).clamp_max(classes - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_from_the_model() {
        let logits = Tensor::from_slice(&[0.2f64, 0.5, 0.3]).log().view([1, 1, 3]).expand([5, 1, 3], false);
        let found = drawn(&logits, &Tensor::from_slice(&[0.0, 0.19, 0.21, 0.69, 0.71]));
        assert_eq!(found.view([-1]), Tensor::from_slice(&[0i64, 0, 1, 1, 2]));
    }
}
