//! The parameters of the members that leave in one file: shared ones, and those in which members differ.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use crate::exchange::lora::{Lora, updates};
use crate::exchange::outgoing::Outgoing;

/// The low-rank updates of a layer of all members.
pub struct Factors {
    /// A of all members, `[n, r, in]`.
    pub a: Tensor,
    /// s B of all members, `[n, out, r]`.
    pub b: Tensor,
}

/// The parameters of all members by their canonical names, f32 on the CPU.
pub struct Members {
    pub count: i64,
    /// The weights of the members in averages, times their number; `None` if all weigh the same.
    pub weights: Option<Tensor>,
    /// The parameters in which members differ, `[n, …]`. There are none of one member alone.
    pub own: BTreeMap<String, Tensor>,
    pub factors: BTreeMap<String, Factors>,
    pub shared: BTreeMap<String, Tensor>,
    /// Whether features are L2-normalised before the head.
    pub normalised: bool,
}

impl Members {
    pub fn of(outgoing: &Outgoing) -> Members {
        let host = |tensor: &Tensor| tensor.detach().to_device(Device::Cpu).to_kind(Kind::Float);
        let (base, head) = (&outgoing.session.model.base, &outgoing.session.model.head);
        let mut shared: BTreeMap<String, Tensor> =
            base.all().iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect();
        shared.insert("head.weight".into(), host(&head.weight));
        shared.insert("head.bias".into(), host(&head.bias));
        let (mut own, mut factors) = (BTreeMap::new(), BTreeMap::new());
        if outgoing.count() == 1 {
            let new = |name: &String| Some((name.clone(), outgoing.value(0, name)?));
            let changed: Vec<_> = shared.keys().filter_map(new).collect();
            shared.extend(changed);
        } else {
            own = differing(outgoing, &shared);
            factors = low_rank(outgoing);
        }
        with_key_bias(&mut shared, 0);
        with_key_bias(&mut own, 1);
        let count = outgoing.count() as f64;
        let weights = outgoing.weights.as_ref().map(|weights| Tensor::from_slice(weights).to_kind(Kind::Float) * count);
        Members { count: outgoing.count() as i64, weights, own, factors, shared, normalised: head.normalised }
    }

    pub fn has(&self, name: &str) -> bool {
        self.shared.contains_key(name)
    }

    /// Returns a parameter with a leading axis of members, 1 or n.
    pub fn led(&self, name: &str) -> Tensor {
        self.own.get(name).map_or_else(|| self.shared[name].unsqueeze(0), Tensor::shallow_clone)
    }

    /// Returns whether members differ in one of these parameters.
    pub fn differ(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.own.contains_key(*name))
    }
}

/// Returns the parameters that every member has its own values of, whole.
fn differing(outgoing: &Outgoing, shared: &BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let stacked = |name: &String| {
        let values: Option<Vec<Tensor>> = (0..outgoing.count()).map(|model| outgoing.own(model, name)).collect();
        Some((name.clone(), Tensor::stack(&values?, 0)))
    };
    shared.keys().filter_map(stacked).collect()
}

fn low_rank(outgoing: &Outgoing) -> BTreeMap<String, Factors> {
    let layout = outgoing.subspace.layout();
    let rows: Vec<Vec<(String, Lora)>> =
        (0..outgoing.count()).map(|model| updates(layout, &outgoing.row(model).squeeze_dim(0))).collect();
    let stacked = |index: usize| {
        let of =
            |one: fn(&Lora) -> Tensor| Tensor::stack(&rows.iter().map(|row| one(&row[index].1)).collect::<Vec<_>>(), 0);
        Factors { a: of(|lora| lora.a.shallow_clone()), b: of(|lora| &lora.b * lora.scale) }
    };
    let layers = rows.first().into_iter().flatten().enumerate();
    layers.map(|(index, (layer, _))| (layer.clone(), stacked(index))).collect()
}

/// Gives keys a bias of 0 where queries and values have biases and keys none; the biases lie along `axis`.
fn with_key_bias(parameters: &mut BTreeMap<String, Tensor>, axis: i64) {
    let keyless: Vec<String> = parameters.keys().filter(|name| name.ends_with(".qkv.keyless_bias")).cloned().collect();
    for name in keyless {
        if let Some(both) = parameters.remove(&name) {
            let parts = both.chunk(2, axis);
            let three = Tensor::cat(&[&parts[0], &parts[0].zeros_like(), &parts[1]], axis);
            parameters.insert(name.replace("keyless_bias", "bias"), three);
        }
    }
}
