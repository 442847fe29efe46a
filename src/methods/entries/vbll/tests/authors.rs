//! The loss, its gradients and the steps beside the code of the authors.

use super::super::spread::Moments;
use super::*;
use crate::base::golden::{self, Golden};
use crate::base::keeper::Keeper;

/// Adam for all columns but those of the bias, which the authors' code does not have.
struct WithoutBias(Box<dyn Optimizer>, i64);

impl Optimizer for WithoutBias {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        let without = gradient.copy();
        let _ = without.narrow(1, self.1, theta.size()[1] - self.1).zero_();
        self.0.step(theta, &without, factor);
    }

    fn keep(&mut self, _: &mut Keeper) -> Result<()> {
        Ok(())
    }
}

/// `DiscClassification` of vbll 0.4.9 with a form of its covariance and its own prior.
struct OfAuthors {
    golden: Golden,
    form: &'static str,
    theta: Tensor,
    method: Vbll,
    inputs: Outputs,
}

impl OfAuthors {
    fn new(form: &'static str) -> OfAuthors {
        let golden = Golden::of_authors("vbll");
        let at = |name: &str| golden.tensor(&format!("{form}/{name}"));
        let number = |name: &str| golden.number(&format!("{form}/{name}"));
        let [classes, width] = at("mean").size()[..] else { panic!("[C, d]") };
        let own = Spec {
            particles: 1,
            std_lr: number("lr"),
            prior_std: None,
            noise_dof: 1.0,
            noise_scale: 1.0,
            covariance: Covariance::of_word(form).unwrap(),
            ..spec(0, 1.0 / number("regularization_weight"))
        };
        let bias = Tensor::zeros([1, classes], tch::kind::DOUBLE_CPU);
        let theta = Tensor::cat(&[at("mean").view([1, -1]), bias], 1);
        let (theta, mut method) = method(own, theta, [classes, width], 1.0);
        let inputs = Outputs { values: at("x").unsqueeze(0), labels: at("labels").to_kind(Kind::Int64).view([1, -1]) };
        method.parts.optimizer = Box::new(WithoutBias(adam(&[number("lr")], &theta), classes * width));
        let mut found = OfAuthors { golden, form, theta, method, inputs };
        let numbers = found.numbers("");
        found.method.spread.as_mut().unwrap().0.copy_(&numbers);
        found
    }

    fn tensor(&self, name: &str) -> Tensor {
        self.golden.tensor(&format!("{}/{name}", self.form))
    }

    /// The numbers of the spread, or their gradients, as the golden has them below a prefix.
    fn numbers(&self, prefix: &str) -> Tensor {
        let names = ["log_std", "log_noise", "factor"];
        let names = if self.form == "dense" { &names[..] } else { &names[..2] };
        let parts: Vec<Tensor> =
            names.iter().map(|name| self.tensor(&format!("{prefix}{name}")).view([1, -1])).collect();
        Tensor::cat(&parts, 1)
    }

    fn spread(&self) -> Spread {
        let (head, numbers) = self.method.head().unwrap();
        Spread::of(numbers, head, self.method.spec.covariance)
    }
}

/// By `scripts/make_ibdr_vbll_goldens.py`, as what follows.
#[test]
fn loss_and_gradients_are_those_of_the_authors_code() {
    for form in ["diagonal", "dense"] {
        let of = OfAuthors::new(form);
        let number = |name: &str| Tensor::from(of.golden.number(&format!("{form}/{name}")));
        let mean = of.tensor("mean");
        let look = of.method.look(&of.theta, &of.inputs).unwrap();
        let weights = mean.numel() as i64;
        golden::near(&look.by_head.narrow(1, 0, weights).view_as(&mean), &of.tensor("by_mean"), 1e-13);
        golden::near(&look.by_spread, &of.numbers("by_"), 1e-13);
        golden::near(&look.by_features.squeeze_dim(0), &of.tensor("by_x"), 1e-13);
        golden::near(&look.losses.view([]), &number("bound"), 1e-13);
        // Their divergence is without its constant, which is that of the d C weights.
        golden::near(&(look.kl.view([]) + weights as f64 / 2.0), &number("kl"), 1e-12);
        let Moments { mean: logits, variance: variances } =
            of.spread().moments(&of.inputs.values, &mean.unsqueeze(0), &Tensor::zeros([1, 4], tch::kind::DOUBLE_CPU));
        golden::near(&logits.squeeze_dim(0), &of.tensor("logits"), 1e-13);
        golden::near(&variances.squeeze_dim(0), &of.tensor("variances"), 1e-12);
    }
}

