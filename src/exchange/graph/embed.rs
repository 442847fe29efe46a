//! The start of a forward pass: pixels or bytes become the tokens that the first block reads.

use tch::{Kind, Tensor};

use super::pass::Pass;
use super::values::{IMAGES, Operation, Value};
use crate::data::Interpolation;
use crate::model::Normalize;

/// The way from stored bytes to prepared images.
#[derive(Clone, Copy)]
pub struct Preparing {
    pub normalize: Normalize,
    pub interpolation: Interpolation,
}

/// The tokens that may stand in front of the patches, in their order.
const TOKENS: [&str; 3] = ["class_token", "distillation_token", "registers"];

impl Pass<'_> {
    /// Returns prepared images of bytes, as [`Preprocess::images`](crate::model::Preprocess::images) makes them.
    pub(super) fn prepare(&mut self, bytes: &Value, Preparing { normalize, interpolation }: Preparing) -> Value {
        self.graph().enter("preprocessing");
        let size = self.vit.geometry.image_size();
        let channels = |values: [f64; 3]| move || Tensor::from_slice(&values).to_kind(Kind::Float).view([1, 3, 1, 1]);
        let most = self.layers.stored("preprocessing.most", || Tensor::from_slice(&[255f32]));
        let mean = self.layers.stored("preprocessing.mean", channels(normalize.mean));
        let std = self.layers.stored("preprocessing.std", channels(normalize.std));
        let x = self.graph().keep(Operation::Cast(Kind::Float), &[bytes]);
        let x = self.graph().pair(Operation::Divide, &x, &most);
        let x = self.graph().resize(&x, size, interpolation);
        let x = self.graph().keep(Operation::Clamp { most: Some(1.0) }, &[&x]);
        let x = self.graph().pair(Operation::Subtract, &x, &mean);
        self.graph().pair(Operation::Divide, &x, &std)
    }

    /// Returns patches with positions and the tokens in front of them, `[p, B, T, d]`.
    pub(super) fn embed(&mut self, pixels: &Value) -> Value {
        let (grid, patch) = (self.vit.geometry.grid, self.vit.geometry.patch);
        self.graph().enter("patch");
        let x = self.graph().reshape(pixels, &[IMAGES, 3, grid, patch, grid, patch]);
        let x = self.graph().permute(&x, &[0, 2, 4, 1, 3, 5]);
        let x = self.graph().reshape(&x, &[1, IMAGES, grid * grid, 3 * patch * patch]);
        let x = self.layers.linear("patch", &x);
        self.graph().enter("embeddings");
        let members = self.layers.members;
        let differ = members.differ(&TOKENS) || members.differ(&["position"]);
        let x = if differ { self.graph().expand(&x, members.count) } else { x };
        let x = self.placed(&x);
        if self.has("ln_pre.weight") { self.norm("ln_pre", &x) } else { x }
    }

    /// Adds tokens and positions to patches `[p, B, grid², d]`.
    fn placed(&mut self, patches: &Value) -> Value {
        let parts = self.vit.parts;
        let (lead, rest) = TOKENS.split_at(match parts.positioned {
            0 => 0,
            all if all == parts.prefix => TOKENS.len(),
            _ => 2,
        });
        let mut x = self.in_front(lead, patches);
        if self.has("position") {
            let position = self.layers.param("position", 1);
            x = self.graph().plus(&x, &position);
        }
        if !rest.iter().any(|name| self.has(name)) {
            return x;
        }
        let first = parts.positioned;
        let patches = self.graph().slice(&x, 2, (first, x.shape[2]));
        let behind = self.in_front(rest, &patches);
        if first == 0 {
            return behind;
        }
        let front = self.graph().slice(&x, 2, (0, first));
        self.graph().concat(&[&front, &behind], 2)
    }

    /// Puts the tokens that exist in front of `x`.
    fn in_front(&mut self, names: &[&str], x: &Value) -> Value {
        let mut parts = Vec::new();
        for name in names.iter().filter(|name| self.layers.members.has(name)) {
            let axes = if self.layers.members.shared[*name].dim() == 1 { 2 } else { 1 };
            let token = self.layers.param(name, axes);
            parts.push(self.graph().expand(&token, x.shape[0]));
        }
        if parts.is_empty() {
            return x.clone();
        }
        let all: Vec<&Value> = parts.iter().chain([x]).collect();
        self.graph().concat(&all, 2)
    }
}
