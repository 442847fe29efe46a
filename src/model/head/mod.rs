//! Heads turn features `[p, B, d]` into logits `[p, B, C]`. Each has one file and is registered in [`HEADS`].

pub mod built_in;
mod entries;
mod gaussian;
pub mod names;
pub mod prompts;
mod random_features;
pub mod tokenizer;
pub mod tokens;

use std::path::{Path, PathBuf};

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::base::tensor::capped;
use crate::data::Medium;
use crate::data::numbers::Scale;
use crate::machine::linear_kernels::{linear, linear_per_particle};
use crate::model::backbone::Words;
use crate::model::families::OUTPUT;
use crate::model::network::ops::{Dual, Tangents, dual};
use crate::model::network::{Rows, Weights};
use crate::model::recognition::identify::IdentifiedText;
use crate::model::vit::OwnHead;
use crate::schema::{Reader, Resolved};

pub use entries::HEADS;
pub use entries::answers::{token_log_probabilities, tokens_of_answers};
pub use gaussian::{Gaussian, Noise};
pub use random_features::RandomFeatures;

/// The way in which a subspace trains the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// The head is always frozen.
    Never,
    /// The head is a parameter of the checkpoint like any other: trained by `full`, frozen by `low-rank`.
    WithBackbone,
    /// The head is new, and every particle trains its own.
    Always,
    /// The head is rows of a weight of the network: trained by `full` with that weight, and by `last-layer` alone.
    OfNetwork,
    /// The head is the whole output matrix of the network, which writes tokens: trained as any other layer of it.
    Tokens,
}

impl Training {
    /// Returns the tokens of a text whose hidden states the head reads.
    pub fn rows(self) -> Rows {
        if self == Training::Tokens { Rows::All } else { Rows::Last }
    }
}

/// The data from which a head is built.
pub struct HeadContext<'a> {
    /// The width of the features, d.
    pub width: i64,
    pub classes: &'a [String],
    pub own: Option<&'a OwnHead>,
    /// The tokenizer and the weights of the language network, also of one that sees images; `None` if there is none.
    pub words: Option<Words<'a>>,
    /// The kind of samples that the network takes.
    pub medium: Medium,
    pub checkpoint: Checkpoint<'a>,
}

/// The checkpoint, from which a head may read a text tower.
pub struct Checkpoint<'a> {
    pub path: &'a Path,
    /// Returns the text tower, `None` where the checkpoint has none. It is read only if it is needed.
    pub text: &'a dyn Fn() -> Result<Option<IdentifiedText>>,
    /// Returns the SHA-256 of the checkpoint's content. It is computed only if it is needed.
    pub hash: &'a dyn Fn() -> Result<String>,
    /// The device on which the head is computed.
    pub device: Device,
}

/// The settings of a head, as read from `[head.*]`.
pub trait HeadSpec: Resolved {
    fn build(&self, context: &HeadContext) -> Result<Head>;

    /// Returns a head of zeros, of the shapes that the head has for so many classes and features of the width d, by which plans are made.
    fn outline(&self, classes: i64, width: i64) -> Head {
        let training = self.training();
        let rows = (training == Training::OfNetwork).then(|| Tensor::arange(classes, (Kind::Int64, Device::Cpu)));
        Head { rows, ..Head::zeros(if training == Training::Tokens { 0 } else { classes }, width, training) }
    }

    /// Gives unset settings the defaults of the data set `data`, if they depend on it.
    fn settle(&mut self, _data: &str) {}

    /// Returns whether a subspace trains the head.
    fn training(&self) -> Training;

    /// Returns the most tokens of an answer, if the head writes answers instead of choosing classes.
    fn answer_tokens(&self) -> Option<usize> {
        None
    }

    /// Returns the noise of a head that predicts a number in place of a class.
    fn noise(&self) -> Option<Noise> {
        None
    }

    /// Returns the files whose content is part of the experiment's identity.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// A registered head.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub read: fn(&Reader) -> Box<dyn HeadSpec>,
}

