//! Particles that repel by what they compute for the images of a batch.

use super::*;
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

/// Particles that compute the same up to rounding, as all do at the start of `full`: there is no direction in which to repel.
#[test]
fn outputs_that_differ_by_rounding_do_not_repel() {
    let (golden, mut tiny) = Tiny::golden();
    let first = golden.tensor("theta").narrow(0, 0, 1);
    let theta = Tensor::cat(&[1.0, 1.0 + 1e-9, 1.0 - 2e-9].map(|factor| &first * factor), 0);
    for (space, flow) in [
        (Space::Logits, Flow::Stein),
        (Space::Probabilities, Flow::Wasserstein),
        (Space::Features, Flow::Stein),
        (Space::InputGradients, Flow::Wasserstein),
    ] {
        let mut of = |gamma| {
            let spec = Spec { space, flow, kernel: Domain::Global, ..spec(3, gamma, Drive::Own) };
            moved(spec, &theta, &mut tiny).0
        };
        near(&of(0.3), &of(0.0), 1e-15);
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
