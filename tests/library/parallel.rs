//! Several processes compute what one does: here they are threads that pass messages through memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};

use crate::common::{Place, assert_has, error_line, model, questions, tiny};
use bella::base::random::{Purpose, stream};
use bella::data::SplitName;
use bella::data::batches::{Batch, SampleSet, Samples};
use bella::data::fields::{Fields, PIXELS};
use bella::experiment::Experiment;
use bella::machine::Chunk;
use bella::machine::device::DeviceChoice;
use bella::machine::parallel::{Network, ProcessGroup, Sharding};
use bella::methods::{Evaluation, Extended, Extra, FactorNoise, Objective, Output, Request};
use bella::model::{Input, Model};
use bella::posterior::Posterior;
use bella::predict::generate::{Stop, Written};
use bella::predict::{Members, Predictor};
use bella::schema::Tree;
use bella::session::{Session, Settings};
use bella::subspace::Subspace;
use bella::tasks::{Loss, Recipe};
use bella::train::{Learner, Likelihood, Passes, Shared};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

/// The state that the threads share.
struct Hub {
    slots: Mutex<Vec<Vec<u8>>>,
    barrier: Barrier,
    groups: Mutex<HashMap<usize, Arc<Hub>>>,
}

impl Hub {
    fn new(size: usize) -> Arc<Hub> {
        let slots = Mutex::new(vec![Vec::new(); size]);
        Arc::new(Hub { slots, barrier: Barrier::new(size), groups: Mutex::default() })
    }
}

struct Thread {
    hub: Arc<Hub>,
    rank: usize,
}

impl Thread {
    /// Everybody's bytes.
    fn exchange(&self, own: Vec<u8>) -> Vec<Vec<u8>> {
        self.hub.slots.lock().unwrap()[self.rank] = own;
        self.hub.barrier.wait();
        let all = self.hub.slots.lock().unwrap().clone();
        self.hub.barrier.wait();
        all
    }
}

fn to_bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

impl Network for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.hub.slots.lock().unwrap().len()
    }

    fn numbers(&self, own: u64) -> Vec<u64> {
        let all = self.exchange(own.to_le_bytes().to_vec());
        all.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap())).collect()
    }

    fn gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) {
        let found = self.exchange(to_bytes(own));
        let lengths: Vec<usize> = found.iter().map(|bytes| bytes.len() / 4).collect();
        assert_eq!(lengths, counts);
        all.copy_from_slice(&to_floats(&found.concat()));
    }

    fn sum(&self, values: &mut [f32]) {
        let all: Vec<Vec<f32>> = self.exchange(to_bytes(values)).iter().map(|bytes| to_floats(bytes)).collect();
        values.iter_mut().enumerate().for_each(|(i, value)| *value = all.iter().map(|of| of[i]).sum());
    }

    fn broadcast(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.exchange(bytes.to_vec())[0]);
    }

    fn split(&self, color: usize) -> Box<dyn Network> {
        let colors = self.numbers(color as u64);
        let alike: Vec<usize> = (0..colors.len()).filter(|rank| colors[*rank] == color as u64).collect();
        let hub = self.hub.groups.lock().unwrap().entry(color).or_insert_with(|| Hub::new(alike.len())).clone();
        Box::new(Thread { hub, rank: alike.iter().position(|rank| *rank == self.rank).unwrap() })
    }

    fn wait(&self) {
        self.hub.barrier.wait();
    }

    fn abort(&self, code: u8) -> ! {
        panic!("aborted with {code}")
    }
}

