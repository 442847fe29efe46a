//! Passes in pieces, which threads take: any number of threads gives the same bits, pieces give what one pass gives, and what fails
//! in a thread is the error of the step.

use std::rc::Rc;

use crate::common::{alike_within, fixture};
use bella::base::tensor::guarded;
use bella::bench::case::{BenchMethod, Choices, Measurable, Source};
use bella::data::batches::Batch;
use bella::data::fields::{Fields, PIXELS};
use bella::evaluate::attacks::{Classifier, Resolution, Target, Victim, Work};
use bella::experiment::Training;
use bella::machine::memory::{ChunkSize, Chunker};
use bella::machine::{Chunk, Precision};
use bella::methods::{Evaluation, Objective, Output, Parts};
use bella::model::families::shapes;
use bella::model::head::Head;
use bella::model::network::Weights;
use bella::model::pieces::Whole;
use bella::model::{Input, Model};
use bella::predict::{Members, Predictor};
use bella::subspace::Subspace;
use bella::subspace::geometry::WeightSpace;
use bella::tasks::{Classes, Loss};
use bella::train::{Learner, Likelihood, Passes};
use tch::{Device, Kind, Tensor};

const PARTICLES: i64 = 3;

/// A small CLIP with random weights, 17 tokens of width 192, and what is trained of it.
pub(super) struct Case {
    pub model: Model,
    pub subspace: Box<dyn Subspace>,
    training: Training,
}

impl Case {
    pub fn of(choices: &Choices) -> Case {
        Case::from(&Source::Shape(shapes().find(|shape| shape.key == "clip-mini").unwrap()), choices)
    }

    fn from(source: &Source, choices: &Choices) -> Case {
        let experiment = choices.experiment(source).unwrap_or_else(|problems| panic!("{problems}"));
        tch::manual_seed(2);
        let Measurable { model, .. } = source.model(&experiment, Device::Cpu).unwrap();
        let training = experiment.training.unwrap();
        let base = model.base.to(Device::Cpu, Kind::Float);
        let subspace = training.subspace.spec.build(&*model.network, &base, &model.head).unwrap();
        Case { model, subspace, training }
    }

    /// Particles apart from each other, `[n, P]`.
    pub fn theta(&self) -> Tensor {
        let particles = self.training.method.spec.particles() as u64;
        let rows: Vec<Tensor> = (0..particles).map(|p| self.subspace.initial(1, p).unwrap()).collect();
        tch::manual_seed(3);
        let theta = Tensor::stack(&rows, 0).to_kind(Kind::Float);
        let noise = theta.randn_like() * 0.01;
        theta + noise
    }

    pub fn batch(&self, images: i64) -> Batch {
        tch::manual_seed(4);
        let samples = Tensor::randint(256, [images, 3, 32, 32], (Kind::Uint8, Device::Cpu));
        Batch {
            samples: Fields::of(PIXELS, samples),
            labels: Tensor::randint(10, [images], (Kind::Int64, Device::Cpu)),
        }
    }

    /// Fails unless passes of so many images are divided by their images, too.
    fn assert_divided(&self, images: usize, what: &str) {
        let members = self.training.method.spec.particles() as usize;
        let gradients = self.subspace.layout().parameters() as usize;
        let pieces = self.model.pieces(Whole { members, samples: images, gradients }).unwrap_or_default();
        assert!(pieces.iter().any(|piece| piece.turn.number > 0), "{what}: {pieces:?}");
    }

    pub fn likelihood(&self, batch: &Batch, orders: i64) -> Likelihood<'_> {
        let passes = Passes::of(&self.training.train);
        Likelihood::new(Learner::of_classes(&self.model, &*self.subspace), passes, batch, orders)
    }
}

pub(super) fn choices(subspace: &str, method: BenchMethod, sets: &[&str]) -> Choices {
    Choices {
        subspace: subspace.into(),
        method,
        particles: PARTICLES,
        batch_size: 40,
        rank: 2,
        blocks: None,
        precision: Precision::F32,
        particle_chunk: "auto".into(),
        recompute: false,
        sets: sets.iter().map(|set| set.to_string()).collect(),
    }
}

pub(super) fn svgd() -> BenchMethod {
    "svgd".parse().unwrap()
}

/// One thread alone, as many as most tests have cores for, and more than there are pieces.
const THREADS: [i32; 3] = [1, 2, 16];

