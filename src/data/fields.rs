//! Values by name: the tensors of samples, and what travels between the stages of a network.

use tch::{Device, Tensor};

use crate::base::tensor::upload;

/// The bytes of images as they are stored, or images as a network sees them, `[…, 3, h, w]`.
pub const PIXELS: &str = "pixels";

/// The numbers of a row, `[…, F]`.
pub const VALUES: &str = "values";

/// The ids of a text's tokens, `[…, T]`.
pub const IDS: &str = "ids";

/// 1 where a text has a token, `[…, T]`.
pub const MASK: &str = "mask";

/// The kinds of tokens, such as the number of their text in a pair, `[…, T]`.
pub const KINDS: &str = "kinds";

/// Returns the rows of texts `[N, 2 or 3, T]` by name.
pub fn of_texts(packed: &Tensor) -> Fields {
    let rows = [IDS, MASK, KINDS].into_iter().zip(0..packed.size()[1]);
    Fields::new(rows.map(|(name, row)| (name, packed.select(1, row))).collect())
}

/// Values by name, in an order. Tensors have the same first axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields<V = Tensor>(Vec<(&'static str, V)>);

impl<V> Fields<V> {
    pub fn new(fields: Vec<(&'static str, V)>) -> Fields<V> {
        Fields(fields)
    }

    /// Takes one value.
    pub fn of(name: &'static str, value: V) -> Fields<V> {
        Fields(vec![(name, value)])
    }

    /// Returns the value `name`.
    ///
    /// # Panics
    /// Panics if there is none: a network has been given samples of another kind than it takes, which configs exclude.
    pub fn get(&self, name: &str) -> &V {
        self.find(name).unwrap_or_else(|| panic!("samples have no {name}, but {:?}", self.names().collect::<Vec<_>>()))
    }

    /// Returns the value `name`, if there is one.
    pub fn find(&self, name: &str) -> Option<&V> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Returns the first value.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn first(&self) -> &V {
        self.values().next().expect("samples have at least one value")
    }

    /// Returns the only value there is.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn only(self) -> V {
        self.0.into_iter().next().expect("samples have at least one value").1
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Adds the value `name`.
    pub fn and(mut self, name: &'static str, value: V) -> Fields<V> {
        self.0.push((name, value));
        self
    }

    /// Replaces the value `name`.
    pub fn with(mut self, name: &'static str, value: V) -> Fields<V> {
        if let Some((_, own)) = self.0.iter_mut().find(|(own, _)| *own == name) {
            *own = value;
        }
        self
    }

    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }

    /// Applies `of` to each value, for example to select some particles and samples.
    pub fn map<W>(&self, mut of: impl FnMut(&V) -> W) -> Fields<W> {
        Fields(self.0.iter().map(|(name, value)| (*name, of(value))).collect())
    }

    /// Puts each value together with the value of the same name in `other`.
    pub fn zip<'a, W>(&'a self, other: &'a Fields<W>) -> impl Iterator<Item = (&'a V, &'a W)> {
        self.0.iter().map(|(name, value)| (value, other.get(name)))
    }
}

impl Fields<Tensor> {
    /// Returns the same values, sharing their tensors.
    pub fn again(&self) -> Fields {
        self.map(Tensor::shallow_clone)
    }

    /// Returns the length of one of the axes that all values share.
    pub fn length(&self, axis: usize) -> i64 {
        self.first().size()[axis]
    }

    /// Returns samples `[K, …]` as those of one particle, `[1, K, …]`.
    pub fn for_all(&self) -> Fields {
        self.map(|values| values.unsqueeze(0))
    }

    /// Returns samples `[p · K, …]`, those of one particle after the other, as `[p, K, …]`.
    pub fn of_particles(&self, particles: i64) -> Fields {
        self.map(|values| values.unflatten(0, [particles, values.size()[0] / particles].as_slice()))
    }

    pub fn narrow(&self, axis: i64, start: i64, length: i64) -> Fields {
        self.map(|values| values.narrow(axis, start, length))
    }

    pub fn detach(&self) -> Fields {
        self.map(Tensor::detach)
    }

    /// Returns the values on a device.
    pub fn on(&self, device: Device) -> Fields {
        self.map(|values| upload(values, device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_shared_out_by_name() {
        let packed = Tensor::from_slice(&(0..24).collect::<Vec<i32>>()).view([4, 3, 2]);
        let texts = of_texts(&packed);
        assert_eq!(texts.names().collect::<Vec<_>>(), [IDS, MASK, KINDS]);
        let [two, all] = [texts.of_particles(2), texts.for_all()];
        assert_eq!((two.length(0), two.length(1), all.length(0)), (2, 2, 1));
        // The second text of the second particle is the last one.
        let last = two.narrow(0, 1, 1).narrow(1, 1, 1);
        assert_eq!(Vec::<i32>::try_from(last.get(KINDS).reshape([-1])).unwrap(), [22, 23]);
        assert_eq!(of_texts(&packed.narrow(1, 0, 2)).find(KINDS), None);
    }

    #[test]
    #[should_panic(expected = "samples have no ids, but [\"pixels\"]")]
    fn a_network_of_texts_is_told_that_there_are_images() {
        Fields::of(PIXELS, Tensor::new()).get(IDS);
    }
}
