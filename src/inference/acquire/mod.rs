//! Acquisition chooses the images of a pool that are worth labelling next, by a rule and the predictions of a run. Images that the run
//! was trained on are left out.

mod entries;

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};
use tch::{Kind, Tensor};

use super::images::{Wanted, preparation};
use crate::base::small::{Usage, counted};
use crate::base::tensor::{ROOM_TO_PREDICT, guarded, host_f32};
use crate::data::batches::{SampleSet, in_order};
use crate::data::fields::{Fields, PIXELS};
use crate::data::{Decode, Resize, SplitName};
use crate::machine::memory::Chunker;
use crate::metrics::{Average, Uncertainty, softmax_in_place};
use crate::model::Input;
use crate::predict::Predictor;
use crate::predict::inputs::{Input as File, decode};
use crate::predictions::Predictions;
use crate::schema::keyed;
use crate::session::Opened;

pub use entries::RULES;

/// A registered rule.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    /// Whether a single member says nothing.
    pub needs_members: bool,
    /// Whether it asks for features of the pool and of the training images.
    pub needs_features: bool,
    /// Whether it draws random numbers.
    pub is_seeded: bool,
    /// Returns the largest number of images that it chooses at once, given the number of classes, and why; `None` if any number.
    pub most: fn(usize) -> Option<(usize, &'static str)>,
    /// Returns the chosen images, the first one first.
    pub choose: fn(&Pool, Asked) -> Result<Vec<Chosen>>,
}

keyed!(Entry, "rule");

impl Entry {
    /// Refuses to choose more images at once than the rule can among so many classes.
    ///
    /// # Errors
    /// Fails if there are more.
    pub fn check_count(&self, count: usize, classes: usize) -> Result<()> {
        let Some((most, why)) = (self.most)(classes).filter(|(most, _)| count > *most) else { return Ok(()) };
        let why = format!(
            "--by {} --count {count}: {why}, which with {classes} classes is done up to {most} images: choose fewer, or use --by mi",
            self.key
        );
        Err(Usage(why).into())
    }
}

/// The number of images to choose, and the seed of a random choice.
#[derive(Clone, Copy)]
pub struct Asked {
    pub count: usize,
    pub seed: u64,
}

/// An image of the pool, and why it was chosen: the value of the rule, which is higher for more wanted images.
pub struct Chosen {
    pub sample: usize,
    pub score: f64,
}

/// The images that may be chosen, as the run sees them.
pub struct Pool {
    pub predictions: Predictions,
    /// The features of images, where the rule asks for them.
    pub features: Option<Features>,
}

/// Features, means over members by their weights, in f32 on the CPU.
pub struct Features {
    /// Those of the pool, `[N, d]`.
    pub pool: Tensor,
    /// Those of the training images, `[M, d]`.
    pub training: Tensor,
}

impl Pool {
    /// Returns the probabilities of an image by each member, `[m, C]`.
    fn probabilities(&self, sample: usize) -> Vec<Vec<f64>> {
        let of = |member: usize| {
            let mut row: Vec<f64> = self.predictions.logits(member, sample).iter().map(|z| f64::from(*z)).collect();
            softmax_in_place(&mut row);
            row
        };
        (0..self.predictions.members()).map(of).collect()
    }

    /// Returns the weights of the members, with the sum 1.
    fn weights(&self) -> Vec<f64> {
        let all = self.predictions.total_weight();
        (0..self.predictions.members()).map(|member| self.predictions.weight(member) / all).collect()
    }
}

/// Returns the samples with the highest scores; of equal ones the first.
fn highest(scores: &[f64], count: usize) -> Vec<Chosen> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.into_iter().take(count).map(|sample| Chosen { sample, score: scores[sample] }).collect()
}

/// An image to label.
pub struct Next {
    pub path: PathBuf,
    pub score: f64,
    /// The class that the run predicts.
    pub predicted: String,
}

