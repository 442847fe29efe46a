//! The subspace itself: columns A and B, and the magnitudes m of DoRA, as weights of n particles.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use super::start::{Drawn, Factors, Start, normal_factors, uniform_factors};
use crate::model::head::Head;
use crate::model::network::low_rank::LowRank;
use crate::model::network::{Parameters, Weights};
use crate::subspace::updates::{around, check};
use crate::subspace::{Combined, Directed, Layout, Shape, Subspace, initial_head, push_head};

/// An adapted layer.
pub struct Layer {
    pub name: String,
    pub rank: i64,
    pub inputs: i64,
    pub outputs: i64,
    pub scale: f64,
    /// The factors that particles start from, if they are given.
    pub given: Option<Factors>,
    /// The start of the magnitudes m, the norms of the rows of W_0, `[out]`, if they are trained (DoRA).
    pub magnitude: Option<Tensor>,
}

impl Layer {
    fn again(&self) -> Layer {
        let (given, magnitude) =
            (self.given.as_ref().map(Factors::again), self.magnitude.as_ref().map(Tensor::shallow_clone));
        let Layer { rank, inputs, outputs, scale, .. } = *self;
        Layer { name: self.name.clone(), rank, inputs, outputs, scale, given, magnitude }
    }

    /// Returns the number of columns, and of parameters among the leaves.
    fn leaves(&self) -> usize {
        2 + usize::from(self.magnitude.is_some())
    }

    /// Appends the columns to a layout.
    pub fn push(&self, layout: &mut Layout) {
        let Layer { name, rank, inputs, outputs, scale, .. } = self;
        let start = layout.parameters();
        layout.push_linear(format!("{name}.A"), [*rank, *inputs]);
        layout.push(format!("{name}.B"), &[*outputs, *rank]);
        let shape = Shape::LowRank { rank: *rank, inputs: *inputs, outputs: *outputs, scale: *scale };
        layout.close_block(name, start, shape);
        if self.magnitude.is_some() {
            let start = layout.parameters();
            layout.push(magnitude_of(name), &[*outputs]);
            layout.close_block(magnitude_of(name), start, Shape::Dense);
        }
    }
}

/// A layer that is trained whole beside the updates.
pub struct Whole {
    pub name: String,
    /// Its parameters by name, with the checkpoint's values, from which particles start.
    pub parameters: Vec<(String, Tensor)>,
}

impl Whole {
    fn again(&self) -> Whole {
        let parameters = self.parameters.iter().map(|(name, value)| (name.clone(), value.shallow_clone())).collect();
        Whole { name: self.name.clone(), parameters }
    }

    /// Appends the columns to a layout.
    fn push(&self, layout: &mut Layout) {
        let start = layout.parameters();
        for (name, value) in &self.parameters {
            match value.size()[..] {
                [outputs, inputs] => layout.push_linear(name, [outputs, inputs]),
                ref shape => layout.push(name, shape),
            }
        }
        layout.close_block(&self.name, start, Shape::Dense);
    }

    /// Returns the checkpoint's values as they follow each other in the columns.
    fn flat(&self) -> Tensor {
        let row = |value: &Tensor| value.to_device(Device::Cpu).to_kind(Kind::Float).reshape([-1]);
        Tensor::cat(&self.parameters.iter().map(|(_, value)| row(value)).collect::<Vec<_>>(), 0)
    }
}

/// The end of the names of magnitudes.
pub const MAGNITUDE: &str = ".magnitude";

/// The key of trained lengths of rows.
pub const DORA: &str = "subspace.low-rank.dora";

/// Returns the name of the magnitudes of a layer.
pub fn magnitude_of(layer: &str) -> String {
    format!("{layer}{MAGNITUDE}")
}

/// A frozen weight without its principal part, W_0 − s B_0 A_0, as it is computed with.
struct Residual {
    /// The weight W_0 itself. While it is held, no other tensor can lie in its place.
    of: Tensor,
    tensor: Tensor,
}

impl Residual {
    /// Returns whether it is that of `weight`, which is never changed in its place.
    fn is_of(&self, weight: &Tensor) -> bool {
        let same_form = self.of.size() == weight.size() && self.of.kind() == weight.kind();
        same_form && self.of.device() == weight.device() && self.of.data_ptr() == weight.data_ptr()
    }
}

pub struct LowRankSubspace {
    layout: Layout,
    layers: Vec<Layer>,
    whole: Vec<Whole>,
    start: Start,
    /// The head whose shape particles train, if they train their own.
    head: Option<Head>,
    residuals: Mutex<Vec<Option<Residual>>>,
}

impl LowRankSubspace {
    pub fn new(layers: Vec<Layer>, whole: Vec<Whole>, start: Start, head: Option<Head>) -> LowRankSubspace {
        let mut layout = Layout::default();
        layers.iter().for_each(|layer| layer.push(&mut layout));
        whole.iter().for_each(|layer| layer.push(&mut layout));
        if let Some(head) = &head {
            push_head(&mut layout, head);
        }
        let residuals = Mutex::new(layers.iter().map(|_| None).collect());
        LowRankSubspace { layout, layers, whole, start, head, residuals }
    }

