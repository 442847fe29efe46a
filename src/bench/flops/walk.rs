//! The walk through the layers of a network, which counts their operations.

use crate::subspace::{Layout, Shape};

/// The operations of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    pub forward: f64,
    /// The operations for the gradients of the trained columns.
    pub backward: f64,
}

impl Work {
    pub fn total(self) -> f64 {
        self.forward + self.backward
    }
}

/// A forward pass of n particles through a network.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub layout: &'a Layout,
    pub classes: i64,
    pub particles: i64,
    /// The number of images, or of prompts, per particle.
    pub images: i64,
    /// Whether each particle has its own images instead of sharing them with the others.
    pub own_images: bool,
    /// The stage at which the pass starts, from cached tokens; `None` to start from images.
    pub from_stage: Option<usize>,
}

/// A linear layer with the rows that it takes: for each pair (tokens, outputs), so many tokens of a sample become so many outputs.
pub struct Layer<'a> {
    pub name: &'a str,
    pub inputs: i64,
    pub uses: &'a [(i64, i64)],
}

/// The state of the count between layers.
pub struct Walk<'a> {
    pub pass: Pass<'a>,
    /// Whether activations differ between particles, so that they have n rows per sample instead of one.
    apart: bool,
    /// Whether an earlier layer is trained, so that gradients flow through the next ones.
    live: bool,
    pub work: Work,
}

impl<'a> Walk<'a> {
    /// Returns the walk before the first layer.
    pub fn new(pass: Pass<'a>) -> Walk<'a> {
        Walk { apart: pass.own_images, pass, live: false, work: Work::default() }
    }

    /// Counts a linear layer with `inputs` inputs, for each pair (tokens, outputs) in `uses`.
    pub fn linear(&mut self, name: &str, inputs: i64, uses: &[(i64, i64)]) {
        self.side_by_side(&[Layer { name, inputs, uses }]);
    }

    /// Counts linear layers that take the same input.
    pub fn side_by_side(&mut self, layers: &[Layer]) {
        layers.iter().for_each(|layer| self.one(layer));
        layers.iter().for_each(|layer| self.passed(layer.name));
    }

    /// Notes that values go through a layer without a matrix product, such as a table of embeddings.
    pub fn passed(&mut self, name: &str) {
        let is_trained = self.shape(name).is_some();
        self.live |= is_trained;
        self.apart |= is_trained;
    }

    /// Returns what is trained of a layer.
    pub fn shape(&self, name: &str) -> Option<&'a Shape> {
        let blocks = &self.pass.layout.blocks;
        blocks.iter().find(|block| block.name == name).map(|block| &block.shape)
    }

    fn one(&mut self, Layer { name, inputs, uses }: &Layer) {
        let Pass { particles, images, .. } = self.pass;
        let shape = self.shape(name);
        let flows = if self.live { 1.0 } else { 0.0 };
        for (tokens, outputs) in *uses {
            let all = (particles * images * tokens) as f64;
            let rows = if self.apart { all } else { (images * tokens) as f64 };
            let dense = 2.0 * (inputs * outputs) as f64;
            match shape {
                None => {
                    self.work.forward += rows * dense;
                    self.work.backward += flows * rows * dense;
                }
                Some(Shape::Dense) => {
                    self.work.forward += all * dense;
                    self.work.backward += all * dense * (1.0 + flows);
                }
                Some(Shape::LowRank { rank, .. }) => {
                    let (by_a, by_b) = (2.0 * (rank * inputs) as f64, 2.0 * (rank * outputs) as f64);
                    self.work.forward += rows * dense + all * (by_a + by_b);
                    // The gradients of A, of B, of the value between them, and of the input.
                    self.work.backward += all * (by_a + 2.0 * by_b) + flows * (rows * dense + all * by_a);
                }
            }
        }
    }

    /// Returns whether gradients flow through the output of a layer that is counted next.
    pub fn flows(&self, name: &str) -> bool {
        self.live || self.shape(name).is_some()
    }

    /// Counts the scores and the weighted values of `pairs` queries with their keys. The backward pass has a product for the
    /// gradients of queries, of keys, and of values, as far as these flow, and one for that of the scores.
    pub fn attention(&mut self, (pairs, width): (i64, i64), [queries, keys, values]: [bool; 3]) {
        let particles = if self.apart { self.pass.particles } else { 1 };
        let product = 2.0 * (particles * self.pass.images * width) as f64 * pairs as f64;
        let back = [queries, keys, values, queries || keys].iter().filter(|flows| **flows).count();
        self.work.forward += 2.0 * product;
        self.work.backward += product * back as f64;
    }
}
