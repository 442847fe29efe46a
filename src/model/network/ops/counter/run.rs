//! The cost of each operation, and the values that it keeps.

use std::cell::Cell;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::{Adaptation, Count, Counter, Flags, Storage};
use crate::base::tensor::wide;
use crate::model::network::ops::graph::spread;
use crate::model::network::ops::{Activation, Constant, Layer, Mask, Ops, Pairs, RmsNormed, Scoring};

impl Ops for Counter<'_> {
    type Value = Count;

    fn within(&self, part: &'static str) -> Self {
        Counter { part, state: Rc::clone(&self.state), ..*self }
    }

    fn again(&self, x: &Count) -> Count {
        x.clone()
    }

    fn length(&self, x: &Count, axis: usize) -> i64 {
        x.shape[axis]
    }

    fn has(&self, name: &str) -> bool {
        self.counted.base.get(&self.name(name)).is_some()
    }

    fn layer(&self, Layer { name, rows, .. }: Layer, x: &Count) -> Count {
        let outputs = rows.map_or_else(|| self.size(&format!("{name}.weight"))[0], |(_, count)| count);
        self.product(name, x, outputs)
    }

    fn linear_behind(&self, name: &str, activation: Activation, x: Count) -> Count {
        let updates = matches!(self.adapted(name), Some(Adaptation::LowRank { .. }));
        let fuses = self.counted.fuses && updates && x.apart && activation.curve().is_some();
        if fuses {
            self.keep(&x);
        }
        let bent = self.activation(activation, x);
        // What the layer would keep is made again from what the activation keeps.
        bent.storage.is_kept.set(fuses);
        self.linear(name, &bent)
    }

    fn norm(&self, layer: &str, x: &Count, _: f64) -> Count {
        self.normed(layer, x, x.numbers(), 2 * x.numbers())
    }

    /// Such a norm computes in f32 or wider, and keeps its input so.
    fn rms_norm(&self, RmsNormed { layer, .. }: RmsNormed, x: &Count) -> Count {
        let kind = self.counted.kind;
        let wider = (wide(kind).elt_size_in_bytes() / kind.elt_size_in_bytes()) as u64;
        self.normed(layer, x, x.numbers() * wider, x.numbers())
    }

    fn embedding(&self, layer: &str, ids: &Count) -> Count {
        let width = self.size(&format!("{layer}.weight"))[1];
        let rows = self.named(layer, &[ids.shape[2], width]);
        Count { apart: rows.apart || ids.apart, ..rows }
    }

    fn param(&self, name: &str) -> Count {
        let size = self.size(name);
        let shape = if size.len() == 1 { vec![1, size[0]] } else { size };
        self.named(name.strip_suffix(".gamma").unwrap_or(name), &shape)
    }

    fn picked(&self, names: &[String], rows: &Count) -> Option<Count> {
        let present: Vec<&String> = names.iter().filter(|name| self.has(name)).collect();
        let width = self.size(present.first()?)[1];
        let layer = |name: &&String| name.strip_suffix(".weight").unwrap_or(name).to_string();
        let is_trained = present.iter().map(layer).any(|layer| self.adapted(&layer).is_some());
        Some(Count::new(&[rows.numbers() as i64, width], Flags { apart: is_trained, live: is_trained }))
    }

    /// Constants have no axes of particles and samples. Their tensors are small, so their shapes are read off them.
    fn constant(&self, constant: &Constant, of: &[i64], _: &Count, make: impl Fn((Kind, Device)) -> Tensor) -> Count {
        let shape = constant.get(of, (self.counted.kind, Device::Cpu), make).size();
        let numbers = shape.iter().product::<i64>() as u64;
        Count { shape, apart: false, live: false, storage: Rc::new(Storage { numbers, is_kept: Cell::new(true) }) }
    }

    fn add(&self, a: Count, b: Count) -> Count {
        a.made(&spread(&a.shape, &b.shape), &[&b])
    }

    fn mul(&self, a: Count, b: Count) -> Count {
        let product = a.made(&spread(&a.shape, &b.shape), &[&b]);
        for (one, other) in [(&a, &b), (&b, &a)] {
            if other.live {
                self.keep(one);
            }
        }
        let gradients = [&a, &b].iter().filter(|factor| factor.live).map(|factor| factor.numbers()).sum();
        self.uses(a.numbers() + b.numbers() + product.numbers(), gradients);
        product
    }

    fn activation(&self, activation: Activation, x: Count) -> Count {
        let numbers = x.numbers();
        // What libtorch's kernel holds besides its input and its result.
        let beside = if activation == Activation::QuickGelu { 2 * numbers } else { numbers / 2 };
        if x.live {
            self.keep(&x);
            if activation == Activation::QuickGelu && !self.counted.fuses {
                self.keep_numbers(numbers);
            }
        }
        self.uses(2 * numbers + beside, numbers);
        x.made(&x.shape, &[])
    }

    fn cast(&self, x: Count) -> Count {
        x
    }

    fn normalised(&self, pixels: Count, _: [f64; 3], _: [f64; 3]) -> Count {
        pixels.made(&pixels.shape, &[])
    }

    fn slice(&self, x: &Count, axis: usize, _: i64, length: i64) -> Count {
        let mut shape = x.shape.clone();
        shape[axis] = length;
        x.viewed(shape)
    }

    fn concat(&self, parts: Vec<Count>, axis: usize) -> Count {
        let mut shape = parts[0].shape.clone();
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        parts[0].made(&shape, &parts.iter().collect::<Vec<_>>())
    }

    fn reshape(&self, x: &Count, lengths: &[i64]) -> Count {
        x.viewed([&x.shape[..2], lengths].concat())
    }

    fn permute(&self, x: &Count, axes: &[i64]) -> Count {
        x.viewed(axes.iter().map(|axis| x.shape[*axis as usize]).collect())
    }

    fn mean(&self, x: &Count, axis: usize) -> Count {
        let mut shape = x.shape.clone();
        shape[axis] = 1;
        x.made(&shape, &[])
    }

    fn heads(&self, x: &Count, parts: i64, heads: i64) -> Vec<Count> {
        let shape = vec![1, 1, heads, x.shape[2], x.shape[3] / (parts * heads)];
        (0..parts).map(|_| x.viewed(shape.clone())).collect()
    }

    fn rotated(&self, x: &Count, _: Pairs) -> Count {
        x.made(&x.shape, &[])
    }

    /// The backward pass has a product for the gradients of queries, of keys, and of values, as far as these flow, and one for that of
    /// the scores.
    fn attend(&self, heads: [&Count; 3], mask: Mask<Count>, scoring: Scoring) -> Count {
        let [query, key, value] = heads;
        let (queries, tokens) = (query.shape[3], key.shape[3]);
        let pairs = match &mask {
            Mask::Causal => tokens * (tokens + 1) / 2,
            Mask::Window(count) => (1..=tokens).map(|up_to| up_to.min(*count)).sum(),
            _ => queries * tokens,
        };
        let width = query.shape[2] * query.shape[4];
        let scores = match &mask {
            Mask::Scores(scores) | Mask::SeenScores { scores, .. } => Some(scores),
            _ => None,
        };
        let all: Vec<&Count> = heads.into_iter().chain(scores).collect();
        let read = query.made(&[1, 1, queries, width], &all);
        let [_, rows] = self.rows(&read, pairs);
        let product = 2.0 * rows * width as f64;
        let back = [query.live, key.live, value.live, query.live || key.live].iter().filter(|flows| **flows).count();
        let mut state = self.state.borrow_mut();
        state.work.forward += 2.0 * product;
        state.work.backward += product * back as f64;
        drop(state);
        if heads.iter().any(|x| x.live) {
            heads.iter().for_each(|x| self.keep(x));
            self.keep_numbers(read.numbers());
        }
        // Scores with gradients, or with a bound, are there for all pairs at once, as is their softmax.
        let all_pairs = 3 * (query.shape[2] * queries * tokens) as u64;
        let is_whole = scoring.cap.is_some();
        if scores.is_some_and(|scores| scores.live) || is_whole && read.live {
            self.keep_numbers(all_pairs);
        }
        // What forbids tokens of answers to read later ones is there for each text.
        let each = if matches!(mask, Mask::Prompt(_)) { (2 * queries * tokens) as u64 } else { 0 };
        let beside = if is_whole { all_pairs + each } else { each };
        self.uses(heads.iter().map(|x| x.numbers()).sum::<u64>() + read.numbers() + beside, 0);
        read
    }

    fn relative(&self, x: &Count, table: &Count, index: &Count) -> Count {
        let [heads, tokens, channels] = [2, 3, 4].map(|axis| x.shape[axis]);
        let all = x.made(&[1, 1, heads, tokens, table.shape[3]], &[table]);
        let [_, rows] = self.rows(&all, tokens);
        let product = 2.0 * rows * (heads * channels * table.shape[3]) as f64;
        let back = [x.live, table.live].iter().filter(|flows| **flows).count();
        let mut state = self.state.borrow_mut();
        state.work.forward += product;
        state.work.backward += product * back as f64;
        drop(state);
        for (one, other) in [(x, table), (table, x)] {
            if other.live {
                self.keep(one);
            }
        }
        self.uses(x.numbers() + 2 * all.numbers(), 0);
        all.made(&[1, 1, heads, tokens, index.shape[1]], &[])
    }

    fn aligned(&self, text: [&Count; 2]) -> [Count; 2] {
        text.map(|row| Count::new(&row.shape[2..], Flags { apart: row.apart, live: false }))
    }

    fn numbered(&self, mask: &Count, _: i64) -> Count {
        Count::new(&[mask.shape[2]], Flags { apart: mask.apart, live: false })
    }

    fn column(&self, mask: &Count, _: &Count) -> Count {
        Count::new(&[mask.shape[2], 1], Flags { apart: mask.apart, live: false })
    }

    fn latest(&self, mask: &Count, _: i64) -> Count {
        Count::new(&mask.shape[2..], Flags { apart: mask.apart, live: false })
    }

    fn last(&self, mask: &Count) -> Count {
        Count::new(&[], Flags { apart: mask.apart, live: false })
    }

    fn at(&self, x: &Count, positions: &Count) -> Count {
        x.made(&[1, 1, 1, x.shape[3]], &[positions])
    }

    fn rows_at(&self, table: &Count, positions: &Count) -> Count {
        Count::new(&[1, 1, table.shape[1]], Flags { apart: positions.apart, live: false })
    }

    fn filled(&self, words: Count, patches: Count, text: &[Count; 2], _: i64) -> Count {
        words.made(&words.shape, &[&patches, &text[0]])
    }
}
