//! The layers of n particles: linear layers and norms, whose weights are shared by all particles, one per particle, or shared
//! with a low-rank update or with factors of their inputs and outputs. Shared weights of linear layers may be quantised.

use std::cell::RefCell;
use std::rc::Rc;

use tch::{Kind, Tensor};

use super::low_rank::Scales;
use crate::base::tensor::wide;
use crate::data::Fields;
use crate::data::fields::MASK;
use crate::machine::fused::{Adapted, Curve};
use crate::machine::linear_kernels::{linear, linear_per_particle};
use crate::machine::quantised::Quantised;
use crate::model::network::low_rank::{Flipped, LowRank};

/// A parameter of a layer.
#[derive(Debug)]
pub enum Param {
    /// One tensor for all particles, in its own shape.
    Shared(Tensor),
    /// One matrix for all particles, in fewer bits.
    Quantised(Quantised),
    /// One tensor per particle, `[n, …shape]`.
    PerParticle(Tensor),
}

impl Param {
    /// Returns a vector parameter in a shape that can be added to `[p, B, T, d]`.
    fn broadcast(&self) -> Tensor {
        match self {
            Self::Shared(t) => t.shallow_clone(),
            Self::Quantised(q) => q.numbers(),
            Self::PerParticle(t) => t.unsqueeze(1).unsqueeze(1),
        }
    }

    /// Returns the parameter with a leading particle axis of 1 or n.
    pub(super) fn with_particles(&self) -> Tensor {
        match self {
            Self::Shared(t) => t.unsqueeze(0),
            Self::Quantised(q) => q.numbers().unsqueeze(0),
            Self::PerParticle(t) => t.shallow_clone(),
        }
    }

    /// Returns the product of `x: [p, M, in]` with a weight, plus a bias of all particles: `[p', M, out]`.
    fn product(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        match self {
            Self::Shared(weight) => linear(x, weight, bias),
            Self::Quantised(weight) => weight.linear(x, bias),
            Self::PerParticle(weight) => {
                linear_per_particle(&x.expand([weight.size()[0], -1, -1], false), weight, bias)
            }
        }
    }

    /// Returns the tensor of a parameter that all particles share.
    pub(super) fn of_all(&self) -> Tensor {
        match self {
            Self::Shared(t) | Self::PerParticle(t) => t.shallow_clone(),
            Self::Quantised(q) => q.numbers(),
        }
    }

    /// Returns rows `start..start + length` of the parameter's own first axis.
    fn rows(&self, start: i64, length: i64) -> Param {
        match self {
            Self::Shared(t) => Self::Shared(t.narrow(0, start, length)),
            Self::Quantised(q) => Self::Quantised(q.rows(start, length)),
            Self::PerParticle(t) => Self::PerParticle(t.narrow(1, start, length)),
        }
    }

    /// Returns the rows `index: [k]` of the parameter's own first axis.
    fn picked(&self, index: &Tensor) -> Param {
        match self {
            Self::Shared(t) => Self::Shared(t.index_select(0, index)),
            Self::Quantised(q) => Self::Shared(q.numbers().index_select(0, index)),
            Self::PerParticle(t) => Self::PerParticle(t.index_select(1, index)),
        }
    }

    /// Returns the parameter in a type.
    fn to_kind(&self, kind: Kind) -> Param {
        match self {
            Self::Shared(t) => Self::Shared(t.to_kind(kind)),
            Self::Quantised(q) => Self::Quantised(q.to(q.device(), kind)),
            Self::PerParticle(t) => Self::PerParticle(t.to_kind(kind)),
        }
    }
}

/// A linear layer of n particles.
pub struct Linear {
    pub(super) weight: Param,
    pub(super) bias: Option<Param>,
    pub(super) low_rank: Option<LowRank>,
    pub(super) flipped: Option<Flipped>,
    /// The factors of the inputs and outputs, where the weight is shared and has no update.
    pub(super) scales: Option<Scales>,
    pub(super) recorder: Option<Recorder>,
}

