use super::settings::Flow;
use super::*;
use crate::base::golden::near;
use crate::methods::Answer;
use crate::methods::doubles::Plain;
use crate::methods::kernel::{LogN, Median};
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
    let (optimizer, geometry) = (Box::new(Plain(1.0)), WeightSpace::new(layout));
    let parts = Parts { theta: theta.copy(), seed: 1, optimizer, geometry, clip_norm: None };
    let mut method = spec.build(parts);
    let mut moved = theta.copy();
    method.step(&mut moved, &mut Fixed(gradients.copy()), 1.0).unwrap();
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

/// The expected values come from the SVGD authors' `python/svgd.py` on scores = −gradients: `kxy, dxkxy =
/// SVGD().svgd_kernel(theta, h=-1); (kxy @ scores + dxkxy) / 3`. Weight 1 is γ = n / N with N = 1.
#[test]
fn reference_script() {
    let spec = Spec { median: Median::Full, ..spec(3, 3.0, Drive::Shared) };
    let phi = update(spec, &dense(2), &golden_theta(), &golden_gradients());
    assert_close(
        &phi,
        &[
            -0.16306016936096904,
            -0.1411172225522901,
            -0.11459110407281974,
            0.19995660375427263,
            0.18777004503321282,
            -0.21221176059908195,
        ],
    );
}

/// The same as above, with h = median of pairs / log n.
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

mod outputs {
    use super::*;
    use crate::base::golden::Golden;
    use crate::base::tensor::label_log_probabilities;
    use crate::methods::doubles::parts;
    use crate::methods::{Output, Outputs, Target};
    use tch::with_grad;

    const CLASSES: i64 = 3;

    /// Two layers with tanh between them; a row of theta is the weight of the first and that of the second.
    pub struct Tiny {
        x: Tensor,
        labels: Tensor,
        width: i64,
    }

    impl Tiny {
        /// Returns the authors' numbers, and the batch that they are of.
        pub fn golden() -> (Golden, Tiny) {
            let golden = Golden::of_authors("repulsion");
            let tiny = Tiny::of(&golden, "", 2);
            (golden, tiny)
        }

        /// Returns the batch of a golden, with features of so many entries.
        fn of(golden: &Golden, case: &str, width: i64) -> Tiny {
            let tensor = |name: &str| golden.tensor(&format!("{case}{name}"));
            Tiny { x: tensor("x"), labels: tensor("labels").to_kind(Kind::Int64), width }
        }

        fn output(&self, theta: &Tensor, output: Output) -> Tensor {
            let (width, inputs) = (self.width, self.x.size()[1]);
            let first = theta.narrow(1, 0, width * inputs).view([-1, width, inputs]);
            let second = theta.narrow(1, width * inputs, CLASSES * width).view([-1, CLASSES, width]);
            let features = self.x.matmul(&first.transpose(1, 2)).tanh();
            match output {
                Output::Features => features,
                Output::Logits => features.matmul(&second.transpose(1, 2)),
                Output::InputGradients => self.input_gradients(&first, &second),
            }
        }

        /// The gradients of label logits by x, `[n, B, D]`, in the graph of theta: Σ_w s_cw (1 − tanh²)_w f_w.
        fn input_gradients(&self, first: &Tensor, second: &Tensor) -> Tensor {
            let slopes: Tensor = 1.0 - self.x.matmul(&first.transpose(1, 2)).tanh().square();
            (slopes * second.index_select(1, &self.labels)).matmul(first)
        }

        fn cross_entropies(&self, theta: &Tensor) -> Tensor {
            let logits = self.output(theta, Output::Logits);
            let labels = self.labels.expand([theta.size()[0], -1], false);
            -label_log_probabilities(&logits, &labels, Kind::Double).mean_dim([-1i64].as_slice(), false, Kind::Double)
        }

        /// The gradient of a number at `theta: [n, P]`, by autograd.
        fn gradient(&self, theta: &Tensor, number: impl Fn(&Tensor) -> Tensor) -> Tensor {
            let theta = theta.detach().copy().set_requires_grad(true);
            let root = with_grad(|| number(&theta));
            Tensor::run_backward(&[root], &[&theta], false, false).swap_remove(0)
        }
    }

