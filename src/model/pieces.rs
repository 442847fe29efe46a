//! The pieces into which passes through a network are divided on the CPU, so that threads take whole ones
//! ([`crate::machine::workers`]): some particles and samples each. They depend on shapes alone.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use tch::{Device, no_grad};

use super::{Input, Model};
use crate::data::Fields;
use crate::machine::memory::AtMost;
use crate::machine::workers::{self, Load, Turn};
use crate::model::network::{Extent, HEAD, Shared, Trained, Weights, block_of};

/// The fewest rows of a matrix product (particles times samples times tokens) for which a piece of its own pays.
const LEAST_ROWS: usize = 256;

/// The rows from which a product is no faster with more: samples are divided further than particles down to this.
const ENOUGH_ROWS: usize = 512;

/// The numbers that pass between the layers of a stage for each number that enters it, about.
const WIDTHS: usize = 26;

/// The numbers of a pass's activations for each number of its weights' gradients, at least: writing these must be little beside it.
const ACTIVATIONS: usize = 4;

/// The most numbers in what enters a stage of a pass that is not divided and that one thread computes all the same: libtorch
/// would divide few of its operations.
const SMALL: usize = 1 << 16;

/// Particles and samples that pass together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub members: Range<usize>,
    pub samples: Range<usize>,
    /// The turn of what it adds to sums over samples.
    pub turn: Turn,
}

/// Some members and samples to be divided.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    pub members: usize,
    pub samples: usize,
    /// The numbers of which each pass writes gradients, for one member; 0 where it writes none.
    pub gradients: usize,
}

/// The size of one sample between two stages.
#[derive(Clone, Copy, Debug)]
struct Shape {
    extent: Extent,
    stages: usize,
    /// Whether the layers of a stage are known, so that its size tells how much is computed in it.
    layers_known: bool,
}

impl Model {
    /// Returns the pieces of some members and samples, those of the same samples one after the other; `None` where libtorch's own
    /// threads serve a single pass better, or where there are no threads.
    pub fn pieces(&self, whole: Whole) -> Option<Vec<Piece>> {
        (self.device == Device::Cpu && self.network.divides()).then(|| divided(self.shape(), whole)).flatten()
    }

    /// Returns how many members, and samples of members, are in memory at the same time in a pass over these; `None` where such a pass is not
    /// divided.
    pub fn at_most(&self, whole: Whole) -> Option<AtMost> {
        let pieces = self.pieces(whole)?;
        let at_once = Load { pieces: pieces.len(), particles: whole.members }.at_once();
        let largest = |of: fn(&Piece) -> usize| at_once * pieces.iter().map(of).max().unwrap_or(0);
        let members = largest(|piece| piece.members.len());
        Some(AtMost { members, pairs: largest(|piece| piece.members.len() * piece.samples.len()) })
    }

    /// Returns the bytes that the threads of a pass over these hold beside the weights which they are given.
    pub fn copies_bytes(&self, trained: &dyn Trained, whole: Whole) -> u64 {
        let pieces = self.pieces(whole).map_or(1, |pieces| pieces.len());
        let at_once = Load { pieces, particles: whole.members }.at_once();
        at_once as u64 * self.network.copy_bytes(trained)
    }

    /// Returns how many numbers enter a stage, for one sample.
    pub fn entering(&self) -> u64 {
        self.network.entering(0).first().iter().product::<i64>().max(1) as u64
    }

    /// Returns the samples that pass together, all members at once, where samples alone are divided and the graphs of all are kept;
    /// `None` as [`pieces`](Self::pieces) does.
    pub fn pieces_of_samples(&self, members: usize, samples: usize) -> Option<Vec<Range<usize>>> {
        let divides = self.device == Device::Cpu && self.network.divides() && self.network.keeps_graphs();
        let parts = parts_of_samples(self.shape(), members, samples);
        (divides && parts > 1).then(|| even(samples, parts).collect())
    }

    fn shape(&self) -> Shape {
        let layers_known = self.network.records_layers();
        Shape { extent: self.network.extent(), stages: self.network.stages(), layers_known }
    }