/// What `compute` gives with these numbers of threads. Tests that share a process go on with as many as before.
pub(super) fn with_threads<T, const N: usize>(numbers: [i32; N], compute: impl Fn() -> T) -> [T; N] {
    let before = tch::get_num_threads();
    let found = numbers.map(|threads| {
        tch::set_num_threads(threads);
        compute()
    });
    tch::set_num_threads(before);
    found
}

#[track_caller]
fn same_bits(found: &[Tensor], what: &str) {
    assert!(found.iter().all(|other| other.equal(&found[0])), "{what}: bits depend on the number of threads");
}

#[track_caller]
pub(super) fn near(found: &Tensor, expected: &Tensor, share: f64, what: &str) {
    let largest = |t: &Tensor| t.to_kind(Kind::Double).abs().max().double_value(&[]);
    let difference = largest(&(found - expected)) / largest(expected);
    assert!(difference < share, "{what}: {difference:e}");
}

/// The last block alone is trained: what passes through the others is computed once for all particles, and their gradients have a test of
/// their own.
#[test]
fn every_method_takes_the_same_step_with_any_number_of_threads() {
    for method in BenchMethod::all() {
        let case = Case::of(&Choices { blocks: Some("5".into()), ..choices("low-rank", method, &[]) });
        case.assert_divided(64, method.word());
        let batch = case.batch(64);
        // The two pieces of one particle are left to libtorch by more threads than four.
        let most = if case.training.method.spec.particles() > 1 { 16 } else { 4 };
        let trained = with_threads([1, most], || {
            let mut theta = case.theta();
            let mut method = case.training.method.spec.build(Parts {
                theta: theta.shallow_clone(),
                seed: 7,
                optimizer: case.training.optimizer.spec.build(&theta, None),
                geometry: WeightSpace::new(case.subspace.layout()),
                clip_norm: None,
            });
            method.step(&mut theta, &mut case.likelihood(&batch, 1), 1.0).unwrap();
            theta
        });
        match case.training.method.spec.passes_together() {
            false => same_bits(&trained, method.word()),
            true => alike_within(&trained[1], &trained[0], 1e-2, method.word()),
        }
    }
}

/// The losses and gradients of passes of one particle and five images, which are too few to be divided.
fn undivided(likelihood: Likelihood, theta: &Tensor) -> Evaluation {
    let cut = ChunkSize { members: 1, images: 5 };
    likelihood.chunked_by(Rc::new(Chunker::fixed(cut, "test", ""))).losses(theta).unwrap()
}

#[test]
fn pieces_give_what_one_pass_gives() {
    let bf16 = Choices { precision: Precision::Bf16, ..choices("low-rank", svgd(), &[]) };
    let recomputed = Choices { recompute: true, ..choices("low-rank", svgd(), &[]) };
    let last = Choices { blocks: Some("3-5".into()), ..choices("low-rank", svgd(), &[]) };
    let cases = [
        ("low-rank", choices("low-rank", svgd(), &[]), 1, 1e-4),
        ("bf16", bf16, 1, 0.05),
        ("recomputed", recomputed, 1, 1e-4),
        ("the last blocks", last, 1, 1e-4),
        ("every weight", choices("full", svgd(), &[]), 1, 1e-4),
        ("own samples", choices("low-rank", svgd(), &["train.batches=independent"]), PARTICLES, 1e-4),
        ("in parts", choices("low-rank", svgd(), &["train.accumulate=2"]), 1, 1e-4),
        ("quantised", choices("low-rank", svgd(), &["checkpoint.quantize=nf4"]), 1, 1e-4),
    ];
    for (what, choices, orders, share) in cases {
        if choices.precision == Precision::Bf16
            && bella::machine::device::compute_kind(Precision::Bf16, Device::Cpu).is_err()
        {
            continue;
        }
        let case = Case::of(&choices);
        case.assert_divided(64, what);
        let (theta, batch) = (case.theta(), case.batch(64 * orders));
        let found = with_threads(THREADS, || case.likelihood(&batch, orders).losses(&theta).unwrap());
        let [first, ..] = &found;
        let whole = undivided(case.likelihood(&batch, orders), &theta);
        alike_within(&first.losses, &whole.losses, share, what);
        alike_within(&first.gradients, &whole.gradients, share, what);
        same_bits(&found.map(|found| Tensor::cat(&[found.losses.unsqueeze(1), found.gradients], 1)), what);
    }
}

