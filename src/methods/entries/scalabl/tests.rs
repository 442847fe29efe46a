use tch::Kind;

use super::*;
use crate::base::golden::{Golden, near};
use crate::base::tensor_file::State;
use crate::methods::doubles::{Plain, given};
use crate::subspace::geometry::WeightSpace;
use crate::subspace::{Layout, Shape};

const RANK: i64 = 2;
const INPUTS: i64 = 6;
const OUTPUTS: i64 = 4;

fn layout(blocks: &[&str]) -> Layout {
    let mut layout = Layout::default();
    for block in blocks {
        let from = layout.parameters();
        layout.push(format!("{block}.a"), &[RANK, INPUTS]);
        layout.push(format!("{block}.b"), &[OUTPUTS, RANK]);
        layout.close_block(*block, from, Shape::LowRank { rank: RANK, inputs: INPUTS, outputs: OUTPUTS, scale: 2.0 });
        layout.push(format!("{block}.bias"), &[3]);
        layout.close_block(format!("{block}.bias"), from + RANK * (INPUTS + OUTPUTS), Shape::Dense);
    }
    layout
}

fn spec(divergence: Divergence) -> Spec {
    Spec {
        particles: 2,
        std_lr: 0.01,
        kl_lr: 0.002,
        prior_std: 1.0,
        divergence,
        init: 0.05,
        cycle: Some(3),
        samples: 4,
    }
}

fn method(blocks: &[&str], theta: &Tensor, divergence: Divergence) -> Scalabl {
    let geometry = WeightSpace::new(&layout(blocks));
    let parts = Parts { theta: theta.copy(), seed: 1, optimizer: Box::new(Plain(0.1)), geometry, clip_norm: None };
    Scalabl::new(spec(divergence), parts)
}

/// Cross-entropy of the golden's layer; gradients by autograd. The bias of the layout is not read.
struct Layer {
    golden: Golden,
}

impl Objective for Layer {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?.copy().set_requires_grad(true);
        let tensor = |name: &str| self.golden.tensor(name);
        let a = theta.narrow(1, 0, RANK * INPUTS).view([RANK, INPUTS]);
        let b = theta.narrow(1, RANK * INPUTS, OUTPUTS * RANK).view([OUTPUTS, RANK]);
        let x = tensor("x");
        let update = x.matmul(&a.tr()).matmul(&b.tr()) * self.golden.number("scale");
        let logits = x.matmul(&tensor("base").tr()) + update;
        let loss = logits.log_softmax(-1, Kind::Double).nll_loss(&tensor("labels").to_kind(Kind::Int64));
        let gradients = Tensor::run_backward(&[&loss], &[&theta], false, false).remove(0);
        Ok(Evaluation { losses: loss.view([1]).detach(), gradients }.into())
    }
}

/// Returns the divergence, `[1]`, between the step of the loss with this draw and its own, where theirs is computed.
fn after_the_loss(at: &mut Scalabl, theta: &Tensor, layer: &mut Layer, draw: &Tensor) -> Tensor {
    let mut state = State::default();
    state.store(|keeper| at.keep(keeper)).unwrap();
    let mut twin = method(&["w"], theta, Divergence::Forward);
    state.restore(|keeper| twin.keep(keeper)).unwrap();
    (twin.spec.kl_lr, twin.noise) = (0.0, given(vec![draw.unsqueeze(0)]));
    twin.step(&mut theta.copy(), layer, 1.0).unwrap();
    let [mean, std] = twin.moments();
    twin.spec.divergence(&mean, &std)
}

