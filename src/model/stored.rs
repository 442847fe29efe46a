//! The names under which a checkpoint stores its parameters, and the way back: from canonical parameters, such as trained
//! ones, to those that a checkpoint of the same family stores.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use super::network::Parameters;

/// The change that turns a stored tensor into the canonical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    AsIs,
    /// Drops leading axes of size one, as in `[1, …]` or `[1, 1, …]`.
    Squeezed,
    /// Reshapes `[1, k, d]` to `[k, d]`, including k = 1.
    Rows,
    /// Leaves out a parameter that images never go through.
    Ignored,
    /// Flattens a convolution `[d, 3, p, p]` to `[d, 3·p·p]`.
    Flattened,
    /// Transposes `[d, out]` to `[out, d]`.
    Transposed,
}

impl Form {
    /// Returns the canonical tensor in f32, sharing no memory with the stored one, which is called `name` in its file.
    ///
    /// # Errors
    /// Fails if the stored tensor has too few or too many axes for its place, or if it is a matrix of patches without a number.
    pub fn shaped(self, name: &str, tensor: &Tensor) -> Result<Tensor> {
        let (axes, rule) = match self {
            Form::AsIs | Form::Squeezed | Form::Ignored => (1..=usize::MAX, "at least one axis"),
            Form::Rows | Form::Flattened => (2..=usize::MAX, "at least two axes"),
            Form::Transposed => (2..=2, "two axes"),
        };
        let (size, is_empty) = (tensor.size(), self == Form::Flattened && tensor.numel() == 0);
        ensure!(
            axes.contains(&size.len()) && !is_empty,
            "its `{name}` has the shape {size:?}: must have {rule}, and a number"
        );
        let tensor = tensor.detach().to_kind(Kind::Float);
        Ok(match self {
            Form::AsIs => tensor.copy(),
            Form::Squeezed => {
                let mut squeezed = tensor.copy();
                while squeezed.dim() > 1 && squeezed.size()[0] == 1 {
                    squeezed = squeezed.squeeze_dim(0);
                }
                squeezed
            }
            Form::Rows => tensor.flatten(0, -2).copy(),
            Form::Ignored => unreachable!("an ignored parameter has no canonical form"),
            Form::Flattened => tensor.flatten(1, -1).copy(),
            Form::Transposed => tensor.tr().contiguous(),
        })
    }
}

/// The names and forms of a checkpoint's parameters.
#[derive(Clone, Debug, Default)]
pub struct StoredNames(Vec<StoredName>);

#[derive(Clone, Debug)]
struct StoredName {
    name: String,
    /// The canonical name before the parts of fused layers are joined, such as `blocks.0.attn.q.weight`.
    canonical: String,
    form: Form,
    /// Whether parts of layers that are stored apart, such as queries, keys and values, are one canonical layer.
    fused: bool,
}

/// Rows of a canonical parameter, and where the checkpoint stores them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The name of the stored parameter.
    pub name: String,
    /// The first of these rows in the canonical parameter.
    pub row: i64,
    pub rows: i64,
    /// The first of these rows in the stored parameter.
    pub stored_row: i64,
    /// Whether the stored parameter is the transposed one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transposed: bool,
}

/// The canonical parameters that a stored one consists of.
enum Contents {
    Whole(String),
    /// One of three equal parts of the rows.
    Third(String, i64),
    /// The rows of one after those of the other.
    Joined([String; 2]),
}

fn contents(StoredName { canonical, fused, .. }: &StoredName) -> Contents {
    if !fused {
        return Contents::Whole(canonical.clone());
    }
    for (part, index) in [("q", 0), ("k", 1), ("v", 2)] {
        if let Some((block, end)) = canonical.split_once(&format!(".attn.{part}.")) {
            return Contents::Third(format!("{block}.attn.qkv.{end}"), index);
        }
    }
    if let Some((block, end)) = canonical.split_once(".mlp.packed.") {
        return Contents::Joined([format!("{block}.mlp.gate.{end}"), format!("{block}.mlp.fc.{end}")]);
    }
    if let Some(end) = canonical.strip_prefix("pool.in_proj.") {
        return Contents::Joined([format!("pool.q.{end}"), format!("pool.kv.{end}")]);
    }
    Contents::Whole(canonical.replace("ln_mean.", "ln_post."))
}

/// Returns the canonical name of a bias of queries, keys and values where keys have none; other names give an empty text.
fn keyless(name: &str) -> String {
    match name.strip_suffix(".attn.qkv.bias") {
        Some(block) => format!("{block}.attn.qkv.keyless_bias"),
        None => String::new(),
    }
}

