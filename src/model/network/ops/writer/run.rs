//! The nodes that each operation adds.

use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::Writer;
use crate::model::network::ops::graph::{Operation, SAMPLES, Value};
use crate::model::network::ops::{Activation, Constant, Layer, Mask, Ops, Pairs, RmsNormed, Scoring};

impl Ops for Writer<'_> {
    type Value = Value;

    fn within(&self, part: &'static str) -> Self {
        Writer { graph: Rc::clone(&self.graph), part, ..*self }
    }

    fn again(&self, x: &Value) -> Value {
        x.clone()
    }

    fn length(&self, x: &Value, axis: usize) -> i64 {
        x.shape[axis]
    }

    fn has(&self, name: &str) -> bool {
        self.members.has(&self.name(name))
    }

    /// The members' biases of queries, keys and values are whole, so a layer without some needs nothing else.
    fn layer(&self, Layer { name, rows, .. }: Layer, x: &Value) -> Value {
        let layer = self.name(name);
        self.graph().enter(&layer);
        let [lead, samples, tokens, inputs] = x.shape[..] else { panic!("{layer}: {:?} has not four axes", x.shape) };
        let together = if samples == SAMPLES { SAMPLES } else { samples * tokens };
        let flat = self.graph().reshape(x, &[lead, together, inputs]);
        let y = self.product(&layer, &flat, rows);
        let y = match self.members.factors.get(&layer) {
            Some(factors) => self.updated(&layer, &flat, &y, factors, rows),
            None => y,
        };
        let (lead, outputs) = (y.shape[0], y.shape[2]);
        self.graph().reshape(&y, &[lead, samples, tokens, outputs])
    }

    fn norm(&self, layer: &str, x: &Value, eps: f64) -> Value {
        let layer = self.name(layer);
        self.graph().enter(&layer);
        let parts = ["weight", "bias"].map(|part| format!("{layer}.{part}"));
        let [weight, bias] = [&parts[0], &parts[1]].map(|name| self.members.has(name).then_some(name));
        let parts: Vec<&String> = weight.into_iter().chain(bias).collect();
        let operation = Operation::LayerNorm { eps };
        if self.members.differ(&parts.iter().map(|name| name.as_str()).collect::<Vec<_>>()) {
            let normed = self.keep(operation, x);
            let weight = self.vector(parts[0]);
            let scaled = self.graph().times(&normed, &weight);
            return match bias {
                Some(bias) => {
                    let bias = self.vector(bias);
                    self.graph().plus(&scaled, &bias)
                }
                None => scaled,
            };
        }
        let shared = |name: &&String| self.stored(name, || self.members.shared[*name].shallow_clone());
        let stored: Vec<Value> = parts.iter().map(shared).collect();
        let inputs: Vec<&Value> = std::iter::once(x).chain(&stored).collect();
        self.graph().keep(operation, &inputs)
    }

    fn rms_norm(&self, RmsNormed { layer, eps, more }: RmsNormed, x: &Value) -> Value {
        let layer = self.name(layer);
        self.graph().enter(&layer);
        let wide = self.cast_from(x, Kind::Float);
        let normed = self.keep(Operation::RmsNorm { eps }, &wide);
        let name = format!("{layer}.weight");
        if more == 0.0 {
            let normed = self.cast(normed);
            let weight = self.vector(&name);
            return self.graph().times(&normed, &weight);
        }
        let own = || (0..2).fold(self.members.led(&name), |value, _| value.unsqueeze(1)) + more;
        let factor = self.in_kind(Kind::Float).stored(&format!("{name}.factor"), own);
        let normed = self.graph().times(&normed, &factor);
        self.cast(normed)
    }

    fn embedding(&self, layer: &str, ids: &Value) -> Value {
        let layer = self.name(layer);
        self.graph().enter(&layer);
        let name = format!("{layer}.weight");
        let rows = self.members.shared[&name].size()[0];
        let table = self.stored(&name, || self.members.led(&name).flatten(0, 1));
        let ids = match self.members.differ(&[&name]) {
            true => {
                let count = self.members.count;
                let offsets = || (Tensor::arange(count, (Kind::Int64, Device::Cpu)) * rows).view([-1, 1, 1]);
                let offsets = self.whole(&format!("{layer}.offsets"), offsets);
                self.graph().plus(ids, &offsets)
            }
            false => ids.clone(),
        };
        self.graph().embedding(&table, &ids)
    }

    fn param(&self, name: &str) -> Value {
        self.vector(&self.name(name))
    }

    fn picked(&self, names: &[String], rows: &Value) -> Option<Value> {
        let names: Vec<String> = names.iter().map(|name| self.name(name)).collect();
        let mut present = names.iter().filter(|name| self.members.has(name));
        let table = present.clone().map(|name| self.members.led(name)).reduce(|all, own| all + own)?;
        let rows = self.graph().stored.get(&rows.id).map(|(_, rows)| rows.shallow_clone())?;
        let name = format!("{}.picked", present.next_back()?);
        Some(self.stored(&name, || table.index_select(1, &rows).unsqueeze(1)))
    }

    fn constant(&self, constant: &Constant, _: &[i64], _: &Value, make: impl Fn((Kind, Device)) -> Tensor) -> Value {
        self.whole(&self.name(constant.name), || make((self.kind, Device::Cpu)))
    }

    fn add(&self, a: Value, b: Value) -> Value {
        self.graph().plus(&a, &b)
    }

    fn mul(&self, a: Value, b: Value) -> Value {
        self.graph().times(&a, &b)
    }

    fn activation(&self, activation: Activation, x: Value) -> Value {
        self.keep(Operation::Activation(activation), &x)
    }

    fn cast(&self, x: Value) -> Value {
        if self.kind == Kind::Float { x } else { self.keep(Operation::Cast(self.kind), &x) }
    }

    fn normalised(&self, pixels: Value, mean: [f64; 3], std: [f64; 3]) -> Value {
        let own = self.in_kind(Kind::Float);
        let channels = |three: [f64; 3]| move || Tensor::from_slice(&three).to_kind(Kind::Float).view([1, 1, 3, 1, 1]);
        let most = own.stored("preprocessing.most", || Tensor::from_slice(&[255f32]));
        let (mean, std) =
            (own.stored("preprocessing.mean", channels(mean)), own.stored("preprocessing.std", channels(std)));
        let x = self.graph().pair(Operation::Divide, &pixels, &most);
        let x = self.graph().pair(Operation::Subtract, &x, &mean);
        self.graph().pair(Operation::Divide, &x, &std)
    }

    fn slice(&self, x: &Value, axis: usize, start: i64, length: i64) -> Value {
        self.graph().slice(x, axis, (start, start + length))
    }

    fn concat(&self, parts: Vec<Value>, axis: usize) -> Value {
        let lead = parts.iter().map(|part| part.shape[0]).max().unwrap_or(1);
        let spreads = parts.iter().any(|part| part.shape[1] == SAMPLES);
        let each = |part: &Value| if spreads { self.expanded(part, lead) } else { part.clone() };
        // Values without entries have no place in a graph.
        let all: Vec<Value> = parts.iter().filter(|part| part.shape[axis] != 0).map(each).collect();
        self.graph().concat(&all.iter().collect::<Vec<_>>(), axis)
    }

    fn reshape(&self, x: &Value, lengths: &[i64]) -> Value {
        let shape = [&x.shape[..2], lengths].concat();
        self.graph().reshape(x, &shape)
    }

    fn permute(&self, x: &Value, axes: &[i64]) -> Value {
        self.graph().permute(x, axes)
    }

    fn mean(&self, x: &Value, axis: usize) -> Value {
        self.graph().mean(x, axis)
    }

    fn heads(&self, x: &Value, parts: i64, heads: i64) -> Vec<Value> {
        let [lead, samples, tokens, width] = x.shape[..] else { panic!("{:?} has not four axes", x.shape) };
        let channels = width / (parts * heads);
        if parts == 1 {
            let x = self.graph().reshape(x, &[lead, samples, tokens, heads, channels]);
            return vec![self.graph().permute(&x, &[0, 1, 3, 2, 4])];
        }
        let x = self.graph().reshape(x, &[lead, samples, tokens, parts, heads, channels]);
        let x = self.graph().permute(&x, &[3, 0, 1, 4, 2, 5]);
        let part = |part: i64| {
            let part = self.graph().slice(&x, 0, (part, part + 1));
            self.graph().reshape(&part, &[lead, samples, heads, tokens, channels])
        };
        (0..parts).map(part).collect()
    }

    fn rotated(&self, x: &Value, pairs: Pairs) -> Value {
        let channels = x.shape[4];
        // The pairs as an axis of length 2.
        let (lengths, axis) = match pairs {
            Pairs::Halves => ([2, channels / 2], 4),
            Pairs::Neighbours => ([channels / 2, 2], 5),
        };
        let mut graph = self.graph();
        let apart = graph.reshape(x, &[&x.shape[..4], &lengths].concat());
        let (a, b) = (graph.slice(&apart, axis, (0, 1)), graph.slice(&apart, axis, (1, 2)));
        let minus = graph.keep(Operation::Negate, &[&b]);
        let turned = graph.concat(&[&minus, &a], axis);
        graph.reshape(&turned, &x.shape)
    }

    fn attend(&self, heads: [&Value; 3], mask: Mask<Value>, scoring: Scoring) -> Value {
        let added = match &mask {
            Mask::Scores(scores) | Mask::SeenScores { scores, .. } => scores.shape[0],
            _ => 1,
        };
        let lead = heads.iter().map(|x| x.shape[0]).chain([added]).max().unwrap_or(1);
        let flat = heads.map(|x| {
            let x = self.expanded(x, lead);
            self.graph().reshape(&x, &[&[SAMPLES], &x.shape[2..]].concat())
        });
        let (masked, mask) = self.masked(mask, lead, heads[1].shape[3]);
        let mut graph = self.graph();
        let read = graph.attention(flat.each_ref(), masked, mask.as_ref(), scoring);
        let [_, heads, tokens, channels] = read.shape[..] else { panic!("{:?} are no heads", read.shape) };
        let read = graph.permute(&read, &[0, 2, 1, 3]);
        graph.reshape(&read, &[lead, SAMPLES, tokens, heads * channels])
    }

    fn relative(&self, x: &Value, table: &Value, index: &Value) -> Value {
        let (heads, count) = (x.shape[2], &index.shape);
        let ones = self
            .whole(&format!("text.heads_{heads}"), || Tensor::ones([1, 1, heads, 1, 1], (Kind::Int64, Device::Cpu)));
        let table = self.graph().permute(table, &[0, 1, 2, 4, 3]);
        let all = self.graph().matmul(x, &table);
        let index = self.graph().reshape(index, &[1, 1, 1, count[0], count[1]]);
        let index = self.graph().times(&index, &ones);
        let index = self.expanded(&index, all.shape[0]);
        self.graph().gather(&all, 4, &index)
    }

    fn aligned(&self, [ids, mask]: [&Value; 2]) -> [Value; 2] {
        let tokens = ids.shape[2];
        let places = self.whole("text.places", || Tensor::arange(tokens, (Kind::Int64, Device::Cpu)));
        let so_far = self.keep(Operation::CumulativeSum { axis: 2 }, mask);
        let before = self.keep(Operation::Equal(0), &so_far);
        let mut graph = self.graph();
        let before = graph.sum(&before, 2);
        let index = graph.plus(&before, &places);
        let index = graph.keep(Operation::Remainder(tokens), &[&index]);
        [graph.gather(ids, 2, &index), graph.gather(mask, 2, &index)]
    }

    fn numbered(&self, mask: &Value, behind: i64) -> Value {
        let behind = self.whole(&format!("text.behind_{behind}"), || Tensor::from_slice(&[behind]));
        let so_far = self.keep(Operation::CumulativeSum { axis: 2 }, mask);
        let mut graph = self.graph();
        let number = graph.times(&so_far, mask);
        graph.plus(&number, &behind)
    }

    fn column(&self, mask: &Value, _: &Value) -> Value {
        let tokens = mask.shape[2];
        let column = self.reshape(mask, &[tokens, 1]);
        self.keep(Operation::Cast(self.kind), &column)
    }

    fn latest(&self, mask: &Value, count: i64) -> Value {
        let seen = self.keep(Operation::Cast(Kind::Int64), mask);
        let so_far = self.keep(Operation::CumulativeSum { axis: 2 }, &seen);
        let all = self.graph().sum(&seen, 2);
        let after = self.graph().pair(Operation::Subtract, &all, &so_far);
        let after = self.keep(Operation::Within(count), &after);
        let after = self.keep(Operation::Equal(count), &after);
        let left = self.keep(Operation::Equal(0), &after);
        let left = self.keep(Operation::Cast(self.kind), &left);
        self.graph().times(mask, &left)
    }

    fn last(&self, mask: &Value) -> Value {
        let minus = self.whole("text.minus_one", || Tensor::from_slice(&[-1i64]));
        let mask = self.keep(Operation::Cast(Kind::Int64), mask);
        let mut graph = self.graph();
        let count = graph.sum(&mask, 2);
        let count = graph.reshape(&count, &mask.shape[..2]);
        graph.plus(&count, &minus)
    }

    fn at(&self, x: &Value, positions: &Value) -> Value {
        let width = x.shape[3];
        let ones = self.whole(&format!("text.ones_{width}"), || Tensor::ones([width], (Kind::Int64, Device::Cpu)));
        let index = self.reshape(positions, &[1, 1]);
        let index = self.graph().times(&index, &ones);
        let index = self.expanded(&index, x.shape[0]);
        self.graph().gather(x, 2, &index)
    }

    fn rows_at(&self, table: &Value, positions: &Value) -> Value {
        let rows = self.graph().embedding(table, positions);
        self.reshape(&rows, &[1, 1, table.shape[1]])
    }

    fn filled(&self, words: Value, patches: Value, [ids, mask]: &[Value; 2], id: i64) -> Value {
        let (count, width, tokens) = (patches.shape[2], patches.shape[3], ids.shape[2]);
        let ones = self.whole(&format!("text.ones_{width}"), || Tensor::ones([width], (Kind::Int64, Device::Cpu)));
        let minus = self.whole("text.minus_one", || Tensor::from_slice(&[-1i64]));
        let here = self.keep(Operation::Equal(id), ids);
        let here = self.graph().times(&here, mask);
        let number = self.keep(Operation::CumulativeSum { axis: 2 }, &here);
        let number = self.graph().plus(&number, &minus);
        let number = self.keep(Operation::Within(count - 1), &number);
        let (number, here) = (self.reshape(&number, &[tokens, 1]), self.reshape(&here, &[tokens, 1]));
        let index = self.graph().times(&number, &ones);
        let index = self.expanded(&index, patches.shape[0]);
        let placed = self.graph().gather(&patches, 2, &index);
        self.graph().choose(&here, &placed, &words)
    }
}