impl Linear {
    /// Maps `x: [p, B, T, in] -> [p', B, T, out]`, with p' = n where particles differ.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.forward_from(x, None)
    }

    /// Maps as [`forward`](Self::forward) does. `frozen: [p, B, T, out]`, where it is known, is what the layer makes of `x` without an update.
    pub fn forward_from(&self, x: &Tensor, frozen: Option<&Tensor>) -> Tensor {
        let size = x.size();
        let (batch, tokens, inputs) = (size[1], size[2], size[3]);
        let input = x;
        let x = x.reshape([size[0], batch * tokens, inputs]);
        if let (Some(scales), Param::Shared(_) | Param::Quantised(_)) = (&self.scales, &self.weight) {
            let y = self.plus_bias(scales.leave(&self.weight.product(&scales.enter(&x), None)));
            return y.view([y.size()[0], batch, tokens, -1]);
        }
        let frozen = frozen.map(|frozen| frozen.reshape([size[0], batch * tokens, -1]));
        if let Some(y) = self.fused().and_then(|layer| layer.forward(&x, frozen.as_ref())) {
            return y.view([y.size()[0], batch, tokens, y.size()[2]]);
        }
        let factors = match (&self.low_rank, &self.weight) {
            (Some(update), Param::Shared(weight)) => update.row_factors(weight),
            (Some(update), Param::Quantised(weight)) if update.magnitude.is_some() => {
                update.row_factors(&weight.numbers())
            }
            _ => None,
        };
        let y = match factors {
            // A bias is added after the rows are scaled.
            Some(_) => self.weight.product(&x, None),
            None => self.plain(&x),
        };
        let y = match &self.low_rank {
            Some(update) => update.add_to(y, &x, self.flipped.as_ref()),
            None => y,
        };
        let (particles, outputs) = (y.size()[0], y.size()[2]);
        let y = y.view([particles, batch, tokens, outputs]);
        if let Some(recorder) = &self.recorder {
            recorder.record(input, &y);
        }
        match factors {
            Some(factors) => self.scaled(&y, &factors),
            None => y,
        }
    }

    /// Maps the activation of `x: [p, B, T, in]` as [`forward`](Self::forward) does, if one pass serves both. Without a graph, x is changed.
    pub fn forward_behind(&self, curve: Curve, x: &Tensor) -> Option<Tensor> {
        let size = x.size();
        let y = self.fused()?.forward_behind(curve, &x.reshape([size[0], size[1] * size[2], size[3]]))?;
        Some(y.view([y.size()[0], size[1], size[2], y.size()[2]]))
    }

    /// Returns a frozen layer with low-rank updates that is computed in one pass, if this is one.
    fn fused(&self) -> Option<Adapted<'_>> {
        let (Some(update), Param::Shared(weight)) = (&self.low_rank, &self.weight) else {
            return None;
        };
        let bias = match &self.bias {
            Some(Param::Shared(bias)) => Some(bias),
            Some(Param::PerParticle(_) | Param::Quantised(_)) => return None,
            None => None,
        };
        let plain =
            self.flipped.is_none() && self.recorder.is_none() && self.scales.is_none() && update.magnitude.is_none();
        let LowRank { a, b, scale, .. } = update;
        plain.then_some(Adapted { weight, bias, a, b, scale: *scale })
    }

    /// Returns `y: [n, M, out]` with the bias added.
    fn plus_bias(&self, y: Tensor) -> Tensor {
        match &self.bias {
            Some(Param::PerParticle(bias)) => y + bias.unsqueeze(1),
            Some(bias) => y + bias.of_all(),
            None => y,
        }
    }

    /// Returns `y: [n, B, T, out]` with its rows scaled by `factors: [n, out]`, and the bias added.
    fn scaled(&self, y: &Tensor, factors: &Tensor) -> Tensor {
        let y = y * factors.unsqueeze(1).unsqueeze(1);
        self.bias.as_ref().map_or_else(|| y.shallow_clone(), |bias| &y + bias.broadcast())
    }

    /// Returns the derivatives `[S, B, T, out]` of the outputs along S moves of the low-rank update, for an input `x: [1, B, T, in]` that
    /// itself moves by `moved: [S, B, T, in]`; `None` if nothing moves. The layer is that of one particle.
    pub fn moved(&self, moves: Option<&LowRank>, x: &Tensor, moved: Option<&Tensor>) -> Option<Tensor> {
        let count = moved.map(|moved| moved.size()[0]).or(moves.map(LowRank::particles))?;
        let size = x.size();
        let flat = |x: &Tensor| x.reshape([x.size()[0], -1, size[3]]);
        let (x, moved) = (flat(x), moved.map(flat));
        let carried = moved.as_ref().map(|moved| match (&self.weight, &self.scales) {
            (Param::PerParticle(weight), _) => linear(moved, &weight.squeeze_dim(0), None),
            (shared, Some(scales)) => scales.leave(&shared.product(&scales.enter(moved), None)),
            (shared, None) => shared.product(moved, None),
        });
        let y = match &self.low_rank {
            Some(update) => update.add_moved(carried, (&x, moved.as_ref()), moves),
            None => carried?,
        };
        Some(y.view([count, size[1], size[2], -1]))
    }

    /// Returns the low-rank update, if there is one.
    pub fn update(&self) -> Option<&LowRank> {
        self.low_rank.as_ref()
    }

    /// Returns `x: [p, M, in]` times the weight, plus the bias, without an update: `[p', M, out]`.
    fn plain(&self, x: &Tensor) -> Tensor {
        match (&self.weight, &self.bias) {
            (Param::PerParticle(weight), Some(Param::PerParticle(bias))) => {
                linear_per_particle(&x.expand([weight.size()[0], -1, -1], false), weight, Some(bias))
            }
            (weight, Some(Param::PerParticle(bias))) => weight.product(x, None) + bias.unsqueeze(1),
            (weight, bias) => weight.product(x, bias.as_ref().map(Param::of_all).as_ref()),
        }
    }

    /// Returns the layer that computes only output rows `start..start + length`.
    pub fn rows(&self, start: i64, length: i64) -> Linear {
        Linear {
            weight: self.weight.rows(start, length),
            bias: self.bias.as_ref().map(|b| b.rows(start, length)),
            low_rank: self.low_rank.as_ref().map(|l| l.rows(start, length)),
            flipped: self.flipped.as_ref().map(Flipped::again),
            scales: self.scales.as_ref().map(|s| s.rows(start, length)),
            recorder: self.recorder.as_ref().map(|recorder| recorder.starting_at(start)),
        }
    }

    /// Returns the layer that computes only the output rows `index: [k]`, in the type `kind`, without recording it.
    pub fn picked(&self, index: &Tensor, kind: Kind) -> Linear {
        let (weight, bias) = (self.weight.picked(index), self.bias.as_ref().map(|b| b.picked(index)));
        let low_rank = self.low_rank.as_ref().map(|l| l.picked(index));
        let (flipped, scales) =
            (self.flipped.as_ref().map(Flipped::again), self.scales.as_ref().map(|s| s.picked(index)));
        Linear { weight, bias, low_rank, flipped, scales, recorder: None }.to_kind(kind)
    }

    /// Returns the layer with weights in a type.
    pub fn to_kind(self, kind: Kind) -> Linear {
        Linear {
            weight: self.weight.to_kind(kind),
            bias: self.bias.map(|b| b.to_kind(kind)),
            low_rank: self.low_rank.map(|l| l.to_kind(kind)),
            flipped: self.flipped.map(|f| f.to_kind(kind)),
            scales: self.scales.map(|s| s.to_kind(kind)),
            recorder: self.recorder,
        }
    }

    /// Returns whether its uses are recorded.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }
}