/// Runs `work` in `size` worlds of one network, and gives what each returned.
fn together<T: Send>(size: usize, work: impl Fn(&ProcessGroup) -> T + Sync) -> Vec<T> {
    let hub = Hub::new(size);
    std::thread::scope(|scope| {
        let spawn = |rank| {
            let (network, work) = (Thread { hub: hub.clone(), rank }, &work);
            scope.spawn(move || work(&ProcessGroup::over(Box::new(network))))
        };
        let threads: Vec<_> = (0..size).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn messages() {
    let results = together(3, |group| {
        let rank = group.rank();
        assert_eq!((group.size(), group.is_main()), (3, rank == 0));
        assert!(group.any(rank == 2) && !group.any(false));
        group.agree("the seed", "7").unwrap();
        let error = group.agree("the seed", if rank == 1 { "8" } else { "7" }).unwrap_err().to_string();
        assert_has(&error, &["the seed of process 1 differs"]);
        assert_eq!(group.from_first(|| Ok(vec![rank as u8, 5])).unwrap(), [0, 5]);
        assert_eq!(group.least(5 - rank), 3);
        // Any bytes, of lengths that three does not divide, and none at all.
        let own: Vec<u8> = (0..100 * rank).map(|i| (255 - i) as u8).collect();
        let all = group.gather_bytes(&own).unwrap();
        assert!(all.iter().map(Vec::len).eq([0, 100, 200]) && all[rank] == own && all[2][3] == 252);
        let mut tensor = Tensor::from_slice(&[rank as f32, 0.5]);
        group.align(&mut tensor).unwrap();
        assert_eq!(tensor, Tensor::from_slice(&[0f32, 0.5]));
        // the second process has nothing to add
        let rows = if rank == 1 { 0 } else { 2 };
        let all = group.gather(&Tensor::full([rows, 2], rank as i64, tch::kind::FLOAT_CPU)).unwrap();
        (all.size(), Vec::<f32>::try_from(&all.contiguous().view(-1)).unwrap(), group.place().local_rank)
    });
    for (rank, (size, values, local_rank)) in results.into_iter().enumerate() {
        assert_eq!((size, values), (vec![4, 2], vec![0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]));
        assert_eq!(local_rank, rank);
    }
}

const BATCH: usize = 5;

/// The tiny experiment's model, with particles apart.
struct Setting {
    model: Model,
    subspace: Box<dyn Subspace>,
    theta: Tensor,
    bytes: Tensor,
    labels: Tensor,
    orders: usize,
    /// Weights of the classes, if they have any.
    recipe: Option<Recipe>,
}

impl Setting {
    fn weighted(particles: usize, orders: usize) -> Setting {
        let weights = (0..10).map(|class| 0.3 + f64::from(class)).collect();
        Setting { recipe: Some(Recipe::new(Some(weights), 0.1)), ..Setting::new(particles, orders) }
    }

    fn learner(&self) -> Learner<'_> {
        let plain = Learner::of_classes(&self.model, self.subspace.as_ref());
        let Some(recipe) = &self.recipe else { return plain };
        Learner { loss: recipe, ..plain }
    }

    /// The same likelihood with the factors of these orders, which follow from their whole batches.
    fn scaled<'a>(&'a self, likelihood: Likelihood<'a>, orders: Range<usize>) -> Likelihood<'a> {
        let Some(recipe) = &self.recipe else { return likelihood };
        let labels: Vec<i64> = Vec::try_from(&self.labels).unwrap();
        let own = |order: usize| labels[order * BATCH..][..BATCH].iter().map(|label| *label as u32);
        let factors: Vec<f32> = orders.map(|order| recipe.scale(&mut own(order)).unwrap() as f32).collect();
        likelihood.scaled_by(&Tensor::from_slice(&factors))
    }

    /// On a frozen base in 4 bits.
    fn quantised(particles: usize, orders: usize) -> Setting {
        let setting =
            Setting::of(&tiny().replace("[checkpoint]", "[checkpoint]\nquantize = \"nf4\""), particles, orders);
        assert!(setting.model.base.has_quantised());
        setting
    }

    fn new(particles: usize, orders: usize) -> Setting {
        Setting::of(&tiny(), particles, orders)
    }

    fn of(config: &str, particles: usize, orders: usize) -> Setting {
        let (model, subspace) = model(config, Kind::Float);
        let columns = subspace.layout().parameters();
        let theta = floats(particles as i64 * columns, 1).view([particles as i64, columns]) * 0.1;
        let images = (orders * BATCH) as i64;
        let bytes = (floats(images * 3 * 8 * 8, 2).abs() * 255.0).to_kind(Kind::Uint8).view([images, 3, 8, 8]);
        let labels = (floats(images, 3).abs() * 9.9).to_kind(Kind::Int64);
        Setting { model, subspace, theta, bytes, labels, orders, recipe: None }
    }

    fn batch(&self, indices: &[i64]) -> Batch {
        let index = Tensor::from_slice(indices);
        Batch {
            samples: Fields::of(PIXELS, self.bytes.index_select(0, &index)),
            labels: self.labels.index_select(0, &index),
        }
    }

    fn whole(&self, cut: Passes) -> Likelihood<'_> {
        let all: Vec<i64> = (0..(self.orders * BATCH) as i64).collect();
        let whole = Likelihood::new(self.learner(), cut, &self.batch(&all), self.orders as i64);
        self.scaled(whole, 0..self.orders)
    }

    /// With the images of a share alone.
    fn shared<'a>(&'a self, sharding: &'a Sharding<'a>, cut: Passes) -> Shared<'a> {
        let share = sharding.share();
        let orders = if self.orders == 1 { 0..1 } else { share.rows.clone() };
        let samples: Vec<usize> = cut.samples(share, BATCH).into_iter().flatten().collect();
        let own: Vec<i64> = orders
            .clone()
            .flat_map(|order| samples.iter().map(move |sample| (order * BATCH + sample) as i64))
            .collect();
        let Batch { samples: bytes, labels } = self.batch(&own);
        let size = [labels.size()[0] / samples.len().max(1) as i64, samples.len() as i64];
        // A process may have no sample of a small batch.
        let size = if samples.is_empty() { [1, 0] } else { size };
        let (images, labels) = (bytes.map(|bytes| bytes.unflatten(0, size.as_slice())), labels.view(size));
        let orders = if samples.is_empty() { 0..1 } else { orders };
        let own = self.scaled(Likelihood::on(self.learner(), cut, Input::Stored(images), labels), orders);
        Shared { own: own.of_share(share, BATCH), sharding }
    }

    fn matrices(&self) -> Tensor {
        let (blocks, n) = (self.subspace.layout().blocks.len() as i64, self.theta.size()[0]);
        floats(blocks * n * n, 4).view([blocks, n, n])
    }
}

