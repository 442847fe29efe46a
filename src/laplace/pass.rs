//! What a forward tells about the linear maps that theta is made of: their inputs, and the gradients at their outputs.
//!
//! A trained column block is a linear map W: its gradient is Σ_t g_t x_tᵀ over tokens t, with x the map's input and g the
//! gradient at its output. Of an update scale · B A, A is a map from the layer's input with gradient scale · Bᵀ g, and B a
//! map from scale · A x with gradient g, g being the gradient at the layer's output.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::wide;
use crate::model::Model;
use crate::model::network::weights::{Tap, Tape};
use crate::subspace::{Shape, Subspace};

/// A weight `[outputs, inputs]` within a row of theta.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Index of the block in the layout.
    pub block: usize,
    pub role: Role,
    pub inputs: i64,
    pub outputs: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// A of an update.
    Down,
    /// B of an update.
    Up,
    /// A weight whose outputs are the logits.
    Head,
    /// Its bias: a weight on the input 1.
    HeadBias,
}

impl Role {
    /// Whether the map's outputs are the logits.
    pub fn is_head(self) -> bool {
        matches!(self, Role::Head | Role::HeadBias)
    }
}

impl Map {
    pub fn parameters(&self) -> i64 {
        self.inputs * self.outputs
    }
}

/// The maps that a posterior is about, with the columns of theta that they fill, in order.
#[derive(Clone, Debug)]
pub struct Maps {
    pub maps: Vec<Map>,
    pub columns: Range<i64>,
}

impl Maps {
    /// Every trained map of a low-rank subspace, its head included.
    pub fn all(subspace: &dyn Subspace) -> Result<Maps> {
        let layout = subspace.layout();
        let mut maps = Vec::new();
        for (block, entry) in layout.blocks.iter().enumerate() {
            match entry.shape {
                Shape::LowRank { rank, inputs, outputs, .. } => {
                    maps.push(Map { block, role: Role::Down, inputs, outputs: rank });
                    maps.push(Map { block, role: Role::Up, inputs: rank, outputs });
                }
                Shape::Dense if entry.name == "head" => maps.extend(head(subspace, block)?),
                Shape::Dense => bail!(
                    "method.laplace.parameters = \"all\" needs [subspace.low-rank]: `{}` is no low-rank update; set \
                     method.laplace.parameters = \"last-layer\"",
                    entry.name
                ),
            }
        }
        Ok(Maps { maps, columns: 0..layout.parameters() })
    }

    /// The trained head alone.
    pub fn last_layer(subspace: &dyn Subspace) -> Result<Maps> {
        let blocks = &subspace.layout().blocks;
        let block = blocks.iter().position(|block| block.name == "head").context(
            "method.laplace.parameters = \"last-layer\": this run does not train its head: use [head.linear], or set \
             method.laplace.parameters = \"all\"",
        )?;
        Ok(Maps { maps: head(subspace, block)?.into(), columns: blocks[block].columns.clone() })
    }

    /// Parameters that the posterior is about.
    pub fn parameters(&self) -> i64 {
        self.columns.end - self.columns.start
    }

    fn only_head(&self) -> bool {
        self.maps.iter().all(|map| map.role.is_head())
    }
}

fn head(subspace: &dyn Subspace, block: usize) -> Result<[Map; 2]> {
    let weight = subspace.layout().columns.iter().find(|column| column.name == "head.weight");
    let weight = weight.context("the layout has a head without a weight")?;
    let (outputs, inputs) = (weight.shape[0], weight.shape[1]);
    let weight = Map { block, role: Role::Head, inputs, outputs };
    Ok([weight, Map { block, role: Role::HeadBias, inputs: 1, outputs }])
}

/// A map in one forward.
pub struct Site {
    /// `[B, T, in]`.
    pub input: Tensor,
    pub source: Source,
}