/// A norm by the root mean square of n particles (Zhang & Sennrich 2019, arXiv 1910.07467).
pub struct RmsNorm {
    pub(super) weight: Param,
    /// The number that is added to the weight.
    pub(super) more: f64,
}

impl RmsNorm {
    /// Normalises `x: [p, B, T, d]` in f32 or wider. A weight that is a difference multiplies there, too.
    pub fn forward(&self, x: &Tensor, eps: f64) -> Tensor {
        let (kind, weight) = (x.kind(), self.weight.broadcast());
        let own = x.to_kind(wide(kind));
        let mean = own.square().mean_dim([-1i64].as_slice(), true, None::<Kind>);
        let normed = own * (mean + eps).rsqrt();
        match self.more {
            0.0 => normed.to_kind(kind) * weight,
            more => (normed * (weight.to_kind(wide(kind)) + more)).to_kind(kind),
        }
    }
}

/// A layer norm of n particles.
pub struct Norm {
    pub(super) weight: Param,
    pub(super) bias: Option<Param>,
}

impl Norm {
    /// Normalises `x: [p, B, T, d]`.
    pub fn forward(&self, x: &Tensor, eps: f64) -> Tensor {
        let width = x.size()[3];
        match (&self.weight, &self.bias) {
            (Param::Shared(weight), None) => x.layer_norm([width], Some(weight), None::<&Tensor>, eps, true),
            (Param::Shared(weight), Some(Param::Shared(bias))) => {
                x.layer_norm([width], Some(weight), Some(bias), eps, true)
            }
            (weight, bias) => {
                let normed = x.layer_norm([width], None::<&Tensor>, None::<&Tensor>, eps, true) * weight.broadcast();
                bias.as_ref().map_or_else(|| normed.shallow_clone(), |bias| &normed + bias.broadcast())
            }
        }
    }
}

