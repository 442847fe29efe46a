//! Texts that several processes write, each those of its share of the batches, gathered in all of them.

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use super::Predictor;
use super::generate::{Stop, Written};
use crate::base::tensor::{ROOM_TO_PREDICT, guarded};
use crate::data::batches::{SampleSet, in_order};
use crate::machine::parallel::ProcessGroup;

impl Predictor<'_> {
    /// Returns, in every process of `group`, what is written after the prompts of the questions `indices` in batches of at most
    /// `batch_size`, in order. Each process writes its share of the batches.
    ///
    /// # Errors
    /// Fails if images cannot be read, if the network writes no texts, or if memory does not suffice, here or in another process.
    pub fn shared_texts(
        &self,
        group: &ProcessGroup,
        (set, indices): (&SampleSet, &[u32]),
        (batch_size, stop): (usize, Stop),
        bar: &ProgressBar,
    ) -> Result<Vec<Vec<Written>>> {
        // All processes must cut the questions into the same batches.
        let at_once = group.least(self.texts_at_once(stop.tokens, batch_size)?);
        let own = group.own(&in_order(indices, at_once));
        bar.set_length(own.iter().map(Vec::len).sum::<usize>() as u64);
        let mut texts = Vec::new();
        for batch in set.prompts(own)? {
            let samples = batch?.samples;
            let found = guarded("generation", ROOM_TO_PREDICT, || self.generate(&samples, stop))?;
            bar.inc(found.len() as u64);
            texts.extend(found);
        }
        gathered(group, texts)
    }
}

/// Returns, in every process, the texts that all processes have written, in the order of ranks.
fn gathered(group: &ProcessGroup, own: Vec<Vec<Written>>) -> Result<Vec<Vec<Written>>> {
    if group.size() == 1 {
        return Ok(own);
    }
    let mut all = Vec::new();
    for bytes in group.gather_bytes(&encoded(&own))? {
        let mut reader = Bytes(&bytes);
        while !reader.0.is_empty() {
            all.push(reader.text()?);
        }
    }
    Ok(all)
}

/// Returns texts as bytes: for each the number of its tokens, then the tokens.
fn encoded(texts: &[Vec<Written>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend((text.len() as u64).to_le_bytes());
        for Written { id, probability, entropy, mutual_information, top } in text {
            bytes.extend(u64::from(*id).to_le_bytes());
            [probability, entropy, mutual_information].iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            bytes.extend((top.len() as u64).to_le_bytes());
            for (id, probability) in top {
                bytes.extend(u64::from(*id).to_le_bytes());
                bytes.extend(probability.to_le_bytes());
            }
        }
    }
    bytes
}

/// The bytes that are still to be read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn eight(&mut self) -> Result<[u8; 8]> {
        let (first, rest) = self.0.split_first_chunk().context("a message between processes is too short")?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.eight()?))
    }

    fn id(&mut self) -> Result<u32> {
        u32::try_from(self.number()?).context("a message between processes is damaged")
    }

    fn float(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.eight()?))
    }

    fn text(&mut self) -> Result<Vec<Written>> {
        let tokens = self.number()?;
        (0..tokens).map(|_| self.written()).collect()
    }

    fn written(&mut self) -> Result<Written> {
        let id = self.id()?;
        let (probability, entropy, mutual_information) = (self.float()?, self.float()?, self.float()?);
        let most = self.number()?;
        let top = (0..most).map(|_| Ok((self.id()?, self.float()?))).collect::<Result<_>>()?;
        Ok(Written { id, probability, entropy, mutual_information, top })
    }
}
