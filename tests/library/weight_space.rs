//! Gradients mixed in weight space equal the formed ones, Σ_j c_ij ∂L_j/∂W_j carried into the factors, in f64.

use crate::common::{alike_within, fixture, model};
use bella::base::random::{Purpose, normal, stream};
use bella::data::batches::Batch;
use bella::data::fields::{Fields, PIXELS};
use bella::methods::{Extended, Extra, Objective, Request};
use bella::model::Model;
use bella::model::network::Weights;
use bella::subspace::geometry::WeightSpace;
use bella::subspace::{Block, Shape, Subspace};
use bella::train::{Learner, Likelihood, Passes};
use tch::{Device, Kind, Tensor};

const PARTICLES: i64 = 3;
const BATCH: i64 = 4;
const WHOLE: Passes = Passes::WHOLE;
const LOW_RANK: &str =
    "[subspace.low-rank]\nrank = 2\ntargets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"]";

fn numbers(shape: &[i64], seed: u64) -> Tensor {
    let mut rng = stream(seed, Purpose::Noise, &[]);
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| normal(&mut rng)).collect();
    Tensor::from_slice(&values).view(shape)
}

/// A fixture's model in f64 with a subspace of it, a batch, and particles that have moved apart in every column.
struct Setting {
    model: Model,
    subspace: Box<dyn Subspace>,
    theta: Tensor,
    batch: Batch,
    orders: i64,
}

impl Setting {
    fn new(archive: &str, head: &str, subspace: &str, orders: i64) -> Setting {
        let text = format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = {:?}\nnormalize = \"clip\"\n{head}\n[data.digits]\n{subspace}\n\
             [method.svgd]\nparticles = 3\ngamma = 0.1\ndrive = \"weight\"\n[optimizer.adamw]\nlr = 1e-3\n\
             [train]\nepochs = 1\nbatch_size = 4\n",
            fixture(archive)
        );
        let (model, subspace) = model(&text, Kind::Double);
        let rows: Vec<Tensor> = (0..PARTICLES as u64).map(|i| subspace.initial(1, i).unwrap()).collect();
        let start = Tensor::stack(&rows, 0).to_kind(Kind::Double);
        let theta = &start + numbers(&start.size(), 5) * 0.05;
        use rand::RngExt;
        let mut rng = stream(6, Purpose::Check, &[]);
        let bytes: Vec<u8> = (0..orders * BATCH * 3 * 16 * 16).map(|_| rng.random()).collect();
        let labels: Vec<i64> = (0..orders * BATCH).map(|_| rng.random_range(0..10)).collect();
        let bytes = Tensor::from_slice(&bytes).view([orders * BATCH, 3, 16, 16]);
        Setting {
            model,
            subspace,
            theta,
            batch: Batch { samples: Fields::of(PIXELS, bytes), labels: Tensor::from_slice(&labels) },
            orders,
        }
    }

    fn timm(orders: i64) -> Setting {
        Setting::new("timm_scripted.pt", "[head.checkpoint]", LOW_RANK, orders)
    }

    /// A CLIP tower whose particles train heads of their own.
    fn with_heads() -> Setting {
        Setting::new("openai_visual.pt", "[head.linear]", LOW_RANK, PARTICLES)
    }

    fn blocks(&self) -> i64 {
        self.subspace.layout().blocks.len() as i64
    }

    fn likelihood(&self, passes: Passes) -> Likelihood<'_> {
        Likelihood::new(Learner::of_classes(&self.model, self.subspace.as_ref()), passes, &self.batch, self.orders)
    }

    fn mixed(&self, theta: &Tensor, matrices: &Tensor, passes: Passes) -> Extended {
        let request = Request::losses(theta).with(Extra::Mixing(matrices));
        self.likelihood(passes).evaluate(&request).unwrap().extended().unwrap()
    }

    /// Neither symmetric nor with a diagonal of 1.
    fn matrices(&self) -> Tensor {
        numbers(&[self.blocks(), PARTICLES, PARTICLES], 7)
    }

    /// A matrix times the identity, for one diagonal `[L, n]` a block.
    fn diagonal(&self, values: &Tensor) -> Tensor {
        Tensor::diag_embed(values, 0, -2, -1)
    }

    /// A and B of a low-rank block, or a dense block as it is, one per particle.
    fn parts(block: &Block, rows: &Tensor) -> Vec<Tensor> {
        let n = rows.size()[0];
        let columns = |from: i64, count: i64| rows.narrow(1, block.columns.start + from, count);
        match block.shape {
            Shape::LowRank { rank, inputs, outputs, .. } => vec![
                columns(0, rank * inputs).reshape([n, rank, inputs]),
                columns(rank * inputs, outputs * rank).reshape([n, outputs, rank]),
            ],
            Shape::Dense => vec![columns(0, block.columns.end - block.columns.start)],
        }
    }

    /// The definition: every W_j formed, G_j from autograd, Φ_i = Σ_j c_ij G_j, the chain rule.
    fn dense(&self, matrices: &Tensor) -> Tensor {
        let layout = self.subspace.layout();
        let mut weights = Weights::frozen(&self.model.base);
        let mut leaves = Vec::new();
        for block in &layout.blocks {
            let parts = Setting::parts(block, &self.theta);
            match block.shape {
                Shape::LowRank { scale, .. } => {
                    let name = format!("{}.weight", block.name);
                    let weight = self.model.base.get(&name).unwrap() + parts[1].bmm(&parts[0]) * scale;
                    leaves.push(weight.set_requires_grad(true));
                    weights.replace(&name, leaves.last().unwrap().shallow_clone());
                }
                Shape::Dense => {
                    leaves.push(parts[0].copy().set_requires_grad(true));
                    let (weight, bias) = (&self.model.head.weight, &self.model.head.bias);
                    let split =
                        leaves.last().unwrap().split_with_sizes([weight.numel() as i64, bias.numel() as i64], 1);
                    let size = weight.size();
                    weights.replace("head.weight", split[0].view([PARTICLES, size[0], size[1]]));
                    weights.replace("head.bias", split[1].shallow_clone());
                }
            }
        }
        let logits =
            self.model.logits(&weights, &self.model.preparation.prepare(&self.batch.samples.of_particles(self.orders)));
        let labels = self.batch.labels.view([self.orders, -1]).expand([PARTICLES, -1], false);
        let loss = logits.reshape([PARTICLES * BATCH, -1]).cross_entropy_loss::<Tensor>(
            &labels.reshape([-1]),
            None,
            tch::Reduction::Sum,
            -100,
            0.0,
        ) / BATCH as f64;
        let formed = Tensor::run_backward(&[loss], &leaves, false, false);
        let mut columns = Vec::new();
        for (index, (block, formed)) in layout.blocks.iter().zip(formed).enumerate() {
            let mixed = matrices.get(index as i64).matmul(&formed.reshape([PARTICLES, -1])).view_as(&formed);
            let flat = |t: Tensor| t.reshape([PARTICLES, -1]);
            match block.shape {
                Shape::LowRank { scale, .. } => {
                    let parts = Setting::parts(block, &self.theta);
                    columns.push(flat(parts[1].transpose(1, 2).bmm(&mixed) * scale));
                    columns.push(flat(mixed.bmm(&parts[0].transpose(1, 2)) * scale));
                }
                Shape::Dense => columns.push(flat(mixed)),
            }
        }
        Tensor::cat(&columns, 1)
    }
}

