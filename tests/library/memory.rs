//! Memory: results do not depend on how a task is cut, a cut that does not fit is halved, and what cannot fit is refused.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Place, alike, assert_has, error_line, fixture, messages, model, trained, with};
use anyhow::Result;
use bella::base::tensor::OutOfMemory;
use bella::data::batches::Batch;
use bella::data::fields::{Fields, PIXELS};
use bella::evaluate::attacks::{Classifier, Resolution, Target, Victim, Work};
use bella::experiment::Experiment;
use bella::machine::Chunk;
use bella::machine::linear_kernels::packed_bytes;
use bella::machine::memory::{ChunkSize, Chunker};
use bella::methods::Objective;
use bella::model::head::Head;
use bella::model::network::{Graph, Weights};
use bella::model::{Input, Model};
use bella::posterior::Posterior;
use bella::predict::{Members, Predictor, Rows};
use bella::schema::Tree;
use bella::subspace::Subspace;
use bella::tasks::{Classes, Loss};
use bella::train::chunks::{Images, Step};
use bella::train::{self, Learner, Likelihood};
use tch::{Kind, Tensor};

const IMAGES: i64 = 5;

fn setting(subspace: &str) -> (Model, Box<dyn Subspace>) {
    model(&config(subspace), Kind::Float)
}

/// An experiment in a subspace, that ends with the table of training.
fn config(subspace: &str) -> String {
    format!(
        "name = \"x\"\nseed = 1\n[checkpoint]\npath = {:?}\nnormalize = \"clip\"\n[head.checkpoint]\n[data.digits]\n{subspace}\n\
         [method.ensemble]\nparticles = 3\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 4\n",
        fixture("timm_scripted.pt")
    )
}

/// Three particles apart from each other, `[3, P]`.
fn particles(subspace: &dyn Subspace) -> Tensor {
    let rows: Vec<Tensor> = (0..3).map(|particle| subspace.initial(1, particle).unwrap()).collect();
    tch::manual_seed(3);
    let theta = Tensor::stack(&rows, 0);
    let noise = theta.randn_like() * 0.05;
    theta + noise
}

fn pixels(size: i64) -> Tensor {
    tch::manual_seed(4);
    Tensor::rand([IMAGES, 3, size, size], tch::kind::FLOAT_CPU)
}

/// Cuts from everything at once to one member and one image.
fn cuts() -> impl Iterator<Item = ChunkSize> {
    [(3, 5), (2, 5), (1, 5), (3, 2), (1, 1)].into_iter().map(|(members, images)| ChunkSize { members, images })
}

/// Pixels `[B, 3, h, w]` that all members see.
fn all_see(pixels: &Tensor) -> Input {
    Input::Pixels(pixels.unsqueeze(0))
}

#[test]
fn predictions_and_gradients_do_not_depend_on_the_cut() {
    for table in ["[subspace.low-rank]\nrank = 2", "[subspace.full]"] {
        let (model, subspace) = setting(table);
        let theta = particles(&*subspace);
        let members = Members::Rows { subspace: &*subspace, rows: &theta };
        let predictor = Predictor::new(&model, members, Chunk::Auto);
        let pixels = pixels(model.images().unwrap().size());
        let labels = Tensor::from_slice(&[0i64, 1, 2, 3, 4]);
        let work = Work { budgets: 1, images: 5, samples: 5, kept: 0 };
        let victim = Victim::new(&predictor, Target::MeanProbability, Resolution::Model, work).unwrap();
        let whole = predictor
            .logits(&Chunker::fixed(ChunkSize { members: 3, images: 5 }, "test", ""), &all_see(&pixels))
            .unwrap();
        let gradient = victim.loss(&pixels, &labels).unwrap().gradient;
        for cut in cuts() {
            let logits = predictor.logits(&Chunker::fixed(cut, "test", ""), &all_see(&pixels)).unwrap();
            alike(&logits, &whole, &format!("{table}: logits, {cut:?}"));
            victim.chunker().set(cut);
            alike(&victim.loss(&pixels, &labels).unwrap().gradient, &gradient, &format!("{table}: pixels, {cut:?}"));
            let part = |start: i64| {
                let count = (cut.images as i64).min(IMAGES - start);
                victim.loss(&pixels.narrow(0, start, count), &labels.narrow(0, start, count)).unwrap().gradient
            };
            let parts: Vec<Tensor> = (0..IMAGES).step_by(cut.images).map(part).collect();
            alike(&Tensor::cat(&parts, 0), &gradient, &format!("{table}: pixels in parts, {cut:?}"));
        }
    }
}

