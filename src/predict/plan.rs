//! The memory that predictions take: how many members and images go through the network at once, and whether the layer weights of all
//! members are kept.

use anyhow::Result;
use tch::Kind;

use super::{Members, Predictor};
use crate::base::tensor::ROOM_TO_PREDICT;
use crate::machine::Chunk;
use crate::machine::memory;
use crate::machine::memory::{AtMost, ChunkSize, Chunker, MemoryEstimate, Task};
use crate::model::network::Graph;
use crate::model::pieces::Whole;

impl Predictor<'_> {
    /// Plans predictions in batches of `images` images, keeping the logits of `samples` images.
    ///
    /// # Errors
    /// Fails if one member and one image do not fit in memory, or if the network writes answers.
    pub fn plan(&self, images: usize, samples: usize) -> Result<Chunker> {
        self.model.check_outputs()?;
        // The logits are held twice: as they are computed, and as one list of all members.
        let numbers = self.members() * samples * self.classes();
        let logits = 2 * (numbers * Kind::Float.elt_size_in_bytes()) as u64;
        let Members::Linear(linear) = self.members else {
            self.decide_keeping(Graph::None, images, logits);
            return self.plan_predictions(images, logits);
        };
        let need = linear.need(self.model);
        let need = MemoryEstimate { fixed: need.fixed + logits, ..need };
        let images = images.min(linear.images_at_once(self.model));
        let whole = ChunkSize { members: linear.members_at_once(), images };
        self.task("prediction", need, whole).plan()
    }

    /// Plans predictions of batches of `images` images, which are divided among threads, beside `fixed` bytes of other data.
    ///
    /// # Errors
    /// Fails if one member and one image do not fit in memory.
    pub fn plan_predictions(&self, images: usize, fixed: u64) -> Result<Chunker> {
        let divided = Whole { members: self.members(), samples: images, gradients: 0 };
        let copies = match self.members {
            Members::Rows { subspace, .. } => self.model.copies_bytes(subspace.layout(), divided),
            Members::Checkpoint | Members::Linear(_) => 0,
        };
        let need = self.need(Graph::None, fixed + copies, self.made.keeps_all());
        let entering = self.model.entering() * self.model.kind.elt_size_in_bytes() as u64;
        let need = MemoryEstimate { image: need.image + entering, ..need };
        let at_most = self.model.at_most(divided);
        let at_most = at_most.map(|most| AtMost { members: self.members(), ..most });
        let whole = ChunkSize { members: self.members(), images };
        Task { at_most, ..self.task("prediction", need, whole) }.plan()
    }

    /// Decides whether the layer weights of all members are kept from now on. They are if they fit beside a pass over a
    /// batch of `images` images and `fixed` bytes.
    pub fn decide_keeping(&self, graph: Graph, images: usize, fixed: u64) {
        self.made.clear();
        let all = self.need(graph, fixed, true).bytes(ChunkSize { members: 1, images }, None);
        self.made.keep_all(memory::room(self.model.device).is_none_or(|room| all <= room));
    }

    /// Plans passes over batches of `images` images, with or without a graph, beside `fixed` bytes of other data.
    ///
    /// # Errors
    /// Fails if one member and one image do not fit in memory.
    pub fn plan_pass(&self, what: &str, graph: Graph, images: usize, fixed: u64) -> Result<Chunker> {
        let need = self.need(graph, fixed, self.made.keeps_all());
        let whole = ChunkSize { members: self.members(), images };
        self.task(what, need, whole).plan()
    }

    /// Returns the number of members at once that the user asks for.
    fn asked(&self) -> Option<usize> {
        match self.chunk {
            Chunk::Auto => None,
            Chunk::Fixed(count) => Some(count),
        }
    }

    /// Returns the task of passes over the members and images of `whole`.
    pub(super) fn task<'t>(&self, what: &'t str, need: MemoryEstimate, whole: ChunkSize) -> Task<'t> {
        let (members, device) = (self.asked(), self.model.device);
        Task { what, coming: 0, need, whole, at_most: None, members, device, advice: ROOM_TO_PREDICT }
    }

    pub(super) fn need(&self, graph: Graph, fixed: u64, keeps_all: bool) -> MemoryEstimate {
        let (member, pass) = (self.members.bytes(self.model.kind), self.model.need(graph));
        let fixed = fixed + pass.fixed + self.members.making();
        match keeps_all {
            true => MemoryEstimate { fixed: fixed + member * self.members() as u64, member: 0, ..pass },
            false => MemoryEstimate { fixed, member, ..pass },
        }
    }
}
