mod outputs;

use super::kernel::{LogN, Median};
use super::settings::Flow;
use super::*;
use crate::base::golden::{Golden, near};
use crate::methods::Answer;
use crate::methods::doubles::{Plain, Quartic};
use crate::methods::sharpness::{Norm, Sharpness};
use crate::subspace::geometry::WeightSpace;
use crate::subspace::{Layout, Shape};

/// An objective with fixed gradients, whatever theta is.
struct Fixed(Tensor);

impl Objective for Fixed {
    /// Mixes as if every block held weights.
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let losses = Tensor::zeros([request.theta.size()[0]], (Kind::Double, request.theta.device()));
        let own = Evaluation { losses, gradients: self.0.copy() };
        let Extra::Mixing(matrices) = request.extra else {
            return request.plain().map(|_| own.into());
        };
        let columns = |block: i64| own.gradients.narrow(1, block * 5, 5);
        let mixed: Vec<Tensor> = (0..matrices.size()[0]).map(|l| matrices.get(l).matmul(&columns(l))).collect();
        Ok(Extended { extra: Tensor::cat(&mixed, 1), own }.into())
    }
}

fn dense(width: i64) -> Layout {
    let mut layout = Layout::default();
    layout.push("weight", &[width]);
    layout.close_block("weight", 0, Shape::Dense);
    layout
}

fn low_rank() -> Layout {
    let mut layout = Layout::default();
    for name in ["first", "second"] {
        let start = layout.parameters();
        layout.push(format!("{name}.A"), &[1, 3]);
        layout.push(format!("{name}.B"), &[2, 1]);
        layout.close_block(name, start, Shape::LowRank { rank: 1, inputs: 3, outputs: 2, scale: 2.0 });
    }
    layout
}

fn spec(particles: i64, gamma: f64, drive: Drive) -> Spec {
    Spec {
        particles,
        gamma,
        space: Space::Weights,
        flow: Flow::Stein,
        drive,
        kernel: Domain::Layer,
        bandwidth: None,
        median: Median::OffDiagonal,
        log_n: LogN::NPlusOne,
        sharpness: None,
    }
}

/// Returns minus the direction φ of one step.
fn update(spec: Spec, layout: &Layout, theta: &Tensor, gradients: &Tensor) -> Tensor {
    update_by(spec, layout, theta, &mut Fixed(gradients.copy()))
}

fn update_by(spec: Spec, layout: &Layout, theta: &Tensor, objective: &mut dyn Objective) -> Tensor {
    let (optimizer, geometry) = (Box::new(Plain(1.0)), WeightSpace::new(layout));
    let parts = Parts { theta: theta.copy(), seed: 1, optimizer, geometry, clip_norm: None };
    let mut method = spec.build(parts);
    let mut moved = theta.copy();
    method.step(&mut moved, objective, 1.0).unwrap();
    moved - theta
}

fn assert_close(ours: &Tensor, expected: &[f64]) {
    let ours = Vec::<f64>::try_from(ours.contiguous().view(-1)).unwrap();
    for (a, b) in ours.iter().zip(expected) {
        assert!((a - b).abs() < 1e-12, "{ours:?} is not {expected:?}");
    }
    assert_eq!(ours.len(), expected.len());
}

fn golden_theta() -> Tensor {
    Tensor::from_slice(&[0.0f64, 0.0, 1.0, 0.5, -0.5, 2.0]).view([3, 2])
}

fn golden_gradients() -> Tensor {
    -Tensor::from_slice(&[0.3f64, -0.2, -1.0, 0.4, 0.6, -0.7]).view([3, 2])
}

/// φ of the SVGD authors' `svgd.py` on scores = −gradients (tests/fixtures/authors/svgd.json). Weight 1 is γ = n / N with N = 1.
#[test]
fn directions_are_those_of_the_authors_code() {
    let golden = Golden::of_authors("svgd");
    for case in ["three", "six"] {
        let tensor = |name: &str| golden.tensor(&format!("{case}/{name}"));
        let theta = tensor("theta");
        let n = theta.size()[0];
        let spec = Spec { median: Median::Full, ..spec(n, n as f64, Drive::Shared) };
        near(&update(spec, &dense(2), &theta, &tensor("scores").neg()), &tensor("phi"), 1e-13);
    }
}

