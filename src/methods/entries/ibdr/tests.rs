use super::*;
use crate::base::golden::{self, Golden};
use crate::base::tensor_file::State;
use crate::methods::doubles::parts;
use crate::methods::{Answer, Request, Target};

const PARTICLES: i64 = 3;
const IMAGES: i64 = 6;
const CLASSES: i64 = 5;
const WIDTH: i64 = 4;

/// Linear classifiers: a row of theta is the weight `[C, d]`.
struct Linear {
    features: Tensor,
    labels: Tensor,
}

impl Linear {
    fn new() -> Linear {
        tch::manual_seed(5);
        let features = Tensor::randn([IMAGES, WIDTH], tch::kind::DOUBLE_CPU);
        Linear { features, labels: Tensor::from_slice(&[4i64, 0, 1, 1, 3, 2]) }
    }

    fn logits(&self, theta: &Tensor) -> Tensor {
        self.features.matmul(&theta.view([-1, CLASSES, WIDTH]).transpose(1, 2))
    }

    fn cross_entropies(&self, logits: &Tensor) -> Tensor {
        -label_log_probabilities(logits, &self.labels, Kind::Double).mean_dim([-1i64].as_slice(), false, Kind::Double)
    }

    /// The Gram matrices `[B, n, n]` of the probabilities without the label, by their definition.
    fn gram(&self, logits: &Tensor) -> Tensor {
        let of = |image: i64| {
            let others: Vec<i64> = (0..CLASSES).filter(|class| *class != self.labels.int64_value(&[image])).collect();
            let p = logits.select(1, image).softmax(-1, Kind::Double).index_select(1, &Tensor::from_slice(&others));
            let unit = &p / p.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double).sqrt();
            unit.matmul(&unit.tr())
        };
        Tensor::stack(&(0..IMAGES).map(of).collect::<Vec<_>>(), 0)
    }

    /// The gradient of an objective at `theta: [n, P]`, by autograd through the whole of it.
    fn gradient(&self, theta: &Tensor, objective: impl Fn(&Linear, &Tensor) -> Tensor) -> Tensor {
        let theta = theta.detach().copy().set_requires_grad(true);
        let value = objective(self, &self.logits(&theta));
        Tensor::run_backward(&[value], &[&theta], false, false).swap_remove(0)
    }
}

impl Objective for Linear {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let Request { theta, target, .. } = *request;
        match target {
            Target::Output(Output::Logits) => {
                let labels = self.labels.expand([theta.size()[0], -1], false);
                Ok(Outputs { values: self.logits(theta), labels }.into())
            }
            Target::PullBack(Output::Logits, by_logits) => {
                Ok(Answer::Gradients(by_logits.transpose(1, 2).matmul(&self.features).flatten(1, 2)))
            }
            _ => Err(request.refused("the method asks for logits")),
        }
    }
}

const ALPHA: f64 = 0.7;

/// K times the theorem's objective, which takes alpha det.
fn theorem(linear: &Linear, logits: &Tensor) -> Tensor {
    let losses = linear.cross_entropies(logits).sum(Kind::Double);
    losses - linear.gram(logits).det().mean(Kind::Double) * (ALPHA * PARTICLES as f64)
}

fn released(linear: &Linear, logits: &Tensor) -> Tensor {
    let mean = logits.mean_dim([0i64].as_slice(), false, Kind::Double);
    let jitter = Tensor::eye(PARTICLES, tch::kind::DOUBLE_CPU) * 1e-7;
    linear.cross_entropies(&mean) - (linear.gram(logits) + jitter).logdet().mean(Kind::Double) * ALPHA
}

fn spec(variant: Form, rule: Rule) -> Spec {
    Spec { particles: PARTICLES, diversity: ALPHA, std: 0.3, lambda: 2.0, lambda_lr: 0.5, variant, rule }
}