/// One use of a trained linear layer in a forward pass.
#[derive(Debug)]
pub struct Tap {
    pub layer: String,
    /// The first of the layer's output rows that this use computes.
    pub from: i64,
    /// The input, `[p, B, T, in]`. In the last block it is the class token alone where nothing else reaches the output.
    pub input: Tensor,
    /// The output, `[p', B, T, rows]`, attached to the graph; where its rows are scaled (DoRA), that before.
    pub output: Tensor,
}

impl Tap {
    /// Returns the mask of the tokens that the layer has seen, `[p, B, T]`, if they are those of the texts in `samples`; `None` where the layer
    /// has seen patches, or one token of each sample. `sees_texts` is what the network says of the layer.
    pub fn mask<'s>(&self, sees_texts: bool, samples: &'s Fields) -> Option<&'s Tensor> {
        let tokens = &self.input.size()[..self.input.dim() - 1];
        samples.find(MASK).filter(|mask| sees_texts && mask.size() == tokens)
    }
}

/// A record of the uses of trained linear layers in a forward pass, in their order.
#[derive(Clone, Debug, Default)]
pub struct Tape(Rc<RefCell<Vec<Tap>>>);

impl Tape {
    /// Returns all taps so far and empties the tape.
    pub fn take(&self) -> Vec<Tap> {
        self.0.take()
    }

    pub(super) fn push(&self, tap: Tap) {
        self.0.borrow_mut().push(tap);
    }
}

/// The tape and the name under which the uses of a layer are recorded.
pub(super) struct Recorder {
    pub tape: Tape,
    pub layer: String,
    pub from: i64,
}

impl Recorder {
    pub fn record(&self, input: &Tensor, output: &Tensor) {
        let (input, output) = (input.shallow_clone(), output.shallow_clone());
        self.tape.push(Tap { layer: self.layer.clone(), from: self.from, input, output });
    }

    /// Returns the recorder of the rows from `start` on.
    pub fn starting_at(&self, start: i64) -> Recorder {
        Recorder { tape: self.tape.clone(), layer: self.layer.clone(), from: self.from + start }
    }
}
