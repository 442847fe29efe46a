//! Fine-tuned copies of a checkpoint, compressed to low-rank updates.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use super::incoming::{Adapter, Base};
use super::lora::Lora;
use super::rows::{Tuned, is_own};
use crate::base::tensor::is_zero;
use crate::model::network::SlotKind;
use crate::model::vit::OwnHead;

/// A fine-tuned copy as low-rank updates.
pub struct Compressed {
    pub adapter: Adapter,
    /// The share of the squared difference to the checkpoint that the updates leave out.
    pub lost: f64,
    /// The part of that share that lies in parameters that have no low-rank update, such as norms.
    pub elsewhere: f64,
}

/// Returns the best updates of rank `rank` of all linear layers: the truncated singular value decomposition of the
/// difference to the checkpoint (Eckart & Young 1936), in f64.
///
/// # Errors
/// Fails if the copy equals the checkpoint.
pub fn compress(tuned: Tuned, base: &Base, rank: i64) -> Result<Compressed> {
    let frozen = base.tower.base();
    let difference = |name: &str| -> Option<Tensor> {
        let double = |t: &Tensor| t.to_kind(Kind::Double);
        Some(double(tuned.parameters.get(name)?) - double(frozen.get(name)?))
    };
    // A layer that the checkpoint has no weights for has no difference to them, and comes in whole.
    let new = base.tower.new_layer();
    let is_new =
        |name: &str| new.is_some_and(|layer| name.strip_prefix(layer).is_some_and(|part| part.starts_with('.')));
    let slots = || base.tower.network().slots().into_iter().filter(|slot| slot.kind != SlotKind::Other);
    // An output matrix that is tied to the embeddings is a layer of its own here.
    let tied = slots().map(|slot| format!("{}.weight", slot.name)).filter(|name| frozen.first_name(name) != name);
    let old = frozen.all().iter().map(|(name, _)| name.clone()).filter(|name| !is_new(name));
    let total: f64 = old.chain(tied).filter_map(|name| difference(&name)).map(|delta| square(&delta)).sum();
    let whole = tuned.parameters.all().iter().filter(|(name, _)| is_new(name));
    let whole: BTreeMap<String, Tensor> =
        whole.map(|(name, value)| (name.clone(), value.to_kind(Kind::Float))).collect();
    // A new layer or a classifier may be all that was trained.
    let is_changed = total > 0.0 || !whole.is_empty() || has_new_head(&tuned, base);
    ensure!(is_changed, "it equals the checkpoint: there is no update to import");
    let (mut updates, mut in_layers, mut kept) = (BTreeMap::new(), 0.0, 0.0);
    for slot in slots().filter(|slot| Some(slot.name.as_str()) != new) {
        let delta = difference(&format!("{}.weight", slot.name));
        let delta = delta.with_context(|| format!("the checkpoint has no {}", slot.name))?;
        if is_zero(&delta) {
            continue;
        }
        let best = Best::of(&delta, rank.min(slot.inputs).min(slot.outputs));
        in_layers += best.all;
        kept += best.kept;
        updates.insert(slot.name, best.update);
    }
    if let (true, Some(slot)) = (updates.is_empty(), slots().find(|slot| Some(slot.name.as_str()) != new)) {
        // Adapters update a layer.
        updates.insert(slot.name, Lora::zero(rank.min(slot.inputs).min(slot.outputs), slot.inputs, slot.outputs));
    }
    let head = tuned.head.map(|OwnHead { weight, bias }| [weight, bias]);
    let adapter = Adapter { updates, whole, head, sha256: tuned.sha256 };
    // The sum over layers is rounded otherwise than the one over all parameters.
    let without = |part: f64| if total > 0.0 { (1.0 - part / total).max(0.0) } else { 0.0 };
    Ok(Compressed { adapter, lost: without(kept), elsewhere: without(in_layers) })
}

/// Returns the sum of the squares of all entries.
fn square(t: &Tensor) -> f64 {
    t.square().sum(Kind::Double).double_value(&[])
}

/// Returns whether a copy has another classifier than the checkpoint.
fn has_new_head(tuned: &Tuned, base: &Base) -> bool {
    tuned.head.as_ref().is_some_and(|head| !is_own(head, base))
}

/// The best update of some rank of a layer.
struct Best {
    update: Lora,
    /// The squared difference of the layer, and the part of it that the update keeps.
    all: f64,
    kept: f64,
}

impl Best {
    /// Returns that of a difference D. The singular vectors u_k on the shorter side are the eigenvectors of D Dᵀ (or Dᵀ D), which take far less
    /// time than a singular value decomposition, and s_k v_k = Dᵀ u_k.
    fn of(delta: &Tensor, rank: i64) -> Best {
        let is_wide = delta.size()[0] <= delta.size()[1];
        let side = if is_wide { delta.shallow_clone() } else { delta.tr() };
        let (_, vectors) = side.matmul(&side.tr()).linalg_eigh("L");
        let u = vectors.narrow(1, side.size()[0] - rank, rank).flip([1]);
        let sv = u.tr().matmul(&side);
        let lengths = sv.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double).sqrt();
        let root = lengths.sqrt().clamp_min(f64::MIN_POSITIVE);
        let (left, right) = (&u * root.tr(), &sv / &root);
        let (b, a) = if is_wide { (left, right) } else { (right.tr(), left.tr()) };
        let [a, b] = [a, b].map(|factor| factor.to_kind(Kind::Float).contiguous());
        Best { update: Lora { a, b, scale: 1.0, magnitude: None }, all: square(delta), kept: square(&sv) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch.linalg.svd` has the same squares of singular values.
    #[test]
    fn the_best_update_is_that_of_the_singular_value_decomposition() {
        for shape in [[5, 9], [9, 5], [6, 6]] {
            tch::manual_seed(1);
            let delta = Tensor::randn(shape, (Kind::Double, tch::Device::Cpu));
            let (u, s, v) = delta.svd(true, true);
            for rank in [1, 3, 5] {
                let first = |t: &Tensor| t.narrow(1, 0, rank);
                let expected = (first(&u) * s.narrow(0, 0, rank)).matmul(&first(&v).tr());
                let Best { update, all, kept } = Best::of(&delta, rank);
                let found = update.b.matmul(&update.a).to_kind(Kind::Double);
                assert!(found.allclose(&expected, 1e-5, 1e-6, false), "{shape:?}, rank {rank}");
                assert!((all - square(&s)).abs() < 1e-9 && (kept - square(&s.narrow(0, 0, rank))).abs() < 1e-9);
            }
        }
    }

    /// A rank beyond the difference's own fills up with zeros.
    #[test]
    fn directions_without_a_difference_are_zero() {
        let delta = Tensor::zeros([3, 4], (Kind::Double, tch::Device::Cpu));
        let _ = delta.get(1).fill_(2.0);
        let Best { update, kept, .. } = Best::of(&delta, 2);
        assert!(update.b.matmul(&update.a).allclose(&delta.to_kind(Kind::Float), 1e-6, 1e-6, false));
        assert!((kept - 16.0).abs() < 1e-9);
    }
}
