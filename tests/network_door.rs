//! The door for networks, tried with a foreign one: two residual layers over token ids with a mask, made here, trained by
//! the library's methods and subspaces, evaluated and scored by its own code.

mod common;

use bella::base::random::{Purpose, stream};
use bella::data::batches::SampleSet;
use bella::data::fields::{Fields, IDS, MASK, of_texts};
use bella::data::order::Holdout;
use bella::experiment::Experiment;
use bella::machine::Chunk;
use bella::machine::device::DeviceChoice;
use bella::machine::memory::MemoryEstimate;
use bella::machine::parallel::ProcessGroup;
use bella::metrics::{Average, Scores, value};
use bella::model::head::{Head, Training};
use bella::model::network::{Graph, Network, Parameters, Slot, Weights};
use bella::model::{AsStored, Model};
use bella::posterior::Posterior;
use bella::predict::Predictor;
use bella::predictions::{Predictions, Shape};
use bella::run::RunFolder;
use bella::schema::Tree;
use bella::session::{Session, Settings, prepare};
use bella::train::{self, Finished, Material, Outcome, Watch};
use common::Place;
use rand::RngExt;
use tch::{Device, Kind, Tensor};

const VOCABULARY: i64 = 12;
const LENGTH: i64 = 7;
const WIDTH: i64 = 16;
const HIDDEN: i64 = 32;
const LAYERS: usize = 2;
/// A text is of class 1 when this token is in it.
const WANTED: i64 = 5;

/// Samples are token ids, and a mask that is 1 where there is a token. The mask travels beside the values to the readout.
struct Texts;

impl Network for Texts {
    fn slots(&self) -> Vec<Slot> {
        let layer = Slot::of_block;
        (0..LAYERS)
            .flat_map(|stage| [layer(stage, "mlp.fc", WIDTH, HIDDEN), layer(stage, "mlp.proj", HIDDEN, WIDTH)])
            .collect()
    }

    fn stages(&self) -> usize {
        LAYERS
    }

    fn stage_of(&self, name: &str) -> usize {
        name.strip_prefix("blocks.").map_or(0, |rest| rest[..1].parse().unwrap())
    }

    fn feature_width(&self) -> i64 {
        WIDTH
    }

    fn entering(&self, _: usize) -> Fields<Vec<i64>> {
        Fields::new(vec![("values", vec![LENGTH, WIDTH]), (MASK, vec![LENGTH, 1])])
    }

    fn enter(&self, weights: &Weights, samples: &Fields) -> Fields {
        let (ids, mask) = (samples.get(IDS), samples.get(MASK));
        let table = weights.param("embedding");
        let particles = table.size()[0].max(ids.size()[0]);
        let offsets = Tensor::arange(table.size()[0], (Kind::Int64, Device::Cpu)).view([-1, 1, 1]) * VOCABULARY;
        let ids = ids + offsets;
        let rows = table.reshape([-1, WIDTH]).index_select(0, &ids.reshape([-1]));
        let x = rows.view([particles, -1, LENGTH, WIDTH]);
        let mask = mask.unsqueeze(3).to_kind(x.kind());
        Fields::new(vec![("values", x), (MASK, mask)])
    }

    fn stage(&self, weights: &Weights, stage: usize, fields: Fields) -> Fields {
        let x = fields.get("values");
        let hidden = weights.linear(&format!("blocks.{stage}.mlp.fc")).forward(x).gelu("none");
        let y = x + weights.linear(&format!("blocks.{stage}.mlp.proj")).forward(&hidden);
        fields.with("values", y)
    }

    fn features(&self, _: &Weights, x: &Fields) -> Tensor {
        let (x, mask) = (x.get("values"), x.get(MASK));
        let sum = |t: Tensor| t.sum_dim_intlist([2i64].as_slice(), false, Kind::Float);
        sum(x * mask) / sum(mask.shallow_clone())
    }

