//! Texts that the members of a posterior write together. At every token the probabilities of all members are averaged, since
//! a posterior predicts one distribution and not as many texts as it has members; the most probable token is written.

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use tch::{Device, Kind, Tensor, no_grad};

use super::{Predictor, in_parts, joined};
use crate::base::tensor::{ROOM_TO_PREDICT, guarded, host_f64, upload};
use crate::data::batches::{SampleSet, Samples, in_order};
use crate::data::fields::{Fields, IDS};
use crate::machine::memory;
use crate::machine::parallel::ProcessGroup;
use crate::model::Input;
use crate::model::head::token_log_probabilities;
use crate::model::network::{Autoregressive, Graph, Prompted, Weights};

/// A token that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub id: u32,
    /// Its probability, averaged over the members.
    pub probability: f64,
    /// The entropy `H[p̄]` of the averaged distribution, in nats.
    pub entropy: f64,
    /// The mutual information `H[p̄] − mean_k H[p_k]`, in nats.
    pub mutual_information: f64,
    /// The most probable tokens with their averaged probabilities, the most probable first.
    pub top: Vec<(u32, f64)>,
}

/// The number of most probable tokens that are kept.
const TOP: i64 = 5;

/// The end of a text.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// The most tokens that are written.
    pub tokens: usize,
    /// The tokens at which a text ends; they are not part of the returned text.
    pub ends: &'a [u32],
}

/// Members that go through the network together, with the texts as they have read them so far.
struct Part<'a> {
    weights: std::rc::Rc<Weights<'a>>,
    texts: Prompted,
}

