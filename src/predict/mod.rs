//! Predictions of m members on an image set. Layer weights are made when they are needed and kept where all of them fit.

pub mod inputs;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use tch::{Device, Kind, Tensor, no_grad};

use crate::base::tensor::{ROOM_TO_PREDICT, first_line, host_f32, wide};
use crate::data::batches::{ImageSet, in_order};
use crate::machine::Chunk;
use crate::machine::memory;
use crate::machine::memory::{Cut, Cutter, Need, Task};
use crate::machine::parallel::{World, cut};
use crate::model::Model;
use crate::model::vit::footprint::Graph;
use crate::model::vit::weights::Weights;
use crate::subspace::Subspace;

/// Rows of theta are stored in this type.
const ROW_KIND: Kind = Kind::Float;

/// Rows of theta, each of which is a member: stored ones, or draws that are made when they are asked for.
pub trait Rows {
    /// m.
    fn count(&self) -> usize;

    /// Rows `members` as `[k, P]`, the same each time.
    ///
    /// # Errors
    /// A posterior that cannot be drawn from.
    fn rows(&self, members: Range<usize>) -> Result<Tensor>;

    /// Whether each row is made anew for every call, and thus takes memory of its own.
    fn are_made(&self) -> bool;
}

impl Rows for Tensor {
    fn count(&self) -> usize {
        self.size()[0] as usize
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        Ok(self.narrow(0, members.start as i64, members.len() as i64))
    }

    fn are_made(&self) -> bool {
        false
    }
}

/// Predictions that are not the logits of any weights, such as those of a linearised model.
pub trait Linear {
    /// m.
    fn count(&self) -> usize;

    /// The memory of a prediction: for the images at once, all members together.
    fn need(&self, model: &Model) -> Need;

    /// The most images that it sends through the network at once, however many it is given.
    fn images_at_once(&self, model: &Model) -> usize;

    /// Logits `[m, B, C]`, f64, of normalised images `[1, B, 3, S, S]`.
    ///
    /// # Errors
    /// Those of libtorch.
    fn logits(&self, model: &Model, images: &Tensor) -> Result<Tensor>;
}

/// The members that predict.
#[derive(Clone, Copy)]
pub enum Members<'a> {
    /// The checkpoint as it is: m = 1.
    Checkpoint,
    /// Rows of theta `[m, P]`.
    Rows { subspace: &'a dyn Subspace, rows: &'a dyn Rows },
    /// Logits of a linearised model.
    Linear(&'a dyn Linear),
}

impl Members<'_> {
    /// m.
    pub fn count(&self) -> usize {
        match self {
            Members::Checkpoint => 1,
            Members::Rows { rows, .. } => rows.count(),
            Members::Linear(linear) => linear.count(),
        }
    }

    /// What the layer weights of one member take besides stored rows: the row where that is made for it, and the weights where
    /// they are no views of it.
    fn bytes(&self, kind: Kind) -> u64 {
        let Members::Rows { subspace, rows } = self else { return 0 };
        let parameters = subspace.layout().parameters() as u64;
        let row = if rows.are_made() { ROW_KIND.elt_size_in_bytes() } else { 0 };
        let weights = if kind != ROW_KIND || subspace.forms_weights() { kind.elt_size_in_bytes() } else { 0 };
        parameters * (row + weights) as u64
    }

    /// What making rows takes besides them: the noise of one of them.
    fn making(&self) -> u64 {
        match self {
            Members::Rows { subspace, rows } if rows.are_made() => {
                subspace.layout().parameters() as u64 * ROW_KIND.elt_size_in_bytes() as u64
            }
            _ => 0,
        }
    }
}

/// Layer weights of some members.
type Made<'a> = (Range<usize>, Rc<Weights<'a>>);

/// Members of a model, ready for any number of batches.
pub struct Predictor<'a> {
    pub model: &'a Model,
    members: Members<'a>,
    /// How many members the user wants in one forward.
    chunk: Chunk,
    /// Weights that were made: all of them where they fit, otherwise the last ones.
    made: RefCell<Vec<Made<'a>>>,
    keeps_all: Cell<bool>,
}

