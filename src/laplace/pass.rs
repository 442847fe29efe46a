//! One forward pass that records the inputs of the linear maps that make up theta, and the gradients at their outputs.
//!
//! A trained block of columns is a linear map W. Its gradient is Σ_t g_t x_tᵀ over tokens t, where x is the input of
//! the map and g the gradient at its output. In an update scale · B A, let g be the gradient at the layer's output:
//! then A maps the layer's input and has the gradient scale · Bᵀ g at its output, and B maps scale · A x and has the
//! gradient g.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::wide;
use crate::data::Fields;
use crate::model::Model;
use crate::model::network::{Tap, Tape};
use crate::subspace::{Layout, Shape, Subspace};

/// A weight `[outputs, inputs]` stored in a row of theta.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The index of its block in the layout.
    pub block: usize,
    pub role: Role,
    pub inputs: i64,
    pub outputs: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// The matrix A of a low-rank update.
    Down,
    /// The matrix B of a low-rank update.
    Up,
    /// A weight whose outputs are the logits.
    Head,
    /// The bias of the head, as a weight on the constant input 1.
    HeadBias,
}

impl Role {
    /// Returns whether the outputs of the map are the logits.
    pub fn is_head(self) -> bool {
        matches!(self, Role::Head | Role::HeadBias)
    }
}

impl Map {
    pub fn parameters(&self) -> i64 {
        self.inputs * self.outputs
    }
}

/// The maps that a posterior covers and the columns of theta that they fill, both in layout order.
#[derive(Clone, Debug)]
pub struct Maps {
    pub maps: Vec<Map>,
    pub columns: Range<i64>,
}

impl Maps {
    /// Returns every trained map of a low-rank subspace, including the head.
    pub fn all(subspace: &dyn Subspace) -> Result<Maps> {
        if let Some(setting) = subspace.scaled_by() {
            bail!(
                "{setting}: the curvature of all parameters is that of updates alone: leave it out, or set \
                 method.laplace.parameters = \"last-layer\""
            );
        }
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

    /// Returns the maps of the trained head alone.
    pub fn last_layer(subspace: &dyn Subspace) -> Result<Maps> {
        let blocks = &subspace.layout().blocks;
        let block = blocks.iter().position(|block| block.name == "head").context(
            "method.laplace.parameters = \"last-layer\": this run does not train its head: use [head.linear], or set \
             method.laplace.parameters = \"all\"",
        )?;
        Ok(Maps { maps: head(subspace, block)?.into(), columns: blocks[block].columns.clone() })
    }

    /// Returns the number of parameters that the posterior covers.
    pub fn parameters(&self) -> i64 {
        self.columns.end - self.columns.start
    }

    /// Returns whether they all belong to the head.
    pub fn only_head(&self) -> bool {
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

/// The input of one map in a forward pass, and the source of its gradient.
pub struct Site {
    /// The input, `[B, T, in]`.
    pub input: Tensor,
    /// The mask of the input's tokens, `[B, T]`, if some of them may only fill up a text.
    pub mask: Option<Tensor>,
    pub source: Source,
}

/// The way the gradient at a map's output follows from the gradients at layer outputs.
pub enum Source {
    /// The outputs of the map are the logits.
    Logits,
    /// The gradient at the output of this layer.
    Layer(usize),
    /// The gradient at the output of this layer, multiplied by a matrix `[out, r]`.
    Through(usize, Tensor),
}

/// A layer and all its uses in one forward pass.
pub struct Layer {
    pub outputs: i64,
    pub tokens: i64,
    pub uses: Vec<Use>,
}

/// One use of a layer: its output rows from `from` on, for its first tokens.
pub struct Use {
    pub from: i64,
    /// The recorded output, `[1, B, T, rows]` or `[B, T, rows]`, attached to the graph.
    pub output: Tensor,
}

/// The inputs and outputs that a forward pass has recorded, and the columns of theta that it ran with.
struct Recorded<'a> {
    model: &'a Model,
    samples: &'a Fields,
    taps: Vec<Tap>,
    layout: &'a Layout,
    leaves: &'a [Tensor],
}

impl Recorded<'_> {
    /// Returns a leaf of the particle without its axis of particles, detached from the graph.
    fn leaf(&self, name: &str) -> Result<Tensor> {
        let at = self.layout.columns.iter().position(|column| column.name == name);
        at.map(|at| self.leaves[at].detach().squeeze_dim(0)).with_context(|| format!("theta has no column {name}"))
    }
}

/// One forward pass of one particle.
pub struct Pass {
    /// The logits `[B, C]`, attached to the graph unless every map belongs to the head.
    pub logits: Tensor,
    pub layers: Vec<Layer>,
    pub sites: Vec<Site>,
}

impl Pass {
    /// Runs particle `theta: [1, P]` on normalised images `[1, B, 3, S, S]`.
    pub fn new(model: &Model, subspace: &dyn Subspace, maps: &Maps, theta: &Tensor, images: &Fields) -> Result<Pass> {
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
        let recorded = Recorded { model, samples: images, taps: tape.take(), layout, leaves: &leaves };
        let mut pass = Pass { logits: logits.squeeze_dim(0), layers: Vec::new(), sites: Vec::new() };
        for map in &maps.maps {
            let site = pass.site(map, &recorded)?;
            pass.sites.push(site);
        }
        Ok(pass)
    }