/// A module has a copy for each thread, which its particles take in turn.
#[test]
fn pieces_of_a_module_give_what_one_pass_gives() {
    let path = fixture("module").join("residual.pt");
    let targets = "subspace.low-rank.targets=[\"pointwise\"]";
    for (subspace, images, own) in [("full", 200, &[][..]), ("low-rank", 129, &[targets][..])] {
        let sets = [&["checkpoint.kind=module", "checkpoint.image_size=8"][..], own].concat();
        let module = choices(subspace, svgd(), &sets);
        let case = Case::from(&Source::Checkpoint(&path), &module);
        case.assert_divided(images, subspace);
        let (theta, batch) = (case.theta(), case.batch(images as i64));
        let found = with_threads(THREADS, || case.likelihood(&batch, 1).losses(&theta).unwrap());
        let whole = undivided(case.likelihood(&batch, 1), &theta);
        alike_within(&found[0].losses, &whole.losses, 1e-4, subspace);
        alike_within(&found[0].gradients, &whole.gradients, 1e-4, subspace);
        same_bits(&found.map(|found| Tensor::cat(&[found.losses.unsqueeze(1), found.gradients], 1)), subspace);
        let predictor =
            Predictor::new(&case.model, Members::Rows { subspace: &*case.subspace, rows: &theta }, Chunk::Auto);
        let input = Input::Stored(batch.samples.for_all());
        let predicted = |images| {
            let whole = Chunker::fixed(ChunkSize { members: 3, images }, "test", "");
            predictor.logits(&whole, &input).unwrap()
        };
        let logits = with_threads(THREADS, || predicted(images));
        alike_within(&logits[0], &predicted(5), 1e-4, subspace);
        same_bits(&logits, subspace);
        let work = Work { budgets: 1, images, samples: images, kept: 0 };
        let victim = Victim::new(&predictor, Target::MeanProbability, Resolution::Model, work).unwrap();
        let pixels = victim.pixels(&batch.samples).unwrap();
        let attacked = || victim.loss(&pixels, &batch.labels).unwrap().gradient;
        let gradient = attacked();
        victim.chunker().set(ChunkSize { members: 1, images });
        alike_within(&attacked(), &gradient, 1e-4, subspace);
    }
}

#[test]
fn few_images_of_few_particles_do_not_depend_on_threads() {
    for precision in [Precision::F32, Precision::Bf16] {
        if bella::machine::device::compute_kind(precision, Device::Cpu).is_err() {
            continue;
        }
        let case = Case::of(&Choices { precision, ..choices("low-rank", svgd(), &[]) });
        for images in [8, 20, 32] {
            let (theta, batch) = (case.theta(), case.batch(images));
            let found = with_threads(THREADS, || case.likelihood(&batch, 1).losses(&theta).unwrap());
            same_bits(&found.map(|found| found.gradients), &format!("{images} images"));
        }
    }
}

#[test]
fn outputs_and_their_gradients_do_not_depend_on_threads() {
    let case = Case::of(&choices("low-rank", svgd(), &[]));
    case.assert_divided(64, "outputs");
    let (theta, batch) = (case.theta(), case.batch(64));
    let logits = with_threads(THREADS, || case.likelihood(&batch, 1).outputs(&theta, Output::Logits).unwrap().values);
    let by_logits = logits[0].sin();
    same_bits(&logits, "logits");
    let pull = || case.likelihood(&batch, 1).pull_back(&theta, Output::Logits, &by_logits).unwrap();
    same_bits(&with_threads(THREADS, pull), "gradients of logits");
}

#[test]
fn predictions_and_attacks_do_not_depend_on_threads() {
    // Attention of the first block is computed once for all members where they differ behind it. 64 images are two parts for each of the
    // three members, and of 40 images the last of three pieces is halved.
    for (targets, images) in [("[\"mlp.fc\", \"mlp.proj\"]", 64), ("[\"attn.qkv\", \"mlp.proj\"]", 40)] {
        let case = Case::of(&choices("low-rank", svgd(), &[&format!("subspace.low-rank.targets={targets}")]));
        case.assert_divided(images, targets);
        let (theta, batch) = (case.theta(), case.batch(images as i64));
        let members = Members::Rows { subspace: &*case.subspace, rows: &theta };
        let predictor = Predictor::new(&case.model, members, Chunk::Auto);
        let input = Input::Stored(batch.samples.for_all());
        let predicted = |members, images| {
            predictor.logits(&Chunker::fixed(ChunkSize { members, images }, "test", ""), &input).unwrap()
        };
        let logits = with_threads(THREADS, || predicted(3, images));
        alike_within(&logits[0], &predicted(1, 5), 1e-4, targets);
        same_bits(&logits, targets);
        let work = Work { budgets: 1, images, samples: images, kept: 0 };
        let victim = Victim::new(&predictor, Target::MeanProbability, Resolution::Model, work).unwrap();
        let pixels = victim.pixels(&batch.samples).unwrap();
        let attacked = || victim.loss(&pixels, &batch.labels).unwrap().gradient;
        let gradients = with_threads(THREADS, attacked);
        same_bits(&gradients, targets);
        victim.chunker().set(ChunkSize { members: 1, images });
        alike_within(&attacked(), &gradients[0], 1e-4, targets);
    }
}