/// Uniform in [−1, 1).
fn floats(count: i64, place: u64) -> Tensor {
    use rand::Rng;
    let mut rng = stream(9, Purpose::Check, &[place]);
    let values: Vec<f32> = (0..count).map(|_| rng.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0).collect();
    Tensor::from_slice(&values)
}

/// All results of an objective: losses and gradients, of the whole batch, of each part, and mixed.
fn results(setting: &Setting, objective: &mut dyn Objective) -> Vec<Tensor> {
    let parts = objective.parts();
    let mut found = Vec::new();
    let mut keep = |Evaluation { losses, gradients }: Evaluation| found.extend([losses, gradients]);
    keep(objective.losses(&setting.theta).unwrap());
    for part in 0..parts {
        keep(objective.losses_of_part(&setting.theta, part).unwrap());
        keep(Evaluation { losses: Tensor::from(objective.share(part) as f32), gradients: Tensor::from(0f32) });
    }
    for output in [Output::Logits, Output::Features, Output::InputGradients] {
        let outputs = objective.outputs(&setting.theta, output).unwrap();
        let pulled = objective.pull_back(&setting.theta, output, &(&outputs.values * 0.3 + 0.1)).unwrap();
        keep(Evaluation { losses: outputs.values, gradients: pulled });
        keep(Evaluation { losses: outputs.labels.to_kind(Kind::Float), gradients: Tensor::from(0f32) });
    }
    let mut extended = |request: Request| objective.evaluate(&request).unwrap().extended().unwrap();
    let noise = &(&setting.theta * 0.1);
    for part in 0..parts {
        let request = Request::losses(&setting.theta).on_part(part);
        for extra in [Extra::Squares, Extra::Noise(FactorNoise { noise, seed: 1, step: 2 })] {
            let Extended { own, extra } = extended(request.with(extra));
            keep(own);
            keep(Evaluation { losses: Tensor::from(0f32), gradients: extra });
        }
    }
    let Extended { own, extra } = extended(Request::losses(&setting.theta).with(Extra::Mixing(&setting.matrices())));
    keep(Evaluation { losses: own.losses, gradients: extra });
    found
}

#[test]
fn shared_objective_equals_that_of_one_process() {
    // Fewer processes than particles, as many, more, and more than a particle has samples in a part.
    for (particles, processes) in [(3, 2), (2, 2), (2, 5), (1, 4)] {
        let cuts = [(particles, 1, 0, false), (1, 2, 1, false), (particles, 2, 0, true)];
        for (orders, accumulate, particle_chunk, is_weighted) in cuts {
            let cut = Passes { particle_chunk, accumulate, recompute: false };
            let new = if is_weighted { Setting::weighted } else { Setting::new };
            shared_equals_whole(processes, cut, || new(particles, orders));
        }
    }
}