    /// Returns the site of a map. The maps come in layout order, so the last site is that of the map before.
    fn site(&mut self, map: &Map, recorded: &Recorded) -> Result<Site> {
        let block = &recorded.layout.blocks[map.block];
        Ok(match (map.role, &block.shape) {
            (Role::Down, Shape::LowRank { outputs, scale, .. }) => {
                let (input, mask) = self.push_layer(recorded, &block.name, *outputs)?;
                let b = recorded.leaf(&format!("{}.B", block.name))? * *scale;
                Site { input, mask, source: Source::Through(self.layers.len() - 1, b) }
            }
            // The `Down` map of the same block has just pushed this layer.
            (Role::Up, Shape::LowRank { scale, .. }) => {
                let a = recorded.leaf(&format!("{}.A", block.name))? * *scale;
                let Site { input: x, mask, .. } = self.sites.last().context("B without A")?;
                // An adapted output matrix computes in f32 or wider, also where its leaves are bf16.
                let (input, mask) = (x.matmul(&a.tr().to_kind(x.kind())), mask.as_ref().map(Tensor::shallow_clone));
                Site { input, mask, source: Source::Layer(self.layers.len() - 1) }
            }
            (Role::Head, _) => {
                let tap = recorded.taps.iter().find(|tap| tap.layer == "head");
                let tap = tap.context("the head was not recorded")?;
                Site { input: tap.input.detach().squeeze_dim(0), mask: None, source: Source::Logits }
            }
            (Role::HeadBias, _) => {
                let options = (wide(recorded.model.kind), recorded.model.device);
                Site { input: Tensor::ones([self.logits.size()[0], 1, 1], options), mask: None, source: Source::Logits }
            }
            (role, shape) => bail!("a map {role:?} of a block {shape:?}"),
        })
    }

    /// Collects the uses of a layer and returns its input `[B, T, in]` and the mask of its tokens, as a [`Site`] has it.
    fn push_layer(&mut self, recorded: &Recorded, name: &str, outputs: i64) -> Result<(Tensor, Option<Tensor>)> {
        let of: Vec<&Tap> = recorded.taps.iter().filter(|tap| tap.layer == name).collect();
        // A use on fewer tokens sees only the first of them, the class token.
        let longest =
            of.iter().max_by_key(|tap| tap.input.size()[2]).with_context(|| format!("{name} was not used"))?;
        let (input, tokens) = (longest.input.detach().squeeze_dim(0), longest.input.size()[2]);
        // Gradients must be taken at the recorded tensors themselves: a view of them is not on the path to the logits.
        let uses = of.iter().map(|tap| Use { from: tap.from, output: tap.output.shallow_clone() }).collect();
        self.layers.push(Layer { outputs, tokens, uses });
        let mask = longest.mask(recorded.model.network.sees_texts(name), recorded.samples);
        Ok((input, mask.map(|mask| mask.squeeze_dim(0))))
    }

    /// Returns the gradients of Σ_nc `direction[n, c]` · logit[n, c] at the output of every map, each `[B, T, out]`.
    pub fn gradients(&self, direction: &Tensor) -> Result<Vec<Tensor>> {
        let layers = self.layer_gradients(direction)?;
        let gradient = |site: &Site| match &site.source {
            Source::Logits => direction.unsqueeze(1),
            Source::Layer(layer) => layers[*layer].shallow_clone(),
            Source::Through(layer, matrix) => layers[*layer].matmul(&matrix.to_kind(layers[*layer].kind())),
        };
        Ok(self.sites.iter().map(gradient).collect())
    }

    /// Returns the gradients at the outputs of all layers, each `[B, T, out]`.
    fn layer_gradients(&self, direction: &Tensor) -> Result<Vec<Tensor>> {
        let outputs: Vec<&Tensor> = self.layers.iter().flat_map(|l| &l.uses).map(|u| &u.output).collect();
        if outputs.is_empty() {
            return Ok(Vec::new());
        }
        // Running backward from a tensor without a graph would cause a segmentation fault.
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

    /// Returns the per-image Jacobians of all logits with respect to the weight of each map, each `[B, C, out, in]`.
    /// The tensor is undefined where `wanted` is false.
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

/// Returns Σ_t g_t x_tᵀ for each image, `[B, out, in]`, with x in `input: [B, T, in]` and g in `gradient: [B, T, out]`.
pub fn weight_gradient(input: &Tensor, gradient: &Tensor) -> Tensor {
    gradient.transpose(1, 2).to_kind(wide(input.kind())).bmm(&input.to_kind(wide(input.kind())))
}
