//! Labelled samples on the device. A small set of images stays there as bytes; a large one is decoded ahead of the
//! training step. Samples of other kinds, such as token ids, are served unchanged.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::{first_line, upload};
use crate::data::asked::{Asked, Text};
use crate::data::augment::{Seen, Views};
use crate::data::fields::{Fields, PIXELS, VALUES, of_texts};
use crate::data::stream::{Pick, Source, View, stream};
use crate::data::{Fingerprint, Inputs, Packed, Split, Texts};

/// Labelled samples, ready to be served in batches.
pub struct SampleSet {
    store: Store,
    labels: Tensor,
    pub split: SplitFacts,
    device: Device,
    workers: usize,
}

/// Some samples of a set.
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    pub set: &'a SampleSet,
    pub indices: &'a [u32],
}

/// The images of a test set.
pub struct TestImages {
    pub set: SampleSet,
    /// The fingerprint that identifies the images in results.
    pub fingerprint: Fingerprint,
}

/// The properties of a split besides its pixels.
pub struct SplitFacts {
    pub labels: Vec<u32>,
    pub groups: Option<crate::data::Groups>,
    /// The answers that people gave, one entry per question; empty if the samples are no questions.
    pub answers: Vec<crate::data::Answers>,
}

/// The place of an image in a plan of batches.
struct Place {
    batch: usize,
    /// The place in the batch, which has `size` images.
    position: usize,
    size: usize,
}

/// The number of batches that are decoded ahead.
const AHEAD: usize = 4;

enum Store {
    /// The samples on the device, `[N, …]`; images are u8 `[N, 3, h, w]`.
    Resident(Fields),
    /// Token ids with their mask, and their kinds if there are any, on the device, `[N, 2 or 3, T]`, so that one operation gathers
    /// them; and the number of tokens of each text. A batch is as long as
    /// its longest text.
    Tokens { samples: Tensor, lengths: Vec<u32> },
    /// Questions about images.
    Questions(Asked),
    /// Image files, or images in memory that are augmented.
    Streamed(Arc<Source>),
}

/// Samples as the set stores them, by name, `[K, …]` (images are bytes `[K, 3, h, w]`), with labels `[K]`, on the device. Labels are
/// classes in int64, or numbers in f64. Questions
/// have as labels the places and tokens of their answers, `[K, A, 2]`, where place 0 is followed by −1 behind a short one.
pub struct Batch {
    pub samples: Fields,
    pub labels: Tensor,
}

impl TestImages {
    /// Takes a split as it was loaded.
    ///
    /// # Errors
    /// Fails if an image file cannot be read or the device is out of memory.
    pub fn new(split: Split, device: Device, workers: usize) -> Result<TestImages> {
        let fingerprint = Fingerprint::of(&split)?;
        Ok(TestImages { set: SampleSet::new(split, device, workers)?, fingerprint })
    }
}

impl SampleSet {
    /// Takes the images of a split. Image files are decoded ahead on `workers` threads.
    ///
    /// # Errors
    /// Fails if the device is out of memory.
    pub fn new(split: Split, device: Device, workers: usize) -> Result<SampleSet> {
        SampleSet::training(split, device, workers, None)
    }

    /// Takes samples `[N, …]` of any kind with labels `[N]`. They are served unchanged.
    pub fn resident(samples: &Fields, labels: Vec<u32>, device: Device) -> SampleSet {
        let numbers: Vec<i64> = labels.iter().map(|label| i64::from(*label)).collect();
        SampleSet {
            store: Store::Resident(samples.map(|values| values.to_device(device))),
            labels: Tensor::from_slice(&numbers).to_device(device),
            split: SplitFacts { labels, groups: None, answers: Vec::new() },
            device,
            workers: 1,
        }
    }

    /// Takes images to train on. `views` creates the random views of [`SampleSet::training_batches`].
    pub fn training(split: Split, device: Device, workers: usize, views: Option<Views>) -> Result<SampleSet> {
        let targets = match &split.numbers {
            Some(numbers) => Tensor::from_slice(numbers),
            None => Tensor::from_slice(&split.labels.iter().map(|label| i64::from(*label)).collect::<Vec<_>>()),
        };
        let store = match split.inputs {
            Inputs::Packed(Packed { pixels, height, width }) if views.is_none() => {
                let size = [split.labels.len() as i64, 3, height as i64, width as i64];
                let tensor =
                    Tensor::f_from_data_size(&pixels, &size, Kind::Uint8).map_err(|e| anyhow!("{}", first_line(&e)))?;
                Store::Resident(Fields::of(PIXELS, tensor.to_device(device)))
            }
            Inputs::Texts(Texts { tokens: Some(tokens), .. }) => {
                Store::Tokens { samples: tokens.tensor().to_device(device), lengths: tokens.lengths }
            }
            Inputs::Rows(rows) => Store::Resident(Fields::of(VALUES, rows.tensor().to_device(device))),
            Inputs::Texts(_) => bail!("{}: its texts need the tokenizer of a language network", split.name),
            Inputs::Questions(questions) => {
                let answers = questions.answers.clone();
                let (asked, targets) = Asked::new(questions, &split.name, &split.labels, device)?;
                let facts = SplitFacts { labels: split.labels, groups: split.groups, answers };
                return Ok(SampleSet {
                    store: Store::Questions(asked),
                    labels: targets,
                    split: facts,
                    device,
                    workers,
                });
            }
            images => Store::Streamed(Arc::new(Source { images, views })),
        };
        let labels = targets.to_device(device);
        let facts = SplitFacts { labels: split.labels, groups: split.groups, answers: Vec::new() };
        Ok(SampleSet { store, labels, split: facts, device, workers })
    }