/// Rows and batches are divided among processes that each hold the quantised weights.
#[test]
fn shared_objective_on_a_quantised_base_equals_that_of_one_process() {
    for (particles, processes) in [(3, 2), (2, 5)] {
        for (orders, accumulate, particle_chunk) in [(particles, 1, 0), (1, 2, 1)] {
            let cut = Passes { particle_chunk, accumulate, recompute: false };
            shared_equals_whole(processes, cut, || Setting::quantised(particles, orders));
        }
    }
}

/// Compares the objective of several processes, each with a setting of its own, with that of one.
fn shared_equals_whole(processes: usize, cut: Passes, new: impl Fn() -> Setting + Sync) {
    let setting = new();
    let particles = setting.theta.size()[0] as usize;
    let expected = results(&setting, &mut setting.whole(cut));
    let everybody = together(processes, |group| {
        let (setting, sharding) = (new(), group.sharding(particles));
        results(&setting, &mut setting.shared(&sharding, cut))
    });
    for (rank, found) in everybody.iter().enumerate() {
        assert_eq!(found.len(), expected.len());
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.size(), expected.size());
            let difference = (found - expected).abs().max().double_value(&[]);
            let scale = expected.abs().max().double_value(&[]);
            // Sums are in another order, which each processor's matrix kernels round differently.
            assert!(difference <= 3e-5 * scale, "{particles} over {processes}, {rank}, {i}: {difference} of {scale}");
            assert_eq!(found, &everybody[0][i], "processes disagree");
        }
    }
}

/// Writes the answers of a smallest LLaVA to seven questions in batches of two, and returns them with the loss of known answers.
fn answers(config: &str, group: &ProcessGroup) -> (Vec<Vec<Written>>, f64) {
    let experiment = Experiment::read(&Tree::parse("tiny.toml", config).unwrap()).unwrap();
    let device = DeviceChoice::Cpu;
    let settings = Settings { device, threads: Some(1), workers: 1, precision: None, out: "results".into() };
    let classes = experiment.data.dataset.classes().unwrap();
    let session = Session::open(&experiment, settings, tch::Device::Cpu, classes).unwrap();
    let split = session.load(&experiment, SplitName::Test).unwrap();
    let set = SampleSet::new(split, session.device, 1).unwrap();
    let columns = session.subspace().unwrap().layout().parameters();
    let posterior = Posterior::Points { theta: floats(2 * columns, 1).view([2, columns]) * 0.3 };
    let members = Members::Rows { subspace: session.subspace().unwrap(), rows: &&posterior };
    let predictor = Predictor::new(&session.model, members, Chunk::Auto);
    let all: Vec<u32> = (0..set.samples() as u32).collect();
    let stop = Stop { tokens: 4, ends: &[] };
    let texts =
        predictor.shared_texts(group, Samples { set: &set, indices: &all }, 2, stop, &ProgressBar::hidden()).unwrap();
    (texts, predictor.answer_loss(group, &set, &all, 2).unwrap())
}

#[test]
fn answers_are_those_of_one_process() {
    let place = Place::new();
    let config = questions(&place, "llava/transformers-4");
    let (expected, loss) = answers(&config, &ProcessGroup::alone());
    assert_eq!(expected.len(), 7);
    assert!(expected.iter().all(|text| text.len() == 4) && loss > 0.0);
    assert!(expected[1..].iter().all(|text| *text != expected[0]), "texts differ, so that their order shows");
    // Four batches for two processes, and fewer batches than processes.
    for processes in [2, 5] {
        for (texts, found) in together(processes, |group| answers(&config, group)) {
            assert_eq!(texts, expected, "{processes} processes");
            assert_eq!(found, loss);
        }
    }
}

/// `bella` as one of four processes of a launcher.
fn launched(place: &Place, command: &str) -> crate::common::Bella {
    let mut command = place.configured(command, &[]);
    command.env("OMPI_COMM_WORLD_SIZE", "4").env("OMPI_COMM_WORLD_RANK", "0");
    command
}

#[test]
fn commands_that_do_not_divide_their_work() {
    let line = error_line(launched(&Place::with_tiny(), "eval"), 2);
    assert_has(&line, &["4 processes were started together", "only `bella train`"]);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn several_processes_without_mpi() {
    let place = Place::with_tiny();
    let line = error_line(launched(&place, "train"), 2);
    assert_has(&line, &["built without MPI", "4 processes", "cargo build --release --features mpi"]);
    assert!(place.runs().is_empty());
}