/// Compares each block by its largest entry, which must not be 0.
#[track_caller]
fn blocks_alike(setting: &Setting, ours: &Tensor, expected: &Tensor, bound: f64, what: &str) {
    assert_eq!(ours.size(), expected.size(), "{what}");
    for block in &setting.subspace.layout().blocks {
        for (ours, expected) in Setting::parts(block, ours).iter().zip(Setting::parts(block, expected)) {
            assert!(expected.abs().max().double_value(&[]) > 1e-12, "{what}, {}", block.name);
            alike_within(ours, &expected, bound, &format!("{what}, {}", block.name));
        }
    }
}

#[test]
fn mixed_gradients_equal_formed_ones() {
    for setting in [Setting::timm(1), Setting::timm(PARTICLES), Setting::with_heads()] {
        let matrices = setting.matrices();
        let mixed = setting.mixed(&setting.theta, &matrices, WHOLE);
        blocks_alike(&setting, &mixed.extra, &setting.dense(&matrices), 1e-9, "mixed");
    }
}

#[test]
fn own_gradients_and_losses_stay_as_they_are() {
    let setting = Setting::timm(PARTICLES);
    let own = setting.likelihood(WHOLE).losses(&setting.theta).unwrap();
    let mixed = setting.mixed(&setting.theta, &setting.matrices(), WHOLE);
    blocks_alike(&setting, &mixed.own.gradients, &own.gradients, 1e-12, "own");
    assert_eq!(mixed.own.losses, own.losses);
}

#[test]
fn a_diagonal_matrix_scales_own_gradients() {
    let setting = Setting::with_heads();
    let own = setting.likelihood(WHOLE).losses(&setting.theta).unwrap().gradients;
    let ones = Tensor::ones([setting.blocks(), PARTICLES], (Kind::Double, Device::Cpu));
    let identity = setting.mixed(&setting.theta, &setting.diagonal(&ones), WHOLE).extra;
    blocks_alike(&setting, &identity, &own, 1e-9, "identity");
    let values = Tensor::from_slice(&[0.5, 1.0, -2.0]);
    let scaled = setting.mixed(&setting.theta, &setting.diagonal(&(ones * &values)), WHOLE).extra;
    blocks_alike(&setting, &scaled, &(own * values.unsqueeze(1)), 1e-9, "diagonal");
}

