//! Every method of the registry on a Gaussian in two dimensions: it finds the mean and, where it claims one, the variance,
//! within a bias that is stated; the same seed gives the same bits; the state survives a file; a gradient that is not a number
//! is not swallowed; one particle and three work. A method joins by its registration; [`CLAIMS`] adds what it finds.

use std::slice;

use crate::common;
use anyhow::Result;
use bella::base::tensor_file::State;
use bella::bench::case::{BenchMethod, Choices, Source};
use bella::experiment::{Experiment, Training};
use bella::machine::Precision;
use bella::methods::{
    Answer, Entry, Evaluation, Extended, Extra, METHODS, Method, Objective, Output, Outputs, Particles, Parts, Request,
    Target, Variant,
};
use bella::model::families::shapes;
use bella::posterior::{Draws, Posterior};
use bella::subspace::geometry::WeightSpace;
use bella::subspace::{Layout, Shape};
use tch::{Device, Kind, Tensor};

/// The number of images N.
const IMAGES: f64 = 100.0;
const CENTRE: [f64; 2] = [1.0, -0.5];
/// The curvature A of the mean loss, row by row.
const CURVATURE: [f64; 4] = [2.0, 0.5, 0.5, 1.0];

/// L(θ) = (θ − c)ᵀ A (θ − c) / 2, the mean over four images of (θ − x_i)ᵀ A (θ − x_i) / 2 up to a constant: the x_i have the
/// mean c and the covariance A⁻¹, as if N(θ, A⁻¹) had made them. The posterior is N(c, A⁻¹ / N).
struct Gaussian {
    curvature: Tensor,
    centre: Tensor,
    /// The x_i, `[4, 2]`.
    images: Tensor,
    /// The step in which one gradient is not a number, counted from 1; 0 for none.
    broken: usize,
    steps: usize,
}

impl Gaussian {
    fn new() -> Gaussian {
        tch::set_num_threads(1);
        let (curvature, centre) = (Tensor::from_slice(&CURVATURE).view([2, 2]), Tensor::from_slice(&CENTRE));
        // A⁻¹ = U Uᵀ; the images are c ± √2 u for the columns u of U.
        let root = curvature.inverse().linalg_cholesky(false).tr() * 2.0f64.sqrt();
        let images = Tensor::cat(&[&root, &root.neg()], 0) + &centre;
        Gaussian { curvature, centre, images, broken: 0, steps: 0 }
    }
}

impl Gaussian {
    fn plain(&mut self, theta: &Tensor) -> Evaluation {
        self.steps += 1;
        let apart = theta - &self.centre;
        let gradients = apart.matmul(&self.curvature);
        let losses = (&apart * &gradients).sum_dim_intlist([1i64].as_slice(), false, Kind::Double) / 2.0;
        if self.steps == self.broken {
            let _ = gradients.get(0).get(0).fill_(f64::NAN);
        }
        Evaluation { losses, gradients }
    }

    /// Four images with the label 0, whose logit is −L(θ), and four other logits of 0: the cross-entropy log(1 + 4 e^L) is
    /// smallest where L is.
    fn logits(&self, theta: &Tensor) -> Outputs {
        let apart = theta - &self.centre;
        let losses =
            (apart.matmul(&self.curvature) * &apart).sum_dim_intlist([1i64].as_slice(), true, Kind::Double) / 2.0;
        let (particles, own) = (theta.size()[0], losses.neg().unsqueeze(2));
        let logits = Tensor::cat(&[own, Tensor::zeros([particles, 1, 4], (Kind::Double, Device::Cpu))], 2);
        let labels = Tensor::zeros([particles, 4], (Kind::Int64, Device::Cpu));
        Outputs { values: logits.expand([-1, 4, -1], false).contiguous(), labels }
    }
}