    /// Returns the frozen weight of a layer without its principal part; `None` if nothing is taken out.
    fn residual(&self, index: usize, base: &Parameters) -> Option<Tensor> {
        let layer = &self.layers[index];
        let Factors { a, b } = layer.given.as_ref()?;
        let weight = base.get(&format!("{}.weight", layer.name))?;
        let mut kept = self.residuals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(residual) = kept[index].as_ref().filter(|residual| residual.is_of(weight)) {
            return Some(residual.tensor.shallow_clone());
        }
        let wide = weight.to_kind(crate::base::tensor::wide(weight.kind()));
        let there = |t: &Tensor| t.to_device(wide.device()).to_kind(wide.kind());
        let part = there(b).matmul(&there(a)) * layer.scale;
        let tensor = (&wide - part.view_as(&wide)).to_kind(weight.kind());
        kept[index] = Some(Residual { of: weight.shallow_clone(), tensor: tensor.shallow_clone() });
        Some(tensor)
    }

    /// Returns the columns of a particle in the order of the layout, from those of each layer and of the head.
    fn joined(&self, of: impl Fn(usize, &Layer) -> Tensor, head: impl Fn(&Head) -> Tensor) -> Tensor {
        let mut parts = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            parts.push(of(index, layer));
            parts.extend(layer.magnitude.as_ref().map(Tensor::shallow_clone));
        }
        parts.extend(self.whole.iter().map(Whole::flat));
        parts.extend(self.head.as_ref().map(head));
        Tensor::cat(&parts, 0)
    }

    fn whole_again(&self) -> Vec<Whole> {
        self.whole.iter().map(Whole::again).collect()
    }

    /// Returns particles with their coefficients, and with those of what the frozen weights lack, if they lack it.
    fn with_origin(&self, theta: &Tensor, coefficients: &Tensor) -> [Tensor; 2] {
        if !self.moves_base() {
            return [theta.shallow_clone(), coefficients.shallow_clone()];
        }
        let origin = self.origin().to_device(theta.device()).to_kind(theta.kind()).unsqueeze(0);
        let rest = -coefficients.sum_dim_intlist([1i64].as_slice(), true, coefficients.kind());
        [Tensor::cat(&[theta, &origin], 0), Tensor::cat(&[coefficients, &rest], 1)]
    }
}

impl Subspace for LowRankSubspace {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor> {
        let of = |index: usize, layer: &Layer| {
            let drawn = Drawn { seed, particle, layer: index as u64 };
            let shape = [layer.rank, layer.inputs, layer.outputs];
            match (&layer.given, self.start) {
                (Some(given), _) => given.of_particle(seed, particle, index as u64).flat(),
                (None, Start::Uniform { gain }) => uniform_factors(drawn, shape, gain),
                (None, Start::Normal { std }) => normal_factors(drawn, shape, std),
                (None, Start::Inputs) => uniform_factors(drawn, shape, None),
                (None, Start::Given) => {
                    Tensor::zeros([layer.rank * (layer.inputs + layer.outputs)], tch::kind::FLOAT_CPU)
                }
            }
        };
        Ok(self.joined(of, |head| initial_head(seed, particle, head)))
    }

    fn directed(&self) -> Vec<Directed> {
        match self.start {
            Start::Inputs => {
                self.layers.iter().map(|layer| Directed { name: layer.name.clone(), rank: layer.rank }).collect()
            }
            Start::Uniform { .. } | Start::Normal { .. } | Start::Given => Vec::new(),
        }
    }

    fn initial_along(&self, seed: u64, particle: u64, directions: &[Tensor]) -> Result<Tensor> {
        let of = |index: usize, layer: &Layer| {
            let (a, b) =
                (directions[index].shallow_clone(), Tensor::zeros([layer.outputs, layer.rank], tch::kind::FLOAT_CPU));
            Factors { a, b }.of_particle(seed, particle, index as u64).flat()
        };
        Ok(self.joined(of, |head| initial_head(seed, particle, head)))
    }

    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a> {
        let mut weights = Weights::frozen(base);
        let mut rest = leaves;
        for (index, layer) in self.layers.iter().enumerate() {
            let (own, others) = rest.split_at(layer.leaves());
            rest = others;
            let (a, b) = (own[0].shallow_clone(), own[1].shallow_clone());
            let magnitude = own.get(2).map(Tensor::shallow_clone);
            weights.update(&layer.name, LowRank { a, b, scale: layer.scale, magnitude });
            if let Some(residual) = self.residual(index, base) {
                weights.share(&format!("{}.weight", layer.name), residual);
            }
        }
        for ((name, _), leaf) in self.whole.iter().flat_map(|layer| &layer.parameters).zip(rest) {
            weights.replace(name, leaf.shallow_clone());
        }
        if self.head.is_some() {
            let rest = &rest[rest.len() - 2..];
            weights.replace("head.weight", rest[0].shallow_clone());
            weights.replace("head.bias", rest[1].shallow_clone());
        }
        weights
    }