    /// Returns what enters the first layer where members differ, or the stage of that layer, computed once for all of them; `None` if it
    /// is that already, if each member has its own samples, or if what is in front of it is trained.
    ///
    /// # Errors
    /// Fails if the samples cannot be prepared, or if libtorch fails.
    pub fn shared_input(&self, trained: &dyn Trained, input: &Input, members: usize) -> Result<Option<Input>> {
        let stage = self.network.first_stage(trained);
        let in_front = |name: &&str| !name.starts_with(HEAD) && block_of(name).is_none();
        let enters = stage > 0 || !trained.names().iter().any(in_front);
        let orders = match input {
            Input::Stored(stored) => stored.length(0),
            Input::Mixed(images) => images.own.length(0),
            Input::Pixels(pixels) => pixels.size()[0],
            Input::Entering(..) => return Ok(None),
        };
        if !enters || orders != 1 {
            return Ok(None);
        }
        let samples = self.prepared(input)?;
        let weights = Weights::frozen(&self.base);
        let count = samples.length(1) as usize;
        let pieces = self.pieces(Whole { members: 1, samples: count, gradients: 0 });
        let enter = |samples: &Fields| {
            let entered = self.network.enter_at(&weights, stage, samples);
            self.network.enter_within(&weights, stage, entered, Shared { trained, samples: count as i64 })
        };
        let Some(pieces) = pieces else {
            return Ok(Some(Input::Entering(no_grad(|| enter(&samples)), stage)));
        };
        let all = Mutex::new(None);
        let work = |number: usize| {
            let Piece { samples: own, .. } = &pieces[number];
            let (start, length) = (own.start as i64, own.len() as i64);
            no_grad(|| put(enter(&samples.narrow(1, start, length)), start, count as i64, &all));
            Ok(())
        };
        // SAFETY: the pieces read samples and frozen weights through a network that divides, and each writes its own samples.
        unsafe { workers::each(Load { pieces: pieces.len(), particles: members }, &work)? };
        let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(all.map(|all| Input::Entering(all, stage)))
    }
}

/// Puts the values of some samples, from `start` on, in their place among those of all `count`, which the first call makes: so they are never
/// there twice.
fn put(part: Fields, start: i64, count: i64, all: &Mutex<Option<Fields>>) {
    let make = || {
        part.map(|values| {
            let mut size = values.size();
            size[1] = count;
            values.new_empty(size, (values.kind(), values.device()))
        })
    };
    let all = all.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(make).again();
    let length = part.length(1);
    all.narrow(1, start, length).zip(&part).for_each(|(place, own)| place.shallow_clone().copy_(own));
}

fn divided(shape: Shape, whole: Whole) -> Option<Vec<Piece>> {
    let Shape { extent: Extent { tokens, width }, stages, layers_known } = shape;
    let Whole { members, samples, gradients } = whole;
    let rows = samples * tokens;
    let small = layers_known && members * rows * width <= SMALL;
    // Two particles are always divided, since libtorch's threads may give other bits with another number of them.
    let fewest = if small { 1 } else { members.clamp(1, 2) };
    let groups = (members * rows / LEAST_ROWS).clamp(fewest, members.max(1));
    // An even number of groups leaves none of two threads idle.
    let groups = if groups > 1 && groups < members { groups.next_multiple_of(2) } else { groups };
    let at_once = members.div_ceil(groups).max(1);
    let activations = tokens * width * WIDTHS * stages;
    let least = (ACTIVATIONS * gradients).div_ceil(activations.max(1)).max(1);
    let parts = (rows / ENOUGH_ROWS).min(samples / least).max(1);
    let mut pieces = Vec::new();
    for (number, samples) in even(samples, parts).enumerate() {
        for (lane, start) in (0..members).step_by(at_once).enumerate() {
            let members = start..members.min(start + at_once);
            pieces.push(Piece { members, samples: samples.clone(), turn: Turn { lane, number } });
        }
    }
    if pieces.len() > 1 && pieces.len() % 2 == 1 {
        halve_last(&mut pieces);
    }
    (pieces.len() > 1 || small).then_some(pieces)
}

/// Returns the number of parts of samples that pass with all members at once: an even one, or 1. Products with frozen weights have
/// the rows of all members, others those of one.
fn parts_of_samples(shape: Shape, members: usize, samples: usize) -> usize {
    let rows = samples * shape.extent.tokens;
    let parts = (members * rows / ENOUGH_ROWS).min(2 * rows / LEAST_ROWS).min(samples);
    if parts > 1 { parts - parts % 2 } else { 1 }
}

