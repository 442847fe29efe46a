//! `[subspace.full]`: every weight of the network is a column (the papers' "base" models).

use std::collections::HashSet;

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::model::head::{Head, Training};
use crate::model::network::{Network, Parameters, SlotKind, Weights};
use crate::schema::{settings, words};
use crate::subspace::{
    Combined, Entry, Layout, Shape, Subspace, SubspaceSpec, flat_head, initial_head, push_head, uniform, updates,
};

pub static ENTRY: Entry = Entry {
    key: "full",
    about: "every weight of the network, per particle",
    read: |reader| Box::new(Spec::read(reader)),
};

words! {
    /// The weights with which particles start.
    enum Start {
        /// The weights of the checkpoint.
        Checkpoint = "checkpoint",
        /// The weights of the checkpoint, but for those of linear layers, which are drawn at random.
        Random = "random",
    }
}

settings! {
    struct Spec {
        /// Weights with which particles start: those of the checkpoint, or new ones of the linear layers for each particle, drawn as in
        /// `torch.nn.Linear`, for networks that were not pretrained.
        start: Start = Start::Checkpoint, omit Start::Checkpoint;
    }
}

impl SubspaceSpec for Spec {
    fn equal_starts(&self, head: Training) -> bool {
        self.start == Start::Checkpoint && head != Training::Always
    }

    fn build(&self, network: &dyn Network, base: &Parameters, head: &Head) -> Result<Box<dyn Subspace>> {
        ensure!(
            !base.has_quantised(),
            "subspace.full trains the weights, and those of the checkpoint are quantised: use [subspace.low-rank], or weights that \
             are not (checkpoint.quantize)"
        );
        let mut layout = Layout::default();
        let linear = network.slots().into_iter().filter(|slot| slot.kind == SlotKind::Linear);
        let linear: HashSet<String> = linear.map(|slot| format!("{}.weight", slot.name)).collect();
        let mut open: Option<(String, i64)> = None;
        for (name, tensor) in base.all() {
            let layer = name.trim_end_matches(".weight").trim_end_matches(".bias");
            if open.as_ref().is_none_or(|(current, _)| current != layer) {
                if let Some((finished, start)) = open.take() {
                    layout.close_block(finished, start, Shape::Dense);
                }
                open = Some((layer.to_string(), layout.parameters()));
            }
            match tensor.size()[..] {
                [outputs, inputs] if linear.contains(name) => layout.push_linear(name, [outputs, inputs]),
                ref shape => layout.push(name, shape),
            }
        }
        if let Some((finished, start)) = open {
            layout.close_block(finished, start, Shape::Dense);
        }
        let start: Vec<Tensor> = base.all().iter().map(|(_, t)| t.shallow_clone()).collect();
        let names = base.all().iter().map(|(name, _)| name.clone()).collect();
        if !matches!(head.training, Training::Never | Training::OfNetwork | Training::Tokens) {
            push_head(&mut layout, head);
        }
        let redrawn = match self.start {
            Start::Checkpoint => Vec::new(),
            Start::Random => redrawn(base, &linear),
        };
        Ok(Box::new(Full { layout, names, start, redrawn, head: head.to(Device::Cpu, Kind::Float) }))
    }
}

/// Returns the places of the weights named in `linear` and of the biases beside them, with the number of inputs of each layer.
fn redrawn(base: &Parameters, linear: &HashSet<String>) -> Vec<(usize, i64)> {
    let of_layer = |name: &String| {
        let layer = name.strip_suffix(".weight").or_else(|| name.strip_suffix(".bias"))?;
        let weight = format!("{layer}.weight");
        linear.contains(&weight).then(|| base.get(&weight).map(|weight| weight.size()[1]))?
    };
    let places = base.all().iter().enumerate();
    places.filter_map(|(place, (name, _))| Some((place, of_layer(name)?))).collect()
}

struct Full {
    layout: Layout,
    names: Vec<String>,
    /// The weights of the checkpoint, which are not copied.
    start: Vec<Tensor>,
    /// The places of the weights that each particle draws anew, and the number of inputs of their layers.
    redrawn: Vec<(usize, i64)>,
    head: Head,
}

impl Full {
    /// Returns the weights of the checkpoint with those that `particle` draws, `U(±1/√inputs)`.
    fn drawn(&self, seed: u64, particle: u64) -> Vec<Tensor> {
        let mut all: Vec<Tensor> = self.start.iter().map(Tensor::shallow_clone).collect();
        for &(place, inputs) in &self.redrawn {
            let (size, bound) = (self.start[place].size(), 1.0 / (inputs as f64).sqrt());
            let numbers = uniform(seed, particle, place as u64, size.iter().product::<i64>() as usize, bound);
            all[place] = Tensor::from_slice(&numbers).view(size.as_slice());
        }
        all
    }

    /// Returns weights as one row with `head` behind them, in f32 on the CPU.
    fn row(weights: &[Tensor], head: Option<Tensor>) -> Tensor {
        let flat = |t: &Tensor| t.to_device(Device::Cpu).to_kind(Kind::Float).reshape([-1]);
        Tensor::cat(&weights.iter().map(flat).chain(head).collect::<Vec<_>>(), 0)
    }
}

impl Subspace for Full {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor> {
        let head = match self.head.training {
            Training::Never | Training::OfNetwork | Training::Tokens => None,
            Training::WithBackbone => Some(flat_head(&self.head)),
            Training::Always => Some(initial_head(seed, particle, &self.head)),
        };
        Ok(Full::row(&self.drawn(seed, particle), head))
    }

    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a> {
        let mut weights = Weights::frozen(base);
        let heads = ["head.weight".to_string(), "head.bias".to_string()];
        for (name, leaf) in self.names.iter().chain(&heads).zip(leaves) {
            weights.replace(name, leaf.shallow_clone());
        }
        weights
    }

    fn origin(&self) -> Tensor {
        let head = match self.head.training {
            Training::Never | Training::OfNetwork | Training::Tokens => None,
            Training::WithBackbone => Some(flat_head(&self.head)),
            Training::Always => Some(flat_head(&self.head).zeros_like()),
        };
        Full::row(&self.start, head)
    }

    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined> {
        let theta = updates::around(&self.origin(), theta, coefficients)?;
        Ok(Combined { subspace: self.again(), theta })
    }

    fn again(&self) -> Box<dyn Subspace> {
        let (layout, names) = (self.layout.clone(), self.names.clone());
        let start = self.start.iter().map(Tensor::shallow_clone).collect();
        Box::new(Full { layout, names, start, redrawn: self.redrawn.clone(), head: self.head.again() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_that_draw_their_weights_do_not_start_equal() {
        for (start, head, equal) in [
            (Start::Checkpoint, Training::WithBackbone, true),
            (Start::Checkpoint, Training::Always, false),
            (Start::Random, Training::WithBackbone, false),
        ] {
            assert_eq!(Spec { start }.equal_starts(head), equal);
        }
    }
}
