//! Any TorchScript module as a [`Network`]: its own forward, with its parameters replaced particle by particle.
//!
//! The module is one stage. Where the last operation is a linear layer, that layer is the checkpoint's own classifier:
//! the module computes with the identity in its place, so that it returns the features that enter the classifier.
//! [`open`] proves this by comparing the classifier on these features with the module's own output.

mod intake;
mod open;
pub mod tokens;
mod trial;

use std::collections::BTreeSet;

use tch::{Kind, Tensor};

use crate::data::Fields;
use crate::machine::memory::MemoryEstimate;
use crate::model::network::{Extent, Graph, HIDDEN, Network, Parameters, Slot, SlotKind, Trained, Weights};
use intake::Copies;

pub use intake::{Intake, Texts};
pub use open::{KIND, Opened, Wanted, open, trained_as};
pub use tokens::{Limit, Tokenizer};

/// The targets of a module's slots.
const LINEAR: &str = "linear";
const POINTWISE: &str = "pointwise";
const TABLE: &str = "embedding";
const OTHER: &str = "other";

/// A module with its loaded copies.
pub struct Module {
    copies: Copies,
    /// The name and shape of every parameter that particles may train.
    shapes: Vec<(String, Vec<i64>)>,
    /// The names of the weights that are tables of embeddings.
    tables: BTreeSet<String>,
    width: i64,
    /// The bytes that a graph of one sample keeps in f32, as measured; 0 where that cannot be measured.
    kept_bytes: u64,
}

impl Module {
    /// Returns what it takes.
    pub fn intake(&self) -> &Intake {
        self.copies.intake()
    }

    /// Returns the bytes that a graph of one sample keeps in f32; 0 where that cannot be measured.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    fn run(&self, copy: usize, samples: &Fields, weights: &Weights, particle: Option<i64>) -> Tensor {
        let output = self.copies.forward(copy, samples, weights, particle);
        output.unwrap_or_else(|error| panic!("the module's forward: {error:#}")).flatten(1, -1)
    }
}

/// The bytes of a number.
const F32: u64 = size_of::<f32>() as u64;

/// The names behind a layer's of one part of each update from which a weight is formed.
const UPDATES: [&str; 2] = ["A", "scales.inputs"];

impl Network for Module {
    fn slots(&self) -> Vec<Slot> {
        let slot = |(name, shape): &(String, Vec<i64>)| {
            let layer = name.strip_suffix(".weight")?;
            let (kind, target, inputs) = match shape[..] {
                [_, inputs] if self.tables.contains(name) => (SlotKind::Other, TABLE, inputs),
                [_, inputs] => (SlotKind::Linear, LINEAR, inputs),
                [_, inputs, 1, 1] => (SlotKind::Pointwise, POINTWISE, inputs),
                [_, inputs, ..] => (SlotKind::Other, OTHER, inputs),
                _ => return None,
            };
            let (name, target) = (layer.to_string(), target.to_string());
            Some(Slot { name, target, kind, inputs, outputs: shape[0], stage: 0 })
        };
        self.shapes.iter().filter_map(slot).collect()
    }

    fn stages(&self) -> usize {
        1
    }

    fn stage_of(&self, _: &str) -> usize {
        0
    }

    fn feature_width(&self) -> i64 {
        self.width
    }

    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        if stage == 0 { self.intake().shape() } else { Fields::of(HIDDEN, vec![self.width]) }
    }

    fn enter(&self, _: &Weights, samples: &Fields) -> Fields {
        samples.again()
    }

    /// Runs the module on samples `[p, B, …]`, one particle after the other.
    fn stage(&self, weights: &Weights, _: usize, x: Fields) -> Fields {
        let (shared, batch) = (x.length(0), x.length(1));
        let Some(particles) = weights.particles() else {
            let all = x.map(|values| values.flatten(0, 1));
            return Fields::of(HIDDEN, self.run(0, &all, weights, None).view([shared, batch, self.width]));
        };
        let mut copy = 0;
        let outputs = (0..particles).map(|particle| {
            let samples = x.map(|values| values.get(if shared == 1 { 0 } else { particle }));
            let output = self.run(copy, &samples, weights, Some(particle));
            // Without a graph nothing holds on to the copy's values, and the next particle takes its place.
            copy += usize::from(output.requires_grad());
            output
        });
        Fields::of(HIDDEN, Tensor::stack(&outputs.collect::<Vec<_>>(), 0))
    }

    fn features(&self, _: &Weights, x: &Fields) -> Tensor {
        x.first().shallow_clone()
    }

    /// Returns true: each thread has copies of its own.
    fn divides(&self) -> bool {
        true
    }

    /// Returns the bytes of the weights that one particle's copy holds: those that are trained, and those that are formed from an update,
    /// which are held twice.
    fn copy_bytes(&self, trained: &dyn Trained) -> u64 {
        let names = trained.names();
        let held = |(name, shape): &(String, Vec<i64>)| {
            let layer = name.strip_suffix("weight").unwrap_or(name);
            let of_update = |part: &str| names.contains(&format!("{layer}{part}").as_str());
            let times = if names.contains(&name.as_str()) {
                1
            } else if UPDATES.into_iter().any(of_update) {
                2
            } else {
                0
            };
            times * shape.iter().product::<i64>() as u64 * F32
        };
        self.shapes.iter().map(held).sum()
    }

    /// Returns false: the graph of a pass needs the values in the copies, which the next pass of the thread fills anew.
    fn keeps_graphs(&self) -> bool {
        false
    }

    /// Returns rows of pixels, or tokens, since the widths of the module's layers are not known.
    fn extent(&self) -> Extent {
        let (tokens, width) = match self.intake() {
            Intake::Images(size) => (*size, 3 * size),
            Intake::Texts(texts) => (texts.tokens, self.width),
            Intake::Rows(width) => (1, *width),
        };
        Extent { tokens: tokens.max(1) as usize, width: width.max(1) as usize }
    }

    /// Returns false: only the module's weights can be reached, not what enters and leaves its layers.
    fn records_layers(&self) -> bool {
        false
    }

    fn need(&self, _: &Parameters, graph: Graph, _: Kind) -> MemoryEstimate {
        /// The gradients of activations, and holes in memory, relative to what the graph keeps.
        const BACKWARD: f64 = 1.5;
        let values = self.intake().shape().values().map(|shape| shape.iter().product::<i64>()).sum::<i64>() as u64;
        // Stored bytes, pixels and normalised pixels; or ids as they are stored and as they are looked up.
        let seen = values * (1 + 3 * F32);
        let kept = (self.kept_bytes as f64 * BACKWARD) as u64;
        let features = 2 * self.width as u64 * F32;
        match graph {
            // Particles follow each other unless threads take them, and what a pass keeps bounds what it uses at once.
            Graph::None => MemoryEstimate { image: seen, pair: kept + features, ..MemoryEstimate::default() },
            Graph::Samples { budgets } => {
                let moved = values * F32 * (3 + 2 * budgets as u64);
                MemoryEstimate { image: seen + moved, pair: kept + features, ..MemoryEstimate::default() }
            }
            Graph::Weights { trained, own_samples, .. } => {
                let member = self.copy_bytes(trained);
                let graph = if member == 0 { 0 } else { kept };
                let (image, own) = if own_samples { (kept - graph, seen) } else { (seen + kept - graph, 0) };
                MemoryEstimate { member, image, pair: graph + features + own, ..MemoryEstimate::default() }
            }
        }
    }
}