/// How the gradient at a map's output comes from those at the outputs of layers.
pub enum Source {
    /// The map's outputs are the logits.
    Logits,
    /// The gradient at the output of this layer.
    Layer(usize),
    /// The gradient at the output of this layer times a matrix `[out, r]`.
    Through(usize, Tensor),
}

/// The uses of one layer in a forward.
pub struct Layer {
    pub outputs: i64,
    pub tokens: i64,
    pub uses: Vec<Use>,
}

/// Output rows `from..` of a layer on its first tokens.
pub struct Use {
    pub from: i64,
    /// `[1, B, T, rows]` or `[B, T, rows]`, in the graph.
    pub output: Tensor,
}

/// One forward of one particle.
pub struct Pass {
    /// `[B, C]`, in the graph unless all sites are at the logits.
    pub logits: Tensor,
    pub layers: Vec<Layer>,
    pub sites: Vec<Site>,
}

impl Pass {
    /// A forward of particle `theta: [1, P]` on normalised images `[1, B, 3, S, S]`.
    pub fn new(model: &Model, subspace: &dyn Subspace, maps: &Maps, theta: &Tensor, images: &Tensor) -> Result<Pass> {
        let layout = subspace.layout();
        let differentiate = !maps.only_head();
        let leaves = layout.leaves(theta, model.kind, differentiate);
        let tape = Tape::default();
        let mut weights = subspace.weights(&model.base, &leaves);
        weights.record(&tape);
        let logits = if differentiate {
            model.logits(&weights, images)
        } else {
            tch::no_grad(|| model.logits(&weights, images))
        };
        let taps = tape.take();
        let leaf = |name: &str| {
            let at = layout.columns.iter().position(|column| column.name == name);
            at.map(|at| leaves[at].detach().squeeze_dim(0)).with_context(|| format!("theta has no column {name}"))
        };
        let mut pass = Pass { logits: logits.squeeze_dim(0), layers: Vec::new(), sites: Vec::new() };
        for map in &maps.maps {
            let block = &layout.blocks[map.block];
            let site = match (map.role, &block.shape) {
                (Role::Down, Shape::LowRank { outputs, scale, .. }) => {
                    let input = pass.push_layer(&taps, &block.name, *outputs)?;
                    let b = leaf(&format!("{}.B", block.name))? * *scale;
                    Site { input, source: Source::Through(pass.layers.len() - 1, b) }
                }
                // The layer is the one that `Down` has pushed just before.
                (Role::Up, Shape::LowRank { scale, .. }) => {
                    let a = leaf(&format!("{}.A", block.name))? * *scale;
                    let x = &pass.sites.last().context("B without A")?.input;
                    Site { input: x.matmul(&a.tr()), source: Source::Layer(pass.layers.len() - 1) }
                }
                (Role::Head, _) => {
                    let tap = taps.iter().find(|tap| tap.layer == "head").context("the head was not recorded")?;
                    Site { input: tap.input.detach().squeeze_dim(0), source: Source::Logits }
                }
                (Role::HeadBias, _) => {
                    let options = (wide(model.kind), model.device);
                    Site { input: Tensor::ones([pass.logits.size()[0], 1, 1], options), source: Source::Logits }
                }
                (role, shape) => bail!("a map {role:?} of a block {shape:?}"),
            };
            pass.sites.push(site);
        }
        Ok(pass)
    }

    /// Joins the uses of a layer; returns its input `[B, T, in]`.
    fn push_layer(&mut self, taps: &[Tap], name: &str, outputs: i64) -> Result<Tensor> {
        let of: Vec<&Tap> = taps.iter().filter(|tap| tap.layer == name).collect();
        // A use on fewer tokens sees the first of them: the class token.
        let longest =
            of.iter().max_by_key(|tap| tap.input.size()[2]).with_context(|| format!("{name} was not used"))?;
        let (input, tokens) = (longest.input.detach().squeeze_dim(0), longest.input.size()[2]);
        // Gradients are asked at the recorded tensors themselves: a view of them is not on the way to the logits.
        let uses = of.iter().map(|tap| Use { from: tap.from, output: tap.output.shallow_clone() }).collect();
        self.layers.push(Layer { outputs, tokens, uses });
        Ok(input)
    }