#[test]
fn training_gradients_do_not_depend_on_the_cut() {
    let (model, subspace) = setting("[subspace.low-rank]\nrank = 2");
    let theta = particles(&*subspace);
    let bytes = (pixels(20) * 255.0).to_kind(Kind::Uint8);
    let batch = Batch { samples: Fields::of(PIXELS, bytes), labels: Tensor::from_slice(&[0i64, 1, 2, 3, 4]) };
    let objective = |parts: usize| {
        let passes = train::Passes { particle_chunk: 0, accumulate: parts, recompute: false };
        Likelihood::new(Learner::of_classes(&model, &*subspace), passes, &batch, 1)
    };
    let whole = objective(1).losses(&theta).unwrap();
    for (cut, parts) in cuts().flat_map(|cut| [(cut, 1), (cut, 2)]) {
        let found = objective(parts).chunked_by(Rc::new(Chunker::fixed(cut, "test", ""))).losses(&theta).unwrap();
        alike(&found.losses, &whole.losses, &format!("losses, {cut:?} in {parts} parts"));
        alike(&found.gradients, &whole.gradients, &format!("gradients, {cut:?} in {parts} parts"));
    }
}

/// Theta, the two moments of AdamW, and with `train.ema` and factors of learning rates one matrix more each.
#[test]
fn what_is_kept_from_step_to_step_is_counted() {
    let text = config("[subspace.low-rank]\nrank = 2");
    let (_, subspace) = model(&text, Kind::Float);
    let matrix = 3 * 4 * subspace.layout().parameters() as u64;
    for (more, matrices) in [("", 3), ("b_rate = 2.0\n", 4), ("[train.ema]\ndecay = 0.9\n", 4)] {
        let experiment = Experiment::read(&Tree::parse("x.toml", &format!("{text}{more}")).unwrap()).unwrap();
        let bytes = train::chunks::state_bytes(experiment.training.as_ref().unwrap(), subspace.layout());
        assert_eq!(bytes, matrices * matrix, "{more}");
    }
}

/// Four more images of 3 x S x S numbers, for three particles: their gradients in f32, and seven copies of these in f64.
#[test]
fn gradients_by_pixels_are_planned_for_the_whole_batch() {
    let svgd = "[method.svgd]\nparticles = 3\ngamma = 0.1\nspace = \"input-gradients\"";
    let text = config("[subspace.low-rank]\nrank = 2").replace("[method.ensemble]\nparticles = 3", svgd);
    let (model, subspace) = model(&text, Kind::Float);
    let least = |batch_size: usize| {
        let text = text.replace("batch_size = 4", &format!("batch_size = {batch_size}"));
        let experiment = Experiment::read(&Tree::parse("x.toml", &text).unwrap()).unwrap();
        let images = Images { train: 100, validation: 0 };
        Step::of(experiment.training.as_ref().unwrap(), &model, subspace.layout(), images).within(1).bytes
    };
    let side = model.images().unwrap().size() as u64;
    assert_eq!(least(8) - least(4), 3 * 4 * 3 * side * side * (4 + 7 * 8));
}

/// What products keep beside frozen matrices, and what is computed once for all members, is in the plans of bf16.
#[test]
fn plans_count_packed_matrices() {
    let text = config("[subspace.low-rank]\nrank = 2");
    // Its MLPs have 64 by 256 weights, as few as a packed matrix has.
    let text = text.replace("tests/fixtures/timm_scripted.pt", "assets/vit-digits.pt");
    let (model, _) = model(&text, Kind::BFloat16);
    let network = model.network.need(&model.base, Graph::None, model.kind);
    let matrices = model.base.all().iter().filter(|(_, tensor)| tensor.dim() == 2).map(|(_, tensor)| tensor.numel());
    let packed = packed_bytes(model.kind, matrices);
    assert_eq!(model.need(Graph::None).fixed, network.fixed + packed);
}