impl Objective for Gaussian {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let Request { theta, target, extra, .. } = *request;
        Ok(match (target, extra) {
            (Target::Losses, Extra::None) => self.plain(theta).into(),
            (Target::Losses, Extra::Squares) => {
                let each = (theta.unsqueeze(1) - &self.images).matmul(&self.curvature);
                let squares = each.square().mean_dim([1i64].as_slice(), false, Kind::Double);
                Extended { own: self.plain(theta), extra: squares }.into()
            }
            (Target::Output(Output::Logits), Extra::None) => self.logits(theta).into(),
            (Target::PullBack(Output::Logits, by_logits), Extra::None) => {
                let by_loss = -by_logits.select(2, 0).sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
                Answer::Gradients(self.plain(theta).gradients * by_loss)
            }
            _ => return Err(request.refused("a Gaussian has no layers")),
        })
    }
}

/// The Gaussian as training asks for it, in f32, with a constant in its loss.
struct Single {
    of: Gaussian,
    constant: f64,
}

impl Objective for Single {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let single = |tensor: &Tensor| tensor.to_kind(Kind::Float);
        let own = |found: Evaluation| Evaluation {
            losses: single(&(found.losses + self.constant)),
            gradients: single(&found.gradients),
        };
        let theta = request.theta.to_kind(Kind::Double);
        Ok(match self.of.evaluate(&Request { theta: &theta, ..*request })? {
            Answer::Losses(found) => own(found).into(),
            Answer::Extended(found) => Extended { own: own(found.own), extra: single(&found.extra) }.into(),
            Answer::Outputs(found) => Outputs { values: single(&found.values), labels: found.labels }.into(),
            Answer::Gradients(found) => Answer::Gradients(single(&found)),
        })
    }
}

/// The settings of a method that the bench does not measure.
const UNMEASURED: Variant = Variant { key: "", sets: &[], asks_for_mixing: false };

/// A method with its settings, as a config has them.
struct Case {
    key: &'static str,
    training: Training,
}

impl Case {
    fn new(key: &'static str, particles: i64, sets: &[&str]) -> Case {
        let entry = METHODS.iter().copied().find(|entry| entry.key == key).unwrap();
        Case::of(BenchMethod { entry, variant: entry.bench.first().unwrap_or(&UNMEASURED) }, particles, sets)
    }

    fn of(method: BenchMethod, particles: i64, sets: &[&str]) -> Case {
        let BenchMethod { entry, .. } = method;
        let key = entry.key;
        let particles = if entry.particles == Particles::One { 1 } else { particles };
        let mut all: Vec<String> = vec!["train.schedule=constant".into()];
        if entry.update == bella::methods::Update::Optimizer {
            all.extend(["optimizer.adamw.lr=0.05", "optimizer.adamw.weight_decay=0"].map(String::from));
        }
        all.extend(sets.iter().map(|set| match set.starts_with("optimizer.") {
            true => set.to_string(),
            false => format!("method.{key}.{set}"),
        }));
        let choices = Choices {
            subspace: "full".into(),
            method,
            particles,
            batch_size: 4,
            rank: 1,
            blocks: None,
            precision: Precision::F32,
            particle_chunk: "0".into(),
            recompute: false,
            sets: all,
        };
        let experiment: Experiment = choices
            .experiment(&Source::Shape(shapes().next().unwrap()))
            .unwrap_or_else(|problems| panic!("{key}: {problems}"));
        Case { key, training: experiment.training.unwrap() }
    }

    /// The particles at their different starts, in f64, and the method.
    fn start(&self) -> (Tensor, Box<dyn Method>) {
        self.start_in(Kind::Double)
    }

    /// The same in another precision. The two columns are one linear layer.
    fn start_in(&self, kind: Kind) -> (Tensor, Box<dyn Method>) {
        let particles = self.training.method.spec.particles();
        let places = Tensor::arange(2 * particles, (Kind::Double, Device::Cpu)).view([particles, 2]);
        let theta = ((places * 1.7).sin() * 0.3).to_kind(kind);
        let mut layout = Layout::default();
        layout.push_linear("layer.weight", [1, 2]);
        layout.close_block("layer", 0, Shape::Dense);
        let method = self.training.method.spec.build(Parts {
            theta: theta.copy(),
            seed: 7,
            optimizer: self.training.optimizer.spec.build(&theta, None),
            geometry: WeightSpace::new(&layout),
            clip_norm: None,
        });
        (theta, method)
    }

