//! A LLaVA network as a [`Network`]. Its first stage sees the image and puts its patches among the embeddings of the prompt;
//! each further stage is a block of the language network. The features are the hidden states at all tokens,
//! `[p, B, T, d]`, or for classes that at the last token, `[p, B, d]`.
//!
//! What enters the first stage is the sample in f32, `[p, B, 2 T + 3 S²]`; between later stages, `[p, B, T, d + 1]` travels as
//! in a language network.

use tch::{Kind, Tensor};

use super::sight::Sight;
use super::{PROJECTOR, TOWER};
use crate::machine::memory::Need;
use crate::model::language::{Language, Rows, aligned};
use crate::model::network::autoregressive::Memory;
use crate::model::network::{Autoregressive, Graph, Network, Slot, SlotKind, Trained, Weights};

/// The number of tokens of an answer for which memory is planned.
const ANSWER: u64 = 8;

/// A network that reads a prompt with an image.
#[derive(Debug)]
pub struct Llava {
    pub language: Language,
    pub sight: Sight,
    /// The tokens whose hidden states are the features: all, or the last one of each prompt.
    pub reads: Rows,
}

/// The trained parameters of the image tower, by their names there.
struct InTower<'a>(&'a dyn Trained);

impl Trained for InTower<'_> {
    fn names(&self) -> Vec<&str> {
        self.0.names().into_iter().filter_map(|name| name.strip_prefix(TOWER)).collect()
    }
}

impl Llava {
    /// Splits samples `[p, B, 2 T + 3 S²]` into ids and mask, `[p, B, T]`, and bytes, `[p, B, 3 S²]`.
    fn split(&self, samples: &Tensor) -> (Tensor, Tensor, Tensor) {
        let (pixels, tokens) = (self.sight.pixels(), self.prompt_tokens(samples));
        let text = samples.narrow(2, 0, 2 * tokens).unflatten(2, [2, tokens].as_slice());
        let (ids, mask) = aligned(&text);
        (ids, mask, samples.narrow(2, 2 * tokens, pixels).to_kind(Kind::Float))
    }

    /// Returns the embeddings of the prompt with the patches at the places of their tokens, `[p', B, T, d + 1]`, and the mask,
    /// `[p, B, T]`.
    fn entered(&self, weights: &Weights, samples: &Tensor) -> (Tensor, Tensor) {
        let (ids, mask, bytes) = self.split(samples);
        let patches = self.sight.patch_embeddings(weights, &bytes);
        let words = self.language.entered(weights, &ids, &mask);
        let width = self.language.geometry.width;
        let here = ids.eq(self.sight.eyes.token).logical_and(&mask.to_kind(Kind::Bool));
        let number = (here.cumsum(2, Kind::Int64) - 1).clamp(0, self.sight.patches() - 1).unsqueeze(3);
        let particles = patches.size()[0];
        let index = number.expand([particles, -1, -1, width], false);
        let placed = Tensor::cat(&[patches.gather(2, &index, false), mask_column(&mask, particles, patches.kind())], 3);
        (placed.where_self(&here.unsqueeze(3), &words), mask)
    }

    /// Returns whether the image tower or the projector is trained.
    fn trains_sight(graph: Graph) -> bool {
        let Graph::Weights { trained, .. } = graph else { return false };
        trained.reaches(TOWER) || trained.reaches("projector.")
    }
}

/// Returns the mask as the last column of what travels between stages, `[particles, B, T, 1]`.
fn mask_column(mask: &Tensor, particles: i64, kind: Kind) -> Tensor {
    mask.unsqueeze(3).to_kind(kind).expand([particles, -1, -1, -1], false)
}

impl Network for Llava {
    fn slots(&self) -> Vec<Slot> {
        let (sight, width) = (&self.sight, self.language.geometry.width);
        let tower = sight.tower.slots().into_iter().filter(|slot| slot.stage < sight.eyes.blocks);
        let mut all: Vec<Slot> = tower
            .map(|slot| Slot {
                name: format!("{TOWER}{}", slot.name),
                target: format!("{TOWER}{}", slot.target),
                stage: 0,
                ..slot
            })
            .collect();
        for (layer, inputs) in PROJECTOR.into_iter().zip([sight.tower.geometry.width, width]) {
            let (name, target, kind) = (layer.to_string(), layer.to_string(), SlotKind::Linear);
            all.push(Slot { name, target, kind, inputs, outputs: width, stage: 0 });
        }
        all.extend(self.language.slots().into_iter().map(|slot| Slot { stage: slot.stage + 1, ..slot }));
        all
    }

