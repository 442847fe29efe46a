//! Converts weights that files store in several ways to one form: queries, keys and values in one matrix, and the gate
//! of an MLP in a matrix of its own.

use anyhow::{Context, Result, bail, ensure};
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
            if self.is_packed(&mlp) {
                self.rename(&format!("{mlp}.fc."), &format!("{mlp}.packed."));
            }
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

    /// Returns whether the first layer of an MLP contains its gate, by its rows: twice as many as the second layer reads.
    fn is_packed(&self, mlp: &str) -> bool {
        let size = |layer: &str| {
            let name = format!("{mlp}.{layer}.weight");
            self.0.iter().find(|(known, _)| *known == name).and_then(|(_, tensor)| tensor.size2().ok())
        };
        size("fc").zip(size("proj")).is_some_and(|((rows, _), (_, columns))| rows == 2 * columns)
    }

    fn rename(&mut self, from: &str, to: &str) {
        for (name, _) in self.0.iter_mut().filter(|(name, _)| name.starts_with(from)) {
            *name = name.replace(from, to);
        }
    }

    /// Joins `q`, `k` and `v` of an attention layer to `qkv`. If keys alone have no bias, the biases of queries and values
    /// are joined to `qkv.keyless_bias`.
    fn join(&mut self, attention: &str) -> Result<()> {
        const PARTS: [&str; 3] = ["q", "k", "v"];
        let three = |loose: &mut Self, part: &str| PARTS.map(|name| loose.take(&format!("{attention}.{name}.{part}")));
        let (weights, mut biases) = (three(self, "weight"), three(self, "bias"));
        if self.take(&format!("{attention}.qkv.bias_mask")).is_some() {
            // The mask is 1 for queries and values and 0 for keys, whose bias is left out.
            let bias = self
                .take(&format!("{attention}.qkv.bias"))
                .with_context(|| format!("it has no {attention}.qkv.bias"))?;
            ensure!(bias.size()[0] % 3 == 0, "its {attention}.qkv.bias is not of three equal parts");
            let parts = bias.chunk(3, 0);
            biases = [Some(parts[0].copy()), None, Some(parts[2].copy())];
        }
        let lacking = |all: &[Option<Tensor>; 3], part: &str| {
            let at = all.iter().position(Option::is_none).unwrap_or_default();
            format!(
                "it lacks the parameter that bella calls {attention}.{}.{part}, though it has its neighbours",
                PARTS[at]
            )
        };
        match weights {
            [None, None, None] => {}
            [Some(q), Some(k), Some(v)] => {
                ensure!(q.size() == k.size() && q.size() == v.size(), "its {attention} has parts of different sizes");
                self.put(format!("{attention}.qkv.weight"), Tensor::cat(&[q, k, v], 0));
            }
            some => bail!("{}", lacking(&some, "weight")),
        }
        match biases {
            [None, None, None] => {}
            [Some(q), None, Some(v)] => self.put(format!("{attention}.qkv.keyless_bias"), Tensor::cat(&[q, v], 0)),
            [Some(q), Some(k), Some(v)] => self.put(format!("{attention}.qkv.bias"), Tensor::cat(&[q, k, v], 0)),
            some => bail!("{}", lacking(&some, "bias")),
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