/// Returns the rows of two parameters one above the other, those of one that stays as it is from the old ones; `None` where both stay.
fn joined(old: &Tensor, new: [Option<Tensor>; 2]) -> Option<Tensor> {
    let rows = old.size()[0];
    let new = new.map(|part| part.map(|part| part.to_kind(old.kind())));
    match new {
        [None, None] => None,
        [Some(first), Some(second)] => Some(Tensor::cat(&[first, second], 0)),
        [Some(first), None] => {
            let above = first.size()[0];
            Some(Tensor::cat(&[first, old.narrow(0, above, rows - above)], 0))
        }
        [None, Some(second)] => Some(Tensor::cat(&[old.narrow(0, 0, rows - second.size()[0]), second], 0)),
    }
}

impl StoredNames {
    /// Returns the first stored name that ends in `end`.
    pub fn name_of_stored_end(&self, end: &str) -> Option<&str> {
        self.0.iter().map(|stored| stored.name.as_str()).find(|name| name.ends_with(end))
    }

    pub(super) fn push(&mut self, name: &str, canonical: &str, form: Form) {
        let (name, canonical) = (name.to_string(), canonical.to_string());
        self.0.push(StoredName { name, canonical, form, fused: true });
    }

    /// Collects parameters that are stored apart, each with its stored and its canonical name.
    pub(super) fn of_plain(all: impl Iterator<Item = (String, String, Form)>) -> StoredNames {
        let one = |(name, canonical, form)| StoredName { name, canonical, form, fused: false };
        StoredNames(all.map(one).collect())
    }

    /// Returns the names of a part of a network: `part` stands in front of canonical names, and `renamed` changes stored ones.
    pub(super) fn within(self, part: &str, renamed: impl Fn(&str) -> String) -> StoredNames {
        let one = |stored: StoredName| StoredName {
            name: renamed(&stored.name),
            canonical: format!("{part}{}", stored.canonical),
            ..stored
        };
        StoredNames(self.0.into_iter().map(one).collect())
    }

    /// Adds the names of another part.
    pub(super) fn with(mut self, other: StoredNames) -> StoredNames {
        self.0.extend(other.0);
        self
    }

    /// Notes which MLP layers hold their gate, now that the canonical parameters are known.
    pub(super) fn infer(&mut self, base: &Parameters) {
        let gates: Vec<String> = self.0.iter().map(|stored| stored.canonical.clone()).collect();
        for stored in &mut self.0 {
            let gate = stored.canonical.replace(".mlp.fc.", ".mlp.gate.");
            if gate != stored.canonical && base.get(&gate).is_some() && !gates.contains(&gate) {
                stored.canonical = stored.canonical.replace(".mlp.fc.", ".mlp.packed.");
            }
        }
    }

    /// Makes the classifier the projection of the features.
    pub(super) fn project_by_head(&mut self) {
        for stored in &mut self.0 {
            if let Some(part @ ("weight" | "bias")) = stored.canonical.strip_prefix("head.") {
                stored.canonical = format!("proj.{part}");
            }
        }
    }

    /// Returns where the checkpoint stores the canonical parameter `canonical` of `rows` rows. Rows that no piece has,
    /// such as a missing bias of the keys, are not stored.
    pub fn pieces(&self, canonical: &str, rows: i64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for stored in &self.0 {
            let StoredName { name, form, .. } = stored;
            let mut push = |row, rows, stored_row| {
                let transposed = *form == Form::Transposed;
                pieces.push(Piece { name: name.clone(), row, rows, stored_row, transposed });
            };
            match contents(stored) {
                Contents::Whole(whole) if whole == canonical => push(0, rows, 0),
                // The biases of queries and values, without that of the keys.
                Contents::Whole(whole) if keyless(&whole) == canonical => {
                    push(0, rows / 2, 0);
                    push(rows / 2, rows / 2, rows);
                }
                Contents::Third(whole, index) if keyless(&whole) == canonical => {
                    push(index / 2 * rows / 2, rows / 2, 0)
                }
                Contents::Third(whole, index) if whole == canonical => push(index * rows / 3, rows / 3, 0),
                Contents::Joined([first, _]) if first == canonical => push(0, rows, 0),
                // Queries before keys and values, or a gate before a factor of the same size.
                Contents::Joined([_, second]) if second == canonical => {
                    push(0, rows, if second.starts_with("pool.") { rows / 2 } else { rows });
                }
                _ => {}
            }
        }
        pieces.sort_by_key(|piece: &Piece| piece.row);
        pieces
    }

