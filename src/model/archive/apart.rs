//! Tensors of an archive that share elements of one storage. A view into a parameter is a tensor of its own here, as it is once
//! a particle's values take the parameter's place; but libtorch, and what it saves, would change both at once.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use tch::{Device, Kind, Tensor};

use super::stored::Stored;

/// Checks that no parameter shares elements with another tensor, unless it is the same parameter under a second name (tied),
/// nor with itself. `others` are the tensors that are no parameters.
///
/// # Errors
/// Fails with the names of two tensors that do, and with the way to part them.
pub fn check(parameters: &[Stored], others: &[Stored]) -> Result<()> {
    if let Some(Stored { name, .. }) = parameters.iter().find(|parameter| parameter.repeats()) {
        bail!(
            "elements of parameter `{name}` lie in one place in memory, as after .expand(): give each its own before the module is \
             exported, by .data.clone()"
        );
    }
    let mut by_storage: BTreeMap<&str, Vec<(&Stored, bool)>> = BTreeMap::new();
    let all = parameters.iter().map(|tensor| (tensor, true)).chain(others.iter().map(|tensor| (tensor, false)));
    for (tensor, is_parameter) in all {
        let earlier = by_storage.entry(&tensor.storage).or_default();
        let clashes = |(other, is_other): &&(&Stored, bool)| match (is_parameter, *is_other) {
            (true, true) => !tensor.is_tied_to(other) && tensor.meets(other),
            (false, false) => false,
            _ => tensor.meets(other),
        };
        if let Some((other, _)) = earlier.iter().find(clashes) {
            let (parameter, view) = if is_parameter { (tensor, *other) } else { (*other, tensor) };
            bail!(
                "parameter `{}` shares memory with `{}`, which is another view of it: training one would change the other: part them \
                 before the module is exported, by .data.clone(), or compute the view in forward",
                parameter.name,
                view.name
            );
        }
        earlier.push((tensor, is_parameter));
    }
    Ok(())
}

impl Stored {
    fn is_tied_to(&self, other: &Stored) -> bool {
        (&self.storage, self.offset, &self.shape, &self.strides)
            == (&other.storage, other.offset, &other.shape, &other.strides)
    }

    /// Returns the places of the first element in the storage and behind the last one; `None` without elements.
    fn span(&self) -> Option<(i64, i64)> {
        let end = self.elements().filter(|end| *end > 0)?;
        Some((self.offset, end as i64))
    }

    /// Returns whether two elements may lie in one place: an axis steps by less than the axes within it reach.
    fn repeats(&self) -> bool {
        let mut axes: Vec<(i64, i64)> =
            self.strides.iter().copied().zip(self.shape.iter().copied()).filter(|(_, length)| *length > 1).collect();
        axes.sort_unstable();
        let mut reach = 0;
        self.count() > 0
            && axes.into_iter().any(|(stride, length)| {
                let overlaps = stride <= reach;
                reach += stride * (length - 1);
                overlaps
            })
    }

    /// Returns whether an element of both lies in one place.
    fn meets(&self, other: &Stored) -> bool {
        let (Some((from, to)), Some((start, end))) = (self.span(), other.span()) else { return false };
        if self.storage != other.storage || to <= start || end <= from {
            return false;
        }
        let marks = Tensor::zeros([to.max(end)], (Kind::Bool, Device::Cpu));
        let view = |of: &Stored| marks.as_strided(&of.shape, &of.strides, of.offset);
        let _ = view(other).fill_(1);
        view(self).any().int64_value(&[]) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, offset: i64, shape: &[i64], strides: &[i64]) -> Stored {
        let (name, storage) = (name.to_string(), "data/0".to_string());
        Stored { name, shape: shape.to_vec(), kind: Kind::Float, storage, offset, strides: strides.to_vec() }
    }

    fn refused(parameters: &[Stored], others: &[Stored]) -> String {
        check(parameters, others).map_or_else(|why| why.to_string(), |()| String::new())
    }

    #[test]
    fn tensors_beside_and_between_each_other_are_apart() {
        let (flat, after) = (tensor("a", 0, &[4, 3], &[3, 1]), tensor("b", 12, &[5], &[1]));
        assert_eq!(refused(&[flat, after], &[]), "");
        // Columns of one matrix.
        let columns = [tensor("even", 0, &[4, 2], &[4, 2]), tensor("odd", 1, &[4, 2], &[4, 2])];
        assert_eq!(refused(&columns, &[]), "");
        // The same parameter twice, and another entry of the file.
        let mut other = tensor("other", 0, &[4, 3], &[3, 1]);
        other.storage = "data/1".into();
        let tied = [tensor("a", 0, &[4, 3], &[3, 1]), tensor("b", 0, &[4, 3], &[3, 1]), other];
        assert_eq!(refused(&tied, &[]), "");
        assert_eq!(refused(&[tensor("none", 0, &[0, 3], &[3, 1])], &[tensor("x", 0, &[3], &[1])]), "");
    }

    #[test]
    fn another_view_of_a_parameter_is_refused() {
        let square = || tensor("encode.weight", 0, &[3, 3], &[3, 1]);
        let transposed = tensor("decode.weight", 0, &[3, 3], &[1, 3]);
        let line = refused(&[square(), transposed], &[]);
        assert!(line.starts_with("parameter `decode.weight` shares memory with `encode.weight`"), "{line}");
        let line = refused(&[square()], &[tensor("row", 6, &[3], &[1])]);
        assert!(line.starts_with("parameter `encode.weight` shares memory with `row`"), "{line}");
        // A tensor that is no parameter would keep the old values.
        let line = refused(&[square()], &[tensor("copy", 0, &[3, 3], &[3, 1])]);
        assert!(line.contains("shares memory with `copy`"), "{line}");
        let line = refused(&[tensor("wide", 0, &[8, 3], &[0, 1])], &[]);
        assert!(line.starts_with("elements of parameter `wide` lie in one place"), "{line}");
        assert!(refused(&[tensor("windows", 0, &[4, 3], &[1, 1])], &[]).contains("`windows`"));
    }
}
