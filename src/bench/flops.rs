//! Counts floating-point operations of matrix products from shapes. A product of `[M, K]` and `[K, N]` takes 2·M·K·N.
//!
//! Only what a training step must compute counts. The last block computes only the class token's rows, no gradient is
//! needed below the first trained layer, and frozen products run once where all particles see the same input. Norms,
//! activations, the method, the optimizer, recomputation, and mixing in weight space do not count.

use crate::model::vit::Geometry;
use crate::subspace::{Layout, Shape};

/// A forward pass of n particles.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub geometry: &'a Geometry,
    pub layout: &'a Layout,
    pub classes: i64,
    pub particles: i64,
    /// The number of images per particle.
    pub images: i64,
    /// Whether each particle has its own images instead of sharing them with the others.
    pub own_images: bool,
    /// The block at which the pass starts, from cached tokens; `None` to start from images.
    pub from_block: Option<usize>,
}

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

/// Counts the operations of a pass and of its gradients.
pub fn count(pass: &Pass) -> Work {
    let Geometry { width, blocks, patch, grid, mlp, output } = *pass.geometry;
    let tokens = 1 + grid * grid;
    let mut walk = Walk { pass, apart: pass.own_images, live: false, work: Work::default() };
    if pass.from_block.is_none() {
        walk.linear("patch", 3 * patch * patch, &[(grid * grid, width)]);
    }
    for block in pass.from_block.unwrap_or(0)..blocks {
        let layer = |name: &str| format!("blocks.{block}.{name}");
        let queries = if block + 1 == blocks { 1 } else { tokens };
        walk.linear(&layer("attn.qkv"), width, &[(queries, width), (tokens, 2 * width)]);
        walk.attention(queries, tokens, width);
        walk.linear(&layer("attn.proj"), width, &[(queries, width)]);
        walk.linear(&layer("mlp.fc"), width, &[(queries, mlp)]);
        walk.linear(&layer("mlp.proj"), mlp, &[(queries, width)]);
    }
    if output != width || pass.layout.blocks.iter().any(|block| block.name == "proj") {
        walk.linear("proj", width, &[(1, output)]);
    }
    walk.linear("head", output, &[(1, pass.classes)]);
    walk.work
}

/// The state of the count between layers.
struct Walk<'a> {
    pass: &'a Pass<'a>,
    /// Whether activations differ between particles, so that they have n rows per image instead of one.
    apart: bool,
    /// Whether an earlier layer is trained, so that gradients flow through the next ones.
    live: bool,
    work: Work,
}

impl Walk<'_> {
    /// Counts a linear layer with `inputs` inputs, for each pair (tokens, outputs) in `uses`.
    fn linear(&mut self, name: &str, inputs: i64, uses: &[(i64, i64)]) {
        let Pass { layout, particles, images, .. } = *self.pass;
        let shape = layout.blocks.iter().find(|block| block.name == name).map(|block| &block.shape);
        let before = self.live;
        let flows = if before { 1.0 } else { 0.0 };
        for (tokens, outputs) in uses {
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
        self.live = before || shape.is_some();
        self.apart |= shape.is_some();
    }

    /// Counts the scores and the weighted values. The backward pass has two products for each of them.
    fn attention(&mut self, queries: i64, keys: i64, width: i64) {
        let particles = if self.apart { self.pass.particles } else { 1 };
        let products = 4.0 * (particles * self.pass.images * queries * keys * width) as f64;
        self.work.forward += products;
        self.work.backward += if self.live { 2.0 * products } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { width: 8, blocks: 2, patch: 2, grid: 2, mlp: 16, output: 4 };

    fn low_rank() -> Layout {
        let mut layout = Layout::default();
        layout.push("blocks.1.mlp.fc.A", &[2, 8]);
        layout.push("blocks.1.mlp.fc.B", &[16, 2]);
        layout.close_block("blocks.1.mlp.fc", 0, Shape::LowRank { rank: 2, inputs: 8, outputs: 16, scale: 1.0 });
        layout
    }

    fn pass(layout: &Layout) -> Pass<'_> {
        Pass { geometry: &GEOMETRY, layout, classes: 3, particles: 1, images: 1, own_images: true, from_block: None }
    }

    /// The forward pass of one image of 5 tokens by hand, in multiply-adds. The last block has only the class token,
    /// except for keys and values.
    ///
    /// Patch: 4·12·8 = 384.
    /// Block 0: qkv 5·8·24 = 960, attention 2·5·5·8 = 400, proj 5·8·8 = 320, fc 5·8·16 = 640, proj 640.
    /// Block 1: qkv 8·8 + 5·8·16 = 704, attention 2·5·8 = 80, proj 64, fc 128, proj 128.
    /// Output: 8·4 = 32. Head: 4·3 = 12.
    const FROZEN: f64 = 2.0 * (384.0 + 960.0 + 400.0 + 320.0 + 1280.0 + 704.0 + 80.0 + 64.0 + 256.0 + 32.0 + 12.0);

    #[test]
    fn frozen_forward_by_hand() {
        let nothing = Layout::default();
        let work = count(&pass(&nothing));
        assert_eq!(work, Work { forward: FROZEN, backward: 0.0 });
    }

    /// The layer fc of block 1 has rank 2. Its forward pass adds 2·(8 + 16) = 48. The backward pass takes 16 for A, 32
    /// for B, 32 between them, and the input gradients of later layers: proj 128, output 32, head 12.
    #[test]
    fn low_rank_step_by_hand() {
        let layout = low_rank();
        let work = count(&pass(&layout));
        assert_eq!(work.forward, FROZEN + 2.0 * 48.0);
        assert_eq!(work.backward, 2.0 * (16.0 + 32.0 + 32.0 + 128.0 + 32.0 + 12.0));
        let five = count(&Pass { particles: 5, images: 3, ..pass(&layout) });
        assert_eq!(five.total(), 15.0 * work.total());
    }

    /// Five particles on the same images first differ at fc of block 1. Earlier layers run once, and so does the frozen
    /// product of fc.
    #[test]
    fn shared_images_run_once_until_particles_part() {
        let layout = low_rank();
        let shared = count(&Pass { particles: 5, own_images: false, ..pass(&layout) });
        let after = 2.0 * (128.0 + 32.0 + 12.0);
        assert_eq!(shared.forward, FROZEN - after + 5.0 * (2.0 * 48.0 + after));
    }

    #[test]
    fn cached_tokens_leave_the_first_blocks_out() {
        let layout = low_rank();
        let cached = count(&Pass { from_block: Some(1), ..pass(&layout) });
        let whole = count(&pass(&layout));
        assert_eq!(whole.forward - cached.forward, 2.0 * (384.0 + 960.0 + 400.0 + 320.0 + 1280.0));
        assert_eq!(whole.backward, cached.backward);
    }

    /// A layer trained in full takes its own gradient, and that of its input where an earlier layer is trained.
    #[test]
    fn dense_step_is_three_forwards_but_for_the_first_layer() {
        let mut layout = Layout::default();
        for name in ["patch", "proj"] {
            let start = layout.parameters();
            layout.push(format!("{name}.weight"), &[4]);
            layout.close_block(name, start, Shape::Dense);
        }
        let work = count(&pass(&layout));
        assert_eq!(work.forward, FROZEN);
        // The patch embedding has no input gradient, attention takes twice its forward pass, and the output layer also
        // has a weight gradient.
        assert_eq!(work.backward, FROZEN + 2.0 * (400.0 + 80.0) + 2.0 * 32.0);
    }
}