    /// Returns the factors that the frozen weights lack, the norms of the rows of W_0, the checkpoint's values of layers that are trained
    /// whole, and zeros for all other columns.
    fn origin(&self) -> Tensor {
        let zeros = |count: i64| Tensor::zeros([count], (Kind::Float, Device::Cpu));
        let of = |_: usize, layer: &Layer| match &layer.given {
            Some(given) => given.flat(),
            None => zeros(layer.rank * (layer.inputs + layer.outputs)),
        };
        self.joined(of, |head| zeros((head.weight.numel() + head.bias.numel()) as i64))
    }

    /// Combines particles into points of rank n·r. A stacks the A of all particles vertically, and B stacks theirs
    /// horizontally, each times its coefficient. Where the frozen weights lack s B_0 A_0, that is one more particle, which
    /// counts −Σ_j c_kj, and the points are updates of the checkpoint itself.
    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined> {
        check(theta, coefficients)?;
        ensure!(
            self.layers.iter().all(|layer| layer.magnitude.is_none()) || coefficients.size()[1] == 1,
            "subspace.low-rank.dora: the mean of such particles in weight space is no low-rank update: average the factors (--space \
             factors), or leave the particles apart"
        );
        let points = coefficients.size()[0];
        let (own_theta, own) = (theta, coefficients);
        let [theta, coefficients] = self.with_origin(theta, coefficients);
        let particles = theta.size()[0];
        let (mut layers, mut parts, mut column) = (Vec::new(), Vec::new(), 0);
        for layer in &self.layers {
            let Layer { rank, inputs, outputs, .. } = *layer;
            let joint = particles * rank;
            let a = theta.narrow(1, column, rank * inputs).reshape([1, joint * inputs]);
            let b = theta.narrow(1, column + rank * inputs, outputs * rank);
            let b = b.reshape([1, particles, outputs, rank]) * coefficients.view([points, particles, 1, 1]);
            parts.push(a.expand([points, -1], false));
            parts.push(b.permute([0, 2, 1, 3]).reshape([points, outputs * joint]));
            column += rank * (inputs + outputs);
            if layer.magnitude.is_some() {
                parts.push(own_theta.narrow(1, column, outputs).expand([points, -1], false));
                column += outputs;
            }
            layers.push(Layer { rank: joint, given: None, ..layer.again() });
        }
        for layer in &self.whole {
            let start = layer.flat();
            parts.push(around(&start, &own_theta.narrow(1, column, start.size()[0]), own)?);
            column += start.size()[0];
        }
        if self.head.is_some() {
            parts.push(own.matmul(&own_theta.narrow(1, column, self.layout.parameters() - column)));
        }
        let head = self.head.as_ref().map(Head::again);
        let start = if self.moves_base() { Start::Given } else { self.start };
        let subspace = Box::new(LowRankSubspace::new(layers, self.whole_again(), start, head));
        Ok(Combined { subspace, theta: Tensor::cat(&parts, 1) })
    }

    fn relative(&self, theta: &Tensor) -> Result<Option<Combined>> {
        if !self.moves_base() {
            return Ok(None);
        }
        let one = Tensor::ones([1, 1], (Kind::Float, theta.device()));
        let rows = (0..theta.size()[0]).map(|row| self.combine(&theta.narrow(0, row, 1), &one));
        let mut rows = rows.collect::<Result<Vec<_>>>()?;
        let theta = Tensor::cat(&rows.iter().map(|row| &row.theta).collect::<Vec<_>>(), 0);
        Ok(rows.pop().map(|Combined { subspace, .. }| Combined { subspace, theta }))
    }

    fn moves_base(&self) -> bool {
        self.layers.iter().any(|layer| layer.given.is_some())
    }

    fn scaled_by(&self) -> Option<&'static str> {
        self.layers.iter().any(|layer| layer.magnitude.is_some()).then_some(DORA)
    }

    fn again(&self) -> Box<dyn Subspace> {
        let layers = self.layers.iter().map(Layer::again).collect();
        Box::new(LowRankSubspace::new(layers, self.whole_again(), self.start, self.head.as_ref().map(Head::again)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A weight that lies where a freed one lay has a rest of its own.
    #[test]
    fn rests_are_those_of_the_weight_itself() {
        let weight = |number: i64| Tensor::arange(30, (Kind::Float, Device::Cpu)).view([6, 5]) * 0.1 + number as f64;
        let given = Factors::principal(&weight(0), 2, 0.5).unwrap();
        let part = given.b.matmul(&given.a) * 0.5;
        let (name, given) = ("layer".to_string(), Some(given));
        let layer = Layer { name, rank: 2, inputs: 5, outputs: 6, scale: 0.5, given, magnitude: None };
        let subspace = LowRankSubspace::new(vec![layer], Vec::new(), Start::Given, None);
        for number in 0..50 {
            let base = Parameters::new(vec![("layer.weight".to_string(), weight(number))]);
            let rest = subspace.residual(0, &base).unwrap();
            assert_eq!(rest, weight(number) - &part);
            assert_eq!(subspace.residual(0, &base).unwrap().data_ptr(), rest.data_ptr(), "it is computed once");
        }
    }
}
