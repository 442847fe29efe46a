//! A block of a vision transformer.

use super::pass::Pass;
use super::values::Value;
use crate::model::vit::parts::Readout;

impl Pass<'_> {
    /// Returns the output of a block. If only the class token is read, the last block computes nothing else.
    pub(super) fn block(&mut self, block: usize, x: &Value) -> Value {
        let layer = |name: &str| format!("blocks.{block}.{name}");
        let parts = self.vit.parts.block;
        let first = block + 1 == self.vit.geometry.blocks && self.vit.parts.readout == Readout::Class;
        let normed = self.norm(&layer("ln_1"), x);
        let mut y = self.attend(block, &normed, first);
        if parts.attention_norm {
            y = self.norm(&layer("attn.norm"), &y);
        }
        let y = self.layers.linear(&layer("attn.proj"), &y);
        let x = if first { self.graph().slice(x, 2, (0, 1)) } else { x.clone() };
        let x = self.add_half(&layer("ls_1"), &x, y);
        let normed = self.norm(&layer("ln_2"), &x);
        let fc = self.layers.linear(&layer("mlp.fc"), &normed);
        let mut hidden = if parts.gated {
            let gate = self.layers.linear(&layer("mlp.gate"), &normed);
            let gate = self.activated(&gate);
            self.graph().times(&gate, &fc)
        } else {
            self.activated(&fc)
        };
        if parts.mlp_norm {
            hidden = self.norm(&layer("mlp.norm"), &hidden);
        }
        let y = self.layers.linear(&layer("mlp.proj"), &hidden);
        self.add_half(&layer("ls_2"), &x, y)
    }

    /// Adds half a block's result `y` to `x`, times its learnt scale if there is one.
    fn add_half(&mut self, scale: &str, x: &Value, y: Value) -> Value {
        self.graph().enter(scale);
        if !self.vit.parts.block.layer_scale {
            return self.graph().plus(x, &y);
        }
        let scale = self.layers.param(&format!("{scale}.gamma"), 2);
        let y = self.graph().times(&y, &scale);
        self.graph().plus(x, &y)
    }
}
