//! Operations on a value and its derivatives along S moves of the low-rank updates, all of them in one pass (forward-mode
//! differentiation): J v of S directions v costs a pass of S members, and no backward pass.

use tch::{Device, Kind, Tensor};

use super::eager::{Eager, largest, layer_of, of_keys, of_prompt, recent, repeated};
use super::{Activation, Constant, Layer, Mask, Ops, Pairs, RmsNormed, Scoring};
use crate::base::tensor::wide;
use crate::model::network::{Linear, Weights};

/// A value `[1, B, …]` and its derivatives `[S, B, …]` along the moves; `None` where it does not depend on what moves.
#[derive(Debug)]
pub struct Dual {
    pub value: Tensor,
    pub moved: Option<Tensor>,
}

impl Dual {
    /// Takes a value that nothing moves.
    pub fn fixed(value: Tensor) -> Dual {
        Dual { value, moved: None }
    }

    /// Applies an operation that is linear.
    pub fn linearly(&self, of: impl Fn(&Tensor) -> Tensor) -> Dual {
        Dual { value: of(&self.value), moved: self.moved.as_ref().map(of) }
    }
}

/// Computes a pass of one particle, and its derivatives.
pub struct Tangents<'a, 'w> {
    /// The weights of the particle.
    mode: Eager<'a, 'w>,
    /// The moves: weights of S members whose low-rank updates are the directions.
    moves: Eager<'a, 'w>,
}

impl<'a, 'w> Tangents<'a, 'w> {
    /// Takes the weights of a particle, and moves of its low-rank updates, as updates of S members. Of all other weights, the
    /// network's own stay where they are.
    pub fn new(mode: &'a Weights<'w>, moves: &'a Weights<'w>) -> Tangents<'a, 'w> {
        Tangents { mode: Eager::of(mode), moves: Eager::of(moves) }
    }

    pub fn mode(&self) -> &Weights<'w> {
        self.mode.weights()
    }

    pub fn moves(&self) -> &Weights<'w> {
        self.moves.weights()
    }
}

/// Applies a linear layer of the particle, whose update moves as that of `moves`.
pub fn layer(own: &Linear, moves: &Linear, x: &Dual) -> Dual {
    Dual { value: own.forward(&x.value), moved: own.moved(moves.update(), &x.value, x.moved.as_ref()) }
}

/// Returns the sum of the derivatives that there are, in the shape of `value` with its own first axis.
fn summed<const N: usize>(value: &Tensor, parts: [Option<Tensor>; N]) -> Option<Tensor> {
    let sum = parts.into_iter().flatten().reduce(|a, b| a + b)?;
    let shape = [&sum.size()[..1], &value.size()[1..]].concat();
    Some(sum.expand(&shape, false))
}

/// Returns the derivative `f'(x)` of an elementwise function at `x`, by one backward pass of the particle alone.
fn slope(activation: Activation, x: &Tensor) -> Tensor {
    tch::with_grad(|| {
        let x = x.detach().set_requires_grad(true);
        let sum = activation.apply(&x).sum(wide(x.kind()));
        Tensor::run_backward(&[sum], &[&x], false, false).remove(0)
    })
}

/// Returns the mean over the last axis.
fn mean(x: &Tensor) -> Tensor {
    x.mean_dim([-1i64].as_slice(), true, None::<Kind>)
}

/// The heads of keys or values for each head of queries.
fn for_queries(x: &Dual, heads: i64) -> Dual {
    match heads / x.value.size()[2] {
        1 => x.linearly(Tensor::shallow_clone),
        groups => x.linearly(|x| x.repeat_interleave_self_int(groups, 2, None)),
    }
}

