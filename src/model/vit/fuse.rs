//! One form for weights that files keep in several: queries, keys and values in one matrix, a gate apart from what it
//! multiplies.

use anyhow::{Context, Result, ensure};
use tch::Tensor;

/// Parameters on their way to the canonical ones.
pub struct Loose<'a>(pub &'a mut Vec<(String, Tensor)>);

impl Loose<'_> {
    /// Brings the layers of all `blocks` blocks, and the pooling, to their canonical form.
    ///
    /// # Errors
    /// A part without its counterpart, or of another size.
    pub fn fuse(&mut self, blocks: usize) -> Result<()> {
        for block in 0..blocks {
            let attention = format!("blocks.{block}.attn");
            self.join(&attention)?;
            self.halve(&format!("blocks.{block}.mlp.packed"), &format!("blocks.{block}.mlp"))?;
        }
        for part in ["weight", "bias"] {
            if let Some(all) = self.take(&format!("pool.in_proj.{part}")) {
                let width = all.size()[0] / 3;
                self.put(format!("pool.q.{part}"), all.narrow(0, 0, width).contiguous());
                self.put(format!("pool.kv.{part}"), all.narrow(0, width, 2 * width).contiguous());
            }
        }
        Ok(())
    }

    fn take(&mut self, name: &str) -> Option<Tensor> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    fn put(&mut self, name: String, tensor: Tensor) {
        self.0.push((name, tensor));
    }

    /// `q`, `k`, `v` of an attention become `qkv`. A bias that the file leaves out for some of them is 0 there.
    fn join(&mut self, attention: &str) -> Result<()> {
        let mut three = |part: &str| ["q", "k", "v"].map(|name| self.take(&format!("{attention}.{name}.{part}")));
        let (weights, biases) = (three("weight"), three("bias"));
        if let [Some(q), k, v] = weights {
            let (k, v) = k.zip(v).with_context(|| format!("it has {attention}.q without a key or a value"))?;
            ensure!(q.size() == k.size() && q.size() == v.size(), "its {attention} has parts of different sizes");
            self.put(format!("{attention}.qkv.weight"), Tensor::cat(&[q, k, v], 0));
        }
        if let Some(like) = biases.iter().flatten().next().map(Tensor::zeros_like) {
            let filled = biases.map(|bias| bias.unwrap_or_else(|| like.shallow_clone()));
            self.put(format!("{attention}.qkv.bias"), Tensor::cat(&filled, 0));
        }
        Ok(())
    }

    /// The rows of a packed layer are those of the gate, then those of what it multiplies.
    fn halve(&mut self, packed: &str, mlp: &str) -> Result<()> {
        for part in ["weight", "bias"] {
            if let Some(all) = self.take(&format!("{packed}.{part}")) {
                let half = all.size()[0] / 2;
                ensure!(2 * half == all.size()[0], "its {packed} has an odd number of rows");
                self.put(format!("{mlp}.gate.{part}"), all.narrow(0, 0, half).contiguous());
                self.put(format!("{mlp}.fc.{part}"), all.narrow(0, half, half).contiguous());
            }
        }
        Ok(())
    }
}