/// `FHBI` of the authors, whose columns are parameters of their own: each is perturbed by its own norm, the gradients there are mixed by the
/// kernel at theta, and the kernel has a fixed bandwidth (tests/fixtures/authors/fhbi.json). Their code adds the gradient of Σ_ij k_ij, which
/// moves particles together, and twice as far as Σ_j ∇_i k_ij; the latter repels by γ/n², so that their weight is γ = −2 n.
#[test]
fn sharp_steps_by_single_parameters_are_those_of_fhbi() {
    let golden = Golden::of_authors("fhbi");
    let mut layout = Layout::default();
    for (index, size) in golden.tensor("sizes").iter::<f64>().unwrap().enumerate() {
        let start = layout.parameters();
        layout.push(format!("{index}"), &[size as i64]);
        layout.close_block(format!("{index}"), start, Shape::Dense);
    }
    let [mut theta, after, climbed] = ["start", "after", "climbed"].map(|name| golden.tensor(name));
    let n = theta.size()[0];
    let sharpness = Sharpness { rho: golden.number("rho"), adaptive: false, norm: Norm::Tensor };
    let bandwidth = 2.0 * golden.number("sigma").powi(2) + 1e-8;
    let attracting = spec(n, -2.0 * n as f64, Drive::Shared);
    let spec = Spec { bandwidth: Some(bandwidth), sharpness: Some(sharpness), ..attracting };
    let (optimizer, geometry) = (Box::new(Plain(golden.number("lr"))), WeightSpace::new(&layout));
    let parts = Parts { theta: theta.copy(), seed: 1, optimizer, geometry, clip_norm: None };
    let mut quartic = Quartic { a: golden.tensor("a"), c: golden.tensor("c"), evaluations: 0 };
    let mut method = spec.build(parts);
    for step in 0..after.size()[0] {
        let gradients = quartic.losses(&theta).unwrap().gradients;
        let moved = &theta + sharpness.perturbation(&theta, &gradients, WeightSpace::new(&layout).tensors());
        near(&moved, &climbed.get(step), 1e-13);
        method.step(&mut theta, &mut quartic, 1.0).unwrap();
        near(&theta, &after.get(step), 1e-13);
    }
}

/// Gradients with respect to the weights of two low-rank blocks `[2, n, out, in]`, which the factors get by the chain rule.
struct OfWeights(Tensor);

impl OfWeights {
    /// The gradients of the factors, of gradients of weights.
    fn by_factors(&self, theta: &Tensor, by_weight: &Tensor) -> Tensor {
        let n = theta.size()[0];
        let block = |block: i64| {
            let (a, b) = (theta.narrow(1, 5 * block, 3).unsqueeze(1), theta.narrow(1, 5 * block + 3, 2).unsqueeze(2));
            let by = by_weight.get(block) * 2.0;
            Tensor::cat(&[b.transpose(1, 2).matmul(&by).view([n, 3]), by.matmul(&a.transpose(1, 2)).view([n, 2])], 1)
        };
        Tensor::cat(&[block(0), block(1)], 1)
    }
}

impl Objective for OfWeights {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.theta;
        let losses = Tensor::zeros([theta.size()[0]], (Kind::Double, theta.device()));
        let own = Evaluation { losses, gradients: self.by_factors(theta, &self.0) };
        let Extra::Mixing(matrices) = request.extra else {
            return Ok(own.into());
        };
        let mixed = matrices.matmul(&self.0.flatten(2, 3)).view_as(&self.0);
        Ok(Extended { extra: self.by_factors(theta, &mixed), own }.into())
    }
}

/// φ of the authors' kernel on the products of low-rank factors (tests/fixtures/authors/svgd.json).
#[test]
fn low_rank_directions_are_those_of_the_authors_kernel() {
    let golden = Golden::of_authors("svgd");
    let tensor = |name: &str| golden.tensor(&format!("low_rank/{name}"));
    let theta = tensor("theta");
    for (drive, name) in [(Drive::Own, "own"), (Drive::Weight, "weight")] {
        let spec = Spec { median: Median::Full, ..spec(4, 4.0, drive) };
        let moved = update_by(spec, &low_rank(), &theta, &mut OfWeights(tensor("by_weight")));
        near(&moved, &tensor(name), 1e-13);
    }
}

