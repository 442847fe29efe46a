//! Counts floating-point operations of matrix products from shapes. A product of `[M, K]` and `[K, N]` takes 2·M·K·N.
//!
//! Only what a training step must compute counts. The last block computes only the rows that are read after it, causal attention
//! reads no later tokens, no gradient is needed below the first trained layer, frozen layers need that of their input alone, and
//! frozen products run once where all particles see the same input. Norms, activations, embeddings, the method, the optimizer,
//! recomputation, and mixing in weight space do not count.

mod images;
mod texts;
mod walk;

use crate::model::vit;
pub use texts::{Reads, Seen, Texts};
use walk::Walk;
pub use walk::{Pass, Work};

/// The network that a pass goes through.
#[derive(Clone, Copy)]
pub enum Network<'a> {
    Images(&'a vit::Geometry),
    Texts(Texts<'a>),
}

/// Counts the operations of a pass through a network and of its gradients.
pub fn count(network: Network, pass: Pass) -> Work {
    let mut walk = Walk::new(pass);
    match network {
        Network::Images(geometry) => images::count(&mut walk, geometry),
        Network::Texts(texts) => texts.count(&mut walk),
    }
    walk.work
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vit::Geometry;
    use crate::subspace::{Layout, Shape};

    const GEOMETRY: Geometry = Geometry { width: 8, blocks: 2, patch: 2, grid: 2, mlp: 16, output: 4 };

    fn low_rank() -> Layout {
        let mut layout = Layout::default();
        layout.push("blocks.1.mlp.fc.A", &[2, 8]);
        layout.push("blocks.1.mlp.fc.B", &[16, 2]);
        layout.close_block("blocks.1.mlp.fc", 0, Shape::LowRank { rank: 2, inputs: 8, outputs: 16, scale: 1.0 });
        layout
    }

    fn count(pass: Pass) -> Work {
        super::count(Network::Images(&GEOMETRY), pass)
    }

    fn pass(layout: &Layout) -> Pass<'_> {
        Pass { layout, classes: 3, particles: 1, images: 1, own_images: true, from_stage: None }
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
        let work = count(pass(&nothing));
        assert_eq!(work, Work { forward: FROZEN, backward: 0.0 });
    }

    /// The layer fc of block 1 has rank 2. Its forward pass adds 2·(8 + 16) = 48. The backward pass takes 16 for A, 32
    /// for B, 32 between them, and the input gradients of later layers: proj 128, output 32, head 12.
    #[test]
    fn low_rank_step_by_hand() {
        let layout = low_rank();
        let work = count(pass(&layout));
        assert_eq!(work.forward, FROZEN + 2.0 * 48.0);
        assert_eq!(work.backward, 2.0 * (16.0 + 32.0 + 32.0 + 128.0 + 32.0 + 12.0));
        let five = count(Pass { particles: 5, images: 3, ..pass(&layout) });
        assert_eq!(five.total(), 15.0 * work.total());
    }

    /// Five particles on the same images first differ at fc of block 1. Earlier layers run once, and so does the frozen
    /// product of fc.
    #[test]
    fn shared_images_run_once_until_particles_part() {
        let layout = low_rank();
        let shared = count(Pass { particles: 5, own_images: false, ..pass(&layout) });
        let after = 2.0 * (128.0 + 32.0 + 12.0);
        assert_eq!(shared.forward, FROZEN - after + 5.0 * (2.0 * 48.0 + after));
    }

    #[test]
    fn cached_tokens_leave_the_first_blocks_out() {
        let layout = low_rank();
        let cached = count(Pass { from_stage: Some(1), ..pass(&layout) });
        let whole = count(pass(&layout));
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
        let work = count(pass(&layout));
        assert_eq!(work.forward, FROZEN);
        // The patch embedding has no input gradient, attention takes twice its forward pass, and the output layer also
        // has a weight gradient.
        assert_eq!(work.backward, FROZEN + 2.0 * (400.0 + 80.0) + 2.0 * 32.0);
    }
}