/// Halves the samples of the last piece, so that the last of an odd number does not keep one thread busy alone.
fn halve_last(pieces: &mut Vec<Piece>) {
    let Some(Piece { members, samples, turn }) = pieces.pop() else { return };
    for (number, half) in even(samples.len(), samples.len().min(2)).enumerate() {
        let half = samples.start + half.start..samples.start + half.end;
        pieces.push(Piece {
            members: members.clone(),
            samples: half,
            turn: Turn { number: turn.number + number, ..turn },
        });
    }
}

/// Splits `0..all` into ranges whose lengths differ by one at most.
fn even(all: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let at = move |part: usize| all * part / parts.max(1);
    (0..parts).map(move |part| at(part)..at(part + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ViT-B/32 and a small CLIP.
    const VIT: Shape = Shape { extent: Extent { tokens: 50, width: 768 }, stages: 12, layers_known: true };
    const MINI: Shape = Shape { extent: Extent { tokens: 17, width: 192 }, stages: 6, layers_known: true };

    /// The numbers of members and samples of each piece.
    fn sizes(shape: Shape, members: usize, samples: usize, gradients: usize) -> Vec<[usize; 2]> {
        let pieces = divided(shape, Whole { members, samples, gradients }).unwrap_or_default();
        let mut seen = vec![0; members * samples];
        for Piece { members, samples: own, turn } in &pieces {
            assert!(pieces.iter().filter(|other| other.turn == *turn).count() == 1, "each has its own turn");
            members.clone().for_each(|member| own.clone().for_each(|sample| seen[member * samples + sample] += 1));
        }
        assert!(pieces.is_empty() || seen.iter().all(|count| *count == 1), "everything is passed once");
        pieces.iter().map(|piece| [piece.members.len(), piece.samples.len()]).collect()
    }

    #[test]
    fn particles_are_divided_before_samples() {
        assert_eq!(sizes(MINI, 20, 32, 0), [[1, 32]; 20]);
        assert_eq!(sizes(VIT, 4, 8, 0), [[1, 8]; 4]);
        assert_eq!(sizes(VIT, 5, 8, 0), [[1, 8], [1, 8], [1, 8], [1, 8], [1, 4], [1, 4]], "an odd number");
        let all = sizes(VIT, 2, 128, 0);
        assert!(all.len() == 24 && all.iter().all(|size| [[1, 10], [1, 11]].contains(size)), "{all:?}");
    }

    #[test]
    fn few_rows_pass_together() {
        assert_eq!(sizes(MINI, 20, 8, 0), [[2, 8]; 10]);
        assert_eq!(sizes(MINI, 3, 8, 0), [[2, 8], [1, 8]], "no number of particles is left to libtorch's threads");
        assert_eq!(sizes(VIT, 2, 1, 0), [[1, 1]; 2]);
        assert_eq!(sizes(VIT, 1, 8, 0), Vec::<[usize; 2]>::new(), "libtorch's threads serve it better");
        let tiny = Shape { extent: Extent { tokens: 5, width: 16 }, stages: 2, layers_known: true };
        assert_eq!(sizes(tiny, 2, 4, 0), [[2, 4]], "one thread is enough");
        let unknown = Shape { layers_known: false, ..tiny };
        assert_eq!(sizes(unknown, 2, 4, 0), [[1, 4]; 2], "a thread for each particle of a module");
        assert_eq!(sizes(unknown, 1, 4, 0), Vec::<[usize; 2]>::new(), "libtorch's threads serve a single one better");
    }

    #[test]
    fn gradients_of_many_weights_are_written_seldom() {
        let parts = |gradients: usize| sizes(VIT, 2, 128, gradients).len();
        assert_eq!(parts(400_000), 24);
        assert_eq!(parts(88_000_000), 8);
    }

    #[test]
    fn samples_alone_are_divided_into_an_even_number() {
        assert_eq!(parts_of_samples(MINI, 5, 32), 4);
        assert_eq!(parts_of_samples(VIT, 5, 8), 2);
        assert_eq!(parts_of_samples(VIT, 5, 1), 1);
    }
}