/// One product by other factors, as at the start of PiSSA: what is between them is the rounding of f32, along which nothing repels.
#[test]
fn products_that_differ_by_rounding_do_not_repel() {
    let first = low_rank_theta().narrow(0, 0, 1).to_kind(Kind::Float);
    let second = first.copy();
    for block in 0..2 {
        let _ = second.narrow(1, 5 * block, 3).g_mul_scalar_(1.7);
        let _ = second.narrow(1, 5 * block + 3, 2).g_div_scalar_(1.7);
    }
    let theta = Tensor::cat(&[first, second], 0);
    let gradients = (&theta * 1.7).sin();
    for drive in [Drive::Own, Drive::Shared] {
        let phi = |gamma| update(spec(2, gamma, drive), &low_rank(), &theta, &gradients);
        assert!(phi(0.7).equal(&phi(0.0)), "{drive:?}");
    }
}

/// The rule with h = median of pairs / log n, worked in numpy: k = exp(-d² / h), φ = (k s + (2 / h) (Σ k θ_i − k θ)) / n.
#[test]
fn off_diagonal_log_n() {
    let spec = Spec { log_n: LogN::N, ..spec(3, 3.0, Drive::Shared) };
    let phi = update(spec, &dense(2), &golden_theta(), &golden_gradients());
    assert_close(
        &phi,
        &[
            -0.17065505592683358,
            -0.22518798940231563,
            0.007071561865801749,
            -0.006235415957307586,
            0.019680316459015374,
            -0.01823151101538963,
        ],
    );
}

fn low_rank_theta() -> Tensor {
    let values: Vec<f64> = (0..30).map(|i| ((i * 37 % 41) as f64 / 41.0 - 0.4) * 1.3).collect();
    Tensor::from_slice(&values).view([3, 10])
}

/// Compares φ with autograd of Σ_l k_l on explicit products: the own drive scales, and repulsion is the kernel's own
/// gradient.
#[test]
fn low_rank_equals_autograd() {
    let (theta, gamma) = (low_rank_theta(), 0.7);
    let gradients = (&theta * 1.7).sin();
    let mut expected = Vec::new();
    for i in 0..3i64 {
        let leaf = theta.copy().set_requires_grad(true);
        let mut drive = [0.0f64; 10];
        let mut total = Tensor::zeros([], (Kind::Double, tch::Device::Cpu));
        for block in 0..2i64 {
            let product = |j: i64| {
                let row = leaf.get(j).narrow(0, block * 5, 5);
                row.narrow(0, 3, 2).unsqueeze(1).matmul(&row.narrow(0, 0, 3).unsqueeze(0)) * 2.0
            };
            let distance = |a: i64, b: i64| (product(a) - product(b)).square().sum(Kind::Double);
            let mut pairs = [distance(0, 1), distance(0, 2), distance(1, 2)].map(|d| d.double_value(&[]));
            pairs.sort_by(f64::total_cmp);
            let bandwidth = pairs[1] / 4.0f64.ln();
            let mut sum = 1.0;
            for j in (0..3).filter(|j| *j != i) {
                let kernel = (-distance(i, j) / bandwidth).exp();
                sum += kernel.double_value(&[]);
                total += kernel;
            }
            for column in block * 5..(block + 1) * 5 {
                drive[column as usize] = sum * gradients.double_value(&[i, column]);
            }
        }
        // The bandwidth is a constant, and only particle i's own factors are differentiated.
        let gradient = Tensor::run_backward(&[total], &[&leaf], false, false).remove(0).get(i);
        for column in 0..10 {
            let repulsion = gamma / 3.0 * gradient.double_value(&[column]);
            expected.push(-(drive[column as usize] + repulsion) / 3.0);
        }
    }
    let phi = update(spec(3, gamma, Drive::Own), &low_rank(), &theta, &gradients);
    assert_close(&phi, &expected);
}

#[test]
fn repulsion_moves_close_particles_apart() {
    for (layout, width) in [(dense(10), 10), (low_rank(), 10)] {
        let first = low_rank_theta().narrow(0, 0, 1);
        let theta = Tensor::cat(&[&first, &(&first * 1.01)], 0);
        let geometry = WeightSpace::new(&layout);
        let before = geometry.distances(&theta).sum(Kind::Double).double_value(&[]);
        let zero = Tensor::zeros([2, width], (Kind::Double, tch::Device::Cpu));
        let step = update(spec(2, 1e-4, Drive::Own), &layout, &theta, &zero);
        let after = geometry.distances(&(theta + step)).sum(Kind::Double).double_value(&[]);
        assert!(after > before, "{after} must exceed {before}");
    }
}