/// Three steps of the authors' trainer, with their divergence, its value and its weights.
#[test]
fn steps_are_those_of_the_authors_code() {
    let golden = Golden::of_authors("scalabl");
    // B at the start: turned by the U that belongs to A, it is theirs.
    let a = golden.tensor("a");
    let (left, values, right) = a.svd(true, true);
    near(&values, &golden.tensor("before/mean"), 1e-12);
    let b = golden.tensor("before/b").matmul(&left.tr());
    let bias = Tensor::zeros([3], tch::kind::DOUBLE_CPU);
    let mut theta = Tensor::cat(&[a.reshape([-1]), b.reshape([-1]), bias], 0).unsqueeze(0);
    let mut method = method(&["w"], &theta, Divergence::Forward);
    method.spec.kl_lr = golden.number("kl_rate");
    let own_std = method.numbers.narrow(1, RANK, RANK).exp();
    assert!(own_std.max().double_value(&[]) <= 0.05 && own_std.min().double_value(&[]) >= 0.05 / 2f64.sqrt());
    method.numbers.narrow(1, RANK, RANK).copy_(&golden.tensor("before/std").log().unsqueeze(0));
    let draws = (0..3).map(|step| golden.tensor(&format!("draws/{step}")).unsqueeze(0)).collect();
    method.noise = given(draws);
    // Singular vectors may have another sign; products do not.
    let signs =
        (right.tr() * golden.tensor("before/directions")).sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
    near(&signs.abs(), &Tensor::ones([RANK, 1], tch::kind::DOUBLE_CPU), 1e-12);
    // With its row of V, a column of B changes sign, and the gradients with it.
    let b = golden.tensor("before/b") * signs.tr();
    theta.narrow(1, RANK * INPUTS, OUTPUTS * RANK).copy_(&b.matmul(&left.tr()).reshape([1, -1]));
    let mut layer = Layer { golden: Golden::of_authors("scalabl") };
    method.prepare(&theta, &mut layer).unwrap();
    for step in 0..3 {
        near(
            &Tensor::from(spec::doubling_weight(step, 3)),
            &Tensor::from(golden.number(&format!("weights/{step}"))),
            1e-15,
        );
        let divergence = after_the_loss(&mut method, &theta, &mut layer, &golden.tensor(&format!("draws/{step}")));
        let expected = golden.number(&format!("divergence/{step}"));
        near(&(divergence / expected), &Tensor::from_slice(&[1.0]), 1e-6);
        method.step(&mut theta, &mut layer, 1.0).unwrap();
        let of = |name: &str| golden.tensor(&format!("after/{step}/{name}"));
        let [mean, std] = method.moments();
        near(&mean, &of("mean").unsqueeze(0), 1e-7);
        near(&std, &of("std").unsqueeze(0), 1e-7);
        let expected = of("directions") * of("mean").unsqueeze(1) * &signs;
        near(&theta.narrow(1, 0, RANK * INPUTS).view([RANK, INPUTS]), &expected, 1e-7);
        let expected = of("b") * signs.tr();
        near(&theta.narrow(1, RANK * INPUTS, OUTPUTS * RANK).view([OUTPUTS, RANK]), &expected, 1e-7);
    }
}

/// The authors' divergence with posterior and prior exchanged, which is that of the bound, and its gradients.
#[test]
fn the_reverse_divergence_is_theirs_with_its_sides_exchanged() {
    let golden = Golden::of_authors("scalabl");
    let of = |name: &str| golden.tensor(&format!("reverse/{name}")).unsqueeze(0);
    let spec = Spec { prior_std: golden.number("reverse/prior"), ..spec(Divergence::Reverse) };
    let (mean, std) = (of("log_mean").exp(), of("log_std").exp());
    let expected = Tensor::from_slice(&[golden.number("reverse/divergence")]);
    near(&spec.divergence(&mean, &std), &expected, 1e-12);
    let [by_log_mean, by_log_std] = spec.pull(&mean, &std);
    near(&by_log_mean, &of("by_log_mean"), 1e-12);
    near(&by_log_std, &of("by_log_std"), 1e-12);
}

/// Both divergences by autograd of their formulas.
#[test]
fn divergences_are_pulled_by_their_gradients() {
    tch::manual_seed(2);
    let logs = [0.3, -2.0].map(|at| (Tensor::randn([2, 3], tch::kind::DOUBLE_CPU) * 0.2 + at).set_requires_grad(true));
    for divergence in [Divergence::Reverse, Divergence::Forward] {
        let spec = Spec { prior_std: 0.7, ..spec(divergence) };
        let (mean, std) = (logs[0].exp(), logs[1].exp());
        let root = spec.divergence(&mean, &std).sum(Kind::Double);
        let found = Tensor::run_backward(&[root], &[&logs[0], &logs[1]], false, false);
        let own = spec.pull(&mean.detach(), &std.detach());
        (0..2).for_each(|index| near(&own[index], &found[index], 1e-9));
    }
    // KL(N(0.5, 0.1²) ‖ N(0, 1)) and KL(N(0, 1) ‖ N(0.5, 0.1²)):
    // python3 -c "from math import log; print(-log(.1) + (.01 + .25) / 2 - .5, log(.1) + 1.25 / .02 - .5)"
    let one = |value: f64| Tensor::from_slice(&[value]).view([1, 1]);
    for (divergence, expected) in [(Divergence::Reverse, 1.9325850929940455), (Divergence::Forward, 59.69741490700595)]
    {
        near(&spec(divergence).divergence(&one(0.5), &one(0.1)), &Tensor::from_slice(&[expected]), 1e-12);
    }
}