    /// Returns whether [`SampleSet::training_batches`] differ between epochs in more than their order.
    pub fn is_augmented(&self) -> bool {
        matches!(&self.store, Store::Streamed(source) if source.views.is_some())
    }

    pub fn samples(&self) -> usize {
        self.split.labels.len()
    }

    /// Serves the images of `plan` in order, as evaluation sees them. Each entry is one batch.
    pub fn batches(&self, plan: Vec<Vec<u32>>) -> Box<dyn Iterator<Item = Result<Batch>> + '_> {
        self.serve(plan, |_| View::Plain)
    }

    /// Serves images like [`SampleSet::batches`], in their random views if the set has any. Each batch holds the images of `particles`, one
    /// particle after the other. `draws` has for each batch how often the image of each place came before in the order of the epoch; it has an
    /// empty list where no image comes twice.
    pub fn training_batches(
        &self,
        plan: Vec<Vec<u32>>,
        draws: Vec<Vec<u32>>,
        epoch: u64,
        particles: Range<usize>,
    ) -> Box<dyn Iterator<Item = Result<Batch>> + '_> {
        let seen = move |Place { batch, position, size }: Place| {
            let particle = (particles.start + position * particles.len() / size) as u64;
            let draw = draws[batch].get(position).map_or(0, |draw| (*draw).into());
            View::Random(Seen { epoch, particle, draw })
        };
        self.serve(plan, seen)
    }

    /// Serves batches, in which `view` tells how the image of a place is seen.
    fn serve<'a>(
        &'a self,
        plan: Vec<Vec<u32>>,
        view: impl Fn(Place) -> View + Send + 'static,
    ) -> Box<dyn Iterator<Item = Result<Batch>> + 'a> {
        match &self.store {
            Store::Resident(samples) => Box::new(plan.into_iter().map(move |indices| {
                let (index, labels) = self.select(&indices);
                Ok(Batch { samples: samples.map(|values| values.index_select(0, &index)), labels })
            })),
            Store::Tokens { samples, lengths } => Box::new(plan.into_iter().map(move |indices| {
                let (index, labels) = self.select(&indices);
                let longest = indices.iter().map(|i| lengths[*i as usize]).max().unwrap_or(0);
                let samples = of_texts(&samples.narrow(2, 0, i64::from(longest)).index_select(0, &index));
                Ok(Batch { samples, labels })
            })),
            Store::Questions(asked) => self.questions(asked, plan, Text::Answered),
            Store::Streamed(source) => {
                let (height, width) = source.images.size();
                let picks = move |(batch, images): (usize, Vec<u32>)| {
                    let size = images.len();
                    let pick = |(position, image)| Pick { image, view: view(Place { batch, position, size }) };
                    images.into_iter().enumerate().map(pick).collect()
                };
                let picked = plan.clone().into_iter().enumerate().map(picks);
                let decoded = stream(source.clone(), picked, self.workers, AHEAD);
                Box::new(plan.into_iter().zip(decoded).map(move |(indices, pixels)| {
                    let (_, labels) = self.select(&indices);
                    let size = [indices.len() as i64, 3, height as i64, width as i64];
                    let bytes = Tensor::f_from_data_size(&pixels?, &size, Kind::Uint8)
                        .map_err(|e| anyhow!("{}", first_line(&e)))?;
                    Ok(Batch { samples: Fields::of(PIXELS, upload(&bytes, self.device)), labels })
                }))
            }
        }
    }

    /// Serves prompts of questions without their answers, in order.
    ///
    /// # Errors
    /// Fails if the set has no questions.
    pub fn prompts(&self, plan: Vec<Vec<u32>>) -> Result<impl Iterator<Item = Result<Batch>> + '_> {
        match &self.store {
            Store::Questions(asked) => Ok(self.questions(asked, plan, Text::Prompts)),
            _ => bail!("this set has no questions"),
        }
    }

    fn questions<'a>(
        &'a self,
        asked: &'a Asked,
        plan: Vec<Vec<u32>>,
        text: Text,
    ) -> Box<dyn Iterator<Item = Result<Batch>> + 'a> {
        let picks: Vec<_> = plan.iter().map(|indices| asked.picks(indices)).collect();
        let decoded = stream(asked.images.clone(), picks, self.workers, AHEAD);
        Box::new(plan.into_iter().zip(decoded).map(move |(indices, pixels)| {
            let samples = asked.samples(&indices, &pixels?, text)?;
            Ok(Batch { samples, labels: self.labels(&indices) })
        }))
    }

    /// Returns the labels or numbers at `indices` on the device, `[K]`; of questions, `[K, A, 2]`.
    pub fn labels(&self, indices: &[u32]) -> Tensor {
        self.select(indices).1
    }

    fn select(&self, indices: &[u32]) -> (Tensor, Tensor) {
        let index: Vec<i64> = indices.iter().map(|i| i64::from(*i)).collect();
        let index = upload(&Tensor::from_slice(&index), self.device);
        let labels = match &self.store {
            Store::Questions(asked) => asked.cut(indices, &self.labels).index_select(0, &index),
            _ => self.labels.index_select(0, &index),
        };
        (index, labels)
    }
}

/// Splits `indices` into batches of `size`, in order.
pub fn in_order(indices: &[u32], size: usize) -> Vec<Vec<u32>> {
    indices.chunks(size.max(1)).map(<[u32]>::to_vec).collect()
}