    fn need(&self, _: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let kept = if matches!(graph, Graph::None) { 1 } else { LAYERS as u64 };
        let numbers = kept * LENGTH as u64 * (2 * WIDTH + 3 * HIDDEN) as u64;
        MemoryEstimate { fixed: 0, member: 0, image: 0, pair: numbers * kind.elt_size_in_bytes() as u64 }
    }
}

fn model() -> Model {
    tch::manual_seed(7);
    let random = |size: &[i64], scale: f64| Tensor::randn(size, (Kind::Float, Device::Cpu)) * scale;
    let mut named = vec![("embedding".to_string(), random(&[VOCABULARY, WIDTH], 1.0))];
    for slot in Texts.slots() {
        let scale = 1.0 / (slot.inputs as f64).sqrt();
        named.push((format!("{}.weight", slot.name), random(&[slot.outputs, slot.inputs], scale)));
        named.push((format!("{}.bias", slot.name), random(&[slot.outputs], 0.1)));
    }
    Model {
        network: Box::new(Texts),
        base: Parameters::new(named),
        head: Head {
            weight: Tensor::zeros([2, WIDTH], (Kind::Float, Device::Cpu)),
            bias: Tensor::zeros([2], (Kind::Float, Device::Cpu)),
            normalised: false,
            random: None,
            rows: None,
            cap: None,
            training: Training::Always,
            texts: None,
            gaussian: None,
        },
        preparation: Box::new(AsStored),
        device: Device::Cpu,
        kind: Kind::Float,
    }
}

/// Random texts of different lengths, with their classes.
fn texts(count: usize, which: u64) -> SampleSet {
    let mut rng = stream(1, Purpose::Check, &[which]);
    let (mut samples, mut labels) = (Vec::new(), Vec::new());
    for text in 0..count {
        let class = (text % 2) as u32;
        let length = rng.random_range(3..=LENGTH);
        let mut ids: Vec<i64> =
            (0..length).map(|_| rng.random_range(0..VOCABULARY)).map(|id| id.max(WANTED + 1)).collect();
        if class == 1 {
            ids[rng.random_range(0..length as usize)] = WANTED;
        }
        // Behind the end the wanted token means nothing: whoever forgets the mask cannot learn this.
        ids.resize(LENGTH as usize, WANTED);
        samples.extend(&ids);
        samples.extend((0..LENGTH).map(|place| i64::from(place < length)));
        labels.push(class);
    }
    let samples = of_texts(&Tensor::from_slice(&samples).view([count as i64, 2, LENGTH]));
    SampleSet::resident(&samples, labels, Device::Cpu)
}

/// Trains with the tables `how` on 300 texts; the accuracy and the NLL on 200 others, and the posterior.
fn trained(how: &str) -> (f64, f64, Posterior) {
    let place = Place::new();
    tch::set_num_threads(1);
    // The run's identity contains a checkpoint's hash: any file stands for the weights made above.
    let weights = place.write("weights.bin", b"made in the test");
    let text = format!(
        "name = \"texts\"\nseed = 1\n[checkpoint]\npath = {weights:?}\nnormalize = \"clip\"\n[head.linear]\n\
         [data.digits]\nvalidation = 0.2\n{how}\n"
    );
    let experiment = Experiment::read(&Tree::parse("texts.toml", &text).unwrap()).unwrap_or_else(|p| panic!("{p}"));
    let (model, training) = (model(), experiment.training.as_ref().unwrap());
    let subspace = training.subspace.spec.build(&Texts, &model.base, &model.head).unwrap();
    let out = place.path("results");
    let settings = Settings { device: DeviceChoice::Cpu, threads: Some(1), workers: 1, precision: None, out };
    let session = Session {
        settings,
        group: ProcessGroup::alone().into(),
        device: Device::Cpu,
        model,
        subspace: Some(subspace),
        classes: vec!["without".into(), "with".into()],
        naming: "texts",
        names: Default::default(),
        new_layer: None,
        self_check_difference: None,
    };
    let folder = RunFolder::of(&session.settings.out, &experiment).unwrap();
    folder.create(&experiment).unwrap();
    let holdout = Holdout { train: (0..240).collect(), validation: (240..300).collect() };
    let material = Material::of(texts(300, 0), holdout, "texts".into());
    let watch = Watch { stop: Default::default(), trained: &|| Ok(()), until_epoch: None, began: &Default::default() };
    let run = train::Run { experiment: &experiment, session: &session, material, folder: &folder, state: None };
    let outcome = train::run(run, &watch).unwrap();
    let Outcome::Finished(finished) = outcome else { panic!("nobody stopped it") };
    let Finished { posterior, record } = *finished;
    assert_eq!(record.train_samples, 240);

    let scores = scored(&experiment, &session, &posterior);
    let score = |key: &str| value(&scores, key, Average::Probability).unwrap();
    (score("accuracy"), score("nll"), posterior)
}