struct Cubic {
    weights: Tensor,
}

/// L = Σ c θ³ / 3 in two parts of a batch, a third and two thirds.
impl Objective for Cubic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        let share = request.part.map_or(1.0, |part| (part + 1) as f64 / 3.0);
        let losses = Tensor::zeros([theta.size()[0]], tch::kind::DOUBLE_CPU);
        Ok(Evaluation { losses, gradients: theta.square() * &self.weights * share }.into())
    }

    fn parts(&self) -> usize {
        2
    }
}

fn start() -> Tensor {
    tch::manual_seed(3);
    Tensor::randn([2, layout(&["first", "second"]).parameters()], tch::kind::DOUBLE_CPU) * 0.5
}

/// Turning leaves the product, dense columns and the scale of rows; draws have one number for a row.
#[test]
fn a_posterior_moves_rows_along_themselves() {
    let mut theta = start();
    let mut method = method(&["first", "second"], &theta, Divergence::Reverse);
    let update = method.updates[1];
    let product = update.b(&theta).matmul(&update.a(&theta));
    method.prepare(&theta, &mut Cubic { weights: theta.copy() }).unwrap();
    near(&update.b(&theta).matmul(&update.a(&theta)), &product, 1e-12);
    let gram = update.a(&theta).matmul(&update.a(&theta).transpose(1, 2));
    let mean = method.moments()[0].narrow(1, RANK, RANK);
    near(&gram, &Tensor::diag_embed(&mean.square(), 0, -2, -1), 1e-12);
    let posterior = method.posterior(&theta);
    let draws = crate::posterior::Draws::new(&posterior, 300, 5).unwrap().rows(0..600).unwrap();
    let apart = draws.narrow(0, 300, 300) - theta.narrow(0, 1, 1);
    assert_eq!(update.b(&apart).abs().max().double_value(&[]), 0.0);
    let ratio = update.a(&apart) / update.a(&theta.narrow(0, 1, 1));
    let own = ratio.select(2, 0);
    near(&ratio, &own.unsqueeze(2).expand_as(&ratio), 1e-9);
    let spread = (own * mean.get(1)).std_dim([0i64].as_slice(), true, false);
    let std = method.moments()[1].get(1).narrow(0, RANK, RANK);
    assert!((spread / std - 1.0).abs().max().double_value(&[]) < 0.15);
    let _ = theta.zero_();
}

#[test]
fn a_resumed_run_goes_on_alike() {
    let mut objective = Cubic { weights: start().narrow(0, 0, 1) };
    let prepared = |method: &mut Scalabl, theta: &Tensor| {
        method.prepare(theta, &mut Cubic { weights: start().narrow(0, 0, 1) }).unwrap();
    };
    let mut run = |method: &mut Scalabl, theta: &mut Tensor, steps: usize| {
        (0..steps).for_each(|_| drop(method.step(theta, &mut objective, 1.0).unwrap()));
    };
    let fresh = || method(&["first", "second"], &start(), Divergence::Reverse);
    let (mut whole, mut theta) = (fresh(), start());
    prepared(&mut whole, &theta);
    run(&mut whole, &mut theta, 6);
    let (mut first, mut again) = (fresh(), start());
    prepared(&mut first, &again);
    run(&mut first, &mut again, 3);
    let mut state = State::default();
    state.store(|keeper| first.keep(keeper)).unwrap();
    let mut resumed = fresh();
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    run(&mut resumed, &mut again, 3);
    assert!(again.equal(&theta) && resumed.numbers.equal(&whole.numbers));
    assert!(theta.isfinite().all().int64_value(&[]) == 1);
}
