//! Operations that libtorch computes at once. Values are tensors.

use tch::{Device, Kind, Tensor};

use super::{Activation, Constant, Layer, Mask, Ops, Pairs, RmsNormed, Scoring};
use crate::base::tensor::{upload, wide};
use crate::machine::fused;
use crate::model::network::{Linear, Weights};

/// Computes a pass with some weights.
pub struct Eager<'a, 'w> {
    weights: Read<'a, 'w>,
}

/// The weights of a network, or those of a part of it.
enum Read<'a, 'w> {
    Whole(&'a Weights<'w>),
    Part(Box<Weights<'w>>),
}

impl<'a, 'w> Eager<'a, 'w> {
    pub fn of(weights: &'a Weights<'w>) -> Eager<'a, 'w> {
        Eager { weights: Read::Whole(weights) }
    }

    pub(super) fn weights(&self) -> &Weights<'w> {
        match &self.weights {
            Read::Whole(weights) => weights,
            Read::Part(weights) => weights,
        }
    }
}

/// Repeats a value of one particle, or of one sample, for those of more.
pub(super) fn repeated(x: &Tensor, particles: i64, samples: i64) -> Tensor {
    let size = x.size();
    if size[0] == particles && size[1] == samples {
        return x.shallow_clone();
    }
    let lengths: Vec<i64> = [particles, samples].into_iter().chain(size[2..].iter().map(|_| -1)).collect();
    x.expand(&lengths, false)
}

/// Returns the largest numbers of particles and of samples.
pub(super) fn largest<'t>(all: impl Iterator<Item = &'t Tensor>) -> (i64, i64) {
    all.map(Tensor::size).fold((1, 1), |(p, b), size| (p.max(size[0]), b.max(size[1])))
}

/// Returns a linear layer, or some of its rows.
pub(super) fn layer_of(weights: &Weights, Layer { name, rows, keyless_bias }: Layer) -> Linear {
    let layer = if keyless_bias { weights.linear_without_key_bias(name) } else { weights.linear(name) };
    match rows {
        Some((start, length)) => layer.rows(start, length),
        None => layer,
    }
}

/// Returns a mask `[p, B, T, 1]` as one of keys, `[p, B, 1, 1, T]`: whether there is a token.
pub(super) fn of_keys(mask: &Tensor) -> Tensor {
    mask.to_kind(Kind::Bool).unsqueeze(2).transpose(3, 4)
}

/// Returns whether a query of `query: [p, B, heads, T, D]` reads a key, `[T, T]`: so many up to its own.
pub(super) fn recent(query: &Tensor, count: i64) -> Tensor {
    let tokens = query.size()[3];
    Tensor::ones([tokens, tokens], (Kind::Bool, query.device())).tril(0).triu(1 - count)
}

/// Returns whether a query of `query: [p, B, heads, T, D]` reads a key, `[p, B, 1, T, T]`: those up to its own, and those of a prompt,
/// `[p, B, T, 1]`.
pub(super) fn of_prompt(query: &Tensor, prompt: &Tensor) -> Tensor {
    of_keys(prompt).logical_or(&recent(query, query.size()[3]))
}

/// Returns what queries `[B, heads, T, D]` read, of which `mask` allows some (truth values) or changes all (numbers), by single
/// operations: scores may be bounded, and gradients be differentiated again, neither of which libtorch's one operation allows.
fn composed([query, key, value]: [Tensor; 3], mask: Option<&Tensor>, scoring: Scoring) -> Tensor {
    let (kind, groups) = (query.kind(), query.size()[1] / key.size()[1]);
    let shared = |x: Tensor| if groups == 1 { x } else { x.repeat_interleave_self_int(groups, 1, None) };
    let scale = scoring.scale.unwrap_or_else(|| (query.size()[3] as f64).powf(-0.5));
    let scores = query.matmul(&shared(key).transpose(2, 3)) * scale;
    let scores = match scoring.cap {
        Some(cap) => crate::base::tensor::capped(&scores, cap),
        None => scores,
    };
    let scores = match mask {
        None => scores,
        Some(mask) if mask.kind() == Kind::Bool => scores.masked_fill(&mask.logical_not(), f64::NEG_INFINITY),
        Some(mask) => scores + mask,
    };
    scores.softmax(-1, wide(kind)).to_kind(kind).matmul(&shared(value))
}

