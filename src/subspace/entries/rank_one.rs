//! `[subspace.rank-one]`: W_i = W_0 ∘ (s_i r_iᵀ) on chosen linear layers, with a bias of each particle: the members of BatchEnsemble
//! (Wen et al. 2020, arXiv 2002.06715).
//!
//! | symbol | here |
//! |---|---|
//! | W_0 | the weight of the checkpoint, `[out, in]`, frozen and shared |
//! | r_i, s_i | the factors of the inputs and of the outputs of particle i, `[in]` and `[out]` |
//! | y = (W_0 (x ∘ r_i)) ∘ s_i + b_i | (equation 5), so that no weight of a particle is formed |
//! | the columns of a layer | r_i − 1, s_i − 1 and b_i, so that a weight decay or a prior around 0 keeps the factors near 1 |
//!
//! Factors start at N(1, `std`²), as the authors' `random_sign_init` below 0 has them, or as random signs; b starts at the
//! checkpoint's. Differs from the authors' networks, which are trained from nothing: there W_0 is trained, too, by all members
//! together, without weight decay of the factors, and `std` is 0.5; here it is frozen, and the default is small enough for particles to
//! stay near the checkpoint.

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use tch::{Device, Kind, Tensor};

use crate::base::random::{Purpose, normal, stream};
use crate::model::head::{Head, Training};
use crate::model::network::low_rank::{SCALES, Scales};
use crate::model::network::{Network, Parameters, Slot, Weights};
use crate::schema::{Reader, settings, words};
use crate::subspace::targets::{Chosen, Target};
use crate::subspace::{Combined, Entry, Layout, Shape, Subspace, SubspaceSpec, initial_head, push_head, updates};

pub static ENTRY: Entry = Entry {
    key: "rank-one",
    about: "W_0 times factors of its inputs and outputs on chosen linear layers, and their biases; W_0 frozen and shared",
    read: |reader| Box::new(Spec::read(reader)),
};

words! {
    /// The start of the factors.
    enum Init {
        Normal = "normal",
        Signs = "signs",
    }
}

settings! {
    struct Spec {
        /// Linear layers of each block whose inputs and outputs get factors, named as in `low-rank`.
        targets: Vec<Target> = vec![Target::Fc, Target::Proj];
        /// Blocks whose layers get factors, such as `"6-11"`; all by default.
        blocks: Option<String>;
        /// Start of the factors: Gaussian around 1, or random signs, which leave little of a checkpoint.
        init: Init = Init::Normal, omit Init::Normal;
        /// Standard deviation of the factors' start around 1; 0.1 by default.
        std: Option<f64>, in at_least(0.0);
    } then check
}

/// The standard deviation of the factors' start unless the config says otherwise.
const STD: f64 = 0.1;

impl Spec {
    fn check(&self, reader: &Reader) {
        self.chosen().check(reader);
        if self.init == Init::Signs && self.std.is_some() {
            reader.problem("std", "is of factors around 1, which init = \"signs\" has not: leave it out");
        }
    }

    fn chosen(&self) -> Chosen<'_> {
        Chosen { subspace: ENTRY.key, key: "targets", targets: &self.targets, blocks: self.blocks.as_deref() }
    }

    /// Returns the standard deviation of factors around 1; `None` for signs.
    fn std(&self) -> Option<f64> {
        (self.init == Init::Normal).then(|| self.std.unwrap_or(STD))
    }
}

impl SubspaceSpec for Spec {
    fn equal_starts(&self, head: Training) -> bool {
        self.std() == Some(0.0) && head != Training::Always
    }

    fn build(&self, network: &dyn Network, base: &Parameters, head: &Head) -> Result<Box<dyn Subspace>> {
        let of = |slot: Slot| {
            let Slot { name, inputs, outputs, .. } = slot;
            base.get(&format!("{name}.weight"))
                .with_context(|| format!("subspace.rank-one: the checkpoint has no {name}.weight"))?;
            let bias = base.get(&format!("{name}.bias")).map(|bias| bias.to_device(Device::Cpu).to_kind(Kind::Float));
            Ok(Layer { name, inputs, outputs, bias })
        };
        let layers = self.chosen().slots(network)?.into_iter().map(of).collect::<Result<Vec<_>>>()?;
        let head = (head.training == Training::Always).then(|| head.to(Device::Cpu, Kind::Float));
        Ok(Box::new(RankOne::new(layers, self.std(), head)))
    }
}