fn paper(ascent_steps: usize) -> Spec {
    spec(Form::Paper, Rule::Paper(Paper { ascent_lr: 0.4, ascent_steps, radius: 0.05, kl_weight: 0.03 }))
}

fn code(cost: Cost) -> Spec {
    let damping = (cost == Cost::Fisher).then_some(1e-2);
    spec(Form::Released, Rule::Released(Released { cost, bound: 0.03, ascent_clip_norm: 0.2, damping }))
}

fn start() -> Tensor {
    tch::manual_seed(8);
    Tensor::randn([PARTICLES, CLASSES * WIDTH], tch::kind::DOUBLE_CPU)
}

fn method(spec: Spec, clip_norm: Option<f64>) -> Ibdr {
    Ibdr::new(spec, Parts { clip_norm, ..parts(&start()) })
}

fn drawn(theta: &Tensor) -> Tensor {
    theta + Noise::new(1, Purpose::Noise).draw(At { step: 0, sample: 0, part: 0 }, theta) * 0.3
}

#[track_caller]
fn near(a: &Tensor, b: &Tensor) {
    let (difference, scale) = ((a - b).abs().max().double_value(&[]), b.abs().max().double_value(&[]));
    assert!(scale > 0.0 && difference < 1e-9 * scale, "{a} {b}");
}

/// Algorithm 1 with one and with three ascents: the means, λ and the numbers that are reported.
#[test]
fn a_step_is_that_of_algorithm_1() {
    for ascents in [1, 3] {
        let (mut linear, mut theta) = (Linear::new(), start());
        let at = drawn(&theta);
        let mut worst = at.copy();
        for _ in 0..ascents {
            let gradient = linear.gradient(&worst, theorem) - (&worst - &at) * 4.0;
            worst += gradient * 0.4;
        }
        let cost = (&worst - &at).square().sum(Kind::Double).double_value(&[]) / PARTICLES as f64;
        let expected = &theta - (linear.gradient(&worst, theorem) + &theta * 0.06) * 0.1;
        let mut ibdr = method(paper(ascents), None);
        let step = ibdr.step(&mut theta, &mut linear, 1.0).unwrap();
        near(&theta, &expected);
        near(&step.losses, &linear.cross_entropies(&linear.logits(&at)));
        let volume = linear.gram(&linear.logits(&at)).det().mean(Kind::Double).double_value(&[]);
        let lambda = (2.0 - 0.5 * (0.05 - cost)).max(0.0);
        near(&step.diagnostics.unwrap(), &Tensor::from_slice(&[volume, lambda, cost]));
    }
}

#[test]
fn a_step_of_the_released_code() {
    for cost in [Cost::Euclidean, Cost::Fisher] {
        let (mut linear, mut theta) = (Linear::new(), start());
        let at = drawn(&theta);
        // Of all particles together.
        let gradient = linear.gradient(&at, released);
        let clipped = &gradient * (0.2 / (gradient.norm().double_value(&[]) + 1e-12)).min(1.0);
        let worst = match cost {
            Cost::Euclidean => &at + &clipped / 4.0,
            Cost::Fisher => &at + &clipped / ((clipped.square() + 1e-2) * 4.0),
        };
        let p = |theta: &Tensor| {
            linear.logits(theta).mean_dim([0i64].as_slice(), false, Kind::Double).softmax(-1, Kind::Double)
        };
        let (p, q) = (p(&at), p(&worst));
        let sum = |t: Tensor| t.sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        let distance = match cost {
            Cost::Euclidean => sum((&p - &q).square()).sqrt(),
            Cost::Fisher => (sum(&p * (&p / &q).log()) + sum(&q * (&q / &p).log())) / 2.0,
        };
        let raw = distance.mean(Kind::Double).double_value(&[]);
        let moved = ((raw - 0.03).max(0.0) / 0.01).exp() * raw;
        let factor = 0.4;
        let lambda = (2.0 - 0.5 * factor * (0.03 - moved)).clamp(0.5, 5.0);
        let expected = &theta - linear.gradient(&worst, released) * (0.1 * factor);
        let mut ibdr = method(code(cost), None);
        let step = ibdr.step(&mut theta, &mut linear, factor).unwrap();
        near(&theta, &expected);
        let found = step.diagnostics.unwrap();
        near(&found.narrow(0, 1, 2), &Tensor::from_slice(&[lambda, raw]));
    }
}