/// Returns what [`composed`] does by one operation of libtorch, in the shape of the query. With `causal`, which stands in place of a mask,
/// tokens look back.
fn at_once([query, key, value]: [Tensor; 3], mask: Option<&Tensor>, causal: bool, scale: Option<f64>) -> Tensor {
    let (all, groups) = (query.size(), query.size()[1] / key.size()[1]);
    // The heads of one token that share their keys read them as so many tokens do: libtorch would copy keys and values for each head.
    let is_of_all_heads = mask.is_none_or(|mask| matches!(mask.size()[..], [_, 1, 1, _]));
    if groups > 1 && all[2] == 1 && !causal && is_of_all_heads {
        let query = query.reshape([all[0], all[1] / groups, groups, all[3]]);
        return Tensor::scaled_dot_product_attention(&query, &key, &value, mask, 0.0, false, scale, false)
            .reshape(&all);
    }
    Tensor::scaled_dot_product_attention(&query, &key, &value, mask, 0.0, causal, scale, groups > 1)
}

impl Ops for Eager<'_, '_> {
    type Value = Tensor;

    fn within(&self, part: &'static str) -> Self {
        Eager { weights: Read::Part(Box::new(self.weights().within(part))) }
    }

    fn again(&self, x: &Tensor) -> Tensor {
        x.shallow_clone()
    }

    fn length(&self, x: &Tensor, axis: usize) -> i64 {
        x.size()[axis]
    }

    fn has(&self, name: &str) -> bool {
        self.weights().has(name)
    }

    fn layer(&self, layer: Layer, x: &Tensor) -> Tensor {
        layer_of(self.weights(), layer).forward(x)
    }

    fn linear_from(&self, name: &str, x: &Tensor, frozen: Option<&Tensor>) -> Tensor {
        let weights = self.weights();
        weights.linear(name).forward_from(x, frozen.filter(|_| weights.keeps(name)))
    }

    fn linear_behind(&self, name: &str, activation: Activation, x: Tensor) -> Tensor {
        let layer = self.weights().linear(name);
        let fused = activation.curve().and_then(|curve| layer.forward_behind(curve, &x));
        fused.unwrap_or_else(|| layer.forward(&activation.apply(&x)))
    }

    fn norm(&self, layer: &str, x: &Tensor, eps: f64) -> Tensor {
        self.weights().norm(layer).forward(x, eps)
    }

    fn rms_norm(&self, RmsNormed { layer, eps, more }: RmsNormed, x: &Tensor) -> Tensor {
        self.weights().rms_norm(layer, more).forward(x, eps)
    }

    fn embedding(&self, layer: &str, ids: &Tensor) -> Tensor {
        let table = self.weights().param(&format!("{layer}.weight"));
        let offsets = Tensor::arange(table.size()[0], (Kind::Int64, ids.device())).view([-1, 1, 1]);
        let ids = ids + offsets * table.size()[1];
        Tensor::embedding(&table.flatten(0, 1), &ids, -1, false, false)
    }

    fn param(&self, name: &str) -> Tensor {
        let value = self.weights().param(name);
        (value.dim()..4).fold(value, |value, _| value.unsqueeze(1))
    }

    fn picked(&self, names: &[String], rows: &Tensor) -> Option<Tensor> {
        let weights = self.weights();
        let tables = names.iter().filter(|name| weights.has(name)).map(|name| weights.param(name));
        Some(tables.reduce(|all, own| all + own)?.index_select(1, rows).unsqueeze(1))
    }

    fn constant(
        &self,
        constant: &Constant,
        of: &[i64],
        like: &Tensor,
        make: impl Fn((Kind, Device)) -> Tensor,
    ) -> Tensor {
        constant.get(of, (like.kind(), like.device()), make)
    }

    fn add(&self, a: Tensor, b: Tensor) -> Tensor {
        a + b
    }

    fn mul(&self, a: Tensor, b: Tensor) -> Tensor {
        a * b
    }

    fn activation(&self, activation: Activation, x: Tensor) -> Tensor {
        activation.apply(&x)
    }