#[test]
fn one_particle_follows_its_own_gradient() {
    let setting = Setting::timm(1);
    let alone = setting.theta.narrow(0, 1, 1);
    let own = setting.likelihood(WHOLE).losses(&alone).unwrap().gradients;
    let one = Tensor::ones([setting.blocks(), 1, 1], (Kind::Double, Device::Cpu));
    blocks_alike(&setting, &setting.mixed(&alone, &one, WHOLE).extra, &own, 1e-9, "n = 1");
}

#[test]
fn chunks_and_parts_change_nothing() {
    for setting in [Setting::timm(1), Setting::with_heads()] {
        let matrices = setting.matrices();
        let whole = setting.mixed(&setting.theta, &matrices, WHOLE);
        for particle_chunk in [0, 1, 2] {
            for (accumulate, recompute) in [(1, false), (3, false), (1, true), (3, true)] {
                let passes = Passes { particle_chunk, accumulate, recompute };
                let mixed = setting.mixed(&setting.theta, &matrices, passes);
                blocks_alike(&setting, &mixed.extra, &whole.extra, 1e-9, &format!("{passes:?}"));
                blocks_alike(&setting, &mixed.own.gradients, &whole.own.gradients, 1e-9, &format!("own, {passes:?}"));
            }
        }
    }
}

#[test]
fn full_weights_are_mixed_as_they_are() {
    let setting = Setting::new("timm_scripted.pt", "[head.checkpoint]", "[subspace.full]", PARTICLES);
    let one = setting.matrices().narrow(0, 0, 1);
    let mixed = setting.mixed(&setting.theta, &one.expand([setting.blocks(), -1, -1], false), WHOLE);
    let shared = one.get(0).matmul(&mixed.own.gradients);
    assert_eq!((&mixed.extra - &shared).abs().max().double_value(&[]), 0.0);
}

/// Rows with (R A, B Rᵀ) in place of (A, B), R orthogonal, another one for each particle and block: the same W.
fn rotated(setting: &Setting) -> Tensor {
    let rows = setting.theta.copy();
    for (index, block) in setting.subspace.layout().blocks.iter().enumerate() {
        let parts = Setting::parts(block, &setting.theta);
        let rank = parts[0].size()[1];
        let (rotation, _) = Tensor::linalg_qr(&numbers(&[PARTICLES, rank, rank], 100 + index as u64), "reduced");
        let flat = |t: Tensor| t.reshape([PARTICLES, -1]);
        let both = [flat(rotation.bmm(&parts[0])), flat(parts[1].bmm(&rotation.transpose(1, 2)))];
        let both = Tensor::cat(&both, 1);
        rows.narrow(1, block.columns.start, both.size()[1]).copy_(&both);
    }
    rows
}

/// First-order update of every W when theta moves by `step`: dB A + B dA, one per block.
fn updates(setting: &Setting, theta: &Tensor, step: &Tensor) -> Vec<Tensor> {
    let update = |block: &Block| {
        let (at, by) = (Setting::parts(block, theta), Setting::parts(block, step));
        by[1].bmm(&at[0]) + at[1].bmm(&by[0])
    };
    setting.subspace.layout().blocks.iter().map(update).collect()
}

fn largest(a: &[Tensor], b: &[Tensor]) -> f64 {
    let difference = |(a, b): (&Tensor, &Tensor)| ((a - b).abs().max() / b.abs().max()).double_value(&[]);
    a.iter().zip(b).map(difference).fold(0.0, f64::max)
}

#[test]
fn the_update_does_not_depend_on_the_choice_of_factors() {
    let setting = Setting::timm(PARTICLES);
    let geometry = WeightSpace::new(setting.subspace.layout());
    // The kernel depends on W only.
    let kernel =
        |theta: &Tensor| (-geometry.distances(theta) / geometry.distances(&setting.theta).mean(Kind::Double)).exp();
    let turned = rotated(&setting);
    let drive = |theta: &Tensor| setting.mixed(theta, &kernel(theta), WHOLE);
    let (here, there) = (drive(&setting.theta), drive(&turned));
    let ours = updates(&setting, &setting.theta, &here.extra);
    assert!(largest(&updates(&setting, &turned, &there.extra), &ours) < 1e-9);
    // Column by column (equation 2 on factors) it does.
    let shared = |theta: &Tensor, own: &Tensor| {
        let mixed = kernel(theta).get(0).matmul(own);
        updates(&setting, theta, &mixed)
    };
    let (a, b) = (shared(&turned, &there.own.gradients), shared(&setting.theta, &here.own.gradients));
    assert!(largest(&a, &b) > 0.01, "the two choices of factors are too close to tell");
}

#[test]
fn matrices_of_another_shape_are_refused() {
    let setting = Setting::timm(1);
    let matrices = setting.matrices().narrow(0, 0, 1);
    let request = Request::losses(&setting.theta).with(Extra::Mixing(&matrices));
    let error = setting.likelihood(WHOLE).evaluate(&request);
    let text = format!("{:#}", error.err().expect("an error"));
    assert!(text.contains("blocks of 3 particles"), "{text}");
}