/// Weights whose covariance has a factor U that all classes share. A logit has the marginal of its class, and the divergence is that of one
/// Gaussian over the weights of all classes; both are `LowRankNormal`s of the authors' code.
#[test]
fn a_shared_factor_is_that_of_one_gaussian_of_the_authors() {
    let golden = Golden::of_authors("vbll");
    let at = |name: &str| golden.tensor(&format!("shared/{name}"));
    let row = |t: &Tensor| t.reshape([1, -1]);
    // Here U is [r, C, d], and ln s is half the logarithm of the variance.
    let numbers = |what: &str| {
        let factor = at(&format!("{what}factor")).permute([2, 0, 1]);
        (at(&format!("{what}log_variance")), factor)
    };
    let [classes, width] = at("mean").size()[..] else { panic!("[C, d]") };
    let bias = Tensor::zeros([1, classes], tch::kind::DOUBLE_CPU);
    let theta = Tensor::cat(&[row(&at("mean")), bias], 1);
    let inputs = Outputs { values: at("x").unsqueeze(0), labels: at("labels").to_kind(Kind::Int64).view([1, -1]) };
    // The gradients of bound + KL / N: with a large N those of the bound, and with N = 1 those of the divergence beside them.
    let look = |ess: f64| {
        let own = Spec { particles: 1, prior_std: None, ..spec(2, ess) };
        let (theta, mut method) = method(own, theta.copy(), [classes, width], 1.0);
        let (log_variance, factor) = numbers("");
        let all = [row(&(log_variance * 0.5)), row(&at("log_noise")), row(&factor)];
        method.spread.as_mut().unwrap().0.copy_(&Tensor::cat(&all, 1));
        method.look(&theta, &inputs).unwrap()
    };
    let (bound, both) = (look(1e300), look(1.0));
    golden::near(&bound.losses.view([]), &Tensor::from(golden.number("shared/bound")), 1e-13);
    let weights = classes * width;
    golden::near(&(bound.kl.view([]) + weights as f64 / 2.0), &Tensor::from(golden.number("shared/kl")), 1e-12);
    golden::near(&bound.by_spread.narrow(1, weights, classes), &row(&at("bound_by_log_noise")), 1e-13);
    for (look, what) in [(&bound, "bound_by_"), (&both, "kl_by_")] {
        // The prior of the noise has no part in these columns.
        let own = |of: fn(&Look) -> &Tensor, start: i64, length: i64| {
            let found = of(look).narrow(1, start, length);
            if what == "kl_by_" { found - of(&bound).narrow(1, start, length) } else { found }
        };
        let (by_log_variance, by_factor) = numbers(what);
        golden::near(&own(|look| &look.by_head, 0, weights), &row(&at(&format!("{what}mean"))), 1e-12);
        golden::near(&own(|look| &look.by_spread, 0, weights), &row(&(by_log_variance * 2.0)), 1e-12);
        golden::near(&own(|look| &look.by_spread, weights + classes, 2 * weights), &row(&by_factor), 1e-12);
    }
}