/// The loss of classes, which finds no memory in one of its calls.
struct Starved {
    calls: AtomicUsize,
    fails: usize,
}

impl Loss for Starved {
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        assert!(self.calls.fetch_add(1, Ordering::Relaxed) != self.fails, "can't allocate memory");
        Classes.losses(head, weights, features, labels)
    }
}

/// What the pass that failed had added to rows beyond those of the smaller cut is forgotten, too.
#[test]
fn training_gradients_are_the_same_where_memory_runs_out() {
    let (model, subspace) = setting("[subspace.low-rank]\nrank = 2");
    let theta = particles(&*subspace);
    let bytes = (pixels(20) * 255.0).to_kind(Kind::Uint8);
    let batch = Batch { samples: Fields::of(PIXELS, bytes), labels: Tensor::from_slice(&[0i64, 1, 2, 3, 4]) };
    let of = |loss: &dyn Loss, chunker: &Rc<Chunker>| {
        let learner = Learner { model: &model, subspace: &*subspace, loss };
        Likelihood::new(learner, train::Passes::WHOLE, &batch, 1).chunked_by(chunker.clone()).losses(&theta).unwrap()
    };
    let chunker = || Rc::new(Chunker::fixed(ChunkSize { members: 3, images: 1 }, "test", ""));
    let plenty = of(&Classes, &chunker());
    for fails in 0..5 {
        let chunker = chunker();
        let found = of(&Starved { calls: AtomicUsize::new(0), fails }, &chunker);
        assert_eq!(chunker.cut(), ChunkSize { members: 2, images: 1 }, "pass {fails}");
        alike(&found.losses, &plenty.losses, &format!("losses, where pass {fails} failed"));
        alike(&found.gradients, &plenty.gradients, &format!("gradients, where pass {fails} failed"));
    }
}

#[test]
fn a_small_batch_leaves_the_cut_of_later_ones() {
    let (model, subspace) = setting("[subspace.low-rank]\nrank = 2");
    let theta = particles(&*subspace);
    let bytes = (pixels(20) * 255.0).to_kind(Kind::Uint8).narrow(0, 0, 2);
    let batch = Batch { samples: Fields::of(PIXELS, bytes), labels: Tensor::from_slice(&[0i64, 1]) };
    let chunker = Rc::new(Chunker::fixed(ChunkSize { members: 3, images: 5 }, "test", ""));
    let objective = Likelihood::new(Learner::of_classes(&model, &*subspace), train::Passes::WHOLE, &batch, 1);
    objective.chunked_by(chunker.clone()).losses(&theta).unwrap();
    assert_eq!(chunker.cut(), ChunkSize { members: 3, images: 5 });
}

/// Rows that cannot be made more than `most` at a time.
struct Scarce<'a> {
    theta: &'a Tensor,
    most: usize,
}

impl Rows for Scarce<'_> {
    fn count(&self) -> usize {
        self.theta.size()[0] as usize
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        match members.len() > self.most {
            true => Err(OutOfMemory(format!("no memory for {} members", members.len())).into()),
            false => Ok(self.theta.narrow(0, members.start as i64, members.len() as i64)),
        }
    }

    fn are_made(&self) -> bool {
        true
    }
}

#[test]
fn when_memory_runs_out_the_cut_is_halved_and_the_result_is_the_same() {
    let (model, subspace) = setting("[subspace.full]");
    let theta = particles(&*subspace);
    let pixels = pixels(model.images().unwrap().size());
    let whole = ChunkSize { members: 3, images: 5 };
    let logits = |rows: &dyn Rows, chunker: &Chunker| {
        Predictor::new(&model, Members::Rows { subspace: &*subspace, rows }, Chunk::Auto)
            .logits(chunker, &all_see(&pixels))
    };
    let plenty = logits(&theta, &Chunker::fixed(whole, "test", "")).unwrap();
    let chunker = Chunker::fixed(whole, "test", "");
    alike(&logits(&Scarce { theta: &theta, most: 1 }, &chunker).unwrap(), &plenty, "scarce");
    assert_eq!(chunker.cut(), ChunkSize { members: 1, images: 1 });
    let error = logits(&Scarce { theta: &theta, most: 0 }, &chunker).unwrap_err().to_string();
    assert_eq!(error, "no memory for 1 members");
}