    fn cast(&self, x: Tensor) -> Tensor {
        x.to_kind(self.weights().kind())
    }

    fn normalised(&self, pixels: Tensor, mean: [f64; 3], std: [f64; 3]) -> Tensor {
        let device = pixels.device();
        let of =
            |three: [f64; 3]| upload(&Tensor::from_slice(&three).to_kind(Kind::Float).view([1, 1, 3, 1, 1]), device);
        (pixels / 255.0 - of(mean)) / of(std)
    }

    fn slice(&self, x: &Tensor, axis: usize, start: i64, length: i64) -> Tensor {
        x.narrow(axis as i64, start, length)
    }

    fn concat(&self, parts: Vec<Tensor>, axis: usize) -> Tensor {
        let (particles, samples) = largest(parts.iter());
        let all: Vec<Tensor> = parts.iter().map(|part| repeated(part, particles, samples)).collect();
        Tensor::cat(&all, axis as i64)
    }

    fn reshape(&self, x: &Tensor, lengths: &[i64]) -> Tensor {
        let size = x.size();
        x.reshape([&size[..2], lengths].concat())
    }

    fn permute(&self, x: &Tensor, axes: &[i64]) -> Tensor {
        x.permute(axes)
    }

    fn mean(&self, x: &Tensor, axis: usize) -> Tensor {
        x.mean_dim([axis as i64].as_slice(), true, None::<Kind>)
    }

    fn heads(&self, x: &Tensor, parts: i64, heads: i64) -> Vec<Tensor> {
        let size = x.size();
        let channels = size[3] / (parts * heads);
        if parts == 1 {
            return vec![x.unflatten(3, [heads, channels].as_slice()).transpose(2, 3)];
        }
        let x = x.reshape([size[0], size[1], size[2], parts, heads, channels]);
        x.permute([3, 0, 1, 4, 2, 5]).unbind(0)
    }

    fn rotated(&self, x: &Tensor, pairs: Pairs) -> Tensor {
        match pairs {
            Pairs::Halves => {
                let halves = x.chunk(2, -1);
                Tensor::cat(&[&-&halves[1], &halves[0]], -1)
            }
            Pairs::Neighbours => {
                let pairs = x.unflatten(-1, [-1, 2].as_slice()).unbind(-1);
                Tensor::stack(&[&-&pairs[1], &pairs[0]], -1).flatten(-2, -1)
            }
        }
    }

    fn attend(&self, [query, key, value]: [&Tensor; 3], mask: Mask<Tensor>, scoring: Scoring) -> Tensor {
        let (particles, samples) = match &mask {
            Mask::Scores(scores) | Mask::SeenScores { scores, .. } => largest([query, key, value, scores].into_iter()),
            _ => largest([query, key, value].into_iter()),
        };
        let flat = |x: &Tensor| repeated(x, particles, samples).flatten(0, 1);
        let causal = matches!(mask, Mask::Causal);
        let mask = match mask {
            Mask::None | Mask::Causal => None,
            Mask::Window(count) => Some(recent(query, count)),
            Mask::Prompt(prompt) => Some(flat(&of_prompt(query, &prompt))),
            // Scores that all particles share spread over images by themselves.
            Mask::Scores(scores) if scores.size()[0] == 1 => Some(scores.squeeze_dim(0)),
            Mask::Scores(scores) => Some(flat(&scores)),
            Mask::Seen(mask) => Some(flat(&of_keys(&mask))),
            Mask::SeenScores { seen, scores } => {
                Some(flat(&scores.where_scalarother(&of_keys(&seen), f64::NEG_INFINITY)))
            }
        };
        let heads = [flat(query), flat(key), flat(value)];
        let read = match scoring.cap.is_some() || self.weights().are_differentiated_twice() {
            true => {
                let mask = if causal { Some(recent(query, query.size()[3])) } else { mask };
                composed(heads, mask.as_ref(), scoring)
            }
            false => at_once(heads, mask.as_ref(), causal, scoring.scale),
        };
        let size = read.size();
        read.transpose(1, 2).reshape([particles, samples, size[2], size[1] * size[3]])
    }