/// Chooses images of `files` by a rule. Images of the training split, held-out ones among them, are left out, and so are copies of an image
/// before them and files that cannot be read; a warning says how many.
///
/// # Errors
/// Fails if there are fewer images than asked for, if the rule needs several members, or if memory does not suffice.
pub fn acquire(rule: &Entry, opened: &Opened, files: &[File], asked: Asked, batch: Option<u32>) -> Result<Vec<Next>> {
    let prepared = opened.prepare(opened.experiment.predictive())?;
    let predictor = Predictor::new(&opened.session.model, prepared.members(), opened.chunk());
    if rule.needs_members && predictor.members() < 2 {
        let why = format!("--by {}: the run has one member, which agrees with itself: use entropy or margin", rule.key);
        return Err(Usage(why).into());
    }
    rule.check_count(asked.count, opened.session.classes.len())?;
    let too_few = |available: usize| {
        let images = counted(available, "image", "images");
        format!("--count {}: the pool has {images} that can be chosen: ask for fewer", asked.count)
    };
    // What the number of files tells already is said before they are read.
    ensure!(files.len() >= asked.count, too_few(files.len()));
    let batch_size = opened.batch_size(batch);
    let features = rule.needs_features;
    let chunker = predictor.plan(batch_size, files.len())?;
    let reader = Reader { opened, predictor: &predictor, chunker: &chunker, batch_size, features };
    let training = reader.training()?;
    let (seen, paths) = reader.pool(files, &training)?;
    ensure!(paths.len() >= asked.count, too_few(paths.len()));
    let predictions = predictor.predictions(seen.logits(predictor.members()), None)?;
    let guesses = Uncertainty::compute(&predictions)?.guesses;
    let rows = |parts: &[Tensor]| Tensor::cat(parts, 0);
    let features = features.then(|| Features { pool: rows(&seen.features), training: rows(&training.features) });
    let chosen = (rule.choose)(&Pool { predictions, features }, asked)?;
    let predicted = &guesses.of(Average::Probability).predicted;
    let next = |one: Chosen| Next {
        path: paths[one.sample].clone(),
        score: one.score,
        predicted: opened.session.classes[predicted[one.sample] as usize].clone(),
    };
    Ok(chosen.into_iter().map(next).collect())
}

/// The training images: their hashes as they are stored, the size in which they are, and their features.
struct Training {
    hashes: HashSet<[u8; 32]>,
    size: (usize, usize),
    /// The features of each batch, `[B, d]`.
    features: Vec<Tensor>,
}

/// The images of the pool as the run sees them.
#[derive(Default)]
struct Seen {
    /// The logits of each batch, `[m, B, C]`.
    logits: Vec<Vec<f32>>,
    /// The features of each batch, `[B, d]`.
    features: Vec<Tensor>,
}

impl Seen {
    /// Returns the logits of all batches, `[m, N, C]`.
    fn logits(&self, members: usize) -> Vec<f32> {
        let of = |member: usize| {
            self.logits.iter().flat_map(move |batch| {
                let size = batch.len() / members;
                batch[member * size..(member + 1) * size].iter().copied()
            })
        };
        (0..members).flat_map(of).collect()
    }
}

/// The images of the pool that cannot be chosen.
#[derive(Default)]
struct LeftOut {
    /// The number of training or held-out images.
    known: usize,
    /// The number of copies of an image before them.
    copies: usize,
    /// The reasons why files could not be read.
    failed: Vec<String>,
    /// The hashes of the images that can be chosen.
    chosen: HashSet<[u8; 32]>,
}

impl LeftOut {
    /// Returns whether the image of a hash can be chosen, and counts it if not.
    fn takes(&mut self, training: &HashSet<[u8; 32]>, image: [u8; 32]) -> bool {
        if training.contains(&image) {
            self.known += 1;
            return false;
        }
        let is_new = self.chosen.insert(image);
        self.copies += usize::from(!is_new);
        is_new
    }

    /// Says how many images are left out, and why.
    fn warn(&self) {
        let LeftOut { known, copies, failed, .. } = self;
        let of_pool = |count: usize| counted(count, "image of the pool is", "images of the pool are");
        if *known > 0 {
            tracing::warn!("{} among the run's training or held-out images: left out", of_pool(*known));
        }
        if *copies > 0 {
            tracing::warn!("{} there already: left out", of_pool(*copies));
        }
        if let Some(first) = failed.first() {
            tracing::warn!("{} could not be read, such as {first}: left out", counted(failed.len(), "image", "images"));
        }
    }
}

struct Reader<'a> {
    opened: &'a Opened,
    predictor: &'a Predictor<'a>,
    chunker: &'a Chunker,
    batch_size: usize,
    features: bool,
}