    /// Trains for `steps` steps; the last two thirds follow half a cosine.
    fn train(&self, steps: usize) -> (Tensor, Box<dyn Method>) {
        let (mut theta, mut method) = self.start();
        let mut gaussian = Gaussian::new();
        for step in 0..steps {
            let left = 1.0 - step as f64 / steps as f64;
            let factor = 0.5 - 0.5 * (std::f64::consts::PI * (1.5 * left).min(1.0)).cos();
            method.step(&mut theta, &mut gaussian, factor).unwrap_or_else(|e| panic!("{}: {e:#}", self.key));
        }
        (theta, method)
    }
}

/// The distribution that a method finds, besides its mean.
enum Finds {
    /// A mean, and no variance that it claims.
    Mean,
    /// This mean, where it is not the posterior's.
    Another([f64; 2]),
    /// The variances of the posterior, diag(A⁻¹) / N, within this share.
    Marginal(f64),
    /// The variances of the closest Gaussian without covariance, 1 / (N A_ii), within this share.
    MeanField(f64),
}

/// The settings with which each method is tried, the number of its steps, and what it finds. Biases:
/// - SVGD's particles repel each other by `gamma`, which claims no variance; SWAG's spread is that of its snapshots, which has
///   none where gradients have no noise; a Laplace approximation is fitted after training.
/// - IBDR's spread is the one that is given, and BayesTune's particles are points.
/// - Dropout finds the minimum of the expected loss, (A + p / (1 − p) diag(A)) θ = A c: for p = 0.1, 0.8762 and −0.3943.
/// - Langevin dynamics widen by 1 / (1 − η h / 2), at most 4 % here; pSGLD besides by its term Γ, about 7 %.
/// - Microcanonical dynamics with steps of this size are unbiased within what 128 chains tell.
/// - IVON, VOGN and BBB have no covariance: 1 / (N (A_ii + δ)) with δ = 1e-4; VOGN adds the squared mean gradients to A_ii,
///   about 1 / N of it.
const CLAIMS: &[(&str, &[&str], usize, Finds)] = &[
    ("map", &[], 400, Finds::Mean),
    ("map", &["optimizer.adahessian.lr=0.1"], 400, Finds::Mean),
    ("ensemble", &[], 400, Finds::Mean),
    ("ensemble", &["sharpness=0.05", "adaptive_sharpness=true"], 400, Finds::Mean),
    ("sam", &[], 400, Finds::Mean),
    ("svgd", &[], 400, Finds::Mean),
    ("svgd", &["sharpness=0.05"], 400, Finds::Mean),
    ("svgd", &["flow=wasserstein"], 400, Finds::Mean),
    ("laplace", &[], 400, Finds::Mean),
    ("ibdr", &[], 400, Finds::Mean),
    ("ibdr", &["variant=released"], 400, Finds::Mean),
    ("bayestune", &["search_steps=50", "share=1"], 400, Finds::Mean),
    ("swag", &["start=300", "every=5", "columns=20"], 400, Finds::Mean),
    ("mc-dropout", &["rate=0.1"], 1000, Finds::Another([0.8762, -0.3943])),
    ("ivon", &["lr=0.1", "ess=100", "beta2=0.99", "hess_init=1"], 1000, Finds::MeanField(0.1)),
    ("vogn", &["lr=0.1", "ess=100", "beta2=0.99", "hess_init=1"], 1000, Finds::MeanField(0.1)),
    ("bbb", &["lr=0.02", "ess=100"], 1000, Finds::MeanField(0.1)),
    ("sgld", &["lr=0.05", "ess=100", "start=150", "every=15", "samples=10"], 300, Finds::Marginal(0.15)),
    (
        "sghmc",
        &["lr=0.02", "ess=100", "friction=0.3", "start=150", "every=15", "samples=10"],
        300,
        Finds::Marginal(0.15),
    ),
    ("psgld", &["lr=0.02", "ess=100", "start=150", "every=15", "samples=10"], 300, Finds::Marginal(0.2)),
    (
        "mclmc",
        &[
            "ess=100",
            "fit_steps=0",
            "tune_steps=0",
            "step_size=0.02",
            "length=0.1",
            "start=150",
            "every=15",
            "samples=10",
        ],
        300,
        Finds::Marginal(0.2),
    ),
];