    fn self_attention(&self, qkv: &Tensor, heads: i64) -> Tensor {
        let size = qkv.size();
        match fused::attention(&qkv.flatten(0, 1), heads) {
            Some(read) => read.view([size[0], size[1], size[2], size[3] / 3]),
            None => {
                let parts = self.heads(qkv, 3, heads);
                self.attention([&parts[0], &parts[1], &parts[2]], Mask::None)
            }
        }
    }

    fn relative(&self, x: &Tensor, table: &Tensor, index: &Tensor) -> Tensor {
        let all = x.matmul(&table.transpose(3, 4));
        let size = all.size();
        let index = index.expand([size[0], size[1], size[2], size[3], index.size()[1]], false);
        all.gather(4, &index, false)
    }

    fn aligned(&self, text: [&Tensor; 2]) -> [Tensor; 2] {
        let [ids, mask] = text.map(|row| row.to_kind(Kind::Int64));
        let length = mask.size()[2];
        let before = mask.cumsum(2, Kind::Int64).eq(0).sum_dim_intlist([2i64].as_slice(), true, Kind::Int64);
        let index = (Tensor::arange(length, (Kind::Int64, mask.device())) + before).remainder(length);
        [ids.gather(2, &index, false), mask.gather(2, &index, false)]
    }

    fn numbered(&self, mask: &Tensor, behind: i64) -> Tensor {
        mask.cumsum(2, Kind::Int64) * mask + behind
    }

    fn column(&self, mask: &Tensor, like: &Tensor) -> Tensor {
        mask.unsqueeze(3).to_kind(like.kind())
    }

    fn latest(&self, mask: &Tensor, count: i64) -> Tensor {
        let seen = mask.to_kind(Kind::Int64);
        let all = seen.sum_dim_intlist([2i64].as_slice(), true, Kind::Int64);
        mask * (all - seen.cumsum(2, Kind::Int64)).lt(count)
    }

    fn last(&self, mask: &Tensor) -> Tensor {
        mask.sum_dim_intlist([2i64, 3].as_slice(), false, Kind::Int64) - 1
    }

    fn at(&self, x: &Tensor, positions: &Tensor) -> Tensor {
        let size = x.size();
        let index = positions.unsqueeze(2).unsqueeze(3).expand([size[0], size[1], 1, size[3]], false);
        x.gather(2, &index, false)
    }

    fn rows_at(&self, table: &Tensor, positions: &Tensor) -> Tensor {
        let size = positions.size();
        table.index_select(0, &positions.reshape([-1])).view([size[0], size[1], 1, 1, -1])
    }

    fn filled(&self, words: Tensor, patches: Tensor, [ids, mask]: &[Tensor; 2], id: i64) -> Tensor {
        let (last, width) = (patches.size()[2] - 1, patches.size()[3]);
        let here = ids.eq(id).logical_and(&mask.to_kind(Kind::Bool));
        let number = (here.cumsum(2, Kind::Int64) - 1).clamp(0, last).unsqueeze(3);
        let index = number.expand([patches.size()[0], -1, -1, width], false);
        patches.gather(2, &index, false).where_self(&here.unsqueeze(3), &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_reads_what_single_ones_do_also_with_keys_that_heads_share() {
        tch::manual_seed(1);
        let draw = |shape: [i64; 4]| Tensor::randn(shape, (Kind::Double, Device::Cpu));
        for (tokens, mask) in
            [(1, [3, 1, 1, 7]), (1, [3, 6, 1, 7]), (1, [1, 1, 1, 7]), (4, [3, 1, 1, 7]), (4, [3, 1, 4, 7])]
        {
            let heads = || {
                tch::manual_seed(2);
                [draw([3, 6, tokens, 5]), draw([3, 2, 7, 5]), draw([3, 2, 7, 5])]
            };
            let seen =
                draw(mask).ge(-0.7).logical_or(&Tensor::from_slice(&[0i64, 0, 0, 0, 0, 0, 1]).to_kind(Kind::Bool));
            for mask in [None, Some(&seen), Some(&draw(mask))] {
                let scoring = Scoring { scale: Some(0.3), cap: None };
                let apart = at_once(heads(), mask, false, Some(0.3)) - composed(heads(), mask, scoring);
                assert!(apart.abs().max().double_value(&[]) < 1e-12, "{tokens} tokens, {mask:?}");
            }
        }
    }
}
