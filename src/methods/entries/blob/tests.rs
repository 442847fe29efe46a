use super::*;
use crate::base::golden::Golden;
use crate::base::tensor_file::State;
use crate::methods::Answer;
use crate::methods::doubles::{Plain, given};
use crate::subspace::geometry::WeightSpace;
use crate::subspace::{Layout, Shape};

const RANK: i64 = 2;
const INPUTS: i64 = 3;
const OUTPUTS: i64 = 4;
/// Two blocks of factors, and two dense columns between them.
const PARAMETERS: i64 = 2 * RANK * (INPUTS + OUTPUTS) + 2;

/// L = Σ c θ³ / 3 in two parts of a batch, a third and two thirds.
struct Cubic {
    weights: Tensor,
}

impl Cubic {
    fn new() -> Cubic {
        tch::manual_seed(9);
        Cubic { weights: Tensor::randn([1, PARAMETERS], tch::kind::DOUBLE_CPU) }
    }
}

impl Objective for Cubic {
    /// Noise acts as if all signs of outputs were −1, and those of inputs 1.
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        if let Extra::Noise(FactorNoise { noise, .. }) = request.extra {
            let moved = request.theta - noise;
            let own = self.evaluate(&Request { theta: &moved, extra: Extra::None, ..*request })?.evaluation()?;
            let extra = own.gradients.neg();
            return Ok(Extended { own, extra }.into());
        }
        let theta = request.plain()?;
        let share = request.part.map_or(1.0, |part| (part + 1) as f64 / 3.0);
        let losses = Tensor::zeros([theta.size()[0]], tch::kind::DOUBLE_CPU);
        let gradients = theta.square() * &self.weights;
        Ok(Evaluation { losses: losses * share, gradients: gradients * share }.into())
    }

    fn parts(&self) -> usize {
        2
    }
}

fn start() -> Tensor {
    tch::manual_seed(3);
    Tensor::randn([2, PARAMETERS], tch::kind::DOUBLE_CPU)
}

fn method() -> Blob {
    method_with(false)
}

fn method_with(flipout: bool) -> Blob {
    let mut layout = Layout::default();
    for block in ["first", "second"] {
        let from = layout.parameters();
        layout.push(format!("{block}.a"), &[RANK, INPUTS]);
        layout.push(format!("{block}.b"), &[OUTPUTS, RANK]);
        let shape = Shape::LowRank { rank: RANK, inputs: INPUTS, outputs: OUTPUTS, scale: 2.0 };
        layout.close_block(block, from, shape);
        if block == "first" {
            layout.push("head", &[2]);
            layout.close_block("head", from + RANK * (INPUTS + OUTPUTS), Shape::Dense);
        }
    }
    let geometry = WeightSpace::new(&layout);
    let parts = Parts { theta: start(), seed: 1, optimizer: Box::new(Plain(0.1)), geometry, clip_norm: None };
    let spec = Spec {
        particles: 2,
        std_lr: 0.01,
        kl_lr: 0.001,
        prior_std: 0.2,
        init: 0.05,
        cycle: Some(3),
        flipout,
        samples: 1,
    };
    Blob::new(spec, parts)
}

#[track_caller]
fn near(a: &Tensor, b: &Tensor, bound: f64) {
    let (difference, scale) = ((a - b).abs().max().double_value(&[]), b.abs().max().double_value(&[]));
    assert!(difference <= bound * scale, "{a} {b}");
}

/// One element with M = 0.1, G = 0.04, β = 0.2:
/// `python3 -c "from math import log; w = .04**2; print(log(.2 / w) + (w*w + .01) / .08 - .5)"`
#[test]
fn the_divergence_is_that_of_the_closed_form() {
    let value = |value: f64| Tensor::from_slice(&[value]).view([1, 1]);
    let found = spec::divergence(&value(0.1), &value(0.04 * 0.04), 0.2).double_value(&[0]);
    assert!((found - 4.4533457373023015).abs() < 1e-12, "{found}");
}

#[test]
fn the_weights_of_a_cycle_double() {
    let weights: Vec<f64> = (0..6).map(|step| spec::doubling_weight(step, 3)).collect();
    for (found, expected) in weights.iter().zip([2.0, 4.0, 8.0, 2.0, 4.0, 8.0]) {
        assert!((found - expected / 15.0).abs() < 1e-15, "{weights:?}");
    }
}