/// A linear classifier on features.
pub struct Head {
    /// The weight, `[C, d]`.
    pub weight: Tensor,
    /// The bias, `[C]`. Where it is longer than the weight, the outputs beyond are biases alone.
    pub bias: Tensor,
    /// Whether features are L2-normalised first.
    pub normalised: bool,
    /// The random features that the weight is of, `[C, D]`, if it is not of the features themselves.
    pub random: Option<RandomFeatures>,
    pub training: Training,
    /// The rows `[C]` of a language network's output matrix that are the weight.
    pub rows: Option<Tensor>,
    /// The bound c of the logits, c tanh(z / c), if the network has one.
    pub cap: Option<f64>,
    /// The texts of the classes, where the checkpoint's own text tower has embedded them.
    pub texts: Option<Texts>,
    /// The Gaussian that the outputs mean, if they predict a number in place of classes.
    pub gaussian: Option<Gaussian>,
}

/// The texts of a zero-shot head in front of the text tower's projection Q. The embedding of class c, h_c = Q ψ_c + o_c, has
/// the direction of row c of the head's weight.
#[derive(Debug)]
pub struct Texts {
    /// The vectors ψ_c `[C, w]`: the mean over the templates of what enters Q, each divided by the norm of its embedding.
    pub inputs: Tensor,
    /// The vectors o_c `[C, d]`: the projection's bias times the mean of one over these norms; zeros without a bias.
    pub offsets: Tensor,
    /// The projection Q, `[d, w]`.
    pub projection: Tensor,
}

impl Texts {
    /// Returns the embeddings h, `[…, C, d]`, under projections `[…, d, w]`.
    pub fn embeddings(&self, projection: &Tensor) -> Tensor {
        self.inputs.matmul(&projection.transpose(-2, -1)) + &self.offsets
    }

    fn map(&self, of: impl Fn(&Tensor) -> Tensor) -> Texts {
        Texts { inputs: of(&self.inputs), offsets: of(&self.offsets), projection: of(&self.projection) }
    }
}

impl Head {
    /// Returns a classifier on the features as they are, with `weight: [C, d]` and `bias: [C]`.
    pub fn new(weight: Tensor, bias: Tensor, training: Training) -> Head {
        let (normalised, random, rows, cap, texts, gaussian) = (false, None, None, None, None, None);
        Head { weight, bias, normalised, random, training, rows, cap, texts, gaussian }
    }