/// A draw of three times the weight counts as three draws in the features of a bank.
#[test]
fn features_are_means_by_the_weights_of_members() {
    let (model, subspace) = setting("[subspace.full]");
    let theta = particles(&*subspace);
    let pixels = pixels(model.images().unwrap().size());
    let features = |draws: Tensor, weights: Option<Vec<f64>>| {
        let posterior = Posterior::Bank { draws, weights };
        let members = Members::Rows { subspace: &*subspace, rows: &&posterior };
        let chunker = Chunker::fixed(ChunkSize { members: 1, images: 5 }, "test", "");
        Predictor::new(&model, members, Chunk::Auto).mean_features(&chunker, &all_see(&pixels)).unwrap()
    };
    let repeated = theta.index_select(0, &Tensor::from_slice(&[0i64, 1, 1, 1, 2]));
    let found = features(theta.shallow_clone(), Some(vec![2.0, 6.0, 2.0]));
    alike(&found, &features(repeated, None), "weighted");
    assert!((found - features(theta, None)).abs().max().double_value(&[]) > 1e-3);
}

#[test]
fn what_cannot_fit_is_refused_with_the_amount_and_a_way_out() {
    let place = Place::with_tiny();
    let line = error_line(with(place.train(&[]), &["--memory", "0.01"]), 1);
    assert_has(&line, &["training step: 1 member and one image at once need", "GiB is free", "train.recompute"]);
    let line = error_line(with(place.train(&["train.recompute=true"]), &["--memory", "0.01"]), 1);
    assert!(line.contains("at once need") && !line.contains("train.recompute"), "{line}");
    let head = ["subspace={last-layer={}}", "train.recompute=true"];
    assert_has(&error_line(place.train(&head), 2), &["train: recompute: subspace.last-layer trains the head alone"]);
    let refused = with(place.train(&[]), &["--memory", "0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_has(&messages(&refused), &["--memory", "must be above 0"]);
    let place = trained();
    // Clean images are predicted before they are attacked.
    let line = error_line(with(place.command("eval", &[]), &["--memory", "0.01", "--attack", "fgsm"]), 1);
    assert_has(&line, &["prediction: 1 member and one image at once need", "--batch-size"]);
}

/// The Gram matrices of 3,000 particles of rank 2 take 0.27 GiB a layer, and their kernel 0.07 GiB a tensor.
#[test]
fn the_pairs_of_many_particles_are_planned() {
    let place = Place::with_tiny();
    let sets = ["method.svgd.particles=3000"];
    let line = error_line(with(place.train(&sets), &["--no-eval", "--memory", "2"]), 1);
    assert_has(&line, &["training step: 1 member and one image at once need", "GiB of it however few they are"]);
}

/// Another cut rounds otherwise, but a run that cannot go on bit for bit goes on all the same.
#[test]
fn a_resumed_run_is_cut_anew_where_its_cut_does_not_fit_any_more() {
    let place = Place::with_tiny();
    // Mixed gradients are taken in one pass, which is not divided among threads.
    let passes = ["method.svgd.particles=4", "method.svgd.drive=weight", "train.batch_size=800"];
    let sets = [&passes[..], &["data.digits.subset.train=1000", "train.epochs=1"]].concat();
    let train = |gib: &str| {
        let output = with(place.train(&sets), &["-v", "--no-eval", "--memory", gib]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        messages(&output)
    };
    assert_has(&train("8"), &["training step: 4 members x 799 images at once"]);
    let again = || std::fs::remove_file(place.run().join("posterior.safetensors")).unwrap();
    again();
    let resumed = train("0.6");
    let started = "warning: training step: this run was started with 4 members x 799 images at once, which need";
    assert_has(
        &resumed,
        &[started, "GiB is free: it goes on with 2 x 799, but not bit for bit", "resuming after 1 steps"],
    );
    again();
    assert!(!train("8").contains("was started with"), "the cut fits again");
}
