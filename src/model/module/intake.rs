//! What a module takes: images, or the tokens of texts.

use tch::{IValue, Kind, Tensor};

use crate::data::fields::{Fields, IDS, KINDS, MASK, PIXELS, of_texts};
use crate::model::archive::Archive;
use crate::schema::words;

/// What a module takes.
#[derive(Clone, Debug)]
pub enum Intake {
    /// Images `[B, 3, S, S]` of S pixels per side.
    Images(i64),
    Texts(Texts),
}

/// The tokens of texts that a module takes.
#[derive(Clone, Debug)]
pub struct Texts {
    /// The most tokens of a text.
    pub tokens: i64,
    /// The number of tensors `[B, T]` that `forward` takes: ids and mask, and the kinds of tokens if there are three.
    pub inputs: usize,
    pub padding: Padding,
}

/// What stands in a text that is shorter than others of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The token that fills the text up.
    pub id: i64,
    pub side: Side,
}

words! {
    /// The side of a text on which padding stands.
    pub enum Side {
        Left = "left",
        Right = "right",
    }
}

impl Intake {
    /// Returns the word for one sample, for messages.
    pub fn sample(&self) -> &'static str {
        match self {
            Intake::Images(_) => "image",
            Intake::Texts(_) => "text",
        }
    }

    /// Returns the shapes of one sample.
    pub fn shape(&self) -> Fields<Vec<i64>> {
        match self {
            Intake::Images(size) => Fields::of(PIXELS, vec![3, *size, *size]),
            Intake::Texts(texts) => {
                let names = [IDS, MASK, KINDS].into_iter().take(texts.inputs);
                Fields::new(names.map(|name| (name, vec![texts.tokens])).collect())
            }
        }
    }

    /// Returns the samples of one tensor: images `[B, 3, S, S]`, or texts `[B, 2 or 3, T]`.
    pub fn samples(&self, packed: &Tensor) -> Fields {
        match self {
            Intake::Images(_) => Fields::of(PIXELS, packed.shallow_clone()),
            Intake::Texts(_) => of_texts(packed),
        }
    }

    /// Returns the method of a module that takes such samples.
    pub fn method(&self, archive: &Archive) -> &'static str {
        match self {
            Intake::Images(_) => archive.image_method(),
            Intake::Texts(_) => "forward",
        }
    }

    /// Returns the arguments of the module's method for samples `[B, …]`.
    pub fn arguments(&self, samples: &Fields) -> Vec<IValue> {
        match self {
            Intake::Images(_) => vec![IValue::Tensor(samples.get(PIXELS).shallow_clone())],
            Intake::Texts(texts) => texts.padding.arguments(samples).into_iter().map(IValue::Tensor).collect(),
        }
    }
}

impl Padding {
    /// Returns ids, mask and, if there are any, the kinds of tokens, each int64 `[B, T]`, of texts whose padding stands on the
    /// right.
    pub fn arguments(self, samples: &Fields) -> Vec<Tensor> {
        let samples = self.on_its_side(samples.map(|values| values.to_kind(Kind::Int64)));
        let ids = samples.get(IDS).masked_fill(&samples.get(MASK).eq(0), self.id);
        samples.with(IDS, ids).into_values().collect()
    }

    /// Moves the padding of texts `[B, T]`, which stands on the right, to its side.
    fn on_its_side(self, samples: Fields) -> Fields {
        if self.side == Side::Right {
            return samples;
        }
        let mask = samples.get(MASK);
        let tokens = mask.sum_dim_intlist([1i64].as_slice(), true, Kind::Int64);
        let length = mask.size()[1];
        let index = (Tensor::arange(length, (Kind::Int64, mask.device())) + tokens).remainder(length);
        samples.map(|values| values.gather(1, &index, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(inputs: usize, side: Side) -> Vec<Vec<i64>> {
        let padding = Padding { id: 9, side };
        let samples = Tensor::from_slice(&[5i32, 6, 7, 0, 1, 1, 1, 0, 0, 0, 1, 0]).view([1, 3, 4]);
        let arguments = padding.arguments(&of_texts(&samples.narrow(1, 0, inputs as i64)));
        arguments.iter().map(|tensor| Vec::try_from(tensor.reshape([-1])).unwrap()).collect()
    }

    #[test]
    fn padding_has_its_token_and_stands_on_its_side() {
        assert_eq!(texts(3, Side::Right), [[5, 6, 7, 9], [1, 1, 1, 0], [0, 0, 1, 0]]);
        assert_eq!(texts(3, Side::Left), [[9, 5, 6, 7], [0, 1, 1, 1], [0, 0, 0, 1]]);
        assert_eq!(texts(2, Side::Right).len(), 2);
    }
}