/// The mean and the variance over components and draws of a posterior, column by column.
fn moments(posterior: &Posterior) -> ([f64; 2], [f64; 2]) {
    let theta = posterior.theta().to_kind(Kind::Double);
    let over = [0i64];
    let two = |t: &Tensor| [t.double_value(&[0]), t.double_value(&[1])];
    let mean = theta.mean_dim(over.as_slice(), false, Kind::Double);
    let variance = match posterior {
        // The mean over particles of the variance of each.
        Posterior::Gaussians { std, .. } => {
            std.to_kind(Kind::Double).square().mean_dim(over.as_slice(), false, Kind::Double)
        }
        _ => (theta - &mean).square().mean_dim(over.as_slice(), false, Kind::Double),
    };
    (two(&mean), two(&variance))
}

#[test]
fn methods_find_the_mean() {
    check_claims(|finds| matches!(finds, Finds::Mean | Finds::Another(_)));
}

#[test]
fn samplers_find_the_variance_of_the_posterior() {
    check_claims(|finds| matches!(finds, Finds::Marginal(_)));
}

#[test]
fn variational_methods_find_the_closest_gaussian_without_covariance() {
    check_claims(|finds| matches!(finds, Finds::MeanField(_)));
}

fn check_claims(chosen: impl Fn(&Finds) -> bool) {
    for (key, sets, steps, finds) in CLAIMS.iter().filter(|(.., finds)| chosen(finds)) {
        // More chains make the variance of a sampler known more precisely.
        let particles = match finds {
            Finds::Marginal(_) => 128,
            Finds::MeanField(_) => 16,
            Finds::Mean | Finds::Another(_) => 4,
        };
        let (theta, method) = Case::new(key, particles, sets).train(*steps);
        let (mean, variance) = moments(&method.posterior(&theta));
        let centre = if let Finds::Another(place) = finds { *place } else { CENTRE };
        let [a, b, _, d] = CURVATURE;
        let determinant = a * d - b * b;
        let (expected, share) = match finds {
            Finds::Mean | Finds::Another(_) => (None, 0.0),
            Finds::Marginal(share) => (Some([d / determinant / IMAGES, a / determinant / IMAGES]), *share),
            Finds::MeanField(share) => (Some([1.0 / (a * IMAGES), 1.0 / (d * IMAGES)]), *share),
        };
        for column in 0..2 {
            assert!((mean[column] - centre[column]).abs() < 0.03, "{key} {sets:?}: mean {mean:?}");
            if let Some(expected) = expected {
                let ratio = variance[column] / expected[column];
                assert!((ratio - 1.0).abs() < share, "{key} {sets:?}: variance {variance:?} for {expected:?}");
            }
        }
    }
}

/// The methods that work on all columns alike, in each variant that the bench measures. Those of low-rank factors or of a head have
/// tests of their own beside them:
/// `src/methods/entries/vbll/tests/mod.rs` states the bias of VBLL's mean and variances.
fn of_any_columns() -> impl Iterator<Item = BenchMethod> {
    const WITH_TESTS_OF_THEIR_OWN: [&str; 6] = ["tfb", "blob", "scalabl", "imported", "vbll", "bayesvlm"];
    let entries = METHODS.iter().copied().filter(|entry| !WITH_TESTS_OF_THEIR_OWN.contains(&entry.key));
    entries.flat_map(|entry: &'static Entry| {
        let variants = if entry.bench.is_empty() { slice::from_ref(&UNMEASURED) } else { entry.bench };
        let alone = variants.iter().filter(|variant| !variant.asks_for_mixing);
        alone.map(move |variant| BenchMethod { entry, variant })
    })
}

/// The word of a method and its variant.
fn word(method: BenchMethod) -> &'static str {
    if method.variant.key.is_empty() { method.entry.key } else { method.variant.key }
}