    impl Objective for Tiny {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let theta = request.theta;
            Ok(match request.target {
                Target::Losses => {
                    let gradients = self.gradient(theta, |theta| self.cross_entropies(theta).sum(Kind::Double));
                    Evaluation { losses: self.cross_entropies(theta), gradients }.into()
                }
                Target::Output(output) => {
                    let labels = self.labels.expand([theta.size()[0], -1], false);
                    Outputs { values: self.output(theta, output), labels }.into()
                }
                Target::PullBack(output, by) => {
                    Answer::Gradients(self.gradient(theta, |theta| (self.output(theta, output) * by).sum(Kind::Double)))
                }
            })
        }
    }

    /// Returns minus the direction φ of one step, and the losses.
    fn moved(spec: Spec, theta: &Tensor, tiny: &mut Tiny) -> (Tensor, Tensor) {
        let mut after = theta.copy();
        let mut method = spec.build(Parts { optimizer: Box::new(Plain(1.0)), ..parts(theta) });
        let step = method.step(&mut after, tiny, 1.0).unwrap();
        assert_eq!(step.diagnostics.unwrap().size(), [method.diagnostics().len() as i64]);
        (after - theta, step.losses)
    }

    /// With scores of N images the authors' repulsion has weight 1: γ = n / N in Stein's flow, 1 / N in Wasserstein's.
    #[test]
    fn steps_in_function_space_are_those_of_the_authors_code() {
        let (golden, mut tiny) = Tiny::golden();
        let (theta, images) = (golden.tensor("theta"), golden.number("training_images"));
        for (space, word) in [(Space::Logits, "logits"), (Space::Probabilities, "probabilities")] {
            for (flow, prefix, drive, gamma) in [
                (Flow::Stein, "stein", Drive::Shared, 4.0 / images),
                (Flow::Wasserstein, "wasserstein", Drive::Own, 1.0 / images),
            ] {
                let spec = Spec { space, flow, kernel: Domain::Global, median: Median::Full, ..spec(4, gamma, drive) };
                let (moved, losses) = moved(spec, &theta, &mut tiny);
                near(&(moved * images), &golden.tensor(&format!("{prefix}_{word}")), 1e-12);
                near(&losses, &tiny.cross_entropies(&theta), 1e-12);
            }
        }
    }

    /// Each particle's own gradient, times c_i, and the gradient of Σ_j k(h_i, h_j) with the other particles held.
    #[test]
    fn features_repel_by_the_gradient_of_their_kernel() {
        let (golden, mut tiny) = Tiny::golden();
        let (theta, n, width) = (golden.tensor("theta"), 4.0, 0.7);
        let kernels = |theta: &Tensor| {
            let own = tiny.output(theta, Output::Features).flatten(1, 2);
            let others = own.detach();
            let of = |i: i64| (&own - others.get(i)).square().sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
            (Tensor::stack(&(0..4).map(of).collect::<Vec<_>>(), 1) / -width).exp()
        };
        let sums = kernels(&theta).sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        let pushed = tiny.gradient(&theta, |theta| kernels(theta).sum(Kind::Double));
        let own = tiny.gradient(&theta, |theta| tiny.cross_entropies(theta).sum(Kind::Double));
        let stein = (&own * &sums + &pushed * (0.3 / n)) / n;
        let wasserstein = &own + &pushed / &sums * 0.3;
        for (flow, expected) in [(Flow::Stein, stein), (Flow::Wasserstein, wasserstein)] {
            let base = spec(4, 0.3, Drive::Own);
            let spec = Spec { space: Space::Features, flow, kernel: Domain::Global, bandwidth: Some(width), ..base };
            near(&-moved(spec, &theta, &mut tiny).0, &expected, 1e-12);
        }
    }

    /// FoRDE's gradient, for an even and an odd number of particles, whose medians differ. Its code has the weight 1 / batch size.
    #[test]
    fn steps_by_input_gradients_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("forde");
        for case in ["even/", "odd/"] {
            let (mut tiny, theta) = (Tiny::of(&golden, case, 4), golden.tensor(&format!("{case}theta")));
            let gamma = 1.0 / tiny.labels.size()[0] as f64;
            let own = spec(theta.size()[0], gamma, Drive::Own);
            let spec = Spec { space: Space::InputGradients, flow: Flow::Wasserstein, kernel: Domain::Global, ..own };
            let (moved, losses) = moved(spec, &theta, &mut tiny);
            near(&-moved, &golden.tensor(&format!("{case}gradients")), 1e-11);
            near(&losses, &tiny.cross_entropies(&theta), 1e-12);
        }
    }

    /// Equal particles have equal outputs: no repulsion, and no number that is not finite.
    #[test]
    fn equal_particles_stay_finite() {
        let (golden, mut tiny) = Tiny::golden();
        let theta = golden.tensor("theta").narrow(0, 0, 1).repeat([4, 1]);
        for space in [Space::Logits, Space::Probabilities, Space::Features] {
            for flow in [Flow::Stein, Flow::Wasserstein] {
                let spec = Spec { space, flow, kernel: Domain::Global, ..spec(4, 1.0, Drive::Own) };
                let (moved, _) = moved(spec, &theta, &mut tiny);
                assert!(bool::try_from(moved.isfinite().all()).unwrap());
                near(&moved, &moved.narrow(0, 0, 1).expand_as(&moved), 1e-15);
            }
        }
        let (flow, space) = (Flow::Wasserstein, Space::InputGradients);
        let spec = Spec { space, flow, kernel: Domain::Global, ..spec(4, 1.0, Drive::Own) };
        let (moved, _) = moved(spec, &theta, &mut tiny);
        near(&moved, &moved.narrow(0, 0, 1).expand_as(&moved), 1e-12);
    }
}