    /// Returns a classifier of zeros, with `weight: [C, d]` and `bias: [C]`.
    pub fn zeros(classes: i64, width: i64, training: Training) -> Head {
        let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, Device::Cpu));
        Head::new(zeros(&[classes, width]), zeros(&[classes]), training)
    }

    /// Returns the head on another device, in f32 or f64.
    pub fn to(&self, device: Device, kind: Kind) -> Head {
        let rows = self.rows.as_ref().map(|rows| rows.to_device(device));
        Head { rows, ..self.map(|tensor| tensor.to_device(device).to_kind(kind)) }
    }

    /// Returns the same head, sharing its tensors.
    pub fn again(&self) -> Head {
        self.map(Tensor::shallow_clone)
    }

    fn map(&self, of: impl Fn(&Tensor) -> Tensor) -> Head {
        let rows = self.rows.as_ref().map(Tensor::shallow_clone);
        let texts = self.texts.as_ref().map(|texts| texts.map(&of));
        let random = self.random.as_ref().map(|random| random.map(&of));
        let Head { normalised, training, cap, gaussian, .. } = *self;
        Head {
            weight: of(&self.weight),
            bias: of(&self.bias),
            normalised,
            random,
            training,
            rows,
            cap,
            texts,
            gaussian,
        }
    }

    /// Returns the same head, whose Gaussian has the scale of the training numbers.
    pub fn scaled(self, scale: Option<Scale>) -> Head {
        let gaussian = self.gaussian.map(|own| Gaussian { scale: scale.unwrap_or(own.scale), ..own });
        Head { gaussian, ..self }
    }

    /// Returns the Gaussian of a head that predicts a number.
    ///
    /// # Panics
    /// Panics if it has classes, which configs exclude where numbers are learnt.
    pub fn gaussian(&self) -> &Gaussian {
        self.gaussian.as_ref().expect("a head of numbers")
    }

    /// Returns the number of outputs, which are logits of classes but for a head of numbers; 0 for a head that writes tokens.
    pub fn classes(&self) -> i64 {
        self.bias.size()[0]
    }

    /// Returns what the classifier sees of features `[p, B, d]`, in the type of the head: normalised if it wants them so, and random
    /// features of them if it has such.
    pub fn inputs(&self, features: &Tensor) -> Tensor {
        let features = self.normed(features);
        match &self.random {
            Some(random) => random.of(&features),
            None => features,
        }
    }

    /// Returns features in the type of the head, normalised if it wants them so.
    fn normed(&self, features: &Tensor) -> Tensor {
        let features = features.to_kind(self.weight.kind());
        if !self.normalised {
            return features;
        }
        let norm = features.norm_scalaropt_dim(2.0, [-1], true).clamp_min(1e-12);
        features / norm
    }

    /// Returns logits `[p, B, C]` in the type of the head, from features `[p, B, d]`.
    pub fn logits(&self, weights: &Weights, features: &Tensor) -> Tensor {
        let logits = self.classify(weights, &self.inputs(features));
        self.cap.map_or_else(|| logits.shallow_clone(), |cap| capped(&logits, cap))
    }

    /// Returns the weight `[C, d]` and the bias `[C]` of the classifier of one member, in f64: they are read off what it makes of unit
    /// vectors, since members adapt it in several ways.
    pub fn classifier(&self, weights: &Weights) -> (Tensor, Tensor) {
        let (width, kind, device) = (self.weight.size()[1], self.weight.kind(), self.weight.device());
        let units = Tensor::eye(width, (kind, device));
        let inputs = Tensor::cat(&[units.narrow(0, 0, 1).zeros_like(), units], 0).unsqueeze(0);
        let logits = self.classify(weights, &inputs).squeeze_dim(0).to_kind(Kind::Double);
        let bias = logits.get(0);
        ((logits.narrow(0, 1, width) - &bias).tr(), bias)
    }

    /// Returns logits `[p, B, C]`, before they are bounded, from [`inputs`](Self::inputs).
    fn classify(&self, weights: &Weights, features: &Tensor) -> Tensor {
        let kind = self.weight.kind();
        match (weights.own("head.weight"), weights.own("head.bias")) {
            (Some(weight), Some(bias)) => {
                let (weight, bias) = (weight.to_kind(kind), bias.to_kind(kind));
                let x = features.expand([weight.size()[0], -1, -1], false);
                let [bias, beyond] = split_bias(&weight, &bias);
                let logits = linear_per_particle(&x, &weight, Some(&bias));
                weights.record_head(features, &logits);
                with_biases(logits, &beyond)
            }
            _ => match &self.rows {
                Some(rows) if weights.adapts(OUTPUT) => of_rows(weights, rows, features),
                _ => {
                    let [bias, beyond] = split_bias(&self.weight, &self.bias);
                    with_biases(linear(features, &self.weight, Some(&bias)), &beyond.unsqueeze(0))
                }
            },
        }
    }
}

/// Returns the biases of the rows of a weight `[…, R, d]`, and those beyond them, of `bias: […, C]`.
fn split_bias(weight: &Tensor, bias: &Tensor) -> [Tensor; 2] {
    let (rows, all) = (weight.size()[weight.dim() - 2], bias.size()[bias.dim() - 1]);
    [bias.narrow(-1, 0, rows), bias.narrow(-1, rows, all - rows)]
}

/// Returns the outputs `[p, B, R]` of a weight with biases `[p, C − R]` behind them, which are the same for all samples.
fn with_biases(outputs: Tensor, beyond: &Tensor) -> Tensor {
    if beyond.size()[1] == 0 {
        return outputs;
    }
    let beyond = beyond.unsqueeze(1).expand([outputs.size()[0], outputs.size()[1], -1], false);
    Tensor::cat(&[outputs, beyond], 2)
}

/// Logits and their derivatives.
impl Head {
    /// Returns logits `[1, B, C]` in the type of the head, with their derivatives `[S, B, C]` along moves of the head's weights and of what
    /// enters it, from features `[1, B, d]`.
    pub fn logits_along(&self, tangents: &Tangents, features: &Dual) -> Dual {
        let logits = self.unbounded_along(tangents, features);
        if let Some(cap) = self.cap { dual::capped(logits, cap) } else { logits }
    }