impl<'a> Predictor<'a> {
    pub fn new(model: &'a Model, members: Members<'a>, chunk: Chunk) -> Predictor<'a> {
        Predictor { model, members, chunk, made: RefCell::default(), keeps_all: Cell::new(false) }
    }

    /// m.
    pub fn members(&self) -> usize {
        self.members.count()
    }

    /// Whether the members have layer weights, through which gradients flow.
    pub fn has_weights(&self) -> bool {
        !matches!(self.members, Members::Linear(_))
    }

    /// Plans predictions in batches of `images`, of which `samples` images' logits are kept.
    ///
    /// # Errors
    /// One member and one image do not fit.
    pub fn plan(&self, images: usize, samples: usize) -> Result<Cutter> {
        // On the way out, the logits are held twice: as they come, and as one list of all members.
        let numbers = self.members() * samples * self.model.head.classes() as usize;
        let logits = 2 * (numbers * Kind::Float.elt_size_in_bytes()) as u64;
        let Members::Linear(linear) = self.members else {
            self.decide_keeping(Graph::None, images, logits);
            return self.plan_pass("prediction", Graph::None, images, logits);
        };
        let need = linear.need(self.model);
        Task {
            what: "prediction",
            coming: 0,
            need: Need { fixed: need.fixed + logits, ..need },
            whole: Cut { members: 1, images: images.min(linear.images_at_once(self.model)) },
            members: None,
            device: self.model.device,
            advice: ROOM_TO_PREDICT,
        }
        .plan()
    }

    /// Keeps the layer weights of all members from here on, if they fit beside a pass over a batch of `images` and `fixed`
    /// bytes.
    pub fn decide_keeping(&self, graph: Graph, images: usize, fixed: u64) {
        self.made.borrow_mut().clear();
        let all = self.need(graph, fixed, true).bytes(Cut { members: 1, images });
        self.keeps_all.set(memory::room(self.model.device).is_none_or(|room| all <= room));
    }

    /// Plans passes with a graph or without one over batches of `images`, with `fixed` bytes besides.
    ///
    /// # Errors
    /// One member and one image do not fit.
    pub fn plan_pass(&self, what: &str, graph: Graph, images: usize, fixed: u64) -> Result<Cutter> {
        let need = self.need(graph, fixed, self.keeps_all.get());
        let whole = Cut { members: self.members(), images };
        let members = match self.chunk {
            Chunk::Auto => None,
            Chunk::Fixed(count) => Some(count),
        };
        Task { what, coming: 0, need, whole, members, device: self.model.device, advice: ROOM_TO_PREDICT }.plan()
    }

    fn need(&self, graph: Graph, fixed: u64, keeps_all: bool) -> Need {
        let (member, pass) = (self.members.bytes(self.model.kind), self.model.need(graph));
        let fixed = fixed + self.members.making();
        match keeps_all {
            true => Need { fixed: fixed + member * self.members() as u64, member: 0, ..pass },
            false => Need { fixed, member, ..pass },
        }
    }

    /// The layer weights of some members.
    ///
    /// # Errors
    /// Linearised members, which have none; a posterior that cannot be drawn from.
    pub fn weights(&self, members: Range<usize>) -> Result<Rc<Weights<'a>>> {
        if let Some((_, weights)) = self.made.borrow().iter().find(|(made, _)| *made == members) {
            return Ok(weights.clone());
        }
        if !self.keeps_all.get() {
            self.made.borrow_mut().clear();
        }
        let base = &self.model.base;
        let weights = Rc::new(match self.members {
            Members::Checkpoint => Weights::frozen(base),
            Members::Rows { subspace, rows } => {
                let rows = rows.rows(members.clone())?;
                subspace.weights(base, &subspace.layout().leaves(&rows, self.model.kind, false))
            }
            Members::Linear(_) => return Err(anyhow!("linearised members have no layer weights")),
        });
        let mut made = self.made.borrow_mut();
        // A smaller cut than before: the weights made for the larger one are of no more use.
        made.retain(|(before, _)| before.end <= members.start || members.end <= before.start);
        made.push((members, weights.clone()));
        Ok(weights)
    }

    /// Logits `[k, B, C]` of some members for pixels `[B, 3, h, w]` in [0, 1], differentiable.
    ///
    /// # Errors
    /// Those of [`weights`](Self::weights).
    pub fn forward(&self, members: Range<usize>, pixels: &Tensor) -> Result<Tensor> {
        let preprocess = &self.model.preprocess;
        let images = preprocess.normalise(&preprocess.resize(pixels));
        Ok(self.model.logits(&*self.weights(members)?, &images.unsqueeze(0)))
    }

    /// Logits `[m, B, C]` of all members for pixels `[B, 3, h, w]` in [0, 1], without a graph.
    ///
    /// # Errors
    /// Those of libtorch; no memory for one member and one image.
    pub fn logits(&self, cutter: &Cutter, pixels: &Tensor) -> Result<Tensor> {
        self.logits_of_some(cutter, 0..self.members(), pixels)
    }

    /// Logits `[k, B, C]` of `members`, cut by members and images.
    fn logits_of_some(&self, cutter: &Cutter, members: Range<usize>, pixels: &Tensor) -> Result<Tensor> {
        cutter.run(|cut| {
            let images = in_parts(0..pixels.size()[0] as usize, cut.images);
            let parts = images.map(|images| {
                let pixels = pixels.narrow(0, images.start as i64, images.len() as i64);
                let parts = match self.members {
                    Members::Linear(linear) => vec![self.linear(linear, &pixels)?],
                    _ => in_parts(members.clone(), cut.members)
                        .map(|some| no_grad(|| self.forward(some, &pixels)))
                        .collect::<Result<Vec<_>>>()?,
                };
                Ok(joined(parts, 0))
            });
            Ok(joined(parts.collect::<Result<Vec<_>>>()?, 1))
        })
    }

    fn linear(&self, linear: &dyn Linear, pixels: &Tensor) -> Result<Tensor> {
        let preprocess = &self.model.preprocess;
        let images = preprocess.normalise(&preprocess.resize(pixels)).detach();
        tch::with_grad(|| linear.logits(self.model, &images.unsqueeze(0)))
    }

    /// Logits `[m, N, C]`, row-major, of images `indices` in order.
    ///
    /// # Errors
    /// Images that cannot be read; those of [`logits`](Self::logits).
    pub fn all_logits(
        &self,
        set: &ImageSet,
        indices: &[u32],
        batch_size: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<f32>> {
        let batches = in_order(indices, batch_size);
        host_f32(&self.logits_of_set(set, batches, (indices.len(), batch_size), bar)?)
    }

    /// The same, where each process of `world` predicts its share of the batches and gets all logits.
    ///
    /// # Errors
    /// Those of [`all_logits`](Self::all_logits), and of the other processes.
    pub fn shared_logits(
        &self,
        world: &World,
        set: &ImageSet,
        indices: &[u32],
        batch_size: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<f32>> {
        if world.size() == 1 {
            return self.all_logits(set, indices, batch_size, bar);
        }
        let batches = in_order(indices, batch_size);
        let own = batches[cut(batches.len(), world.size(), world.rank())].to_vec();
        let logits = self.logits_of_set(set, own, (indices.len(), batch_size), bar)?;
        // By image, so that the shares of all processes follow each other.
        host_f32(&world.gather(&logits.transpose(0, 1))?.transpose(0, 1))
    }

    /// Logits `[m, N, C]` of all images in `batches`, f32 on the CPU. Members whose weights do not fit at once go through
    /// all batches one after the other, so that each is made once.
    fn logits_of_set(
        &self,
        set: &ImageSet,
        batches: Vec<Vec<u32>>,
        (samples, batch_size): (usize, usize),
        bar: &ProgressBar,
    ) -> Result<Tensor> {
        let cutter = self.plan(batch_size.min(samples), samples)?;
        let own = batches.iter().map(Vec::len).sum::<usize>() as i64;
        let shape = [self.members() as i64, own, self.model.head.classes()];
        let logits = Tensor::f_empty(shape, (Kind::Float, Device::Cpu)).map_err(|e| anyhow!("{}", first_line(&e)))?;
        let together = self.keeps_all.get() || !self.has_weights();
        let at_once = if together { self.members() } else { cutter.cut().members };
        let passes: Vec<Range<usize>> = in_parts(0..self.members(), at_once).collect();
        bar.set_length((own as u64) * passes.len() as u64);
        for members in passes {
            let rows = logits.narrow(0, members.start as i64, members.len() as i64);
            let mut start = 0;
            for batch in set.batches(batches.clone()) {
                let batch = batch?;
                let count = batch.labels.size()[0];
                let pixels = self.model.preprocess.unit(&batch.bytes);
                let found = self.logits_of_some(&cutter, members.clone(), &pixels)?;
                rows.narrow(1, start, count).copy_(&found);
                start += count;
                bar.inc(count as u64);
            }
        }
        self.made.borrow_mut().clear();
        Ok(logits)
    }

    /// The type of [`logits`](Self::logits).
    pub fn kind(&self) -> Kind {
        wide(self.model.kind)
    }
}

/// `range` in parts of at most `size`.
pub fn in_parts(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size.max(1)).map(move |start| start..end.min(start + size.max(1)))
}

/// Tensors joined along an axis; a single one is not copied.
fn joined(mut parts: Vec<Tensor>, axis: i64) -> Tensor {
    if parts.len() == 1 { parts.swap_remove(0) } else { Tensor::cat(&parts, axis) }
}