/// Every metric of a posterior on 200 other texts.
fn scored(experiment: &Experiment, session: &Session, posterior: &Posterior) -> Scores {
    let (tests, indices) = (texts(200, 1), (0..200).collect::<Vec<u32>>());
    let prepared =
        prepare(experiment.predictive(), experiment.post_hoc(), session.subspace().unwrap(), posterior, 1).unwrap();
    let predictor = Predictor::new(&session.model, prepared.members(), Chunk::Auto);
    let logits = predictor.all_logits(&tests, &indices, 64, &indicatif::ProgressBar::hidden()).unwrap();
    let shape = Shape { members: predictor.members(), samples: 200, classes: 2 };
    Scores::compute(&Predictions::new(shape, logits, tests.split.labels.clone()).unwrap()).unwrap()
}

const ADAMW: &str = "[optimizer.adamw]\nlr = 1e-2\n[train]\nepochs = 12\nbatch_size = 16\nschedule = \"constant\"";

#[track_caller]
fn assert_learnt((accuracy, nll, _): &(f64, f64, Posterior)) {
    assert!(*accuracy > 0.9 && *nll < 0.5, "accuracy {accuracy}, NLL {nll}");
}

#[test]
fn svgd_trains_its_low_rank_updates() {
    let found = trained(&format!("[subspace.low-rank]\nrank = 4\n[method.svgd]\nparticles = 3\ngamma = 0.01\n{ADAMW}"));
    assert_learnt(&found);
    assert_eq!(found.2.particles(), 3);
}

#[test]
fn svgd_trains_all_its_weights_and_computes_activations_again() {
    let how = format!("[subspace.full]\n[method.svgd]\nparticles = 2\ngamma = 0.01\n{ADAMW}\nrecompute = true");
    assert_learnt(&trained(&how));
}

/// The second layer alone is trained, so what enters it is cached: the same bits as without the cache.
#[test]
fn what_enters_the_first_trained_layer_is_cached() {
    let how = |cache: &str| {
        format!(
            "[subspace.low-rank]\nrank = 4\nblocks = \"1\"\n[method.svgd]\nparticles = 2\ngamma = 0.01\n{ADAMW}\n\
             prefix_cache = \"{cache}\""
        )
    };
    let (kept, computed) = (trained(&how("memory")), trained(&how("off")));
    assert!(kept.2.theta().equal(computed.2.theta()));
    assert!(kept.0 > 0.8, "accuracy {}", kept.0);
}

#[test]
fn ivon_trains_gaussians_of_all_its_weights() {
    let how = "[subspace.full]\n[method.ivon]\nlr = 0.05\ness = 2400\nhess_init = 0.5\nbeta2 = 0.999\n[optimizer.none]\n\
               [train]\nepochs = 12\nbatch_size = 16\nschedule = \"constant\"";
    let found = trained(how);
    assert_learnt(&found);
    assert!(matches!(found.2, Posterior::Gaussians { .. }));
}

#[test]
fn laplace_fits_gaussians_around_its_updates() {
    let found = trained(&format!("[subspace.low-rank]\nrank = 4\n[method.laplace]\n{ADAMW}"));
    assert_learnt(&found);
    assert!(matches!(found.2, Posterior::Laplace { .. }));
}

#[test]
fn it_takes_no_images() {
    let error = model().images().err().unwrap().to_string();
    assert_eq!(error, "this network takes no images, which this command needs");
}
