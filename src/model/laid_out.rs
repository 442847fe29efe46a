//! A model whose weights have sizes and no values: its memory and its operations can be counted.

use tch::{Device, Kind, Tensor};

use crate::base::tensor::wide;
use crate::model::head::{Head, Training};
use crate::model::network::{Network, Parameters};
use crate::model::{AsStored, Model};

/// Returns a model of a network whose weights have sizes alone, with a head of zeros for `classes` classes, which plans memory for
/// `device` and computes nothing.
pub fn laid_out(
    network: Box<dyn Network>,
    base: Parameters,
    (training, normalised): (Training, bool),
    classes: i64,
    (device, kind): (Device, Kind),
) -> Model {
    let classes = if training == Training::Tokens { 0 } else { classes };
    let zeros = |shape: &[i64]| Tensor::zeros(shape, (wide(kind), Device::Cpu));
    let rows = (training == Training::OfNetwork).then(|| Tensor::arange(classes, (Kind::Int64, Device::Cpu)));
    let head = Head {
        weight: zeros(&[classes, network.feature_width()]),
        bias: zeros(&[classes]),
        normalised,
        training,
        rows,
        texts: None,
    };
    Model { network, base, head, preparation: Box::new(AsStored), device, kind }
}