/// An adapted layer.
struct Layer {
    name: String,
    inputs: i64,
    outputs: i64,
    /// The bias of the checkpoint, f32 on the CPU, if the layer has one.
    bias: Option<Tensor>,
}

impl Layer {
    fn again(&self) -> Layer {
        let Layer { inputs, outputs, .. } = *self;
        Layer { name: self.name.clone(), inputs, outputs, bias: self.bias.as_ref().map(Tensor::shallow_clone) }
    }

    fn push(&self, layout: &mut Layout) {
        let (name, start) = (&self.name, layout.parameters());
        layout.push_scales(format!("{name}{SCALES}.inputs"), self.inputs);
        layout.push(format!("{name}{SCALES}.outputs"), &[self.outputs]);
        if self.bias.is_some() {
            layout.push(format!("{name}.bias"), &[self.outputs]);
        }
        layout.close_block(name, start, Shape::Dense);
    }

    /// Returns the columns with these factors `[in + out]`.
    fn columns(&self, factors: Tensor) -> Tensor {
        match &self.bias {
            Some(bias) => Tensor::cat(&[factors, bias.reshape([-1])], 0),
            None => factors,
        }
    }
}

struct RankOne {
    layout: Layout,
    layers: Vec<Layer>,
    /// The standard deviation of factors around 1; `None` for signs.
    std: Option<f64>,
    /// The head whose shape particles train, if they train their own.
    head: Option<Head>,
}

impl RankOne {
    fn new(layers: Vec<Layer>, std: Option<f64>, head: Option<Head>) -> RankOne {
        let mut layout = Layout::default();
        layers.iter().for_each(|layer| layer.push(&mut layout));
        if let Some(head) = &head {
            push_head(&mut layout, head);
        }
        RankOne { layout, layers, std, head }
    }

    /// Returns a row with the factors of each layer, of which the number is given, and with a head.
    fn joined(&self, factors: impl Fn(usize, i64) -> Tensor, head: impl Fn(&Head) -> Tensor) -> Tensor {
        let of = |(index, layer): (usize, &Layer)| layer.columns(factors(index, layer.inputs + layer.outputs));
        let parts: Vec<Tensor> = self.layers.iter().enumerate().map(of).chain(self.head.as_ref().map(head)).collect();
        Tensor::cat(&parts, 0)
    }
}

impl Subspace for RankOne {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor> {
        let factors = |index: usize, count: i64| {
            let mut rng = stream(seed, Purpose::Init, &[particle, index as u64]);
            let mut draw = || match self.std {
                Some(std) => (std * normal(&mut rng)) as f32,
                // The signs 1 and −1.
                None if rng.random_bool(0.5) => 0.0,
                None => -2.0,
            };
            Tensor::from_slice(&(0..count).map(|_| draw()).collect::<Vec<f32>>())
        };
        Ok(self.joined(factors, |head| initial_head(seed, particle, head)))
    }

    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a> {
        let mut weights = Weights::frozen(base);
        let mut rest = leaves.iter().map(Tensor::shallow_clone);
        for Layer { name, bias, .. } in &self.layers {
            if let (Some(inputs), Some(outputs)) = (rest.next(), rest.next()) {
                weights.scale(name, Scales { inputs: inputs + 1.0, outputs: outputs + 1.0 });
            }
            if let Some(own) = bias.as_ref().and_then(|_| rest.next()) {
                weights.replace(&format!("{name}.bias"), own);
            }
        }
        for (part, leaf) in ["head.weight", "head.bias"].into_iter().zip(rest) {
            weights.replace(part, leaf);
        }
        weights
    }

    /// Returns factors of 1, the checkpoint's biases, and zeros for a head.
    fn origin(&self) -> Tensor {
        let options = (Kind::Float, Device::Cpu);
        let head = |head: &Head| Tensor::zeros([(head.weight.numel() + head.bias.numel()) as i64], options);
        self.joined(|_, count| Tensor::zeros([count], options), head)
    }