/// The members of a posterior that a test compares.
fn members(posterior: &Posterior) -> Tensor {
    if !posterior.is_random() {
        return posterior.theta().copy();
    }
    let draws = Draws::new(posterior, 2, 1).unwrap();
    draws.rows(0..draws.count()).unwrap()
}

fn step(method: &mut Box<dyn Method>, theta: &mut Tensor, gaussian: &mut Gaussian, count: usize) {
    (0..count).for_each(|_| drop(method.step(theta, gaussian, 1.0).unwrap()));
}

#[test]
fn every_method_repeats_itself_and_goes_on_from_its_file() {
    let place = common::Place::new();
    for method in of_any_columns() {
        let name = word(method);
        for particles in [1, 3] {
            if name == "ensemble" && particles == 1 {
                continue; // It is refused: an ensemble has at least two.
            }
            let case = Case::of(method, particles, &[]);
            let run = || {
                let (mut theta, mut method) = case.start();
                step(&mut method, &mut theta, &mut Gaussian::new(), 8);
                let members = members(&method.posterior(&theta));
                (theta, members)
            };
            let (whole, again) = (run(), run());
            let same = |a: &(Tensor, Tensor), b: &(Tensor, Tensor)| a.0.equal(&b.0) && a.1.equal(&b.1);
            assert!(same(&whole, &again), "{name}: the same seed gives other bits");
            assert!(whole.0.isfinite().all().int64_value(&[]) == 1, "{name}");

            let (mut theta, mut method) = case.start();
            step(&mut method, &mut theta, &mut Gaussian::new(), 5);
            let mut state = State::default();
            state.store(|keeper| method.keep(keeper)).unwrap();
            state.put("theta", &theta);
            let file = place.path(&format!("{name}-{particles}.safetensors"));
            state.write(&file).unwrap();
            let (mut theta, mut method) = case.start();
            let state = State::read(&file).unwrap();
            state.copy_into("theta", &mut theta).unwrap();
            state.restore(|keeper| method.keep(keeper)).unwrap();
            step(&mut method, &mut theta, &mut Gaussian::new(), 3);
            let resumed = (theta.shallow_clone(), members(&method.posterior(&theta)));
            assert!(same(&whole, &resumed), "{name}: goes on otherwise after its file");
        }
    }
}

/// `bella bench --estimate` multiplies the operations of a pass by this number.
#[test]
fn gradients_of_a_step_are_counted() {
    let drawn = ["ivon", "bbb", "vogn"].map(|key| Case::new(key, 3, &["mc_samples=4"]));
    for case in of_any_columns().map(|method| Case::of(method, 3, &[])).chain(drawn) {
        let Training { method: spec, optimizer, .. } = &case.training;
        let counted = spec.spec.gradients_of_a_step() + optimizer.spec.gradients_of_a_step();
        let (mut theta, mut method) = case.start();
        let mut gaussian = Gaussian::new();
        step(&mut method, &mut theta, &mut gaussian, 2);
        assert_eq!(gaussian.steps as u64, 2 * counted, "{}", case.key);
    }
}

/// The losses are summed in f32, in which theta is, too: a sum that began as a column of the gradients would be one with them.
#[test]
fn a_constant_in_the_loss_moves_nothing() {
    const CONSTANT: f64 = 8.0;
    for method in of_any_columns() {
        let (name, case) = (word(method), Case::of(method, 3, &[]));
        let run = |constant: f64| {
            let (mut theta, mut method) = case.start_in(Kind::Float);
            let mut objective = Single { of: Gaussian::new(), constant };
            let losses = method.step(&mut theta, &mut objective, 1.0).unwrap().losses;
            (0..4).for_each(|_| drop(method.step(&mut theta, &mut objective, 1.0).unwrap()));
            (theta, losses)
        };
        let (plain, moved) = (run(0.0), run(CONSTANT));
        let apart = (&moved.0 - &plain.0).abs().max().double_value(&[]);
        assert!(apart < 1e-5, "{name}: a constant in the loss moves particles by {apart}");
        // The losses that IBDR reports are those of its logits.
        let wrong = (&moved.1 - &plain.1 - CONSTANT).abs().max().double_value(&[]);
        assert!(wrong < 1e-4 || case.key == "ibdr", "{name}: a constant of {CONSTANT} is off by {wrong} in the loss");
    }
}