    /// Returns the names of the stored parameters of a layer, such as `blocks.0.mlp.fc`, without `.weight`.
    pub fn modules(&self, layer: &str, rows: i64) -> Vec<Piece> {
        let mut pieces = self.pieces(&format!("{layer}.weight"), rows);
        pieces.iter_mut().for_each(|piece| {
            piece.name = piece.name.trim_end_matches("weight").trim_end_matches(['.', '_']).to_string()
        });
        pieces
    }

    /// Returns the new value of the stored parameter `name`, whose old value is `old`, in its shape and type. `new`
    /// returns new canonical parameters. The result is `None` for a parameter that stays as it is.
    pub fn restored(&self, name: &str, old: &Tensor, new: &dyn Fn(&str) -> Option<Tensor>) -> Option<Tensor> {
        let stored = self.0.iter().find(|stored| stored.name == name)?;
        let StoredName { canonical, form, .. } = stored;
        let new = |name: &str| {
            new(name).or_else(|| {
                let both = new(&keyless(name))?.chunk(2, 0);
                Some(Tensor::cat(&[&both[0], &both[0].zeros_like(), &both[1]], 0))
            })
        };
        let value = match (canonical.as_str(), contents(stored)) {
            // bella's one head is the mean of DeiT's two, side by side.
            ("head.weight" | "head_dist.weight", _) if self.has("head_dist.weight") => {
                let both = new("head.weight")?;
                let width = both.size()[1] / 2;
                both.narrow(1, if canonical == "head.weight" { 0 } else { width }, width) * 2.0
            }
            ("head_dist.bias", _) => new("head.bias")?,
            (_, Contents::Whole(whole)) => new(&whole)?,
            (_, Contents::Third(whole, index)) => {
                let whole = new(&whole)?;
                let rows = whole.size()[0] / 3;
                whole.narrow(0, index * rows, rows)
            }
            (_, Contents::Joined([first, second])) => {
                let old = if *form == Form::Transposed { &old.tr() } else { old };
                joined(old, [new(&first), new(&second)])?
            }
        };
        let value = if *form == Form::Transposed { value.tr() } else { value };
        // A new head may have another number of classes.
        let mut size = if canonical.starts_with("head") { value.size() } else { old.size() };
        // The positions of another image size are others in number.
        if value.numel() != old.numel() && size.len() > 1 {
            let tokens = size.len() - 2;
            size[tokens] = -1;
        }
        Some(value.to_kind(old.kind()).reshape(&size).contiguous())
    }

    /// Returns the stored name of a canonical parameter that is stored in one piece.
    pub fn name_of(&self, canonical: &str) -> Option<&str> {
        self.0.iter().find(|stored| stored.canonical == canonical).map(|stored| stored.name.as_str())
    }

    fn has(&self, canonical: &str) -> bool {
        self.name_of(canonical).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows of the gate, or the queries, and those of the other part behind them.
    #[test]
    fn a_packed_parameter_keeps_the_part_that_stays_as_it_is() {
        let old = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let mut names = StoredNames::default();
        names.push("fc1.bias", "blocks.0.mlp.packed.bias", Form::AsIs);
        names.push("in_proj_bias", "pool.in_proj.bias", Form::AsIs);
        names.push("fc1.weight", "blocks.0.mlp.packed.weight", Form::Transposed);
        let restored = |stored: &str, old: &Tensor, changed: &str, rows: &[i64]| {
            let new = |name: &str| (name == changed).then(|| Tensor::zeros(rows, tch::kind::FLOAT_CPU));
            names.restored(stored, old, &new).map(|value| Vec::<f64>::try_from(value.flatten(0, -1)).unwrap())
        };
        let bias = |changed: &str| restored("fc1.bias", &old, changed, &[3]);
        assert_eq!(bias("blocks.0.mlp.gate.bias").unwrap(), [0.0, 0.0, 0.0, 4.0, 5.0, 6.0]);
        assert_eq!(bias("blocks.0.mlp.fc.bias").unwrap(), [1.0, 2.0, 3.0, 0.0, 0.0, 0.0]);
        assert_eq!(bias("blocks.1.mlp.fc.bias"), None);
        let pool = |changed: &str, rows| restored("in_proj_bias", &old, changed, &[rows]).unwrap();
        assert_eq!(pool("pool.q.bias", 2), [0.0, 0.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(pool("pool.kv.bias", 4), [1.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        // Stored as [inputs, outputs]: the gate has the first column of each row.
        let turned = restored("fc1.weight", &old.reshape([3, 2]), "blocks.0.mlp.gate.weight", &[1, 3]).unwrap();
        assert_eq!(turned, [0.0, 2.0, 0.0, 4.0, 0.0, 6.0]);
    }
}