/// One step of `ClassificationModel.training_step` with their optimizer, from four linear classifiers.
#[test]
fn a_released_step_is_that_of_the_authors_code() {
    let golden = Golden::of_authors("ibdr");
    let rate = golden.number("lr");
    let (features, labels) = (golden.tensor("x"), golden.tensor("labels").to_kind(Kind::Int64));
    let mut theta = golden.tensor("start").flatten(1, 2);
    let particles = theta.size()[0];
    let rule = Rule::Released(Released {
        cost: Cost::Euclidean,
        bound: golden.number("bound"),
        ascent_clip_norm: golden.number("clip"),
        damping: None,
    });
    let spec = Spec {
        particles,
        diversity: golden.number("alpha_div"),
        std: 0.0,
        lambda: golden.number("lambda"),
        lambda_lr: rate,
        variant: Form::Released,
        rule,
    };
    let mut ibdr = method(spec, None);
    let step = ibdr.step(&mut theta, &mut Linear { features, labels }, 1.0).unwrap();
    let moved = &theta - golden.tensor("start").flatten(1, 2);
    let theirs = (golden.tensor("after") - golden.tensor("start")).flatten(1, 2);
    // Their clipping adds 1e-6 to the norm, which is 0.4 here.
    golden::near(&(moved / 0.1), &(theirs / rate), 1e-6);
    let found = step.diagnostics.unwrap();
    golden::near(&found.get(1), &Tensor::from(golden.number("lambda_after")), 1e-6);
    golden::near(&found.get(2), &Tensor::from(golden.number("raw_distance")), 1e-7);
}

#[test]
fn a_resumed_run_goes_on_with_its_lambda_and_noise() {
    let (mut linear, mut theta) = (Linear::new(), start());
    let mut whole = method(paper(2), None);
    let mut state = State::default();
    let mut half = None;
    for step in 0..6 {
        if step == 3 {
            state.store(|keeper| whole.keep(keeper)).unwrap();
            half = Some(theta.copy());
        }
        whole.step(&mut theta, &mut linear, 1.0).unwrap();
    }
    let (mut resumed, mut again) = (method(paper(2), None), half.unwrap());
    state.restore(|keeper| resumed.keep(keeper)).unwrap();
    for _ in 3..6 {
        resumed.step(&mut again, &mut linear, 1.0).unwrap();
    }
    assert!(again.equal(&theta) && resumed.lambda.equal(&whole.lambda));
    assert!(matches!(whole.posterior(&theta), Posterior::Gaussians { .. }));
}

/// Diversity is a force of its own: with it the particles' wrong-class predictions span more volume.
#[test]
fn diversity_grows_with_its_weight() {
    tch::set_num_threads(1);
    let volume = |diversity: f64| {
        let (mut linear, mut theta) = (Linear::new(), start());
        let mut ibdr = method(Spec { diversity, std: 0.0, ..paper(1) }, None);
        let steps = (0..40).map(|_| ibdr.step(&mut theta, &mut linear, 1.0).unwrap());
        steps.last().unwrap().diagnostics.unwrap().double_value(&[0])
    };
    let (without, with) = (volume(0.0), volume(1.0));
    assert!(with > 1.5 * without, "{without} {with}");
}

#[test]
fn more_particles_than_wrong_classes_are_refused() {
    let error = paper(1).check_classes(3).unwrap_err().to_string();
    assert!(error.contains("method.ibdr.particles = 3") && error.contains("at most 2 particles"), "{error}");
    paper(1).check_classes(4).unwrap();
}