/// Training stops with an error where theta is not finite; so no method may keep it finite.
#[test]
fn a_gradient_that_is_not_a_number_is_never_swallowed() {
    for method in of_any_columns() {
        let (name, case) = (word(method), Case::of(method, 3, &[]));
        let (mut theta, mut method) = case.start();
        let mut gaussian = Gaussian { broken: 3, ..Gaussian::new() };
        let failed = (0..4).any(|_| method.step(&mut theta, &mut gaussian, 1.0).is_err());
        let row = theta.get(0).isfinite().all().int64_value(&[]);
        assert!(failed || row == 0, "{name}: goes on with finite particles");
    }
}

/// Where docs/methods.md says that a default is not that of the authors' code or scripts, it is the one that the page names: their
/// temperature is 1 / N (`cifar_csgmcmc.py`), TFB's scripts search below 0.015 in 5 halvings, BLoB's have kl_lr = 0.01 or 0.002 and
/// AdamW with eps = 1e-6, VOGN's damping is 1e-7.
#[test]
fn defaults_that_are_not_the_authors_are_those_of_the_page() {
    const CHAIN: &str = "lr = 0.1\ness = 50000\nstart = 0\nevery = 1";
    let resolved = |method: &str, keys: &str, subspace: &str, optimizer: &str| {
        let text = format!(
            "name = \"x\"\nseed = 1\n[checkpoint]\npath = \"x.pt\"\nnormalize = \"clip\"\n[head.zero-shot]\nweights = \"x\"\n\
             [data.digits]\n[subspace.{subspace}]\n[method.{method}]\n{keys}\n[optimizer.{optimizer}]\n[train]\nepochs = 1\n\
             batch_size = 4\n"
        );
        let experiment = Experiment::read(&bella::schema::Tree::parse("x.toml", &text).unwrap());
        experiment.unwrap_or_else(|problems| panic!("{method}: {problems}")).resolved()
    };
    let low_rank = "low-rank]\nrank = 2\ntargets = [\"attn.qkv\"";
    let adamw = "adamw]\nlr = [1e-3";
    /// Method, its keys, subspace, optimizer, and the defaults (table, key, value).
    type Case = (&'static str, &'static str, &'static str, &'static str, &'static [(&'static str, &'static str, f64)]);
    let cases: [Case; 5] = [
        ("sgld", CHAIN, "full", "none", &[("method", "temperature", 1.0)]),
        ("sghmc", CHAIN, "full", "none", &[("method", "temperature", 1.0)]),
        (
            "tfb",
            "",
            low_rank,
            adamw,
            &[
                ("method", "tolerance", 0.01),
                ("method", "smallest", 0.001),
                ("method", "largest", 0.2),
                ("method", "halvings", 10.0),
                ("method", "anchors", 500.0),
            ],
        ),
        ("blob", "cycle = 9", low_rank, adamw, &[("method", "kl_lr", 0.02), ("optimizer", "eps", 1e-8)]),
        ("vogn", "lr = 0.1\ness = 50", "full", "none", &[("method", "damping", 0.0), ("method", "beta1", 0.9)]),
    ];
    for (method, keys, subspace, optimizer, expected) in cases {
        let all = resolved(method, keys, subspace, optimizer);
        for (table, key, value) in expected {
            let chosen = all[*table].as_table().unwrap().values().next().unwrap();
            let found = chosen.get(key).unwrap_or_else(|| panic!("{method}: no {key}: {chosen}"));
            let found = found.as_float().or(found.as_integer().map(|whole| whole as f64));
            assert_eq!(found, Some(*value), "{method}: {key}");
        }
    }
}

/// Such settings are refused before training, with the key and the rule.
#[test]
fn settings_outside_their_range_are_refused() {
    let error = |key: &str, sets: &[&str], optimizer: &str| {
        let mut all: Vec<String> = [
            "name=x",
            "seed=1",
            "checkpoint.path=x",
            "checkpoint.normalize=clip",
            "head.zero-shot.weights=x",
            "data.digits={}",
            "subspace.full={}",
            "train.epochs=1",
            "train.batch_size=2",
            optimizer,
        ]
        .map(String::from)
        .into();
        all.extend(sets.iter().map(|set| match set.strip_prefix("train.") {
            Some(_) => set.to_string(),
            None => format!("method.{key}.{set}"),
        }));
        let tree = bella::experiment::load_config(&[], &all).unwrap();
        Experiment::read(&tree).err().unwrap_or_else(|| panic!("{key} {sets:?} is accepted")).to_string()
    };
    let (none, adamw) = ("optimizer.none={}", "optimizer.adamw.lr=1e-3");
    let chain = ["lr=0.1", "ess=10", "start=0", "every=5"];
    let with = |more: &[&'static str]| [&chain[..], more].concat();
    for (key, sets, optimizer, rule) in [
        ("sgld", with(&["temperature=-1"]), none, "method.sgld.temperature = -1: must be at least 0"),
        ("sgld", with(&["exploration=0.5"]), none, "method.sgld.exploration"),
        ("sgld", with(&["cycle=8"]), none, "train: schedule = \"cosine\": method.sgld has a schedule of its own"),
        (
            "sgld",
            with(&["cycle=8", "exploration=0.5", "train.schedule=constant"]),
            none,
            "keeps no state: a cycle of 8",
        ),
        ("sgld", with(&["adaptive_sharpness=true"]), none, "set sharpness, or leave it out"),
        ("psgld", with(&["decay=1"]), none, "method.psgld.decay = 1: must be at least 0 and below 1"),
        ("sghmc", with(&["friction=0"]), none, "method.sghmc.friction = 0: must be a number from"),
        ("sghmc", with(&[]), adamw, "method.sghmc is its own optimizer"),
        ("sam", vec!["rho=0"], adamw, "method.sam.rho = 0: must be above 0"),
        (
            "vbll",
            vec!["ess=10", "covariance=dense", "rank=2"],
            adamw,
            "method.vbll.rank = 2: is for a diagonal covariance",
        ),
        ("vbll", vec!["ess=10", "covariance=full"], adamw, "method.vbll.covariance"),
        ("mc-dropout", vec!["rate=1"], adamw, "method.mc-dropout.rate = 1: must be at least 0 and below 1"),
        ("mc-dropout", vec!["rate=0.1"], none, "method.mc-dropout needs an optimizer"),
        ("bbb", vec!["lr=0.1", "ess=10", "weight_decay=0"], none, "method.bbb.weight_decay = 0: must be above 0"),
        ("bbb", vec!["lr=0.1", "ess=10", "std_init=-1"], none, "method.bbb.std_init = -1: must be above 0"),
        ("vogn", vec!["lr=0.1", "ess=0"], none, "method.vogn.ess = 0: must be above 0"),
        ("svgd", vec!["gamma=1", "flow=wasserstein", "drive=shared"], adamw, "is \"own\" with flow = \"wasserstein\""),
        ("svgd", vec!["gamma=1", "space=logits", "drive=weight"], adamw, "must be \"own\" or \"shared\" with space"),
        ("svgd", vec!["gamma=1", "space=features", "drive=shared"], adamw, "must be \"own\" with space = \"features\""),
        ("svgd", vec!["gamma=1", "space=logits", "kernel=layer"], adamw, "is one for all outputs with space"),
        ("svgd", vec!["gamma=1", "space=logits", "sharpness=0.1"], adamw, "needs space = \"weights\""),
        ("svgd", vec!["gamma=1", "space=input"], adamw, "must be one of weights, logits, probabilities, features"),
        ("svgd", vec!["gamma=1", "space=input-gradients", "flow=stein"], adamw, "is \"wasserstein\" with space"),
        ("svgd", vec!["gamma=1", "space=input-gradients", "median=full"], adamw, "leave median and log_n out"),
        (
            "svgd",
            vec!["gamma=1", "particles=2", "space=input-gradients", "train.recompute=true"],
            adamw,
            "takes gradients by pixels",
        ),
        (
            "vogn",
            vec!["lr=0.1", "ess=10", "train.recompute=true"],
            none,
            "recompute: method.vogn takes squared gradients of single images, which need the graph: leave it out",
        ),
        ("blob", vec!["cycle=9", "train.recompute=true"], adamw, "recompute: method.blob with flipout takes gradients"),
        (
            "mclmc",
            vec!["ess=10", "start=9", "every=1", "tune_steps=0", "length=1", "energy_variance=1e-3"],
            none,
            "method.mclmc.energy_variance = 1e-3: is what tuning wants, and tune_steps = 0",
        ),
        (
            "mclmc",
            vec!["ess=10", "start=9", "every=1", "tune_steps=9", "dynamics=smile", "energy_variance=1e-3"],
            none,
            "method.mclmc.energy_variance = 1e-3: is for dynamics",
        ),
        (
            "mclmc",
            vec!["ess=10", "start=9", "every=1", "tune_steps=9"],
            adamw,
            "method.mclmc with fit_steps = 0 is its own optimizer: write [optimizer.none] for [optimizer.adamw]",
        ),
        (
            "mclmc",
            vec!["ess=10", "start=9", "every=1", "tune_steps=8", "fit_steps=1"],
            none,
            "method.mclmc needs an optimizer",
        ),
        (
            "mclmc",
            vec!["ess=10", "start=9", "every=1", "tune_steps=9", "train.warmup_steps=2"],
            none,
            "warmup_steps: method.mclmc with fit_steps = 0 has steps of its own length",
        ),
        (
            "mclmc",
            vec!["ess=10", "start=9", "every=1", "tune_steps=9", "train.schedule=linear"],
            none,
            "schedule: method.mclmc with fit_steps = 0 has steps of its own length",
        ),
        ("blob", vec!["kl_lr=0.1"], adamw, "method.blob.cycle is required"),
        ("blob", vec!["kl_lr=0", "cycle=9"], adamw, "cycle = 9: is of the divergence from the prior"),
        ("scalabl", vec!["kl_lr=0", "cycle=9"], adamw, "cycle = 9: is of the divergence from the prior"),
        (
            "blob",
            vec!["cycle=9", "kl_lr=0", "prior_std=0.3"],
            adamw,
            "prior_std = 0.3: is of the divergence from the prior, which kl_lr = 0 leaves out",
        ),
        (
            "scalabl",
            vec!["cycle=9", "kl_lr=0", "divergence=forward"],
            adamw,
            "is of the divergence from the prior, which kl_lr = 0 leaves out",
        ),
        ("ibdr", vec!["particles=2"], adamw, "method.ibdr.std"),
        ("ibdr", vec!["particles=2", "std=0.1", "radius=-1"], adamw, "method.ibdr.radius = -1: must be at least 0"),
        ("ibdr", vec!["particles=2", "std=0.1", "damping=1"], adamw, "no key of variant = \"paper\""),
        ("ibdr", vec!["particles=2", "std=0.1", "radius=1"], adamw, "moves no particle in the first ascent"),
        (
            "ibdr",
            vec!["particles=2", "std=0.1", "variant=released", "cost=fisher"],
            adamw,
            "required for cost = \"fisher\"",
        ),
        ("ibdr", vec!["particles=2", "std=0"], adamw, "or method.ibdr.std above 0"),
        ("tfb", vec!["tolerance=0.01"], adamw, "write [subspace.low-rank]"),
        ("blob", vec!["cycle=9"], adamw, "write [subspace.low-rank]"),
        ("bayesvlm", vec!["images=9"], none, "write [subspace.projections]"),
        ("bayesvlm", vec!["predictive=bridge"], none, "mc, probit, sampled"),
        ("bayestune", vec!["search_steps=9", "lr=0.1", "ess=9", "burn_in=9"], adamw, "below search_steps = 9"),
        ("swag", vec!["start=0", "every=1", "columns=1"], adamw, "method.swag.columns = 1: must be"),
    ] {
        common::assert_has(&error(key, &sets, optimizer), &[rule]);
    }
}
