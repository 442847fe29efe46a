//! The parameters of the members that leave in one graph: shared ones, and those in which members differ.

use std::collections::BTreeMap;

use tch::Tensor;

/// The low-rank updates of a layer of all members.
pub struct Factors {
    /// A of all members, `[n, r, in]`.
    pub a: Tensor,
    /// s B of all members, `[n, out, r]`.
    pub b: Tensor,
}

/// The parameters of all members by their canonical names, f32 on the CPU. A layer of queries, keys and values has one bias for all
/// of them.
pub struct Members {
    pub count: i64,
    /// The parameters in which members differ, `[n, …]`. There are none of one member alone.
    pub own: BTreeMap<String, Tensor>,
    pub factors: BTreeMap<String, Factors>,
    pub shared: BTreeMap<String, Tensor>,
}

impl Members {
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