/// Noise in the factors A alone; the loss's gradients at the noisy factors by the optimizer and by Adam, then the divergence's by
/// autograd.
#[test]
fn a_step_follows_the_loss_and_then_the_divergence() {
    for flipout in [false, true] {
        check_step(flipout);
    }
}

fn check_step(flipout: bool) {
    let (mut blob, mut theta, mut objective) = (method_with(flipout), start(), Cubic::new());
    let columns = [(0, RANK * INPUTS), (RANK * (INPUTS + OUTPUTS) + 2, RANK * INPUTS)];
    assert_eq!(blob.columns, columns);
    let roots = blob.roots.copy();
    assert!(roots.min().double_value(&[]) >= 0.05 / 2f64.sqrt() && roots.max().double_value(&[]) <= 0.05);
    let (mut gradients, mut by_roots) = (theta.zeros_like(), roots.zeros_like());
    for part in 0..2 {
        let noise = Noise::new(1, Purpose::Noise).draw(At { step: 0, sample: 0, part }, &roots);
        let noise = if flipout { noise.neg() } else { noise };
        let noisy = theta.copy();
        let width = RANK * INPUTS;
        for (place, (start, length)) in columns.iter().enumerate() {
            let own = |t: &Tensor| t.narrow(1, place as i64 * width, width);
            let mut target = noisy.narrow(1, *start, *length);
            target += own(&roots).square() * own(&noise);
        }
        let found = objective.losses_of_part(&noisy, part as usize).unwrap().gradients;
        by_roots += take(&columns, &found) * noise * &roots * 2.0;
        gradients += found;
    }
    let theta_before = &theta - gradients * 0.1;
    // The first step of Adam.
    let roots_before = &roots - &by_roots / (by_roots.abs() + 1e-8) * 0.01;
    let mean = take(&columns, &theta_before).set_requires_grad(true);
    let leaf = roots_before.copy().set_requires_grad(true);
    let kl = spec::divergence(&mean, &leaf.square(), 0.2).sum(Kind::Double);
    let pulls = Tensor::run_backward(&[kl], &[&mean, &leaf], false, false);
    let rate = 0.001 * 2.0 / 15.0;
    let expected = theta_before - spread(&columns, &(&pulls[0] * rate), &theta);
    let step = blob.step(&mut theta, &mut objective, 1.0).unwrap();
    near(&theta, &expected, 1e-12);
    near(&blob.roots, &(roots_before - &pulls[1] * rate), 1e-9);
    let Posterior::Gaussians { std, .. } = blob.posterior(&theta) else { panic!("no Gaussian") };
    near(&take(&columns, &std), &blob.roots.square(), 1e-15);
    assert_eq!((std.gt(0.0)).sum(Kind::Int64).int64_value(&[]), 2 * 2 * RANK * INPUTS);
    let kl = spec::divergence(&take(&columns, &theta), &blob.roots.square(), 0.2).mean(Kind::Double);
    near(&step.diagnostics.unwrap().get(0), &kl, 1e-12);
}

#[test]
fn a_resumed_run_goes_on_alike() {
    let mut objective = Cubic::new();
    let mut run = |blob: &mut Blob, theta: &mut Tensor, steps: usize| {
        (0..steps).for_each(|_| drop(blob.step(theta, &mut objective, 1.0).unwrap()));
    };
    let (mut whole, mut theta) = (method(), start() * 0.1);
    run(&mut whole, &mut theta, 8);
    let (mut first, mut again) = (method(), start() * 0.1);
    run(&mut first, &mut again, 4);
    let mut state = State::default();
    state.store(|keeper| first.keep(keeper)).unwrap();
    let mut resumed = method();
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    run(&mut resumed, &mut again, 4);
    assert!(again.equal(&theta) && resumed.roots.equal(&whole.roots));
}

/// Cross-entropy of a linear layer with an update of rank 2, where each image sees the noise with given signs; gradients by autograd.
struct Flipped {
    golden: Golden,
}