impl Predictor<'_> {
    /// Continues prompts `[B, …]`, and returns the text that was written after each of them.
    ///
    /// # Errors
    /// Fails if the network writes no texts, if a text would be longer than its context, if the members have no weights, or
    /// if memory does not suffice.
    pub fn generate(&self, prompts: &Fields, stop: Stop) -> Result<Vec<Vec<Written>>> {
        let network = self.model.network.autoregressive().context("this network writes no texts")?;
        let (batch, longest) = (prompts.length(0) as usize, prompts.get(IDS).size()[1]);
        let tokens = longest + stop.tokens as i64;
        ensure!(
            tokens <= network.context(),
            "a prompt of {longest} tokens and {} more exceed the network's context of {} tokens: generate fewer",
            stop.tokens,
            network.context()
        );
        let at_once = self.texts_of(network, tokens, batch);
        self.in_turn(network, prompts, at_once, stop)
    }

    /// Continues prompts, `at_once` of them at a time.
    fn in_turn(
        &self,
        network: &dyn Autoregressive,
        prompts: &Fields,
        at_once: usize,
        stop: Stop,
    ) -> Result<Vec<Vec<Written>>> {
        let mut texts = Vec::new();
        for some in in_parts(0..prompts.length(0) as usize, at_once) {
            let some = prompts.narrow(0, some.start as i64, some.len() as i64);
            texts.extend(self.together(network, &some, stop)?);
        }
        Ok(texts)
    }

    /// Continues prompts at once, unless a pass over so many does not fit beside what is kept of them.
    fn together(&self, network: &dyn Autoregressive, prompts: &Fields, stop: Stop) -> Result<Vec<Vec<Written>>> {
        let (batch, longest) = (prompts.length(0) as usize, prompts.get(IDS).size()[1]);
        let kept = network.kept_bytes(longest + stop.tokens as i64, self.model.kind) * self.members() as u64;
        let chunker = self.plan_pass("generation", Graph::None, batch, kept * batch as u64)?;
        if chunker.cut().images < batch {
            return self.in_turn(network, prompts, chunker.cut().images, stop);
        }
        no_grad(|| {
            let prompts = self.model.preparation.prepare(&prompts.on(self.model.device).for_all());
            let parts = in_parts(0..self.members(), chunker.cut().members).map(|members| {
                let weights = self.weights(members)?;
                let texts = network.read(&weights, &prompts, stop.tokens as i64);
                Ok(Part { weights, texts })
            });
            self.write(network, parts.collect::<Result<_>>()?, batch, stop)
        })
    }

    /// Returns how many texts of at most `most` to continue at once by `tokens` tokens, so that what is kept of them takes at most
    /// half of the free memory.
    ///
    /// # Errors
    /// Fails if the network writes no texts.
    pub fn texts_at_once(&self, tokens: usize, most: usize) -> Result<usize> {
        let network = self.model.network.autoregressive().context("this network writes no texts")?;
        Ok(self.texts_of(network, network.longest_prompt() + tokens as i64, most))
    }

    /// Returns the same number for texts of `tokens` tokens, those of their prompts among them.
    fn texts_of(&self, network: &dyn Autoregressive, tokens: i64, most: usize) -> usize {
        let kept = network.kept_bytes(tokens, self.model.kind) * self.members() as u64;
        let room = memory::room(self.model.device).map_or(u64::MAX, |room| room / 2);
        (room / kept.max(1)).clamp(1, most.max(1) as u64) as usize
    }

    fn write(
        &self,
        network: &dyn Autoregressive,
        mut parts: Vec<Part>,
        batch: usize,
        stop: Stop,
    ) -> Result<Vec<Vec<Written>>> {
        let mut texts = vec![Vec::new(); batch];
        let mut ended = vec![false; batch];
        for step in 0..stop.tokens {
            let logits = parts.iter().map(|part| network.token_logits(&part.weights, &part.texts.features));
            let next = self.next(&Tensor::cat(&logits.collect::<Vec<_>>(), 0))?;
            for ((text, ended), written) in texts.iter_mut().zip(&mut ended).zip(&next) {
                *ended = *ended || stop.ends.contains(&written.id);
                if !*ended {
                    text.push(written.clone());
                }
            }
            if step + 1 == stop.tokens || ended.iter().all(|ended| *ended) {
                break;
            }
            let ids: Vec<i64> = next.iter().map(|written| i64::from(written.id)).collect();
            let ids = upload(&Tensor::from_slice(&ids), self.model.device).unsqueeze(0);
            for Part { weights, texts } in &mut parts {
                texts.features = network.append(weights, &mut texts.memory, &ids);
            }
        }
        Ok(texts)
    }

    /// Returns the most probable token of each text from the logits `[m, B, V]` of all members.
    fn next(&self, logits: &Tensor) -> Result<Vec<Written>> {
        let log_probabilities = logits.to_kind(Kind::Double).log_softmax(-1, Kind::Double);
        let probabilities = log_probabilities.exp();
        let share = self.shares_on(logits.device()).view([-1, 1, 1]);
        let over_members = |x: Tensor| x.sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
        let entropy = |p: &Tensor| -p.xlogy(p).sum_dim_intlist([-1i64].as_slice(), false, Kind::Double);
        let mean = over_members(&probabilities * &share);
        let expected = over_members(entropy(&probabilities).unsqueeze(2) * &share).squeeze_dim(1);
        let entropies = entropy(&mean);
        let (best, ids) = mean.topk(TOP.min(mean.size()[1]), -1, true, true);
        let mutual = (&entropies - expected).clamp_min(0.0);
        let (best, entropies, mutual) = (host_f64(&best.reshape([-1]))?, host_f64(&entropies)?, host_f64(&mutual)?);
        let kept = ids.size()[1] as usize;
        let ids = Vec::<i64>::try_from(ids.to_device(Device::Cpu).reshape([-1]))?;
        let one = |i: usize| {
            let most = (i * kept..(i + 1) * kept).map(|at| (ids[at] as u32, best[at]));
            let top: Vec<(u32, f64)> = most.collect();
            let (id, probability) = top[0];
            Written { id, probability, entropy: entropies[i], mutual_information: mutual[i], top }
        };
        Ok((0..entropies.len()).map(one).collect())
    }
}