/// Returns the derivatives of `a b` as one product: those of `a` and `a` itself side by side, by `b` above those of `b`.
fn product(a: &Dual, b: &Dual) -> Option<Tensor> {
    match (&a.moved, &b.moved) {
        (None, None) => None,
        (Some(moved), None) => Some(moved.matmul(&b.value)),
        (None, Some(moved)) => Some(a.value.matmul(moved)),
        (Some(left), Some(right)) => {
            let count = left.size()[0];
            let all = |x: &Tensor| repeated(x, count, x.size()[1]);
            let left = Tensor::cat(&[left, &all(&a.value)], -1);
            Some(left.matmul(&Tensor::cat(&[&all(&b.value), right], -2)))
        }
    }
}

/// Returns the scores of attention with what the mask adds to them.
fn masked(scores: Dual, mask: &Mask<Dual>) -> Dual {
    let only = |seen: &Tensor| scores.value.masked_fill(&seen.logical_not(), f64::NEG_INFINITY);
    match mask {
        Mask::None => scores,
        Mask::Causal => {
            let later = scores.value.ones_like().to_kind(Kind::Bool).triu(1);
            Dual { value: scores.value.masked_fill(&later, f64::NEG_INFINITY), ..scores }
        }
        Mask::Window(count) => Dual { value: only(&recent(&scores.value, *count)), ..scores },
        Mask::Prompt(prompt) => Dual { value: only(&of_prompt(&scores.value, &prompt.value)), ..scores },
        Mask::Seen(seen) => without(scores, seen),
        Mask::Scores(added) => plus(scores, added),
        Mask::SeenScores { seen, scores: added } => without(plus(scores, added), seen),
    }
}

/// Returns scores without those of keys that do not exist.
fn without(scores: Dual, seen: &Dual) -> Dual {
    let absent = of_keys(&seen.value).logical_not();
    Dual { value: scores.value.masked_fill(&absent, f64::NEG_INFINITY), ..scores }
}

fn plus(scores: Dual, added: &Dual) -> Dual {
    let value = &scores.value + &added.value;
    let moved = added.moved.as_ref().map(Tensor::shallow_clone);
    Dual { moved: summed(&value, [scores.moved, moved]), value }
}

/// Returns c tanh(x / c), whose derivative is 1 − tanh²(x / c).
pub fn capped(x: Dual, cap: f64) -> Dual {
    let bounded = (x.value / cap).tanh();
    let moved = x.moved.map(|moved| moved * (1.0 - bounded.square()));
    Dual { value: bounded * cap, moved }
}

impl Ops for Tangents<'_, '_> {
    type Value = Dual;

    fn within(&self, part: &'static str) -> Self {
        Tangents { mode: self.mode.within(part), moves: self.moves.within(part) }
    }

    fn again(&self, x: &Dual) -> Dual {
        x.linearly(Tensor::shallow_clone)
    }

    fn length(&self, x: &Dual, axis: usize) -> i64 {
        x.value.size()[axis]
    }

    fn has(&self, name: &str) -> bool {
        self.mode.has(name)
    }

    fn layer(&self, of: Layer, x: &Dual) -> Dual {
        layer(&layer_of(self.mode(), of), &layer_of(self.moves(), of), x)
    }

    /// With x̂ = (x − mean x) / σ, the derivative along ẋ is (ẋ − mean ẋ − x̂ mean(x̂ ẋ)) / σ, times the weight.
    fn norm(&self, layer: &str, x: &Dual, eps: f64) -> Dual {
        let value = self.mode.norm(layer, &x.value, eps);
        let moved = x.moved.as_ref().map(|moved| {
            let width = [moved.size()[3]];
            let (normed, _, inverse) = x.value.native_layer_norm(width, None::<&Tensor>, None::<&Tensor>, eps);
            let scale = self.mode.param(&format!("{layer}.weight")) * inverse.to_kind(normed.kind());
            (moved - mean(moved) - &normed * mean(&(moved * &normed))) * scale
        });
        Dual { value, moved }
    }