    /// Gradients of Σ_nc `direction[n, c]` · logit[n, c] at the output of every site, `[B, T, out]` each.
    pub fn gradients(&self, direction: &Tensor) -> Result<Vec<Tensor>> {
        let layers = self.layer_gradients(direction)?;
        let gradient = |site: &Site| match &site.source {
            Source::Logits => direction.unsqueeze(1),
            Source::Layer(layer) => layers[*layer].shallow_clone(),
            Source::Through(layer, matrix) => layers[*layer].matmul(matrix),
        };
        Ok(self.sites.iter().map(gradient).collect())
    }

    /// Gradients at the outputs of layers, `[B, T, out]` each.
    fn layer_gradients(&self, direction: &Tensor) -> Result<Vec<Tensor>> {
        let outputs: Vec<&Tensor> = self.layers.iter().flat_map(|l| &l.uses).map(|u| &u.output).collect();
        if outputs.is_empty() {
            return Ok(Vec::new());
        }
        // A root without a graph would be a segmentation fault.
        ensure!(self.logits.requires_grad(), "laplace: the logits do not depend on any trained layer");
        let root = (&self.logits * direction).sum(self.logits.kind());
        let mut gradients = Tensor::f_run_backward(&[&root], &outputs, true, false)?.into_iter();
        let batch = self.logits.size()[0];
        let mut joined = Vec::new();
        for layer in &self.layers {
            let shape = [batch, layer.tokens, layer.outputs];
            let options = (layer.uses.first().map_or(Kind::Float, |u| u.output.kind()), self.logits.device());
            let whole = Tensor::zeros(shape, options);
            for (used, gradient) in layer.uses.iter().zip(gradients.by_ref()) {
                if gradient.defined() {
                    let size = used.output.size();
                    let (tokens, rows) = (size[size.len() - 2], size[size.len() - 1]);
                    let mut target = whole.narrow(1, 0, tokens).narrow(2, used.from, rows);
                    target.copy_(&gradient.view([batch, tokens, rows]));
                }
            }
            joined.push(whole);
        }
        Ok(joined)
    }

    /// Per-image Jacobians of all logits with respect to each site's weight, `[B, C, out, in]` each; undefined for sites
    /// that are not `wanted`.
    pub fn jacobians(&self, wanted: impl Fn(&Site) -> bool) -> Result<Vec<Tensor>> {
        let wanted: Vec<bool> = self.sites.iter().map(wanted).collect();
        if !wanted.contains(&true) {
            return Ok(self.sites.iter().map(|_| Tensor::new()).collect());
        }
        let (batch, classes) = self.logits.size2()?;
        let mut parts: Vec<Vec<Tensor>> = self.sites.iter().map(|_| Vec::new()).collect();
        for class in 0..classes {
            let direction = Tensor::zeros([batch, classes], (self.logits.kind(), self.logits.device()));
            let _ = direction.narrow(1, class, 1).fill_(1.0);
            for (at, gradient) in self.gradients(&direction)?.iter().enumerate().filter(|(at, _)| wanted[*at]) {
                parts[at].push(weight_gradient(&self.sites[at].input, gradient));
            }
        }
        let stacked = |part: &Vec<Tensor>| if part.is_empty() { Tensor::new() } else { Tensor::stack(part, 1) };
        Ok(parts.iter().map(stacked).collect())
    }
}

/// Σ_t g_t x_tᵀ per image, `[B, out, in]`, for `input: [B, T, in]`, `gradient: [B, T, out]`.
pub fn weight_gradient(input: &Tensor, gradient: &Tensor) -> Tensor {
    gradient.transpose(1, 2).to_kind(wide(input.kind())).bmm(&input.to_kind(wide(input.kind())))
}