impl Predictor<'_> {
    /// Returns, in every process of `group`, what is written after the prompts of questions in batches of at most `batch_size`, in order.
    /// Each process writes its share of the batches.
    ///
    /// # Errors
    /// Fails if images cannot be read, if the network writes no texts, or if memory does not suffice, here or in another process.
    pub fn shared_texts(
        &self,
        group: &ProcessGroup,
        questions: Samples,
        batch_size: usize,
        stop: Stop,
        bar: &ProgressBar,
    ) -> Result<Vec<Vec<Written>>> {
        // All processes must cut the questions into the same batches.
        let at_once = group.least(self.texts_at_once(stop.tokens, batch_size)?);
        let own = group.own(&in_order(questions.indices, at_once));
        bar.set_length(own.iter().map(Vec::len).sum::<usize>() as u64);
        let mut texts = Vec::new();
        for batch in questions.set.prompts(own)? {
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

/// Returns the numbers of all processes, in the order of ranks.
fn all_totals(group: &ProcessGroup, own: &[f64]) -> Result<Vec<f64>> {
    let bytes: Vec<u8> = own.iter().flat_map(|total| total.to_le_bytes()).collect();
    let all = group.gather_bytes(&bytes)?.concat();
    Ok(all.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
}

impl Predictor<'_> {
    /// Returns, in every process of `group`, the mean over some questions of −log p(answer | prompt), where the members'
    /// probabilities are averaged at every token, as they are when answers are written. Each process computes its share of the
    /// batches.
    ///
    /// # Errors
    /// Fails if images cannot be read, if the members have no weights, or if memory does not suffice, here or in another process.
    pub fn answer_loss(
        &self,
        group: &ProcessGroup,
        set: &SampleSet,
        indices: &[u32],
        batch_size: usize,
    ) -> Result<f64> {
        let batch_size = batch_size.min(indices.len()).max(1);
        self.decide_keeping(Graph::None, batch_size, 0);
        let chunker = self.plan_pass("validation", Graph::None, batch_size, 0)?;
        let mut totals = Vec::new();
        for batch in set.batches(group.own(&in_order(indices, batch_size))) {
            let batch = batch?;
            let (samples, targets) = (batch.samples.for_all(), batch.labels.unsqueeze(0));
            let found = chunker.run(|cut| {
                let parts = in_parts(0..targets.size()[1] as usize, cut.images).map(|part| {
                    let (start, length) = (part.start as i64, part.len() as i64);
                    let samples = samples.narrow(1, start, length);
                    self.token_scores(cut.members, &samples, &targets.narrow(1, start, length))
                });
                Ok(joined(parts.collect::<Result<Vec<_>>>()?, 1))
            })?;
            totals.push(-host_f64(&self.averaged(&found).sum(Kind::Double).reshape([1]))?[0]);
        }
        self.made.clear();
        // Summed batch by batch, as one process does it.
        Ok(all_totals(group, &totals)?.iter().sum::<f64>() / indices.len().max(1) as f64)
    }

    /// Returns the log-probabilities of the tokens of answers under each member, `[m, B, A]`.
    fn token_scores(&self, at_once: usize, samples: &Fields, targets: &Tensor) -> Result<Tensor> {
        let members = in_parts(0..self.members(), at_once).map(|members| {
            let (weights, count) = (self.weights(members.clone())?, members.len() as i64);
            let found = no_grad(|| -> Result<Tensor> {
                let hidden = self.model.features_of(&weights, &Input::Stored(samples.again()))?;
                Ok(token_log_probabilities(&weights, &hidden, targets, self.model.head.cap))
            })?;
            Ok(found.to_kind(Kind::Double).expand([count, -1, -1], false))
        });
        Ok(joined(members.collect::<Result<Vec<_>>>()?, 0))
    }

    /// Returns the log of the members' averaged probabilities, `[B, A]`, from their logs `[m, B, A]`.
    fn averaged(&self, scores: &Tensor) -> Tensor {
        let share = self.shares_on(scores.device());
        (scores + share.log().view([-1, 1, 1])).logsumexp([0i64].as_slice(), false)
    }

    /// Returns the share of each member in an average, `[m]` in f64.
    fn shares_on(&self, device: Device) -> Tensor {
        Tensor::from_slice(&self.shares()).to_device(device)
    }
}