    /// With r = (mean x² + ε)^(−½), the derivative along ẋ is r ẋ − r³ x mean(x ẋ), times the weight.
    fn rms_norm(&self, norm: RmsNormed, x: &Dual) -> Dual {
        let RmsNormed { layer, eps, more } = norm;
        let value = self.mode.rms_norm(norm, &x.value);
        let moved = x.moved.as_ref().map(|moved| {
            let kind = moved.kind();
            let (own, moved) = (x.value.to_kind(wide(kind)), moved.to_kind(wide(kind)));
            let inverse = (mean(&own.square()) + eps).rsqrt();
            let normed = own * &inverse;
            let turned = (&moved - &normed * mean(&(&moved * &normed))) * inverse;
            turned.to_kind(kind) * (self.mode.param(&format!("{layer}.weight")) + more)
        });
        Dual { value, moved }
    }

    fn embedding(&self, layer: &str, ids: &Dual) -> Dual {
        Dual::fixed(self.mode.embedding(layer, &ids.value))
    }

    fn param(&self, name: &str) -> Dual {
        Dual::fixed(self.mode.param(name))
    }

    fn picked(&self, names: &[String], rows: &Dual) -> Option<Dual> {
        self.mode.picked(names, &rows.value).map(Dual::fixed)
    }

    fn constant(&self, constant: &Constant, of: &[i64], like: &Dual, make: impl Fn((Kind, Device)) -> Tensor) -> Dual {
        Dual::fixed(self.mode.constant(constant, of, &like.value, make))
    }

    fn add(&self, a: Dual, b: Dual) -> Dual {
        let value = a.value + b.value;
        Dual { moved: summed(&value, [a.moved, b.moved]), value }
    }

    fn mul(&self, a: Dual, b: Dual) -> Dual {
        let value = &a.value * &b.value;
        let parts = [a.moved.map(|moved| moved * &b.value), b.moved.map(|moved| moved * &a.value)];
        Dual { moved: summed(&value, parts), value }
    }

    fn activation(&self, activation: Activation, x: Dual) -> Dual {
        let moved = x.moved.map(|moved| moved * slope(activation, &x.value));
        Dual { value: activation.apply(&x.value), moved }
    }

    fn cast(&self, x: Dual) -> Dual {
        x.linearly(|x| x.to_kind(self.mode().kind()))
    }

    fn normalised(&self, pixels: Dual, mean: [f64; 3], std: [f64; 3]) -> Dual {
        Dual::fixed(self.mode.normalised(pixels.value, mean, std))
    }

    fn slice(&self, x: &Dual, axis: usize, start: i64, length: i64) -> Dual {
        x.linearly(|x| self.mode.slice(x, axis, start, length))
    }

    fn concat(&self, parts: Vec<Dual>, axis: usize) -> Dual {
        let moved = parts.iter().any(|part| part.moved.is_some()).then(|| {
            let (_, samples) = largest(parts.iter().map(|part| &part.value));
            let own = |part: &Dual| part.moved.as_ref().map_or_else(|| part.value.zeros_like(), Tensor::shallow_clone);
            let all: Vec<Tensor> = parts.iter().map(own).collect();
            let (count, _) = largest(all.iter());
            Tensor::cat(&all.iter().map(|part| repeated(part, count, samples)).collect::<Vec<_>>(), axis as i64)
        });
        let values = parts.into_iter().map(|part| part.value).collect();
        Dual { value: self.mode.concat(values, axis), moved }
    }

    fn reshape(&self, x: &Dual, lengths: &[i64]) -> Dual {
        x.linearly(|x| self.mode.reshape(x, lengths))
    }

    fn permute(&self, x: &Dual, axes: &[i64]) -> Dual {
        x.linearly(|x| self.mode.permute(x, axes))
    }

    fn mean(&self, x: &Dual, axis: usize) -> Dual {
        x.linearly(|x| self.mode.mean(x, axis))
    }

    fn heads(&self, x: &Dual, parts: i64, heads: i64) -> Vec<Dual> {
        let values = self.mode.heads(&x.value, parts, heads).into_iter();
        match &x.moved {
            None => values.map(Dual::fixed).collect(),
            Some(moved) => {
                let moved = self.mode.heads(moved, parts, heads);
                values.zip(moved).map(|(value, moved)| Dual { value, moved: Some(moved) }).collect()
            }
        }
    }