    fn stages(&self) -> usize {
        self.language.stages() + 1
    }

    fn blocks(&self) -> usize {
        self.language.stages()
    }

    fn block_of(&self, slot: &Slot) -> Option<usize> {
        slot.stage.checked_sub(1).filter(|block| *block < self.blocks())
    }

    fn stage_of(&self, name: &str) -> usize {
        match name.starts_with(TOWER) || name.starts_with("projector.") || name.starts_with("embed") {
            true => 0,
            false => self.language.stage_of(name) + 1,
        }
    }

    fn feature_width(&self) -> i64 {
        self.language.feature_width()
    }

    fn entering(&self, stage: usize) -> Vec<i64> {
        match stage {
            0 => vec![2 * self.language.tokens + self.sight.pixels()],
            _ if stage == self.stages() && self.reads == Rows::Last => vec![1, self.language.geometry.width + 1],
            _ => vec![self.language.tokens, self.language.geometry.width + 1],
        }
    }

    fn enter(&self, _: &Weights, samples: &Tensor) -> Tensor {
        samples.to_kind(Kind::Float)
    }

    fn stage(&self, weights: &Weights, stage: usize, x: Tensor) -> Tensor {
        match stage.checked_sub(1) {
            None => self.entered(weights, &x).0,
            Some(block) => {
                let rows = if block + 1 == self.blocks() { self.reads } else { Rows::All };
                self.language.block(weights, (block, rows), &x)
            }
        }
    }

    fn features(&self, weights: &Weights, x: &Tensor) -> Tensor {
        let hidden = self.language.normed(weights, x);
        if self.reads == Rows::Last { hidden.select(2, 0) } else { hidden }
    }

    fn autoregressive(&self) -> Option<&dyn Autoregressive> {
        Some(self)
    }

    fn need(&self, graph: Graph, kind: Kind) -> Need {
        let first = match graph {
            Graph::Weights { trained, .. } => self.first_stage(trained).saturating_sub(1),
            Graph::None | Graph::Samples { .. } => 0,
        };
        let read = self.language.need_from(first, graph, kind);
        let float = Kind::Float.elt_size_in_bytes() as u64;
        let pixels = 2 * self.sight.pixels() as u64 * float;
        // The logits of an answer's tokens, their logarithms and the gradient of these.
        let logits = 3 * ANSWER * self.language.geometry.vocabulary as u64 * float;
        let read = Need { image: read.image + pixels, pair: read.pair + logits, ..read };
        match graph {
            Graph::Weights { trained, recompute, own_samples } if Llava::trains_sight(graph) => {
                let inner = InTower(trained);
                let seen = Graph::Weights { trained: &inner, recompute, own_samples };
                let seen = self.sight.tower.need(seen, kind);
                Need { image: read.image + seen.image, pair: read.pair + seen.pair, ..read }
            }
            // Frozen eyes see each image once for all members.
            _ => {
                let seen = self.sight.tower.need(Graph::None, kind);
                Need { image: read.image + seen.image + seen.pair, ..read }
            }
        }
    }
}

impl Autoregressive for Llava {
    fn context(&self) -> i64 {
        self.language.context()
    }

    fn longest_prompt(&self) -> i64 {
        self.language.tokens
    }

    fn prompt_tokens(&self, prompts: &Tensor) -> i64 {
        (prompts.size()[2] - self.sight.pixels()) / 2
    }

    fn read(&self, weights: &Weights, prompts: &Tensor, more: i64) -> (Tensor, Memory) {
        let (entered, mask) = self.entered(weights, &prompts.to_kind(Kind::Float));
        self.language.read_entered(weights, &entered, &mask, more)
    }

    fn append(&self, weights: &Weights, memory: &mut Memory, tokens: &Tensor) -> Tensor {
        self.language.append(weights, memory, tokens)
    }

    fn token_logits(&self, weights: &Weights, features: &Tensor) -> Tensor {
        self.language.token_logits(weights, features)
    }

    fn kept_bytes(&self, tokens: i64, kind: Kind) -> u64 {
        self.language.kept_bytes(tokens, kind)
    }
}