    /// A mean of such weights has no rank of one, so one particle alone is combined, with the coefficient 1.
    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined> {
        updates::check(theta, coefficients)?;
        ensure!(
            coefficients.size()[1] == 1 && coefficients.eq(1.0).all().int64_value(&[]) == 1,
            "[subspace.rank-one]: a mean or another combination of such particles in weight space has no rank of one: average \
             the factors (`bella soup` and `merge` with --space factors), or leave the particles apart"
        );
        let theta = theta.expand([coefficients.size()[0], -1], false).contiguous();
        Ok(Combined { subspace: self.again(), theta })
    }

    fn scaled_by(&self) -> Option<&'static str> {
        Some("[subspace.rank-one]")
    }

    fn again(&self) -> Box<dyn Subspace> {
        let layers = self.layers.iter().map(Layer::again).collect();
        Box::new(RankOne::new(layers, self.std, self.head.as_ref().map(Head::again)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::subspace::geometry::{Inputs, WeightSpace};
    use crate::subspace::updates::Dense;

    const MEMBERS: i64 = 3;
    const INPUTS: i64 = 7;
    const OUTPUTS: i64 = 5;

    /// The values of `wave` in scripts/make_cheap_ensemble_goldens.py.
    fn wave(shape: &[i64], phase: f64) -> Tensor {
        (Tensor::arange(shape.iter().product::<i64>(), tch::kind::DOUBLE_CPU) * 0.7 + phase).sin().view(shape)
    }

    fn subspace() -> RankOne {
        let (name, bias) = ("w".to_string(), Some(wave(&[OUTPUTS], 0.2).to_kind(Kind::Float)));
        RankOne::new(vec![Layer { name, inputs: INPUTS, outputs: OUTPUTS, bias }], Some(0.1), None)
    }

    fn base() -> Parameters {
        Parameters::new(vec![
            ("w.weight".into(), wave(&[OUTPUTS, INPUTS], 0.3)),
            ("w.bias".into(), wave(&[OUTPUTS], 0.2)),
        ])
    }

    /// Dropped are inputs, by their factors, which are the columns and 1.
    #[test]
    fn inputs_are_met_by_factors_less_one() {
        let geometry = WeightSpace::new(subspace().layout());
        assert_eq!(geometry.inputs(), [Inputs { start: 0, outputs: 1, inputs: INPUTS, plus: 1 }]);
    }

    /// Outputs, gradients, and outputs after two steps are those of torch-uncertainty's layer.
    #[test]
    fn a_layer_is_that_of_batch_ensemble() {
        let golden = Golden::of_authors("cheap_ensembles");
        let of = |name: &str| golden.tensor(&format!("batch_ensemble/{name}"));
        let factors = [wave(&[MEMBERS, INPUTS], 1.1), wave(&[MEMBERS, OUTPUTS], 1.9)].map(|wave| wave * 0.5 + 1.0);
        let mut theta = Tensor::cat(&[&factors[0] - 1.0, &factors[1] - 1.0, wave(&[MEMBERS, OUTPUTS], 1.3)], 1);
        let (subspace, base) = (subspace(), base());
        let target = wave(&[4, OUTPUTS], 2.1);
        let pass = |theta: &Tensor| {
            let leaves = subspace.layout().leaves(theta, Kind::Double, true);
            let y = subspace.weights(&base, &leaves).linear("w").forward(&wave(&[1, 4, 1, INPUTS], 0.9)).squeeze_dim(2);
            let loss = (&y - &target).square().sum(Kind::Double);
            let gradients = theta.zeros_like();
            subspace.layout().gather(&Tensor::run_backward(&[loss], &leaves, false, false), &gradients);
            (y.detach(), gradients)
        };
        let (y, gradients) = pass(&theta);
        near(&y, &of("start"), 1e-13);
        let columns = ["inputs", "outputs", "bias"].map(|part| of(&format!("gradients/{part}")));
        near(&gradients, &Tensor::cat(&columns, 1), 1e-12);
        for _ in 0..2 {
            theta = &theta - pass(&theta).1 * 0.02;
        }
        near(&pass(&theta).0, &of("end"), 1e-12);
    }

    /// A weight decay, which pulls columns to 0, pulls the factors to 1 and so to the checkpoint.
    #[test]
    fn columns_of_nothing_are_the_checkpoint() {
        let (subspace, base) = (subspace(), base());
        let theta = subspace.origin().unsqueeze(0);
        assert_eq!(theta.narrow(1, 0, INPUTS + OUTPUTS).abs().max().double_value(&[]), 0.0);
        let leaves = subspace.layout().leaves(&theta, Kind::Double, false);
        let x = wave(&[1, 4, 1, INPUTS], 0.9);
        let y = subspace.weights(&base, &leaves).linear("w").forward(&x);
        near(&y, &Weights::frozen(&base).linear("w").forward(&x), 1e-6);
    }

    /// Rows of a layer, and the weight that leaves, are those of the whole.
    #[test]
    fn parts_of_a_layer_are_those_of_its_formed_weights() {
        let (subspace, base) = (subspace(), base());
        let theta = Tensor::stack(&[subspace.initial(3, 0).unwrap(), subspace.initial(3, 1).unwrap()], 0);
        let leaves = subspace.layout().leaves(&theta, Kind::Double, false);
        let weights = subspace.weights(&base, &leaves);
        let x = wave(&[1, 4, 1, INPUTS], 0.9);
        let y = weights.linear("w").forward(&x);
        for particle in 0..2 {
            let weight = weights.of_particle("w.weight", particle).unwrap();
            let bias = weights.of_particle("w.bias", particle).unwrap();
            near(&x.squeeze_dim(0).linear(&weight, Some(&bias)), &y.get(particle), 1e-14);
        }
        near(&weights.linear("w").rows(1, 3).forward(&x), &y.narrow(3, 1, 3), 1e-14);
        let index = Tensor::from_slice(&[4i64, 0]);
        near(&weights.linear("w").picked(&index, Kind::Double).forward(&x), &y.index_select(3, &index), 1e-14);
    }

    #[test]
    fn factors_start_around_one_or_as_signs_and_biases_at_the_checkpoint() {
        let layer = || Layer {
            name: "w".into(),
            inputs: 3000,
            outputs: 1000,
            bias: Some(Tensor::zeros([1000], tch::kind::FLOAT_CPU)),
        };
        let start = |std| RankOne::new(vec![layer()], std, None).initial(3, 1).unwrap().to_kind(Kind::Double);
        let factors = start(Some(0.1)).narrow(0, 0, 4000);
        assert!(factors.mean(Kind::Double).double_value(&[]).abs() < 0.005);
        assert!((factors.std(true).double_value(&[]) - 0.1).abs() < 0.005);
        let signs = start(None).narrow(0, 0, 4000) + 1.0;
        assert_eq!(signs.abs().ne(1.0).sum(Kind::Int64).int64_value(&[]), 0);
        assert!(signs.mean(Kind::Double).double_value(&[]).abs() < 0.06);
        assert_eq!(start(Some(0.1)).narrow(0, 4000, 1000).abs().max().double_value(&[]), 0.0);
        assert!(!start(Some(0.1)).equal(&RankOne::new(vec![layer()], Some(0.1), None).initial(3, 2).unwrap()));
    }

    #[test]
    fn means_of_weights_are_refused_and_means_of_factors_are_not() {
        let subspace = subspace();
        let theta = subspace.origin().expand([2, -1], false).contiguous();
        let half = Tensor::from_slice(&[0.5f32, 0.5]).view([1, 2]);
        let error = subspace.combine(&theta, &half).err().unwrap().to_string();
        assert!(error.contains("[subspace.rank-one]") && error.contains("--space factors"), "{error}");
        assert!(Dense::of(&subspace).err().unwrap().to_string().contains("[subspace.rank-one]"));
        let mean = updates::mean(&subspace, &theta, None, updates::Space::Factors).unwrap();
        assert!(mean.theta.get(0).equal(&subspace.origin()));
    }
}
