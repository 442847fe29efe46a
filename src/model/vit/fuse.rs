//! Converts weights that files store in several ways to one form: queries, keys and values in one matrix, and the gate
//! of an MLP in a matrix of its own.

use anyhow::{Context, Result, ensure};
use tch::Tensor;

/// Parameters that are being converted to the canonical ones.
pub struct Loose<'a>(pub &'a mut Vec<(String, Tensor)>);

impl Loose<'_> {
    /// Converts the layers of all `blocks` blocks, and the pooling, to their canonical form.
    ///
    /// # Errors
    /// Fails if a part lacks its counterpart or has another size.
    pub fn fuse(&mut self, blocks: usize) -> Result<()> {
        for block in 0..blocks {
            let attention = format!("blocks.{block}.attn");
            self.join(&attention)?;
            // The first half of a packed layer's rows is the gate, the second half is the factor that it multiplies.
            let mlp = format!("blocks.{block}.mlp");
            self.cut(&format!("{mlp}.packed"), 2, [&format!("{mlp}.gate"), &format!("{mlp}.fc")])?;
        }
        self.cut("pool.in_proj", 3, ["pool.q", "pool.kv"])
    }

    pub fn take(&mut self, name: &str) -> Option<Tensor> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    fn put(&mut self, name: String, tensor: Tensor) {
        self.0.push((name, tensor));
    }

    /// Joins `q`, `k` and `v` of an attention layer to `qkv`. A bias that the file omits for some of them is 0 there.
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

    /// Cuts the rows of a layer into equal `parts` and stores the first as `first` and the others together as `others`.
    fn cut(&mut self, layer: &str, parts: i64, [first, others]: [&str; 2]) -> Result<()> {
        for part in ["weight", "bias"] {
            if let Some(all) = self.take(&format!("{layer}.{part}")) {
                let (rows, each) = (all.size()[0], all.size()[0] / parts);
                ensure!(parts * each == rows, "its {layer} has {rows} rows, which are not {parts} equal parts");
                self.put(format!("{first}.{part}"), all.narrow(0, 0, each).contiguous());
                self.put(format!("{others}.{part}"), all.narrow(0, each, rows - each).contiguous());
            }
        }
        Ok(())
    }
}