/// Fails in a pass of more samples than so many.
struct Failing {
    most: i64,
    message: &'static str,
}

impl Loss for Failing {
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        assert!(labels.size()[1] <= self.most, "{}", self.message);
        Classes.losses(head, weights, features, labels)
    }
}

#[test]
fn what_fails_in_a_thread_is_the_error_of_the_step() {
    let case = Case::of(&choices("low-rank", svgd(), &[]));
    let (theta, batch) = (case.theta(), case.batch(64));
    let whole = case.likelihood(&batch, 1).losses(&theta).unwrap();
    let chunker = Rc::new(Chunker::fixed(ChunkSize { members: 3, images: 64 }, "training step", "lower something"));
    for threads in [1, 4] {
        let step = |loss: &Failing| {
            let learner = Learner { model: &case.model, subspace: &*case.subspace, loss };
            let [found] = with_threads([threads], || {
                let mut likelihood = Likelihood::new(learner, Passes::WHOLE, &batch, 1).chunked_by(chunker.clone());
                guarded("step 7", "lower something", || likelihood.losses(&theta))
            });
            found
        };
        let error = step(&Failing { most: 0, message: "a bug" }).err().unwrap().to_string();
        assert!(error.ends_with("a bug"), "{error}");
        assert_eq!(chunker.cut(), ChunkSize { members: 3, images: 64 });
        let found = step(&Failing { most: 20, message: "can't allocate memory" }).unwrap();
        alike_within(&found.gradients, &whole.gradients, 1e-4, "with less memory");
        let images = chunker.cut().images;
        assert!(images < 50, "the cut is halved until a pass fits: {images}");
        chunker.set(ChunkSize { members: 3, images: 64 });
    }
}

/// What is pulled back from gradients by pixels is the derivative of their product: in f64 equal to differences, also in chunks of particles
/// and images.
#[test]
fn gradients_by_pixels_are_differentiated_by_the_weights() {
    for subspace in ["low-rank", "rank-one"] {
        let double = Choices { precision: Precision::F64, ..choices(subspace, svgd(), &[]) };
        let case = Case::of(&double);
        let (theta, batch) = (case.theta().to_kind(Kind::Double), case.batch(3));
        let at = |theta: &Tensor| case.likelihood(&batch, 1).outputs(theta, Output::InputGradients).unwrap();
        let found = at(&theta);
        assert_eq!(found.values.size()[..2], [PARTICLES, 3]);
        assert_eq!(found.labels, batch.labels.unsqueeze(0).expand([PARTICLES, -1], false));
        let by = (&found.values * 300.0).sin() + 0.5;
        let pulled = case.likelihood(&batch, 1).pull_back(&theta, Output::InputGradients, &by).unwrap();
        let moves = (Tensor::arange(theta.numel() as i64, (Kind::Double, Device::Cpu)) * 0.37).sin().view_as(&theta);
        let product =
            |theta: &Tensor| (at(theta).values * &by).sum_dim_intlist([1i64, 2].as_slice(), false, Kind::Double);
        let step = 1e-5;
        let slope = (product(&(&theta + &moves * step)) - product(&(&theta - &moves * step))) / (2.0 * step);
        let expected = (&pulled * &moves).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        near(&expected, &slope, 1e-6, subspace);
        if subspace == "rank-one" {
            continue;
        }
        let cut = || Rc::new(Chunker::fixed(ChunkSize { members: 2, images: 2 }, "test", ""));
        let mut chunked = case.likelihood(&batch, 1).chunked_by(cut());
        near(&chunked.outputs(&theta, Output::InputGradients).unwrap().values, &found.values, 1e-10, "in chunks");
        near(&chunked.pull_back(&theta, Output::InputGradients, &by).unwrap(), &pulled, 1e-10, "in chunks");
    }
}