impl Objective for Flipped {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let (theta, Extra::Noise(FactorNoise { noise, .. })) = (request.theta, request.extra) else {
            return Err(request.refused("the noise has signs"));
        };
        let tensor = |name: &str| self.golden.tensor(name);
        let leaves = [theta, noise].map(|tensor| tensor.copy().set_requires_grad(true));
        let a = |of: &Tensor| of.narrow(1, 0, 6).view([2, 3]).tr();
        let b = leaves[0].narrow(1, 6, 8).view([4, 2]).tr();
        let x = tensor("x");
        let own = x.matmul(&a(&leaves[0]));
        let noisy = (&x * tensor("draws/inputs")).matmul(&a(&leaves[1])) * tensor("draws/outputs");
        let logits = x.matmul(&tensor("base").tr()) + (own + noisy).matmul(&b) * self.golden.number("scale");
        let loss = logits.log_softmax(-1, Kind::Double).nll_loss(&tensor("labels").to_kind(Kind::Int64));
        let mut found = Tensor::run_backward(&[&loss], &leaves, false, false);
        let extra = found.remove(1);
        Ok(Extended { own: Evaluation { losses: loss.view([1]), gradients: found.remove(0) }, extra }.into())
    }
}

/// One step of `BLoB.fit` on one batch (tests/fixtures/authors/blob.json), with AdamW exchanged for plain descent on both sides.
///
/// Two things differ. Their optimizer is made before the roots G exist, so that G follows its gradient of the loss, beside that
/// of the divergence, with the rate `kl_lr`; here Adam takes it. And they add 10⁻⁶ to σ in the logarithm and to 2 β².
#[test]
fn a_step_is_that_of_the_authors_code() {
    let golden = Golden::of_authors("blob");
    assert_eq!(golden.value("root_is_in_optimizer"), false);
    let mut layout = Layout::default();
    layout.push("w.a", &[2, 3]);
    layout.push("w.b", &[4, 2]);
    layout.close_block("w", 0, Shape::LowRank { rank: 2, inputs: 3, outputs: 4, scale: 2.0 });
    let both = |state: &str| {
        let part = |name: &str| golden.tensor(&format!("{state}/{name}")).view([1, -1]);
        (Tensor::cat(&[part("a"), part("b")], 1), part("root"))
    };
    let ((mut theta, roots), (expected, expected_roots)) = (both("before"), both("after"));
    let parts = Parts {
        theta: theta.copy(),
        seed: 1,
        optimizer: Box::new(Plain(0.1)),
        geometry: WeightSpace::new(&layout),
        clip_norm: None,
    };
    let spec = Spec {
        particles: 1,
        // So small that G moves by the divergence alone.
        std_lr: 1e-200,
        kl_lr: golden.number("kl_lr"),
        prior_std: golden.number("prior_std"),
        init: 0.05,
        cycle: Some(golden.number("cycle") as i64),
        flipout: true,
        samples: 1,
    };
    let mut blob = Blob::new(spec, parts);
    (blob.roots, blob.noise) = (roots.copy(), given(vec![golden.tensor("draws/noise").view([1, 6])]));
    blob.step(&mut theta, &mut Flipped { golden: Golden::of_authors("blob") }, 1.0).unwrap();

    let mut state = State::default();
    state.store(|keeper| blob.keep(keeper)).unwrap();
    let by_loss = golden.tensor("root_gradient").view([1, 6]);
    near(&(state.get("blob.adamw.first").unwrap() / 0.1), &by_loss, 1e-12);
    let rate = golden.number("kl_lr") * golden.tensor("weights").double_value(&[0]);
    let (std, two) = (roots.square(), 2.0 * golden.number("prior_std").powi(2));
    let root_pull = |eps: f64| roots.pow_tensor_scalar(3) * (4.0 / (two + eps)) - &roots * 2.0 / (&std + eps);
    let without = expected_roots + by_loss * golden.number("kl_lr");
    near(&blob.roots, &without, 1e-2);
    near(&(&blob.roots - (root_pull(1e-6) - root_pull(0.0)) * rate), &without, 1e-12);
    near(&theta.narrow(1, 6, 8), &expected.narrow(1, 6, 8), 1e-12);
    near(&theta, &expected, 1e-6);
    let weights: Vec<f64> = (0..6).map(|step| spec::divergence_rate(1.0, blob.spec.cycle, step)).collect();
    near(&Tensor::from_slice(&weights), &golden.tensor("weights"), 1e-15);
}