    fn unbounded_along(&self, tangents: &Tangents, features: &Dual) -> Dual {
        let (kind, mode, moves) = (self.weight.kind(), tangents.mode(), tangents.moves());
        let x = self.inputs_along(features);
        if let (Some(rows), true) = (&self.rows, mode.adapts(OUTPUT) && mode.own("head.weight").is_none()) {
            let [own, moves] = [mode, moves].map(|weights| weights.linear(OUTPUT).picked(rows, kind));
            return dual::layer(&own, &moves, &x.linearly(|x| x.unsqueeze(2))).linearly(|y| y.squeeze_dim(2));
        }
        let own = mode.own("head.weight").map(|own| own.squeeze_dim(0).to_kind(kind));
        let weight = own.unwrap_or_else(|| self.weight.shallow_clone());
        let by_inputs = x.moved.as_ref().map(|moved| linear(moved, &weight, None));
        let by_weights = moves.own("head.weight").zip(moves.own("head.bias")).map(|(weight, bias)| {
            let (weight, bias) = (weight.to_kind(kind), bias.to_kind(kind));
            let [bias, beyond] = split_bias(&weight, &bias);
            let x = x.value.expand([weight.size()[0], -1, -1], false);
            (linear_per_particle(&x, &weight, Some(&bias)), beyond)
        });
        let (by_weights, beyond) = by_weights.unzip();
        let moved = [by_inputs, by_weights].into_iter().flatten().reduce(|a, b| a + b);
        let moved = match (moved, beyond) {
            (Some(moved), Some(beyond)) => Some(with_biases(moved, &beyond)),
            (moved, _) => moved,
        };
        Dual { value: self.classify(mode, &x.value), moved }
    }

    /// Returns [`inputs`](Self::inputs) with their derivatives.
    fn inputs_along(&self, features: &Dual) -> Dual {
        let normed = Dual { value: self.normed(&features.value), moved: self.normed_moved(features) };
        match &self.random {
            Some(random) => random.dual(&normed),
            None => normed,
        }
    }

    /// Returns the derivatives of [`normed`](Self::normed). Those of u = f / ‖f‖ are (ḟ − u uᵀḟ) / ‖f‖.
    fn normed_moved(&self, features: &Dual) -> Option<Tensor> {
        let kind = self.weight.kind();
        let moved = features.moved.as_ref()?.to_kind(kind);
        if !self.normalised {
            return Some(moved);
        }
        let (own, unit) = (features.value.to_kind(kind), self.normed(&features.value));
        let norm = own.norm_scalaropt_dim(2.0, [-1], true).clamp_min(1e-12);
        let along = (&moved * &unit).sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>);
        Some((moved - unit * along) / norm)
    }
}

/// Returns the logits `[p, B, C]` of some rows of the output matrix, which particles adapt, from `features: [p, B, d]`. On a
/// tape, each row is a use of its own.
fn of_rows(weights: &Weights, rows: &Tensor, features: &Tensor) -> Tensor {
    let (output, x, kind) = (weights.linear(OUTPUT), features.unsqueeze(2), features.kind());
    if !output.is_recorded() {
        return output.picked(rows, kind).forward(&x).squeeze_dim(2);
    }
    let one = |row: i64| output.rows(rows.int64_value(&[row]), 1).to_kind(kind).forward(&x);
    Tensor::cat(&(0..rows.size()[0]).map(one).collect::<Vec<_>>(), 3).squeeze_dim(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of `unit_features` are normalised before a head makes random features of them.
    #[test]
    fn random_features_are_of_normalised_ones() {
        tch::manual_seed(3);
        let draw = |size: &[i64]| Tensor::randn(size, tch::kind::DOUBLE_CPU);
        let random = || RandomFeatures { weight: draw(&[7, 5]), bias: draw(&[7]) };
        let head = Head::new(draw(&[2, 7]), draw(&[2]), Training::Always);
        let head = Head { normalised: true, random: Some(random()), ..head };
        // Their variance is so small that the constant that is added to it counts.
        let features = draw(&[1, 4, 5]) * 1e-3;
        let unit = &features / features.norm_scalaropt_dim(2.0, [-1], true);
        let expected = head.random.as_ref().unwrap().of(&unit);
        assert!(head.inputs(&features).allclose(&expected, 1e-9, 1e-9, false));
        let (moved, step) = (draw(&[1, 4, 5]) * 1e-3, 1e-5);
        let along = Dual { value: features.shallow_clone(), moved: Some(moved.shallow_clone()) };
        let [up, down] = [step, -step].map(|step| head.inputs(&(&features + &moved * step)));
        let slope = head.inputs_along(&along).moved.unwrap();
        assert!(slope.allclose(&((up - down) / (2.0 * step)), 1e-6, 1e-6, false));
    }
}