#[test]
fn steps_are_those_of_the_authors_code() {
    for form in ["diagonal", "dense"] {
        let mut of = OfAuthors::new(form);
        let (features, labels) = (of.inputs.values.copy(), of.inputs.labels.copy());
        let mut fixed = Fixed { features, labels, moves: false, steps: 0, broken: 0 };
        (0..3).for_each(|_| drop(of.method.step(&mut of.theta, &mut fixed, 1.0).unwrap()));
        let mean = of.tensor("after/mean");
        golden::near(&of.theta.narrow(1, 0, mean.numel() as i64).view_as(&mean), &mean, 1e-12);
        golden::near(of.method.head().unwrap().1, &of.numbers("after/"), 1e-12);
    }
}

/// The divergence of a dense Gaussian from the prior by its whole covariance, and draws that have it, in its own columns alone.
#[test]
fn a_dense_posterior_has_the_covariance_of_its_factors() {
    let of = OfAuthors::new("dense");
    let posterior = of.method.posterior(&of.theta);
    let Posterior::BlockGaussians { mean, std, factors, start: 0 } = posterior else { panic!("another form") };
    let (head, numbers) = of.method.head().unwrap();
    let counted = of.method.spec.head_numbers(head, 9);
    assert_eq!(counted.posterior, factors.numel() as u64);
    assert_eq!(counted.kept / 3, numbers.size()[1] as u64 - 24 - 4);
    let covariance = factors.matmul(&factors.transpose(2, 3)).get(0);
    let marginal = covariance.diagonal(0, 1, 2).sqrt().reshape([-1]);
    golden::near(&std.get(0).narrow(0, 0, 24), &marginal, 1e-13);
    let Size { trace, log_det } = of.spread().size();
    golden::near(&trace, &covariance.diagonal(0, 1, 2).sum(Kind::Double).view([1]), 1e-12);
    golden::near(&log_det, &covariance.logdet().sum(Kind::Double).view([1]), 1e-12);

    let float = |t: &Tensor| t.to_kind(Kind::Float);
    let stored = Posterior::BlockGaussians { mean: float(&mean), std: float(&std), factors: float(&factors), start: 0 };
    let draws = Draws::new(&stored, 40_000, 3).unwrap();
    let rows = draws.rows(0..draws.count()).unwrap().to_kind(Kind::Double) - mean.get(0);
    let found = rows.tr().matmul(&rows) / rows.size()[0] as f64;
    let mut blocks = covariance.unbind(0);
    blocks.push(std.get(0).narrow(0, 24, 4).square().diag(0));
    let expected = Tensor::block_diag(&blocks);
    let unit = expected.diagonal(0, 0, 1).sqrt();
    let apart = ((found - expected) / unit.unsqueeze(0) / unit.unsqueeze(1)).abs().max().double_value(&[]);
    assert!(apart < 0.03, "{apart}");
}

/// Without entries below its diagonal, a dense Gaussian is the diagonal one, in every draw.
#[test]
fn a_dense_posterior_begins_as_the_diagonal_one() {
    let draws = |covariance| {
        let theta = made(&[1, 4 * 8 + 4 + 1], 0.2).to_kind(Kind::Float);
        let (theta, method) = method(Spec { particles: 1, covariance, ..spec(0, 50.0) }, theta, [4, 8], 1.0);
        let posterior = method.posterior(&theta);
        Draws::new(&posterior, 3, 5).unwrap().rows(0..3).unwrap()
    };
    golden::near(&draws(Covariance::Dense), &draws(Covariance::Diagonal), 1e-6);
}

/// The start of vbll 0.4.9, but for its random parts: s = 1 / d, ln σ = -1.
#[test]
fn the_spread_starts_as_in_the_authors_code() {
    let theta = Tensor::zeros([1, 4 * 8 + 4], tch::kind::DOUBLE_CPU);
    let (_, method) = method(Spec { particles: 1, ..spec(0, 50.0) }, theta, [4, 8], 1.0);
    let (_, numbers) = method.head().unwrap();
    near(&numbers.narrow(1, 0, 32).exp().mean(Kind::Double), &[1.0 / 8.0], 1e-12);
    near(&numbers.narrow(1, 32, 4), &[-1.0; 4], 1e-12);
}