impl Reader<'_> {
    fn training(&self) -> Result<Training> {
        let session = &self.opened.session;
        let split = self.opened.split(SplitName::Train)?;
        let set = SampleSet::new(split, session.device, session.settings.workers)?;
        let all: Vec<u32> = (0..set.samples() as u32).collect();
        let mut training = Training { hashes: HashSet::new(), size: (0, 0), features: Vec::new() };
        for batch in set.batches(in_order(&all, self.batch_size)) {
            let samples = batch?.samples;
            let pixels = samples.get(PIXELS);
            let size = pixels.size();
            training.size = (size[2] as usize, size[3] as usize);
            let bytes = Vec::<u8>::try_from(pixels.to_device(tch::Device::Cpu).contiguous().flatten(0, -1))?;
            training.hashes.extend(bytes.chunks((size[1] * size[2] * size[3]) as usize).map(hash));
            if self.features {
                training.features.push(self.features_of(pixels)?);
            }
        }
        Ok(training)
    }

    /// Returns the files that can be read and are not among the training images, as the run sees them.
    fn pool(&self, files: &[File], training: &Training) -> Result<(Seen, Vec<PathBuf>)> {
        let session = &self.opened.session;
        let side = session.model.images()?.size() as usize;
        let how = preparation(&Wanted::default(), self.opened, side)?;
        let (height, width) = training.size;
        // Images that are stored as pixels have a size of their own, which a file of one of them has, too.
        let stored = Decode { height, width, resize: Resize::Stretch, ..how };
        let threads = rayon::ThreadPoolBuilder::new().num_threads(session.settings.workers).build()?;
        let bar = crate::base::logging::bar(files.len() as u64, "reading the pool");
        let (mut seen, mut paths, mut left_out) = (Seen::default(), Vec::new(), LeftOut::default());
        for batch in files.chunks(self.batch_size) {
            let decoded = threads.install(|| decode(batch, how));
            let as_stored =
                if training.size == (side, side) { decoded.clone() } else { threads.install(|| decode(batch, stored)) };
            let mut pixels = Vec::new();
            for ((file, image), stored) in batch.iter().zip(decoded).zip(as_stored) {
                match (image, stored) {
                    (Ok(image), Ok(stored)) if left_out.takes(&training.hashes, hash(&stored)) => {
                        pixels.extend(image);
                        paths.push(file.path.clone());
                    }
                    (Ok(_), Ok(_)) => {}
                    (Err(why), _) | (_, Err(why)) => left_out.failed.push(why),
                }
            }
            if !pixels.is_empty() {
                self.see(&pixels, side as i64, &mut seen)?;
            }
            bar.inc(batch.len() as u64);
        }
        bar.finish_and_clear();
        left_out.warn();
        ensure!(
            !paths.is_empty(),
            "the pool has no image to choose: all are training or held-out images of the run, or cannot be read: name other images"
        );
        Ok((seen, paths))
    }

    /// Adds images of `side` pixels a side to those that the run has seen.
    fn see(&self, pixels: &[u8], side: i64, seen: &mut Seen) -> Result<()> {
        let pixels = Tensor::from_slice(pixels).view([-1, 3, side, side]).to_device(self.opened.session.device);
        seen.logits.push(self.logits_of(&pixels)?);
        if self.features {
            seen.features.push(self.features_of(&pixels)?);
        }
        Ok(())
    }

    fn logits_of(&self, pixels: &Tensor) -> Result<Vec<f32>> {
        guarded("prediction", ROOM_TO_PREDICT, || host_f32(&self.predictor.logits(self.chunker, &stored(pixels))?))
    }

    /// Returns the features of images, means over the members by their weights, `[B, d]`.
    fn features_of(&self, pixels: &Tensor) -> Result<Tensor> {
        ensure!(
            self.predictor.has_weights(),
            Usage("--by core-set: linearised members have no features of their own: use mi".into())
        );
        let mean = self.predictor.mean_features(self.chunker, &stored(pixels))?;
        Ok(mean.to_device(tch::Device::Cpu).to_kind(Kind::Float))
    }
}

fn stored(pixels: &Tensor) -> Input {
    Input::Stored(Fields::of(PIXELS, pixels.unsqueeze(0)))
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