/// With gradients of weights, weight equals shared, in every domain of the kernel.
#[test]
fn weight_hands_the_kernel_to_the_objective() {
    let (theta, gradients) = (low_rank_theta(), (low_rank_theta() * 1.7).sin());
    for kernel in [Domain::Layer, Domain::Global] {
        for bandwidth in [None, Some(0.7)] {
            let phi = |drive| {
                let spec = Spec { kernel, bandwidth, ..spec(3, 0.7, drive) };
                update(spec, &low_rank(), &theta, &gradients)
            };
            let difference = (phi(Drive::Weight) - phi(Drive::Shared)).abs().max().double_value(&[]);
            assert!(difference < 1e-14, "{kernel:?}, {bandwidth:?}: {difference:e}");
        }
    }
}

#[test]
fn repulsion_is_the_same_for_every_drive() {
    let (theta, gradients) = (low_rank_theta(), (low_rank_theta() * 1.7).sin());
    let repulsion = |drive| {
        let phi = |gamma| update(spec(3, gamma, drive), &low_rank(), &theta, &gradients);
        phi(0.7) - phi(0.0)
    };
    let own = repulsion(Drive::Own);
    assert!(own.abs().max().double_value(&[]) > 1e-3);
    assert!((repulsion(Drive::Weight) - own).abs().max().double_value(&[]) < 1e-14);
}

/// If no two particles are near, every drive is the own gradient over n, the factor that equation 2 has on all of φ, and its cosine
/// with the own gradient is 1.
#[test]
fn far_particles_keep_their_own_gradients() {
    let (theta, gradients) = (low_rank_theta(), (low_rank_theta() * 50.0).sin());
    let far = Spec { bandwidth: Some(1e-6), ..spec(3, 0.0, Drive::Weight) };
    let mut expected: Vec<f64> = Vec::new();
    for row in 0..3 {
        expected.extend((0..10).map(|column| -gradients.double_value(&[row, column]) / 3.0));
    }
    for drive in [Drive::Own, Drive::Shared] {
        assert_close(&update(Spec { drive, ..far.clone() }, &low_rank(), &theta, &gradients), &expected);
    }
    assert_close(&update(far.clone(), &low_rank(), &theta, &gradients), &expected);
    assert_close(&diagnostics(far, &theta, &gradients).narrow(0, 4, 1), &[1.0]);
    let near = Spec { bandwidth: Some(1e6), ..spec(3, 0.0, Drive::Weight) };
    let mean = gradients.sum_dim_intlist([0i64].as_slice(), true, Kind::Double);
    let cosine = Tensor::cosine_similarity(&gradients, &mean, 1, 1e-30).mean(Kind::Double).double_value(&[]);
    let found = diagnostics(near, &theta, &gradients).double_value(&[4]);
    assert!((found - cosine).abs() < 1e-4 && cosine < 0.99, "{found} is not {cosine}");
}

/// Returns the diagnostics of a step on the low-rank layout.
fn diagnostics(spec: Spec, theta: &Tensor, gradients: &Tensor) -> Tensor {
    let parts = Parts {
        theta: theta.copy(),
        seed: 1,
        optimizer: Box::new(Plain(1.0)),
        geometry: WeightSpace::new(&low_rank()),
        clip_norm: None,
    };
    let mut method = spec.build(parts);
    let step = method.step(&mut theta.copy(), &mut Fixed(gradients.copy()), 1.0).unwrap();
    let values = step.diagnostics.unwrap();
    assert_eq!(values.size(), [method.diagnostics().len() as i64]);
    values
}

#[test]
fn one_particle_follows_its_gradient() {
    let theta = golden_theta().narrow(0, 0, 1);
    let gradient = golden_gradients().narrow(0, 0, 1);
    let step = update(spec(1, 0.5, Drive::Shared), &dense(2), &theta, &gradient);
    assert_close(&step, &[0.3, -0.2]);
}

/// The Wasserstein flow of the authors of repulsive ensembles, in weight space, whose scores are those of N images: γ = 1 / N.
#[test]
fn the_wasserstein_flow_is_that_of_the_authors_code() {
    let (golden, mut tiny) = outputs::Tiny::golden();
    let images = golden.number("training_images");
    let spec = Spec {
        flow: Flow::Wasserstein,
        kernel: Domain::Global,
        median: Median::Full,
        ..spec(4, 1.0 / images, Drive::Own)
    };
    let theta = golden.tensor("theta");
    let gradients = tiny.losses(&theta).unwrap().gradients;
    let moved = update(spec, &dense(theta.size()[1]), &theta, &gradients);
    near(&(moved * images), &golden.tensor("wasserstein_weights"), 1e-12);
}