    fn rotated(&self, x: &Dual, pairs: Pairs) -> Dual {
        x.linearly(|x| self.mode.rotated(x, pairs))
    }

    /// With weights W = softmax(S), the derivative along Ṡ is W ∘ (Ṡ − Σ W ∘ Ṡ), where the sum is over the keys.
    fn attend(&self, [query, key, value]: [&Dual; 3], mask: Mask<Dual>, scoring: Scoring) -> Dual {
        let heads = query.value.size()[2];
        let (key, value) = (for_queries(key, heads), for_queries(value, heads));
        let scale = scoring.scale.unwrap_or_else(|| (query.value.size()[4] as f64).powf(-0.5));
        let (query, key) = (query.linearly(|q| q * scale), key.linearly(|k| k.transpose(3, 4)));
        let scores = Dual { value: query.value.matmul(&key.value), moved: product(&query, &key) };
        let scores = if let Some(cap) = scoring.cap { capped(scores, cap) } else { scores };
        let scores = masked(scores, &mask);
        let weights = scores.value.softmax(-1, None::<Kind>);
        let moved = scores.moved.map(|moved| {
            let turned = moved * &weights;
            let total = turned.sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>);
            turned - &weights * total
        });
        let weights = Dual { value: weights, moved };
        let read = Dual { value: weights.value.matmul(&value.value), moved: product(&weights, &value) };
        read.linearly(|read| read.transpose(2, 3).flatten(3, 4))
    }

    fn relative(&self, x: &Dual, table: &Dual, index: &Dual) -> Dual {
        let table = table.linearly(|table| table.transpose(3, 4));
        let all = Dual { value: x.value.matmul(&table.value), moved: product(x, &table) };
        all.linearly(|all| {
            let size = all.size();
            let index = index.value.expand([size[0], size[1], size[2], size[3], index.value.size()[1]], false);
            all.gather(4, &index, false)
        })
    }

    fn aligned(&self, text: [&Dual; 2]) -> [Dual; 2] {
        self.mode.aligned(text.map(|row| &row.value)).map(Dual::fixed)
    }

    fn numbered(&self, mask: &Dual, behind: i64) -> Dual {
        Dual::fixed(self.mode.numbered(&mask.value, behind))
    }

    fn column(&self, mask: &Dual, like: &Dual) -> Dual {
        Dual::fixed(self.mode.column(&mask.value, &like.value))
    }

    fn latest(&self, mask: &Dual, count: i64) -> Dual {
        Dual::fixed(self.mode.latest(&mask.value, count))
    }

    fn last(&self, mask: &Dual) -> Dual {
        Dual::fixed(self.mode.last(&mask.value))
    }

    fn at(&self, x: &Dual, positions: &Dual) -> Dual {
        x.linearly(|x| self.mode.at(x, &positions.value))
    }

    fn rows_at(&self, table: &Dual, positions: &Dual) -> Dual {
        Dual::fixed(self.mode.rows_at(&table.value, &positions.value))
    }

    fn filled(&self, words: Dual, patches: Dual, [ids, mask]: &[Dual; 2], id: i64) -> Dual {
        let text = [&ids.value, &mask.value].map(Tensor::shallow_clone);
        let moved = match (&words.moved, patches.moved) {
            (None, None) => None,
            (words_moved, patches_moved) => {
                let zeros = |moved: Option<Tensor>, of: &Tensor| moved.unwrap_or_else(|| of.zeros_like());
                let own = words_moved.as_ref().map(Tensor::shallow_clone);
                Some(self.mode.filled(zeros(own, &words.value), zeros(patches_moved, &patches.value), &text, id))
            }
        };
        Dual { value: self.mode.filled(words.value, patches.value, &text, id), moved }
    }
}
